"""`Predictor`: a fine-tuned checkpoint as a function from rows to predictions."""

import copy
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from os import PathLike
from typing import TYPE_CHECKING, Any, NamedTuple, Unpack

import numpy as np
import pandas as pd
from datasets import Dataset

from mybert.common.errors import UserError, short
from mybert.common.json_io import unwritable
from mybert.common.quantities import counted
from mybert.inference.logits import logits_of
from mybert.inference.task_checkpoint import Finetuned, load_finetuned
from mybert.rows.splits import Problem, refuse_rows
from mybert.rows.tables import MOST_ROWS, MemoryRows
from mybert.settings.calls import settings_of
from mybert.settings.shared import ERRORS
from mybert.tasks.features import rows_cut
from mybert.tasks.lines import EMPTY, Line, RowColumns
from mybert.tasks.settings import PredictorSettings

if TYPE_CHECKING:
    from mybert.settings.keywords import PredictorKeywords

Row = str | Mapping[str, Any] | tuple[Any, ...]


class Part(NamedTuple):
    """Some consecutive rows of an input.

    Attributes:
        numbers: their indices in the input, from 0.
        given: the rows as given.
        errors: index → why the row cannot be used.
        tables: the other rows with columns by role, and their indices.
        unit: what `numbers` count: `line` or `row`.
        source: name of the input, if there are several.
    """

    numbers: Sequence[int]
    given: Sequence[Row]
    errors: dict[int, str]
    tables: Sequence[tuple[Sequence[int], Dataset | MemoryRows]]
    unit: str = "line"
    source: str | None = None

    @property
    def problems(self) -> list[Problem]:
        """The errors that are mistakes; a blank line is not."""
        return [Problem(number, message) for number, message in self.errors.items() if message != EMPTY]

    def usable_rows(self) -> "Iterator[tuple[int, Part]]":
        """The place of each usable row among all, and the row as a part."""
        found = {number: (rows, row) for numbers, rows in self.tables for row, number in enumerate(numbers)}
        for place, number in enumerate(self.numbers):
            if number in found:
                rows, row = found[number]
                yield place, Part([number], [self.given[place]], {}, [([number], rows.select([row]))], self.unit)

    def records(self, predictions: Iterable[dict[str, Any]]) -> Iterator[dict[str, Any]]:
        """Each prediction with the place of its row, from 1, and the row as given."""
        source = {} if self.source is None else {"source": self.source}
        for number, row, prediction in zip(self.numbers, self.given, predictions, strict=True):
            yield {**prediction, **source, self.unit: number + 1, "input": row}


class Outputs(NamedTuple):
    """
    Attributes:
        numbers: the indices of the rows in the input.
        rows: a table of a `Part`.
        features, logits: input and output of the model.
        predictions: one for each row.
    """

    numbers: Sequence[int]
    rows: Dataset
    features: Dataset
    logits: Sequence[np.ndarray]
    predictions: list[dict[str, Any]]


