"""The task of runs whose models are not loaded: it scores their predictions as `mybert evaluate` does."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from modeling_mybert import MyBertConfig
from mybert.common.errors import UserError, short, short_list, warn_once
from mybert.common.quantities import counted
from mybert.comparison.sides import Rows, Side, numbers_of
from mybert.rows.labels import MULTI, REGRESSION, SINGLE, is_not_finite, label_name, number
from mybert.tasks import task_class
from mybert.tasks.base import Task


def task_of(sides: Sequence[Side]) -> Task:
    """The task of the runs, with the labels of all predictions and references.

    Predictions of other tools are converted to the form of the task; a number of a file is a number of a regression
    if the references are no class names.
    """
    every = [rows for side in sides for rows in side.rows]
    name = next((side.task for side in sides if side.task), None) or _guessed(every)
    kind = task_class(name)
    task = kind(kind.Options(), MyBertConfig())
    if kind.name == "text-classification":
        problem = _problem(every)
        labels = _labels(every, problem) if problem != REGRESSION else ["score"]
        _check_any(every, labels)
        if problem != REGRESSION:
            _check_names(every, problem)
        return task.with_labels(labels, problem_type=problem)
    if kind.name == "token-classification":
        _set_tags(every)
        tags = dict.fromkeys(tag for rows in every for one in rows.predictions for tag in one["tags"])
        tags |= dict.fromkeys(tag for reference in every[0].references for tag in reference)
        _check_any(every, tags)
        named = all("f1" in side.evaluation.get("metrics", {"f1": 0}) for side in sides)
        return task.with_labels(sorted(tags), **({} if named else {"tag_scheme": None}))  # they name no entities
    return task


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
    is_sequence |= "tokens" in every[0].inputs[0]
    is_tags = isinstance(reference, list) and is_sequence and "scores" not in prediction
    return "token-classification" if is_tags else "text-classification"


def _problem(every: Sequence[Rows]) -> str:
    first = every[0].predictions[0]
    if isinstance(every[0].references[0], list):
        return MULTI
    numbers = numbers_of(every[0].references)
    if numbers is not None:
        _check_finite(every)
    predicted = numbers_of(_value(one) for rows in every for one in rows.predictions)
    if numbers is None or predicted is None or ("label" in first and "scores" in first):
        return SINGLE
    if "label" in first and all(x == int(x) for x in (*numbers, *predicted)):  # class numbers
        return SINGLE
    if "label" in first and {*numbers} <= {0, 1} and all(0 <= x <= 1 for x in predicted):
        raise UserError(
            f"{every[0].source}: the predictions look like probabilities, and the references are 0 and 1; write the "
            "predicted class, such as 1 from 0.5"
        )
    for rows in every:
        rows.predictions[:] = [{"score": number(_value(one))} for one in rows.predictions]
        rows.references[:] = numbers
    return REGRESSION


def _value(prediction: Mapping[str, Any]) -> Any:
    return prediction.get("score", prediction.get("label"))


def _check_finite(every: Sequence[Rows]) -> None:
    """Raises a UserError if a prediction of a number is infinite or NaN."""
    for rows in every:
        for place, one in zip(rows.places, rows.predictions, strict=True):
            if is_not_finite(value := _value(one)):
                raise UserError(
                    f"{rows.source}, {rows.unit} {place}: the prediction is {value}, and the references are numbers; "
                    "predict a finite number"
                )


def _labels(every: Sequence[Rows], problem: str) -> list[str]:
    """All labels, in the order of a model's probabilities if there are some; predictions get label names."""
    names: dict[str, None] = {}
    for rows in every:
        for place, prediction in zip(rows.places, rows.predictions, strict=True):
            names |= dict.fromkeys(map(_name, prediction["scores"] if _has_scores(prediction) else ()))
            predicted = prediction.get("labels", prediction.get("label"))
            labels = [_name(label) for label in (predicted if isinstance(predicted, list) else [predicted])]
            if problem == MULTI:
                prediction["labels"] = labels
                prediction.pop("tags", None)
            elif len(labels) == 1:
                prediction["label"] = labels[0]
            else:
                raise UserError(f"{rows.source}, {rows.unit} {place}: expected one label, found {short(predicted)}")
    others = {label for rows in every for one in rows.predictions for label in _names(one, problem)}
    targets = every[0].references
    targets[:] = [[_name(label) for label in x] if problem == MULTI else _name(x) for x in targets]
    others |= {label for target in targets for label in (target if problem == MULTI else [target])}
    return [*names, *sorted(others - names.keys())]


def _name(label: Any) -> str:
    return label_name(label).strip()


def _has_scores(prediction: Mapping[str, Any]) -> bool:
    """Whether a prediction has the probability of every label."""
    return isinstance(prediction.get("scores"), dict)


def _check_any(every: Sequence[Rows], labels: Collection[str]) -> None:
    if not labels:
        raise UserError(f"{every[0].source}: no row has a label, neither in the references nor in the predictions")


def _check_names(every: Sequence[Rows], problem: str) -> None:
    """Raises a UserError if no prediction of a file is a label of the references: it has other names for them.

    Warns of predictions of other tools that are no label of the references.
    """
    known = {label for target in every[0].references for label in (target if problem == MULTI else [target])}
    for rows in every:
        predicted = {label for prediction in rows.predictions for label in _names(prediction, problem)}
        if predicted and not predicted & known:
            raise UserError(
                f"{rows.source} predicts {short_list(sorted(predicted))}, and the references are "
                f"{short_list(sorted(known))}; write the same names in both"
            )
        if not any(map(_has_scores, rows.predictions)) and (unknown := predicted - known):
            warn_once(
                f"{rows.source}: no reference is {short_list(sorted(unknown))}; these predictions count as wrong"
            )


def _names(prediction: dict[str, Any], problem: str) -> list[str]:
    return prediction["labels"] if problem == MULTI else [prediction["label"]]


def _set_tags(every: Sequence[Rows]) -> None:
    for rows in every:
        for place, prediction, reference in zip(rows.places, rows.predictions, rows.references, strict=True):
            tags = prediction.get("tags")
            if not isinstance(tags, list) or len(tags) != len(reference):
                tag_count = counted(len(tags), "tag") if isinstance(tags, list) else "no tags"
                words = counted(len(reference), "word")
                raise UserError(f"{rows.source}, {rows.unit} {place}: {tag_count} for {words}; predict one for each")
            prediction.pop("labels", None)
