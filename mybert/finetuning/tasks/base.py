"""What every task says of itself: its columns, features, head and metric. One module a task, one class in it."""

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np
from datasets import Dataset
from datasets.fingerprint import generate_random_fingerprint
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from modeling_mybert import MyBertConfig
from mybert.common.error_messages import short_list
from mybert.common.errors import UserError
from mybert.finetuning.evaluation.bootstrap_scores import every_row
from mybert.finetuning.settings import TaskSettings
from mybert.io.files import file_format

ROW = "row"  # the column of features that says which row, from 0, each of them is of
CUT = "cut"  # the column that says whether `max_length` cut something off, of tasks that cut
LOWER_IS_BETTER = frozenset({"mse"})  # of every other metric, more is better


class Problem(NamedTuple):
    """A row that cannot be used.

    Attributes:
        row: which, from 0.
        message: what was found and what was expected.
    """

    row: int
    message: str


class Matrix(NamedTuple):
    """How often what was confused with what.

    Attributes:
        names: the labels.
        counts: (labels, labels) integers: rows are what is true, columns what was predicted.
    """

    names: list[str]
    counts: np.ndarray


class Task(ABC):
    """A kind of fine-tuning.

    Rows are a `datasets.Dataset` whose columns have the canonical names that are the keys of `inputs` and `targets`.
    Features are what the model reads: one or several for each row, with the column `row`.

    Args:
        settings: what the user chose; `with_defaults` has filled them in.
        config: of the model; `configure` writes the labels into that of a new one, and evaluation and prediction read
            them there.

    Attributes:
        name: as `--task` has it.
        head: the model's class.
        inputs, targets: canonical name of each column and the names under which it is looked for, best first.
        optional: columns that training rows may lack; what they have, all other rows need.
        alternatives: columns of another form of row, which `prepare` converts.
        uses: names of `TaskSettings` that mean something to this task, beside `columns` and `max_length`.
        defaults: what the task takes for settings that were not given.
        counted: `rows` or `labels`; what the shares in tables of labels are of.
    """

    name: ClassVar[str]
    head: ClassVar[type[PreTrainedModel]]
    inputs: ClassVar[Mapping[str, tuple[str, ...]]]
    targets: ClassVar[Mapping[str, tuple[str, ...]]]
    optional: ClassVar[frozenset[str]] = frozenset()
    alternatives: ClassVar[Mapping[str, tuple[str, ...]]] = {}
    uses: ClassVar[frozenset[str]] = frozenset()
    defaults: ClassVar[Mapping[str, Any]] = {"max_length": 128}
    counted: ClassVar[str] = "rows"

    def __init__(self, settings: TaskSettings, config: MyBertConfig):
        self.settings, self.config = settings, config
        self.trained_inputs: list[str] | None = None  # not known before training, and of others' checkpoints

    # Rows

    def read(self, path: Path) -> Dataset | None:
        """The rows of a file in a format that this task alone knows, or None to leave it to `datasets`.

        Raises:
            UserError: the file is in that format, but broken; the message names file and line.
        """
        return None

    def plain_row(self, line: str, source: str) -> dict:
        """The row that a line of plain text is.

        Raises:
            UserError: the task needs more than a text.
        """
        required = [column for column in self.inputs if column not in self.optional]
        required = required if self.trained_inputs is None else self.trained_inputs
        if len(required) > 1:
            raise UserError(f"{source} holds plain lines; {self.name} reads JSON lines with {', '.join(required)}")
        return {self.settings.given_columns().get(required[0], required[0]): line}

    def canonical(self, dataset: Dataset, source: str, labelled: bool) -> Dataset:
        """The columns that the task needs, under their canonical names.

        Args:
            source: the file, for messages.
            labelled: whether `targets` are required; without, they are left out.

        Raises:
            UserError: a column is neither given nor found.
        """
        found = self.find_columns(dataset.column_names, source, labelled)
        return dataset.select_columns(list(found.values())).rename_columns(
            {column: role for role, column in found.items() if column != role}
        )

    def find_columns(self, names: Sequence[str], source: str, labelled: bool) -> dict[str, str]:
        """Canonical name → column: as given by `--columns`, else by the names in `inputs` and `targets`."""
        given, trained = self.settings.given_columns(), self.trained_inputs
        optional = self.optional if trained is None else frozenset()
        wanted = {
            role: candidates
            for role, candidates in self.column_roles(names, labelled).items()
            if trained is None or role not in self.inputs or role in (*trained, *given)
        }
        for role, column in given.items():
            if role not in (known := {**self.inputs, **self.targets, **self.alternatives}):
                known = ", ".join(known)
                raise UserError(f"--columns {role}={column}: {self.name} has the columns {known}")
            if role in wanted and column not in names:
                raise UserError(f"{source} has no column {column!r}; there are {short_list(names)}")
        found = {role: column for role, column in given.items() if role in wanted}
        for role, candidates in wanted.items():
            free = [name for name in candidates if name in names and name not in found.values()]
            if role not in found and free:
                found[role] = free[0]
            elif role not in found and role not in optional:
                is_table = file_format(source).kind in (".csv", ".tsv", ".xlsx")
                raise UserError(
                    f"{source} has no column for {role!r} (looked for {', '.join(candidates)}; there are "
                    f"{short_list(names)}); name it by --columns {role}=COLUMN"
                    + (", or add a line of names if the file has none" if is_table else "")
                )
        return found

    def column_roles(self, names: Sequence[str], labelled: bool) -> Mapping[str, tuple[str, ...]]:
        """Canonical name → names under which it is looked for, in rows with the columns `names`."""
        return {**self.inputs, **(self.targets if labelled else {})}

    def prepare(self, rows: Dataset) -> Dataset:
        """Converts rows with the columns of `alternatives`; leaves others as they are."""
        return rows

    @abstractmethod
    def check_rows(self, rows: Dataset, training: bool) -> list[Problem]:
        """What is wrong in rows: empty texts, missing labels, spans that do not match …

        Args:
            training: the rows that labels are taken from; in all others a label must be one of the configuration's.
                Rows to predict have no column of `targets`.
        """

    def check_lengths(self, rows: Dataset, tokenizer: PreTrainedTokenizerBase) -> list[Problem]:
        """Rows, otherwise usable, of which nothing could be read in `max_length` tokens."""
        return []

    @abstractmethod
    def label_distribution(self, rows: Dataset) -> Counter:
        """How often each label occurs; for targets that are no labels, how often each kind of them."""

    def strata(self, rows: Dataset) -> list[Hashable]:
        """A value for each row by which validation rows are drawn in proportion; the same for all if there is none."""
        return [0] * len(rows)

    @abstractmethod
    def token_ids(self, rows: Dataset, tokenizer: PreTrainedTokenizerBase) -> Iterator[Sequence[int]]:
        """For each row all its token ids, special tokens included, nothing cut."""

    def summary(self, rows: Dataset) -> str:
        """The task, its labels and the reason for them, once `configure` has read the training rows."""
        labels = self.config.label2id if self.classes else ()
        return f"{self.name}: {len(labels)} labels ({short_list(labels)})" if labels else self.name

    # Model

    @abstractmethod
    def configure(self, rows: Dataset) -> None:
        """Writes what the training rows decide into `self.config`: `num_labels`, label names, the kind of problem."""

    @abstractmethod
    def features(self, rows: Dataset, tokenizer: PreTrainedTokenizerBase, training: bool) -> Dataset:
        """What the model reads.

        Args:
            training: whether to train on them; a task may train on other features than it predicts from.

        Returns:
            The model's arguments (with labels, where the rows have them), the column `row`, not decreasing, `cut`
            where texts are truncated, and what `decode` needs beside. Each row has at least one feature.
        """

    @abstractmethod
    def collator(self, tokenizer: PreTrainedTokenizerBase) -> Callable:
        """Makes a batch of features (those columns that the model's `forward` names), padded to the longest."""

    # Results

    @abstractmethod
    def decode(self, logits: Sequence[np.ndarray], features: Dataset, rows: Dataset) -> list[dict]:
        """What the model says, one prediction for each row, as `mybert predict` writes it.

        Args:
            logits: for each feature what the head gave: (num_labels,), (choices,), (S, num_labels), or for answers
                (S, 2), start and end. S may be larger than the feature: what is beyond it is padding.
        """

    @abstractmethod
    def references(self, rows: Dataset) -> list:
        """What is true, one for each row, as `score` takes it."""

    @abstractmethod
    def baseline_predictions(self, references: Sequence) -> list[list[dict]]:
        """Predictions of models that always say the same, and might score best so: what any model has to beat."""

    def baselines(self, references: Sequence) -> dict[str, float]:
        """Of each metric the best that one of `constants` reaches."""
        scores = [self.score(said, references) for said in self.baseline_predictions(references)]
        return {name: (min if name in LOWER_IS_BETTER else max)(found[name] for found in scores) for name in scores[0]}

    @property
    @abstractmethod
    def best_metric(self) -> str:
        """The metric that chooses the best checkpoint, by its name in what `score` gives."""

    def title(self, metric: str) -> str:
        """What tables call a metric."""
        return metric

    def score(self, predictions: Sequence[dict], references: Sequence) -> dict[str, float]:
        """All metrics of the task."""
        found = self.bootstrap(predictions, references, every_row(references))
        return {name: values[0] for name, values in found.items()}

    @property
    def classes(self) -> int | None:
        """Of how many classes each label is one, or None for other targets; classes can be weighted."""
        return None

    def tune(self, logits: Sequence[np.ndarray], features: Dataset, rows: Dataset) -> None:  # noqa: B027 - most tasks tune nothing
        """Fits what is found on validation rows (a threshold) and writes it into `self.config`."""

    @abstractmethod
    def bootstrap(self, predictions: Sequence[dict], references: Sequence, samples: np.ndarray) -> dict[str, list]:
        """Every metric on each of `samples` (samples, rows), which are row numbers drawn with replacement."""

    @abstractmethod
    def errors(self, predictions: Sequence[dict], references: Sequence) -> list[float]:
        """How wrong each prediction is: 0 is right, more is worse."""

    def describe_error(self, prediction: dict, reference: Any, row: dict) -> list[str]:
        """What is wrong with a prediction, as lines; empty to show the whole row and prediction."""
        return []

    def labelled_spans(
        self, predictions: Sequence[dict], references: Sequence
    ) -> tuple[set[tuple], set[tuple]] | None:
        """What was predicted and what is true, each a label and its place; None for targets that are no labels."""
        return None

    def matrix(self, predictions: Sequence[dict], references: Sequence) -> Matrix | None:
        """The confusion matrix, for tasks that have labels."""
        return None


def rows_cut(features: Dataset) -> int:
    """Of how many rows `max_length` cut something off."""
    return sum(features[CUT]) if CUT in features.column_names else 0


def commonest(values: Iterable[Hashable]) -> Hashable:
    """The value that occurs most often, the first of them where several do."""
    return Counter(values).most_common(1)[0][0]


def map_rows(rows: Dataset, encode: Callable[[dict[str, list], list[int]], dict[str, list]]) -> Dataset:
    """The features that `encode` makes of batches of rows and their numbers, in place of the rows' columns."""
    return rows.map(
        encode,
        batched=True,
        with_indices=True,
        remove_columns=rows.column_names,
        keep_in_memory=True,
        desc="tokenizing",
        new_fingerprint=generate_random_fingerprint(),  # else `encode` is pickled, tokenizer and all, to be hashed
    )
