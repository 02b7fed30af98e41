"""Command-line parsing: settings dataclasses from flags."""

import argparse
import dataclasses
import functools
import itertools
import os
import pkgutil
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from mybert.common.data_in_memory import DataInMemory
from mybert.common.error_messages import short, short_list
from mybert.common.errors import UserError
from mybert.common.help_text import GROUPS, group_of, help_of
from mybert.common.options import Option, complete, options_of, options_without_import, unknown_name
from mybert.common.output_folders import refuse_existing, refuse_existing_file
from mybert.common.python_values import python_value
from mybert.common.settings import FILE, FOLDER, FOLDERS
from mybert.common.settings_file import read_settings_file, write_settings_file

Check = Callable[[Sequence[Any]], object]


class _Help(argparse.RawDescriptionHelpFormatter):
    """Keeps flags such as --max-length in one line."""

    def _split_lines(self, text: str, width: int) -> list[str]:
        return textwrap.wrap(" ".join(text.split()), width, break_on_hyphens=False)


class _Parser(argparse.ArgumentParser):
    def error(self, message: str):
        raise UserError(f"{message} (see `{self.prog} --help`)")


def parse_settings(
    settings: Sequence[type],
    argv: Sequence[str],
    prog: str,
    description: str = "",
    examples: Iterable[str] = (),
    check: Check = lambda made: None,
) -> tuple:
    """Reads one instance of each settings class from the command line and the file of `--config FILE`.

    The command line overrides the file, the file overrides the defaults. Flags may be written with `_` or `-`.

    Args:
        check: called with the instances before a class is completed, which imports torch and transformers.
    """
    options = options_of(settings)
    if not _names_in(argv) <= {*options, "help", "save_config"}:
        options = options_without_import(settings)
    argv = _normalise(argv, options)
    finder = _Parser(prog, add_help=False, allow_abbrev=False)
    finder.add_argument("--config")
    file = finder.parse_known_args(argv)[0].config
    values = {} if file is None else read_settings_file(file, options)
    parser = build_parser(options, prog, description, examples, argv=argv, known=values)
    flags = [flag for action in parser._actions for flag in action.option_strings if "help" not in flag]
    words = [w for w in itertools.takewhile(lambda word: word != "--", argv) if w.startswith("-")]
    asks = not {"-h", "--help", "--help-all"}.isdisjoint(words)
    long = [w for w in words if w.startswith("--") and " " not in w.partition("=")[0]]  # `--a b` is a value
    unknown = [] if asks else [w for w in long if w.partition("=")[0] not in flags]
    namespace, rest = (None, unknown) if unknown else parser.parse_known_args(argv)
    if rest:
        word = next((word for word in rest if word.startswith("-")), rest[0])
        lists = [option.metavar for option in options.values() if option.positional and list in option.kinds]
        if lists and not word.startswith("-"):
            before = argv[: argv.index(word)]
            flag = f"{before[-2]} takes one value; " if before[-2:-1] and before[-2].startswith("--") else ""
            raise UserError(
                f"unknown argument {word!r}; {flag}if it is one of {lists[0]}, write them all in one place"
            )
        raise UserError(unknown_name("argument", word, [*flags, *(option.flag for option in options.values())]))
    given = vars(namespace)
    target = given.pop("save_config", None)
    given.pop("config", None)
    for name, value in given.items():  # one word where both a text and a list are allowed is a text
        is_text = {str, list} <= options[name].kinds and isinstance(value, list) and len(value) == 1
        values[name] = value[0] if is_text else value
    read = _instances(settings, values, check)
    for stage in () if file is None else read:
        if getattr(stage, "overwrite", False) and Path(file).resolve().is_relative_to(Path(stage.output).resolve()):
            raise UserError(f"--config {file} lies in the output {stage.output}, which --overwrite replaces; move it")
    if target is not None:  # with a time budget, the run chooses what is not given
        chosen_later = any(getattr(stage, "time_budget", None) for stage in read)
        write_settings_file(target, values, options, with_defaults=not chosen_later)
    return read


def make_settings(
    settings: Sequence[type],
    positional: Sequence[Any],
    keywords: Mapping[str, Any],
    check: Check = lambda made: None,
) -> tuple:
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
    values = {} if file is None else read_settings_file(os.fspath(file), options)
    for name, value in [*zip(names, positional, strict=False), *keywords.items()]:
        if name not in options:
            raise UserError(unknown_name("argument", name, list(options)))
        values[name] = python_value(value, options[name])
    if missing := [name for name, option in options.items() if option.required and name not in values]:
        raise UserError(f"missing arguments: {', '.join(missing)}")
    return _instances(settings, values, check)