class Predictor:
    """A fine-tuned model that predicts rows as `mybert predict` does.

    It may be called from several threads at once.

    Args:
        model: folder or Hub name of a fine-tuned checkpoint, or `PredictorSettings`.
        settings: fields of `PredictorSettings`: `device`, `dtype`, `max_length`, `columns`, …

    Attributes:
        model, tokenizer: in evaluation mode, on its device.
        task: the task, with its labels in `task.config`.

    Raises:
        UserError: the checkpoint or a setting cannot be used.

    Example:
        >>> predictor = Predictor("classifier")
        >>> predictor("a great film")
        {'label': 'good', 'score': 0.98, 'scores': {'bad': 0.02, 'good': 0.98}}
        >>> predictor([("Is it good?", "It is."), ("Is it good?", "Yes.")])  # pairs

        A web service with FastAPI, started by `uvicorn service:app`:

        >>> from fastapi import FastAPI
        >>> from mybert import Predictor
        >>>
        >>> app = FastAPI()
        >>> predictor = Predictor("classifier")
        >>>
        >>> @app.post("/predict")
        >>> def predict(texts: list[str]) -> list[dict]:
        >>>     return predictor(texts)
    """

    def __init__(
        self, model: str | PathLike[str] | PredictorSettings, **settings: Unpack["PredictorKeywords"]
    ) -> None:
        self.settings = settings_of(PredictorSettings, model, settings)
        self.model, self.tokenizer, self.task = self._load(self.settings)
        self._columns = RowColumns(self.task)
        self._tokenizing = threading.Lock()  # truncation is part of a tokenizer's state

    def _load(self, settings: PredictorSettings) -> Finetuned:
        return load_finetuned(settings)

    def __call__(
        self, rows: Row | Iterable[Row] | Dataset | pd.DataFrame, errors: str = "strict"
    ) -> dict[str, Any] | list[dict[str, Any]]:
        """
        Args:
            rows: one row, or a list, Dataset or DataFrame of rows. A row is a text, a dictionary of columns, or a
                tuple of the task's inputs, such as a pair of texts or (question, context).
            errors: `strict` raises if a row cannot be used; `skip` returns {"error": message} for it.

        Returns:
            The prediction of the row, or a list of predictions in the order of the rows. An empty text has the
            prediction {"error": "empty text"}.

        Raises:
            UserError: a row cannot be used.
        """
        given, single = list_rows(rows)
        predictions = self.predict(self.part(given, errors))[0]
        return predictions[0] if single else predictions

    def part(self, rows: Sequence[Row], errors: str = "strict") -> Part:
        """Rows in memory as a part of usable rows; see `__call__`."""
        if errors not in ERRORS:
            raise UserError(f"errors: expected {' or '.join(ERRORS)}, found {short(errors)}")
        part = self.usable(part_of(map(self._line, range(len(rows)), rows)))
        if part.problems and errors == "strict":
            refuse_rows("rows", part.problems, len(rows), "row", 'have errors returned by errors="skip"')
        return part

    def _line(self, number: int, row: Row) -> Line:
        try:
            if isinstance(row, str) and not row.strip():
                return Line(number, row, {}, EMPTY)
            columns = self._columns.row(self._columns_of(row))
            problem = unwritable(columns)
            return Line(number, row, {} if problem else columns, problem)
        except UserError as error:
            return Line(number, row, {}, str(error))

    def _columns_of(self, row: Row) -> dict[str, Any]:
        if isinstance(row, str):
            return self.task.plain_row(row)
        if isinstance(row, Mapping):
            return {name: value.tolist() if isinstance(value, np.ndarray) else value for name, value in row.items()}
        if not isinstance(row, tuple):
            raise UserError(f"expected a text, a dictionary or a tuple, found {type(row).__name__}")
        roles = self.task.trained_inputs or sorted(self.task.inputs, key=lambda role: role in self.task.optional)
        if len(row) > len(roles):
            raise UserError(f"{counted(len(row), 'value')}; the model reads {len(roles)}: {', '.join(roles)}")
        names = self.task.options.given_columns()
        return {names.get(role, role): value for role, value in zip(roles, row, strict=False)}

    def usable(self, part: Part) -> Part:
        """The part without the rows that the model cannot read, which get an error."""
        errors, usable = dict(part.errors), []
        for numbers, rows in part.tables:
            rows = self.task.prepare(rows)
            with self._tokenizing:
                problems = self.task.problems(rows, self.tokenizer, training=False)
            errors |= {numbers[row]: message for row, message, _ in reversed(problems)}
            good = [row for row, number in enumerate(numbers) if number not in errors]
            if good:
                usable.append(([numbers[row] for row in good], rows.select(good)))
        return part._replace(errors=dict(sorted(errors.items())), tables=usable)

    def predict(self, part: Part, progress: Callable[[int], object] | None = None) -> tuple[list[dict[str, Any]], int]:
        """
        Args:
            part: of `usable`.
            progress: called after each batch with its number of features.

        Returns:
            A prediction or an error for each row, in order; the number of rows truncated to `max_length`.
        """
        results, cut = {number: {"error": message} for number, message in part.errors.items()}, 0
        for numbers, _, features, _, predictions in self.outputs(part, progress):
            results |= zip(numbers, predictions, strict=True)
            cut += rows_cut(features)
        return [results[number] for number in part.numbers], cut

    def features(self, rows: Dataset) -> Dataset:
        """The features of a table of a part."""
        with self._tokenizing:
            return self.task.features(rows, self.tokenizer, training=False)

    def with_own_tokenizer(self) -> "Predictor":
        """A predictor with the same model whose tokenization does not wait for that of this one."""
        other = copy.copy(self)
        other.tokenizer, other._tokenizing = copy.deepcopy(self.tokenizer), threading.Lock()
        return other

    def outputs(self, part: Part, progress: Callable[[int], object] | None = None) -> Iterator[Outputs]:
        """Features and predictions of each table of a part; see `predict`."""
        for numbers, rows in part.tables:
            features = self.features(rows)
            logits = logits_of(
                self.model, self.task, self.tokenizer, features, self.settings.max_tokens_per_batch, progress
            )
            yield Outputs(numbers, rows, features, logits, self.task.decode(logits, features, rows))


def list_rows(rows: Row | Iterable[Row] | Dataset | pd.DataFrame) -> tuple[list[Row], bool]:
    """The rows in memory as a list, and whether they are a single row."""
    if isinstance(rows, str | Mapping | tuple):
        return [rows], True
    if isinstance(rows, pd.DataFrame):  # which has NaN for a missing text
        rows = rows.astype(object).where(rows.notna(), None).to_dict("records")
    return list(rows), False


def part_of(lines: Iterable[Line]) -> Part:
    """Lines as a part, with a table for each set of columns."""
    lines = list(lines)
    alike: dict[tuple[str, ...], list[Line]] = {}
    for line in lines:
        if line.error is None:
            alike.setdefault(tuple(line.row), []).append(line)
    tables = []
    for names, some in alike.items():
        columns = {name: [line.row[name] for line in some] for name in names}
        tables.append(([line.number for line in some], _table(columns)))
    errors = {line.number: line.error for line in lines if line.error is not None}
    return Part([line.number for line in lines], [line.given for line in lines], errors, tables)


def _table(columns: dict[str, list[Any]]) -> Dataset | MemoryRows:
    """A few rows stay in memory."""
    if len(next(iter(columns.values()), ())) <= MOST_ROWS:
        return MemoryRows(columns)
    return Dataset.from_dict(columns, on_mixed_types="use_json")
