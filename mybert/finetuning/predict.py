"""`mybert predict`: checkpoint + rows → predictions, one JSON line for each row, in order."""

import contextlib
import itertools
import json
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO

import datasets
from datasets import Dataset
from tqdm.auto import tqdm

from mybert.common.errors import UserError
from mybert.common.manifest import explain_full_disk
from mybert.common.settings import parse_settings
from mybert.finetuning.checkpoint import Finetuned, load_finetuned
from mybert.finetuning.checks import Split, usable_rows
from mybert.finetuning.inference import logits_of
from mybert.finetuning.reading import file_format, open_file, read_rows
from mybert.finetuning.settings import PredictSettings
from mybert.finetuning.task import Task

_ROWS_AT_ONCE = 8192  # sorted by length together; a multiple of many batches, and little memory


def predict(settings: PredictSettings) -> int:
    """Writes a prediction for each row of the inputs, in order.

    Returns:
        The number of rows.

    Raises:
        UserError: checkpoint or output cannot be used, or a row; a file is left as it was then.
    """
    finetuned = load_finetuned(settings)
    rows = 0
    with _writer(settings.output) as write, _one_bar() as bar:
        for part in _parts(settings.inputs, finetuned):
            for prediction in predict_rows(finetuned, part, settings.batch_tokens, bar.update):
                write(json.dumps(prediction, ensure_ascii=False) + "\n")
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


def _parts(inputs: list[str], finetuned: Finetuned) -> Iterator[Dataset]:
    """Rows of all inputs in order, checked."""
    _, tokenizer, task = finetuned
    for name in inputs:
        if name == "-" or file_format(Path(name)) == ".txt":
            parts = _lines(name, task)
        else:
            rows = read_rows(name, task, labelled=False, split="test")
            firsts = range(0, len(rows), _ROWS_AT_ONCE)
            parts = ((f, rows.select(range(f, min(f + _ROWS_AT_ONCE, len(rows))))) for f in firsts)
        for first, rows in parts:
            source = name if first == 0 else f"{name}, after row {first}"
            yield usable_rows(Split(source, rows), task, tokenizer, training=False, errors="strict").rows


def _lines(name: str, task: Task) -> Iterator[tuple[int, Dataset]]:
    """JSON lines, or texts one a line; the first line shows which. Blank lines are no rows."""
    with contextlib.nullcontext(sys.stdin.buffer) if name == "-" else _bytes(Path(name)) as file:
        lines = (line for line in map(_decoded, itertools.count(1), file, itertools.repeat(name)) if line[1].strip())
        is_json, first = None, 0
        while chunk := list(itertools.islice(lines, _ROWS_AT_ONCE)):
            if is_json is None:
                is_json = chunk[0][1].lstrip().startswith("{")
            if is_json:
                rows = Dataset.from_list([_record(name, *line) for line in chunk])
            else:
                rows = Dataset.from_dict({_text_column(task, name): [text.rstrip("\r\n") for _, text in chunk]})
            yield first, task.canonical(rows, name, labelled=False)
            first += len(chunk)


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
        record = json.loads(line)
    except ValueError as error:
        raise UserError(f"{name}, line {number}: not JSON ({error})") from error
    if not isinstance(record, dict):
        raise UserError(f"{name}, line {number}: expected a JSON object, found {type(record).__name__}")
    return record


def _text_column(task: Task, name: str) -> str:
    """The column that plain lines are, for a task that needs no other."""
    required = [column for column in task.inputs if column not in task.optional]
    if len(required) > 1:
        raise UserError(f"{name} holds plain lines; {task.name} reads JSON lines with {', '.join(required)}")
    return task.settings.given_columns().get(required[0], required[0])


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
def _writer(output: str):
    """Yields a function that writes text: to standard output, or aside and renamed when complete."""
    if output == "-":
        yield sys.stdout.write
        sys.stdout.flush()
        return
    path = Path(output)
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = path.with_name(f".{path.name}.partial-{os.getpid()}")
    try:
        with explain_full_disk(path):
            with aside.open("w", encoding="utf-8") as file:
                yield file.write
            aside.replace(path)
    finally:
        aside.unlink(missing_ok=True)
