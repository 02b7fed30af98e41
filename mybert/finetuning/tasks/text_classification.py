"""text-classification: a label, several labels or a number for each text or pair of texts."""

import itertools
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from datasets import Dataset
from scipy.special import expit, softmax
from transformers import DataCollatorWithPadding, PreTrainedTokenizerBase

from modeling_mybert import MyBertForSequenceClassification
from mybert.common.error_messages import short
from mybert.common.errors import UserError
from mybert.finetuning.data.labels import (
    are_fractions,
    check_label,
    is_missing,
    label_name,
    name_labels,
    number,
    sort_labels,
)
from mybert.finetuning.evaluation import bootstrap_scores as class_scores
from mybert.finetuning.settings import PROBLEMS
from mybert.finetuning.tasks.base import CUT, ROW, Matrix, Problem, Task, commonest, map_rows

SINGLE, MULTI, REGRESSION = PROBLEMS.values()
_PAIRS = (
    ("text", "text_pair"),
    ("sentence1", "sentence2"),
    ("premise", "hypothesis"),
    ("question1", "question2"),
    ("question", "sentence"),
    ("question", "passage"),
)
_CONSTANTS = 20  # labels at most
_LARGEST = float(np.finfo(np.float32).max)
_SINGLES = ("sentence", "review", "document", "content", "body", "tweet")


