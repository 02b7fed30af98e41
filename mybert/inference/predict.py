"""`mybert predict`: checkpoint + rows → a prediction for each row, in order."""

import itertools
import pickle
import shutil
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple, NoReturn, TextIO

from mybert.artifacts.jobs import Parts, RowsJob
from mybert.artifacts.manifest import PREDICTIONS, identity, json_line, write_manifest
from mybert.common.errors import UserError
from mybert.common.progress import Bar
from mybert.inference.prediction_files import write_table
from mybert.inference.predictor import Part, Predictor, part_of
from mybert.io.files import STDIN
from mybert.rows.splits import Problem, refuse_rows
from mybert.tasks.lines import EMPTY, has_lines, is_stream, read_lines
from mybert.tasks.reading import read_split
from mybert.tasks.settings import PredictSettings

Progress = Callable[[int], object]
_ROWS_AT_ONCE = 8192  # sorted by length together: many batches, and little memory


class Counts(NamedTuple):
    """Number of predictions, of errors, and of rows truncated to `max_length`."""

    predictions: int
    errors: int
    cut: int


def predict(settings: PredictSettings) -> Counts:
    """Writes a prediction for each row of the inputs, in order, with all columns of the row under `input`.

    Each prediction has its `line` in the input, from 1, or its `row` in formats without lines; of several inputs, also
    the name of its input as `source`. A blank line of standard input or of a .txt file has the `error` "empty text"
    instead of a prediction. With `errors="skip"`, each row that cannot be used has an `error`. `OUTPUT.manifest.json`
    records settings, inputs and counts.

    Raises:
        UserError: checkpoint, output or, with `errors="strict"`, a row cannot be used; no file is written.
    """
    if settings.output == STDIN:
        return write_predictions(settings.inputs, settings.errors, Predictor(settings), sys.stdout)
    job = RowsJob(settings)
    if job.finished:
        return Counts(**job.finished["counts"])
    with job.working() as (path, _, parts):
        predictor = Predictor(settings)
        records = path.with_name(PREDICTIONS)
        with records.open("w", encoding="utf-8", newline="\n") as file:
            if any(map(is_stream, settings.inputs)):  # whose lines arrive in parts of any size
                if settings.resume or settings.engine != "local":
                    raise UserError("--resume and --engine ray need files as inputs; a pipe can be read only once")
                counts = write_predictions(settings.inputs, settings.errors, predictor, file)
            else:
                counts = _predict_in_parts(job, predictor, parts, file)
        if path.suffix == ".jsonl":
            records.replace(path)
        else:
            _write_table(records, path, settings)
        write_manifest(
            path.parent,
            "predict",
            settings=settings,
            job=job.digest,
            inputs={"model": job.model, "rows": [identity(name) for name in settings.inputs]},
            counts=counts._asdict(),
        )
    return counts


def _write_table(records: Path, path: Path, settings: PredictSettings) -> None:
    formulas = write_table(records, path, settings.spreadsheet_safe)
    if formulas and not settings.spreadsheet_safe:
        cells = "1 cell begins" if formulas == 1 else f"{formulas:,} cells begin"
        print(
            f"{cells} with =, +, -, @ or a tab, so that a spreadsheet may compute it; --spreadsheet-safe puts an "
            "apostrophe first",
            file=sys.stderr,
        )


def main(settings: PredictSettings) -> Path | None:
    counts = predict(settings)
    more = f", errors: {counts.errors:,}" if counts.errors else ""
    more += f", rows truncated to --max-length: {counts.cut:,}" if counts.cut else ""
    print(f"predictions: {counts.predictions:,}{more}", file=sys.stderr)
    return None if settings.output == STDIN else Path(settings.output)


def write_predictions(inputs: Sequence[str], errors: str, predictor: Predictor, file: TextIO) -> Counts:
    """Writes the predictions for all rows as JSON lines, each part as soon as it is computed; see `checked_parts`."""
    counts: Counter[str] = Counter()
    parts = checked_parts(inputs, errors, predictor)
    with Bar(desc="predicting", unit="features") as bar:
        for part in parts:
            counts.update(_write(predictor, part, file, bar.update))
            file.flush()
    return Counts(*map(counts.__getitem__, Counts._fields))


