"""Read label columns: lists in the formats of pandas, datasets and JSON, separators, one-hot columns, new names."""

import ast
import contextlib
import functools
import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from datasets import Dataset

from mybert.common.errors import short, short_list
from mybert.common.json_io import parse_json
from mybert.rows.labels import (
    MULTI,
    REGRESSION,
    SINGLE,
    check_label,
    differ,
    is_missing,
    label_name,
    number,
    with_point,
)
from mybert.rows.tables import join_columns

NOT_A_LIST = "the label {} looks like a list and cannot be read as one"
_LARGEST = float(np.finfo(np.float32).max)
_NO_LIST_AS_TRAINED = "not a list of labels, as training rows have; for one label a text, add --problem single-label"

_LIST = re.compile(r"""\[.*\]|\(['"].*\)|\{['"].*\}|(?:(?:frozen)?set)?\(\)""", re.DOTALL)
_QUOTED = r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*\""""
_ITEM = re.compile(rf"""{_QUOTED}|[^\s,'"\[\](){{}}]+""")
_ARRAY = re.compile(
    r"\b(?:(?:np|numpy|torch)\.)?(?:array|frozenset|tensor|deque|Index)\(([\[{].*?[\]}])(?:,\s*\w+=[^),]*)*\)",
    re.DOTALL,
)
_SCALAR = re.compile(
    rf"""({_QUOTED})|\b(?:np|numpy)\.(True|False)_|\b(?:(?:np|numpy)\.\w+|Decimal)\(({_QUOTED}|[^()'"]*)\)"""
)
_TRUTH = {"true": True, "false": False, "1": True, "0": False}


def looks_like_list(label: Any) -> bool:
    """Whether a text is in brackets, as pandas writes lists, tuples and sets: `['grain', 'wheat']`."""
    return isinstance(label, str) and _LIST.fullmatch(_unwrapped(label)) is not None


def _unwrapped(text: str) -> str:
    """The text without the names of numpy's and other types around values: `['a']` of `[np.str_('a')]`."""
    if "(" not in text and "np." not in text:
        return text
    return _ARRAY.sub(r"\1", _SCALAR.sub(lambda match: match[1] or match[2] or match[3], text))


def expand_label(label: Any, separator: str | None) -> Any:
    """The list of labels in a cell; the cell itself if it contains no list or an invalid one.

    `separator` separates labels in texts that are no lists, such as `;`; an empty cell has no label then.
    """
    if looks_like_list(label):
        items = _parse_list(label)
        return label if items is None else list(items)
    if separator is not None and isinstance(label, str):
        return [name for part in label.split(separator) if (name := part.strip())]
    if separator is not None and not isinstance(label, list) and not is_missing(label):
        return [label]
    return label


def of_one_kind(labels: Sequence[Any], problem: str | None) -> list[Any]:
    """Names and lists of names, as tools for labelling mix them, in the form of a `config.problem_type`: of one label,
    lists of at most one name are names; of several, names are lists.
    """
    if problem == SINGLE:
        few = [isinstance(label, list) and len(label) < 2 for label in labels]
        return [next(iter(label), None) if is_few else label for label, is_few in zip(labels, few, strict=True)]
    if problem == MULTI:
        others = [isinstance(one, list | dict) or is_missing(one) or looks_like_list(one) for one in labels]
        return [label if is_other else [label] for label, is_other in zip(labels, others, strict=True)]
    return list(labels)


@functools.lru_cache(1 << 16)
def _parse_list(text: str) -> tuple[Any, ...] | None:
    """The items of a JSON array, of a Python list, tuple or set, or of an array of texts as numpy prints it."""
    text = _unwrapped(text)
    if text.endswith("()"):
        return ()
    with contextlib.suppress(ValueError):
        if isinstance(parsed := parse_json(text), list):
            return tuple(parsed)
    if _ITEM.sub("", text[1:-1]).strip(" ,\r\n"):
        return None
    try:
        return tuple(map(ast.literal_eval, _ITEM.findall(text[1:-1])))
    except (ValueError, SyntaxError):
        return None


def of_cell(text: str) -> Any:
    """The value of a cell of a table, in JSON or as pandas writes it; an invalid one as it is."""
    for written in (text, _unwrapped(text)):
        for parse in (parse_json, ast.literal_eval):
            with contextlib.suppress(ValueError, SyntaxError, RecursionError, MemoryError):
                return parse(written)
    return text


def join_one_hot(dataset: Dataset, given: str) -> Dataset:
    """Replaces the columns of `--columns label=a,b,c`, if all are there, by one column named `a,b,c`.

    Its values are the names of the columns that hold 1, or {name: value} of values other than 0 and 1.
    """

    def labels(row: Mapping[str, Any]) -> list[str] | dict[str, Any]:
        flags = {name: _TRUTH.get(label_name(value).strip().lower()) for name, value in row.items()}
        return {name: row[name] for name in row if flags[name] is None} or [name for name in row if flags[name]]

    return join_columns(dataset, given, labels)


def is_one_hot(labels: Sequence[list[Any]]) -> bool:
    """Whether lists of labels are vectors of truth values, of 0 and 1, or of shares; they name no label."""
    read = [float(value) if isinstance(value, bool) else number(value) for row in labels for value in row]
    values = [value for value in read if value is not None]
    if not values or len(values) < len(read):
        return False
    if set(values) <= {0, 1}:
        lengths, truths = {len(row) for row in labels}, any(isinstance(value, bool) for row in labels for value in row)
        return lengths != {1} and (len(lengths) == 1 or truths)
    return not all(map(float.is_integer, values))


def rename_label(label: Any, names: Mapping[str, str]) -> Any:
    """The name of a label, or of each label of a list, in `--label-names`; the label itself if it has none."""
    if isinstance(label, list):
        return [rename_label(one, names) for one in label]
    return names.get(label_name(label), label) if names else label


def check_target(label: Any, problem: str, known: Mapping[str, int] | None) -> str | None:
    """The reason why a target cannot be used for a `config.problem_type`, or None; see `check_label`."""
    if is_missing(label):
        return "the label is missing"
    if differ(label):
        return f"its {len(label)} annotations differ ({short_list([short(one) for one in label])}); keep one"
    if problem == SINGLE and isinstance(label, list):
        return f"{len(label)} labels, {short(label)}, where one is expected"
    if problem == REGRESSION:
        value = number(label)
        if value is None:
            hint = f" (write {with_point(label)})" if with_point(label) else ""
            return f"the label {short(label)} is not a number{hint}"
        return f"the label {short(label)} is too large for float32" if abs(value) > _LARGEST else None
    if problem == MULTI:
        if isinstance(label, dict):
            return "expected 0 or 1 in the label column " + ", ".join(f"{k!r}, found {v!r}" for k, v in label.items())
        if looks_like_list(label):
            return NOT_A_LIST.format(short(label))
        if not isinstance(label, list):
            return f"the labels {short(label)} are not a list" if known is None else _NO_LIST_AS_TRAINED
        return next(filter(None, (check_label(one, known) for one in label)), None)
    return check_label(label, known)
