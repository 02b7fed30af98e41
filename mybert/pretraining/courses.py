"""How a pretraining goes on: in passes over its corpus, or by a schedule of length, batch size and masking, which a
time budget may end."""

import json
import math
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from accelerate.utils import broadcast
from torch.optim.lr_scheduler import LambdaLR
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments, get_scheduler
from transformers.trainer_utils import SaveStrategy

from mybert.pretraining.clock import ClockProgress
from mybert.pretraining.data.epoch_order import EpochSampler, Shuffled, TokenBudget
from mybert.pretraining.data.scheduled_batches import Schedule, ScheduledDataset, ScheduledSampler
from mybert.pretraining.planning.budget_plan import BudgetPlan
from mybert.pretraining.planning.flops_and_memory import Phase
from mybert.training.objective import Course
from mybert.training.trainer import RunTrainer

SCHEDULE = "schedule.json"
"""File of a checkpoint with the share of the run, the time used, and the batches that were decided."""
_MARGIN = 1.15
"""Factor of the expected time after the last step."""
_VIRTUAL_STEPS = 10_000
"""Number of steps of transformers' schedules when the clock determines the progress."""
_MEASURED = 20
"""Steps between two measures of steps at most, when the clock determines which steps are logged."""


class EpochCourse(Course):
    """Every example is read once per epoch.

    Args:
        max_tokens_per_batch: largest number of real tokens in a batch; None for `per_device_train_batch_size`
            sequences.
    """

    clock = None  # its steps are counted

    def __init__(self, max_tokens_per_batch: int | None = None):
        self._max_tokens = max_tokens_per_batch

    def begin(self, trainer: RunTrainer) -> None:
        super().begin(trainer)
        self.lengths = trainer.objective.lengths

    @property
    def _batch_size(self) -> int:
        """Sequences per device and forward pass, which --auto-find-batch-size may have reduced."""
        return self.trainer.get_total_train_batch_size(self.args) // self.batches_per_step

    def sampler(self) -> EpochSampler:
        fills = self.args.world_size > 1 and not self.args.dataloader_drop_last
        examples = Shuffled(len(self.lengths), self.trainer.order_seed)
        return EpochSampler(examples, multiple=self.args.world_size * self._batch_size if fills else 1)

    def batch_sampler(self) -> EpochSampler | None:
        return None if self._max_tokens is None else EpochSampler(self._budget(self._max_tokens))

    def _budget(self, tokens: int) -> TokenBudget:
        return TokenBudget(self.lengths, tokens, self.trainer.order_seed, self.args.world_size)

    @cached_property
    def phases(self) -> list[Phase]:
        """One phase."""
        sequences: float = self._batch_size
        if self._max_tokens is not None:
            sequences = len(self.lengths) / len(self._budget(self._max_tokens))
        steps = self.trainer.steps_with(self.trainer.get_train_dataloader())
        masked = self.trainer.data_collator.masker.mlm_probability
        return [self.trainer.objective.phase(self.lengths, steps, sequences, masked)]

    def current_phase(self) -> Phase:
        return self.phases[0]


