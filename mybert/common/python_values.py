"""Values of settings in Python calls: conversion and checks against the types of the options."""

import os
from collections.abc import Iterable, Mapping
from typing import Any

from mybert.common.error_messages import short
from mybert.common.errors import UserError
from mybert.common.options import Option
from mybert.common.quantities import Duration, Quantity

_NAMES = {str: "a text", bool: "True or False", int: "a whole number", float: "a number", dict: "a dictionary"}


def python_value(value: Any, option: Option) -> Any:
    """The value of an option for an argument of a Python call.

    Paths become texts, whole numbers become floats where these are expected, and numbers and arrays of numpy become
    those of Python. Dictionaries become the form of the command line: `{"text": "body"}` becomes `text=body`.

    Raises:
        UserError: the value has another type than the option. Of the options of TrainingArguments, only numbers and
            switches are checked.
    """
    name = option.field.name
    if hasattr(value, "column_names") or hasattr(value, "to_parquet"):
        raise UserError(
            f"{name}: expected the name of a file, found a {type(value).__name__}; write it to a file first"
        )
    if name in ("columns", "label_names", "losses") and isinstance(value, Mapping):
        return [f"{key}={item}" for key, item in value.items()]
    kinds = option.kinds
    if kinds & {Duration, Quantity}:  # the settings convert the text
        kinds = {str, float}
    if value is None and option.optional:
        return None
    if (option.inherited and str in kinds) or not kinds <= {*_NAMES, list}:
        # TrainingArguments annotates these for its command line: fsdp is str, but takes True
        return os.fspath(value) if isinstance(value, os.PathLike) else value
    try:
        if list not in kinds:
            return _one(value, kinds)
        kinds = kinds | {option.convert}
        if isinstance(value, Iterable) and not isinstance(value, str | bytes | Mapping | os.PathLike):
            return [_one(item, {option.convert}) for item in value]
        one = _one(value, kinds)
        return one if type(one) in option.kinds else [one]
    except (TypeError, OverflowError):
        raise UserError(f"{name}: expected {_expected(option, kinds)}, found {short(value)}") from None


def text_list(texts: Iterable[str]) -> list[str]:
    """The texts as a list. Raises a UserError for one string or a table, whose letters or names of columns
    would be read, and for a text that is no string."""
    if isinstance(texts, str):
        raise UserError("texts: expected a list of texts, found one string; put it in brackets")
    if isinstance(texts, Mapping) or hasattr(texts, "to_parquet"):
        raise UserError(f"texts: expected a list of texts, found a {type(texts).__name__}; name its column of texts")
    found = list(texts)
    for number, text in enumerate(found):
        if not isinstance(text, str):
            raise UserError(f"text {number}: expected a string, found {short(text)}")
    return found


def _one(value: Any, kinds: set[type]) -> Any:
    """A single value. Raises a TypeError if it has none of the types `kinds`; `True` is no number."""
    value = os.fspath(value) if isinstance(value, os.PathLike) else value
    value = value.tolist() if hasattr(value, "tolist") else value
    if float in kinds and type(value) in (int, float):
        return float(value)
    if (type(value) is bool and bool not in kinds) or not isinstance(value, tuple(kinds - {list, float})):
        raise TypeError
    return value


def _expected(option: Option, kinds: set[type]) -> str:
    """What the message expects, such as `a text, a list of those or None`."""
    names = [" or ".join(option.choices) if kind is str and option.choices else name
             for kind, name in _NAMES.items() if kind in kinds]  # fmt: skip
    names += ["a list of those"] if list in kinds else []
    return " or ".join([*names, *(["None"] if option.optional else [])])
