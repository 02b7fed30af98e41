"""text-classification: a label, several labels or a number for each text or pair of texts."""

import itertools
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from datasets import Dataset, concatenate_datasets
from scipy.special import expit, softmax
from transformers import DataCollatorWithPadding, PreTrainedTokenizerBase

from modeling_mybert import MyBertForSequenceClassification
from mybert.common.error_messages import short, short_list
from mybert.common.errors import UserError
from mybert.finetuning.data.label_lists import expand_label, is_one_hot, labels_of_columns, looks_like_list
from mybert.finetuning.data.labels import (
    MULTI,
    REGRESSION,
    SINGLE,
    ProblemType,
    check_label,
    find_problem,
    is_missing,
    known_name,
    label_name,
    name_labels,
    number,
    sort_labels,
)
from mybert.finetuning.evaluation import bootstrap_scores as class_scores
from mybert.finetuning.tasks.base import CUT, ROW, Matrix, Problem, Task, commonest, map_rows

_PAIRS = (
    ("text", "text_pair"),
    ("sentence1", "sentence2"),
    ("premise", "hypothesis"),
    ("question1", "question2"),
    ("question", "sentence"),
    ("question", "passage"),
)
_NO_LIST = "the label {} looks like a list and cannot be read as one"
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
    uses = frozenset({"problem", "label_separator", "label_names", "long_texts", "stride"})
    defaults = {"max_length": 128, "long_texts": "truncate"}  # noqa: RUF012

    # Rows

    def canonical(self, dataset: Dataset, source: str, labelled: bool) -> Dataset:
        """Reads several labels from lists, separated texts or one-hot columns, and applies `--label-names`."""
        given = self.settings.given_columns().get("label", "")
        one_hot = [] if not labelled or given in dataset.column_names else _one_hot_columns(given, dataset, source)
        if one_hot:
            flags = labels_of_columns({name: dataset[name] for name in one_hot})
            texts = dataset.select_columns([name for name in dataset.column_names if name not in one_hot])
            dataset = _with_column(texts, given, flags)
        rows = super().canonical(dataset, source, labelled)
        if not labelled:
            return rows
        labels = list(rows["label"])
        if self.settings.problem in (None, "multi-label") and self.config.problem_type in (None, MULTI):
            labels = [expand_label(label, self.settings.label_separator) for label in labels]
        names = self.settings.given_names()
        return _with_column(rows.remove_columns("label"), "label", [_renamed(label, names) for label in labels])

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
            problem = self._problem(rows).name if training else self.config.problem_type
            known = None if training else self.config.label2id
            for row, label in enumerate(rows["label"]):
                message = _label_message(label, problem, known)
                if not message and training and self.settings.problem is None and looks_like_list(label):
                    message = f"{_NO_LIST.format(short(label))}; --problem single-label takes it as a name"
                if message:
                    problems.append(Problem(row, message))
        return sorted(problems)

    def _problem(self, rows: Dataset) -> ProblemType:
        return find_problem(rows["label"], self.settings.problem)

    def summary(self, rows: Dataset) -> str:
        reason = self._problem(rows).reason
        if self.config.problem_type == REGRESSION:
            labels = self.references(rows)
            return f"{self.name}, regression: numbers from {min(labels):g} to {max(labels):g}, {reason}"
        kind = "several labels" if self.config.problem_type == MULTI else "single label"
        return (
            f"{self.name}, {kind}: {len(self.config.label2id)} labels ({short_list(self.config.label2id)}), {reason}"
        )

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

    def strata(self, rows: Dataset) -> list[str | float | tuple[str, ...]]:
        """The label, the sorted labels, or the number."""
        labels = self.references(rows)
        return [tuple(sorted(several)) for several in labels] if self.config.problem_type == MULTI else labels

    def token_ids(self, rows: Dataset, tokenizer: PreTrainedTokenizerBase) -> Iterator[Sequence[int]]:
        for batch in rows.iter(1000):
            yield from tokenizer(batch["text"], batch.get("text_pair"), split_special_tokens=True)["input_ids"]

    # Model

    def configure(self, rows: Dataset) -> None:
        self.config.problem_type = self._problem(rows).name
        if self.config.problem_type == REGRESSION:
            self.config.num_labels = 1
            self._edges = _edges(self.references(rows))
            return
        labels = rows["label"]
        if self.config.problem_type == MULTI:
            if is_one_hot(labels):
                raise UserError(
                    f"the labels are vectors of 0 and 1, such as {labels[0]}, which have no names: write lists of "
                    "names, or one column for each label and --columns label=a,b,c"
                )
            labels = [label for several in labels for label in several]
        names = sort_labels(labels)
        given = list(self.settings.given_names().values())
        if unknown := [pair for pair in self.settings.label_names if pair.split("=", 1)[1] not in names]:
            raise UserError(f"--label-names {unknown[0]}: the training rows have the labels {short_list(names)}")
        if set(names) == set(given):
            names = given
        if len(names) < (1 if self.config.problem_type == MULTI else 2):
            raise UserError(f"the training rows have only the label {names}; a classifier needs at least two")
        name_labels(self.config, names)

    def features(self, rows: Dataset, tokenizer: PreTrainedTokenizerBase, training: bool) -> Dataset:
        windows = self.settings.long_texts == "window"
        if windows and "text_pair" in rows.column_names:
            raise UserError("--long-texts window reads single texts; pairs are truncated")
        length = self.settings.max_length
        stride = length // 3 if self.settings.stride is None else self.settings.stride
        if windows and stride >= length - 2:
            raise UserError(f"--stride {stride}: expected less than the {length - 2} tokens of a window's text")

        def encode(batch: Mapping[str, list], indices: list[int]) -> dict[str, list]:
            encoded = tokenizer(
                batch["text"],
                batch.get("text_pair"),
                truncation=True,
                max_length=length,
                split_special_tokens=True,  # a literal [SEP] in a text is text
                **({"stride": stride, "return_overflowing_tokens": True} if windows else {}),
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
            return self.config.label2id[known_name(label, self.config.label2id)]
        names = {known_name(one, self.config.label2id) for one in label}
        return [float(self.config.id2label[i] in names) for i in range(self.config.num_labels)]

    def collator(self, tokenizer: PreTrainedTokenizerBase) -> Callable:
        return DataCollatorWithPadding(tokenizer)

    # Results

    def decode(self, logits: Sequence[np.ndarray], features: Dataset, rows: Dataset) -> list[dict]:
        """`label` and `score`, or `labels` above the threshold, each with all `scores`; for regression `score`."""
        number = np.asarray(features[ROW])
        summed = np.zeros((len(rows), self.config.num_labels))
        np.add.at(summed, number, np.asarray(logits, dtype=np.float64))
        means = summed / np.bincount(number, minlength=len(rows))[:, None]
        if self.config.problem_type == REGRESSION:
            return [{"score": score} for score in means[:, 0].tolist()]
        names = [self.config.id2label[i] for i in range(self.config.num_labels)]
        multi, threshold = self.config.problem_type == MULTI, self._threshold
        predictions = []
        for row in (expit(means) if multi else softmax(means, axis=1)).tolist():
            scores = dict(zip(names, row, strict=True))
            best = max(scores, key=scores.get)
            said = (
                {"labels": [n for n in names if scores[n] > threshold]}
                if multi
                else {"label": best, "score": scores[best]}
            )
            predictions.append({**said, "scores": scores})
        return predictions

    @property
    def _threshold(self) -> float:
        """Probability above which a label is predicted, of several; 0.5 unless validation rows have tuned it."""
        found = getattr(self.config, "label_threshold", None)
        return found if isinstance(found, float) else 0.5

    def tune(self, logits: Sequence[np.ndarray], features: Dataset, rows: Dataset) -> None:
        """Sets the threshold with the best micro F1 of several labels."""
        if self.config.problem_type == MULTI:
            scores = [list(prediction["scores"].values()) for prediction in self.decode(logits, features, rows)]
            self.config.label_threshold = best_label_threshold(np.array(scores), self._chosen(self.references(rows)))

    def references(self, rows: Dataset) -> list:
        if self.config.problem_type == SINGLE:
            known = self.config.label2id
            return [known_name(label, known) for label in rows["label"]]
        if self.config.problem_type == MULTI:
            known = self.config.label2id
            return [list(dict.fromkeys(known_name(label, known) for label in labels)) for labels in rows["label"]]
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


def best_label_threshold(scores: np.ndarray, chosen: np.ndarray) -> float:
    """The threshold with the best micro F1; of several, the nearest to 0.5.

    Args:
        scores: (rows, labels) probabilities.
        chosen: (rows, labels) whether a row has a label.
    """
    order = np.argsort(-scores, axis=None, kind="stable")
    ranked = scores.ravel()[order]
    hits = np.concatenate([[0], np.cumsum(chosen.ravel()[order])])
    f1 = 2 * hits / np.maximum(np.arange(len(hits)) + chosen.sum(), 1)  # with the first n predicted
    bounds = np.concatenate([[1.0], ranked, [0.0]])
    possible = np.concatenate([[True], ranked[1:] < ranked[:-1], [True]])  # equal scores are on one side
    candidates = (bounds[:-1] + bounds[1:])[possible] / 2
    best = np.isclose(f1[possible], f1[possible].max())
    return float(min(candidates[best], key=lambda threshold: abs(threshold - 0.5)))


def _one_hot_columns(given: str, dataset: Dataset, source: str) -> list[str]:
    """The columns of `--columns label=a,b,c`.

    Raises:
        UserError: one of them is missing.
    """
    names = [name.strip() for name in given.split(",")] if "," in given else []
    missing = [name for name in names if name not in dataset.column_names]
    if missing:
        raise UserError(f"{source} has no column {missing[0]!r}; there are {short_list(dataset.column_names)}")
    return names


def _with_column(rows: Dataset, name: str, values: list) -> Dataset:
    column = Dataset.from_dict({name: values}, on_mixed_types="use_json")
    return concatenate_datasets([rows, column], axis=1) if rows.column_names else column


def _renamed(label: Any, names: Mapping[str, str]) -> Any:
    if isinstance(label, list):
        return [_renamed(one, names) for one in label]
    return names.get(label_name(label), label) if names else label


def _text_problem(text: Any) -> str:
    return "missing" if text is None else "empty" if isinstance(text, str) else f"{short(text)}, not a string"


def _edges(labels: Sequence[float]) -> np.ndarray:
    """Bounds of five equal parts of their range; of one, where they are so large that halves of it are the same."""
    try:
        return np.histogram_bin_edges(labels, bins=5)
    except ValueError:
        return np.array([min(labels), np.nextafter(max(labels), np.inf)])


def _label_message(label: Any, problem: str, known: Mapping[str, int] | None) -> str | None:
    if is_missing(label):
        return "the label is missing"
    if problem == REGRESSION:
        value = number(label)
        if value is None:
            return f"the label {short(label)} is not a number"
        return f"the label {short(label)} is too large for float32" if abs(value) > _LARGEST else None
    if problem == MULTI:
        if isinstance(label, dict):
            return "expected 0 or 1 in the label column " + ", ".join(f"{k!r}, found {v!r}" for k, v in label.items())
        if looks_like_list(label):
            return _NO_LIST.format(short(label))
        if not isinstance(label, list):
            return f"the labels {short(label)} are not a list"
        return next(filter(None, (check_label(one, known) for one in label)), None)
    return check_label(label, known)
