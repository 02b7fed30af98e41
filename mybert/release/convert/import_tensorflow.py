"""Conversion of google-research/bert checkpoints: `bert_config.json`, `vocab.txt` and `bert_model.ckpt.*`.

Tensor names are defined in its `modeling.py` (encoder), `run_pretraining.py`, `run_classifier.py` and `run_squad.py`
(heads). A kernel is (in, out) there, a `Linear` weight is (out, in) here. The activation "gelu" is read as the exact
GELU, as in transformers; later versions of google-research/bert use the tanh approximation.
"""

import dataclasses
import re
from pathlib import Path

import numpy as np
import torch
from huggingface_hub.errors import StrictDataclassError

from modeling_mybert import (
    MyBertConfig,
    MyBertForMaskedLM,
    MyBertForNextSentencePrediction,
    MyBertForPreTraining,
    MyBertForQuestionAnswering,
    MyBertForSequenceClassification,
    MyBertModel,
    MyBertPreTrainedModel,
)
from mybert.common.checkpoint_folder import check_shapes
from mybert.common.error_messages import cause
from mybert.common.errors import UserError
from mybert.common.json_io import parse_json
from mybert.release.convert.full_checkpoint import Checkpoint
from mybert.release.convert.tensorflow_checkpoint import TensorFlowCheckpoint
from tokenization import MyBertTokenizer

_HEADS = {
    "cls/predictions/output_bias": "cls.predictions.bias",
    "cls/seq_relationship/output_weights": "cls.seq_relationship.weight",
    "cls/seq_relationship/output_bias": "cls.seq_relationship.bias",
    "cls/squad/output_weights": "qa_outputs.weight",
    "cls/squad/output_bias": "qa_outputs.bias",
    "output_weights": "classifier.weight",
    "output_bias": "classifier.bias",
}
# The class is the first whose tensors all exist.
_CLASSES = (
    (("cls.predictions.bias", "cls.seq_relationship.weight"), MyBertForPreTraining),
    (("cls.predictions.bias",), MyBertForMaskedLM),
    (("cls.seq_relationship.weight",), MyBertForNextSentencePrediction),
    (("qa_outputs.weight",), MyBertForQuestionAnswering),
    (("classifier.weight",), MyBertForSequenceClassification),
    ((), MyBertModel),
)


def load_tensorflow_checkpoint(prefix: str, casing: str) -> tuple[Checkpoint, dict]:
    """Reads model and tokenizer.

    Returns:
        The checkpoint, and entries for its manifest: the numbers of tensors read and of optimizer tensors skipped, the
        unused settings of `bert_config.json`, and the casing.
    """
    stored = TensorFlowCheckpoint(prefix)
    config, unused = _read_config(Path(prefix).with_name("bert_config.json"))
    tokenizer, uncased = _read_tokenizer(Path(prefix).with_name("vocab.txt"), casing, config)
    # optimizer state is stored below the name of its tensor: `…/kernel/adam_m`
    optimizer = {n for n, entry in stored.entries.items() if not entry.shape or n.rpartition("/")[0] in stored}
    names = {pytorch_name(name): name for name in stored if name not in optimizer}
    model, left_out = _build(stored, config, names)
    found = {
        "tensors": len(names) - len(left_out),
        "optimizer_tensors_skipped": len(optimizer),
        "casing": "uncased" if uncased else "cased",
    }
    if unused:
        found["unused_settings"] = ", ".join(unused)
    return Checkpoint(str(Path(prefix).parent), model.eval(), tokenizer, left_out), found


def pytorch_name(name: str) -> str:
    """The name in transformers' BERT of a tensor of google-research/bert."""
    if name in _HEADS:
        return _HEADS[name]
    name = re.sub(r"\blayer_(\d+)\b", r"layer.\1", name).replace("/", ".")
    name = re.sub(r"\.(kernel|gamma)$|(?<=_embeddings)$", ".weight", name)
    return re.sub(r"\.beta$", ".bias", name)


