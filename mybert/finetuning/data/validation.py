"""Validate labelled rows before training; report problems by file and row."""

import hashlib
import itertools
from collections.abc import Callable, Mapping, Sequence
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
    """The split without rows that cannot be used.

    Args:
        training: whether these rows define the labels; otherwise labels must be in the configuration.
        errors: `strict` raises; `skip` leaves such rows out and reports them.
        report: called with the line that names the rows left out.

    Raises:
        UserError: there are problems and `errors` is strict, or no row is left; the message names the first ones.
    """
    try:
        problems = find_problems(split.rows, task, tokenizer, training)
    except UserError as error:  # about the labels of all rows
        raise UserError(f"{split.source}: {error}") from error
    if not problems:
        return split
    bad = {problem.row for problem in problems}
    in_file = [problem._replace(row=split.numbers[problem.row]) for problem in problems]
    if errors == "strict" or len(bad) == len(split.rows):
        refuse_rows(split.source, in_file, len(split.rows), split.unit)
    report(f"{_report(split.source, in_file, len(split.rows), split.unit)}; left out")
    return split.select([row for row in range(len(split.rows)) if row not in bad])._replace(left_out=len(bad))


def find_problems(rows: Dataset, task: Task, tokenizer: PreTrainedTokenizerBase, training: bool) -> list[Problem]:
    """The rows that cannot be used, with the reasons.

    Args:
        training: see `usable_rows`.
    """
    problems = task.check_rows(rows, training)
    bad = {problem.row for problem in problems}
    good = [row for row in range(len(rows)) if row not in bad]
    too_long = task.check_lengths(rows.select(good), tokenizer) if good else []
    return [*problems, *(Problem(good[row], message) for row, message in too_long)]


def refuse_rows(
    source: str,
    problems: Sequence[Problem],
    rows: int | None,
    unit: str = "row",
    remedy: str = "leave them out by --errors skip",
) -> NoReturn:
    """
    Args:
        rows: number of rows; None if it is not known yet.
        unit: `row` or `line`; what the problems count.
        remedy: the alternative to correcting the rows.

    Raises:
        UserError: always; the message names the first problems.
    """
    all_bad = len({problem.row for problem in problems}) == rows
    remedy = "are file and columns right?" if all_bad else f"correct them, or {remedy}"
    raise UserError(f"{_report(source, problems, rows, unit)}; {remedy}")


def _report(source: str, problems: Sequence[Problem], rows: int | None, unit: str = "row") -> str:
    bad = {problem.row for problem in problems}
    of = "" if rows is None else f" of {rows:,}"
    return f"{source}: {len(bad):,}{of} {unit}s cannot be used: {_listed(problems, unit)}"


def _listed(problems: Sequence[Problem], unit: str) -> str:
    """Each message once, with its rows."""
    rows = {}
    for problem in problems:
        rows.setdefault(problem.message, {})[problem.row + 1] = None  # a row may have one twice
    first = itertools.islice(rows.items(), _SHOWN)
    lines = [f"{_numbered(list(numbers), unit)}: {message}" for message, numbers in first]
    return "; ".join([*lines, "…"] if len(rows) > _SHOWN else lines)


def _numbered(rows: Sequence[int], unit: str) -> str:
    more = f" and {len(rows) - _SHOWN:,} more" if len(rows) > _SHOWN else ""
    return f"{unit}{'s' * (len(rows) > 1)} {', '.join(map(str, rows[:_SHOWN]))}{more}"


def duplicate_rows(splits: Mapping[str, Split], task: Task) -> list[str]:
    """A warning for each two splits that share inputs, with the places of the rows."""
    keys = {name: [*zip(_keys(split.rows, task), split.numbers, strict=True)] for name, split in splits.items()}
    lines = []
    for one, other in itertools.combinations(splits, 2):
        rows_of = dict(reversed(keys[one]))
        shared = [(rows_of[key], row) for key, row in keys[other] if key in rows_of]
        if shared:
            units = splits[one].unit, splits[other].unit
            places = [(f"{units[1]} {row + 1}", f"{units[0]} {twin + 1}") for twin, row in shared[:_SHOWN]]
            shown = ", ".join(f"{other} {copy} is {one} {first}" for copy, first in places)
            more = ", …" if len(shared) > _SHOWN else ""
            number = f"all {len(shared)}" if len(shared) == len(keys[other]) else len(shared)
            lines.append(
                f"{number} rows of {other} ({splits[other].source}) are also in {one} ({splits[one].source}) "
                f"({shown}{more})"
            )
    return lines


def _keys(rows: Dataset, task: Task) -> list[bytes]:
    inputs = [rows[column] for column in task.inputs if column in rows.column_names]
    return [hashlib.blake2b(repr(values).encode(), digest_size=16).digest() for values in zip(*inputs, strict=True)]
