"""Settings from the arguments of Python calls."""

import dataclasses
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any, TypeVar

from mybert.common.errors import UserError, short
from mybert.common.quantities import Duration, Quantity
from mybert.settings.options import Option, arguments_class, options_of, options_without_import, unknown_name

Settings = TypeVar("Settings")
Check = Callable[[Sequence[Any]], object]
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
    if option.field.metadata.get("pairs") and isinstance(value, Mapping):
        return [f"{key}={item}" for key, item in value.items()]
    kinds = option.kinds
    if kinds & {Duration, Quantity}:  # the settings convert the text
        kinds = frozenset({str, float})
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
            return [_one(item, frozenset({option.convert})) for item in value]
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
    items = list(texts)
    for number, text in enumerate(items):
        if not isinstance(text, str):
            raise UserError(f"text {number}: expected a string, found {short(text)}")
    return items


def _one(value: Any, kinds: frozenset[Any]) -> Any:
    """A single value. Raises a TypeError if it has none of the types `kinds`; `True` is no number."""
    value = os.fspath(value) if isinstance(value, os.PathLike) else value
    value = value.tolist() if hasattr(value, "tolist") else value
    if float in kinds and type(value) in (int, float):
        return float(value)
    if (type(value) is bool and bool not in kinds) or not isinstance(value, tuple(kinds - {list, float})):
        raise TypeError
    return value


def _expected(option: Option, kinds: frozenset[Any]) -> str:
    """What the message expects, such as `a text, a list of those or None`."""
    names = [
        " or ".join(option.choices) if kind is str and option.choices else name
        for kind, name in _NAMES.items()
        if kind in kinds
    ]
    names += ["a list of those"] if list in kinds else []
    return " or ".join([*names, *(["None"] if option.optional else [])])


def values_of_file(path: str, options: Mapping[str, Option]) -> dict[str, Any]:
    """The settings in a YAML or JSON file; see `read_settings_file`."""
    from mybert.settings.files import read_settings_file  # here, since importing yaml takes a tenth of `--help`

    return read_settings_file(path, options)


def settings_of(kind: type[Settings], model: object, options: Mapping[str, Any]) -> Settings:
    """`model`, if it is of the settings class `kind`; else an instance for the name of a model and other options."""
    return model if isinstance(model, kind) else make_settings([kind], (model,), options)[0]


def make_settings(
    settings: Sequence[type], positional: Sequence[Any], keywords: Mapping[str, Any], check: Check = lambda made: None
) -> tuple[Any, ...]:
    """Creates settings from the arguments of a Python call: positional options in order, others by keyword.

    The keyword `config` names a settings file; other arguments override it. `check` is as for `parse_settings`.

    Raises:
        UserError: an argument is unknown, missing, or of a wrong type, or the settings refuse its value.
    """
    options = options_without_import(settings)
    names = [name for name, option in options.items() if option.positional]
    keywords = dict(keywords)
    file = keywords.pop("config", None) if "config" not in options else None
    if not isinstance(file, str | os.PathLike | None):
        raise UserError(f"config: expected a file name, found {short(file)}")
    values = {} if file is None else values_of_file(os.fspath(file), options)
    for name, value in [*zip(names, positional, strict=False), *keywords.items()]:
        if name not in options:
            raise UserError(unknown_name("argument", name, list(options)))
        values[name] = python_value(value, options[name])
    if missing := [name for name, option in options.items() if option.required and name not in values]:
        raise UserError(f"missing arguments: {', '.join(missing)}")
    return instances(settings, values, check)


def instances(settings: Iterable[Any], values: Mapping[str, Any], check: Check) -> tuple[Any, ...]:
    """Creates each settings class from its values; the attribute `given` has the names of the given options."""
    made: list[Any] = []
    for kind in sorted(settings, key=lambda kind: hasattr(kind, "arguments_class")):
        if hasattr(kind, "arguments_class"):
            options = options_without_import([kind])
            own = values.keys() - options_of(other for other in settings if other is not kind).keys()  # --label-names
            given = {name: values[name] if name in own else option.default for name, option in options.items()}
            kind.check_values(SimpleNamespace(**given))
            check(made)
        kind = arguments_class(kind)
        try:
            names = [field.name for field in dataclasses.fields(kind) if field.init and field.name in values]
            part = {name: values[name] for name in names}
            instance = kind(**part)
        except UserError:
            raise
        except (ValueError, ImportError) as error:  # TrainingArguments rejects a value
            raise UserError(str(error)) from error
        instance.given = frozenset(part)  # what the user chose, also where it equals the default
        made.append(instance)
    if not any(hasattr(kind, "arguments_class") for kind in settings):
        check(made)
    return tuple(made)
