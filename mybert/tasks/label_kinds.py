"""The three kinds of targets of a text: one label, several labels, or a number. What each kind predicts and scores."""

import functools
import statistics
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from scipy.special import expit

from modeling_mybert import MyBertConfig
from mybert.common.errors import short_list
from mybert.common.quantities import counted
from mybert.rows.labels import MULTI, REGRESSION, SINGLE, known_name
from mybert.tasks import bootstrap_scores
from mybert.tasks.base import Prediction
from mybert.tasks.bootstrap_scores import Scorer

_BASELINES = 20  # maximum number of labels whose baselines are computed


class LabelKind(ABC):
    """A kind of targets. Predictions are dictionaries as `mybert predict` writes them; references are targets.

    Args:
        config: of a model with its labels.
        thresholds: probability above which each label is predicted; "" names all labels.
        activation: computes the values from logits (rows, num_labels); None: softmax, sigmoid or nothing, by kind.

    Class attributes:
        name: of the kind, in the summary of the data.
        key: of the value in a prediction that is compared with the reference.
        main_metric, selection_metric: see `Task`.
    """

    name: str
    key: str
    main_metric: str
    selection_metric: str

    def __init__(
        self,
        config: MyBertConfig,
        thresholds: Mapping[str, float] | None = None,
        activation: Callable[[torch.Tensor], torch.Tensor] | None = None,
    ):
        self.config, self.thresholds, self.activation = config, dict(thresholds or {}), activation
        labels: Any = config.id2label or {}  # config.json sorts `label2id`
        self.ids: dict[str, int] = {name: number for number, name in sorted(labels.items())}

    def summary(self, references: Sequence[Any]) -> str:
        """The kind and its labels or range."""
        return f"{self.name}: {counted(len(self.ids), 'label')} ({short_list(self.ids)})"

    @abstractmethod
    def reference(self, label: Any) -> Any:
        """The target of a row, from its label."""

    @abstractmethod
    def model_label(self, label: Any) -> int | float | list[float]:
        """The label as the model takes it."""

    @abstractmethod
    def predictions(self, logits: np.ndarray) -> list[Prediction]:
        """One for each row of logits (rows, num_labels)."""

    def targets(self, labels: Sequence[Any]) -> np.ndarray:
        """(rows, outputs) what a linear model learns: 0 and 1, or numbers."""
        return np.array([self.model_label(label) for label in labels], dtype=float).reshape(len(labels), -1)

    def from_linear(self, values: np.ndarray) -> list[Prediction]:
        """Predictions from the outputs (rows, outputs) of a linear model of `targets`."""
        return self.predictions(values)

    @abstractmethod
    def constants(self, references: Sequence[Any]) -> Iterable[Prediction]:
        """Constant predictions, as baselines."""

    def labels(self, answer: Any) -> Sequence[str]:
        """The labels of a reference, or of a prediction's value for `key`; numbers have none."""
        return [answer] if isinstance(answer, str) else answer

    def counts(self, references: Sequence[Any], edges: Sequence[float] = ()) -> Counter[str]:
        """Number of rows of each label; of numbers, in each part between `edges`."""
        return Counter(label for reference in references for label in self.labels(reference))

    @abstractmethod
    def scorer(self, predictions: Sequence[Prediction], references: Sequence[Any]) -> Scorer:
        """See `Task.scorer`."""

    @abstractmethod
    def error(self, prediction: Prediction, reference: Any) -> float:
        """0 is right, more is worse."""


class SingleLabel(LabelKind):
    """One label for each text: `label`, its probability `score`, and all `scores`."""

    name, key = "single label", "label"
    # accuracy may prefer a checkpoint that predicts the most frequent label for every row
    main_metric, selection_metric = "accuracy", "f1_macro"

    def reference(self, label: Any) -> str:
        return known_name(label, self.ids)

    def model_label(self, label: Any) -> int:
        return self.ids[known_name(label, self.ids)]

    def targets(self, labels: Sequence[Any]) -> np.ndarray:
        return np.eye(len(self.ids))[[self.model_label(label) for label in labels]]

    def predictions(self, logits: np.ndarray) -> list[Prediction]:
        predictions = []
        activation = self.activation or torch.nn.Softmax(1)  # scipy's takes ten times as long for one row
        for row in activation(torch.from_numpy(logits)).tolist():
            scores = dict(zip(self.ids, row, strict=True))
            best = max(self._possible(scores), key=scores.__getitem__)
            predictions.append({"label": best, "score": scores[best], "scores": scores})
        return predictions

    def _possible(self, scores: Mapping[str, float]) -> Collection[str]:
        """The labels above their threshold; if none is, those without a threshold; if all have one, all."""
        thresholds = {name: self.thresholds.get(name, self.thresholds.get("")) for name in scores}
        above = [name for name, least in thresholds.items() if least is not None and scores[name] > least]
        return above or [name for name, least in thresholds.items() if least is None] or scores

    def constants(self, references: Sequence[Any]) -> Iterable[Prediction]:
        return [{"label": label} for label, _ in Counter(references).most_common(_BASELINES)]

    def scorer(self, predictions: Sequence[Prediction], references: Sequence[Any]) -> Scorer:
        labels = [prediction["label"] for prediction in predictions]
        predicted, true = (np.array([self.ids[label] for label in each]) for each in (labels, references))
        return functools.partial(bootstrap_scores.single_label, predicted, true, len(self.ids))

    def error(self, prediction: Prediction, reference: str) -> float:
        """1 - the probability of the right label if another is predicted; predictions of other tools may lack it."""
        return 0.0 if prediction["label"] == reference else 1 - prediction.get("scores", {}).get(reference, 0.0)


