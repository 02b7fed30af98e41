"""Fields of settings dataclasses as options: types, choices, old names."""

import argparse
import ast
import builtins
import dataclasses
import difflib
import functools
import importlib.util
import pkgutil
import sys
import types
import typing
from collections.abc import Callable, Iterable, Mapping
from dataclasses import MISSING, dataclass
from enum import Enum
from pathlib import Path
from typing import Any

_OTHER_NAMES = {  # flags and commands of other programs: the first name that is known is meant
    "--bf16": ("--dtype",),
    "--batch-size": ("--per-device-train-batch-size", "--max-tokens-per-batch"),
    "--epochs": ("--num-train-epochs",),
    "--lr": ("--learning-rate",),
    "--max-seq-length": ("--max-length",),
    "--num-epochs": ("--num-train-epochs",),
    "--device": ("--use-cpu",),
    "--label-pieces": ("--label-all-tokens",),
    "--test": ("--data", "--inputs"),
    "--text": ("--inputs",),
    "publish": ("push",),
    "report": ("doctor",),
    "train": ("pretrain",),
    "upload": ("push",),
}
_NAMES = {  # in the source of TrainingArguments
    "default_optim": "adamw_torch_fused",
    "trainer_log_levels": dict.fromkeys(("detail", "debug", "info", "warning", "error", "critical", "passive")),
}


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

    field: dataclasses.Field
    kinds: set[type]
    convert: Callable[[str], Any]
    choices: tuple[str, ...]
    optional: bool
    inherited: bool

    @property
    def flag(self) -> str:
        return f"--{self.field.name.replace('_', '-')}"

    @property
    def metavar(self) -> str:
        """How the help writes a value: INT, FLOAT, or the last word of the name."""
        last = self.field.name.rpartition("_")[2]
        one = last.removesuffix("s") if self.positional and list in self.kinds else last
        return {int: "INT", float: "FLOAT"}.get(self.convert, one.upper())

    @property
    def positional(self) -> bool:
        return self.field.metadata.get("positional", False)

    @property
    def default(self) -> Any:
        """The default; MISSING if there is none."""
        factory = self.field.default_factory
        return self.field.default if factory is MISSING else factory()

    @property
    def required(self) -> bool:
        if self.field.default_factory is not MISSING:
            return self.positional
        return self.field.default is MISSING or (self.field.default == "" and "positional" in self.field.metadata)


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


def complete(kind: type) -> type:
    """The class that `kind.complete` names, with the fields of `kind` and those of TrainingArguments; or `kind`.

    Importing TrainingArguments takes seconds. Help uses `options_without_import` instead.
    """
    return pkgutil.resolve_name(kind.complete) if hasattr(kind, "complete") else kind


def options_without_import(settings: Iterable[type]) -> dict[str, Option]:
    """The options of `complete` classes, without importing TrainingArguments."""
    settings = list(settings)
    own = options_of(settings)
    if not any(hasattr(kind, "complete") for kind in settings):
        return own
    return own | {name: option for name, option in options_of([training_arguments()]).items() if name not in own}


@functools.cache
def training_arguments() -> type:
    """A dataclass with the fields of transformers.TrainingArguments, read from its source."""
    folder = Path(importlib.util.find_spec("transformers").origin).parent
    files = [folder / f"{name}.py" for name in ("training_args", "trainer_utils", "debug_utils")]
    bodies = [ast.parse(file.read_text(encoding="utf-8")).body for file in files]
    classes = {node.name: node for body in bodies for node in body if isinstance(node, ast.ClassDef)}
    known = vars(builtins) | vars(typing) | {"field": dataclasses.field} | _NAMES
    known |= {name: enum for name, node in classes.items() if (enum := _enum(node)) is not None}
    fields = []
    for node in classes["TrainingArguments"].body:
        if isinstance(node, ast.AnnAssign):
            names = {part.id: Any for part in ast.walk(node) if isinstance(part, ast.Name)}
            annotation, value = (eval(ast.unparse(part), names | known) for part in (node.annotation, node.value))
            fields.append((node.target.id, annotation, value))
    return dataclasses.make_dataclass("TrainingArguments", fields)


def _enum(node: ast.ClassDef) -> type[Enum] | None:
    """The enum of text that a class statement defines; None for other classes."""
    if not any(isinstance(base, ast.Name) and base.id == "ExplicitEnum" for base in node.bases):
        return None
    values = {part.targets[0].id: ast.literal_eval(part.value) for part in node.body if isinstance(part, ast.Assign)}
    return Enum(node.name, values)


def _option(field: dataclasses.Field, annotation: Any, inherited: bool) -> Option:
    is_union = typing.get_origin(annotation) in (typing.Union, types.UnionType)
    parts = [p for p in (typing.get_args(annotation) if is_union else (annotation,)) if p is not types.NoneType]
    items = [*parts, *(item for part in parts if typing.get_origin(part) is list for item in typing.get_args(part))]
    enums = [part for part in parts if isinstance(part, type) and issubclass(part, Enum)]
    convert = str if str in items or not isinstance(items[-1], type) else items[-1]
    choices = [item.value for enum in enums for item in enum] or field.metadata.get("choices") or ()
    kinds = {typing.get_origin(part) or part for part in parts}
    optional = types.NoneType in typing.get_args(annotation)
    return Option(field, kinds, convert, tuple(choices), optional, inherited)


def current_name(name: str, options: Mapping[str, Option], shown: str) -> str:
    """The name of an option that may be given by its old name, which prints a notice."""
    for current, option in options.items():
        if name == option.field.metadata.get("old_name"):
            new = option.flag if shown.startswith("--") else current
            print(f"note: {shown} is now {new}; the old name will be removed in the next version", file=sys.stderr)
            return current
    return name


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
