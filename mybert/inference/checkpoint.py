"""`open_checkpoint`: a BERT or MyBERT with its tokenizer, and every error of loading as a one-line message."""

import contextlib
import pickle
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import torch
from huggingface_hub import hf_hub_download
from huggingface_hub.errors import EntryNotFoundError
from safetensors import SafetensorError
from transformers import PreTrainedConfig, PreTrainedModel
from transformers.utils import WEIGHTS_NAME, logging

import modeling_mybert
from modeling_mybert import (
    MyBertForMaskedLM,
    MyBertForNextSentencePrediction,
    MyBertForPreTraining,
    MyBertModel,
    MyBertPreTrainedModel,
)
from mybert.artifacts.checkpoint_folder import (
    CONFIG,
    WEIGHTS,
    check_checkpoint,
    check_folder,
    check_shapes,
    weight_files,
)
from mybert.common.errors import NOT_FINITE, UserError, cause, did_you_mean
from mybert.common.json_io import read_json_object
from mybert.common.machine import threads
from mybert.common.progress import no_model_bars
from mybert.common.quantities import counted, evenly
from mybert.inference.checkpoint_tokenizer import lacks_tokenizer, load_tokenizer, refuse_other_vocabulary
from mybert.inference.cpu import optimize_for_inference
from mybert.inference.onnx_model import ONNX_FILE

SENTENCE_SETTINGS = "config_sentence_transformers.json"
_PRETRAINING = (MyBertForPreTraining, MyBertForMaskedLM, MyBertForNextSentencePrediction)
Model = TypeVar("Model", bound=PreTrainedModel)


@dataclass(frozen=True)
class Checkpoint:
    """A model in evaluation mode with its tokenizer.

    Attributes:
        model: a `PreTrainedModel` of the class that was asked for.
        tokenizer: a `MyBertTokenizer`; None: the folder has none.
        missing: weights of the model that the checkpoint lacks; they are newly initialised.
        left_out: weights of the checkpoint that the model does not have.
    """

    name: str
    model: Any
    tokenizer: Any
    missing: list[str]
    left_out: list[str]


def open_checkpoint(name: str, head: type[PreTrainedModel] | None = None, **options: Any) -> Checkpoint:
    """Loads a BERT or a MyBERT with its tokenizer.

    Args:
        name: folder or Hub name; the weights are in safetensors or PyTorch format.
        head: class of the model; None: the one that was saved. The folder may then lack a tokenizer.
        options: see `load_model`. With the saved head, weights have the stored data type unless `dtype` is given.

    Raises:
        UserError: the checkpoint or the device cannot be used.
    """
    model, missing, left_out = _with_saved_head(name, **options) if head is None else load_model(head, name, **options)
    with explain_unreadable(name, checked=True):
        tokenizer = None if head is None and lacks_tokenizer(name) else load_tokenizer(name)
    if tokenizer is not None:
        refuse_other_vocabulary(name, tokenizer, model.config)
    return Checkpoint(name, model, tokenizer, missing, left_out)


def load_model(
    head: type[Model],
    name: str,
    *,
    new_head: bool = False,
    device: str | None = None,
    dtype: str | None = "float32",
    remedy: str = "they would be random; name a complete checkpoint",
    **options: Any,
) -> tuple[Model, list[str], list[str]]:
    """
    Args:
        new_head: whether the weights of head and pooler may be missing, or, with a `config`, of another shape.
        device: that of inference, see `choose_device`; None: the CPU, for training and conversion.
        dtype: of the model; None: as stored.
        remedy: end of the message about missing weights.
        options: arguments of `from_pretrained`, such as a `config` with other labels.

    Returns:
        The model in evaluation mode, and `missing` and `left_out` of `Checkpoint`. An encoder without weights for its
        pooler gets none.
    """
    with explain_unreadable(name):
        options |= {"output_loading_info": True, "ignore_mismatched_sizes": True}
        loaded: Any = head.from_pretrained(name, dtype=dtype and torch.float32, **options)
    model, report = loaded
    encoder = "" if model.base_model is model else f"{model.base_model_prefix}."

    def is_new(key: str) -> bool:
        return new_head and (not key.startswith(encoder) or key.startswith(f"{encoder}pooler."))

    for weight, stored, expected in sorted(report["mismatched_keys"]):
        if "config" not in options or not is_new(weight):
            shapes = f"has the shape {tuple(stored)}, and config.json requires {tuple(expected)}"
            raise UserError(f"checkpoint {name}: {weight} {shapes}")
    missing, left_out = sorted(report["missing_keys"]), sorted(report["unexpected_keys"])
    if isinstance(model, MyBertModel) and missing and all(key.startswith("pooler.") for key in missing):
        model.pooler, missing = None, []
    refuse_missing(name, [key for key in missing if not is_new(key)], remedy)
    _refuse_unknown(name, left_out, model)
    if device is None:  # what is computed for a row is checked by those who use it
        refuse_not_finite(name, model)
    model.config.return_dict = True  # a configuration may ask for tuples
    model.eval()
    if device is not None:
        dtype = dtype or "float32"
        activations = torch.float32 if dtype == "int8" else getattr(torch, dtype)
        model = optimize_for_inference(model.to(choose_device(device, model, dtype), activations))
    # position_ids: a constant that older versions of transformers saved
    return model, missing, [key for key in left_out if not key.endswith("position_ids")]


