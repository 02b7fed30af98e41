"""Base class of the tasks: columns, features, head and metrics. One module and one class per task."""

import copy
import dataclasses
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, Self, cast

import numpy as np
from datasets import Dataset
from datasets.fingerprint import generate_random_fingerprint
from transformers import BatchEncoding, DataCollatorWithPadding, PreTrainedModel, PreTrainedTokenizerBase

from modeling_mybert import MyBertConfig
from mybert.common.errors import UserError, nearest_name, short, short_list
from mybert.common.metrics import metric_of, metric_title
from mybert.common.progress import Bar, no_dataset_bars
from mybert.common.quantities import counted
from mybert.common.text_windows import without_unread_end
from mybert.io.files import file_format
from mybert.rows.annotations import read_argilla
from mybert.rows.splits import Problem, Split
from mybert.rows.tables import MemoryRows
from mybert.tasks.bootstrap_scores import Scores, every_row
from mybert.tasks.options import TaskOptions

ROW = "row"  # column of features: index of the row that the feature belongs to
CUT = "cut"  # column of features: whether the text was truncated; only in tasks that truncate
ColumnNames = Mapping[str, tuple[str, ...]]
"""Usual names of each column by its canonical name, best first."""
Prediction = dict[str, Any]
"""The prediction for a row, as `mybert predict` writes it."""


class Matrix(NamedTuple):
    """A confusion matrix: the labels, and (labels, labels) integers whose rows are references, columns predictions."""

    names: list[str]
    counts: np.ndarray


