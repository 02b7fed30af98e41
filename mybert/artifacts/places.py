"""What a command reads and writes: checks before it is loaded, and the line that names both."""

import dataclasses
import os
import pkgutil
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from mybert.artifacts.manifest import DataInMemory
from mybert.artifacts.staging import refuse_existing, refuse_existing_file
from mybert.common.errors import short_list
from mybert.settings.declare import FILE, FOLDER, FOLDERS


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


def _check_output(stage: Any, field: dataclasses.Field[Any], inputs: list[str]) -> None:
    kind, path = field.metadata.get("writes"), getattr(stage, field.name)
    if kind == FILE and path not in (None, "-"):
        refuse_existing_file(path, inputs, overwrite=stage.overwrite)
    elif kind == FOLDER or (kind == FOLDERS and not stage.overwrite):
        refuse_existing(path, overwrite=stage.overwrite, stage=getattr(stage, "command", None), inputs=inputs)
