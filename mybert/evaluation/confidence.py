"""What the probabilities of answers say: their calibration error, and labels that look incorrect.

The latter by confident learning (Northcutt, Jiang and Chuang 2021), tags by the number that the model expects.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import minimize
from scipy.special import log_softmax, softmax
from sklearn.metrics import roc_auc_score

_BINS = 10
_MOST = 20.0  # of what calibration multiplies and adds
_FALSE_ALARMS = 0.5  # the most that is expected of the tags that are listed
_LEAST = 1e-12  # probability


class Answer(NamedTuple):
    """A label of a row, and what the model says: one for a row, for each word, or for each of several labels.

    Attributes:
        word: of tags; the label of several labels.
        reference, own: the label that the row has, and its probability.
        predicted, score: the most probable label, and its probability.
    """

    word: str
    reference: Any
    own: float
    predicted: Any
    score: float

    @property
    def classes(self) -> tuple[Any, ...]:
        """Names of reference and prediction whose probabilities are comparable over rows."""
        if isinstance(self.reference, bool):
            return (self.word, self.reference), (self.word, self.predicted)
        if isinstance(self.reference, int):  # the place of a choice says nothing
            return "the right choice", "the right choice"
        return self.reference, self.predicted

    @property
    def label(self) -> str | None:
        """The label that the row has; None: a label of several that it lacks, or the place of a choice."""
        if isinstance(self.reference, bool):
            return self.word if self.reference else None
        return None if isinstance(self.reference, int) else str(self.reference)

    def reason(self) -> str:
        if isinstance(self.reference, bool):
            return f"{self.word!r} has {self.score if self.predicted else 1 - self.score:.2f}"
        if isinstance(self.reference, int):
            return f"choice {self.reference} has {self.own:.2f}, {self.predicted} has {self.score:.2f}"
        if self.word:
            return f"{self.word!r} is {self.predicted} ({self.score:.2f}), not {self.reference}"
        return f"{self.reference!r} has {self.own:.2f}, {self.predicted!r} has {self.score:.2f}"


class Suspect(NamedTuple):
    """A row whose label looks incorrect, and its least probable answer."""

    row: int
    answer: Answer


def find_suspects(
    predictions: Sequence[Mapping[str, Any]], references: Sequence[Any], unlearned: Collection[str] = ()
) -> list[Suspect]:
    """The rows whose label looks incorrect, the worst first.

    A row is contradicted if the model predicts another label with at least the mean probability that rows of that
    label have for it. As many rows are listed as are contradicted: those whose own label is least probable. Of all
    rules of cleanlab 2.9, this one finds flipped labels best (benchmarks/results/few_labels.md).

    Args:
        unlearned: labels that the model cannot predict; rows that have them are not contradicted.
    """
    of_rows = [_answers(*pair) for pair in zip(predictions, references, strict=True)]
    owns: dict[Any, list[float]] = {}
    for answer in (answer for some in of_rows for answer in some):
        owns.setdefault(answer.classes[0], []).append(answer.own)
    expected = {name: sum(values) / len(values) for name, values in owns.items()}
    wrong, count = [], 0
    for row, some in enumerate(of_rows):
        false = [answer for answer in some if answer.predicted != answer.reference and answer.label not in unlearned]
        count += any(answer.score >= expected.get(answer.classes[1], 1.0) - 1e-9 for answer in false)
        if false:
            worst = min(false, key=lambda answer: answer.own)
            wrong.append(Suspect(row, worst))
    wrong.sort(key=lambda suspect: (suspect.answer.own, -suspect.answer.score, suspect.row))
    return wrong[:count]


def find_wrong_tags(
    predictions: Sequence[Mapping[str, Any]],
    references: Sequence[Sequence[str]],
    probabilities: Sequence[np.ndarray],
    names: Sequence[str],
) -> list[Suspect]:
    """The rows with a tag that looks incorrect, the worst first; the answer of a row is its least probable tag.

    Even a right model gives some right tags a low probability: as many as the sum of all low probabilities says. Tags
    are listed up to the highest probability for which this sum is at most half of their number. The probabilities are
    calibrated before, since most models are too sure. Rules that compare tags one by one list most sentences
    (benchmarks/results/few_labels.md).

    Args:
        probabilities: (words, tags) of each row, the probability of every tag of each word.
        names: of the tags.
    """
    places = {name: place for place, name in enumerate(names)}
    given = np.array([places[tag] for tags in references for tag in tags])
    raw = np.concatenate(probabilities)
    calibrated = _calibrate(raw, given)
    own, best = calibrated[np.arange(len(given)), given], raw.argmax(1)
    looks_wrong = (own <= _highest_improbable(calibrated, own)) & (best != given)
    suspects, start = [], 0
    for row, (prediction, tags) in enumerate(zip(predictions, references, strict=True)):
        words = start + np.flatnonzero(looks_wrong[start : start + len(tags)])
        if len(words):
            word = int(words[own[words].argmin()])
            shown, tag = prediction["tokens"][word - start], tags[word - start]
            predicted, score = names[best[word]], float(raw[word].max())
            answer = Answer(shown, tag, float(raw[word, given[word]]), predicted, score)
            suspects.append((own[word], row, Suspect(row, answer)))
        start += len(tags)
    return [suspect for _, _, suspect in sorted(suspects, key=lambda one: one[:2])]


def _highest_improbable(probabilities: np.ndarray, own: np.ndarray) -> float:
    """The highest probability up to which at most `_FALSE_ALARMS` of the labels are expected; -1 if there is none.

    Args:
        probabilities: (n, labels) all probabilities.
        own: (n,) those of the labels.
    """
    every, ordered = np.sort(probabilities, axis=None), np.sort(own)
    sums = np.concatenate([[0.0], np.cumsum(every)])
    expected = sums[np.searchsorted(every, ordered, side="right")]
    number = np.searchsorted(ordered, ordered, side="right")
    return float(ordered[expected <= _FALSE_ALARMS * number].max(initial=-1.0))


def _calibrate(probabilities: np.ndarray, given: np.ndarray) -> np.ndarray:
    """The probabilities with the least cross-entropy of the labels: the logarithms are scaled by a number, and one is
    added for each label (Alexandari, Kundaje and Shrikumar 2020). Those of a model that knows nothing are how frequent
    the labels are.

    Args:
        probabilities: (n, labels).
        given: (n,) the labels.
    """
    logits, labels = np.log(np.maximum(probabilities, _LEAST)), probabilities.shape[1]
    own, frequency = np.arange(len(given)), np.bincount(given, minlength=labels) / len(given)

    def loss(numbers: np.ndarray) -> tuple[float, np.ndarray]:
        scores = log_softmax(numbers[0] * logits + numbers[1:], axis=1)
        means = np.exp(scores)
        slope = ((means * logits).sum(1) - logits[own, given]).mean()
        return -scores[own, given].mean(), np.append(slope, means.mean(0) - frequency)

    bounds = [(0.0, _MOST), *[(-_MOST, _MOST)] * labels]
    numbers = minimize(loss, np.append(1.0, np.zeros(labels)), jac=True, method="L-BFGS-B", bounds=bounds).x
    return softmax(numbers[0] * logits + numbers[1:], axis=1)


def ranks_labels(predictions: Sequence[Mapping[str, Any]], references: Sequence[Any]) -> bool:
    """Whether rows of a label have a higher probability of it than others, more than by chance; for one label a row.

    The mean area under the ROC curve over the labels exceeds 0.5 by two standard errors of a model that knows nothing
    (Mann and Whitney 1947). In contrast to accuracy, it does not depend on how frequent the labels are.
    """
    labels, rows = sorted({reference for reference in references if isinstance(reference, str)}), len(references)
    if len(labels) < 2:
        return False
    areas, errors = [], []
    for label in labels:
        has_label = np.array([reference == label for reference in references])
        areas.append(roc_auc_score(has_label, [prediction["scores"][label] for prediction in predictions]))
        errors.append(np.sqrt((rows + 1) / (12 * has_label.sum() * (rows - has_label.sum()))))
    return bool(np.mean(areas) - 0.5 > 2 * np.mean(errors))


def _answers(prediction: Mapping[str, Any], reference: Any) -> list[Answer]:
    """The answers of a row: a label, a choice or each tag; none if the model gives no probabilities of them.

    Predictions of tags lack the probability of other tags; it is then at most the rest.
    """
    if "labels" in prediction:
        given = [(label, label in reference, score) for label, score in prediction["scores"].items()]
        return [
            Answer(label, true, score if true else 1 - score, score > 0.5, max(score, 1 - score))
            for label, true, score in given
        ]
    if "tags" in prediction:
        tags = zip(prediction["tokens"], prediction["tags"], reference, prediction["scores"], strict=True)
        return [Answer(word, true, p if tag == true else 1 - p, tag, p) for word, tag, true, p in tags]
    answer = prediction.get("choice", prediction.get("label"))
    if answer is None:
        return []
    scores = prediction["scores"]
    return [Answer("", reference, scores[reference], answer, scores[answer])]


def confidences(
    predictions: Sequence[Mapping[str, Any]], references: Sequence[Any]
) -> tuple[np.ndarray, np.ndarray] | None:
    """The probability of each predicted class, and whether it is right: of rows, tags, or each of several labels.

    Returns:
        (n,) probabilities and (n,) booleans; None for predictions without the probability of a class.
    """
    answers = [answer for row in zip(predictions, references, strict=True) for answer in _answers(*row)]
    if not answers:
        return None
    right = [answer.predicted == answer.reference for answer in answers]
    return np.array([answer.score for answer in answers], dtype=np.float64), np.array(right, dtype=bool)


def reliability(confidence: np.ndarray, right: np.ndarray) -> dict[str, Any]:
    """Expected calibration error and the bins of a reliability diagram (Naeini et al. 2015).

    Args:
        confidence, right: of `confidences`.

    Returns:
        `expected_calibration_error`: mean |accuracy - confidence| of bins of equal width, weighted by their rows;
        `confidence` and `accuracy` over all; `bins` that have rows: `from`, `to`, `rows`, `confidence`, `accuracy`.
    """
    places = np.minimum((confidence * _BINS).astype(int), _BINS - 1)
    bins = []
    for place in np.unique(places).tolist():
        inside = places == place
        bounds = {"from": place / _BINS, "to": (place + 1) / _BINS}
        bins.append({**bounds, "rows": int(inside.sum()), **_means(confidence[inside], right[inside])})
    gaps = [b["rows"] * abs(b["accuracy"] - b["confidence"]) for b in bins]
    return {"expected_calibration_error": sum(gaps) / len(confidence), **_means(confidence, right), "bins": bins}


def _means(confidence: np.ndarray, right: np.ndarray) -> dict[str, float]:
    return {"confidence": float(confidence.mean()), "accuracy": float(right.mean())}
