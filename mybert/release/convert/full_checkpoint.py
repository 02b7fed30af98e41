"""A BERT or MyBERT checkpoint, loaded whole: by the head that it was saved from, with its tokenizer."""

import shutil
from dataclasses import dataclass
from pathlib import Path

import modeling_mybert
from modeling_mybert import (
    MyBertConfig,
    MyBertEncoderDecoderModel,
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
from mybert.common.error_messages import cause
from mybert.common.errors import UserError
from mybert.common.json_io import parse_json
from mybert.release.hub.bundle_checks import sides
from tokenization import MyBertTokenizer

_TOKENIZER_FILES = ("tokenizer.json", "vocab.txt")
_PRETRAINING = (MyBertForPreTraining, MyBertForMaskedLM, MyBertForNextSentencePrediction)


@dataclass(frozen=True)
class Checkpoint:
    """
    Attributes:
        name: the folder or Hub name.
        model: in evaluation mode.
        tokenizer: None where the folder has none.
        left_out: names of the weights that the model has no place for.
    """

    name: str
    model: MyBertPreTrainedModel | MyBertEncoderDecoderModel
    tokenizer: MyBertTokenizer | None
    left_out: list[str]


def load_checkpoint(name: str) -> Checkpoint:
    """
    Args:
        name: folder or Hub name of a MyBERT or BERT checkpoint, its weights in safetensors or PyTorch's format.

    Raises:
        UserError: it cannot be read, has no such head, lacks weights, holds code, or its tokenizer has more tokens
            than its model.
    """
    with explain_unreadable(name):
        model, missing, left_out = _load(_named_class(name), name)
        if any(key.startswith("cls.") for key in left_out):  # bert-base-uncased calls itself a masked language model
            loaded = ((model, missing, left_out), *(_load(cls, name) for cls in _PRETRAINING))
            model, missing, left_out = min(loaded, key=lambda found: (len(found[1]), len(found[2])))
        refuse_missing(name, missing, remedy=f"they would be random in {type(model).__name__}")
        tokenizer = _tokenizer(name)
    if tokenizer is not None:
        refuse_other_vocabulary(name, tokenizer, model.config)
    return Checkpoint(name, model.eval(), tokenizer, left_out)


def is_pair(folder: str | Path) -> bool:
    """Whether it holds an encoder and a decoder."""
    return "" not in sides(parse_json((Path(folder) / "config.json").read_bytes()))


def load_pair(name: str) -> Checkpoint:
    """An encoder and its decoder, as `load_checkpoint` loads a single model."""
    with explain_unreadable(name):
        model, report = MyBertEncoderDecoderModel.from_pretrained(name, output_loading_info=True)
        refuse_missing(name, report["missing_keys"])
        return Checkpoint(name, model.eval(), _tokenizer(name), sorted(report["unexpected_keys"]))


def _named_class(name: str) -> type[MyBertPreTrainedModel]:
    values, _ = MyBertConfig.get_config_dict(name)
    architecture = (values.get("architectures") or [MyBertModel.__name__])[0]
    ours = architecture if architecture.startswith("My") else f"My{architecture}"
    if not hasattr(modeling_mybert, ours):
        raise UserError(f"checkpoint {name} is a {architecture}, which MyBERT has no counterpart of")
    return getattr(modeling_mybert, ours)


def _load(cls: type[MyBertPreTrainedModel], name: str) -> tuple[MyBertPreTrainedModel, list[str], list[str]]:
    """The model, the weights it lacks, and those it has no place for."""
    model, report = cls.from_pretrained(name, output_loading_info=True, ignore_mismatched_sizes=True)
    refuse_other_shapes(name, report["mismatched_keys"])
    missing = sorted(report["missing_keys"])
    if cls is MyBertModel and missing and all(key.startswith("pooler.") for key in missing):
        model.pooler, missing = None, []
    # position_ids: a constant that older versions of transformers wrote
    return model, missing, sorted(key for key in report["unexpected_keys"] if not key.endswith("position_ids"))


def _tokenizer(name: str) -> MyBertTokenizer | None:
    if Path(name).is_dir() and not any((Path(name) / file).is_file() for file in _TOKENIZER_FILES):
        return None
    return MyBertTokenizer.from_pretrained(name)


def save_companions(checkpoint: Checkpoint, folder: Path) -> None:
    """Puts beside the weights what belongs to them: the tokenizer, and the modules of sentence-transformers.

    Raises:
        UserError: `modules.json` is no list of modules.
    """
    if checkpoint.tokenizer is not None:
        checkpoint.tokenizer.save_pretrained(folder)
    modules = Path(checkpoint.name) / "modules.json"
    if not modules.is_file():
        return
    try:  # the path is empty for the model itself; a module without settings has no folder
        names = dict.fromkeys(str(module["path"]) for module in parse_json(modules.read_bytes()))
    except (ValueError, LookupError, TypeError) as error:
        raise UserError(f"{modules} is no list of modules ({cause(error)}); restore it, or remove it") from error
    folders = {path.name for path in modules.parent.iterdir() if path.is_dir()}
    for path in (modules, *modules.parent.glob("*sentence*.json")):
        shutil.copy(path, folder)
    for name in names:
        if name in folders:
            shutil.copytree(modules.parent / name, folder / name)


def said_of(checkpoint: Checkpoint) -> list[tuple[str, str]]:
    """Rows for a closing table: what was not found, and what was not taken along."""
    rows = []
    if checkpoint.tokenizer is None:
        rows.append(("tokenizer", "none: the checkpoint has none"))
    if checkpoint.left_out:
        rows.append((f"left out, {len(checkpoint.left_out)} weights", ", ".join(checkpoint.left_out)))
    return rows
