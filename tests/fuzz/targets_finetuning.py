"""Malformed rows of `mybert finetune`, `evaluate` and `predict`."""

import gzip
import json
import shutil
from pathlib import Path
from random import Random

from mutations import mutated_json
from sandbox import Target
from targets_text import PARQUET, compressed, of_bytes, of_json

from modeling_mybert import MyBertConfig
from mybert.common.errors import UserError
from mybert.inference.predictor import part_of
from mybert.rows.squad import read_nested
from mybert.tasks import task_class
from mybert.tasks.base import Task
from mybert.tasks.lines import read_lines
from mybert.tasks.reading import read_split

CONLL = b"-DOCSTART- -X- O\n\nAda NNP B-PER\nin IN O\nRome NNP B-LOC\n. . O\n\nBo NNP B-PER\n\xc3\xa9t\xc3\xa9 NN O\n"
QUESTIONS = [
    {"id": "1", "question": "Who?", "answers": [{"text": "Ada", "answer_start": 0}]},
    {"id": "2", "question": "Why?", "answers": [], "is_impossible": True},
    {"id": "3", "question": "Where?"},
]
SQUAD = {"data": [{"title": "t", "paragraphs": [{"context": "Ada lives in Rome.", "qas": QUESTIONS}]}]}
TEXTS = [{"text": "good film", "label": "good"}, {"text": "bad film", "label": "bad"}, {"text": "x", "label": "good"}]
CHOICES = [{"context": "a", "choices": ["b", "c"], "label": 0}, {"context": "d", "choices": ["e", "f"], "label": 1}]
ENDINGS = {"ctx": "a", "ending0": "b", "ending1": "c"}
PAIRS = [{"text": "a", "text_pair": "b", "id": 2**70}, {"sentence": "a"}, {"text": "a", "id": 0.5}]
CSV = b'text,label\ngood film,good\n"bad, ""very""",bad\nx,good\n'


def task(name: str) -> Task:
    kind = task_class(name)
    return kind(kind.Options.of(), MyBertConfig()).with_labels(["bad", "good"])


def rows_of(name: str):
    """Reads and checks rows for the task `name`."""

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
    """Reads the lines of a file as `mybert predict` does; an invalid line is an error of its row."""

    def read(folder: Path) -> None:
        (path,) = folder.iterdir()
        reader = task(name)
        try:
            parts = [part_of(lines) for lines in read_lines(str(path), reader, 8192)]
        except UserError as error:
            raise AssertionError(f"a line stopped the run: {error}") from error
        for part in parts:
            for row in part.given:
                json.dumps({"input": row}, ensure_ascii=False, default=str).encode()
            usable = [number for numbers, _ in part.tables for number in numbers]
            assert sorted({*part.errors, *usable}) == sorted([*part.errors, *usable]) == list(part.numbers)
            for numbers, rows in part.tables:
                bad = {problem.row for problem in reader.check_rows(reader.prepare(rows), training=False)}
                assert bad <= {*range(len(numbers))}

    return read


def reshaped_lines(name: str, seeds: list[dict]):
    """A file of JSON lines, each changed independently."""

    def make(random: Random) -> dict[str, bytes]:
        return {name: b"\n".join(mutated_json(random, seeds) for _ in range(random.choice((1, 3))))}

    return make


def lines(rows: list[dict]) -> bytes:
    return b"".join(json.dumps(row).encode() + b"\n" for row in rows)


CLASSES, WORDS, CHOOSE = "text-classification", "token-classification", "multiple-choice"
TARGETS = [
    Target("rows in columns", of_bytes("a.conll", CONLL, CONLL.replace(b" ", b"\t")), rows_of(WORDS), 1),
    Target("rows of SQuAD", of_json("a.json", SQUAD), lambda folder: read_nested(folder / "a.json"), 4),
    Target("rows .json of SQuAD", of_json("a.json", SQUAD), rows_of("question-answering")),
    Target("rows .jsonl", of_bytes("a.jsonl", lines(TEXTS)), rows_of(CLASSES)),
    Target("rows .json", of_json("a.json", TEXTS), rows_of(CLASSES)),
    Target("rows .json of choices", of_json("a.json", CHOICES), rows_of(CHOOSE)),
    Target("rows .csv", of_bytes("a.csv", CSV), rows_of(CLASSES)),
    Target("rows .tsv", of_bytes("a.tsv", CSV.replace(b",", b"\t")), rows_of(CLASSES)),
    Target("rows .parquet", of_bytes("a.parquet", *PARQUET), rows_of(CLASSES)),
    Target("rows .gz", compressed("a.jsonl.gz", lines(TEXTS), gzip.compress), rows_of(CLASSES)),
    Target("lines to predict, .txt", of_bytes("a.txt", lines(PAIRS), b"a text\n\nb\n"), lines_of(WORDS), 4),
    Target("lines to predict, .jsonl", of_bytes("a.jsonl", lines(PAIRS), lines(TEXTS)), lines_of(CLASSES), 4),
    Target("lines to predict, reshaped", reshaped_lines("a.jsonl", PAIRS), lines_of(CLASSES), 4),
    Target("lines to predict, choices", reshaped_lines("a.jsonl", [*CHOICES, ENDINGS]), lines_of(CHOOSE), 4),
]
