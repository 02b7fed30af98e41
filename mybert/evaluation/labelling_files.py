"""Files of rows that a person labels: for `mybert finetune`, Label Studio, doccano and Argilla."""

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, cast

from mybert.artifacts.manifest import json_line
from mybert.common.errors import UserError
from mybert.inference.prediction_files import cell, write_cells
from mybert.io.record_formats import rename_taken
from mybert.tasks.base import Task
from mybert.tasks.entities import joined
from mybert.tasks.token_classification import TokenClassification


class RowToLabel(NamedTuple):
    """A row worth labelling, or whose label is to be checked.

    Attributes:
        given: as the input has it.
        row: its columns under the names of the task.
        prediction: as `Predictor` returns it.
        score: how sure the prediction is, from 0 to 1.
        notes: columns that say why.
        reference: the label that the row has, as `Task.references` returns it; None if it has none.
    """

    given: dict[str, Any] | str
    row: dict[str, Any]
    prediction: dict[str, Any]
    score: float
    notes: dict[str, Any]
    reference: Any = None


def check_form(option: str, form: str, task: Task, columns: Collection[str]) -> None:
    """Raises UserError if the tool cannot show rows with these columns. `option` is the one that chose the form."""
    if form in _OF_TOOL and task.name == "multiple-choice":
        raise UserError(
            f"{option} {form}: annotation tools label texts, and these rows have choices; use jsonl or csv"
        )
    if form == "doccano" and "text_pair" in columns:
        raise UserError(f"{option} doccano: doccano shows one text, and these rows are pairs; use label-studio")


def write_rows_to_label(
    path: Path, rows: Sequence[RowToLabel], form: str, model: str, task: Task, spreadsheet_safe: bool = False
) -> None:
    """Writes rows in one of `LABELLING_FORMS`. `model` is the name that Label Studio and Argilla show."""
    of_tool = _OF_TOOL.get(form)
    records = [of_tool(one, task, model) if of_tool else _row(one, task) for one in rows]
    if path.suffix == ".csv":
        names = list(dict.fromkeys(name for record in records for name in record))
        cells = ([cell(record.get(name)) for name in names] for record in records)
        write_cells(path, [names, *cells], spreadsheet_safe, "utf-8-sig")  # else Excel takes it for Windows-1252
        return
    with path.open("w", encoding="utf-8", newline="\n") as file:
        file.writelines([json_line(records, indent=2)] if path.suffix == ".json" else map(json_line, records))


def _predicted(one: RowToLabel, task: Task) -> Any:
    """The predicted label, labels, or spans in characters."""
    if "tags" in one.prediction:
        return _spans(one, one.prediction["tags"], task)
    return one.prediction.get("labels", one.prediction.get("label", one.prediction.get("choice")))


def _reference(one: RowToLabel, task: Task) -> Any:
    """The label of the row in the form of `_predicted`."""
    has_tags = "tags" in one.prediction and one.reference is not None
    return _spans(one, one.reference, task) if has_tags else one.reference


def _row(one: RowToLabel, task: Task) -> dict[str, Any]:
    """The row as given, with the prediction and the notes. A row without label gets an empty one, under the name that
    training used.
    """
    given = one.given if isinstance(one.given, dict) else task.plain_row(one.given)
    predicted = _predicted(one, task)
    if "tags" in one.prediction and "text" not in one.row:
        predicted = one.prediction["tags"]
    notes = {"prediction": predicted, **one.notes}
    if one.reference is not None:
        return {**rename_taken(given, notes), **notes}
    names = label_columns(one.row, task)
    kept = rename_taken({name: column for name, column in given.items() if name not in names}, notes)
    return {**kept, **{name: given.get(name) for name in names}, **notes}


def label_columns(row: Mapping[str, Any], task: Task) -> list[str]:
    """The columns of a row's label, under the names that training used."""
    role = "label" if "tags" not in task.targets else "spans" if "text" in row else "tags"
    return task.options.given_columns().get(role, role).split(",")


def _text(one: RowToLabel) -> tuple[str, Sequence[Sequence[int]]]:
    """The text of a row with words, and the start and end of each word in it."""
    return (one.row["text"], one.row["offsets"]) if "text" in one.row else joined(one.row["tokens"])


def _spans(one: RowToLabel, tags: Sequence[str], task: Task) -> list[dict[str, Any]]:
    """In characters of the text the entities of `tags`, or the tags if they do not name entities."""
    offsets = _text(one)[1]
    labelled = cast(TokenClassification, task).spans(tags)
    return [{"start": offsets[first][0], "end": offsets[end - 1][1], "label": label} for first, end, label in labelled]


def _texts(one: RowToLabel) -> dict[str, str]:
    """The texts that a person reads."""
    if "tags" in one.prediction:
        return {"text": _text(one)[0]}
    return {name: one.row[name] for name in ("text", "text_pair") if one.row.get(name) is not None}


def _others(one: RowToLabel, task: Task) -> dict[str, Any]:
    """The other columns of the row, such as its id, and the notes."""
    given = one.given if isinstance(one.given, dict) else {}
    texts = _texts(one)
    labels = {*task.options.given_columns().values(), *(name for names in task.targets.values() for name in names)}
    kept = {
        name: value
        for name, value in given.items()
        if isinstance(value, str | int | float) and value not in texts.values() and name not in labels
    }
    return {**rename_taken(kept, {**texts, **one.notes, "label": None, "prediction": None}), **one.notes}


def _label_studio(one: RowToLabel, task: Task, model: str) -> dict[str, Any]:
    """A task in Label Studio's JSON, for a configuration with a control `label` of the object `text`."""
    texts = _texts(one)

    def results(label: Any) -> list[dict[str, Any]]:
        if "tags" in one.prediction:
            kind, values = "labels", []
            for start, end, name in (span.values() for span in label):
                values.append({"start": start, "end": end, "text": texts["text"][start:end], "labels": [name]})
        else:
            chosen = label if isinstance(label, list) else [label]
            kind, values = "choices", [{"choices": chosen}] if chosen else []
        return [{"from_name": "label", "to_name": "text", "type": kind, "value": value} for value in values]

    result = results(_predicted(one, task))
    predictions = [{"model_version": model, "score": round(one.score, 4), "result": result}]
    task_of_tool = {"data": {**texts, **_others(one, task)}, "predictions": predictions}
    if one.reference is not None:
        task_of_tool["annotations"] = [{"result": results(_reference(one, task))}]
    return task_of_tool


def _doccano(one: RowToLabel, task: Task, model: str) -> dict[str, Any]:
    """A line of doccano's JSONL. doccano has no predictions, only labels."""
    texts = _texts(one)
    label = _reference(one, task) or []
    if "tags" in one.prediction:
        label = [list(span.values()) for span in label]
    label = label if isinstance(label, list) else [label]
    return {**texts, "label": label, "prediction": cell(_predicted(one, task)), **_others(one, task)}


def _argilla(one: RowToLabel, task: Task, model: str) -> dict[str, Any]:
    """A record as `records.from_json` of Argilla 2 reads it, for a question `label`.

    Responses belong to users of Argilla, so the label that a row has is metadata.
    """
    suggestion = {"value": _predicted(one, task), "score": None, "agent": model}
    given = {} if one.reference is None else {"reference": cell(_reference(one, task))}
    metadata = {**_others(one, task), **given}
    return {"fields": _texts(one), "metadata": metadata, "suggestions": {"label": suggestion}, "responses": {}}


_OF_TOOL = {"label-studio": _label_studio, "doccano": _doccano, "argilla": _argilla}