def keep_layers(model: PreTrainedModel, kept: int, name: str) -> None:
    """Removes all but `kept` evenly spaced layers of the BERT called `name` (as DistilBERT, Sanh et al. 2019)."""
    encoder: Any = model.base_model.encoder
    available = model.config.num_hidden_layers
    if kept > available:
        raise UserError(f"--layers {kept}: {name} has {counted(available, 'layer')}")
    encoder.layer = torch.nn.ModuleList(encoder.layer[number] for number in evenly(available, kept))
    model.config.num_hidden_layers = kept


def choose_device(name: str, model: PreTrainedModel, dtype: str = "float32") -> torch.device:
    """The device that `model` will be moved to; models with int8 weights run on the CPU in float32 only.

    Args:
        name: a torch device such as `cuda:1`; or `auto`, the GPU if there is one.
        dtype: the setting `dtype`.

    Raises:
        UserError: the device cannot be used, or the model has no weights of this data type.
    """
    if getattr(model.config, "int8_outliers", None) is not None:
        if name not in ("auto", "cpu") or dtype == "bfloat16":
            raise UserError("a model with int8 weights runs on the CPU in float32; leave out --device and --dtype")
        name = "cpu"
    elif dtype == "int8":
        raise UserError(
            f"checkpoint {model.name_or_path} has no int8 weights; run "
            f"`mybert quantize {model.name_or_path} --texts FILES --output int8` and use the folder int8"
        )
    if name == "auto":
        accelerator = torch.accelerator.current_accelerator(check_available=True)  # CUDA, MPS, XPU, …
        name = accelerator.type if accelerator is not None else "cpu"
    try:
        device = torch.device(name)
        torch.zeros(1, device=device).item()  # fails on the meta device
    except (RuntimeError, AssertionError) as error:  # AssertionError: torch was built without the device
        raise UserError(f"--device {name} cannot be used: {str(error).splitlines()[0]}") from error
    threads.share()
    return device


def _with_saved_head(name: str, **options: Any) -> tuple[PreTrainedModel, list[str], list[str]]:
    with explain_unreadable(name):
        values, _ = PreTrainedConfig.get_config_dict(name)
    head = head_of(values)
    cls = getattr(modeling_mybert, head, None)
    if cls is None or not issubclass(cls, MyBertPreTrainedModel):
        raise UserError(f"checkpoint {name} is a {head.removeprefix('My')}, which has no counterpart in MyBERT")
    remedy = f"they would be random in {head}"
    options = {"dtype": None, "new_head": True, "remedy": remedy, **options}
    loaded = load_model(cls, name, **options)
    if any(key.startswith("cls.") for key in loaded[2]):  # bert-base-uncased names this head only
        others = (load_model(kind, name, **options) for kind in _PRETRAINING)
        loaded = min((loaded, *others), key=lambda candidate: (len(candidate[1]), len(candidate[2])))
    refuse_missing(name, loaded[1], remedy.replace(head, type(loaded[0]).__name__))
    return loaded


def head_of(config: dict[str, Any]) -> str:
    """The MyBERT class of the head that a config.json names; its `architectures` are those of BERT."""
    saved = config.get("architectures") or ["BertModel"]
    return f"My{str(saved if isinstance(saved, str) else saved[0]).removeprefix('My')}"


def checkpoint_file(name: str, file: str) -> Path | None:
    """A file of a checkpoint, downloaded from the Hub; None if it has none of this name."""
    if Path(name).is_dir():
        return path if (path := Path(name) / file).is_file() else None
    try:
        return Path(hf_hub_download(name, file))
    except EntryNotFoundError:  # also if offline and not in the cache
        return None


