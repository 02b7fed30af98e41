"""Where models compute, how batches come there, and how weights are loaded without transformers' remarks."""

import contextlib
from collections.abc import Iterator

import torch
from transformers import TrainingArguments
from transformers.utils import logging

from mybert.common.errors import UserError


def choose_device(name: str) -> torch.device:
    """
    Args:
        name: as torch has it, such as `cuda:1`; or `auto`, the GPU if there is one.

    Raises:
        UserError: there is no such device.
    """
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        device = torch.device(name)
        torch.zeros(1, device=device).item()  # which one without memory, such as meta, has not
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        raise UserError(f"--device {name} cannot be used: {str(error).splitlines()[0]}") from error
    return device


def feed_without_waiting(arguments: TrainingArguments) -> None:
    """Lets Trainer copy batches to a GPU from pinned memory while it still computes; for the CPU there is no such."""
    arguments.dataloader_pin_memory &= arguments.device.type == "cuda"  # torch warns where it has no effect
    arguments.accelerator_config.non_blocking |= arguments.dataloader_pin_memory


_WORTH_HALF = 256  # hidden size; smaller models train in minutes anyway


def advise_half(arguments: TrainingArguments, hidden_size: int) -> None:
    """Says so where the better part of a device is left unused, which its speed in float32 would not show."""
    if arguments.bf16 or arguments.fp16 or arguments.process_index != 0 or hidden_size < _WORTH_HALF:
        return
    if arguments.device.type == "cuda" and torch.cuda.is_bf16_supported():
        print("training in float32; this GPU is many times as fast in bfloat16: --bf16 true")
    elif arguments.device.type == "cpu" and _multiplies_bfloat16():
        print("training in float32; --bf16 true takes about half the time on this processor")


def _multiplies_bfloat16() -> bool:
    """Whether the processor has instructions for it (AMX, AVX-512); False where torch is too old to tell."""
    has = getattr(torch.cpu, "get_capabilities", dict)()
    return bool(has.get("amx_bf16") or has.get("avx512_bf16"))


@contextlib.contextmanager
def quiet_loading() -> Iterator[None]:
    """Mutes transformers, which reports weights of other heads and of a new one; see `loading.refuse_missing`."""
    verbosity, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(verbosity)
        if bars:
            logging.enable_progress_bar()
