"""text-classification: one label, several labels or a number for each text or pair of texts."""

import dataclasses
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
import torch
from datasets import Dataset
from transformers import PreTrainedTokenizerBase

from modeling_mybert import MyBertForSequenceClassification
from mybert.common.errors import UserError, short, short_list
from mybert.common.text_windows import encode_pairs
from mybert.rows.annotations import read_label_studio
from mybert.rows.label_columns import (
    NOT_A_LIST,
    check_target,
    expand_label,
    is_one_hot,
    join_one_hot,
    looks_like_list,
    of_one_kind,
    rename_label,
)
from mybert.rows.labels import (
    MULTI,
    PROBLEMS,
    REGRESSION,
    SINGLE,
    ProblemType,
    are_names,
    check_numbering,
    differ,
    find_problem,
    label_name,
    plain,
    sort_labels,
)
from mybert.rows.splits import Problem, text_problem
from mybert.rows.tables import with_column
from mybert.tasks.base import ColumnNames, Prediction, Task
from mybert.tasks.bootstrap_scores import LabelScores, Scorer, by_label
from mybert.tasks.features import CUT, ROW, map_rows, mean_by_row
from mybert.tasks.label_kinds import KINDS, LabelKind, MultiLabel, equal_parts
from mybert.tasks.options import TextClassificationOptions

_PAIRS = (
    ("text", "text_pair"),
    ("sentence1", "sentence2"),
    ("premise", "hypothesis"),
    ("question1", "question2"),
    ("question", "sentence"),
    ("question", "passage"),
)
_SINGLES = ("sentence", "review", "document", "content", "body", "tweet", "data")  # `data` is older doccano's


