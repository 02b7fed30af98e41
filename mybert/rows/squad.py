"""Answers of question answering: SQuAD's files, and answers that do not stand in their context."""

from pathlib import Path
from typing import Any

from datasets import Dataset, Features, List, Value

from mybert.common.errors import UserError, short
from mybert.common.json_io import parse_json, unwritable
from mybert.common.quantities import counted
from mybert.io.files import open_file
from mybert.rows.label_columns import of_cell

_KINDS = {str: "a text", int: "a whole number", list: "a list"}
_ROWS = Features(
    {
        "id": Value("string"),
        "question": Value("string"),
        "context": Value("string"),
        "answers": {"text": List(Value("string")), "answer_start": List(Value("int64"))},
    }
)


def answers_of(value: Any) -> Any:
    """Answers in a cell of a table, or in a list as in SQuAD's files, as {text, answer_start}; others as given."""
    value = of_cell(value) if isinstance(value, str) else value
    if isinstance(value, list) and all(isinstance(one, dict) and {"text", "answer_start"} <= {*one} for one in value):
        return {name: [one[name] for one in value] for name in ("text", "answer_start")}
    return value


def answer_messages(answers: Any, context: str) -> list[str]:
    """Why the answers of a row cannot be used; empty if they can."""
    if not isinstance(answers, dict) or not all(isinstance(answers.get(k), list) for k in ("text", "answer_start")):
        expected = "{'text': […], 'answer_start': […]}, two empty lists for none"
        return [f"expected answers {expected}, found {short(answers)}"]
    texts, starts = answers["text"], answers["answer_start"]
    if len(texts) != len(starts):
        return [f"{counted(len(texts), 'answer')}, but {len(starts)} answer_start"]
    messages = []
    for text, start in zip(texts, starts, strict=True):
        if isinstance(start, float) and start.is_integer():  # of one fraction, all are floats
            start = int(start)
        if not isinstance(text, str) or not text.strip() or not isinstance(start, int):
            messages.append(f"the answer {short(text)} at {short(start)} is no text and its first character")
        elif start < 0 or context[start : start + len(text)] != text:
            substring = context[max(start, 0) : max(start, 0) + len(text)]
            place = context.find(text)
            hint = "the context does not have it" if place < 0 else f"the context has it at {place}"
            messages.append(
                f"the answer {short(text)} does not stand at character {start} ({short(substring)} does); {hint}"
            )
    return messages


def read_nested(path: Path) -> Dataset | None:
    """Rows {id, question, context, answers {text, answer_start}} of a file {"data": [{"paragraphs": [{"context",
    "qas"}]}]}; None if the file has another form. Questions without answers in the file have None.
    """
    try:
        with open_file(path) as file:
            content = parse_json(file.read().decode("utf-8-sig"))
    except ValueError:
        return None  # not one JSON value; whoever reads it next says what is wrong
    if not isinstance(content, dict) or not isinstance(content.get("data"), list):
        return None
    rows = []
    for a, article in enumerate(content["data"], 1):
        for p, paragraph in enumerate(_field(article, "paragraphs", list, f"{path}, article {a}"), 1):
            place = f"{path}, article {a}, paragraph {p}"
            context = _field(paragraph, "context", str, place)
            for q, item in enumerate(_field(paragraph, "qas", list, place), 1):
                rows.append(_row(item, context, f"{place}, question {q}"))
    if not rows:
        raise UserError(f"{path} holds no questions")
    if problem := unwritable(content):
        raise UserError(f"{path}: {problem}")
    return Dataset.from_list(rows, features=_ROWS)


def _row(item: Any, context: str, place: str) -> dict[str, Any]:
    question = _field(item, "question", str, place)
    answers: dict[str, list[Any]] | None = (
        {"text": [], "answer_start": []} if item.get("is_impossible") is True else None
    )
    if item.get("answers") is not None:
        given = _field(item, "answers", list, place)
        kinds = {"text": str, "answer_start": int}
        answers = {name: [_field(one, name, kind, place) for one in given] for name, kind in kinds.items()}
    if item.get("is_impossible") is True and answers and answers["text"]:
        raise UserError(f"{place}: is_impossible is true, but there are answers; remove one of them")
    name = item.get("id")
    return {"id": name if name is None else str(name), "question": question, "context": context, "answers": answers}


def _field(record: Any, name: str, kind: type[Any], place: str) -> Any:
    value = record.get(name) if isinstance(record, dict) else None
    if not isinstance(value, kind) or (kind is int and not -1 <= value < 2**31):
        raise UserError(f"{place}: expected an object with {name!r}, {_KINDS[kind]}, found {str(record)[:80]!r}")
    return value