def _predict_in_parts(job: RowsJob, predictor: Predictor, parts: Parts, file: TextIO) -> Counts:
    """Predicts the parts that are not finished, and joins all of them."""
    settings = job.settings
    given = enumerate(checked_parts(settings.inputs, settings.errors, predictor))
    if settings.engine == "ray":
        stored = parts.folder / "rows"
        stored.mkdir(exist_ok=True)
        for number, part in given:  # at least one: inputs without rows are refused
            (stored / str(number)).write_bytes(pickle.dumps(part))
        parts.compute_on_ray(partial(_StoredParts, job.elsewhere(), stored), number + 1, "predicting")
    else:
        with Bar(desc="predicting", unit="features") as bar:
            for number, part in given:
                if not parts.is_finished(number):
                    parts.compute(partial(_write_part, predictor, part), number, bar.update)
    for path in parts.finished():
        with path.open(encoding="utf-8", newline="\n") as part_file:
            shutil.copyfileobj(part_file, file)
    return Counts(*map(parts.counts().__getitem__, Counts._fields))


def _write(predictor: Predictor, part: Part, file: TextIO, progress: Progress) -> dict[str, int]:
    """Writes the predictions of a part; returns its counts."""
    predictions, cut = predictor.predict(part, progress)
    file.writelines(map(json_line, part.records(predictions)))
    return {"predictions": len(part.numbers) - len(part.errors), "errors": len(part.errors), "cut": cut}


def _write_part(predictor: Predictor, part: Part, number: int, path: Path, progress: Progress) -> dict[str, int]:
    with path.open("w", encoding="utf-8", newline="\n") as file:
        return _write(predictor, part, file, progress)


class _StoredParts:
    """Predicts the parts in a folder with one model."""

    def __init__(self, settings: PredictSettings, folder: Path) -> None:
        self._predictor, self._folder = Predictor(settings), folder

    def __call__(self, number: int, path: Path, progress: Progress) -> dict[str, int]:
        part = pickle.loads((self._folder / str(number)).read_bytes())
        return _write_part(self._predictor, part, number, path, progress)


def checked_parts(inputs: Sequence[str], errors: str, predictor: Predictor) -> Iterator[Part]:
    """The rows of all inputs. All files are checked before the first part, so that an error in the last row costs no
    computation.

    Raises:
        UserError: an input cannot be read, or, with `errors="strict"`, a row of it cannot be used.
    """
    for name in inputs:
        if is_stream(name) and inputs.count(name) > 1:
            raise UserError(f"{name} can be read only once; name it once")
    parts_of = {name: _parts_of(name, predictor) for name in inputs}
    for name in [name for name in parts_of if not is_stream(name)]:
        _check(name, parts_of[name](), errors)
    return _read([(name, parts_of[name]) for name in inputs], errors)


def _read(inputs: list[tuple[str, Callable[[], Iterator[Part]]]], errors: str) -> Iterator[Part]:
    for name, parts in inputs:
        for part in parts():
            if part.problems and errors == "strict":  # only in a stream: files have been checked
                _refuse(name, part.unit, part.problems)
            yield part._replace(source=name) if len(inputs) > 1 else part


def _check(name: str, parts: Iterable[Part], errors: str) -> None:
    """Raises if there are no rows or only blank lines, or if some cannot be used and `errors` is strict."""
    rows, blank, unit, problems = 0, 0, "row", list[Problem]()
    with Bar(desc=f"reading {name}", unit="rows", leave=False) as bar:
        for part in parts:
            rows, unit = rows + len(part.numbers), part.unit
            blank += [*part.errors.values()].count(EMPTY)
            problems += part.problems if errors == "strict" else ()
            bar.update(len(part.numbers))
    if problems:
        _refuse(name, unit, problems, rows)
    if rows == blank:
        raise UserError(f"{name} holds no rows")


def _refuse(name: str, unit: str, problems: Sequence[Problem], rows: int | None = None) -> NoReturn:
    source = "standard input" if name == STDIN else name
    refuse_rows(source, problems, rows, unit, "go on without them by --errors skip")


def _parts_of(name: str, predictor: Predictor) -> Callable[[], Iterator[Part]]:
    """A function that reads an input from its first row on; tables are loaded here, once."""
    if has_lines(name):
        return lambda: (predictor.usable(part_of(lines)) for lines in read_lines(name, predictor.task, _ROWS_AT_ONCE))
    split = read_split(name, predictor.task, labelled=False, split="test")
    for line in split.describe_columns():
        print(line, file=sys.stderr)

    def parts() -> Iterator[Part]:
        given = split.given()
        for first in range(0, len(split.rows), _ROWS_AT_ONCE):
            numbers = split.numbers[first : first + _ROWS_AT_ONCE]
            rows = split.rows.select(range(first, first + len(numbers)))
            some = list(itertools.islice(given, len(numbers)))  # also of a part that is then skipped
            yield predictor.usable(Part(numbers, some, {}, [(numbers, rows)], split.unit))

    return parts