class ScheduledCourse(Course, TrainerCallback):
    """How a run goes by the share that is done: its batches follow a schedule, and a clock may end it.

    Args:
        schedule: length, tokens and masking share by the share of the run.
        clock: the clock of a time budget; None counts steps.
        plan: with a clock, that of the time budget.
    """

    def __init__(self, schedule: Schedule, clock: ClockProgress | None = None, plan: BudgetPlan | None = None):
        plan = plan or BudgetPlan({}, [])
        self.schedule, self.clock, self._expected_steps = schedule, clock, max(plan.steps, 1)
        self.events, self._later = plan.events, plan.later
        self._marks: dict[str, int] = {}  # parts of the run that are done, by event

    def begin(self, trainer: RunTrainer) -> None:
        super().begin(trainer)
        self.lengths = trainer.objective.lengths
        if self.clock is None and self.args.max_steps <= 0:
            # as many tokens as `num_train_epochs` passes over whole examples; the sampler has one epoch with all steps
            tokens = self.args.num_train_epochs * self.lengths.sum()
            self.args.max_steps = math.ceil(tokens / (np.mean(self.schedule.tokens) * self.batches_per_step))
        trainer.train_dataset = ScheduledDataset(trainer.objective.examples.corpus, trainer.data_collator.masker.seed)
        trainer.add_callback(self)
        if "log" in self.events:  # the clock decides which steps are logged
            trainer.measures.every = min(max(int(self._expected_steps / self.events["log"]), 1), _MEASURED)
        self.keep_reserve()

    # The share of the run

    @property
    def share(self) -> float:
        return self.share_at(self.trainer.state.global_step)

    def share_at(self, step: int) -> float:
        """The share that is done after `step` steps; with a clock, at its last update."""
        return min(step / self.args.max_steps, 1.0) if self.clock is None else self.clock.done

    def planned_steps(self) -> int:
        """The number of steps of the run; with a time budget, the current estimate."""
        if self.clock is None:
            return self.args.max_steps
        share, step = self.clock.done, self.trainer.state.global_step
        if share >= 1 and step:
            return step
        # at least one step more than the next one, at which transformers would stop
        return max(step + 2, round(step / share) if share > 0.01 else self._expected_steps)

    def resumed_message(self, state: TrainerState, steps: int) -> str:
        if self.clock is None:
            return super().resumed_message(state, steps)
        return f"{state.global_step:,} steps are done, {self.share:.0%} of the time for training is used"

    def load(self, checkpoint: Path) -> None:
        saved = json.loads((checkpoint / SCHEDULE).read_text(encoding="utf-8"))
        if self.clock is not None:
            self.clock.load_state_dict(saved["progress"])
        self.batches.load_state_dict(saved["sampler"], self.trainer.state.global_step)

    def states(self) -> dict[str, dict[str, Any]]:
        step = self.trainer.state.global_step
        progress = {} if self.clock is None else self.clock.state_dict()
        return {SCHEDULE: {"progress": progress, "sampler": self.batches.state_dict(step)}}

    def keep_reserve(self) -> None:
        """Reserves the time that evaluation and saving took last, and that of the rest, for the end."""
        if self.clock is not None:
            later = self._later | self.trainer.metrics.pauses
            rest = later.get("rest", 0.0) * self.clock.slowness
            self.clock.reserve = _MARGIN * (later.get("evaluate", 0.0) + later.get("save", 0.0) + rest)

    # Examples and learning rate

    @cached_property
    def batches(self) -> ScheduledSampler:
        number = self.args.max_steps * self.batches_per_step
        seed = self.trainer.order_seed
        return ScheduledSampler(self.schedule, self.share_at, self.lengths, seed, number, self.batches_per_step)

    def batch_sampler(self) -> ScheduledSampler:
        return self.batches

    def scheduler(self, optimizer: torch.optim.Optimizer) -> LambdaLR | None:
        """transformers' schedule as a function of the share of the time."""
        if self.clock is None:
            return None
        steps, given = _VIRTUAL_STEPS, dict[str, Any](self.args.lr_scheduler_kwargs or {})
        counts = [name for name in ("num_decay_steps", "num_stable_steps") if given.get(name)]
        own = {name: round(self._share_of_run(given[name]) * steps) for name in counts}
        known = get_scheduler(
            self.args.lr_scheduler_type,
            # the rates of the real one must not be changed twice
            optimizer=torch.optim.SGD([torch.zeros(1)], self.args.learning_rate),
            num_warmup_steps=max(round(self._share_of_run(self.args.warmup_steps) * steps), 1),
            num_training_steps=steps,
            scheduler_specific_kwargs=given | own,
        )
        return LambdaLR(optimizer, lambda step: known.lr_lambdas[0](self.share_at(step) * steps))

    def _share_of_run(self, steps: float) -> float:
        """The share of a run with a time budget: `steps` itself if below 1, otherwise of the expected steps."""
        return steps if steps < 1 else min(steps / self._expected_steps, 1)

    # Costs

    @cached_property
    def phases(self) -> list[Phase]:
        """One phase for each length of the schedule."""
        steps, phases, start, before = self.planned_steps(), [], 0, 0.0
        for length, end in self.schedule.lengths:
            lengths = np.minimum(self.lengths, length)
            middle, stop = (before + end) / 2, round(end * steps)
            sequences = max(1, round(self.schedule.tokens_per_batch(middle) / lengths.mean()))
            masked = self.schedule.mlm_probability(middle)
            phases.append(self.trainer.objective.phase(lengths, stop - start, sequences, masked))
            start, before = stop, end
        return phases

    def current_phase(self) -> Phase:
        ends = [end for _, end in self.schedule.lengths]
        return self.phases[next((i for i, end in enumerate(ends) if self.share < end), -1)]

    # Callbacks at the ends of steps

    def on_train_begin(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        if self.clock is not None:
            self.clock.start()
            self._read_clock(state)
            for name, parts in self.events.items():
                self._marks[name] = math.floor(self.share * parts)

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        """Counts epochs by the examples read; with a clock, reads it and logs, evaluates, saves and stops by it."""
        state.epoch = self.batches.position(state.global_step) / len(self.lengths)
        self.batches.forget(state.global_step)
        if self.clock is not None:
            self.keep_reserve()
            self._read_clock(state)
            self._act(args, control)

    def _read_clock(self, state: TrainerState) -> None:
        """Reads the clock of process 0."""
        clock: Any = self.clock  # there is one
        clock.update()
        if self.args.world_size > 1:
            share = torch.tensor([clock.done], dtype=torch.float64, device=self.args.device)
            clock.done = broadcast(share).item()
        state.max_steps = self.planned_steps()

    def _act(self, args: TrainingArguments, control: TrainerControl) -> None:
        for name, parts in self.events.items():
            now = math.floor(self.share * parts)
            if now > self._marks.get(name, 0):
                self._marks[name] = now
                setattr(control, f"should_{name}", True)
        if self.share >= 1:
            control.should_training_stop = control.should_log = True
            control.should_save |= "save" in self.events or args.save_strategy != SaveStrategy.NO
            control.should_evaluate = False  # the finished model is evaluated
