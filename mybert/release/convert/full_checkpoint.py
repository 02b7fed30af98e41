"""Loading of a whole BERT or MyBERT checkpoint: model with its saved head, tokenizer and other modules."""

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from transformers import PreTrainedConfig

import modeling_mybert
from modeling_mybert import (
    MyBertForMaskedLM,
    MyBertForNextSentencePrediction,
    MyBertForPreTraining,
    MyBertModel,
    MyBertPreTrainedModel,
)
from mybert.common.checkpoint_loading import (
    explain_unreadable,
    refuse_missing,
    refuse_other_shapes,
    refuse_other_vocabulary,
)
from mybert.common.errors import UserError
from mybert.common.manifest import identity, write_manifest
from mybert.common.sentence_modules import MODULES, module_entries, modules_folder
from mybert.common.tables import print_table
from mybert.inference.cpu.int8 import count_int8
from mybert.release.heads import head_of
from tokenization import MyBertTokenizer

_TOKENIZER_FILES = ("tokenizer.json", "vocab.txt")
_PRETRAINING = (MyBertForPreTraining, MyBertForMaskedLM, MyBertForNextSentencePrediction)


@dataclass(frozen=True)
class Checkpoint:
    """A model in evaluation mode with its tokenizer, if the folder has one.

    `left_out` names the weights in the checkpoint that the model does not have.
    """

    name: str
    model: MyBertPreTrainedModel
    tokenizer: MyBertTokenizer | None
    left_out: list[str]


def load_checkpoint(name: str) -> Checkpoint:
    """Loads a BERT or a MyBERT with the head that it was saved with.

    `name` is a folder or Hub name; the weights are in safetensors or PyTorch format.
    """
    with explain_unreadable(name):
        values, _ = PreTrainedConfig.get_config_dict(name)
        model, missing, left_out = _load(_named_class(name, values), name)
        if any(key.startswith("cls.") for key in left_out):  # bert-base-uncased names this head only
            loaded = ((model, missing, left_out), *(_load(cls, name) for cls in _PRETRAINING))
            model, missing, left_out = min(loaded, key=lambda found: (len(found[1]), len(found[2])))
        refuse_missing(name, missing, remedy=f"they would be random in {type(model).__name__}")
        has_none = Path(name).is_dir() and not any((Path(name) / file).is_file() for file in _TOKENIZER_FILES)
        tokenizer = None if has_none else MyBertTokenizer.from_pretrained(name)
    if tokenizer is not None:
        refuse_other_vocabulary(name, tokenizer, model.config)
    return Checkpoint(name, model.eval(), tokenizer, left_out)


def refuse_int8(checkpoint: Checkpoint) -> None:
    """Raises a UserError if the weights are int8, which cannot be converted or averaged."""
    if getattr(checkpoint.model.config, "int8_outliers", None) is not None:
        raise UserError(
            f"checkpoint {checkpoint.name} has int8 weights; name the checkpoint that it was quantised from"
        )


def _named_class(name: str, values: dict) -> type[MyBertPreTrainedModel]:
    head = head_of(values)
    cls = getattr(modeling_mybert, head, None)
    if cls is None or not issubclass(cls, MyBertPreTrainedModel):
        raise UserError(f"checkpoint {name} is a {head.removeprefix('My')}, which has no counterpart in MyBERT")
    return cls


def _load(cls: type, name: str) -> tuple[MyBertPreTrainedModel, list[str], list[str]]:
    """The model, the weights missing in the checkpoint, and those that the model does not have."""
    model, report = cls.from_pretrained(name, output_loading_info=True, ignore_mismatched_sizes=True)
    refuse_other_shapes(name, report["mismatched_keys"])
    missing = sorted(report["missing_keys"])
    if cls is MyBertModel and missing and all(key.startswith("pooler.") for key in missing):
        model.pooler, missing = None, []
    # position_ids: a constant that older versions of transformers saved
    return model, missing, sorted(key for key in report["unexpected_keys"] if not key.endswith("position_ids"))


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


def finish(checkpoint: Checkpoint, folder: Path, stage: str, settings: Any, source: str, facts: dict) -> None:
    """Saves what accompanies a converted model: tokenizer, modules, and a manifest with `facts`."""
    save_companions(checkpoint, folder)
    write_manifest(
        folder,
        stage,
        settings=settings,
        inputs={"checkpoint": identity(source)},
        counts={"parameters": count_parameters(checkpoint.model)},
        architecture=type(checkpoint.model).__name__,
        left_out=checkpoint.left_out,
        **facts,
    )


def count_parameters(model: MyBertPreTrainedModel) -> int:
    """The number of parameters, those of int8 layers included, which are buffers."""
    return model.num_parameters() + count_int8(model)


def print_conversion(title: str, checkpoint: Checkpoint, rows: list[tuple]) -> None:
    """Prints the closing table, with a missing tokenizer and the weights that were left out."""
    if checkpoint.tokenizer is None:
        rows.append(("tokenizer", "none in the checkpoint"))
    if checkpoint.left_out:
        rows.append((f"left out, {len(checkpoint.left_out)} weights", ", ".join(checkpoint.left_out)))
    print_table(title, rows)
