"""What accompanies a converted model: its tokenizer, other modules, manifest and closing table."""

import shutil
from pathlib import Path
from typing import Any

from modeling_mybert import MyBertPreTrainedModel
from mybert.artifacts.manifest import identity, write_manifest
from mybert.common.errors import UserError
from mybert.common.tables import print_table
from mybert.inference.checkpoint import Checkpoint, explain_unreadable
from mybert.inference.cpu.int8 import count_int8
from mybert.inference.sentence_modules import MODULES, module_entries, modules_folder


def refuse_int8(checkpoint: Checkpoint) -> None:
    """Raises a UserError if the weights are int8, which cannot be converted or averaged."""
    if getattr(checkpoint.model.config, "int8_outliers", None) is not None:
        raise UserError(
            f"checkpoint {checkpoint.name} has int8 weights; name the checkpoint that it was quantised from"
        )


def save_companions(checkpoint: Checkpoint, folder: Path) -> None:
    """Saves the tokenizer, and copies the modules of a sentence-transformers checkpoint."""
    if checkpoint.tokenizer is not None:
        checkpoint.tokenizer.save_pretrained(folder)
    with explain_unreadable(checkpoint.name):
        modules = modules_folder(checkpoint.name)
    if modules is None:
        return
    for path in (modules / MODULES, *modules.glob("*sentence*.json")):
        shutil.copy(path, folder)
    for entry in module_entries(modules):  # the path is empty for the model itself
        if entry["path"] and (modules / entry["path"]).is_dir():  # a module without settings has no folder
            shutil.copytree(modules / entry["path"], folder / entry["path"])


def finish(
    checkpoint: Checkpoint, folder: Path, settings: Any, sources: dict[str, str], facts: dict[str, Any]
) -> None:
    """Saves what accompanies a converted model: tokenizer, modules, and a manifest with `sources` and `facts`."""
    save_companions(checkpoint, folder)
    write_manifest(
        folder,
        settings.command,
        settings=settings,
        inputs={role: identity(name) for role, name in sources.items()},
        counts={"parameters": count_parameters(checkpoint.model)},
        architecture=type(checkpoint.model).__name__,
        left_out=checkpoint.left_out,
        **facts,
    )


def count_parameters(model: MyBertPreTrainedModel) -> int:
    """The number of parameters, those of int8 layers included, which are buffers."""
    return model.num_parameters() + count_int8(model)


def print_conversion(title: str, checkpoint: Checkpoint, rows: list[tuple[str, Any]]) -> None:
    """Prints the closing table, with a missing tokenizer and the weights that were left out."""
    if checkpoint.tokenizer is None:
        rows.append(("tokenizer", "none in the checkpoint"))
    if checkpoint.left_out:
        rows.append((f"left out, {len(checkpoint.left_out)} weights", ", ".join(checkpoint.left_out)))
    print_table(title, rows)
