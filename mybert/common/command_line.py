"""Command-line parsing: settings dataclasses from flags."""

import argparse
import dataclasses
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from mybert.common.errors import UserError
from mybert.common.help_text import GROUPS, HelpFormatter, epilog, group_of, help_of
from mybert.common.options import Option, current_name, options_of, unknown_name
from mybert.common.settings_file import read_settings_file, write_settings_file


class _Parser(argparse.ArgumentParser):
    def error(self, message: str):
        raise UserError(f"{message} (see `{self.prog} --help`)")


def parse_settings(
    settings: Sequence[type], argv: Sequence[str], prog: str, description: str = "", examples: Iterable[str] = ()
) -> tuple:
    """Reads dataclasses from the command line and from the file of `--config FILE.yaml`.

    The command line wins over the file, the file over the defaults. Flags may be written with `_` or `-`.

    Returns:
        One instance for each of `settings`, in order.

    Raises:
        UserError: an unknown flag or key (with its nearest match), a missing or badly typed value, a file that cannot
            be read, or that the command would remove.
    """
    options = options_of(settings)
    argv = _normalise(argv, options)
    file = _value_of("--config", argv)
    values = read_settings_file(file, options) if file else {}
    parser = build_parser(options, prog, description, examples, argv=argv, known=values)
    namespace, rest = parser.parse_known_args(argv)
    if rest:
        word = next((word for word in rest if word.startswith("-")), rest[0])
        flags = [flag for action in parser._actions for flag in action.option_strings if "help" not in flag]
        raise UserError(unknown_name("argument", word, [*flags, *(option.flag for option in options.values())]))
    given = vars(namespace)
    target = given.pop("save_config", None)
    given.pop("config", None)
    values |= {name: _unpacked(value, options[name]) for name, value in given.items()}
    read = _instances(settings, values)
    for stage in read if file else ():
        if getattr(stage, "overwrite", False) and Path(file).resolve().is_relative_to(Path(stage.output).resolve()):
            raise UserError(f"--config {file} lies in the output {stage.output}, which --overwrite replaces; move it")
    if target:
        write_settings_file(target, values, options)
    return read


def make_settings(settings: Sequence[type], positional: Sequence[Any], keywords: Mapping[str, Any]) -> tuple:
    """Makes dataclasses from the arguments of a Python call.

    Args:
        positional: values of the positional options, in order.
        keywords: values by name; paths become texts.

    Raises:
        UserError: a name is unknown (with its nearest match) or missing, or a value is not allowed.
    """
    options = options_of(settings)
    names = [name for name, option in options.items() if option.positional]
    values = dict(zip(names, positional, strict=False))
    for name, value in keywords.items():
        current = current_name(name, options, shown=name)
        if current not in options:
            raise UserError(unknown_name("argument", name, list(options)))
        values[current] = value
    if missing := [name for name, option in options.items() if option.required and name not in values]:
        raise UserError(f"missing arguments: {', '.join(missing)}")
    return _instances(settings, {name: _as_setting(name, value) for name, value in values.items()})


def _as_setting(name: str, value: Any) -> Any:
    """Paths as texts, and dictionaries as on the command line: `{"text": "body"}` is `text=body`."""
    if isinstance(value, list | tuple):
        return [_as_setting(name, item) for item in value]
    if name in ("columns", "label_names") and isinstance(value, Mapping):
        return [f"{key}={item}" for key, item in value.items()]
    if hasattr(value, "column_names") or hasattr(value, "to_parquet"):
        raise UserError(
            f"{name}: expected the name of a file, found a {type(value).__name__}; write it to a file first"
        )
    return os.fspath(value) if isinstance(value, os.PathLike) else value


def _instances(settings: Iterable[type], values: Mapping[str, Any]) -> tuple:
    """Each dataclass with its part of the values."""
    parts = [
        {field.name: values[field.name] for field in dataclasses.fields(kind) if field.init and field.name in values}
        for kind in settings
    ]
    try:
        return tuple(kind(**part) for kind, part in zip(settings, parts, strict=True))
    except UserError:
        raise
    except (ValueError, ImportError) as error:  # TrainingArguments rejects a value
        raise UserError(str(error)) from error


