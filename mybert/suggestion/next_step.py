"""What to do with suggestions: label them, and train on the old and the new rows."""

import re
from pathlib import Path
from typing import Any

from mybert.artifacts.manifest import DataInMemory, read_manifest
from mybert.common.errors import called_in_python, quoted_command
from mybert.suggestion.settings import SuggestSettings

_OF_TOOLS = {"label-studio": "Label Studio", "doccano": "doccano", "argilla": "Argilla"}
_REPEATED = (
    *("validation", "validation_share", "test", "columns", "problem", "label_separator", "label_names", "threshold"),
    *("plain_tags", "label_all_tokens", "max_length", "stride", "long_texts", "folds", "metric", "class_weights"),
)
"""Settings of the last training that the next one repeats: what its rows and labels are, and how they are scored."""


def next_step(settings: SuggestSettings, label: str) -> str:
    """How to label the suggestions, and the command that trains on them if the last training is known.

    Args:
        label: name of the empty column of the suggestions.
    """
    tool, output = _OF_TOOLS.get(settings.format or ""), Path(settings.output)
    labelled = str(output.with_stem(f"{output.stem}-labelled")) if tool else settings.output
    how = f"fill the empty column {label!r} of {output}"
    if tool:
        how = f"label {output} in {tool}, and export it as {labelled}"
    command = _training(settings, labelled)
    return f"next: {how}, then train on all rows" + (f":\n  {command}" if command else " (`mybert finetune --train`)")


def _training(settings: SuggestSettings, labelled: str) -> str | None:
    """The command that trains on the rows of the last training and those of `labelled`."""
    manifest = read_manifest(settings.model)
    last = manifest.get("settings", {})
    train = last.get("train")
    if manifest.get("stage") != "finetune" or not train:
        return None
    files = [train] if isinstance(train, str) else list(train)
    held_out = {last.get("validation"), last.get("test")}
    files += [name for name in settings.labelled if name not in {*files, *held_out}]
    if any(name.startswith(DataInMemory.PREFIX) for name in [*files, *filter(None, held_out)]):
        return None
    chosen: dict[str, Any] = {"task": last["task"], "model": last["model"], "train": [*files, labelled]}
    chosen |= {name: last[name] for name in _REPEATED if last.get(name) not in (None, []) and last[name] is not False}
    chosen["output"] = _next_name(settings.model)
    if called_in_python.get():
        return f"mybert.finetune({', '.join(f'{name}={value!r}' for name, value in chosen.items())})"
    words = ["mybert", "finetune"]
    for name, value in chosen.items():
        values = value if isinstance(value, list) else [] if value is True else [value]
        words += [f"--{name.replace('_', '-')}", *map(str, values)]
    return quoted_command(*words)


def _next_name(model: str) -> str:
    """A name for the next model: round-2 after round-1."""
    path = Path(model)
    number = re.search(r"[0-9]+$", path.name)
    name = path.name[: number.start()] + str(int(number[0]) + 1) if number else f"{path.name}-2"
    return str(path.with_name(name))
