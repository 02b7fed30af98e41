"""Google's original BERT checkpoints → MyBERT: `bert_config.json`, `vocab.txt` and `bert_model.ckpt.*`.

Names are those of google-research/bert: `modeling.py` (the encoder), `run_pretraining.py`, `run_classifier.py` and
`run_squad.py` (the heads). A kernel there is (in, out), a `Linear` here (out, in). The activation "gelu" is read as
the exact one, as transformers reads it; later versions of that code approximate it by tanh.
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
from mybert.common.error_messages import cause
from mybert.common.errors import UserError
from mybert.common.json_io import parse_json
from mybert.release.convert.full_checkpoint import Checkpoint
from mybert.release.convert.tensorflow_checkpoint import TensorFlowCheckpoint
from tokenization import MyBertTokenizer

CASINGS = ("auto", "cased", "uncased")
_HEADS = {
    "cls/predictions/output_bias": "cls.predictions.bias",
    "cls/seq_relationship/output_weights": "cls.seq_relationship.weight",
    "cls/seq_relationship/output_bias": "cls.seq_relationship.bias",
    "cls/squad/output_weights": "qa_outputs.weight",
    "cls/squad/output_bias": "qa_outputs.bias",
    "output_weights": "classifier.weight",
    "output_bias": "classifier.bias",
}
# The first whose tensors are all there is the class; no tensors: any encoder.
_CLASSES = (
    (("cls.predictions.bias", "cls.seq_relationship.weight"), MyBertForPreTraining),
    (("cls.predictions.bias",), MyBertForMaskedLM),
    (("cls.seq_relationship.weight",), MyBertForNextSentencePrediction),
    (("qa_outputs.weight",), MyBertForQuestionAnswering),
    (("classifier.weight",), MyBertForSequenceClassification),
    ((), MyBertModel),
)


def find_prefix(checkpoint: str) -> str | None:
    """The path that TensorFlow would call the checkpoint, if it is one of TensorFlow's.

    Args:
        checkpoint: that path, one of its files, or their folder.

    Raises:
        UserError: the folder has several.
    """
    path = Path(checkpoint)
    if path.is_dir():
        found = sorted(path.glob("*.ckpt*.index"))
        if len(found) > 1:
            raise UserError(f"{path} has several checkpoints, {', '.join(p.stem for p in found)}; name one of them")
        return str(found[0].with_suffix("")) if found else None
    prefix = re.sub(r"\.(index|data-\d+-of-\d+|meta)$", "", checkpoint)
    known = Path(f"{prefix}.index").is_file() or prefix != checkpoint or checkpoint.endswith(".ckpt")
    return prefix if known else None


def load_tensorflow_checkpoint(prefix: str, casing: str) -> tuple[Checkpoint, dict]:
    """
    Args:
        prefix: see `find_prefix`.
        casing: one of `CASINGS`.

    Returns:
        The checkpoint, and facts for its manifest: how many tensors were read and how many were the optimizer's; the
        settings of `bert_config.json` that are not an encoder's; and the casing.

    Raises:
        UserError: a file is missing or damaged, or they do not fit together.
    """
    stored = TensorFlowCheckpoint(prefix)
    config, unknown_settings = _read_config(Path(prefix).with_name("bert_config.json"))
    tokenizer, uncased = _read_tokenizer(Path(prefix).with_name("vocab.txt"), casing, config)
    of_optimizer = {name for name, entry in stored.entries.items() if not entry.shape or _is_slot(name, stored)}
    names = {pytorch_name(name): name for name in stored if name not in of_optimizer}
    model, left_out = _build(stored, config, names)
    facts = {
        "tensors": len(names) - len(left_out),
        "optimizer_tensors_skipped": len(of_optimizer),
        "casing": "uncased" if uncased else "cased",
    }
    if unknown_settings:
        facts["settings_of_no_use_here"] = ", ".join(unknown_settings)
    return Checkpoint(str(Path(prefix).parent), model.eval(), tokenizer, left_out), facts


def pytorch_name(name: str) -> str:
    """The name that transformers' BERT has for a tensor of Google's, whether or not there is such a tensor."""
    if name in _HEADS:
        return _HEADS[name]
    name = re.sub(r"\blayer_(\d+)\b", r"layer.\1", name).replace("/", ".")
    name = re.sub(r"\.(kernel|gamma)$|(?<=_embeddings)$", ".weight", name)
    return re.sub(r"\.beta$", ".bias", name)


def _is_slot(name: str, stored: TensorFlowCheckpoint) -> bool:
    """Optimizers keep their numbers under the name of the tensor they are about: `…/kernel/adam_m`."""
    return name.rpartition("/")[0] in stored


def _build(
    stored: TensorFlowCheckpoint, config: MyBertConfig, names: dict[str, str]
) -> tuple[MyBertPreTrainedModel, list[str]]:
    """The model, and the names of the tensors it has no place for.

    Args:
        names: from our name of each tensor to Google's.
    """
    cls = next(cls for needed, cls in _CLASSES if all(name in names for name in needed))
    if cls is MyBertForSequenceClassification:
        config.num_labels = stored.entries[names["classifier.weight"]].shape[0]
    if cls is MyBertModel:
        names = {name.removeprefix("bert."): tensor for name, tensor in names.items()}
    try:
        with torch.device("meta"):
            shapes = {name: tensor.shape for name, tensor in cls(config).state_dict().items()}
    except (TypeError, ValueError, RuntimeError, OverflowError) as error:
        raise UserError(
            f"no model can be made from the bert_config.json of {stored.prefix}: {cause(error)}"
        ) from error
    missing = sorted(shapes.keys() - names.keys() - (cls._tied_weights_keys or {}).keys())
    if missing:
        raise UserError(
            f"{stored.prefix} lacks {len(missing)} of the tensors that {cls.__name__} needs, such as {missing[0]}; is "
            "it of google-research/bert, and is bert_config.json that of this checkpoint?"
        )
    state = {name: _read(stored, tensor, shapes[name]) for name, tensor in names.items() if name in shapes}
    left_out = sorted(tensor for name, tensor in names.items() if name not in shapes)
    return cls.from_pretrained(None, config=config, state_dict=state), left_out


def _read(stored: TensorFlowCheckpoint, name: str, shape: torch.Size) -> torch.Tensor:
    array = stored[name]
    array = array.T if name.endswith("/kernel") else array
    if array.shape != tuple(shape):
        raise UserError(
            f"{stored.prefix}: {name} has shape {stored[name].shape}, which does not fit bert_config.json "
            f"({tuple(shape)} expected)"
        )
    return torch.from_numpy(np.array(array, dtype=np.float32, order="C"))


def _read_config(path: Path) -> tuple[MyBertConfig, list[str]]:
    """The configuration, and the names of settings that it has no use for."""
    try:
        values = parse_json(path.read_bytes())
        known = {field.name for field in dataclasses.fields(MyBertConfig)}
        config = MyBertConfig(**{name: value for name, value in values.items() if name in known})
    except FileNotFoundError as error:
        raise UserError(f"{path} is missing; it belongs beside the checkpoint") from error
    except (ValueError, TypeError, AttributeError, StrictDataclassError) as error:
        raise UserError(f"{path} is not a BERT configuration: {cause(error)}") from error
    return config, sorted(values.keys() - known)


def _read_tokenizer(path: Path, casing: str, config: MyBertConfig) -> tuple[MyBertTokenizer, bool]:
    """The tokenizer, and whether it lower-cases."""
    if not path.is_file():
        raise UserError(f"{path} is missing; it belongs beside the checkpoint")
    try:
        pieces = MyBertTokenizer(path).get_vocab()
        upper = any(piece != piece.lower() for piece in pieces if not re.fullmatch(r"\[.+\]", piece))
        uncased = not upper if casing == "auto" else casing == "uncased"
        tokenizer = MyBertTokenizer(path, do_lower_case=uncased, model_max_length=config.max_position_embeddings)
    except ValueError as error:
        raise UserError(str(error)) from error
    if len(tokenizer) != config.vocab_size:
        raise UserError(f"{path} has {len(tokenizer)} pieces, bert_config.json says {config.vocab_size}")
    return tokenizer, uncased
