"""`mybert predict`: checkpoint + rows → predictions, one JSON line for each row, in order."""

import contextlib
import itertools
import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import BinaryIO, TextIO

import datasets
from datasets import Dataset
from tqdm.auto import tqdm

from mybert.common.errors import UserError
from mybert.common.foreign import parse_json
from mybert.common.full_disk import explain_full_disk
from mybert.common.settings import parse_settings
from mybert.corpus.files import file_format, open_file
from mybert.finetuning.checkpoint import Finetuned, load_finetuned
from mybert.finetuning.checks import Split, find_problems
from mybert.finetuning.inference import logits_of
from mybert.finetuning.reading import read_table, unwritable
from mybert.finetuning.settings import PredictSettings
from mybert.finetuning.task import Task

_ROWS_AT_ONCE = 8192  # sorted by length together; a multiple of many batches, and little memory


def predict(settings: PredictSettings) -> int:
    """Writes a prediction for each row of the inputs, in order, with all columns of the row under `input`.

    With `errors="skip"`, the line of a row that cannot be used has an `error` in place of a prediction.

    Returns:
        The number of rows.

    Raises:
        UserError: checkpoint or output cannot be used, or a row and `errors` is strict; a file is left as it was then.
    """
    finetuned = load_finetuned(settings)
    rows = 0
    with _writer(settings.output) as file, _one_bar() as bar:
        for table, part, problems in _parts(settings, finetuned):
            good = part.select([row for row in range(len(part)) if row not in problems])
            predictions = iter(predict_rows(finetuned, good, settings.batch_tokens, bar.update) if len(good) else ())
            for number, row in enumerate(table):
                said = {"error": problems[number]} if number in problems else next(predictions)
                file.write(json.dumps({**said, "input": row}, ensure_ascii=False, default=str) + "\n")
            file.flush()
            rows += len(part)
    return rows


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
    model, tokenizer, task = finetuned
    features = task.features(rows, tokenizer, training=False)
    return task.decode(logits_of(model, task, tokenizer, features, batch_tokens, progress), features, rows)


def main(argv: list[str], prog: str) -> None:
    (settings,) = parse_settings((PredictSettings,), argv, prog, "Checkpoint + rows → predictions as JSON lines.")
    rows = predict(settings)
    place = "written" if settings.output == "-" else f"in {settings.output}"
    print(f"{rows:,} predictions are {place}", file=sys.stderr)


def _parts(
    settings: PredictSettings, finetuned: Finetuned
) -> Iterator[tuple[Iterable[dict], Dataset, dict[int, str]]]:
    """Rows of all inputs in order: as they are there, as the task reads them, and why some of them cannot be used."""
    _, tokenizer, task = finetuned
    for name in settings.inputs:
        first, names = 0, {}
        for table in _lines(name, task) if name == "-" or file_format(name).kind == ".txt" else _slices(name, task):
            rows = table if isinstance(table, Dataset) else _dataset(table, names)
            split = Split(name, task.canonical(rows, name, labelled=False), first)
            problems = find_problems(split, task, tokenizer, training=False, errors=settings.errors)
            yield table, split.rows, {problem.row: problem.message for problem in reversed(problems)}
            first += len(table)


def _slices(name: str, task: Task) -> Iterator[Dataset]:
    table = read_table(name, task, split="test")
    for first in range(0, len(table), _ROWS_AT_ONCE):
        yield table.select(range(first, min(first + _ROWS_AT_ONCE, len(table))))


def _lines(name: str, task: Task) -> Iterator[list[dict]]:
    """JSON lines, or texts one a line; the first line shows which. Blank lines are no rows."""
    with contextlib.nullcontext(sys.stdin.buffer) if name == "-" else _bytes(Path(name)) as file:
        lines = (line for line in map(_decoded, itertools.count(1), file, itertools.repeat(name)) if line[1].strip())
        is_json, size = None, 1 if name == "-" else _ROWS_AT_ONCE  # who types or listens sees the first answers soon
        while chunk := list(itertools.islice(lines, size)):
            size = min(2 * size, _ROWS_AT_ONCE)
            if is_json is None:
                is_json = chunk[0][1].lstrip().startswith("{")
            if is_json:
                yield [_record(name, *line) for line in chunk]
            else:
                yield [task.plain_row(text.rstrip("\r\n"), name) for _, text in chunk]


def _dataset(records: list[dict], names: dict[str, None]) -> Dataset:
    """With all the columns of these records and of those before them, `names`: a record may lack what others have."""
    names |= dict.fromkeys(itertools.chain.from_iterable(records))
    columns = {name: [record.get(name) for record in records] for name in names}
    try:
        return Dataset.from_dict(columns, on_mixed_types="use_json")
    except OverflowError:  # whole numbers of Arrow have 64 bits; larger ones are no text that a task could read
        return _dataset([json.loads(json.dumps(record), parse_int=_small) for record in records], names)


def _small(digits: str) -> int | str:
    return int(digits) if len(digits) < 19 else digits


def _bytes(path: Path) -> contextlib.AbstractContextManager[BinaryIO]:
    if not path.is_file():
        raise UserError(f"input {path} does not exist")
    return open_file(path)


def _decoded(number: int, line: bytes, name: str) -> tuple[int, str]:
    try:
        return number, line.decode("utf-8-sig" if number == 1 else "utf-8")
    except UnicodeDecodeError as error:
        raise UserError(f"{name}, line {number}: not UTF-8 ({error.reason})") from error


def _record(name: str, number: int, line: str) -> dict:
    try:
        record = parse_json(line)
    except ValueError as error:
        raise UserError(f"{name}, line {number}: not JSON ({error})") from error
    if not isinstance(record, dict):
        raise UserError(f"{name}, line {number}: expected a JSON object, found {type(record).__name__}")
    if problem := unwritable(record):
        raise UserError(f"{name}, line {number}: {problem}")
    return record


@contextlib.contextmanager
def _one_bar() -> Iterator[tqdm]:
    """A bar over all features, in place of those of `datasets` for each part of the rows."""
    before = datasets.is_progress_bar_enabled()
    datasets.disable_progress_bars()
    try:
        with tqdm(desc="predicting", unit=" features", unit_scale=True) as bar:
            yield bar
    finally:
        if before:
            datasets.enable_progress_bars()


@contextlib.contextmanager
def _writer(output: str) -> Iterator[TextIO]:
    """Yields what text is written to: standard output, or a file aside that is renamed when complete."""
    if output == "-":
        yield sys.stdout
        return
    path = Path(output)
    aside = path.with_name(f".{path.name}.partial-{os.getpid()}")
    with explain_full_disk(path):
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            file = aside.open("w", encoding="utf-8")
        except (FileExistsError, NotADirectoryError, PermissionError) as error:
            raise UserError(f"output {path} cannot be made: {error.strerror} ({error.filename})") from error
        try:
            with file:
                yield file
            aside.replace(path)
        finally:
            aside.unlink(missing_ok=True)
