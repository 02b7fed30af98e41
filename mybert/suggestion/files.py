"""Files of suggestions: rows for `mybert finetune`, and records for Label Studio, doccano and Argilla."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from mybert.common.errors import UserError
from mybert.common.manifest import json_line
from mybert.finetuning.evaluation.prediction_files import write_cells
from mybert.finetuning.evaluation.tag_differences import joined
from mybert.finetuning.tasks.base import Task
from mybert.io.stored_texts import rename_taken
from mybert.suggestion.settings import SuggestSettings


class Suggestion(NamedTuple):
    """A row worth labelling.

    Attributes:
        given: as the input has it.
        row: its columns under the names of the task.
        prediction: as `Predictor` returns it.
        uncertainty: from 0 to 1.
    """

    given: dict | str
    row: dict[str, Any]
    prediction: dict[str, Any]
    uncertainty: float
    reason: str

    @property
    def notes(self) -> dict[str, Any]:
        return {"uncertainty": round(self.uncertainty, 4), "reason": self.reason}


def write_suggestions(path: Path, found: Sequence[Suggestion], settings: SuggestSettings, task: Task) -> None:
    """Writes the suggestions in `settings.format`."""
    of_tool, model = _OF_TOOL.get(settings.format), Path(settings.model).name
    records = [of_tool(one, model) if of_tool else _row(one, task) for one in found]
    if path.suffix == ".csv":
        names = list(dict.fromkeys(name for record in records for name in record))
        rows = ([_cell(record.get(name)) for name in names] for record in records)
        write_cells(path, [names, *rows], settings.spreadsheet_safe)
        return
    with path.open("w", encoding="utf-8", newline="\n") as file:
        file.writelines([json_line(records, indent=2)] if path.suffix == ".json" else map(json_line, records))


def _cell(value: Any) -> str:
    return "" if value is None else value if isinstance(value, str) else json_line(value).rstrip("\n")


def _label(one: Suggestion) -> Any:
    """The predicted label, labels, or spans in characters."""
    return _spans(one)[1] if "tags" in one.prediction else one.prediction.get("labels", one.prediction.get("label"))


def _row(one: Suggestion, task: Task) -> dict[str, Any]:
    """The row as given, with an empty label under the name that training used, the prediction and the reason."""
    given = one.given if isinstance(one.given, dict) else task.plain_row(one.given, "it")
    role, label = "label", _label(one)
    if "tags" in one.prediction:
        role, label = ("spans", label) if "text" in one.row else ("tags", one.prediction["tags"])
    names = task.options.given_columns().get(role, role).split(",")
    notes = {"prediction": label, **one.notes}
    kept = rename_taken({name: column for name, column in given.items() if name not in names}, notes)
    return {**kept, **{name: given.get(name) for name in names}, **notes}


def _spans(one: Suggestion) -> tuple[str, list[dict[str, Any]]]:
    """The text, and in characters of it the predicted entities, or the tags if they do not name entities."""
    is_text = "text" in one.row
    text, offsets = (one.row["text"], one.row["offsets"]) if is_text else joined(one.row["tokens"])
    if "entities" not in one.prediction:
        tags = zip(offsets, one.prediction["tags"], strict=True)
        return text, [{"start": start, "end": end, "label": tag} for (start, end), tag in tags]
    spans = []
    for entity in one.prediction["entities"]:
        start, end = entity["start"], entity["end"]
        if not is_text:  # they count words
            start, end = offsets[start][0], offsets[end - 1][1]
        spans.append({"start": start, "end": end, "label": entity["type"]})
    return text, spans


def _texts(one: Suggestion) -> dict[str, str]:
    """The texts that a person reads."""
    if "tags" in one.prediction:
        return {"text": _spans(one)[0]}
    return {name: one.row[name] for name in ("text", "text_pair") if one.row.get(name) is not None}


def _label_studio(one: Suggestion, model: str) -> dict[str, Any]:
    """A task in Label Studio's JSON, for a configuration with a control `label` of the object `text`."""
    texts, label = _texts(one), _label(one)
    if "tags" in one.prediction:
        kind, values = "labels", []
        for start, end, name in (span.values() for span in label):
            values.append({"start": start, "end": end, "text": texts["text"][start:end], "labels": [name]})
    else:
        chosen = label if isinstance(label, list) else [label]
        kind, values = "choices", [{"choices": chosen}] if chosen else []
    result = [{"from_name": "label", "to_name": "text", "type": kind, "value": value} for value in values]
    prediction = {"model_version": model, "score": round(1 - one.uncertainty, 4), "result": result}
    return {"data": {**texts, **one.notes}, "predictions": [prediction]}


def _doccano(one: Suggestion, model: str) -> dict[str, Any]:
    """A line of doccano's JSONL. Its label is empty: doccano has no predictions, only labels."""
    texts, label = _texts(one), _label(one)
    if "text_pair" in texts:
        raise UserError(
            "--format doccano: doccano shows one text, and these rows are pairs; use --format label-studio"
        )
    return {**texts, "label": [], "prediction": _cell(label), **one.notes}


def _argilla(one: Suggestion, model: str) -> dict[str, Any]:
    """A record as `records.from_json` of Argilla 2 reads it, for a question `label`."""
    suggestion = {"value": _label(one), "score": None, "agent": model}
    return {"fields": _texts(one), "metadata": one.notes, "suggestions": {"label": suggestion}, "responses": {}}


_OF_TOOL = {"label-studio": _label_studio, "doccano": _doccano, "argilla": _argilla}
