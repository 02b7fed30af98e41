"""Targets: the scores of a prediction that are explained, one function for each task.

A score is a sum of weights times evidence. Evidence is the log-odds of each label (classes, tags), the start and end
logits of each token (answers), the score of a choice, or the vector of a text scaled to length 1 (similarities).
"""

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from mybert.common.errors import UserError, short_list
from mybert.explanation.similarity import Similarity
from mybert.inference.predictor import Outputs
from mybert.rows.labels import SINGLE
from mybert.tasks.base import Prediction, Task
from mybert.tasks.features import ROW
from mybert.tasks.multiple_choice import MultipleChoice
from mybert.tasks.question_answering import QuestionAnswering
from mybert.tasks.text_classification import TextClassification
from mybert.tasks.token_classification import TokenClassification


class Target(NamedTuple):
    """
    Attributes:
        feature: index of the feature whose tokens get attributions.
        name: the label, the tag with its words, the answer, or the text that is compared.
        weights: of the evidence: (labels,), (S, labels), (S, 2), (1,) or (H,).
        choice: the choice of a row of multiple-choice; its tokens get attributions.
    """

    row: int
    feature: int
    name: str
    weights: np.ndarray
    choice: int | None = None


def evidence(task: Task, logits: Tensor) -> Tensor:
    """Logits as float32 evidence of the same shape; see the module."""
    logits = logits.float()
    if isinstance(task, Similarity):
        return torch.nn.functional.normalize(logits, dim=-1)
    if isinstance(task, TokenClassification) or task.config.problem_type == SINGLE:
        others = logits[..., None, :].expand(*logits.shape, logits.shape[-1])
        own = torch.eye(logits.shape[-1], dtype=torch.bool, device=logits.device)
        return logits - others.masked_fill(own, -torch.inf).logsumexp(-1)
    return logits


def targets_of(task: Task, outputs: Outputs, labels: Sequence[str]) -> list[Target]:
    """The targets of all rows, in order, for these labels, or without any for the predicted ones."""
    has_labels = isinstance(task, TextClassification | TokenClassification) and not isinstance(task, Similarity)
    known = task.label2id if has_labels else {}
    if unknown := [label for label in labels if label not in known]:
        has = f"the model has {short_list(known)}" if known else f"{task.name} has no labels"
        raise UserError(f"--labels {unknown[0]}: {has}")
    find = next(function for kind, function in _FINDERS.items() if isinstance(task, kind))
    context = _Context(task, outputs, labels)
    rows = zip(outputs.predictions, features_of_rows(outputs), strict=True)
    return [target for number, row in enumerate(rows) for target in find(context, number, *row)]


def features_of_rows(outputs: Outputs) -> list[list[int]]:
    """The indices of the features of each row."""
    features: list[list[int]] = [[] for _ in outputs.predictions]
    for feature, row in enumerate(outputs.features[ROW][:]):
        features[row].append(feature)
    return features


class _Context(NamedTuple):
    task: Task
    outputs: Outputs
    labels: Sequence[str]


def _classes(context: _Context, row: int, prediction: Prediction, features: list[int]) -> Iterator[Target]:
    """Each label for each window; the number of a regression."""
    task = context.task
    names = context.labels or prediction.get("labels") or [prediction.get("label")]
    if "labels" in prediction and not (context.labels or prediction["labels"]):
        names = [max(prediction["scores"], key=prediction["scores"].get)]  # the nearest to being predicted
    for name in names:
        label = 0 if name is None else task.label2id[name]
        for feature in features:
            yield Target(row, feature, "score" if name is None else name, np.eye(len(task.id2label))[label])


def _tags(context: _Context, row: int, prediction: Prediction, features: list[int]) -> Iterator[Target]:
    """The mean log-odds of the tags of each entity, or of each word's tag if tags do not name entities."""
    task, tags = context.task, prediction["tags"]
    assert isinstance(task, TokenClassification)
    ids = task.label2id
    for first, last, name in task.spans(tags):
        chosen = set(tags[first:last]) & set(context.labels) if context.labels else name != "O"
        if not chosen:
            continue
        for feature in features:
            words = np.asarray(context.outputs.features[feature]["words"])
            places = np.flatnonzero((words >= first) & (words < last))
            if len(places):
                weights = np.zeros((len(words), len(ids)))
                weights[places, [ids[tags[word]] for word in words[places]]] = 1 / len(places)
                yield Target(row, feature, f"{name}: {' '.join(prediction['tokens'][first:last])}", weights)
                break


def _answer(context: _Context, row: int, prediction: Prediction, features: list[int]) -> Iterator[Target]:
    """The score of the answer in the window with all of it and most context, or of "no answer" in the first window."""
    best, most = (features[0], 0, 0), (0, -1)  # tokens of the answer, and of the context on its shorter side
    for feature in features if prediction["answer"] else ():
        columns = context.outputs.features[feature]
        offsets, first = columns["offsets"], columns["first"]
        inside = [
            place
            for place, (start, end) in enumerate(offsets)
            if start < prediction["end"] and end > prediction["start"]
        ]
        room = min(inside[0], len(offsets) - 1 - inside[-1]) if inside else -1
        if (len(inside), room) > most:
            best, most = (feature, first + inside[0], first + inside[-1]), (len(inside), room)
    feature, start, end = best
    weights = np.zeros((len(context.outputs.features[feature]["input_ids"]), 2))
    weights[start, 0] = weights[end, 1] = 1
    yield Target(row, feature, prediction["answer"] or "no answer", weights)


def _choice(context: _Context, row: int, prediction: Prediction, features: list[int]) -> Iterator[Target]:
    """The score of the predicted choice, which the model computes without the others."""
    yield Target(row, features[0], prediction["text"], np.ones(1), prediction["choice"])


def _similarity(context: _Context, row: int, prediction: Prediction, features: list[int]) -> Iterator[Target]:
    """The cosine as a function of each text; the vector of the other text is constant."""
    first, second = features
    for feature, other, name in ((first, second, "text"), (second, first, "text_pair")):
        vector = np.asarray(context.outputs.logits[other], dtype=np.float64)
        yield Target(row, feature, f"similarity, words of {name}", vector / np.linalg.norm(vector))


_FINDERS: dict[type[Task], Callable[[_Context, int, Prediction, list[int]], Iterator[Target]]] = {
    Similarity: _similarity,
    TextClassification: _classes,
    TokenClassification: _tags,
    QuestionAnswering: _answer,
    MultipleChoice: _choice,
}
