"""Validate labelled rows before training; report problems by file and row."""

import hashlib
import itertools
import unicodedata
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import NoReturn

from datasets import Dataset
from transformers import PreTrainedTokenizerBase

from mybert.common.errors import UserError
from mybert.finetuning.data.dataset_loading import Split
from mybert.finetuning.tasks.base import Problem, Task

_SHOWN = 5


def usable_rows(
    split: Split,
    task: Task,
    tokenizer: PreTrainedTokenizerBase,
    training: bool,
    errors: str,
    report: Callable[[str], object] = print,
) -> Split:
    """The split without rows that cannot be used; see `Task.check_rows` for `training`.

    If there are any, `errors="strict"` raises, and `skip` calls `report` with the line that names the rows left out.
    """
    try:
        problems = find_problems(split.rows, task, tokenizer, training)
    except UserError as error:  # about the labels of all rows
        raise UserError(f"{split.source}: {error}") from error
    if not problems:
        return split
    bad = {problem.row for problem in problems}
    if errors == "strict" or len(bad) == len(split.rows):
        refuse_rows(split.source, problems, len(split.rows), split.unit, place=split.place)
    report(f"{_report(split.source, problems, len(split.rows), split.unit, split.place)}; left out")
    return split.select([row for row in range(len(split.rows)) if row not in bad])._replace(left_out=len(bad))


def find_problems(rows: Dataset, task: Task, tokenizer: PreTrainedTokenizerBase, training: bool) -> list[Problem]:
    """The rows that cannot be used, with the reasons; for `training` see `usable_rows`."""
    problems = task.check_rows(rows, training)
    bad = {problem.row for problem in problems}
    good = [row for row in range(len(rows)) if row not in bad]
    too_long = task.check_lengths(rows.select(good), tokenizer) if good else []
    return [*problems, *(problem._replace(row=good[problem.row]) for problem in too_long)]


def refuse_rows(
    source: str,
    problems: Sequence[Problem],
    rows: int | None,
    unit: str = "row",
    remedy: str = "leave them out by --errors skip",
    place: Callable[[Problem], object] = lambda problem: problem.row + 1,
) -> NoReturn:
    """Raises a UserError that names the first problems and the remedy.

    Args:
        rows: their number; None if it is not known.
        unit: what the rows are, and what `place` counts.
    """
    all_bad = len({problem.row for problem in problems}) == rows
    remedy = "are file and columns right?" if all_bad else f"correct them, or {remedy}"
    raise UserError(f"{_report(source, problems, rows, unit, place)}; {remedy}")


def _report(
    source: str, problems: Sequence[Problem], rows: int | None, unit: str, place: Callable[[Problem], object]
) -> str:
    """The number of bad rows, then each message once with its rows."""
    numbers_of = {}
    for problem in problems:
        numbers_of.setdefault(problem.message, {})[place(problem)] = None  # a row may have one twice
    listed = []
    for message, numbers in itertools.islice(numbers_of.items(), _SHOWN):
        more = f" and {len(numbers) - _SHOWN:,} more" if len(numbers) > _SHOWN else ""
        shown = ", ".join(map(str, itertools.islice(numbers, _SHOWN)))
        listed.append(f"{unit}{'s' * (len(numbers) > 1)} {shown}{more}: {message}")
    listed += ["…"] if len(numbers_of) > _SHOWN else []
    of = "" if rows is None else f" of {rows:,}"
    bad = len({problem.row for problem in problems})
    whole = "sentence" if any(problem.word is not None for problem in problems) else unit
    return f"{source}: {bad:,}{of} {whole}s cannot be used: {'; '.join(listed)}"


def duplicate_rows(splits: Mapping[str, Split], task: Task) -> list[str]:
    """A warning for each two splits that share inputs, with the places of the rows."""
    keys = {name: [*zip(row_digests(split.rows, task), split.numbers, strict=True)] for name, split in splits.items()}
    lines = []
    for one, other in itertools.combinations(splits, 2):
        rows_of = dict(reversed(keys[one]))
        shared = [(rows_of[key], row) for key, row in keys[other] if key in rows_of]
        if shared:
            units = splits[one].unit, splits[other].unit
            shown = [f"{other} {units[1]} {row + 1} is {one} {units[0]} {twin + 1}" for twin, row in shared[:_SHOWN]]
            shown += ["…"] if len(shared) > _SHOWN else []
            lines.append(
                f"rows of {other} ({splits[other].source}) that are also in {one} ({splits[one].source}): "
                f"{len(shared):,} of {len(keys[other]):,} ({', '.join(shown)})"
            )
    return lines


def row_digests(rows: Dataset, task: Task, columns: Collection[str] | None = None) -> list[int]:
    """A number of 64 bits for the texts of each row, without regard to case, spaces and the form of accents.

    Args:
        columns: the canonical names to read (default: all inputs).
    """
    return [hash_of("\0".join(map(_plain, texts))) for texts in input_texts(rows, task, columns)]


def input_texts(rows: Dataset, task: Task, names: Collection[str] | None = None) -> Iterator[tuple[str, ...]]:
    """The inputs of each row as texts, or those in `names`; the words of a list are joined by spaces."""
    columns = [rows[name][:] for name in task.inputs if name in rows.column_names and name in (names or task.inputs)]
    for values in zip(*columns, strict=True):
        yield tuple(" ".join(map(str, value)) if isinstance(value, list) else str(value) for value in values)


def _plain(text: str) -> str:
    return " ".join(unicodedata.normalize("NFC", unicodedata.normalize("NFC", text).casefold()).split())


def hash_of(text: str) -> int:
    """A number below 2 ** 64."""
    return int.from_bytes(hashlib.blake2b(text.encode(errors="surrogatepass"), digest_size=8).digest(), "little")