class TextClassification(Task):
    """One class, several classes or a number for a text; the labels say which (`--problem` overrides them).

    A text of more than `max_length` tokens is cut, or read in windows whose logits are averaged. In training each
    window is an example of its text's label.
    """

    name = "text-classification"
    head = MyBertForSequenceClassification
    inputs = {  # noqa: RUF012 - a constant
        "text": tuple(dict.fromkeys([*(first for first, _ in _PAIRS), *_SINGLES])),
        "text_pair": tuple(dict.fromkeys(second for _, second in _PAIRS)),
    }
    targets = {"label": ("label", "labels", "score", "category", "class", "target")}  # noqa: RUF012
    optional = frozenset({"text_pair"})
    uses = frozenset({"problem", "long_texts", "overlap"})
    defaults = {"max_length": 128, "long_texts": "truncate"}  # noqa: RUF012

    # Rows

    def find_columns(self, names: Sequence[str], source: str, labelled: bool) -> dict[str, str]:
        found, given = super().find_columns(names, source, labelled), self.settings.given_columns()
        pair = (found["text"], found.get("text_pair"))
        if "text_pair" in found and "text_pair" not in given and pair not in _PAIRS:
            if self.trained_inputs is not None:
                raise UserError(
                    f"{source}: {pair[0]!r} and {pair[1]!r} are no usual pair; name both by --columns text=COLUMN "
                    "text_pair=COLUMN"
                )
            del found["text_pair"]  # two columns of texts that do not belong together
        return found

    def check_rows(self, rows: Dataset, training: bool) -> list[Problem]:
        problems = [
            Problem(row, f"the {column} is {_text_problem(text)}")
            for column in self.inputs
            if column in rows.column_names
            for row, text in enumerate(rows[column])
            if not isinstance(text, str) or not text.strip()
        ]
        if "label" in rows.column_names:
            problem = self._problem(rows) if training else self.config.problem_type
            known = None if training else self.config.label2id
            for row, label in enumerate(rows["label"]):
                message = _label_message(label, problem, known)
                if message:
                    problems.append(Problem(row, message))
        return sorted(problems)

    def _problem(self, rows: Dataset) -> str:
        if self.settings.problem is not None:
            return PROBLEMS[self.settings.problem]
        labels = [label for label in rows["label"] if not is_missing(label)]
        if labels and isinstance(labels[0], list):
            return MULTI
        return REGRESSION if are_fractions(labels) else SINGLE

    def label_distribution(self, rows: Dataset) -> Counter:
        """Regression: how many numbers lie in each of five equal parts of the training rows' range, or beyond it."""
        labels = self.references(rows)
        if self.config.problem_type == MULTI:
            return Counter(label for labels_of_row in labels for label in labels_of_row)
        if self.config.problem_type == SINGLE:
            return Counter(labels)
        edges = self._edges
        counts = np.histogram(np.clip(labels, edges[0], edges[-1]), edges)[0].tolist()
        spelt = ([f"{edge:.{digits}g}" for edge in edges] for digits in range(3, 18))
        names = next(names for names in spelt if len(set(names)) == len(edges))  # 2000.8 and 2001.6 are both 2e+03
        return Counter({f"{low} to {high}": count for low, high, count in zip(names, names[1:], counts, strict=False)})

    def token_ids(self, rows: Dataset, tokenizer: PreTrainedTokenizerBase) -> Iterator[Sequence[int]]:
        for batch in rows.iter(1000):
            yield from tokenizer(batch["text"], batch.get("text_pair"), split_special_tokens=True)["input_ids"]

    # Model

    def configure(self, rows: Dataset) -> None:
        self.config.problem_type = self._problem(rows)
        if self.config.problem_type == REGRESSION:
            self.config.num_labels = 1
            self._edges = _edges(self.references(rows))
            return
        labels = rows["label"]
        labels = [label for several in labels for label in several] if self.config.problem_type == MULTI else labels
        names = sort_labels(labels)
        if len(names) < (1 if self.config.problem_type == MULTI else 2):
            raise UserError(f"the training rows have no other label than {names}; a classifier needs two or more")
        name_labels(self.config, names)

    def features(self, rows: Dataset, tokenizer: PreTrainedTokenizerBase, training: bool) -> Dataset:
        windows = self.settings.long_texts == "window"
        if windows and "text_pair" in rows.column_names:
            raise UserError("--long-texts window reads single texts; pairs are truncated")
        length = self.settings.max_length
        overlap = length // 3 if self.settings.overlap is None else self.settings.overlap
        if windows and overlap >= length - 2:
            raise UserError(f"--overlap {overlap}: expected less than the {length - 2} tokens of a window's text")

        def encode(batch: Mapping[str, list], indices: list[int]) -> dict[str, list]:
            encoded = tokenizer(
                batch["text"],
                batch.get("text_pair"),
                truncation=True,
                max_length=length,
                split_special_tokens=True,  # a literal [SEP] in a text is text
                **({"stride": overlap, "return_overflowing_tokens": True} if windows else {}),
            )
            origin = encoded.pop("overflow_to_sample_mapping", range(len(indices)))
            columns = {**encoded, ROW: [indices[i] for i in origin]}
            if not windows:
                columns[CUT] = [bool(encoding.overflowing) for encoding in encoded.encodings]
            if "label" in batch:
                columns["labels"] = [self._target(batch["label"][i]) for i in origin]
            return columns

        return map_rows(rows, encode)

    def _target(self, label: Any) -> int | float | list[float]:
        if self.config.problem_type == REGRESSION:
            return float(label)
        if self.config.problem_type == SINGLE:
            return self.config.label2id[label_name(label)]
        names = set(map(label_name, label))
        return [float(self.config.id2label[i] in names) for i in range(self.config.num_labels)]

    def collator(self, tokenizer: PreTrainedTokenizerBase) -> Callable:
        return DataCollatorWithPadding(tokenizer)

    # Results

    def decode(self, logits: Sequence[np.ndarray], features: Dataset, rows: Dataset) -> list[dict]:
        """`label` and `score`; or `labels` (probability above 0.5); each with all `scores`. Regression: `score`."""
        number = np.asarray(features[ROW])
        summed = np.zeros((len(rows), self.config.num_labels))
        np.add.at(summed, number, np.asarray(logits, dtype=np.float64))
        means = summed / np.bincount(number, minlength=len(rows))[:, None]
        if self.config.problem_type == REGRESSION:
            return [{"score": score} for score in means[:, 0].tolist()]
        names = [self.config.id2label[i] for i in range(self.config.num_labels)]
        multi = self.config.problem_type == MULTI
        predictions = []
        for row in (expit(means) if multi else softmax(means, axis=1)).tolist():
            scores = dict(zip(names, row, strict=True))
            best = max(scores, key=scores.get)
            said = (
                {"labels": [n for n in names if scores[n] > 0.5]} if multi else {"label": best, "score": scores[best]}
            )
            predictions.append({**said, "scores": scores})
        return predictions

    def references(self, rows: Dataset) -> list:
        if self.config.problem_type == SINGLE:
            return list(map(label_name, rows["label"]))
        if self.config.problem_type == MULTI:
            return [list(map(label_name, labels)) for labels in rows["label"]]
        return list(map(float, rows["label"]))

    def baseline_predictions(self, references: Sequence) -> list[list[dict]]:
        """The mean; the commonest labels (a rare one has the best F1 where it is what F1 is of); of several, the
        commonest set, the commonest labels together, and all."""
        if self.config.problem_type == REGRESSION:
            said = [{"score": float(np.mean(references))}]
        elif self.config.problem_type == MULTI:
            labels = [label for label, _ in Counter(itertools.chain(*references)).most_common()]
            sets = [list(commonest(tuple(sorted(row)) for row in references)), labels]
            said = [{"labels": some} for some in (*sets, *(labels[:count] for count in range(1, _CONSTANTS)))]
        else:
            said = [{"label": label} for label, _ in Counter(references).most_common(_CONSTANTS)]
        return [[one] * len(references) for one in said]

    @property
    def best_metric(self) -> str:
        return {SINGLE: "accuracy", MULTI: "f1_micro", REGRESSION: "pearson"}[self.config.problem_type]

    def title(self, metric: str) -> str:
        return f"f1 of {self.config.id2label[1]!r}" if metric == "f1" else metric  # of two classes, it is of one

    @property
    def classes(self) -> int | None:
        return self.config.num_labels if self.config.problem_type == SINGLE else None

    def bootstrap(self, predictions: Sequence[dict], references: Sequence, samples: np.ndarray) -> dict[str, list]:
        if self.config.problem_type == REGRESSION:
            guesses = np.array([prediction["score"] for prediction in predictions])
            return class_scores.regression(guesses, np.array(references), samples)
        if self.config.problem_type == SINGLE:
            return class_scores.single_label(*self._ids(predictions, references), self.config.num_labels, samples)
        said = self._chosen([prediction["labels"] for prediction in predictions])
        return class_scores.multi_label(said, self._chosen(references), samples)

    def _chosen(self, answers: Sequence[Sequence[str]]) -> np.ndarray:
        """(rows, labels) whether a row has a label."""
        ids = self.config.label2id  # once: a configuration takes its time to look up an attribute
        chosen = np.zeros((len(answers), len(ids)), dtype=bool)
        for row, labels in enumerate(answers):
            chosen[row, [ids[label] for label in labels]] = True
        return chosen

    def _ids(self, predictions: Sequence[dict], references: Sequence) -> tuple[np.ndarray, np.ndarray]:
        ids = self.config.label2id
        return np.array([ids[p["label"]] for p in predictions]), np.array([ids[label] for label in references])

    def errors(self, predictions: Sequence[dict], references: Sequence) -> list[float]:
        """1 - the probability of the true label where another was given; labels missed or too many; the distance."""
        if self.config.problem_type == SINGLE:
            return [
                0.0 if p["label"] == label else 1 - p["scores"][label]
                for p, label in zip(predictions, references, strict=True)
            ]
        if self.config.problem_type == MULTI:
            pairs = zip(predictions, references, strict=True)
            return [float(len(set(p["labels"]) ^ set(labels))) for p, labels in pairs]
        return [abs(p["score"] - number) for p, number in zip(predictions, references, strict=True)]

    def labelled_spans(
        self, predictions: Sequence[dict], references: Sequence
    ) -> tuple[set[tuple], set[tuple]] | None:
        if self.config.problem_type == REGRESSION:
            return None
        several = self.config.problem_type == MULTI
        said = [prediction["labels"] if several else [prediction["label"]] for prediction in predictions]
        true = references if several else [[label] for label in references]
        return tuple({(label, row) for row, labels in enumerate(each) for label in labels} for each in (said, true))

    def matrix(self, predictions: Sequence[dict], references: Sequence) -> Matrix | None:
        if self.config.problem_type != SINGLE:
            return None
        said, true = self._ids(predictions, references)
        counts = class_scores.confusion(said, true, self.config.num_labels, class_scores.every_row(true))[0]
        return Matrix([self.config.id2label[i] for i in range(self.config.num_labels)], counts)


def _text_problem(text: Any) -> str:
    return "missing" if text is None else "empty" if isinstance(text, str) else f"{short(text)}, not a string"


def _edges(labels: Sequence[float]) -> np.ndarray:
    """Bounds of five equal parts of their range; of one, where they are so large that halves of it are the same."""
    try:
        return np.histogram_bin_edges(labels, bins=5)
    except ValueError:
        return np.array([min(labels), np.nextafter(max(labels), np.inf)])


def _label_message(label: Any, problem: str, known: Mapping[str, int] | None) -> str | None:
    if problem == REGRESSION:
        value = number(label)
        if value is None:
            return f"the label {short(label)} is not a number"
        return f"the label {short(label)} is too large for float32" if abs(value) > _LARGEST else None
    if problem == MULTI:
        if not isinstance(label, list):
            return f"the labels {short(label)} are not a list"
        return next(filter(None, (check_label(one, known) for one in label)), None)
    return check_label(label, known)
