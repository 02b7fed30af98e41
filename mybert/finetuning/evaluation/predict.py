"""`mybert predict`: checkpoint + rows → predictions, one JSON line for each row, in order."""

import contextlib
import itertools
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple, NoReturn, TextIO

import datasets
from datasets import Dataset
from tqdm.auto import tqdm

from mybert.common.errors import UserError
from mybert.common.manifest import identity, json_line, write_manifest
from mybert.common.memory_allocator import keep_freed_memory
from mybert.common.output_folders import staged_file
from mybert.common.settings import parse_settings
from mybert.finetuning.data.dataset_loading import Split, read_split
from mybert.finetuning.data.stream_input import has_lines, is_stream, read_lines
from mybert.finetuning.data.validation import find_problems, refuse_rows
from mybert.finetuning.evaluation.inference import logits_of
from mybert.finetuning.settings import PredictSettings
from mybert.finetuning.task_checkpoint import Finetuned, load_finetuned
from mybert.finetuning.tasks.base import Problem, Task, rows_cut
from mybert.io.files import STDIN

_ROWS_AT_ONCE = 8192  # sorted by length together; a multiple of many batches, and little memory


class Counts(NamedTuple):
    """Of how many rows there is a prediction, an error, and a prediction from which `max_length` cut something off."""

    predictions: int
    errors: int
    cut: int


def predict(settings: PredictSettings) -> Counts:
    """Writes a prediction for each row of the inputs, in order, with all columns of the row under `input`.

    `OUTPUT.manifest.json` says how a file was made.

    With `errors="skip"`, the line of a row that cannot be used has an `error` in place of a prediction.

    Raises:
        UserError: checkpoint or output cannot be used, or a row and `errors` is strict; a file is left as it was then.
    """
    _refuse_streams_named_twice(settings.inputs)
    if settings.output == STDIN:
        return _predict(settings, load_finetuned(settings), sys.stdout)
    with staged_file(settings.output, settings.inputs, overwrite=settings.overwrite) as path:
        finetuned = load_finetuned(settings)
        with path.open("w", encoding="utf-8") as file:
            counts = _predict(settings, finetuned, file)
        write_manifest(
            path.parent,
            "predict",
            settings=settings,
            inputs={"model": identity(settings.model), "rows": [identity(name) for name in settings.inputs]},
            counts=counts._asdict(),
        )
    return counts


def predict_rows(
    finetuned: Finetuned, rows: Dataset, batch_tokens: int | None = None, progress: Callable | None = None
) -> list[dict]:
    """
    Args:
        finetuned: as `load_finetuned` gives it.
        rows: under the canonical names of the task.
        batch_tokens, progress: see `logits_of`.

    Returns:
        One prediction for each row; see `Task.decode`.
    """
    return _predict_rows(finetuned, rows, batch_tokens, progress)[0]


def _predict_rows(
    finetuned: Finetuned, rows: Dataset, batch_tokens: int | None, progress: Callable | None
) -> tuple[list[dict], int]:
    """The predictions, and of how many rows something was cut off."""
    model, tokenizer, task = finetuned
    features = task.features(rows, tokenizer, training=False)
    logits = logits_of(model, task, tokenizer, features, batch_tokens, progress)
    return task.decode(logits, features, rows), rows_cut(features)


def main(argv: list[str], prog: str) -> None:
    (settings,) = parse_settings((PredictSettings,), argv, prog, "Checkpoint + rows → predictions as JSON lines.")
    keep_freed_memory()
    counts = predict(settings)
    place = "" if settings.output == "-" else f" in {settings.output}"
    said = f", errors: {counts.errors:,}" if counts.errors else ""
    said += f", of rows cut to --max-length: {counts.cut:,}" if counts.cut else ""
    print(f"predictions{place}: {counts.predictions:,}{said}", file=sys.stderr)


def _predict(settings: PredictSettings, finetuned: Finetuned, file: TextIO) -> Counts:
    """All files are read through before: what is wrong with the last row is said before the first one is computed."""
    parts_of = {name: _parts_of(name, finetuned.task) for name in settings.inputs}
    for name in [name for name in parts_of if not is_stream(name)]:
        _check(name, _usable(parts_of[name](), finetuned), settings.errors)
    rows = errors = cut = 0
    with _one_bar() as bar:
        for name in settings.inputs:
            for part in _usable(parts_of[name](), finetuned):
                if part.errors and settings.errors == "strict":  # of a stream: files have none here
                    _refuse(name, part.problems, None)
                said, cut_here = _answers(part, finetuned, settings.batch_tokens, bar.update)
                for row, answer in zip(part.given, said, strict=True):
                    file.write(json_line({**answer, "input": row}))
                file.flush()
                rows += part.size
                errors += len(part.errors)
                cut += cut_here
    return Counts(rows - errors, errors, cut)


