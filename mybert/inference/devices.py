"""Device selection, and loading of weights without messages from transformers."""

import contextlib
from collections.abc import Iterator

import torch
from transformers import PreTrainedModel
from transformers.utils import logging

from mybert.common.errors import UserError
from mybert.common.machine import threads
from mybert.common.progress import no_model_bars


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


def torch_dtype(dtype: str) -> torch.dtype:
    """The data type of activations for the setting `dtype`: float32 for int8 weights."""
    return getattr(torch, "float32" if dtype == "int8" else dtype)


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
