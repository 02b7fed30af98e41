"""What a training run says about itself: losses, tokens, speed, idle processes, and what is left to do."""

import logging
import math
import time
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from mybert.pretraining.planning.run_plan import flops_left, plan_at
from mybert.pretraining.spikes import SpikeMeter

if TYPE_CHECKING:
    from mybert.pretraining.trainer import MyBertTrainer

logger = logging.getLogger(__name__)

_MOST_OVERFLOWS = 20  # in float16; a smaller scale helps gradients that overflow, not losses


class Meter:
    """Notes what each step leaves on its device, and reads it when a log is due.

    Args:
        trainer: whose steps these are.
    """

    def __init__(self, trainer: "MyBertTrainer"):
        self.trainer = trainer
        self._steps: list[Tensor] = []  # (3,) mlm loss, nsp loss, real tokens of this process; since the last log
        self._tokens: Tensor | int = 0  # of this process, not yet counted in the state
        self._started, self._logged_at, self._tokens_logged = time.perf_counter(), 0.0, 0
        self._overflown = 0  # steps in a row without a finite loss
        self._spikes = SpikeMeter()

    # Steps

    def start_step(self, batches: Iterable[dict]) -> None:
        """Takes the batches that this process accumulates in one optimizer step."""
        tokens = 0
        for batch in batches:
            mask = batch.get("attention_mask")
            tokens += batch["input_ids"].numel() if mask is None else mask.sum()
        self._tokens += tokens
        self._steps.append(torch.zeros(3, device=self.trainer.args.device))
        self._steps[-1][2] += tokens

    def add_losses(self, parts: Sequence[Tensor | None], scale: int) -> None:
        """
        Args:
            parts: mlm and nsp loss of one batch of the step.
            scale: what Trainer multiplies losses by before the processes average their gradients.
        """
        for i, part in enumerate(parts):
            if part is not None:
                self._steps[-1][i] += part.detach() * scale

    def count_tokens(self) -> None:
        """Moves the tokens of all processes into the state, where checkpoints keep them."""
        trainer = self.trainer
        tokens = torch.as_tensor(self._tokens, device=trainer.args.device).reshape(1)
        if trainer.plans:
            trainer.current_flos += int(tokens) * plan_at(trainer.plans, trainer.state.global_step).flops_per_token
        trainer.state.num_input_tokens_seen += int(trainer.accelerator.gather(tokens).sum())
        self._tokens = 0

    # The log

    def entries(self) -> dict[str, float]:
        """What is logged of the steps since the last log; all processes must ask.

        Raises:
            UserError: a loss was not finite, and such steps are not left out.
        """
        trainer, step = self.trainer, self.trainer.state.global_step
        logs = self._read_steps()
        tokens, seconds = trainer.state.num_input_tokens_seen, self.training_seconds
        rate = (tokens - self._tokens_logged) / (seconds - self._logged_at)
        logs["num_input_tokens_seen"] = tokens
        logs["tokens_per_second"] = round(rate)
        logs["training_seconds"] = round(seconds, 3)
        if trainer.plans and rate:
            rate *= plan_at(trainer.plans, step).flops_per_token
            logs["seconds_left"] = round(flops_left(trainer.plans, step) / rate)
            if trainer.peak_flops:
                logs["mfu"] = round(rate / (trainer.peak_flops * trainer.args.world_size), 4)
        if trainer.guard.skipped:
            logs["steps_left_out"] = len(trainer.guard.skipped)
        return logs

    def _read_steps(self) -> dict[str, float]:
        """Mean losses over all processes, and how evenly these were loaded; reports losses that stand out."""
        first = self.trainer.state.global_step - len(self._steps)
        of_processes = self.trainer.accelerator.gather(torch.stack(self._steps)[None]).cpu()  # (processes, steps, 3)
        losses = of_processes[..., :2].mean(0).tolist()
        finite = self._finite_steps({first + place: sum(parts) for place, parts in enumerate(losses)})
        mlm_loss, nsp_loss = (
            math.fsum(losses[step - first][i] for step in finite) / len(finite) if finite else math.nan
            for i in range(2)
        )
        means = {"loss": mlm_loss + nsp_loss, "mlm_loss": mlm_loss}
        if self.trainer.train_dataset.has_pairs:
            means["nsp_loss"] = nsp_loss
        if len(of_processes) > 1:
            means["idle_share"] = round(idle_share(of_processes[..., 2]), 4)
        return means

    def _finite_steps(self, losses: dict[int, float]) -> list[int]:
        trainer = self.trainer
        finite = [step for step, loss in losses.items() if math.isfinite(loss)]
        broken = [step for step in losses if step not in finite and step not in trainer.guard.skipped]
        self._overflown = 0 if finite else self._overflown + len(broken)
        if broken and (trainer.accelerator.scaler is None or self._overflown >= _MOST_OVERFLOWS):
            trainer.guard.fail(broken[0], f"the loss is {losses[broken[0]]}")
        for place, median in self._spikes.find([losses[step] for step in finite]):
            step = finite[place]
            examples = trainer.name_examples(step)
            if trainer.is_world_process_zero():
                logger.warning("step %d: loss %.4g after %.4g, %s", step + 1, losses[step], median, examples)
        return finite

    def start_window(self) -> None:
        """Means and rates of the next log count from here."""
        self._steps.clear()
        self._logged_at = self.training_seconds
        self._tokens_logged = self.trainer.state.num_input_tokens_seen

    # The clock

    @property
    def training_seconds(self) -> float:
        """Wall time of training, evaluation left out, of this session and of those before it up to their last log."""
        return time.perf_counter() - self._started

    def start_clock(self) -> None:
        history = self.trainer.state.log_history
        before = [log["training_seconds"] for log in history if "training_seconds" in log]
        self._started = time.perf_counter() - max(before, default=0.0)

    def leave_out(self, seconds: float) -> None:
        """Time that was not spent on training."""
        self._started += seconds


def idle_share(tokens: Tensor) -> float:
    """The share of all processes' time that is spent waiting for the fullest, if time goes with tokens.

    A step ends for all when the process with the most tokens is done: 1 - Σ mean / Σ maximum, over the steps.

    Args:
        tokens: (processes, steps).
    """
    return 1 - (tokens.mean(0).sum() / tokens.amax(0).sum()).item()


def idle_share_of_run(log_history: Sequence[dict]) -> float | None:
    """The same over all steps that were logged; None if one process trained alone."""
    spent = read = before = 0
    for log in log_history:
        if "num_input_tokens_seen" not in log:
            continue
        if "idle_share" in log:
            read += log["num_input_tokens_seen"] - before
            spent += (log["num_input_tokens_seen"] - before) / (1 - log["idle_share"])
        before = log["num_input_tokens_seen"]
    return 1 - read / spent if spent else None
