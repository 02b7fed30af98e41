"""Labels that look incorrect: confident learning (Northcutt, Jiang and Chuang 2021)."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from mybert.finetuning.evaluation.calibration import answers


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
    def classes(self) -> tuple:
        """Names of reference and prediction whose probabilities are comparable over rows."""
        if isinstance(self.reference, bool):
            return (self.word, self.reference), (self.word, self.predicted)
        if isinstance(self.reference, int):  # the place of a choice says nothing
            return "the right choice", "the right choice"
        return self.reference, self.predicted

    def reason(self) -> str:
        if isinstance(self.reference, bool):
            return f"{self.word!r} has {self.score if self.predicted else 1 - self.score:.2f}"
        if isinstance(self.reference, int):
            return f"choice {self.reference} has {self.own:.2f}, {self.predicted} has {self.score:.2f}"
        if self.word:
            return f"{self.word!r} is {self.predicted} ({self.score:.2f}), not {self.reference}"
        return f"{self.reference!r} has {self.own:.2f}, {self.predicted!r} has {self.score:.2f}"


class Suspect(NamedTuple):
    """A row whose label looks incorrect, its least probable answer, and the number of runs that contradict it."""

    row: int
    answer: Answer
    runs: int


def find_suspects(
    predictions: Sequence[Mapping], references: Sequence, runs: Sequence[Sequence[float]] = ()
) -> list[Suspect]:
    """The rows whose label looks incorrect, the worst first.

    A row is contradicted if the model predicts another label with at least the mean probability that rows of that
    label have for it. As many rows are listed as are contradicted: those whose own label is least probable. Of all
    rules of cleanlab 2.9, this one finds flipped labels best (benchmarks/results/few_labels.md).

    Args:
        runs: the errors of the rows in several runs. Rows that most of them contradict come first.
    """
    of_rows = [_answers(*pair) for pair in zip(predictions, references, strict=True)]
    owns: dict[Any, list[float]] = {}
    for answer in (answer for some in of_rows for answer in some):
        owns.setdefault(answer.classes[0], []).append(answer.own)
    expected = {name: sum(values) / len(values) for name, values in owns.items()}
    wrong, count = [], 0
    for row, some in enumerate(of_rows):
        false = [answer for answer in some if answer.predicted != answer.reference]
        count += any(answer.score >= expected.get(answer.classes[1], 1.0) - 1e-9 for answer in false)
        if false:
            worst = min(false, key=lambda answer: answer.own)
            wrong.append(Suspect(row, worst, sum(errors[row] > 0 for errors in runs)))
    wrong.sort(key=lambda suspect: (-suspect.runs, suspect.answer.own, -suspect.answer.score, suspect.row))
    return wrong[:count]


def _answers(prediction: Mapping, reference: Any) -> list[Answer]:
    """The answers of a row; none if the model gives no probabilities of labels.

    Predictions of tags lack the probability of other tags; it is then at most the rest.
    """
    if "labels" in prediction:
        given = [(label, label in reference, score) for label, score in prediction["scores"].items()]
        return [
            Answer(label, true, score if true else 1 - score, score > 0.5, max(score, 1 - score))
            for label, true, score in given
        ]
    scores = None if "tags" in prediction else prediction.get("scores")
    return [
        Answer(word, true, score if answer == true else scores[true] if scores else 1 - score, answer, score)
        for word, answer, true, score in answers(prediction, reference)
    ]
