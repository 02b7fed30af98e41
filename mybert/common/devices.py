"""Device selection, and loading of weights without messages from transformers."""

import contextlib
from collections.abc import Iterator

import torch
from transformers.utils import logging

from mybert.common.errors import UserError


def choose_device(name: str) -> torch.device:
    """`name` is a torch device such as `cuda:1`; or `auto`, the GPU if there is one."""
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        device = torch.device(name)
        torch.zeros(1, device=device).item()  # fails on the meta device
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        raise UserError(f"--device {name} cannot be used: {str(error).splitlines()[0]}") from error
    return device


@contextlib.contextmanager
def quiet_loading() -> Iterator[None]:
    """Mutes transformers' reports on unused and new weights; `refuse_missing` checks them."""
    verbosity, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(verbosity)
        if bars:
            logging.enable_progress_bar()