class _Part(NamedTuple):
    """Some consecutive rows of an input.

    Attributes:
        size: how many.
        given: as they are there; to be read once.
        errors: why some of them cannot be used, by their numbers in the input, from 0.
        tables: the others as the task reads them, with their numbers.
    """

    size: int
    given: Iterable[dict | str]
    errors: dict[int, str]
    tables: list[tuple[Sequence[int], Dataset]]

    @property
    def problems(self) -> list[Problem]:
        return list(itertools.starmap(Problem, self.errors.items()))


def _check(name: str, parts: Iterable[_Part], errors: str) -> None:
    """
    Raises:
        UserError: there are no rows, or some that cannot be used and `errors` is strict.
    """
    rows, problems = 0, []
    with tqdm(desc=f"reading {name}", unit=" rows", unit_scale=True, leave=False, disable=None) as bar:
        for part in parts:
            rows += part.size
            problems += part.problems if errors == "strict" else ()
            bar.update(part.size)
    if problems:
        _refuse(name, problems, rows)
    if not rows:
        raise UserError(f"{name} holds no rows")


def _answers(
    part: _Part, finetuned: Finetuned, batch_tokens: int | None, progress: Callable
) -> tuple[list[dict], int]:
    """Prediction or error for each row, in order, and of how many rows something was cut off."""
    said, cut = {number: {"error": message} for number, message in part.errors.items()}, 0
    for numbers, rows in part.tables:
        predictions, cut_here = _predict_rows(finetuned, rows, batch_tokens, progress)
        cut += cut_here
        said |= zip(numbers, predictions, strict=True)
    return [said[number] for number in sorted(said)], cut


def _usable(parts: Iterable[_Part], finetuned: Finetuned) -> Iterator[_Part]:
    """The parts of an input, with the rows that the model can read and why it cannot read others."""
    for part in parts:
        errors, usable = dict(part.errors), []
        for numbers, rows in part.tables:
            problems = find_problems(rows, finetuned.task, finetuned.tokenizer, training=False)
            errors |= {numbers[row]: message for row, message in reversed(problems)}
            good = [row for row, number in enumerate(numbers) if number not in errors]
            if good:
                usable.append(([numbers[row] for row in good], rows.select(good)))
        yield part._replace(errors=dict(sorted(errors.items())), tables=usable)


def _refuse(name: str, problems: Sequence[Problem], rows: int | None) -> NoReturn:
    source, unit = "standard input" if name == STDIN else name, "line" if has_lines(name) else "row"
    refuse_rows(source, problems, rows, unit, "have errors written in place of predictions by --errors skip")


def _parts_of(name: str, task: Task) -> Callable[[], Iterator[_Part]]:
    """What reads an input from its first row on; a table is opened here, once."""
    if has_lines(name):
        return lambda: _lines(name, task)
    split = read_split(name, task, labelled=False, split="test")
    return lambda: _slices(split)


def _slices(split: Split) -> Iterator[_Part]:
    rows, given = split.rows, split.given()
    for first in range(0, len(rows), _ROWS_AT_ONCE):
        some = range(first, min(first + _ROWS_AT_ONCE, len(rows)))
        numbers = split.numbers[some.start : some.stop]
        yield _Part(len(some), itertools.islice(given, len(some)), {}, [(numbers, rows.select(some))])


def _lines(name: str, task: Task) -> Iterator[_Part]:
    for lines in read_lines(name, task, _ROWS_AT_ONCE):
        alike = {}  # a line may have columns that others lack
        for line in lines:
            if line.error is None:
                alike.setdefault(tuple(line.row), []).append(line)
        tables = []
        for names, some in alike.items():
            columns = {name: [line.row[name] for line in some] for name in names}
            numbers = [line.number for line in some]
            tables.append((numbers, Dataset.from_dict(columns, on_mixed_types="use_json")))
        errors = {line.number: line.error for line in lines if line.error is not None}
        yield _Part(len(lines), [line.given for line in lines], errors, tables)


def _refuse_streams_named_twice(names: Sequence[str]) -> None:
    streams, seen = [name for name in names if is_stream(name)], {}
    for name in streams if len(streams) > 1 else ():
        found = os.fstat(0) if name == STDIN else os.stat(name)
        first = seen.setdefault((found.st_dev, found.st_ino), [])
        first.append(name)
        if len(first) > 1:
            raise UserError(f"{' and '.join(dict.fromkeys(first))} can be read but once; name it once")


@contextlib.contextmanager
def _one_bar() -> Iterator[tqdm]:
    """A bar over all features, in place of those of `datasets` for each part of the rows."""
    before = datasets.is_progress_bar_enabled()
    datasets.disable_progress_bars()
    try:
        with tqdm(desc="predicting", unit=" features", unit_scale=True, disable=None) as bar:
            yield bar
    finally:
        if before:
            datasets.enable_progress_bars()