class MultiLabel(LabelKind):
    """Any number of labels for each text: `labels` above the threshold, and all `scores`."""

    name, key = "several labels", "labels"
    main_metric = selection_metric = "f1_micro"

    def reference(self, label: Sequence[Any]) -> list[str]:
        return list(dict.fromkeys(known_name(one, self.ids) for one in label))

    def model_label(self, label: Sequence[Any]) -> list[float]:
        names = set(self.reference(label))
        return [float(name in names) for name in self.ids]

    def predictions(self, logits: np.ndarray) -> list[Prediction]:
        tuned = getattr(self.config, "label_threshold", None)  # on validation rows
        every = self.thresholds.get("", tuned if isinstance(tuned, float) else 0.5)
        least = {name: self.thresholds.get(name, every) for name in self.ids}
        rows = [dict(zip(self.ids, row, strict=True)) for row in expit(logits).tolist()]
        return [{"labels": [name for name in self.ids if row[name] > least[name]], "scores": row} for row in rows]

    def from_linear(self, values: np.ndarray) -> list[Prediction]:
        """The threshold of the configuration is that of the fine-tuned model."""
        return [{"labels": [name for name, value in zip(self.ids, row, strict=True) if value > 0.5]} for row in values]

    def constants(self, references: Sequence[Any]) -> Iterable[Prediction]:
        """The most common set, all labels, and the most common labels together."""
        labels = [label for label, _ in self.counts(references).most_common()]
        sets = [list(statistics.mode(tuple(sorted(labels)) for labels in references)), labels]
        return [{"labels": some} for some in (*sets, *(labels[:count] for count in range(1, _BASELINES)))]

    def scorer(self, predictions: Sequence[Prediction], references: Sequence[Any]) -> Scorer:
        predicted = self.chosen([prediction["labels"] for prediction in predictions])
        return functools.partial(bootstrap_scores.multi_label, predicted, self.chosen(references))

    def chosen(self, answers: Sequence[Sequence[str]]) -> np.ndarray:
        """(rows, labels) whether a row has a label."""
        chosen = np.zeros((len(answers), len(self.ids)), dtype=bool)
        for row, labels in enumerate(answers):
            chosen[row, [self.ids[label] for label in labels]] = True
        return chosen

    def best_threshold(self, predictions: Sequence[Prediction], references: Sequence[Any]) -> float:
        """The threshold with the highest micro F1."""
        scores = np.array([list(prediction["scores"].values()) for prediction in predictions])
        return bootstrap_scores.best_label_threshold(scores, self.chosen(references))

    def error(self, prediction: Prediction, reference: Sequence[str]) -> float:
        """The number of missing and additional labels."""
        return float(len(set(prediction["labels"]) ^ set(reference)))


class Regression(LabelKind):
    """A number for each text: `score`."""

    name, key = "regression", "score"
    main_metric = selection_metric = "pearson"

    def summary(self, references: Sequence[Any]) -> str:
        return f"{self.name}: numbers from {min(references):g} to {max(references):g}"

    def reference(self, label: Any) -> float:
        return float(label)

    model_label = reference

    def labels(self, answer: float) -> Sequence[str]:
        return ()

    def predictions(self, logits: np.ndarray) -> list[Prediction]:
        values = torch.from_numpy(logits)
        return [{"score": score} for score in (self.activation or torch.nn.Identity())(values)[:, 0].tolist()]

    def constants(self, references: Sequence[Any]) -> Iterable[Prediction]:
        mean = np.clip(np.mean(references), min(references), max(references))  # exact if all are equal
        return [{"score": float(mean)}]

    def counts(self, references: Sequence[Any], edges: Sequence[float] = ()) -> Counter[str]:
        """Number of references in each part between `edges`; numbers outside are counted in the first or last."""
        counts = np.histogram(np.clip(references, edges[0], edges[-1]), edges)[0].tolist()
        precisions = ([f"{edge:.{digits}g}" for edge in edges] for digits in range(3, 18))
        names = next(names for names in precisions if len(set(names)) == len(names))  # 2000.8 and 2001.6 are 2e+03
        return Counter({f"{low} to {high}": count for low, high, count in zip(names, names[1:], counts, strict=False)})

    def scorer(self, predictions: Sequence[Prediction], references: Sequence[Any]) -> Scorer:
        scores = np.array([prediction["score"] for prediction in predictions])
        return functools.partial(bootstrap_scores.regression, scores, np.array(references))

    def error(self, prediction: Prediction, reference: float) -> float:
        """The absolute difference."""
        return abs(prediction["score"] - reference)


KINDS: dict[str, type[LabelKind]] = {SINGLE: SingleLabel, MULTI: MultiLabel, REGRESSION: Regression}
"""By `config.problem_type`."""


def equal_parts(numbers: Sequence[float]) -> tuple[float, ...]:
    """Bounds of five equal parts of the range of numbers; of one part if floats cannot resolve five."""
    low, high = min(numbers), max(numbers)
    edges = np.linspace(low - 0.5, high + 0.5, 6) if low == high else np.linspace(low, high, 6)
    return tuple(edges.tolist()) if (np.diff(edges) > 0).all() else (low, float(np.nextafter(high, np.inf)))
