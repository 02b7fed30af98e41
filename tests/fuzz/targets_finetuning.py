"""What `mybert finetune`, `evaluate` and `predict` read: rows in columns, SQuAD's JSON, and what `datasets` reads."""

import gzip
import io
import json
import shutil
from pathlib import Path
from random import Random

import pyarrow as pa
import pyarrow.parquet
from mutations import mutated_json
from targets_corpus import compressed, of_bytes, of_json
from watch import Target

from modeling_mybert import MyBertConfig
from mybert.common.errors import UserError
from mybert.finetuning.data.conll import read_columns
from mybert.finetuning.data.dataset_loading import read_split
from mybert.finetuning.data.labels import name_labels
from mybert.finetuning.data.squad_json import read_nested
from mybert.finetuning.evaluation import predict
from mybert.finetuning.settings import TaskSettings
from mybert.finetuning.tasks.base import Task
from mybert.finetuning.tasks.registry import task_class

CONLL = b"-DOCSTART- -X- O\n\nAda NNP B-PER\nin IN O\nRome NNP B-LOC\n. . O\n\nBo NNP B-PER\n\xc3\xa9t\xc3\xa9 NN O\n"
SQUAD = {
    "version": "1.1",
    "data": [
        {
            "title": "t",
            "paragraphs": [
                {
                    "context": "Ada lives in Rome.",
                    "qas": [
                        {"id": "1", "question": "Who?", "answers": [{"text": "Ada", "answer_start": 0}]},
                        {"id": "2", "question": "Why?", "answers": [], "is_impossible": True},
                        {"id": "3", "question": "Where?"},
                    ],
                }
            ],
        }
    ],
}
TEXTS = [{"text": "good film", "label": "good"}, {"text": "bad film", "label": "bad"}, {"text": "x", "label": "good"}]
CHOICES = [{"context": "a", "choices": ["b", "c"], "label": 0}, {"context": "d", "choices": ["e", "f"], "label": 1}]
ENDINGS = {"ctx": "a", "ending0": "b", "ending1": "c"}
PAIRS = [{"text": "a", "text_pair": "b", "id": 2**70}, {"sentence": "a"}, {"text": "a", "id": 0.5}]
CSV = b'text,label\ngood film,good\n"bad, ""very""",bad\nx,good\n'


def task(name: str) -> Task:
    config = MyBertConfig()
    name_labels(config, ["bad", "good"])
    kind = task_class(name)
    return kind(TaskSettings().with_defaults(kind.defaults), config)


def rows_of(name: str):
    """Reads and checks rows as the task `name` does."""

    def read(folder: Path) -> None:
        (path,) = [path for path in folder.iterdir() if path.is_file()]
        try:
            reader = task(name)
            rows = read_split(str(path), reader).rows
            for training in (True, False):
                reader.check_rows(rows, training)
        finally:
            shutil.rmtree(folder.parents[3] / "free/datasets", ignore_errors=True)

    return read


def lines_of(name: str):
    """Reads the lines of a file as `mybert predict` does for the task `name`; no line stops it."""

    def read(folder: Path) -> None:
        (path,) = folder.iterdir()
        reader = task(name)
        try:
            for part in predict._lines(str(path), reader):
                check_part(part, reader)
        except UserError as error:
            raise AssertionError(f"a line was not left out: {error}") from error

    return read


def check_part(part: predict._Part, reader: Task) -> None:
    for row in part.given:
        json.dumps({"input": row}, ensure_ascii=False, default=str).encode()
    read = [number for numbers, _ in part.tables for number in numbers]
    assert len({*part.errors, *read}) == len([*part.errors, *read]) == part.size
    for numbers, rows in part.tables:
        bad = {problem.row for problem in reader.check_rows(rows, training=False)}
        assert bad <= {*range(len(numbers))}
        _ = rows.select([row for row in range(len(rows)) if row not in bad])[:]


def reshaped_lines(name: str, seeds: list[dict]):
    """A file of JSON lines, each changed on its own."""

    def make(random: Random) -> dict[str, bytes]:
        return {name: b"\n".join(mutated_json(random, seeds) for _ in range(random.choice((1, 3))))}

    return make


def parquet_files() -> list[bytes]:
    texts, labels = ["One two.", None, "größer 数字"], ["good", None, "bad"]
    found = []
    for text in (pa.array(texts), pa.array(texts).dictionary_encode(), pa.array([[1], None, []])):
        for label in (pa.array(labels), pa.array([0, 1, None]), pa.array([[0.5], [], None])):
            file = io.BytesIO()
            pyarrow.parquet.write_table(pa.table({"text": text, "label": label}), file)
            found.append(file.getvalue())
    return found


def read_columns_of(folder: Path) -> None:
    read_columns(folder / "a.conll")


def read_squad(folder: Path) -> None:
    read_nested(folder / "a.json")


def lines(rows: list[dict]) -> bytes:
    return b"".join(json.dumps(row).encode() + b"\n" for row in rows)


TARGETS = [
    Target("rows in columns", of_bytes("a.conll", CONLL, CONLL.replace(b" ", b"\t"), CONLL * 5), read_columns_of, 4),
    Target("rows of SQuAD", of_json("a.json", SQUAD), read_squad, 4),
    Target("rows .json of SQuAD", of_json("a.json", SQUAD), rows_of("question-answering"), 0.4),
    Target("rows .jsonl", of_bytes("a.jsonl", lines(TEXTS)), rows_of("text-classification"), 0.4),
    Target("rows .json", of_json("a.json", TEXTS), rows_of("text-classification"), 0.4),
    Target("rows .json of choices", of_json("a.json", CHOICES), rows_of("multiple-choice"), 0.4),
    Target("rows .csv", of_bytes("a.csv", CSV), rows_of("text-classification"), 0.4),
    Target("rows .tsv", of_bytes("a.tsv", CSV.replace(b",", b"\t")), rows_of("text-classification"), 0.4),
    Target("rows .parquet", of_bytes("a.parquet", *parquet_files()), rows_of("text-classification"), 0.4),
    Target("rows .gz", compressed("a.jsonl.gz", lines(TEXTS), gzip.compress), rows_of("text-classification"), 0.4),
    Target(
        "lines to predict, .txt",
        of_bytes("a.txt", lines(PAIRS), b"a text\n\nb\n"),
        lines_of("token-classification"),
        4,
    ),
    Target(
        "lines to predict, .jsonl", of_bytes("a.jsonl", lines(PAIRS), lines(TEXTS)), lines_of("text-classification"), 4
    ),
    Target("lines to predict, reshaped", reshaped_lines("a.jsonl", PAIRS), lines_of("text-classification"), 4),
    Target(
        "lines to predict, of choices", reshaped_lines("a.jsonl", [*CHOICES, ENDINGS]), lines_of("multiple-choice"), 4
    ),
    Target("rows in columns, checked", of_bytes("a.conll", CONLL), rows_of("token-classification"), 1),
]
