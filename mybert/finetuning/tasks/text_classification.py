"""text-classification: one label, several labels or a number for each text or pair of texts."""

import dataclasses
import itertools
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
from datasets import Dataset
from scipy.special import expit, softmax
from sklearn.metrics import confusion_matrix
from transformers import PreTrainedTokenizerBase

from modeling_mybert import MyBertForSequenceClassification
from mybert.common.error_messages import short, short_list
from mybert.common.errors import UserError
from mybert.common.unread_text import without_unread_end
from mybert.finetuning.data.label_columns import (
    NOT_A_LIST,
    check_target,
    expand_label,
    is_one_hot,
    join_one_hot,
    looks_like_list,
    rename_label,
    with_column,
)
from mybert.finetuning.data.labels import (
    MULTI,
    PROBLEMS,
    REGRESSION,
    SINGLE,
    ProblemType,
    find_problem,
    known_name,
    label_name,
    sort_labels,
)
from mybert.finetuning.evaluation import bootstrap_scores as class_scores
from mybert.finetuning.tasks.base import CUT, ROW, Matrix, Problem, Task, map_rows, most_common
from mybert.finetuning.tasks.options import TextOptions

_PAIRS = (
    ("text", "text_pair"),
    ("sentence1", "sentence2"),
    ("premise", "hypothesis"),
    ("question1", "question2"),
    ("question", "sentence"),
    ("question", "passage"),
)
_SINGLES = ("sentence", "review", "document", "content", "body", "tweet")
_BASELINES = 20  # maximum number of labels whose baselines are computed


