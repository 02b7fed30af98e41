"""`mybert predict`: checkpoint + rows → a prediction for each row, in order."""

import itertools
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple, NoReturn, TextIO

from tqdm.auto import tqdm

from mybert.common.errors import UserError
from mybert.common.manifest import identity, json_line, write_manifest
from mybert.common.memory_allocator import keep_freed_memory
from mybert.common.output_folders import staged_file
from mybert.finetuning.data.dataset_loading import Split, read_split
from mybert.finetuning.data.stream_input import has_lines, is_stream, read_lines
from mybert.finetuning.data.validation import refuse_rows
from mybert.finetuning.evaluation.prediction_files import write_table
from mybert.finetuning.evaluation.predictor import Part, Predictor, part_of
from mybert.finetuning.settings import PredictSettings
from mybert.finetuning.tasks.base import Problem
from mybert.io.files import STDIN

_ROWS_AT_ONCE = 8192  # sorted by length together: many batches, and little memory


class Counts(NamedTuple):
    """Number of predictions, of errors, and of rows truncated to `max_length`."""

    predictions: int
    errors: int
    cut: int


def predict(settings: PredictSettings) -> Counts:
    """Writes a prediction for each row of the inputs, in order, with all columns of the row under `input`.

    Each prediction has its `line` in the input, from 1, or its `row` in formats without lines. A blank line of
    standard input or of a .txt file has the `error` "empty text" instead of a prediction. With `errors="skip"`, each
    row that cannot be used has an `error`. `OUTPUT.manifest.json` records settings, inputs and counts.

    Raises:
        UserError: checkpoint, output or, with `errors="strict"`, a row cannot be used; no file is written.
    """
    _refuse_streams_named_twice(settings.inputs)
    if settings.output == STDIN:
        return _predict(settings, Predictor(settings), sys.stdout)
    with staged_file(settings.output, settings.inputs, overwrite=settings.overwrite) as path:
        predictor = Predictor(settings)
        records = path.with_name("predictions.jsonl")
        with records.open("w", encoding="utf-8", newline="\n") as file:
            counts = _predict(settings, predictor, file)
        if path.suffix == ".jsonl":
            records.replace(path)
        else:
            write_table(records, path)
        write_manifest(
            path.parent,
            "predict",
            settings=settings,
            inputs={"model": identity(settings.model), "rows": [identity(name) for name in settings.inputs]},
            counts=counts._asdict(),
        )
    return counts


def main(settings: PredictSettings) -> None:
    keep_freed_memory()
    counts = predict(settings)
    place = "" if settings.output == "-" else f" in {settings.output}"
    more = f", errors: {counts.errors:,}" if counts.errors else ""
    more += f", rows truncated to --max-length: {counts.cut:,}" if counts.cut else ""
    print(f"predictions{place}: {counts.predictions:,}{more}", file=sys.stderr)


def _predict(settings: PredictSettings, predictor: Predictor, file: TextIO) -> Counts:
    """Checks all files before the first prediction, so that an error in the last row costs no computation."""
    parts_of = {name: _parts_of(name, predictor) for name in settings.inputs}
    for name in [name for name in parts_of if not is_stream(name)]:
        _check(name, parts_of[name](), settings.errors)
    rows = errors = cut = 0
    with tqdm(desc="predicting", unit=" features", unit_scale=True, disable=None) as bar:
        for name in settings.inputs:
            for part in parts_of[name]():
                if part.problems and settings.errors == "strict":  # only in a stream: files have been checked
                    _refuse(name, part, part.problems)
                predictions, cut_here = predictor.predict(part, bar.update)
                for number, row, prediction in zip(part.numbers, part.given, predictions, strict=True):
                    file.write(json_line({**prediction, part.unit: number + 1, "input": row}))
                file.flush()
                rows += len(part.numbers)
                errors += len(part.errors)
                cut += cut_here
    return Counts(rows - errors, errors, cut)


def _check(name: str, parts: Iterable[Part], errors: str) -> None:
    """
    Raises:
        UserError: there are no rows, or some cannot be used and `errors` is strict.
    """
    rows, problems, part = 0, [], None
    with tqdm(desc=f"reading {name}", unit=" rows", unit_scale=True, leave=False, disable=None) as bar:
        for part in parts:
            rows += len(part.numbers)
            problems += part.problems if errors == "strict" else ()
            bar.update(len(part.numbers))
    if problems:
        _refuse(name, part, problems, rows)
    if not rows:
        raise UserError(f"{name} holds no rows")


def _refuse(name: str, part: Part, problems: Sequence[Problem], rows: int | None = None) -> NoReturn:
    source = "standard input" if name == STDIN else name
    refuse_rows(source, problems, rows, part.unit, "have errors written in place of predictions by --errors skip")


def _parts_of(name: str, predictor: Predictor) -> Callable[[], Iterator[Part]]:
    """A function that reads an input from its first row on; tables are loaded here, once."""
    if has_lines(name):
        return lambda: (predictor.usable(part_of(lines)) for lines in read_lines(name, predictor.task, _ROWS_AT_ONCE))
    split = read_split(name, predictor.task, labelled=False, split="test")
    return lambda: map(predictor.usable, _slices(split))


def _slices(split: Split) -> Iterator[Part]:
    rows, given = split.rows, split.given()
    for first in range(0, len(rows), _ROWS_AT_ONCE):
        some = range(first, min(first + _ROWS_AT_ONCE, len(rows)))
        numbers = split.numbers[some.start : some.stop]
        yield Part(numbers, itertools.islice(given, len(some)), {}, [(numbers, rows.select(some))], split.unit)


def _refuse_streams_named_twice(names: Sequence[str]) -> None:
    streams = [name for name in names if is_stream(name)]
    for name in streams:
        if streams.count(name) > 1:
            raise UserError(f"{name} can be read only once; name it once")
