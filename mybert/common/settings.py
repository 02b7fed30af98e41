"""Settings: declared once in a dataclass, read from the command line and from a YAML file."""

import argparse
import copy
import dataclasses
import datetime
import difflib
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml
from transformers import HfArgumentParser

from mybert.common.error_messages import cause, short
from mybert.common.errors import UserError
from mybert.common.help_text import PlainHelp, inherited_fields, short_usage


def setting(
    default: Any = dataclasses.MISSING,
    help: str = "",
    *,
    default_factory: Any = dataclasses.MISSING,
    positional: bool = False,
    negation: str | None = None,
    old_name: str | None = None,
) -> Any:
    """A dataclass field that is also a command-line option.

    Args:
        default, default_factory: as in `dataclasses.field`; with neither, the option is required.
        help: what it is, its unit and range; the default is added by the parser.
        positional: the option is given without a flag: one value for a `str`, one or more for a list.
        negation: for a `bool`, another flag that switches it off (`uncased` has `--cased`).
        old_name: the name before a renaming; accepted with a notice as a flag and as a key of `--config`.
    """
    metadata = {"help": help, "positional": positional, "negation": negation, "old_name": old_name}
    return dataclasses.field(default=default, default_factory=default_factory, metadata=metadata)


ERRORS = ("strict", "skip")
"""What to do with rows and documents that cannot be used: stop at them, or leave them out and count them."""

DTYPES = ("float32", "bfloat16")
"""What a model may compute in where it is not trained."""


def check(settings: Any, name: str, good: bool, expected: str) -> None:
    """
    Raises:
        UserError: the setting `name` is not `good`.
    """
    if not good:
        raise UserError(f"--{name.replace('_', '-')}: expected {expected}, found {short(getattr(settings, name))}")


def check_choice(settings: Any, name: str, choices: Iterable[str]) -> None:
    """Refuses a value that is none of `choices`."""
    check(settings, name, _is_unset(settings, name) or getattr(settings, name) in choices, " or ".join(choices))


def check_least(settings: Any, name: str, least: int) -> None:
    """Refuses a number below `least`."""
    value = getattr(settings, name)
    check(settings, name, _is_unset(settings, name) or (value is not None and value >= least), f"{least} or more")


def _is_unset(settings: Any, name: str) -> bool:
    return getattr(settings, name) is None and settings.__dataclass_fields__[name].default is None


def check_resume(settings: Any) -> None:
    """Refuses `resume` and `overwrite` together."""
    if settings.resume and settings.overwrite:
        raise UserError("--resume and --overwrite exclude each other: one keeps the run, one replaces it")


_MANY = ("*", "+")  # `nargs` of settings that are lists
_ELSEWHERE = {  # what others call a flag → what to write, where there is such a flag
    "--bf16": "--dtype bfloat16",
    "--batch-size": "--per-device-train-batch-size",
    "--epochs": "--num-train-epochs",
    "--lr": "--learning-rate",
}


class _SettingsParser(HfArgumentParser):
    """HfArgumentParser with positionals, with switches that never swallow the next word, and with short errors."""

    @staticmethod
    def _parse_dataclass_field(parser: argparse.ArgumentParser, field: dataclasses.Field) -> None:
        if "positional" not in field.metadata:  # a foreign dataclass: TrainingArguments
            return HfArgumentParser._parse_dataclass_field(parser, field)
        help, negation = field.metadata["help"], field.metadata["negation"]
        if field.metadata["positional"]:
            many = None if field.type is str else "+"
            parser.add_argument(field.name, nargs=many, metavar=field.name.upper().removesuffix("S"), help=help)
        elif field.type is bool:
            flags = dict.fromkeys([f"--{field.name}", f"--{field.name.replace('_', '-')}"])
            parser.add_argument(*flags, action=argparse.BooleanOptionalAction, default=field.default, help=help)
            if negation:
                parser.add_argument(f"--{negation}", action="store_false", dest=field.name, help=argparse.SUPPRESS)
        else:
            plain = copy.copy(field)
            plain.metadata = {"help": help}
            HfArgumentParser._parse_dataclass_field(parser, plain)

    def error(self, message: str):
        raise UserError(f"{message} (see `{self.prog} --help`)")


def parse_settings(types: Sequence[type], argv: Sequence[str], prog: str, description: str = "") -> tuple:
    """Reads dataclasses from `argv`, with `--config FILE.yaml` underneath.

    What stands on the command line wins over the file, the file over the defaults. Flags may be spelt with `_` or `-`.

    Returns:
        One instance for each of `types`, in order.

    Raises:
        UserError: an unknown flag or key (with its nearest match), a missing or badly typed value, a file that cannot
            be read, or that the command would remove.
    """
    parser = _SettingsParser(types, prog=prog, description=description, allow_abbrev=False, formatter_class=PlainHelp)
    renamed = _renamed_settings(types)
    argv = [_current_flag(word, renamed) for word in argv]
    parser.add_argument("--config", metavar="FILE.yaml", help="Settings from a file; the command line wins over it.")
    parser.usage = short_usage(parser)
    if inherited := set().union(*map(inherited_fields, types)):
        parser.epilog = "Every field of transformers.TrainingArguments is a flag too; --help-all lists them."
        parser.add_argument("--help-all", action="help", help="Show transformers' settings too, and exit.")
        for action in parser._actions if "--help-all" not in argv else []:
            action.help = argparse.SUPPRESS if action.dest in inherited else action.help
    for group in parser._action_groups:  # what must be given stands first in the help
        group._group_actions.sort(key=lambda action: not action.required)
    file = _use_file_as_defaults(parser, argv, renamed)
    try:
        *settings, rest = parser.parse_args_into_dataclasses(
            list(argv), return_remaining_strings=True, look_for_args_file=False
        )
    except UserError:
        raise
    except (ValueError, ImportError) as error:  # TrainingArguments found a value it cannot use
        raise UserError(str(error)) from error
    if rest:
        word = next((r for r in rest if r.startswith("-")), rest[0])
        flag = word.split("=")[0]
        flagless = [f"--{action.dest.removesuffix('s')}" for action in parser._actions if not action.option_strings]
        if flag.removesuffix("s") in flagless:
            raise UserError(f"{flag}: its value stands there without the flag: {parser.usage}")
        known = [flag for action in parser._actions for flag in action.option_strings if "help" not in flag]
        raise UserError(_unknown("argument", word, known))
    for read in settings if file else ():
        if getattr(read, "overwrite", False) and Path(file).resolve().is_relative_to(Path(read.output).resolve()):
            raise UserError(f"--config {file} lies in the output {read.output}, which --overwrite replaces; move it")
    return tuple(settings[: len(types)])


