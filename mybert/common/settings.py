"""Declaration and validation of the settings of a command."""

import dataclasses
import difflib
from collections.abc import Iterable, Mapping
from os import PathLike
from typing import Any, TypeVar

from mybert.common.error_messages import short
from mybert.common.errors import UserError

Settings = TypeVar("Settings")

ERRORS = ("strict", "skip")
"""What to do with invalid rows and documents: stop, or skip and count them."""

SIZES = ("tiny", "mini", "small", "medium", "base", "large")
"""The keys of `modeling_mybert.NAMED_SIZES`, whose import takes seconds."""

DTYPES = ("float32", "bfloat16", "int8")
"""Number formats for inference."""

POOLING_MODES = ("mean", "cls", "max", "mean_sqrt_len_tokens", "weightedmean", "lasttoken")
"""Names of sentence-transformers for the ways from hidden states to the vector of a text."""

ENGINES = ("local", "ray")
"""Where the parts of a command are computed."""

ENGINE_HELP = (
    "this process (local), or a Ray cluster whose nodes share the disks of model, inputs and OUTPUT (ray; address in "
    "RAY_ADDRESS; needs `pip install '.[ray]'` in the clone); the output is the same"
)
RESUME_HELP = "keep finished parts after an interruption and continue from them"

MODEL = "mybert.common.checkpoint_folder:check_checkpoint"
TOKENIZER = "mybert.common.checkpoint_folder:check_tokenizer"
TEXTS = "mybert.io.sources:check_texts"
ROWS = "mybert.io.sources:check_rows"
EXAMPLES = "mybert.corpus.settings:check_examples"
"""Functions that check the name of an input; see `setting`."""

FOLDER, FOLDERS, FILE = "folder", "folders", "file"
"""Kinds of outputs: a folder of one stage, a folder with those of several, and a file."""


def setting(
    default: Any = dataclasses.MISSING,
    help: str = "",
    *,
    default_factory: Any = dataclasses.MISSING,
    positional: bool = False,
    choices: Iterable[str] = (),
    least: int | None = None,
    negation: str | None = None,
    reads: str = "",
    writes: str = "",
) -> Any:
    """Declares a dataclass field that is also a command-line option.

    Args:
        default, default_factory: as in `dataclasses.field`. The option is required if neither is given or the default
            is "".
        help: description with unit and range; the parser adds the default.
        positional: the option may be given without its flag: one value for a `str`, one or more for a list.
        choices: the allowed values, shown in the help.
        least: the smallest allowed value. `check_choices` checks both.
        negation: for a `bool`, another flag that switches it off (`uncased` has `--cased`).
        reads: for names of inputs: the function that raises a UserError for a name that cannot be read, as
            module:function. It imports no large library, since `check_places` calls it before the command is loaded.
        writes: for the name of an output, its kind.
    """
    metadata = {
        "help": help,
        "positional": positional,
        "choices": tuple(choices),
        "least": least,
        "negation": negation,
        "reads": reads,
        "writes": writes,
    }
    return dataclasses.field(default=default, default_factory=default_factory, metadata=metadata)


@dataclasses.dataclass(kw_only=True)
class TextFileOptions:
    """Options of commands that read texts from files and data sets."""

    text_column: str = setting("text", "Text column of JSON, CSV, TSV, Parquet and data sets.")
    errors: str = setting(
        "strict", "Invalid lines stop the command (strict) or are skipped and counted (skip).", choices=ERRORS
    )


@dataclasses.dataclass(kw_only=True)
class DeviceOptions:
    """Options of commands that compute with a trained model."""

    device: str = setting("auto", "Device, such as cpu or cuda:1; auto: the GPU if there is one.")
    dtype: str = setting(
        "float32", "Data type of the model; int8 needs an output of `mybert quantize`.", choices=DTYPES
    )
    max_tokens_per_batch: int | None = setting(
        None, "Maximum tokens per batch (default: 2048 on the CPU, 16384 elsewhere).", least=1
    )


def settings_of(kind: type[Settings], model: object, options: Mapping[str, Any]) -> Settings:
    """`model`, if it is of the settings class `kind`; else an instance for the name of a model and other options."""
    if isinstance(model, kind):
        return model
    from mybert.common.command_line import make_settings  # imports this module

    return make_settings([kind], (model,), options)[0]


def as_list(value: object) -> list[str]:
    """The texts of a setting: a list of one for a single text, empty for None."""
    return [str(item) for item in ([value] if isinstance(value, str | PathLike) else value or ())]


def check(settings: Any, name: str, good: bool, expected: str, hint: str = "") -> None:
    """Raises a UserError that names the setting, its expected values and its value, unless `good`."""
    if not good:
        found = short(getattr(settings, name))
        raise UserError(f"--{name.replace('_', '-')}: expected {expected}, found {found}{hint}")


def check_choices(settings: Any) -> None:
    """Raises a UserError if a setting is none of its `choices`, or below its `least`."""
    for field in dataclasses.fields(settings):
        if choices := field.metadata.get("choices"):
            check_choice(settings, field.name, choices)
        least, value = field.metadata.get("least"), getattr(settings, field.name)
        good = least is None or (field.default is None if value is None else value >= least)
        check(settings, field.name, good, f"{least} or more")


def check_choice(settings: Any, name: str, choices: Iterable[str]) -> None:
    """Raises a UserError if a setting is none of `choices`; None passes if it is the default."""
    value = getattr(settings, name)
    if value in choices or (value is None and settings.__dataclass_fields__[name].default is None):
        return
    like = difflib.get_close_matches(str(value), choices, n=1, cutoff=0.7)
    check(settings, name, False, " or ".join(choices), f"; did you mean {like[0]!r}?" if like else "")


def check_resume(settings: Any) -> None:
    """Raises a UserError if both `resume` and `overwrite` are set."""
    if settings.resume and settings.overwrite:
        raise UserError("--resume and --overwrite exclude each other: one keeps the run, one replaces it")