def _build(
    stored: TensorFlowCheckpoint, config: MyBertConfig, names: dict[str, str]
) -> tuple[MyBertPreTrainedModel, list[str]]:
    """The model, and the names of the tensors that it does not have. `names` maps its names to the checkpoint's."""
    cls = next(cls for needed, cls in _CLASSES if all(name in names for name in needed))
    if cls is MyBertForSequenceClassification:
        config.num_labels = stored.entries[names["classifier.weight"]].shape[0]
    if cls is MyBertModel:
        names = {name.removeprefix("bert."): tensor for name, tensor in names.items()}
    given = {name: stored.entries[tensor].shape for name, tensor in names.items()}
    given |= {name: given[name][::-1] for name, tensor in names.items() if tensor.endswith("/kernel")}
    check_shapes(stored.prefix, config.to_dict(), given, "bert_config.json")
    try:
        with torch.device("meta"):
            shapes = {name: tensor.shape for name, tensor in cls(config).state_dict().items()}
    except (TypeError, ValueError, RuntimeError, OverflowError) as error:
        raise UserError(
            f"bert_config.json of {stored.prefix} does not describe a valid model: {cause(error)}"
        ) from error
    missing = sorted(shapes.keys() - names.keys() - (cls._tied_weights_keys or {}).keys())
    if missing:
        raise UserError(
            f"{stored.prefix} lacks {len(missing)} tensors of {cls.__name__}, such as {missing[0]}; check that "
            "bert_config.json belongs to this checkpoint"
        )
    state = {name: _read(stored, tensor, shapes[name]) for name, tensor in names.items() if name in shapes}
    left_out = sorted(tensor for name, tensor in names.items() if name not in shapes)
    return cls.from_pretrained(None, config=config, state_dict=state), left_out


def _read(stored: TensorFlowCheckpoint, name: str, shape: torch.Size) -> torch.Tensor:
    array = stored[name]
    array = array.T if name.endswith("/kernel") else array
    if array.shape != tuple(shape):
        raise UserError(
            f"{stored.prefix}: {name} has shape {stored[name].shape}; bert_config.json requires {tuple(shape)}"
        )
    return torch.from_numpy(np.array(array, dtype=np.float32, order="C"))


def _read_config(path: Path) -> tuple[MyBertConfig, list[str]]:
    """The configuration, and the names of the unused settings."""
    try:
        values = parse_json(path.read_bytes())
        known = {field.name for field in dataclasses.fields(MyBertConfig)}
        config = MyBertConfig(**{name: value for name, value in values.items() if name in known})
    except FileNotFoundError as error:
        raise UserError(f"{path} is missing; copy it into the folder of the checkpoint") from error
    except (ValueError, TypeError, AttributeError, StrictDataclassError) as error:
        raise UserError(f"{path} is not a BERT configuration: {cause(error)}") from error
    return config, sorted(values.keys() - known)


def _read_tokenizer(path: Path, casing: str, config: MyBertConfig) -> tuple[MyBertTokenizer, bool]:
    """The tokenizer, and whether it lower-cases text."""
    if not path.is_file():
        raise UserError(f"{path} is missing; copy it into the folder of the checkpoint")
    try:
        pieces = MyBertTokenizer(path).get_vocab()
        upper = any(piece != piece.lower() for piece in pieces if not re.fullmatch(r"\[.+\]", piece))
        uncased = not upper if casing == "auto" else casing == "uncased"
        tokenizer = MyBertTokenizer(path, do_lower_case=uncased, model_max_length=config.max_position_embeddings)
    except ValueError as error:
        raise UserError(str(error)) from error
    if len(tokenizer) != config.vocab_size:
        raise UserError(f"{path} has {len(tokenizer)} pieces, bert_config.json has vocab_size {config.vocab_size}")
    return tokenizer, uncased
