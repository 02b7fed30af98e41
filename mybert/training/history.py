"""log.jsonl: the history of a training as numbers, one JSON object per log or evaluation."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from mybert.common.manifest import HISTORY, json_line

_NAMES = {"num_input_tokens_seen": "tokens", "training_seconds": "seconds"}


class History:
    """Writes log.jsonl into the folder of a run, from `restart` on, if it `writes` at all."""

    def __init__(self, writes: bool):
        self._writes = writes
        self.path: Path | None = None

    def restart(self, folder: str, log_history: Sequence[Mapping]) -> None:
        """Writes all events so far; a resumed run repeats none that its checkpoint does not know."""
        if self._writes:
            self.path = Path(folder) / HISTORY
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self.path.write_text("".join(map(history_line, log_history)), encoding="utf-8", newline="\n")

    def append(self, event: Mapping) -> None:
        if self.path:
            with self.path.open("a", encoding="utf-8", newline="\n") as file:
                file.write(history_line(event))


def history_line(event: Mapping) -> str:
    """A line of JSON from an entry of `TrainerState.log_history`.

    It has `step`, `epoch`, `tokens` (real tokens so far), `seconds` (of training, without evaluation and saving) and
    the other names as Trainer logs them.
    """
    first = dict.fromkeys(("step", "epoch", "tokens", "seconds"))
    return json_line(first | {log_name(name): value for name, value in event.items()})


def log_name(name: str) -> str:
    """The name in log.jsonl of a value that Trainer logs."""
    return _NAMES.get(name, name)
