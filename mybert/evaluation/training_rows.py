"""Evaluated rows that the model was trained on."""

from pathlib import Path
from typing import Any

import numpy as np
from datasets import Dataset

from mybert.artifacts.manifest import behind, inputs_of, is_model, read_manifest
from mybert.common.quantities import counted
from mybert.tasks.base import Task
from mybert.tasks.reading import row_digests

TRAINING_ROWS = "runs/training_rows.npy"
"""File of a fine-tuning with the digests of its training rows. `mybert push` leaves out the folder."""


def find_training_rows(rows: Dataset, task: Task, model: str, data: dict[str, str]) -> dict[str, Any] | None:
    """
    Args:
        rows: the evaluated rows, with canonical names.
        data: the manifest entry of the evaluated data.

    Returns:
        `same_file`: whether the model was trained on this file; `rows`, and how many of them are training rows,
        `equal`, or None if they are not recorded. None if the training of the model is not recorded.
    """
    own = read_manifest(model)
    models = [("", Path(model), own), *behind(own, lambda name, _: is_model(name))]
    trainings = [(folder, found) for _, folder, found in models if found.get("stage") == "finetune"]
    if not trainings:
        return None
    files = [folder / TRAINING_ROWS for folder, _ in trainings if (folder / TRAINING_ROWS).is_file()]
    equal = None
    if files:
        known = np.concatenate([np.load(file) for file in files])
        equal = int(np.isin(np.array(row_digests(rows, task), dtype=np.uint64), known).sum())
    is_folder = Path(data["path"].split(":")[0]).is_dir()  # which may have several splits
    inputs = [pair for _, manifest in trainings for pair in inputs_of(manifest).items()]
    hashes = {entry.get("sha256") for name, entry in inputs if name.startswith("train")}
    same = not is_folder and data.get("sha256") in hashes - {None}
    return {"same_file": same, "rows": len(rows), "equal": equal}


def describe_training_rows(found: dict[str, Any] | None, source: str, model: str) -> str | None:
    """A warning, or None if no evaluated row is known to be a training row."""
    if found is None or not (found["same_file"] or found["equal"]):
        return None
    text = f"{source} is the file that {model} was trained on" if found["same_file"] else ""
    if found["equal"] is not None:
        rows = f"{found['equal']:,} of {counted(found['rows'], 'row')}"
        text += f"{'; ' if text else ''}{rows}{'' if text else f' of {source}'} are training rows"
    return f"warning: {text}: the scores are too high. Evaluate rows that the model has not seen"
