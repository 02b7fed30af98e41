"""Base class of the tasks, which read, encode, decode and score rows. One module and one class per task.

`Task` has three parts: what every task defines, what some tasks change, and what all tasks share.
"""

import copy
import dataclasses
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Self, cast

import numpy as np
from datasets import Dataset
from transformers import DataCollatorWithPadding, PreTrainedModel, PreTrainedTokenizerBase

from modeling_mybert import MyBertConfig
from mybert.common.errors import UserError, short
from mybert.common.metrics import metric_of, metric_title
from mybert.rows.splits import Problem, Split
from mybert.rows.tables import MissingColumns, choose_columns, lacking_columns
from mybert.tasks.bootstrap_scores import LabelScores, Scorer
from mybert.tasks.options import TaskOptions

ColumnNames = Mapping[str, tuple[str, ...]]
"""Usual names of a column by its role, best first."""
Prediction = dict[str, Any]
"""The prediction for a row, as `mybert predict` writes it."""


@dataclass(frozen=True, eq=False)
class Task(ABC):
    """A kind of fine-tuning. A task does not change: `fitted` returns a new one.

    Rows are a `datasets.Dataset` whose columns are named by their roles, the keys of `inputs` and `targets`.
    `rows["text"][:]` reads a column at once; iterating over `rows["text"]` reads row after row, which takes long.
    Features are the arguments of the model: one or more for each row, with the column `row`.

    Attributes:
        options: of the class `Options`.
        config: configuration of the model, with the labels.
        trained_inputs: roles of the inputs that the training rows have; None if they are not known.
        asks: whether messages about missing columns ask for `--columns`.

    Class attributes:
        name: the value of `--task`.
        head: class of the model.
        Options: class of the options.
        inputs, targets: usual names of each column by its role, best first.
        optional: inputs that training rows may lack. Other rows need all inputs that the training rows have.
        alternatives: columns of another form of rows, which `prepare` converts.
        counted: `rows` or `labels`; the total of the shares in tables of labels.
        grouped_by: inputs that rows with other questions share; held-out rows share none with training rows.
        row_shares: metrics that are the share of right rows.
    """

    options: TaskOptions
    config: MyBertConfig
    trained_inputs: tuple[str, ...] | None = None
    asks: bool = True

    name: ClassVar[str]
    head: ClassVar[type[PreTrainedModel]]
    Options: ClassVar[type[TaskOptions]] = TaskOptions
    inputs: ClassVar[ColumnNames]
    targets: ClassVar[ColumnNames]
    optional: ClassVar[frozenset[str]] = frozenset()
    alternatives: ClassVar[ColumnNames] = {}
    counted: ClassVar[str] = "rows"
    grouped_by: ClassVar[tuple[str, ...]] = ()
    row_shares: ClassVar[frozenset[str]] = frozenset()

    # What every task defines

    @property
    @abstractmethod
    def main_metric(self) -> str:
        """Name of the metric that reports begin with."""

    @abstractmethod
    def check_rows(self, rows: Dataset, training: bool) -> list[Problem]:
        """Rows that cannot be used: empty texts, missing labels, spans that do not match, ….

        Args:
            training: whether these rows define the labels; otherwise labels must be in `config`. Rows for prediction
                have no `targets`.
        """

    @abstractmethod
    def summary(self, rows: Dataset) -> str:
        """One line: the task, its labels and the reason for them; of a fitted task."""

    @abstractmethod
    def label_distribution(self, rows: Dataset) -> Counter[str]:
        """Number of occurrences of each label, or of each kind of target."""

    @abstractmethod
    def features(self, rows: Dataset, tokenizer: PreTrainedTokenizerBase, training: bool) -> Dataset:
        """
        Args:
            training: whether the model is trained on the features.

        Returns:
            Arguments of the model (with labels if the rows have them), the ascending column `row`, `cut` if texts are
            truncated, and, except for training, columns that `decode` needs. Each row has at least one feature.
        """

    @abstractmethod
    def decode(self, logits: Sequence[np.ndarray], features: Dataset, rows: Dataset) -> list[Prediction]:
        """One prediction for each row, as `mybert predict` writes it.

        Args:
            logits: for each feature (num_labels,), (choices,), (S, num_labels), or (S, 2) for start and end of an
                answer. S may be larger than the feature; the rest is padding.
        """

    @abstractmethod
    def references(self, rows: Dataset) -> list[Any]:
        """The target of each row, as `score` takes it."""

    @abstractmethod
    def baseline_predictions(self, references: Sequence[Any]) -> list[list[Prediction]]:
        """Constant predictions: each list has the same answer for every row."""

    @abstractmethod
    def scorer(self, predictions: Sequence[Prediction], references: Sequence[Any]) -> Scorer:
        """A function that computes every metric on samples of these rows."""

    @abstractmethod
    def errors(self, predictions: Sequence[Prediction], references: Sequence[Any]) -> list[float]:
        """Error of each prediction: 0 is right, more is worse."""

    # What some tasks change: rows

    def read(self, path: Path) -> tuple[Dataset, Sequence[Sequence[int]] | None, str] | None:
        """A file in a format of this task, or None for other formats.

        The rows, with columns by role; the lines of the words of each, from 0, or None if lines do not hold words; and
        a note about the columns that were taken.
        """
        return None

    def plain_row(self, line: str) -> dict[str, Any]:
        """A line of plain text as a row."""
        usual = [column for column in self.inputs if column not in self.optional]
        required = usual if self.trained_inputs is None else self.trained_inputs
        if len(required) > 1:
            raise UserError(f"it holds plain lines; {self.name} reads JSON lines with {', '.join(required)}")
        return {self.options.given_columns().get(required[0], required[0]): line}

    def unnested(self, row: Mapping[str, Any]) -> Mapping[str, Any]:
        """A row as given, with columns of the task that are inside of others as columns of their own."""
        return row

    def by_role(self, dataset: Dataset, source: str, labelled: bool) -> tuple[Dataset, dict[str, str]]:
        """The columns that the task needs, named by their roles, and the name of each in `dataset`.

        Args:
            source: file name, for messages.
            labelled: whether `targets` are required; otherwise they are left out.
        """
        columns = self.find_columns(dataset.column_names, source, labelled)
        rows = dataset.select_columns(list(columns.values())).rename_columns(
            {column: role for role, column in columns.items() if column != role}
        )
        return rows, columns

    def find_columns(self, names: Sequence[str], source: str, labelled: bool) -> dict[str, str]:
        """Column by role: from `--columns`, else by the usual names.

        Raises:
            UserError: names all columns that are unknown or missing.
        """
        given, trained = self.options.given_columns(), self.trained_inputs
        wanted = {
            role: usual
            for role, usual in self.column_roles(names, labelled).items()
            if trained is None or role not in self.inputs or role in (*trained, *given)
        }
        optional = self.optional if trained is None else frozenset()
        columns, absent, unnamed = choose_columns(names, wanted, given, optional)
        problems = [f"--columns names {short(c)} twice" for c, times in Counter(columns.values()).items() if times > 1]
        problems += self.unknown_roles()
        if absent or unnamed:
            stored = [role for role in given if trained is not None and role in wanted and given[role] not in names]
            asked = [*stored, *unnamed] if self.asks else []
            problems.append(lacking_columns(source, names, absent, unnamed, asked))
        if problems:
            raise MissingColumns("; ".join(problems))
        return columns

    def unknown_roles(self) -> list[str]:
        """The message about roles in `--columns` that the task does not have; empty if it has all."""
        known = {**self.inputs, **self.targets, **self.alternatives}
        given = self.options.given_columns().items()
        unknown = [f"{role}={column}" for role, column in given if role not in known]
        return [f"--columns {' '.join(unknown)}: {self.name} has the columns {', '.join(known)}"] if unknown else []

    def column_roles(self, names: Sequence[str], labelled: bool) -> ColumnNames:
        """Usual names by role, for rows with the columns `names`."""
        return {**self.inputs, **(self.targets if labelled else {})}

    def prepare(self, rows: Dataset) -> Dataset:
        """Converts rows with columns by role, such as those of `alternatives`."""
        return rows

    def joined(self, rows: Dataset) -> Dataset:
        """Rows of several files before `prepare`, with targets in one form."""
        return rows

    def problems(self, rows: Dataset, tokenizer: PreTrainedTokenizerBase, training: bool) -> list[Problem]:
        """As `check_rows`, with the rows that cannot be shortened to `max_length` tokens."""
        return self.check_rows(rows, training)

    def row_labels(self, rows: Dataset) -> list[Collection[str]]:
        """The labels of each row that training rows must have; none for targets that are not labels."""
        return [()] * len(rows)

    # What some tasks change: the task after it has seen a tokenizer, a checkpoint or rows

    def with_tokenizer(self, tokenizer: PreTrainedTokenizerBase, source: str) -> Self:
        """This task, which reads rows for the checkpoint `source` with this tokenizer."""
        return self

    def reading_like(self, rows: Dataset) -> Self:
        """This task, which reads other rows as it has read these training rows. Its checkpoint stores their inputs."""
        inputs = [name for name in self.inputs if name in rows.column_names]
        task = self.with_config(finetuned={**getattr(self.config, "finetuned", {}), "inputs": inputs})
        return dataclasses.replace(task, trained_inputs=tuple(inputs))

    def with_label_reading(self, parts: Sequence[Split]) -> Self:
        """This task with the meaning of labels, decided by those of all `parts` together."""
        return self

    def fitted(self, rows: Dataset) -> Self:
        """This task with the labels of the training rows in its configuration."""
        return self

    def tuned(self, logits: Sequence[np.ndarray], features: Dataset, rows: Dataset) -> dict[str, float]:
        """Thresholds fitted on validation rows, as values of the configuration."""
        return {}

    # What some tasks change: tokens

    def token_ids(self, rows: Dataset, tokenizer: PreTrainedTokenizerBase) -> Iterator[Sequence[int]]:
        """All token ids of each row, with special tokens and without truncation."""
        for batch in rows.iter(1000):
            texts = [batch[name] for name in self.inputs if name in batch]
            yield from tokenizer(*texts, split_special_tokens=True)["input_ids"]

    def tokens_read(self, row: Mapping[str, Any], length: Callable[[str], int]) -> int:
        """About the number of tokens that are tokenised or read by the model for a row, each as often as it is.

        Args:
            length: number of tokens of a text, without special tokens.
        """
        texts = [row[name] for name in self.inputs if row.get(name) is not None]
        words = [word for text in texts for word in (text if isinstance(text, list) else [text])]
        return self.options.tokens_in_windows(1 + len(texts) + sum(map(length, words)))

    def collator(self, tokenizer: PreTrainedTokenizerBase) -> Callable[..., Any]:
        """A function from a list of features to a padded batch."""
        return DataCollatorWithPadding(tokenizer)

    # What some tasks change: scores

    def tag_probabilities(
        self, logits: Sequence[np.ndarray], features: Dataset, rows: Dataset
    ) -> list[np.ndarray] | None:
        """(words, labels) of each row, the probability of every tag of each word; None for other tasks."""
        return None

    @property
    def selection_metric(self) -> str:
        """Name of the metric that chooses the best checkpoint, and the best run."""
        return self.main_metric

    def title(self, metric: str) -> str:
        """Name of a metric in tables."""
        return metric_title(metric)

    @property
    def classes(self) -> int | None:
        """Number of classes, of which each text or word has one; None for other targets."""
        return None

    def label_scores(self, predictions: Sequence[Prediction], references: Sequence[Any]) -> dict[str, LabelScores]:
        """The scores of each label, the most frequent first; empty for targets that are not labels."""
        return {}

    def simple_predictions(self, train: Dataset, rows: Dataset) -> dict[str, list[Prediction]]:
        """By the name of a simple model, its predictions for `rows` after learning from `train`; empty without one."""
        return {}

    def describe_error(self, prediction: Prediction, reference: Any, row: dict[str, Any]) -> list[str]:
        """Lines that describe an error; empty to show the whole row and prediction."""
        return []

    # What all tasks share

    @property
    def id2label(self) -> Mapping[int, str]:
        """The names of the labels; transformers' type allows more."""
        return cast(Mapping[int, str], self.config.id2label or {})

    @property
    def label2id(self) -> Mapping[str, int]:
        """The numbers of the labels."""
        return cast(Mapping[str, int], self.config.label2id or {})

    def with_config(self, **values: Any) -> Self:
        """This task with other values in its configuration."""
        config = copy.deepcopy(self.config)
        config.update(values)
        return dataclasses.replace(self, config=config)

    def with_labels(self, names: Sequence[str], **values: Any) -> Self:
        """This task with these labels, in this order, and other values in its configuration."""
        ids = {name: i for i, name in enumerate(names)}
        return self.with_config(num_labels=len(names), id2label=dict(enumerate(names)), label2id=ids, **values)

    def in_order_of_head(self, names: Sequence[str]) -> Sequence[str]:
        """The labels in the order of the checkpoint if it has the same ones: its head is then trained further."""
        own = [str(name) for _, name in sorted(self.id2label.items())]
        return own if sorted(own) == sorted(names) else names

    def score(self, predictions: Sequence[Prediction], references: Sequence[Any]) -> dict[str, float]:
        """All metrics of the task."""
        metrics = self.scorer(predictions, references)(np.arange(len(references))[None])
        return {name: values[0] for name, values in metrics.items()}

    def baselines(self, references: Sequence[Any]) -> dict[str, float]:
        """The best value of each metric among `baseline_predictions`."""
        scores = [self.score(predictions, references) for predictions in self.baseline_predictions(references)]
        return {
            name: (min if metric_of(name).is_loss else max)(metrics[name] for metrics in scores) for name in scores[0]
        }
