"""YAML and JSON files of `--config` and `--save-config`."""

import argparse
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import MISSING
from pathlib import Path
from typing import Any

import yaml

from mybert.common.errors import UserError, cause, did_you_mean, short
from mybert.common.json_io import parse_json
from mybert.settings.options import Option, unknown_name

_EXPONENT = re.compile(r"[-+]?([0-9]+\.?[0-9]*|\.[0-9]+)[eE][-+]?[0-9]+$")


class _Loader(yaml.SafeLoader):
    """YAML whose numbers are those of Python: YAML itself reads 1e-5 as text, 010 as 8 and 1:30 as 90."""

    def whole_number(self, node: yaml.ScalarNode) -> int | str:
        try:
            return int(node.value)
        except ValueError:
            return node.value


_Loader.add_constructor("tag:yaml.org,2002:int", _Loader.whole_number)
_Loader.add_implicit_resolver("tag:yaml.org,2002:float", _EXPONENT, list("+-.0123456789"))


def read_settings_file(path: str, options: Mapping[str, Option]) -> dict[str, Any]:
    """The settings of a YAML file, or of a JSON file if its name ends with .json.

    Raises:
        UserError: the file cannot be read, or holds an unknown name, a name twice, or a value of a wrong type. The
            message names the line.
    """
    values: dict[str, Any] = {}
    try:
        for place, key, value in _entries(path):
            name = key.replace("-", "_")
            if name not in options:
                raise UserError(f"{place}: {unknown_name('setting', name, list(options))}")
            if name in values:
                raise UserError(f"{place}: {name} is given twice")
            values[name] = _checked(value, options[name], place)
    except UserError:
        raise
    except FileNotFoundError as error:
        raise UserError(f"--config {path} does not exist{did_you_mean(path)}") from error
    except IsADirectoryError as error:
        raise UserError(f"--config {path}: a folder; name a file of settings in YAML or JSON") from error
    except UnicodeDecodeError as error:
        raise UserError(f"--config {path}: not UTF-8; save the file as UTF-8") from error
    except (OSError, ValueError, RecursionError, yaml.YAMLError) as error:
        raise UserError(f"--config {path}: {cause(error)}") from error
    return {name: value for name, value in values.items() if value is not None}


def _entries(path: str) -> Iterator[tuple[str, str, Any]]:
    """Place, key and value of each entry of the mapping in a file; an empty YAML file has none."""
    text = Path(path).read_text(encoding="utf-8-sig")
    if path.lower().endswith(".json"):
        content = parse_json(text, unique=True)
        if not isinstance(content, dict):
            raise UserError(f"--config {path}: expected an object of names and values, found {short(content)}")
        yield from ((path, key, value) for key, value in content.items())
        return
    loader = _Loader(text)
    node = loader.get_single_node()
    if node is not None and not isinstance(node, yaml.MappingNode):
        kind = type(loader.construct_document(node)).__name__
        raise UserError(f"--config {path}: expected `name: value` lines, found {kind}")
    for key, value in node.value if node else ():
        place = f"{path}:{key.start_mark.line + 1}"
        yield place, str(loader.construct_object(key, deep=True)), _value(loader, value)


def _value(loader: yaml.SafeLoader, node: yaml.Node) -> Any:
    """A value of a YAML file. A number stays text, which its option converts as on the command line."""
    if isinstance(node, yaml.SequenceNode):
        return [_value(loader, item) for item in node.value]
    is_number = node.tag in ("tag:yaml.org,2002:int", "tag:yaml.org,2002:float")
    return node.value if is_number else loader.construct_object(node, deep=True)


def _checked(value: Any, option: Option, place: str) -> Any:
    """The value of an option; None, which unsets it, if None is its default."""
    if value is None and not option.required and option.field.default is None:
        return None
    kinds: dict[Any, str] = {bool: "true or false", int: "a whole number", float: "a number"}
    expected = " or ".join(option.choices) or kinds.get(option.convert) or "text, in quotes if necessary"
    expected += ", in quotes" if option.choices and isinstance(value, bool) else ""  # YAML reads no as false
    try:
        converted = _converted(value, option)
        if option.choices and not {*(converted if isinstance(converted, list) else [converted])} <= {*option.choices}:
            raise ValueError
    except (ValueError, TypeError, argparse.ArgumentTypeError) as error:
        raise UserError(f"{place}: {option.field.name}: expected {expected}, found {short(value)}") from error
    return converted


def _converted(value: Any, option: Option) -> Any:
    """A value of a file, converted like words of the command line. Booleans, dates and lists are not text."""
    if type(value) in option.kinds & {bool, dict}:
        return value
    is_list = list in option.kinds and (isinstance(value, list) or str not in option.kinds)
    items = value if isinstance(value, list) and is_list else [value]
    if option.convert is bool or any(type(item) not in (str, int, float) for item in items):
        raise TypeError
    converted = [option.convert(str(item)) for item in items]
    return converted if is_list else converted[0]


def write_settings_file(
    path: str, values: Mapping[str, Any], options: Mapping[str, Option], with_defaults: bool
) -> None:
    """Writes given settings, and our defaults unless they are chosen during the run; JSON if the name ends so."""
    content = {name: option.default for name, option in options.items() if with_defaults and not option.inherited}
    content = {name: value for name, value in content.items() if value not in (None, "", [], MISSING)}
    content = json.loads(json.dumps({**content, **values}))
    if not path.lower().endswith((".yaml", ".yml", ".json")):  # a typing error must not replace a user's text
        raise UserError(f"--save-config: expected a file name with .yaml, .yml or .json, found {short(path)}")
    is_json = path.lower().endswith(".json")
    text = json.dumps(content, indent=2) + "\n" if is_json else yaml.safe_dump(content, sort_keys=False)
    try:
        Path(path).write_text(text, encoding="utf-8", newline="\n")
    except OSError as error:
        raise UserError(f"--save-config {path}: {cause(error)}") from error