@dataclass(frozen=True, eq=False)
class TextClassification(Task):
    """One class, several classes or a number for a text. The labels define which, or `--problem`.

    A text of more than `max_length` tokens is truncated, or read in windows whose logits are averaged. In training
    each window is an example with the label of its text.

    Attributes:
        edges: of regression, bounds of five equal parts of the range of the training labels.
        activation: of one label or a number, applied to the logits; None: that of the kind.
    """

    edges: tuple[float, ...] = ()
    activation: Callable[[torch.Tensor], torch.Tensor] | None = None

    options: TextClassificationOptions

    name = "text-classification"
    head = MyBertForSequenceClassification
    Options = TextClassificationOptions
    inputs: ClassVar[ColumnNames] = {
        "text": tuple(dict.fromkeys([*(first for first, _ in _PAIRS), *_SINGLES])),
        "text_pair": tuple(dict.fromkeys(second for _, second in _PAIRS)),
    }
    targets: ClassVar[ColumnNames] = {"label": ("label", "labels", "score", "category", "class", "target")}
    optional = frozenset({"text_pair"})
    row_shares = frozenset({"accuracy"})

    # Rows

    def by_role(self, dataset: Dataset, source: str, labelled: bool) -> tuple[Dataset, dict[str, str]]:
        """Reads exports of Label Studio, and joins one-hot columns."""
        dataset = read_label_studio(dataset)
        if labelled:
            dataset = join_one_hot(dataset, self.options.given_columns().get("label", ""))
        return super().by_role(dataset, source, labelled)

    def prepare(self, rows: Dataset) -> Dataset:
        """Reads lists and separated labels, and renames labels by `--label-names`."""
        if "label" not in rows.column_names:
            return rows
        labels, trained = rows["label"][:], self.config.problem_type
        asked = PROBLEMS.get(self.options.problem or "")
        if {trained, asked} <= {None, MULTI}:
            labels = [expand_label(label, self.options.label_separator) for label in labels]
        if trained or asked != MULTI:
            labels = of_one_kind(labels, trained or asked or (SINGLE if are_names(labels) else None))
        names = self.options.given_names()
        present = set(map(label_name, _flat(labels)))
        for label, name in names.items():
            if label in present and name in present - names.keys() and plain(name) != plain(label):
                raise UserError(
                    f"--label-names: there is a label {name!r} already; {label}={name} {name}={name} merges both"
                )
        return with_column(rows.remove_columns("label"), "label", [rename_label(label, names) for label in labels])

    def joined(self, rows: Dataset) -> Dataset:
        labels, asked = rows["label"][:], PROBLEMS.get(self.options.problem or "")
        if asked in (None, MULTI):
            labels = [expand_label(label, self.options.label_separator) for label in labels]
        labels = of_one_kind(labels, asked or (SINGLE if are_names(labels, least=2) else MULTI))
        return with_column(rows.remove_columns("label"), "label", labels)

    def reading_like(self, rows: Dataset) -> Self:
        """A list of one label is that label, if these rows have one each."""
        task = super().reading_like(rows)
        has_names = self.options.problem is None and are_names(rows["label"][:])
        return task.with_config(problem_type=SINGLE) if has_names else task

    def find_columns(self, names: Sequence[str], source: str, labelled: bool) -> dict[str, str]:
        columns, given = super().find_columns(names, source, labelled), self.options.given_columns()
        pair = (columns["text"], columns.get("text_pair", ""))
        is_usual = tuple(name.casefold() for name in pair) in _PAIRS
        if "text_pair" in columns and "text_pair" not in given and not is_usual:
            if self.trained_inputs is not None:
                how = "name both by --columns text=COLUMN text_pair=COLUMN" if self.asks else "use text and text_pair"
                raise UserError(f"{source}: {pair[0]!r} and {pair[1]!r} are no usual pair; {how}")
            del columns["text_pair"]  # the two columns do not belong together
        return columns

    def check_rows(self, rows: Dataset, training: bool) -> list[Problem]:
        problems = [
            Problem(row, message)
            for column in self.inputs
            for row, text in enumerate(rows[column][:] if column in rows.column_names else ())
            if (message := text_problem(f"the {column}", text))
        ]
        if "label" in rows.column_names:
            problem = self._problem(rows).name if training else self.config.problem_type
            known = None if training else self.label2id
            if known and problem != REGRESSION:
                check_numbering(_flat(rows["label"][:]), known)
            for row, label in enumerate(rows["label"][:]):
                message = check_target(label, str(problem), known)
                if not message and training and self.options.problem is None and looks_like_list(label):
                    message = f"{NOT_A_LIST.format(short(label))}; --problem single-label takes it as a name"
                elif training and self.options.problem is None and isinstance(label, list) and not differ(label):
                    message = message and f"{message}; --problem multi-label reads several"
                if message:
                    problems.append(Problem(row, message))
        return sorted(problems)

    def _problem(self, rows: Dataset) -> ProblemType:
        problem, separator = find_problem(rows["label"][:], self.options.problem), self.options.label_separator
        if separator is None or problem.name != MULTI or self.options.problem is not None:
            return problem
        return problem._replace(reason=f"because of --label-separator '{separator}'")

    @property
    def kind(self) -> LabelKind:
        """The kind of targets of the model."""
        return KINDS[str(self.config.problem_type)](self.config, self.options.given_thresholds(), self.activation)

    def summary(self, rows: Dataset) -> str:
        return f"{self.name}, {self.kind.summary(self.references(rows))}, {self._problem(rows).reason}"

    def label_distribution(self, rows: Dataset) -> Counter[str]:
        """For regression, how many numbers are in each of five equal parts of the range of the training rows."""
        return self.kind.counts(self.references(rows), self.edges)

    def row_labels(self, rows: Dataset) -> list[Collection[str]]:
        return list(map(self.kind.labels, self.references(rows)))

    # Model

    def loaded(self, source: str) -> Self:
        """This task with the kind of targets of the checkpoint `source`, which may not name it."""
        asked, stored = PROBLEMS.get(self.options.problem or ""), str(self.config.problem_type or "")
        if not stored:
            stored = asked or (REGRESSION if self.config.num_labels == 1 else SINGLE)
        if stored not in KINDS:
            raise UserError(
                f"checkpoint {source}: problem_type in its config.json is {short(stored)}, expected one of "
                f"{', '.join(KINDS)}, or null; correct it"
            )
        if asked not in (None, stored):
            raise UserError(f"--problem {self.options.problem}: {source} was trained for {stored}")
        task = self.with_config(problem_type=stored).with_known_thresholds()
        if stored == REGRESSION and len(self.id2label) > 1:
            raise UserError(
                f"checkpoint {source} predicts {len(self.id2label)} numbers for a text (problem_type regression "
                "in its config.json); MyBERT reads models of one number"
            )
        return task

    def fitted(self, rows: Dataset) -> Self:
        problem, labels = self._problem(rows).name, rows["label"][:]
        if problem == REGRESSION:
            task = self.with_config(problem_type=problem, num_labels=1).with_known_thresholds()
            return dataclasses.replace(task, edges=equal_parts(list(map(float, labels))))
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
            names = list(dict.fromkeys(given.values()))
        if len(names) < (1 if problem == MULTI else 2):
            too_few = f"only the label {names}; a classifier needs at least two" if names else "no labels"
            raise UserError(f"the training rows have {too_few}")
        return self.with_labels(self.in_order_of_head(names), problem_type=problem).with_known_thresholds()

    def with_known_thresholds(self) -> Self:
        """This task; raises a UserError if `--threshold` names what is no label."""
        given = self.options.given_thresholds()
        if given and self.config.problem_type == REGRESSION:
            raise UserError("--threshold has no effect on a regression, whose rows have no labels; leave it out")
        labels = list(self.id2label.values())
        if unknown := [name for name in given if name and name not in labels]:
            raise UserError(f"--threshold {unknown[0]}=…: the labels are {short_list(labels)}")
        return self

    def features(self, rows: Dataset, tokenizer: PreTrainedTokenizerBase, training: bool) -> Dataset:
        windows = self.options.has_windows
        if windows and "text_pair" in rows.column_names:
            raise UserError("--long-texts window reads single texts; pairs are truncated")
        length = self.options.length
        overflow = {}
        if windows:
            overflow = {"stride": self.options.stride_below(length - 2), "return_overflowing_tokens": True}

        def encode(batch: Mapping[str, list[Any]], indices: list[int]) -> dict[str, list[Any]]:
            if "text_pair" in batch:
                encoded = encode_pairs(batch["text"], batch["text_pair"], tokenizer, length)
            else:
                cut = {"truncation": True, "max_length": length, **overflow}
                encoded = tokenizer(batch["text"], split_special_tokens=True, **cut)
            origin = encoded.pop("overflow_to_sample_mapping", range(len(indices)))
            columns = {**encoded, ROW: [indices[i] for i in origin]}
            if not windows:
                columns[CUT] = [bool(encoding.overflowing) for encoding in encoded.encodings or ()]
            if "label" in batch:
                kind = self.kind
                columns["labels"] = [kind.model_label(batch["label"][i]) for i in origin]
            return columns

        return map_rows(rows, encode)

    # Results

    def decode(self, logits: Sequence[np.ndarray], features: Dataset, rows: Dataset) -> list[Prediction]:
        """`label` and `score`, or `labels` above the threshold, each with all `scores`; for regression `score`."""
        return self.kind.predictions(mean_by_row(logits, features, len(rows)))

    def tuned(self, logits: Sequence[np.ndarray], features: Dataset, rows: Dataset) -> dict[str, float]:
        """Tunes the threshold of several labels for micro F1, if some rows have a label."""
        kind, references = self.kind, self.references(rows)
        if not isinstance(kind, MultiLabel) or "" in kind.thresholds or not any(references):
            return {}
        return {"label_threshold": kind.best_threshold(self.decode(logits, features, rows), references)}

    def references(self, rows: Dataset) -> list[Any]:
        """A name, a list of distinct names, or a number for each row."""
        return list(map(self.kind.reference, rows["label"][:]))

    def baseline_predictions(self, references: Sequence[Any]) -> list[list[Prediction]]:
        return [[answer] * len(references) for answer in self.kind.constants(references)]

    def simple_predictions(self, train: Dataset, rows: Dataset) -> dict[str, list[Prediction]]:
        from mybert.tasks.simple_models import bag_of_words  # here, since predicting does not need it

        texts, others = (
            list(zip(*(split[name][:] for name in self.inputs if name in train.column_names), strict=True))
            for split in (train, rows)
        )
        kind = KINDS[str(self.config.problem_type)](self.config)  # the thresholds are those of the fine-tuned model
        return {"bag of words": kind.from_linear(bag_of_words(texts, kind.targets(train["label"][:]), others))}

    @property
    def main_metric(self) -> str:
        return self.kind.main_metric

    @property
    def selection_metric(self) -> str:
        return self.kind.selection_metric

    def title(self, metric: str) -> str:
        return f"F1 of {self.id2label[1]!r}" if metric == "f1" else super().title(metric)

    @property
    def classes(self) -> int | None:
        return self.config.num_labels if self.config.problem_type == SINGLE else None

    def scorer(self, predictions: Sequence[Prediction], references: Sequence[Any]) -> Scorer:
        return self.kind.scorer(predictions, references)

    def errors(self, predictions: Sequence[Prediction], references: Sequence[Any]) -> list[float]:
        return list(map(self.kind.error, predictions, references))

    def label_scores(self, predictions: Sequence[Prediction], references: Sequence[Any]) -> dict[str, LabelScores]:
        kind = self.kind
        answers = [prediction[kind.key] for prediction in predictions]
        predicted, true = (
            {(label, row) for row, one in enumerate(each) for label in kind.labels(one)}
            for each in (answers, references)
        )
        return by_label(predicted, true)


def _flat(labels: Iterable[Any]) -> list[Any]:
    """All labels, also those in lists."""
    return [one for label in labels for one in (label if isinstance(label, list) else [label])]
