"""Training metrics: losses, tokens, speed, idle processes."""

import contextlib
import math
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor


class Step(NamedTuple):
    """An optimizer step, over all processes.

    Attributes:
        losses: mean over the processes of each part of the loss.
        mean_tokens, max_tokens: real tokens of a process.
    """

    losses: list[float]
    mean_tokens: float
    max_tokens: float


class TrainingMetrics:
    """Collects losses and token counts on the device; reads them when a log or a checkpoint is due.

    Checkpoints contain the steps since the last log, so a resumed run logs the same values as an uninterrupted one.

    Args:
        parts: names of the parts of the loss; their sum is the loss.
        gather: concatenates a tensor of every process along its first dimension, such as `Accelerator.gather`.

    Attributes:
        logged_seconds: `seconds` at the last log.
    """

    def __init__(self, parts: Sequence[str], device: torch.device, gather: Callable[[Tensor], Tensor]):
        self.parts, self.device, self.gather = parts, device, gather
        self.pauses: dict[str, float] = {}
        self.load_state_dict({})

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Begins where `state_dict` was taken; at the first step if `state` is empty."""
        self._loaded = state
        self.start()

    def start(self) -> None:
        """Begins at the loaded state, with the clock running from now."""
        state = self._loaded
        self._rows: list[Tensor] = []  # (parts + 1,) each: losses, then real tokens, of this process
        steps = state.get("steps", [])  # JSON has null for a loss that is not finite
        self._steps = [Step([math.nan if x is None else x for x in losses], *tokens) for losses, *tokens in steps]
        self._tokens: Tensor | int = 0
        self.logged_seconds, self._logged_tokens = state.get("logged_seconds", 0.0), state.get("logged_tokens", 0)
        self._started = time.perf_counter() - state.get("seconds", 0.0)
        self._paused: float | None = None

    def state_dict(self) -> dict[str, Any]:
        """The clock and the steps since the last log, as JSON. All processes must call it."""
        return {
            "steps": self.read_steps(),
            "seconds": self.seconds,
            "logged_seconds": self.logged_seconds,
            "logged_tokens": self._logged_tokens,
        }

    # Steps

    def start_step(self, batches: Sequence[dict[str, Any]]) -> None:
        """Counts the tokens of the batches that this process accumulates in the step."""
        tokens = 0
        for batch in batches:
            masks = [value for name, value in batch.items() if name.endswith("attention_mask")]  # one for each text
            if masks:
                tokens += sum(mask.sum() for mask in masks)
            elif "input_ids" in batch:  # otherwise the model tokenizes
                tokens += batch["input_ids"].numel()
        self._tokens += tokens
        self._rows.append(torch.zeros(len(self.parts) + 1, device=self.device))
        self._rows[-1][-1] += tokens

    def add_losses(self, losses: Sequence[Tensor | None]) -> None:
        """Adds the parts of the loss of one batch.

        Their sum over the batches and their mean over the processes is the loss of the step.
        """
        for i, loss in enumerate(losses):
            if loss is not None:
                self._rows[-1][i] += loss.detach()

    def take_tokens(self) -> Tensor:
        """Real tokens of this process since the last call, (1,)."""
        tokens, self._tokens = self._tokens, 0
        return torch.as_tensor(tokens, device=self.device).reshape(1)

    def read_steps(self) -> list[Step]:
        """The steps since the last log. All processes must call it."""
        if self._rows:
            rows = self.gather(torch.stack(self._rows)[None]).cpu()  # (processes, steps, parts + 1)
            means, most = rows.mean(0).tolist(), rows[..., -1].amax(0).tolist()
            self._steps += [Step(mean[:-1], mean[-1], tokens) for mean, tokens in zip(means, most, strict=True)]
            self._rows.clear()
        return self._steps

    def take_logs(self, skipped: Sequence[bool], tokens_seen: int) -> dict[str, float]:
        """The log of the steps since the last one, which ends here. All processes must call it.

        Args:
            skipped: for each of `read_steps`, whether it is left out of the means.
            tokens_seen: real tokens of all processes since the first step.
        """
        steps, seconds = self.read_steps(), self.seconds
        kept = [step.losses for step, skip in zip(steps, skipped, strict=True) if not skip]
        means = [math.fsum(losses) / len(kept) for losses in zip(*kept, strict=True)] or [math.nan] * len(self.parts)
        logs = {"loss": sum(means)}
        if len(self.parts) > 1:
            logs |= dict(zip(self.parts, means, strict=True))
        rate = (tokens_seen - self._logged_tokens) / max(seconds - self.logged_seconds, 1e-9)
        logs |= {"tokens": tokens_seen} | ({"tokens_per_second": round(rate)} if tokens_seen else {})  # 0: not counted
        if any(step.max_tokens > step.mean_tokens for step in steps):
            logs["idle_share"] = round(idle_share(steps), 4)
        self._steps, self.logged_seconds, self._logged_tokens = [], seconds, tokens_seen
        return logs

    # Clock

    @property
    def seconds(self) -> float:
        """Wall time of training without evaluation and saving, over all sessions that led to this step."""
        return (self._paused or time.perf_counter()) - self._started

    @contextlib.contextmanager
    def paused(self, what: str) -> Iterator[None]:
        """Stops the clock while the model is evaluated or saved; `pauses` has the seconds of the last time."""
        if self.device.type != "cpu":  # the steps that it still computes are training
            torch.accelerator.synchronize(self.device)
        self._paused = time.perf_counter()
        try:
            yield
        finally:
            self.pauses[what] = time.perf_counter() - self._paused
            self._started += self.pauses[what]
            self._paused = None


def idle_share(steps: Sequence[Step]) -> float:
    """Share of the processes' time spent waiting for the one with the most tokens, if time is proportional to tokens.

    A step ends when that process does: 1 - Σ mean / Σ maximum, over the steps.
    """
    return 1 - math.fsum(step.mean_tokens for step in steps) / math.fsum(step.max_tokens for step in steps)


def idle_share_of_run(log_history: Sequence[dict[str, Any]]) -> float | None:
    """`idle_share` over all logged steps; None if one process trained alone."""
    logs = [log for log in log_history if "loss" in log]
    if not any("idle_share" in log for log in logs):
        return None
    used = spent = 0
    for log in logs:
        tokens, used = log["tokens"] - used, log["tokens"]
        spent += tokens / (1 - log.get("idle_share", 0.0))
    return 1 - used / spent
