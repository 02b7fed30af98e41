"""Errors of checkpoint loading as one-line messages."""

import contextlib
import pickle
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TypeVar

import torch
from transformers import PreTrainedConfig, PreTrainedModel, PreTrainedTokenizerBase
from transformers.utils import WEIGHTS_NAME, cached_file

from mybert.common.checkpoint_folder import (
    CONFIG,
    WEIGHTS,
    check_checkpoint,
    check_folder,
    check_shapes,
    weight_files,
)
from mybert.common.devices import quiet_loading, torch_dtype
from mybert.common.error_messages import cause, did_you_mean
from mybert.common.errors import UserError
from mybert.common.json_io import read_json_object
from mybert.common.onnx_session import ONNX_FILE
from tokenization import MyBertTokenizer

_NEEDED = (CONFIG, WEIGHTS, f"{WEIGHTS}.index.json")
Model = TypeVar("Model", bound=PreTrainedModel)


@contextlib.contextmanager
def explain_unreadable(name: str) -> Iterator[None]:
    """Converts every exception of reading checkpoint `name` into a UserError; hides transformers' loading reports."""
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


def _check(name: str) -> None:
    """`check_checkpoint`, also for models of the Hub and for PyTorch weights."""
    check_checkpoint(name)
    folder = Path(name)
    if not folder.is_dir():
        try:
            files = [cached_file(name, file, _raise_exceptions_for_missing_entries=False) for file in _NEEDED]
        except OSError:  # no access
            return  # from_pretrained explains it
        if files[0] is None:
            return
        folder = Path(files[0]).parent
        if files[1] is None and files[2] is not None:
            for file in sorted(set(weight_files(Path(files[2])))):
                cached_file(name, file)
        check_folder(name, folder)
    index, weights = folder / f"{WEIGHTS_NAME}.index.json", folder / WEIGHTS_NAME
    if index.is_file() or weights.is_file():
        found: dict[str, list[int]] = {}
        for file in [weights.name] if weights.is_file() else sorted(set(weight_files(index))):
            with contextlib.suppress(Exception):  # from_pretrained explains it; an old format has no index of shapes
                tensors = torch.load(folder / file, map_location="meta", weights_only=True, mmap=True)
                found |= {key: list(tensor.shape) for key, tensor in tensors.items()}
        check_shapes(name, read_json_object(folder / CONFIG, "copy it again"), found)


def load_with_tokenizer(
    kind: type[Model], name: str, dtype: str = "float32"
) -> tuple[Model, MyBertTokenizer, list[str]]:
    """
    Args:
        kind: the model class, with the head to load.
        name: folder or Hub name.

    Returns:
        The model in evaluation mode, on the CPU; its tokenizer; the names of weights that the checkpoint lacks.
    """
    with explain_unreadable(name):
        tokenizer = MyBertTokenizer.from_pretrained(name)
        model, report = kind.from_pretrained(
            name, dtype=torch_dtype(dtype), output_loading_info=True, ignore_mismatched_sizes=True
        )
    refuse_other_shapes(name, report["mismatched_keys"])
    refuse_other_vocabulary(name, tokenizer, model.config)
    return model.eval(), tokenizer, sorted(report["missing_keys"])


def refuse_other_vocabulary(name: str, tokenizer: PreTrainedTokenizerBase, config: PreTrainedConfig) -> None:
    """Raises a UserError if the tokenizer of checkpoint `name` has more tokens than its model has embeddings."""
    if len(tokenizer) > config.vocab_size:
        raise UserError(
            f"checkpoint {name}: the tokenizer has {len(tokenizer)} tokens, the model {config.vocab_size} embeddings; "
            "they belong to different checkpoints"
        )


def refuse_missing(name: str, missing: Iterable[str], new: tuple[str, ...] = (), remedy: str = "") -> None:
    """Raises a UserError if weights of checkpoint `name` are missing (`missing_keys` of `from_pretrained`).

    Those with a prefix in `new` may be missing, since they are initialised. The message ends with `remedy`.
    """
    lacking = sorted(key for key in missing if not key.startswith(new))
    if lacking:
        remedy = remedy or "they would be random"
        raise UserError(f"checkpoint {name} lacks {len(lacking)} weights, such as {lacking[0]}; {remedy}")


def refuse_other_shapes(name: str, mismatched: list[tuple]) -> None:
    """Raises a UserError if weights of checkpoint `name` do not fit its configuration.

    `mismatched` are the `mismatched_keys` of `from_pretrained`: name, stored shape and expected shape.
    """
    for weight, stored, expected in sorted(mismatched):
        raise UserError(
            f"checkpoint {name}: {weight} has the shape {tuple(stored)}, and config.json requires {tuple(expected)}"
        )
