"""What `mybert finetune`, `evaluate` and `predict` read: rows in columns, SQuAD's JSON, and what `datasets` reads."""

import json
import shutil
from pathlib import Path

from targets_corpus import of_bytes, of_json
from watch import Target

from modeling_mybert import MyBertConfig
from mybert.finetuning.columns import read_columns
from mybert.finetuning.labels import name_labels
from mybert.finetuning.reading import read_rows
from mybert.finetuning.settings import TaskSettings
from mybert.finetuning.squad_file import read_nested
from mybert.finetuning.task import Task
from mybert.finetuning.tasks import task_class

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
            rows = read_rows(str(path), reader)
            for training in (True, False):
                reader.check_rows(rows, training)
        finally:
            shutil.rmtree(folder.parents[3] / "free/datasets", ignore_errors=True)

    return read


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
    Target("rows in columns, checked", of_bytes("a.conll", CONLL), rows_of("token-classification"), 1),
]
