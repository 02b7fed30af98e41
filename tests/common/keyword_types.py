"""Writes keywords.pyi and training_arguments.json in mybert/settings: `make generated`, after a change of settings."""

import inspect
import json
import pkgutil

import transformers

from mybert import api
from mybert.commands import COMMANDS
from mybert.common.quantities import Duration, Quantity
from mybert.settings.options import INHERITED, Option, arguments_class, options_of

TARGET = INHERITED.with_name("keywords.pyi")
API = {name: inspect.getfullargspec(found).args for name, found in inspect.getmembers(api, inspect.isfunction)}
"""The functions of mybert.api and their positional arguments."""
FUNCTIONS = {name: name for name in COMMANDS if name in API}
FUNCTIONS |= {"tokenizer": "train_tokenizer", "corpus": "build_corpus", "index": "build_index"}
CLASSES: dict[str, tuple[str, tuple[str, ...]]] = {
    "Task": ("mybert.tasks.settings:TaskSettings", ()),
    "Evaluation": ("mybert.tasks.settings:EvaluationOptions", ()),
    "Device": ("mybert.settings.shared:DeviceOptions", ()),
    "Predictor": ("mybert.tasks.settings:PredictorSettings", ("model",)),
    "Explainer": ("mybert.explanation.settings:ExplainerSettings", ("model",)),
    "Embedder": ("mybert.embedding.settings:EncodingSettings", ("model",)),
    "Scorer": ("mybert.scoring.settings:ScoringSettings", ("model",)),
}
SHARED = {  # keywords that several commands have
    "Command": ("pretrain", "evaluate", "score", "merge"),
    "Text": ("adapt", "trim", "embed", "score", "tokenizer", "corpus"),
    "Trainer": ("pretrain", "adapt", "distill", "finetune"),
}
HEAD = '''"""Keyword arguments of the functions of `mybert`, for editors and type checkers.

Written by `make generated` from the settings of the commands; `TrainerKeywords` has the fields of
transformers' TrainingArguments {version}.
"""

from collections.abc import Mapping, Sequence
from os import PathLike
from typing import Any, Literal, Required, TypeAlias, TypedDict

import datasets
import pandas

Name: TypeAlias = str | PathLike[str]
Rows: TypeAlias = Name | list[dict[str, Any]] | datasets.Dataset | pandas.DataFrame
'''


def type_of(option: Option) -> str:
    """The annotation of the values that `make_settings` accepts for an option."""
    kinds, declared = option.kinds, option.field.metadata
    if declared.get("tables"):
        found = "Rows" + " | Sequence[Name]" * (list in option.kinds)
    elif list in kinds:
        one = {str: "Name", int: "int", float: "float"}.get(option.convert, "str")
        found = f"{one} | Sequence[{one}]" + " | Mapping[str, object]" * declared.get("pairs", False)
    elif option.choices and "positional" in declared:  # of a setting of ours
        found = f"Literal[{', '.join(map(repr, option.choices))}]"
    elif option.convert in (Duration, Quantity):
        found = "str | float"
    elif kinds <= {bool, int, float, str}:
        names = {bool: "bool", int: "int", float: "float", str: "Name"}
        found = " | ".join(text for kind, text in names.items() if kind in kinds)
    else:
        found = "Any"
    optional = not option.required and option.field.default is None and found != "Any"
    return found + " | None" * optional


def fields(options: dict[str, Option], left_out: tuple[str, ...]) -> dict[str, str]:
    """Name → annotation."""
    return {
        name: f"Required[{type_of(option)}]" if option.required else type_of(option)
        for name, option in options.items()
        if name not in left_out and name != "output_dir"
    }


def declare(name: str, found: dict[str, str], earlier: dict[str, dict[str, str]]) -> str:
    """A class that inherits from `earlier` classes instead of repeating their fields."""
    rest, bases = found, []
    for base, own in sorted(earlier.items(), key=lambda item: -len(item[1])):
        if own.items() <= rest.items():  # bases may not share fields
            rest, bases = {field: kind for field, kind in rest.items() if field not in own}, [*bases, base]
    earlier[name] = found
    lines = [f"    {field}: {kind}" for field, kind in rest.items()] or ["    pass"]
    return "\n".join([f"class {name}({', '.join(bases) or 'TypedDict'}, total=False):", *lines])


def keywords() -> str:
    """The text of the module."""
    found = {}
    for command, function in FUNCTIONS.items():
        options = options_of([arguments_class(kind) for kind in COMMANDS[command].settings_types()])
        positional = [name for name, option in options.items() if option.positional]
        found[command] = {"config": "Name", **fields(options, tuple(positional[: len(API[function])]))}
    classes = {
        name: fields(options_of([pkgutil.resolve_name(kind)]), positional)
        for name, (kind, positional) in CLASSES.items()
    }
    known: set[str] = set()
    for name, commands in SHARED.items():
        first, *others = (found[command] for command in commands)
        common = {field: kind for field, kind in first.items() if all(one.get(field) == kind for one in others)}
        classes[name] = {field: kind for field, kind in common.items() if field not in known}
        known |= set(common)
    for command, function in sorted(FUNCTIONS.items(), key=lambda item: len(found[item[0]])):
        classes["".join(word.capitalize() for word in function.split("_"))] = found[command]
    earlier: dict[str, dict[str, str]] = {}
    texts = [declare(f"{name}Keywords", own, earlier) for name, own in classes.items()]
    return "\n\n\n".join([HEAD.format(version=transformers.__version__).strip(), *texts]) + "\n"


def training_arguments() -> str:
    """The text of the file with the fields of transformers' TrainingArguments."""
    found = {}
    for name, option in options_of([transformers.TrainingArguments]).items():
        found[name] = {
            "kinds": sorted(kind.__name__ for kind in option.kinds if kind in (bool, int, float, str, list, dict)),
            "other": any(kind not in (bool, int, float, str, list, dict) for kind in option.kinds),
            "convert": option.convert.__name__,
            "choices": option.choices,
            "optional": option.optional,
            "default": option.default,
            "help": option.field.metadata.get("help", ""),
        }
    lines = ",\n".join(f"{json.dumps(name)}: {json.dumps(entry)}" for name, entry in found.items())
    return f'{{"version": "{transformers.__version__}", "fields": {{\n{lines}\n}}}}\n'


if __name__ == "__main__":
    INHERITED.write_text(training_arguments(), encoding="utf-8")
    TARGET.write_text(keywords(), encoding="utf-8")
