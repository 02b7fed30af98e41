"""The log of a training: log.jsonl, and experiment trackers (--report-to)."""

import functools
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from transformers import Trainer
from transformers.integrations.integration_utils import INTEGRATION_TO_CALLBACK

from mybert.artifacts.manifest import HISTORY, json_line
from mybert.common.errors import UserError, cause


class History:
    """Writes log.jsonl into the folder of a run, from `restart` on, if it `writes` at all."""

    def __init__(self, writes: bool):
        self._writes = writes
        self.path: Path | None = None

    def restart(self, folder: str, log_history: Sequence[Mapping[str, Any]]) -> None:
        """Writes all events so far; a resumed run repeats none that its checkpoint does not know."""
        if self._writes:
            self.path = Path(folder) / HISTORY
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self.path.write_text("".join(map(history_line, log_history)), encoding="utf-8", newline="\n")

    def append(self, event: Mapping[str, Any]) -> None:
        if self.path:
            with self.path.open("a", encoding="utf-8", newline="\n") as file:
                file.write(history_line(event))


def history_line(event: Mapping[str, Any]) -> str:
    """A line of JSON from an entry of `TrainerState.log_history`.

    It begins with `step`, `epoch`, `tokens` (real tokens so far) and `seconds` (of training, without evaluation and
    saving).
    """
    return json_line(dict.fromkeys(("step", "epoch", "tokens", "seconds")) | dict(event))


# Experiment trackers


def settle_trackers(trainer: Trainer) -> None:
    """Makes trackers that cannot start raise a UserError, and leaves out values that are None."""
    trackers: Any = tuple(INTEGRATION_TO_CALLBACK.values())
    for callback in trainer.callback_handler.callbacks:
        if isinstance(callback, trackers):
            callback.on_train_begin = functools.partial(_explained, callback.on_train_begin)
            callback.on_log = functools.partial(_known, callback.on_log)


def _explained(begin: Callable[..., Any], *arguments: Any, **kwargs: Any) -> Any:
    """Raises a UserError if a tracker cannot be used, for example without a login."""
    try:
        return begin(*arguments, **kwargs)
    except Exception as error:  # each tracker has its own types
        raise UserError(f"--report-to: {cause(error)}") from error


def _known(on_log: Callable[..., Any], *arguments: Any, logs: dict[str, float] | None = None, **kwargs: Any) -> Any:
    logs = {name: value for name, value in (logs or {}).items() if value is not None}
    return on_log(*arguments, logs=logs, **kwargs)
