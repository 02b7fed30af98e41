"""The task of runs whose models are not loaded: it scores their predictions as `mybert evaluate` does."""

import copy
import math
from collections.abc import Sequence
from typing import Any

from modeling_mybert import MyBertConfig
from mybert.common.errors import UserError, short
from mybert.comparison.sides import Rows, Side
from mybert.finetuning.data.labels import label_name
from mybert.finetuning.tasks.base import Task
from mybert.finetuning.tasks.label_kinds import MULTI, REGRESSION, SINGLE
from mybert.finetuning.tasks.registry import task_class


def task_of(sides: Sequence[Side]) -> Task:
    """The task of the runs, with the labels of all predictions and references.

    Predictions of other tools are converted to the form of the task; a number of a file is a number of a regression
    if the references are no class names.
    """
    every = [rows for side in sides for rows in side.rows]
    name = next((side.task for side in sides if side.task), None) or _guessed(every)
    kind = task_class(name)
    config = MyBertConfig()
    if kind.name == "text-classification":
        problem = _problem(every)
        labels = _labels(every, problem) if problem != REGRESSION else ["score"]
        config = _with_labels(config, labels, problem)
    elif kind.name == "token-classification":
        _set_tags(every)
        tags = dict.fromkeys(tag for rows in every for one in rows.predictions for tag in one["tags"])
        tags |= dict.fromkeys(tag for reference in every[0].references for tag in reference)
        config = _with_labels(config, sorted(tags), None)
        if any("f1" not in side.evaluation.get("metrics", {"f1": 0}) for side in sides):
            config.tag_scheme = None  # the tags name no entities
    return kind(kind.Options(), config)


def _guessed(every: Sequence[Rows]) -> str:
    """The task of files of predictions, by the form of their values."""
    prediction, reference = every[0].predictions[0], every[0].references[0]
    if "choice" in prediction:
        return "multiple-choice"
    if "answer" in prediction:
        return "question-answering"
    is_sequence = all(
        len(one.get("tags", ())) == len(target)
        for rows in every
        for one, target in zip(rows.predictions, rows.references, strict=True)
        if isinstance(target, list)
    )
    is_tags = isinstance(reference, list) and is_sequence and "scores" not in prediction
    return "token-classification" if is_tags else "text-classification"


def _problem(every: Sequence[Rows]) -> str:
    first = every[0].predictions[0]
    if isinstance(every[0].references[0], list):
        return MULTI
    numbers = [_number(target) for target in every[0].references]
    predicted = [_number(one.get("score", one.get("label"))) for rows in every for one in rows.predictions]
    if None in numbers or None in predicted or ("label" in first and "scores" in first):
        return SINGLE
    if "label" in first and all(x == int(x) for x in (*numbers, *predicted)):  # class numbers
        return SINGLE
    for rows in every:
        rows.predictions[:] = [{"score": _number(one.get("score", one.get("label")))} for one in rows.predictions]
        rows.references[:] = numbers
    return REGRESSION


def _number(value: Any) -> float | None:
    try:
        found = float(value)
    except (TypeError, ValueError):
        return None
    return found if math.isfinite(found) else None


def _labels(every: Sequence[Rows], problem: str) -> list[str]:
    """All labels, in the order of a model's probabilities if there are some; predictions get label names."""
    names: dict[str, None] = {}
    for rows in every:
        for number, prediction in enumerate(rows.predictions):
            names |= dict.fromkeys(prediction["scores"] if isinstance(prediction.get("scores"), dict) else ())
            if problem == MULTI:
                found = prediction.get("labels", prediction.get("label"))
                prediction["labels"] = [str(label) for label in (found if isinstance(found, list) else [found])]
            elif "label" not in prediction:
                place = rows.places[number]
                raise UserError(f"{rows.source}, row {place}: expected one label, found {short(prediction)}")
            else:
                prediction["label"] = label_name(prediction["label"])
    others = {label for rows in every for one in rows.predictions for label in _names(one, problem)}
    targets = every[0].references
    targets[:] = [[label_name(label) for label in x] if problem == MULTI else label_name(x) for x in targets]
    others |= {label for target in targets for label in (target if problem == MULTI else [target])}
    return [*names, *sorted(others - names.keys())]


def _names(prediction: dict, problem: str) -> list[str]:
    return prediction["labels"] if problem == MULTI else [prediction["label"]]


def _set_tags(every: Sequence[Rows]) -> None:
    for rows in every:
        for place, prediction, reference in zip(rows.places, rows.predictions, rows.references, strict=True):
            tags = prediction.get("tags")
            if not isinstance(tags, list) or len(tags) != len(reference):
                found = f"{len(tags)} tags" if isinstance(tags, list) else "no tags"
                raise UserError(f"{rows.source}, row {place}: {found} for {len(reference)} words")


def _with_labels(config: MyBertConfig, names: list[str], problem: str | None) -> MyBertConfig:
    config = copy.deepcopy(config)
    values = {"id2label": dict(enumerate(names)), "label2id": {name: number for number, name in enumerate(names)}}
    config.update({"num_labels": len(names), **values, "problem_type": problem})
    return config
