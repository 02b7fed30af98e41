"""YAML files of `--config` and `--save-config`."""

import argparse
import json
from collections.abc import Mapping
from dataclasses import MISSING
from pathlib import Path
from typing import Any

import yaml

from mybert.common.error_messages import cause, short
from mybert.common.errors import UserError
from mybert.common.options import Option, current_name, unknown_name


def read_settings_file(path: str, options: Mapping[str, Option]) -> dict[str, Any]:
    """The settings of a YAML file, by their current names."""
    try:
        content = yaml.safe_load(Path(path).read_text(encoding="utf-8")) or {}
    except (OSError, ValueError, RecursionError, yaml.YAMLError) as error:
        raise UserError(f"--config {path}: {cause(error)}") from error
    if not isinstance(content, dict):
        raise UserError(f"--config {path}: expected `name: value` lines, found {type(content).__name__}")
    values = {}
    for key, value in content.items():
        name = current_name(str(key).replace("-", "_"), options, shown=str(key))
        if name not in options:
            raise UserError(f"{path}: {unknown_name('setting', name, list(options))}")
        if value is None and not options[name].required and options[name].field.default is None:
            continue
        try:
            values[name] = _converted(value, options[name])
        except (ValueError, TypeError, argparse.ArgumentTypeError) as error:
            expected = {bool: "true or false", int: "a number", float: "a number"}.get(options[name].convert)
            expected = expected or "text, in quotes if necessary"
            raise UserError(f"{path}: {name}: expected {expected}, found {short(value)}") from error
    return values


def _converted(value: Any, option: Option) -> Any:
    """A value of a YAML file, converted like words of the command line. Booleans, dates and lists are not text."""
    if type(value) in option.kinds & {bool, dict}:
        return value
    items = value if isinstance(value, list) and list in option.kinds else [value]
    if option.convert is bool or any(type(item) not in (str, int, float) for item in items):
        raise TypeError
    converted = [option.convert(str(item)) for item in items]
    return converted if list in option.kinds else converted[0]


def write_settings_file(path: str, values: Mapping[str, Any], options: Mapping[str, Option]) -> None:
    """Writes given settings and our defaults as YAML."""
    defaults = {name: option.field.default for name, option in options.items() if not option.inherited}
    content = {name: value for name, value in {**defaults, **values}.items() if value not in (None, "", MISSING)}
    try:
        Path(path).write_text(yaml.safe_dump(json.loads(json.dumps(content)), sort_keys=False), encoding="utf-8")
    except OSError as error:
        raise UserError(f"--save-config {path}: {cause(error)}") from error