def build_parser(
    options: Mapping[str, Option],
    prog: str,
    description: str = "",
    examples: Iterable[str] = (),
    *,
    argv: Sequence[str] = (),
    known: Iterable[str] = (),
) -> argparse.ArgumentParser:
    """An argument parser without defaults, so that its namespace holds the given values only.

    Args:
        examples: command lines shown at the end of the help.
        argv: the words to be parsed. A positional option becomes a flag if its flag is among them.
        known: names of options that have a value already and are not required.
    """
    required = [option for option in options.values() if option.required]
    usage = [o.metavar + " ..." * (list in o.kinds) if o.positional else f"{o.flag} {o.metavar}" for o in required]
    parser = _Parser(
        prog=prog,
        usage=" ".join([prog, *usage, "[options]"]),
        description=description,
        epilog=epilog(examples),
        allow_abbrev=False,
        add_help=False,
        argument_default=argparse.SUPPRESS,
        formatter_class=HelpFormatter,
    )
    groups = {title: parser.add_argument_group(title) for title in GROUPS}
    flags = {word.partition("=")[0] for word in argv}
    for name, option in options.items():
        help = argparse.SUPPRESS if option.inherited and "--help-all" not in flags else help_of(option.field)
        group = groups[group_of(name, option.required, option.inherited)]
        is_needed = option.required and name not in known
        if option.kinds == {bool}:
            group.add_argument(option.flag, action=argparse.BooleanOptionalAction, help=help)
            if negation := option.field.metadata.get("negation"):
                group.add_argument(f"--{negation}", action="store_false", dest=name, help=argparse.SUPPRESS)
            continue
        shared = {"type": option.convert, "choices": option.choices or None, "help": help}
        shared |= {} if option.choices else {"metavar": option.metavar}
        if option.positional and option.flag not in flags:
            nargs = ("+" if is_needed else "*") if list in option.kinds else (None if is_needed else "?")
            group.add_argument(name, nargs=nargs, **shared)
        else:
            nargs = "+" if list in option.kinds else None
            group.add_argument(option.flag, nargs=nargs, required=is_needed, **shared)
    other = groups["other options"]
    other.add_argument("--config", metavar="FILE.yaml", help="Read settings from a file; flags win over it.")
    other.add_argument("--save-config", metavar="FILE.yaml", help="Write the settings of this command to a file.")
    other.add_argument("-h", "--help", action="help", help="Show this help and exit.")
    has_inherited = any(option.inherited for option in options.values())
    help = "Show every field of transformers.TrainingArguments too, and exit." if has_inherited else argparse.SUPPRESS
    other.add_argument("--help-all", action="help", help=help)
    return parser


def _normalise(argv: Sequence[str], options: Mapping[str, Option]) -> list[str]:
    """Writes flags with hyphens and by their current names, and the values `true` and `false` of a switch as flags."""
    words, normalised = list(argv), []
    while words and words[0] != "--":
        word = words.pop(0)
        flag, equals, value = word.partition("=")
        name = flag.removeprefix("--").replace("-", "_")
        negated = name.startswith("no_") and name not in options
        name = name.removeprefix("no_" if negated else "")
        option = options.get(current_name(name, options, shown=flag)) if flag.startswith("--") else None
        if option is None:
            normalised.append(word)
        elif option.kinds != {bool}:
            normalised.append(option.flag + equals + value)
        else:
            if not equals and words and words[0].lower() in ("true", "false"):
                equals, value = "=", words.pop(0)
            negated ^= value.lower() == "false"
            rest = "" if value.lower() in ("true", "false") else equals + value
            normalised.append(f"--{'no-' if negated else ''}{option.flag[2:]}{rest}")
    return normalised + words


def _value_of(flag: str, argv: Sequence[str]) -> str | None:
    """The value of one flag, before the others are parsed."""
    finder = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    finder.add_argument(flag, dest="value")
    return finder.parse_known_args(argv)[0].value


def _unpacked(value: Any, option: Option) -> Any:
    """One word where both a text and a list are allowed is a text."""
    is_text = {str, list} <= option.kinds and isinstance(value, list) and len(value) == 1
    return value[0] if is_text else value
