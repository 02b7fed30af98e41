"""Fields of settings dataclasses as options: types, choices, help."""

import argparse
import dataclasses
import difflib
import functools
import importlib.metadata
import json
import pkgutil
import re
import typing
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any

from mybert.settings.declare import flag_of, is_required, kinds_of, parts_of

_OTHER_NAMES = {  # flags and commands of other programs: the first name that is known is meant
    "--bf16": ("--dtype",),
    "--batch-size": ("--per-device-train-batch-size", "--max-tokens-per-batch"),
    "--epochs": ("--num-train-epochs",),
    "--lr": ("--learning-rate",),
    "--max-seq-length": ("--max-length",),
    "--num-epochs": ("--num-train-epochs",),
    "--device": ("--use-cpu",),
    "--test": ("--data", "--inputs"),
    "--text": ("--inputs",),
    "publish": ("push",),
    "report": ("doctor",),
    "train": ("pretrain",),
    "upload": ("push",),
}
REQUIRED, OTHER_OPTIONS = "required", "other options"
INHERITED_OPTIONS = "options of transformers.TrainingArguments"
INHERITED = Path(__file__).with_name("training_arguments.json")
"""The fields of transformers.TrainingArguments, whose import takes seconds; `make generated` writes the file."""


@dataclass(frozen=True)
class Option:
    """A field of a settings dataclass as a command-line option.

    Attributes:
        field: declared by `setting`, or a field of transformers.TrainingArguments.
        kinds: the types of its annotation, without None and type arguments, such as {str, list}.
        convert: from one word of the command line to a value.
        choices: the allowed values; empty for any value.
        optional: whether its annotation allows None.
        inherited: whether it is an unchanged field of TrainingArguments, which only --help-all shows.
    """

    field: dataclasses.Field[Any]
    kinds: frozenset[Any]
    convert: Callable[[str], Any]
    choices: tuple[str, ...]
    optional: bool
    inherited: bool

    @property
    def flag(self) -> str:
        return flag_of(self.field.name)

    @property
    def metavar(self) -> str:
        """How the help writes a value: INT, FLOAT, or the last word of the name."""
        last = self.field.name.rpartition("_")[2]
        one = last.removesuffix("s") if self.positional and list in self.kinds else last
        numbers: dict[Any, str] = {int: "INT", float: "FLOAT"}
        return numbers.get(self.convert, one.upper())

    @property
    def positional(self) -> bool:
        return self.field.metadata.get("positional", False)

    @property
    def default(self) -> Any:
        """The default; MISSING if there is none."""
        factory = self.field.default_factory
        return self.field.default if factory is dataclasses.MISSING else factory()

    @property
    def required(self) -> bool:
        return is_required(self.field)

    @property
    def group(self) -> str:
        """The title of its group in the help."""
        of_ours = self.field.metadata.get("group") or OTHER_OPTIONS
        return REQUIRED if self.required else INHERITED_OPTIONS if self.inherited else of_ours

    @property
    def help(self) -> str:
        """Its help as a sentence, and its default, unless that is nothing or false."""
        text, default = self.field.metadata.get("help", ""), self.field.default
        if text == argparse.SUPPRESS:
            return text
        if re.match(r"[a-z]+( |,|$)", text):
            text = text[0].upper() + text[1:]
        text = text if text.endswith(".") else f"{text}."
        if self.field.default_factory is not dataclasses.MISSING:
            default = " ".join(map(str, self.default))
        if default in (None, "", dataclasses.MISSING) or default is False or "(default:" in text:
            return text.replace("%", "%%")  # for argparse
        return f"{text} (default: {default})".replace("%", "%%")


def options_of(settings: Iterable[type]) -> dict[str, Option]:
    """The options of settings dataclasses, by name."""
    options = {}
    for kind in settings:
        hints = typing.get_type_hints(kind)
        for field in dataclasses.fields(kind):
            if field.init:
                inherited = "positional" not in field.metadata or field.metadata["help"] == argparse.SUPPRESS
                options[field.name] = _option(field, hints[field.name], inherited)
    return options


def arguments_class(kind: type) -> type:
    """The class that `kind.arguments_class` names, with all fields of TrainingArguments; `kind` if it names none.

    Importing TrainingArguments takes seconds. Help uses `options_without_import` instead.
    """
    return pkgutil.resolve_name(kind.arguments_class) if hasattr(kind, "arguments_class") else kind


def options_without_import(settings: Iterable[type]) -> dict[str, Option]:
    """The options of settings and arguments classes, without importing TrainingArguments."""
    settings = list(settings)
    own = options_of(settings)
    if not any(hasattr(kind, "arguments_class") for kind in settings):
        return own
    return own | {name: option for name, option in inherited_options().items() if name not in own}


@functools.cache
def inherited_options() -> dict[str, Option]:
    """The fields of transformers.TrainingArguments as options.

    They are read from `INHERITED` if the installed version of transformers is the one that it was written with.
    """
    written = json.loads(INHERITED.read_text(encoding="utf-8"))
    if written["version"] != importlib.metadata.version("transformers"):
        return options_of([pkgutil.resolve_name("transformers:TrainingArguments")])
    kinds = {"bool": bool, "int": int, "float": float, "str": str, "list": list, "dict": dict}
    options = {}
    for name, entry in written["fields"].items():
        default = entry["default"]
        given = {"default_factory": default.copy} if isinstance(default, list) else {"default": default}
        field = dataclasses.field(**given, metadata={"help": entry["help"]})
        field.name = name
        types_of = frozenset(kinds[kind] for kind in entry["kinds"]) | ({object} if entry["other"] else set())
        convert = kinds.get(entry["convert"], str)
        options[name] = Option(field, types_of, convert, tuple(entry["choices"]), entry["optional"], inherited=True)
    return options


def _option(field: dataclasses.Field[Any], annotation: Any, inherited: bool) -> Option:
    parts = parts_of(annotation)
    items = [*parts, *(item for part in parts if typing.get_origin(part) is list for item in typing.get_args(part))]
    enums = [part for part in parts if isinstance(part, type) and issubclass(part, Enum)]
    convert = str if str in items or not isinstance(items[-1], type) else items[-1]
    choices = [item.value for enum in enums for item in enum] or field.metadata.get("choices") or ()
    optional = type(None) in typing.get_args(annotation)
    return Option(field, kinds_of(annotation), convert, tuple(choices), optional, inherited)


def unknown_name(what: str, name: str, known: Iterable[str]) -> str:
    spelt = name.split("=")[0]
    spelt = spelt.replace("_", "-") if spelt.startswith("-") else spelt
    others = _OTHER_NAMES.get(spelt, ())
    if not spelt.startswith("-"):  # of a Python call or a settings file
        others += tuple(flag[2:].replace("-", "_") for flag in _OTHER_NAMES.get(f"--{spelt.replace('_', '-')}", ()))
    like = next((other for other in others if other in known), None)
    if like is None:
        words = {other.lstrip("-"): other for other in known}  # dashes would make short names alike
        like = next((words[word] for word in difflib.get_close_matches(spelt.lstrip("-"), words, n=1)), None)
    return f"unknown {what} {name!r}" + (f"; did you mean {like!r}?" if like else "")
