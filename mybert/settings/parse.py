"""Command-line parsing: settings dataclasses from flags, by argparse.

cyclopts, tyro and jsonargparse (November 2026) take 0.1 s longer for `--help`, would import TrainingArguments to know
its fields, and name no line of a settings file.
"""

import argparse
import dataclasses
import functools
import itertools
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

from mybert.common.errors import UserError
from mybert.settings.calls import Check, instances, values_of_file
from mybert.settings.declare import GROUPS, choice_of
from mybert.settings.options import (
    INHERITED_OPTIONS,
    OTHER_OPTIONS,
    REQUIRED,
    Option,
    options_without_import,
    unknown_name,
)


class _Help(argparse.RawDescriptionHelpFormatter):
    """Keeps flags such as --max-length in one line; a switch is written as --[no-]overwrite."""

    def _format_action_invocation(self, action: argparse.Action) -> str:
        if isinstance(action, argparse.BooleanOptionalAction):
            return f"--[no-]{action.option_strings[0][2:]}"
        return super()._format_action_invocation(action)

    def _format_args(self, action: argparse.Action, default_metavar: str) -> str:
        args = super()._format_args(action, default_metavar)
        several = action.nargs == "+" and action.choices
        return f"{args.partition(' [')[0]} ..." if several else args  # not all choices once more

    def _split_lines(self, text: str, width: int) -> list[str]:
        return textwrap.wrap(" ".join(text.split()), width, break_on_hyphens=False)


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        if ": expected " in message and ", found " in message:  # it needs no help
            raise UserError(message.removeprefix("argument "))
        raise UserError(f"{message} (see `{self.prog} --help`)")


def parse_settings(
    settings: Sequence[type],
    argv: Sequence[str],
    prog: str,
    description: str = "",
    examples: Iterable[str] = (),
    check: Check = lambda made: None,
) -> tuple[Any, ...]:
    """Reads one instance of each settings class from the command line and the file of `--config FILE`.

    The command line overrides the file, the file overrides the defaults. Flags may be written with `_` or `-`.

    Args:
        check: called with the instances before an arguments class is imported, which needs torch and transformers.
    """
    options = options_without_import(settings)
    argv = _normalise(argv, options)
    finder = _Parser(prog, add_help=False, allow_abbrev=False)
    finder.add_argument("--config")
    file = finder.parse_known_args(argv)[0].config
    values = {} if file is None else values_of_file(file, options)
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
    read = instances(settings, values, check)
    declared = [(stage, field) for stage in read for field in dataclasses.fields(stage)]
    for stage, field in () if file is None else declared:
        output = getattr(stage, field.name) if field.metadata.get("writes") else None
        if output and stage.overwrite and Path(file).resolve().is_relative_to(Path(output).resolve()):
            raise UserError(f"--config {file} lies in the output {output}, which --overwrite replaces; move it")
    if target is not None:
        from mybert.settings.files import write_settings_file  # here, as in `values_of_file`

        decided = any(field.metadata.get("decides") and getattr(stage, field.name) for stage, field in declared)
        write_settings_file(target, values, options, with_defaults=not decided)
    return read


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
    ordered = sorted(options.values(), key=_place)
    usage = [_usage(option) for option in ordered if option.required or option.positional]
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
    titles = (REQUIRED, *GROUPS, OTHER_OPTIONS, INHERITED_OPTIONS)
    groups = {title: parser.add_argument_group(title) for title in titles}
    flags = {word.partition("=")[0] for word in argv}
    for option in ordered:
        name = option.field.name
        help = argparse.SUPPRESS if option.inherited and "--help-all" not in flags else option.help
        group = groups[option.group]
        is_needed = option.required and name not in known
        if option.kinds == {bool}:
            group.add_argument(option.flag, action=argparse.BooleanOptionalAction, help=help)
            if negation := option.field.metadata.get("negation"):
                group.add_argument(f"--{negation}", action="store_false", dest=name, help=argparse.SUPPRESS)
            continue
        shared: dict[str, Any] = {"type": _converter(option), "choices": option.choices or None, "help": help}
        shared |= {} if option.choices else {"metavar": option.metavar}
        if option.positional and option.flag not in flags:
            nargs = ("+" if is_needed else "*") if list in option.kinds else (None if is_needed else "?")
            group.add_argument(name, nargs=nargs, **shared)
        else:
            nargs = "+" if list in option.kinds else None
            group.add_argument(option.flag, nargs=nargs, required=is_needed, **shared)
    other = groups[OTHER_OPTIONS]
    help = "Read settings from a YAML or JSON file; flags override it."
    other.add_argument("--config", type=str, metavar="FILE", help=help)
    help = "Write the settings of this command to a YAML or JSON file for --config."
    other.add_argument("--save-config", type=str, metavar="FILE", help=help)
    other.add_argument("-h", "--help", action="help", help="Show this help and exit.")
    has_inherited = any(option.inherited for option in options.values())
    help = "Also show all fields of transformers.TrainingArguments, and exit." if has_inherited else argparse.SUPPRESS
    other.add_argument("--help-all", action="help", help=help)
    return parser


def _place(option: Option) -> int:
    """The place of an option in the help: positional ones first, the required output after all others."""
    return 0 if option.positional else 2 if option.required and option.field.metadata.get("writes") else 1


def _usage(option: Option) -> str:
    """How the first line of the help writes an option."""
    if not option.positional:
        return f"{option.flag} {option.metavar}"
    words = option.metavar + " ..." * (list in option.kinds)
    return words if option.required else f"[{words}]"


def _converter(option: Option) -> Callable[[str], Any]:
    """The function that converts a word of the command line."""

    def chosen(word: str) -> str:
        if word not in option.choices:
            expected, hint = choice_of(word, option.choices)
            raise argparse.ArgumentTypeError(f"expected {expected}, found {word!r}{hint}")
        return word

    return chosen if option.choices else option.convert


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