def _renamed_settings(types: Sequence[type]) -> dict[str, str]:
    """Old name → name of every renamed setting."""
    fields = [field for settings in types for field in dataclasses.fields(settings)]
    return {field.metadata["old_name"]: field.name for field in fields if field.metadata.get("old_name")}


def _current_name(name: str, renamed: Mapping[str, str], prefix: str = "") -> str:
    """The name of a setting that may be given by its old name, which prints a notice."""
    if name not in renamed:
        return name
    shown = [prefix + (word.replace("_", "-") if prefix else word) for word in (name, renamed[name])]
    print(f"note: {shown[0]} is now {shown[1]}; the old name will be removed in the next version", file=sys.stderr)
    return renamed[name]


def _current_flag(word: str, renamed: Mapping[str, str]) -> str:
    """A word of the command line, with the current name of its flag."""
    flag, equals, value = word.partition("=")
    prefix = next((prefix for prefix in ("--no-", "--no_", "--") if flag.startswith(prefix)), None)
    if prefix is None or (name := flag.removeprefix(prefix).replace("-", "_")) not in renamed:
        return word
    return prefix + _current_name(name, renamed, prefix).replace("_", "-") + equals + value


def _use_file_as_defaults(
    parser: argparse.ArgumentParser, argv: Sequence[str], renamed: Mapping[str, str]
) -> str | None:
    """
    Returns:
        The file, if one is named.
    """
    finder = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    finder.add_argument("--config")
    path = finder.parse_known_args(list(argv))[0].config
    if path is None:
        return None
    try:
        values = yaml.safe_load(Path(path).read_text(encoding="utf-8")) or {}
    except (OSError, ValueError, RecursionError, yaml.YAMLError) as error:
        raise UserError(f"--config {path}: {cause(error)}") from error
    if not isinstance(values, dict):
        raise UserError(f"--config {path}: expected `name: value` lines, found {type(values).__name__}")
    actions = {action.dest: action for action in parser._actions if action.dest not in ("help", "help_all", "config")}
    ours = {
        field.name for t in parser.dataclass_types for field in dataclasses.fields(t) if "positional" in field.metadata
    }
    for key, value in values.items():
        name = _current_name(str(key).replace("-", "_"), renamed)
        if name not in actions:
            raise UserError(f"{path}: {_unknown('setting', name, list(actions))}")
        action = actions[name]
        if expected := _mismatch(value, action, name in ours):
            raise UserError(
                f"{path}: {name}: expected {expected}, found {'nothing' if value is None else short(value)}"
            )
        if name in ours and action.nargs in _MANY and value is not None:
            value = _converted(path, name, value if isinstance(value, list) else [value], action)
        elif isinstance(value, (int, float)) and not isinstance(value, bool) and action.type is not None:
            value = str(value)  # argparse then converts and checks it like a word of the command line
        parser.set_defaults(**{name: value})
        action.required = False
        if not action.option_strings:
            action.nargs = "?" if action.nargs is None else "*"
    return path


def _mismatch(value: Any, action: argparse.Action, is_ours: bool) -> str | None:
    """What a setting wants, if a file's value is of a kind that no word of the command line could be."""
    if action.nargs == 0:  # a switch
        return None if isinstance(value, bool) else "true or false"
    if value is None:
        return "a value" if action.required or action.default is not None else None
    if action.type in (int, float) and not action.nargs and isinstance(value, (bool, list, dict)):
        return "a number"
    if is_ours and not action.nargs and isinstance(value, (list, dict)):
        return "one value"
    items = value if isinstance(value, list) and action.nargs in _MANY else [value]
    if is_ours and any(isinstance(item, (list, dict)) for item in items):
        return "plain values"
    if is_ours and any(isinstance(item, (bool, datetime.date)) for item in items):
        return "text, between quotes if need be"
    return None


def _converted(path: str, name: str, words: list, action: argparse.Action) -> list:
    """As argparse converts words, which it does not do to a list of defaults."""
    try:
        return [(action.type or str)(str(word)) for word in words]
    except (ValueError, argparse.ArgumentTypeError) as error:
        raise UserError(f"{path}: {name}: {cause(error)}") from error


def _unknown(what: str, name: str, known: Sequence[str]) -> str:
    spelt = name.split("=")[0]
    if spelt.startswith("-"):
        spelt, known = spelt.replace("_", "-"), [flag for flag in known if "_" not in flag]
    like = _ELSEWHERE.get(spelt, "")
    if like.split(" ")[0] not in known:
        like = next(iter(difflib.get_close_matches(spelt, known, n=1, cutoff=0.6)), "")
    return f"unknown {what} {name!r}" + (f"; did you mean {like!r}?" if like else "")
