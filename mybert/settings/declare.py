"""Declaration and validation of the settings of a command."""

import argparse
import dataclasses
import difflib
import functools
import types
import typing
from collections.abc import Iterable
from os import PathLike
from typing import Any, TypeVar

from mybert.common.errors import UserError, short
from mybert.common.quantities import Duration

Class = TypeVar("Class")

GROUPS = (
    *("data", "model", "task", "training", "batches", "seeds", "teacher", "evaluation", "hardware", "service"),
    *("output", "repository"),
)
"""Groups of options, in the order of the help."""

MODEL = "mybert.artifacts.checkpoint_folder:check_checkpoint"
TRAINABLE = "mybert.artifacts.checkpoint_folder:check_trainable"
TOKENIZER = "mybert.artifacts.checkpoint_folder:check_tokenizer"
TEXTS = "mybert.io.sources:check_texts"
ROWS = "mybert.io.sources:check_rows"
EXAMPLES = "mybert.corpus.settings:check_examples"
"""Functions that check the name of an input; see `setting`."""

FOLDER, FOLDERS, FILE = "folder", "folders", "file"
"""Kinds of outputs: a folder of one stage, a folder with those of several, and a file."""

_EXPECTED = {
    **dict.fromkeys([MODEL, TRAINABLE], "a folder or Hub name"),
    TOKENIZER: "a folder or Hub name; make one by `mybert tokenizer`",
    **dict.fromkeys([TEXTS, ROWS], "at least one file, folder or data set, or - for standard input"),
    FOLDER: "a folder",
}
"""What is expected instead of nothing, by the function that checks an input or the kind of an output."""


def setting(
    default: Any = dataclasses.MISSING,
    help: str = "",
    *,
    default_factory: Any = dataclasses.MISSING,
    kw_only: bool = False,
    group: str = "",
    positional: bool = False,
    choices: Iterable[str] = (),
    least: int | None = None,
    within: str = "",
    decides: bool = False,
    negation: str | None = None,
    pairs: bool = False,
    tables: bool = False,
    reads: str = "",
    writes: str = "",
) -> Any:
    """Declares a dataclass field that is also a command-line option.

    Args:
        default, default_factory, kw_only: as in `dataclasses.field`; a field that replaces one of a class in
            `shared.py` is kw_only, too. The option is required if it has no default or the default is "".
        help: description with its unit; the parser adds the default.
        group: one of `GROUPS`, under which the help lists the option; required options have a group of their own.
        positional: the option may be given without its flag: one value for a `str`, one or more for a list.
        choices: the allowed values, shown in the help.
        within: the interval of a number, or of each number of a list, such as "[0, 1)".
        least: the smallest number: `least=1` is `within="[1, inf)"`.
        decides: if it is given, the command chooses the settings that are not given.
        negation: for a `bool`, another flag that switches it off (`uncased` has `--cased`).
        pairs: the texts of a list have the form NAME=VALUE; a Python call may give a dictionary.
        tables: a Python call may give rows in memory instead of the name of a file.
        reads: for names of inputs: the function that raises a UserError for a name that cannot be read, as
            module:function. It imports no large library, since `check_places` calls it before the command is loaded.
        writes: for the name of an output, its kind.
    """
    metadata = {
        "help": help,
        "group": group,
        "positional": positional,
        "choices": tuple(choices),
        "within": within if least is None else f"[{least}, inf)",
        "decides": decides,
        "negation": negation,
        "pairs": pairs,
        "tables": tables,
        "reads": reads,
        "writes": writes,
    }
    return dataclasses.field(
        default=default, default_factory=default_factory, kw_only=kw_only or dataclasses.MISSING, metadata=metadata
    )


_in_groups = [functools.partial(setting, group=title) for title in GROUPS]
data, model, task, training, batches, seeds, teacher, evaluation, hardware, service, output, repository = _in_groups
"""`setting` for each group of the help."""


@typing.dataclass_transform(kw_only_default=True)
def shared(cls: type[Class]) -> type[Class]:
    """Declares a class of options that others derive from: a dataclass without methods, whose creation takes time."""
    return dataclasses.dataclass(kw_only=True, init=False, repr=False, eq=False)(cls)