@contextlib.contextmanager
def explain_unreadable(name: str, checked: bool = False) -> Iterator[None]:
    """Converts every exception of reading checkpoint `name` into a UserError; hides transformers' loading reports.

    Its files are checked first, unless they have been `checked`, which may take requests to the Hub.
    """
    if not checked:
        _check(name)
    try:
        with quiet_loading():
            yield
    except UserError:
        raise
    except pickle.UnpicklingError as error:  # torch.load's weights_only reads tensors only
        refused = next((line for line in str(error).splitlines() if "GLOBAL" in line), "not a file of tensors")
        raise UserError(
            f"checkpoint {name}: its PyTorch weights contain more than tensors and could run code when loaded "
            f"({refused.strip()}); use a copy in safetensors"
        ) from error
    except SafetensorError as error:
        raise UserError(f"checkpoint {name}: its weights are damaged ({cause(error)}); copy it again") from error
    except Exception as error:  # transformers and torch validate few types, so any exception is possible
        if (Path(name) / ONNX_FILE).is_file():
            raise UserError(
                f"checkpoint {name} is an ONNX export; name the checkpoint that it was made from"
            ) from error
        place = "" if Path(name).exists() else f"no such folder{did_you_mean(name)}; on the Hub: "
        reason = f"{place}{cause(error)}"
        raise UserError(
            f"checkpoint {name} cannot be used ({reason}); name a folder or Hub repository of a MyBERT or BERT"
        ) from error


@contextlib.contextmanager
def quiet_loading() -> Iterator[None]:
    """Mutes transformers' bars, and its reports on unused and new weights, which `refuse_missing` checks."""
    verbosity = logging.get_verbosity()
    logging.set_verbosity_error()
    try:
        with no_model_bars():
            yield
    finally:
        logging.set_verbosity(verbosity)


def _check(name: str) -> None:
    """`check_checkpoint`, also for models of the Hub and for PyTorch weights."""
    check_checkpoint(name)
    folder = Path(name)
    if not folder.is_dir():
        try:
            config, weights, index = (
                checkpoint_file(name, file) for file in (CONFIG, WEIGHTS, f"{WEIGHTS}.index.json")
            )
            for file in sorted(set(weight_files(index))) if index and not weights else ():
                checkpoint_file(name, file)
        except (OSError, ValueError):  # no access, or no name of a repository: from_pretrained explains it
            return
        if config is None:
            return
        folder = config.parent
        check_folder(name, folder)
    index, weights = folder / f"{WEIGHTS_NAME}.index.json", folder / WEIGHTS_NAME
    if index.is_file() or weights.is_file():
        shapes: dict[str, list[int]] = {}
        for file in [weights.name] if weights.is_file() else sorted(set(weight_files(index))):
            with contextlib.suppress(Exception):  # from_pretrained explains it; an old format has no index of shapes
                tensors = torch.load(folder / file, map_location="meta", weights_only=True, mmap=True)
                shapes |= {key: list(tensor.shape) for key, tensor in tensors.items()}
        check_shapes(name, read_json_object(folder / CONFIG, "copy it again"), shapes)


def refuse_not_finite(name: str, model: PreTrainedModel) -> None:
    """Raises a UserError if a weight of checkpoint `name` is NaN or infinite."""
    for key, weight in model.named_parameters():
        if not weight.isfinite().all():
            raise UserError(f"checkpoint {name}: {key} has NaN or infinite values; {NOT_FINITE}")


def _refuse_unknown(name: str, left_out: Iterable[str], model: PreTrainedModel) -> None:
    """Raises a UserError if weights of checkpoint `name` are part of what the model computes, which BERT lacks."""
    parts = {"embeddings", "encoder", *(part for part, _ in model.named_children())} - {"cls"}  # some have half of it
    unknown = []
    for key in left_out:
        part, _, rest = key.removeprefix(f"{model.base_model_prefix}.").partition(".")
        layer = re.match(r"layer\.(\d+)\.", rest)
        is_later = layer is not None and int(layer[1]) >= model.config.num_hidden_layers  # the first ones are read
        if part in parts and not is_later and rest != "position_ids":
            unknown.append(key)
    if unknown:
        raise UserError(
            f"checkpoint {name} has {counted(len(unknown), 'weight')} that BERT does not have, such as {unknown[0]}: "
            "it computes something else; merge an adapter into its BERT, or use the code that the model came with"
        )


def refuse_missing(name: str, missing: Iterable[str], remedy: str) -> None:
    """Raises a UserError that ends with `remedy` if weights of checkpoint `name` are missing."""
    if lacking := sorted(missing):
        raise UserError(f"checkpoint {name} lacks {counted(len(lacking), 'weight')}, such as {lacking[0]}; {remedy}")