@dataclass(frozen=True, eq=False)
class Task(ABC):
    """A kind of fine-tuning. A task does not change: `fitted` returns a new one.

    Rows are a `datasets.Dataset` whose columns have the canonical names that are the keys of `inputs` and `targets`.
    `rows["text"][:]` reads a column at once; iterating over `rows["text"]` reads row after row, which takes long.
    Features are the arguments of the model: one or more for each row, with the column `row`.

    Attributes:
        options: of the class `Options`.
        config: configuration of the model, with the labels.
        trained_inputs: canonical names of the inputs that the training rows have; None if they are not known.
        asks: whether messages about missing columns ask for `--columns`.

    Class attributes:
        name: the value of `--task`.
        head: class of the model.
        Options: class of the options.
        inputs, targets: usual names of each column by its canonical name, best first.
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

    # Rows

    def read(self, path: Path) -> tuple[Dataset, Sequence[Sequence[int]] | None, str] | None:
        """A file in a format of this task, or None for other formats.

        The rows, with canonical names; the lines of the words of each, from 0, or None if lines do not hold words; and
        a note about the columns that were taken.
        """
        return None

    def plain_row(self, line: str, source: str) -> dict[str, Any]:
        """A line of plain text as a row."""
        usual = [column for column in self.inputs if column not in self.optional]
        required = usual if self.trained_inputs is None else self.trained_inputs
        if len(required) > 1:
            raise UserError(f"{source} holds plain lines; {self.name} reads JSON lines with {', '.join(required)}")
        return {self.options.given_columns().get(required[0], required[0]): line}

    def canonical(self, dataset: Dataset, source: str, labelled: bool) -> tuple[Dataset, dict[str, str]]:
        """The columns that the task needs under their canonical names, and the name of each in `dataset`.

        Args:
            source: file name, for messages.
            labelled: whether `targets` are required; otherwise they are left out.
        """
        dataset = self.combined(read_argilla(dataset), source, labelled)
        found = self.find_columns(dataset.column_names, source, labelled)
        rows = dataset.select_columns(list(found.values())).rename_columns(
            {column: role for role, column in found.items() if column != role}
        )
        return rows, found

    def unnested(self, row: Mapping[str, Any]) -> Mapping[str, Any]:
        """A row as given, with columns of the task that are inside of others as columns of their own."""
        return row

    def combined(self, dataset: Dataset, source: str, labelled: bool) -> Dataset:
        """The rows, with one column in place of several that the task reads as one."""
        return dataset

    def find_columns(self, names: Sequence[str], source: str, labelled: bool) -> dict[str, str]:
        """Column by canonical name: from `--columns`, else by the usual names.

        Raises:
            UserError: names all columns that are unknown or missing.
        """
        given, trained = self.options.given_columns(), self.trained_inputs
        optional = self.optional if trained is None else frozenset()
        wanted = {
            role: candidates
            for role, candidates in self.column_roles(names, labelled).items()
            if trained is None or role not in self.inputs or role in (*trained, *given)
        }
        found = {role: column for role, column in given.items() if role in wanted}
        absent = []
        for column in [
            column for column in found.values() if column not in names
        ]:  # of `a,b,c` those that are missing
            absent += [name for name in map(str.strip, column.split(",")) if name not in names] or [column]
        unnamed = []
        for role, candidates in wanted.items():
            free = [name for name in candidates if name in names and name not in found.values()]
            if role not in found and free:
                found[role] = free[0]
            elif role not in found and role not in optional:
                unnamed.append(role)
        problems = [f"--columns names {short(c)} twice" for c, times in Counter(found.values()).items() if times > 1]
        known = {**self.inputs, **self.targets, **self.alternatives}
        if unknown := [f"{role}={column}" for role, column in given.items() if role not in known]:
            problems.append(f"--columns {' '.join(unknown)}: {self.name} has the columns {', '.join(known)}")
        if absent or unnamed:
            nameless = {role: wanted[role] for role in unnamed}
            stored = [role for role in given if trained is not None and role in wanted and given[role] not in names]
            asked = [*stored, *unnamed] if self.asks else []
            problems.append(_lacking(source, names, absent, nameless, asked))
        if problems:
            raise UserError("; ".join(problems))
        return found

    def column_roles(self, names: Sequence[str], labelled: bool) -> ColumnNames:
        """Usual names by canonical name, for rows with the columns `names`."""
        return {**self.inputs, **(self.targets if labelled else {})}

    def prepare(self, rows: Dataset) -> Dataset:
        """Converts rows with canonical names, such as those with the columns of `alternatives`."""
        return rows

    def joined(self, rows: Dataset) -> Dataset:
        """Rows of several files before `prepare`, with targets in one form."""
        return rows

    def with_label_reading(self, parts: Sequence[Split]) -> Self:
        """This task with the meaning of labels, decided by those of all `parts` together."""
        return self

    @abstractmethod
    def check_rows(self, rows: Dataset, training: bool) -> list[Problem]:
        """Rows that cannot be used: empty texts, missing labels, spans that do not match, ….

        Args:
            training: whether these rows define the labels; otherwise labels must be in `config`. Rows for prediction
                have no `targets`.
        """

    def check_lengths(self, rows: Dataset, tokenizer: PreTrainedTokenizerBase) -> list[Problem]:
        """Rows that pass `check_rows` but cannot be shortened to `max_length` tokens."""
        return []

    def problems(self, rows: Dataset, tokenizer: PreTrainedTokenizerBase, training: bool) -> list[Problem]:
        """The rows that cannot be used, for either reason; for `training` see `check_rows`."""
        problems = self.check_rows(rows, training)
        bad = {problem.row for problem in problems}
        good = [row for row in range(len(rows)) if row not in bad]
        too_long = self.check_lengths(rows.select(good), tokenizer) if good else []
        return [*problems, *(problem._replace(row=good[problem.row]) for problem in too_long)]

    @abstractmethod
    def label_distribution(self, rows: Dataset) -> Counter[str]:
        """Number of occurrences of each label, or of each kind of target."""

    def row_labels(self, rows: Dataset) -> list[Collection[str]]:
        """The labels of each row that training rows must have; none for targets that are not labels."""
        return [()] * len(rows)

    def token_ids(self, rows: Dataset, tokenizer: PreTrainedTokenizerBase) -> Iterator[Sequence[int]]:
        """All token ids of each row, with special tokens and without truncation."""
        for batch in rows.iter(1000):
            texts = [batch[name] for name in self.inputs if name in batch]
            yield from tokenizer(*texts, split_special_tokens=True)["input_ids"]

    def summary(self, rows: Dataset) -> str:
        """One line: the task, its labels and the reason for them; of a fitted task."""
        labels = self.label2id if self.classes else ()
        return f"{self.name}: {counted(len(labels), 'label')} ({short_list(labels)})" if labels else self.name

    # Model

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

    def loaded(self, source: str) -> Self:
        """This task with the values that a fine-tuned checkpoint may lack.

        Args:
            source: the checkpoint, for messages.
        """
        return self

    def with_tokenizer(self, tokenizer: PreTrainedTokenizerBase) -> Self:
        """This task, which reads rows for a model with this tokenizer."""
        return self

    def reading_like(self, rows: Dataset) -> Self:
        """This task, which reads other rows as it has read these training rows."""
        return self

    def fitted(self, rows: Dataset) -> Self:
        """This task with the labels and the kind of problem of the training rows."""
        return self

    @abstractmethod
    def features(self, rows: Dataset, tokenizer: PreTrainedTokenizerBase, training: bool) -> Dataset:
        """
        Args:
            training: whether the model is trained on the features.

        Returns:
            Arguments of the model (with labels if the rows have them), the ascending column `row`, `cut` if texts are
            truncated, and, except for training, columns that `decode` needs. Each row has at least one feature.
        """

    def tokens_read(self, row: Mapping[str, Any], length: Callable[[str], int]) -> int:
        """About the number of tokens that are tokenised or read by the model for a row, each as often as it is.

        Args:
            length: number of tokens of a text, without special tokens.
        """
        texts = [row[name] for name in self.inputs if row.get(name) is not None]
        words = [word for text in texts for word in (text if isinstance(text, list) else [text])]
        return self._in_windows(1 + len(texts) + sum(map(length, words)))

    def _in_windows(self, tokens: int) -> int:
        """The number of tokens of all windows of a row."""
        return tokens

    def collator(self, tokenizer: PreTrainedTokenizerBase) -> Callable[..., Any]:
        """A function from a list of features to a padded batch."""
        return DataCollatorWithPadding(tokenizer)

    # Results

    @abstractmethod
    def decode(self, logits: Sequence[np.ndarray], features: Dataset, rows: Dataset) -> list[Prediction]:
        """One prediction for each row, as `mybert predict` writes it.

        Args:
            logits: for each feature (num_labels,), (choices,), (S, num_labels), or (S, 2) for start and end of an
                answer. S may be larger than the feature; the rest is padding.
        """

    def tuned(self, logits: Sequence[np.ndarray], features: Dataset, rows: Dataset) -> dict[str, float]:
        """Thresholds fitted on validation rows, as values of the configuration."""
        return {}

    @abstractmethod
    def references(self, rows: Dataset) -> list[Any]:
        """The target of each row, as `score` takes it."""

    @abstractmethod
    def baseline_predictions(self, references: Sequence[Any]) -> list[list[Prediction]]:
        """Constant predictions: each list has the same answer for every row."""

    def baselines(self, references: Sequence[Any]) -> dict[str, float]:
        """The best value of each metric among `baseline_predictions`."""
        scores = [self.score(predictions, references) for predictions in self.baseline_predictions(references)]
        return {name: (min if metric_of(name).is_loss else max)(found[name] for found in scores) for name in scores[0]}

    @property
    def truncates(self) -> bool:
        """Whether rows of more than `max_length` tokens are truncated, not split into windows."""
        return False

    simple_model: ClassVar[str] = ""
    """Name of the model of `simple_predictions`."""

    def simple_predictions(self, train: Dataset, rows: Dataset) -> list[Prediction] | None:
        """What a simple model predicts for `rows` after learning from `train`; None: the task has none."""
        return None

    @property
    @abstractmethod
    def main_metric(self) -> str:
        """Name of the metric that reports begin with."""

    @property
    def selection_metric(self) -> str:
        """Name of the metric that chooses the best checkpoint, and the best run."""
        return self.main_metric

    def title(self, metric: str) -> str:
        """Name of a metric in tables."""
        return metric_title(metric)

    def score(self, predictions: Sequence[Prediction], references: Sequence[Any]) -> dict[str, float]:
        """All metrics of the task."""
        found = self.bootstrap(predictions, references, every_row(references))
        return {name: values[0] for name, values in found.items()}

    @property
    def classes(self) -> int | None:
        """Number of classes that can be weighted; None for other targets."""
        return None

    @abstractmethod
    def bootstrap(self, predictions: Sequence[Prediction], references: Sequence[Any], samples: np.ndarray) -> Scores:
        """Every metric on each of `samples` (samples, rows), which are indices of rows drawn with replacement."""

    @abstractmethod
    def errors(self, predictions: Sequence[Prediction], references: Sequence[Any]) -> list[float]:
        """Error of each prediction: 0 is right, more is worse."""

    def describe_error(self, prediction: Prediction, reference: Any, row: dict[str, Any]) -> list[str]:
        """Lines that describe an error; empty to show the whole row and prediction."""
        return []

    def labelled_spans(
        self, predictions: Sequence[Prediction], references: Sequence[Any]
    ) -> tuple[set[tuple[Any, ...]], set[tuple[Any, ...]]] | None:
        """Predictions and references as pairs of label and place; None for targets that are not labels."""
        return None

    def matrix(self, predictions: Sequence[Prediction], references: Sequence[Any]) -> Matrix | None:
        """The confusion matrix of a task with labels."""
        return None


def _lacking(
    source: str,
    names: Sequence[str],
    absent: Sequence[str],
    unnamed: Mapping[str, Sequence[str]],
    roles: Sequence[str],
) -> str:
    """The message about missing columns.

    Args:
        names: the columns of `source`.
        absent: missing columns that `--columns` names, or named in training.
        unnamed: usual names of each role for which there is no column.
        roles: the roles whose columns the message asks for.
    """
    lacking = [f"no column {name!r}{nearest_name(name, names)}" for name in absent]
    lacking += [f"no column for {role!r} (looked for {', '.join(tried)})" for role, tried in unnamed.items()]
    message = f"{source} has {' and '.join(lacking)}; there are {short_list(names) or 'none'}"
    if roles:
        message += f"; name {'it' if len(roles) == 1 else 'them'} by --columns "
        message += " ".join(f"{role}=COLUMN" for role in roles)
        if unnamed and file_format(source).kind in (".csv", ".tsv", ".xlsx"):
            message += ", or add a line of names if the file has none"
    return message


def rows_cut(features: Dataset) -> int:
    """Number of truncated rows."""
    return sum(features[CUT][:]) if CUT in features.column_names else 0


def encode_pairs(
    firsts: Sequence[str], seconds: Sequence[str], tokenizer: PreTrainedTokenizerBase, length: int
) -> BatchEncoding:
    """Pairs of texts, truncated to `length` tokens. A literal [SEP] in a text is text."""
    pairs = [without_unread_end(*pair, tokenizer, length) for pair in zip(firsts, seconds, strict=True)]
    firsts, seconds = map(list, zip(*pairs, strict=True))
    return tokenizer(firsts, seconds, truncation=True, max_length=length, split_special_tokens=True)


def map_rows(
    rows: Dataset | MemoryRows, encode: Callable[[dict[str, list[Any]], list[int]], dict[str, list[Any]]]
) -> Dataset | MemoryRows:
    """The features that `encode` makes from batches of rows and their indices."""
    if isinstance(rows, MemoryRows):
        return MemoryRows(encode(rows[:], list(range(len(rows)))))
    with no_dataset_bars(), Bar(total=len(rows), desc="tokenizing", unit="rows", leave=False) as bar:

        def encode_shown(batch: dict[str, list[Any]], indices: list[int]) -> dict[str, list[Any]]:
            bar.update(len(indices))
            return encode(batch, indices)

        return rows.map(
            encode_shown,
            batched=True,
            with_indices=True,
            remove_columns=rows.column_names,
            keep_in_memory=True,
            new_fingerprint=generate_random_fingerprint(),  # or `encode` and the tokenizer are pickled for a hash
        )