@dataclass(frozen=True, eq=False)
class TextClassification(Task):
    """One class, several classes or a number for a text. The labels define which, or `--problem`.

    A text of more than `max_length` tokens is truncated, or read in windows whose logits are averaged. In training
    each window is an example with the label of its text.

    Attributes:
        edges: of regression, bounds of five equal parts of the range of the training labels.
    """

    edges: tuple[float, ...] = ()

    name = "text-classification"
    head = MyBertForSequenceClassification
    Options = TextOptions
    inputs: ClassVar[Mapping] = {
        "text": tuple(dict.fromkeys([*(first for first, _ in _PAIRS), *_SINGLES])),
        "text_pair": tuple(dict.fromkeys(second for _, second in _PAIRS)),
    }
    targets: ClassVar[Mapping] = {"label": ("label", "labels", "score", "category", "class", "target")}
    optional = frozenset({"text_pair"})
    tuned_values = ("label_threshold",)

    # Rows

    def combined(self, dataset: Dataset, source: str, labelled: bool) -> Dataset:
        """Joins one-hot columns."""
        return join_one_hot(dataset, self.options.given_columns().get("label", ""), source) if labelled else dataset

    def prepare(self, rows: Dataset) -> Dataset:
        """Reads lists and separated labels, and renames labels by `--label-names`."""
        if "label" not in rows.column_names:
            return rows
        labels = list(rows["label"])
        if self.options.problem in (None, "multi-label") and self.config.problem_type in (None, MULTI):
            labels = [expand_label(label, self.options.label_separator) for label in labels]
        names = self.options.given_names()
        present = {label_name(one) for label in labels for one in (label if isinstance(label, list) else [label])}
        if merged := [name for label, name in names.items() if name in present - names.keys() and label in present]:
            raise UserError(f"--label-names: there is a label {merged[0]!r} already; give each class its own name")
        return with_column(rows.remove_columns("label"), "label", [rename_label(label, names) for label in labels])

    def find_columns(self, names: Sequence[str], source: str, labelled: bool) -> dict[str, str]:
        found, given = super().find_columns(names, source, labelled), self.options.given_columns()
        pair = (found["text"], found.get("text_pair"))
        if "text_pair" in found and "text_pair" not in given and pair not in _PAIRS:
            if self.trained_inputs is not None:
                raise UserError(
                    f"{source}: {pair[0]!r} and {pair[1]!r} are no usual pair; name both by --columns text=COLUMN "
                    "text_pair=COLUMN"
                )
            del found["text_pair"]  # the two columns do not belong together
        return found

    def check_rows(self, rows: Dataset, training: bool) -> list[Problem]:
        problems = []
        for column in filter(rows.column_names.__contains__, self.inputs):
            for row, text in enumerate(rows[column]):
                if not isinstance(text, str):
                    found = "missing" if text is None else f"{short(text)}, not a string"
                    problems.append(Problem(row, f"the {column} is {found}"))
                elif not text.strip():
                    problems.append(Problem(row, f"the {column} is empty"))
        if "label" in rows.column_names:
            problem = self._problem(rows).name if training else self.config.problem_type
            known = None if training else self.config.label2id
            for row, label in enumerate(rows["label"]):
                message = check_target(label, problem, known)
                if not message and training and self.options.problem is None and looks_like_list(label):
                    message = f"{NOT_A_LIST.format(short(label))}; --problem single-label takes it as a name"
                if message:
                    problems.append(Problem(row, message))
        return sorted(problems)

    def _problem(self, rows: Dataset) -> ProblemType:
        return find_problem(rows["label"], self.options.problem)

    def summary(self, rows: Dataset) -> str:
        reason = self._problem(rows).reason
        if self.config.problem_type == REGRESSION:
            labels = self.references(rows)
            return f"{self.name}, regression: numbers from {min(labels):g} to {max(labels):g}, {reason}"
        kind = "several labels" if self.config.problem_type == MULTI else "single label"
        labels = self.config.label2id
        return f"{self.name}, {kind}: {len(labels)} labels ({short_list(labels)}), {reason}"

    def label_distribution(self, rows: Dataset) -> Counter:
        """For regression, how many numbers are in each of five equal parts of the range of the training rows."""
        labels = self.references(rows)
        if self.config.problem_type == MULTI:
            return Counter(label for labels_of_row in labels for label in labels_of_row)
        if self.config.problem_type == SINGLE:
            return Counter(labels)
        counts = np.histogram(np.clip(labels, self.edges[0], self.edges[-1]), self.edges)[0].tolist()
        precisions = ([f"{edge:.{digits}g}" for edge in self.edges] for digits in range(3, 18))
        names = next(names for names in precisions if len(set(names)) == len(names))  # 2000.8 and 2001.6 are 2e+03
        return Counter({f"{low} to {high}": count for low, high, count in zip(names, names[1:], counts, strict=False)})

    def strata(self, rows: Dataset) -> list[str | float | tuple[str, ...]]:
        """The label, the sorted labels, or the number."""
        labels = self.references(rows)
        return [tuple(sorted(several)) for several in labels] if self.config.problem_type == MULTI else labels

    def token_ids(self, rows: Dataset, tokenizer: PreTrainedTokenizerBase) -> Iterator[Sequence[int]]:
        for batch in rows.iter(1000):
            yield from tokenizer(batch["text"], batch.get("text_pair"), split_special_tokens=True)["input_ids"]

    # Model

    def loaded(self, source: str) -> Self:
        asked, stored = PROBLEMS.get(self.options.problem), self.config.problem_type
        if stored is None:
            return self.with_config(problem_type=asked or (REGRESSION if self.config.num_labels == 1 else SINGLE))
        if asked not in (None, stored):
            raise UserError(f"--problem {self.options.problem}: {source} was trained for {stored}")
        return self

    def fitted(self, rows: Dataset) -> Self:
        problem, labels = self._problem(rows).name, list(rows["label"])
        if problem == REGRESSION:
            task = self.with_config(problem_type=problem, num_labels=1)
            return dataclasses.replace(task, edges=_edges(list(map(float, labels))))
        if problem == MULTI:
            if is_one_hot(labels):
                raise UserError(
                    f"the labels are vectors of numbers or truth values, such as {labels[0]}, which have no names: "
                    "write lists of names, or one column for each label and --columns label=a,b,c"
                )
            labels = [label for several in labels for label in several]
        names, given = sort_labels(labels), self.options.given_names()
        if unknown := [f"{label}={name}" for label, name in given.items() if name not in names]:
            raise UserError(f"--label-names {unknown[0]}: the training rows have the labels {short_list(names)}")
        if set(names) == set(given.values()):
            names = list(given.values())
        if len(names) < (1 if problem == MULTI else 2):
            raise UserError(f"the training rows have only the label {names}; a classifier needs at least two")
        return self.with_labels(names, problem_type=problem)

    def features(self, rows: Dataset, tokenizer: PreTrainedTokenizerBase, training: bool) -> Dataset:
        windows = self.options.long_texts == "window"
        if windows and "text_pair" in rows.column_names:
            raise UserError("--long-texts window reads single texts; pairs are truncated")
        length = self.options.max_length
        overflow = {}
        if windows:
            overflow = {"stride": self.options.stride_below(length - 2), "return_overflowing_tokens": True}

        def encode(batch: Mapping[str, list], indices: list[int]) -> dict[str, list]:
            texts, seconds = batch["text"], batch.get("text_pair")
            if seconds is not None:
                both = zip(texts, seconds, strict=True)
                read = [without_unread_end(*pair, tokenizer, length) for pair in both]
                texts, seconds = [first for first, _ in read], [second for _, second in read]
            encoded = tokenizer(
                texts,
                seconds,
                truncation=True,
                max_length=length,
                split_special_tokens=True,  # a literal [SEP] in a text is text
                **overflow,
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
        ids = self.config.label2id
        if self.config.problem_type == REGRESSION:
            return float(label)
        if self.config.problem_type == SINGLE:
            return ids[known_name(label, ids)]
        names = {known_name(one, ids) for one in label}
        return [float(name in names) for name in ids]

    # Results

    def decode(self, logits: Sequence[np.ndarray], features: Dataset, rows: Dataset) -> list[dict]:
        """`label` and `score`, or `labels` above the threshold, each with all `scores`; for regression `score`."""
        indices = np.asarray(features[ROW])
        summed = np.zeros((len(rows), self.config.num_labels))
        np.add.at(summed, indices, np.asarray(logits, dtype=np.float64))
        means = summed / np.bincount(indices, minlength=len(rows))[:, None]
        if self.config.problem_type == REGRESSION:
            return [{"score": score} for score in means[:, 0].tolist()]
        names, multi = list(self.config.label2id), self.config.problem_type == MULTI
        threshold = getattr(self.config, "label_threshold", None)  # tuned on validation rows
        threshold = threshold if isinstance(threshold, float) else 0.5
        predictions = []
        for row in (expit(means) if multi else softmax(means, axis=1)).tolist():
            scores = dict(zip(names, row, strict=True))
            best = max(scores, key=scores.get)
            answer = {"label": best, "score": scores[best]}
            if multi:
                answer = {"labels": [name for name in names if scores[name] > threshold]}
            predictions.append({**answer, "scores": scores})
        return predictions

    def tuned(self, logits: Sequence[np.ndarray], features: Dataset, rows: Dataset) -> Self:
        """Tunes the threshold of several labels for micro F1."""
        if self.config.problem_type != MULTI:
            return self
        scores = [list(prediction["scores"].values()) for prediction in self.decode(logits, features, rows)]
        chosen = self._chosen(self.references(rows))
        return self.with_config(label_threshold=class_scores.best_label_threshold(np.array(scores), chosen))

    def references(self, rows: Dataset) -> list:
        """A name, a list of distinct names, or a number for each row."""
        ids, labels = self.config.label2id, rows["label"]
        if self.config.problem_type == SINGLE:
            return [known_name(label, ids) for label in labels]
        if self.config.problem_type == MULTI:
            return [list(dict.fromkeys(known_name(label, ids) for label in several)) for several in labels]
        return list(map(float, labels))

    def baseline_predictions(self, references: Sequence) -> list[list[dict]]:
        """The mean; or each of the most common labels; or of several labels the most common set, all labels, and the
        most common labels together."""
        if self.config.problem_type == REGRESSION:
            answers = [{"score": float(np.mean(references))}]
        elif self.config.problem_type == MULTI:
            labels = [label for label, _ in Counter(itertools.chain(*references)).most_common()]
            sets = [list(most_common(tuple(sorted(row)) for row in references)), labels]
            answers = [{"labels": some} for some in (*sets, *(labels[:count] for count in range(1, _BASELINES)))]
        else:
            answers = [{"label": label} for label, _ in Counter(references).most_common(_BASELINES)]
        return [[answer] * len(references) for answer in answers]

    @property
    def best_metric(self) -> str:
        return {SINGLE: "accuracy", MULTI: "f1_micro", REGRESSION: "pearson"}[self.config.problem_type]

    def title(self, metric: str) -> str:
        return f"f1 of {self.config.id2label[1]!r}" if metric == "f1" else metric

    @property
    def classes(self) -> int | None:
        return self.config.num_labels if self.config.problem_type == SINGLE else None

    def bootstrap(self, predictions: Sequence[dict], references: Sequence, samples: np.ndarray) -> dict[str, list]:
        if self.config.problem_type == REGRESSION:
            scores = np.array([prediction["score"] for prediction in predictions])
            return class_scores.regression(scores, np.array(references), samples)
        if self.config.problem_type == SINGLE:
            ids, labels = self.config.label2id, [prediction["label"] for prediction in predictions]
            pair = (np.array([ids[label] for label in each]) for each in (labels, references))
            return class_scores.single_label(*pair, len(ids), samples)
        predicted = self._chosen([prediction["labels"] for prediction in predictions])
        return class_scores.multi_label(predicted, self._chosen(references), samples)

    def _chosen(self, answers: Sequence[Sequence[str]]) -> np.ndarray:
        """(rows, labels) whether a row has a label."""
        ids = self.config.label2id  # once: access to an attribute of a configuration is slow
        chosen = np.zeros((len(answers), len(ids)), dtype=bool)
        for row, labels in enumerate(answers):
            chosen[row, [ids[label] for label in labels]] = True
        return chosen

    def errors(self, predictions: Sequence[dict], references: Sequence) -> list[float]:
        """1 - the probability of the right label if another is predicted; the number of missing and additional labels;
        the absolute difference."""
        pairs = zip(predictions, references, strict=True)
        if self.config.problem_type == SINGLE:
            return [0.0 if p["label"] == label else 1 - p["scores"][label] for p, label in pairs]
        if self.config.problem_type == MULTI:
            return [float(len(set(p["labels"]) ^ set(labels))) for p, labels in pairs]
        return [abs(p["score"] - target) for p, target in pairs]

    def labelled_spans(
        self, predictions: Sequence[dict], references: Sequence
    ) -> tuple[set[tuple], set[tuple]] | None:
        if self.config.problem_type == REGRESSION:
            return None
        if self.config.problem_type == SINGLE:
            predicted = {(prediction["label"], row) for row, prediction in enumerate(predictions)}
            return predicted, {(label, row) for row, label in enumerate(references)}
        predicted = {(label, row) for row, prediction in enumerate(predictions) for label in prediction["labels"]}
        return predicted, {(label, row) for row, labels in enumerate(references) for label in labels}

    def matrix(self, predictions: Sequence[dict], references: Sequence) -> Matrix | None:
        if self.config.problem_type != SINGLE:
            return None
        names = list(self.config.label2id)
        labels = [prediction["label"] for prediction in predictions]
        return Matrix(names, confusion_matrix(references, labels, labels=names))


def _edges(labels: Sequence[float]) -> tuple[float, ...]:
    """Bounds of five equal parts of the range of labels; of one part if floats cannot resolve five."""
    low, high = min(labels), max(labels)
    edges = np.linspace(low - 0.5, high + 0.5, 6) if low == high else np.linspace(low, high, 6)
    return tuple(edges.tolist()) if (np.diff(edges) > 0).all() else (low, float(np.nextafter(high, np.inf)))