def _instances(settings: Iterable[type], values: Mapping[str, Any], check: Check) -> tuple:
    """Creates each settings class from its values; the attribute `given` has the names of the given options."""
    made: list[Any] = []
    for kind in sorted(settings, key=lambda kind: hasattr(kind, "complete")):
        if hasattr(kind, "complete"):
            options = options_without_import([kind])
            own = values.keys() - options_of(other for other in settings if other is not kind).keys()  # --label-names
            given = {name: values[name] if name in own else option.default for name, option in options.items()}
            kind.check_values(SimpleNamespace(**given))
            check(made)
        kind = complete(kind)
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
    if not any(hasattr(kind, "complete") for kind in settings):
        check(made)
    return tuple(made)


def check_places(stages: Sequence[Any]) -> None:
    """Raises a UserError if an input cannot be read, or an output exists or cannot be created.

    Checked before large libraries are imported; names that only the Hub can have, after all others.

    Args:
        stages: instances of settings classes. Their `command` is the name of the stage that writes a folder;
            `changes` tells that the output exists and is changed.
    """
    reads = [
        (name, field.metadata["reads"])
        for stage in stages
        for field in dataclasses.fields(stage)
        if field.metadata.get("reads")
        for name in _names(getattr(stage, field.name))
    ]
    for name, function in sorted(reads, key=lambda read: _rank(read[0])):
        pkgutil.resolve_name(function)(name)
    inputs = [name for name, _ in reads]
    for stage in stages:
        if not any(getattr(stage, name, False) for name in ("dry_run", "resume", "changes")):
            for field in dataclasses.fields(stage):
                _check_output(stage, field, inputs)


def places(stages: Iterable[Any]) -> str:
    """What a command reads and writes, in one line, such as `classifier, reviews.csv → predictions.jsonl`."""
    fields = [(field.metadata, getattr(stage, field.name)) for stage in stages for field in dataclasses.fields(stage)]
    inputs = [name for metadata, value in fields if metadata.get("reads") for name in _names(value)]
    outputs = [value for metadata, value in fields if metadata.get("writes")]
    return " → ".join(filter(None, [short_list(inputs), *(name for name in outputs if name not in (None, "-"))]))


def _rank(name: str) -> int:
    """Rank of a check: 2 for a name that the Hub is asked for."""
    return (
        0 if os.path.exists(name) else 1 if name.startswith((".", "/", "~")) or Path(name).suffix[1:].isalpha() else 2
    )


def _names(value: Any) -> list[str]:
    """The names of inputs that a setting holds; rows in memory have none."""
    values = value if isinstance(value, list | tuple) else [value]
    return [str(name) for name in values if isinstance(name, str) and not isinstance(name, DataInMemory)]


def _check_output(stage: Any, field: dataclasses.Field, inputs: list[str]) -> None:
    kind, path = field.metadata.get("writes"), getattr(stage, field.name)
    if kind == FILE and path not in (None, "-"):
        refuse_existing_file(path, inputs, overwrite=stage.overwrite)
    elif kind == FOLDER or (kind == FOLDERS and not stage.overwrite):
        refuse_existing(path, overwrite=stage.overwrite, stage=getattr(stage, "command", None), inputs=inputs)


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
        epilog="\n  ".join(["examples:", *examples]) if examples else "",
        allow_abbrev=False,
        add_help=False,
        argument_default=argparse.SUPPRESS,
        formatter_class=functools.partial(_Help, max_help_position=32),
    )
    groups = {title: parser.add_argument_group(title) for title in GROUPS}
    flags = {word.partition("=")[0] for word in argv}
    for name, option in sorted(options.items(), key=lambda item: not item[1].positional):
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
    help = "Read settings from a YAML or JSON file; flags override it."
    other.add_argument("--config", type=str, metavar="FILE", help=help)
    help = "Write the settings of this command to a YAML or JSON file for --config."
    other.add_argument("--save-config", type=str, metavar="FILE", help=help)
    other.add_argument("-h", "--help", action="help", help="Show this help and exit.")
    has_inherited = any(option.inherited for option in options.values())
    help = "Also show all fields of transformers.TrainingArguments, and exit." if has_inherited else argparse.SUPPRESS
    other.add_argument("--help-all", action="help", help=help)
    return parser


def _names_in(argv: Sequence[str]) -> set[str]:
    """The names of the flags in `argv`, also without the prefix `no-`."""
    names = {word[2:].partition("=")[0].replace("-", "_") for word in argv if word.startswith("--")}
    return names | {name.removeprefix("no_") for name in names}


def _normalise(argv: Sequence[str], options: Mapping[str, Option]) -> list[str]:
    """Writes flags with hyphens, and the values `true` and `false` of a switch as flags."""
    words, normalised = list(argv), []
    while words and words[0] != "--":
        word = words.pop(0)
        flag, equals, value = word.partition("=")
        name = flag.removeprefix("--").replace("-", "_")
        negated = name.startswith("no_") and name not in options
        name = name.removeprefix("no_" if negated else "")
        option = options.get(name) if flag.startswith("--") else None
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