@shared
class Options:
    """Base of settings classes: checks the values by their declarations.

    A single value of a list becomes a list of one, and a time in words a `Duration`. None passes every check if it is
    the default.
    """

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            value, kinds = getattr(self, field.name), kinds_of(field.type)
            if value is None and field.default is None:
                continue
            if list in kinds and str not in kinds:
                value = as_list(value)
                setattr(self, field.name, value)
            if Duration in kinds:
                try:
                    setattr(self, field.name, Duration(value))
                except argparse.ArgumentTypeError as error:
                    raise UserError(f"{flag_of(field.name)}: {error}") from error
            place = field.metadata.get("reads") or field.metadata.get("writes") or ""
            usual = "at least one" if list in kinds else "a name" if field.metadata.get("positional") else ""
            if is_required(field) and (expected := _EXPECTED.get(place, usual)):
                check(self, field.name, value not in ("", []), expected)
            for item in value if isinstance(value, list) else [value]:
                _check_item(self, field, item)


def _check_item(settings: Options, field: dataclasses.Field[Any], item: Any) -> None:
    """Raises a UserError if a value, or an item of a list, is an empty name, none of the choices or out of range."""
    if item == "" and field.metadata.get("reads") and item != field.default:  # it would be the current folder
        check(settings, field.name, False, "names that are not empty")
    choices, within = field.metadata.get("choices"), field.metadata.get("within")
    if choices and item not in choices:
        check(settings, field.name, False, *choice_of(item, choices))
    if within and not is_within(item, within):
        check(settings, field.name, False, in_words(within))


def is_required(field: dataclasses.Field[Any]) -> bool:
    """Whether the option must be given."""
    if field.default_factory is not dataclasses.MISSING:
        return field.metadata.get("positional", False)
    return field.default is dataclasses.MISSING or (field.default == "" and "positional" in field.metadata)


def kinds_of(annotation: Any) -> frozenset[Any]:
    """The types of an annotation, without None and type arguments, such as {str, list}."""
    return frozenset(typing.get_origin(part) or part for part in parts_of(annotation))


def parts_of(annotation: Any) -> list[Any]:
    """The types of a union, without None; the annotation itself if it is no union."""
    is_union = typing.get_origin(annotation) in (typing.Union, types.UnionType)
    return [part for part in (typing.get_args(annotation) if is_union else (annotation,)) if part is not type(None)]


def as_list(value: Any) -> list[Any]:
    """The items of a setting: a list of one for a single value, empty for None. Paths become texts."""
    items = [value] if isinstance(value, str | PathLike | int | float) else value or ()
    return [str(item) if isinstance(item, PathLike) else item for item in items]


def flag_of(name: str) -> str:
    """The flag of a setting."""
    return f"--{name.replace('_', '-')}"


def check(settings: Any, name: str, good: bool, expected: str, hint: str = "") -> None:
    """Raises a UserError that names the setting, its expected values and its value, unless `good`."""
    if not good:
        raise UserError(f"{flag_of(name)}: expected {expected}, found {short(getattr(settings, name))}{hint}")


def check_effect(settings: Any, names: str, has_effect: object, otherwise: str) -> None:
    """Raises a UserError if one of the settings `names`, words, is given although it has no effect."""
    for name in () if has_effect else names.split():
        default, value = settings.__dataclass_fields__[name].default, getattr(settings, name)
        if value not in (None, [], default):
            raise UserError(f"{flag_of(name)} has no effect {otherwise}")


def choice_of(value: object, choices: Iterable[str]) -> tuple[str, str]:
    """What is expected of a value that is none of `choices`, and a hint at the most similar one."""
    like = difflib.get_close_matches(str(value), choices, n=1, cutoff=0.7)
    return " or ".join(choices), f"; did you mean {like[0]!r}?" if like else ""


def is_within(number: float, interval: str) -> bool:
    """Whether a number is in an interval such as "[0, 1)"."""
    low, high = map(float, interval[1:-1].split(","))
    above = number > low if interval[0] == "(" else number >= low
    return above and (number < high if interval[-1] == ")" else number <= high)


def in_words(interval: str) -> str:
    """An interval in words: "[1, inf)" is `1 or more`, "(0, 1]" is `above 0 and at most 1`."""
    low, high = interval[1:-1].split(", ")
    if high == "inf":
        return f"above {low}" if interval[0] == "(" else f"{low} or more"
    words = {"[]": f"{low} to {high}", "[)": f"{low} or more and below {high}", "()": f"between {low} and {high}"}
    return words.get(interval[0] + interval[-1], f"above {low} and at most {high}")
