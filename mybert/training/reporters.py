"""Experiment trackers (--report-to): transformers' integrations, with the names of log.jsonl."""

import functools
import os
from collections.abc import Callable, Sequence

from transformers import Trainer
from transformers.integrations.integration_utils import INTEGRATION_TO_CALLBACK, is_wandb_available

from mybert.common.error_messages import cause
from mybert.common.errors import UserError
from mybert.training.history import log_name


def check_login(names: Sequence[str]) -> None:
    """Raises a UserError if a tracker has no login."""
    if "wandb" in names and is_wandb_available() and not _has_wandb_login():
        raise UserError(
            "--report-to wandb: there is no login; use `wandb login` or WANDB_API_KEY, or WANDB_MODE=offline to log "
            "into files"
        )


def _has_wandb_login() -> bool:
    """Whether wandb has an API key, or needs none. Nothing is sent."""
    if os.environ.get("WANDB_API_KEY") or os.environ.get("WANDB_IDENTITY_TOKEN_FILE"):
        return True
    if os.environ.get("WANDB_MODE", "online") not in ("online", "shared"):
        return True
    import wandb  # after the checks of the environment: its import takes seconds

    return bool(wandb.login(prompt=False, verify=False))


def name_as_in_log(trainer: Trainer) -> None:
    """Makes the trackers of a trainer log under the names of log.jsonl, such as `tokens` and `seconds`.

    A tracker that cannot start raises a UserError.
    """
    trackers = tuple(INTEGRATION_TO_CALLBACK.values())
    for callback in trainer.callback_handler.callbacks:
        if isinstance(callback, trackers):
            callback.on_train_begin = functools.partial(_explained, callback.on_train_begin)
            callback.on_log = functools.partial(_renamed, callback.on_log)


def _explained(begin: Callable, *arguments, **kwargs):
    """Raises a UserError if a tracker cannot be used, for example without a login."""
    try:
        return begin(*arguments, **kwargs)
    except Exception as error:  # each tracker has its own types
        raise UserError(f"--report-to: {cause(error)}") from error


def _renamed(on_log: Callable, args, state, control, logs=None, **kwargs):
    logs = {log_name(name): value for name, value in (logs or {}).items() if value is not None}
    return on_log(args, state, control, logs=logs, **kwargs)
