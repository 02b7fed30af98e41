"""Several labels in one table cell: lists as pandas, datasets and JSON write them, separators, one-hot columns."""

import ast
import contextlib
import functools
import re
from collections.abc import Iterable, Sequence
from typing import Any

from mybert.common.json_io import parse_json
from mybert.finetuning.data.labels import is_missing, number

_LIST = re.compile(r"""\[.*\]|\(['"].*\)|\{['"].*\}|set\(\)""", re.DOTALL)
_ITEM = re.compile(r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|[^\s,'"\[\](){}]+""")
_TRUTH = {"true": True, "false": False, "1": True, "0": False}


def looks_like_list(label: Any) -> bool:
    """Whether a text is in brackets, as pandas writes lists, tuples and sets: `['grain', 'wheat']`."""
    return isinstance(label, str) and _LIST.fullmatch(label) is not None


def expand_label(label: Any, separator: str | None) -> Any:
    """The list of labels that a cell spells; the cell as it is if it spells none, or a list that cannot be read.

    Args:
        separator: separates labels in texts that are no lists, such as `;`; an empty cell has no label then.
    """
    if looks_like_list(label):
        found = _parse_list(label)
        return label if found is None else list(found)
    if separator is not None and isinstance(label, str):
        return [name for part in label.split(separator) if (name := part.strip())]
    if separator is not None and not isinstance(label, list) and not is_missing(label):
        return [label]
    return label


@functools.lru_cache(1 << 16)
def _parse_list(text: str) -> tuple | None:
    """The items of a JSON array, of a Python list, tuple or set, or of an array of texts as numpy prints it."""
    if text == "set()":
        return ()
    with contextlib.suppress(ValueError):
        if isinstance(found := parse_json(text), list):
            return tuple(found)
    if _ITEM.sub("", text[1:-1]).strip(" ,\r\n"):
        return None
    try:
        return tuple(map(ast.literal_eval, _ITEM.findall(text[1:-1])))
    except (ValueError, SyntaxError):
        return None


def labels_of_columns(columns: dict[str, Iterable[Any]]) -> list[list[str] | dict]:
    """For each row of one-hot columns the names of those that hold 1; or {name: value} of values other than 0 and 1.

    Args:
        columns: values by column name.
    """
    found = []
    for values in zip(*columns.values(), strict=True):
        flags = {name: _flag(value) for name, value in zip(columns, values, strict=True)}
        bad = {name: value for name, value in zip(columns, values, strict=True) if flags[name] is None}
        found.append(bad or [name for name, flag in flags.items() if flag])
    return found


def _flag(value: Any) -> bool | None:
    if isinstance(value, bool):
        return value
    value_as_number = number(value)
    return {0: False, 1: True}.get(value_as_number) if value_as_number is not None else _TRUTH.get(str(value).lower())


def is_one_hot(labels: Sequence[list]) -> bool:
    """Whether lists of labels are vectors of 0 and 1, which name no label."""
    lengths = {len(row) for row in labels}
    if len(lengths) != 1 or not all({*map(number, row)} <= {0, 1} for row in labels):
        return False
    return any(len(set(row)) < len(row) for row in labels)
