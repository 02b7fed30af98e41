"""The time budget of a run: its clock, and its plan, which a resumed run reads back with the time used."""

import dataclasses
import math
import time
from pathlib import Path
from typing import Any

import datasets
import psutil
from accelerate.utils import broadcast_object_list
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from mybert.artifacts.manifest import write_json
from mybert.common.errors import UserError
from mybert.common.json_io import read_json_object
from mybert.common.quantities import duration, evenly
from mybert.pretraining.corpus_loading import Corpus
from mybert.pretraining.planning.budget_plan import PLAN, BudgetPlan, make_plan
from mybert.pretraining.settings import PretrainSettings
from mybert.training.run_folder import RunFolder
from mybert.training.sealed_checkpoints import checkpoints_in

_LEAST_LEFT = 0.1
"""Share of the budget that a resumed run needs to train from the first step."""
_WINDOW = 10.0
"""Seconds over which the slowness is measured."""


class ClockProgress:
    """Progress by the training time of a time budget, of which its schedules are functions.

    The budget also includes the time before the first step, and a reserve for evaluation and saving after the last
    step. The share changes only in `update`, so all readers between two updates get the same value.

    Args:
        budget: seconds of the whole run, over all its sessions.
        started: `time.monotonic()` at the start of this session (default: now).

    Attributes:
        earlier: seconds of earlier sessions.
        most: seconds of training after which the run ends although its budget has not.
        done: the share.
        reserve: expected seconds after the last step.
        slowness: wall time per second of CPU time in the last seconds; above 1 under other load.
    """

    def __init__(self, budget: float, started: float | None = None):
        self.budget, self.reserve, self.most = budget, 0.0, math.inf
        self._started, self.earlier = time.monotonic() if started is None else started, 0.0
        self._first: float | None = None  # seconds of the run before its first step
        self.done = 0.0
        self.slowness = 1.0
        self._mark = (self._started, 0.0 if started is not None else time.process_time())

    @property
    def seconds(self) -> float:
        """Seconds of this and all earlier sessions."""
        return self.earlier + time.monotonic() - self._started

    @property
    def training_seconds(self) -> float:
        """Seconds from the first to the last step."""
        first = self.seconds if self._first is None else self._first
        return max(min(self.budget - self.reserve - first, self.most), 1e-3)

    def start(self) -> float:
        """Marks the first step of the run; returns its time."""
        if self._first is None:
            self._first = self.seconds
        return self._first

    def measure_slowness(self) -> None:
        """Compares wall time and CPU time since the last call, or since the start."""
        mark, (wall, computed) = (time.monotonic(), time.process_time()), self._mark
        if mark[0] - wall >= _WINDOW:
            self.slowness, self._mark = max((mark[0] - wall) / max(mark[1] - computed, 0.1), 1.0), mark

    def update(self) -> None:
        """Reads the clock. The share never decreases, even if the reserve grows."""
        first = self.start()
        self.measure_slowness()
        self.done = min(max(self.done, (self.seconds - first) / self.training_seconds), 1.0)

    def state_dict(self) -> dict[str, Any]:
        return {"seconds": self.seconds, "first": self._first, "share": self.done, "reserve": self.reserve}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.earlier = max(self.earlier, state["seconds"])
        self._first, self.done, self.reserve = state["first"], state["share"], state["reserve"]
        if self._first is not None:  # what is lost with the steps after the checkpoint is taken from what is unused
            unused = max(self.budget - self.reserve - self.most - self._first, 0.0)
            self._first += min(self.seconds - state["seconds"], unused)


def process_start() -> float:
    """`time.monotonic()` at the start of this process, before Python's imports."""
    return time.monotonic() - (time.time() - psutil.Process().create_time())


class Budget(TrainerCallback):
    """Stores the plan of a run with a time budget, and the time used, summed over all sessions."""

    def __init__(self, plan: BudgetPlan, clock: ClockProgress):
        self.plan, self.clock = plan, clock
        self._stored = dataclasses.asdict(plan)  # before options that a resumed run may change replace some events
        self._file: Path | None = None

    @classmethod
    def prepare(
        cls,
        settings: PretrainSettings,
        arguments: TrainingArguments,
        corpus: Corpus,
        clock: ClockProgress,
        folder: RunFolder | None,
        given: set[str],
    ) -> "Budget":
        """Reads the plan of a resumed run; otherwise measures, makes a plan and prints it.

        `given`: names of options that are not chosen.
        """
        file = folder.path / PLAN if folder is not None and folder.is_resumed else None
        if file is not None and file.is_file():
            return cls._read(file, clock)
        if arguments.process_index == 0:
            print("measuring the speed of this machine: seconds, at most half a minute", flush=True)
        plan = make_plan(settings, arguments, corpus, clock, given)
        if arguments.world_size > 1:  # processes measure differently
            shared: list[Any] = [plan, clock.reserve]
            broadcast_object_list(shared)
            plan, clock.reserve = shared
        clock.most = plan.most_seconds
        if arguments.process_index == 0:
            plan.print(clock.budget)
        return cls(plan, clock)

    @classmethod
    def _read(cls, file: Path, clock: ClockProgress) -> "Budget":
        remedy = "start again with --overwrite"
        fields = read_json_object(file, remedy)
        try:
            clock.earlier = float(fields.pop("seconds"))
            fields["most_seconds"] = float(fields.get("most_seconds") or math.inf)
            plan = BudgetPlan(**fields)
        except (LookupError, TypeError, ValueError) as error:
            raise UserError(f"{file} is no plan of this version of MyBERT; {remedy}") from error
        clock.most = plan.most_seconds
        if clock.training_seconds < _LEAST_LEFT * min(clock.budget, clock.most) and not checkpoints_in(file.parent):
            raise UserError(
                f"--resume: {duration(clock.seconds)} of the time budget of {duration(clock.budget)} are used, and "
                f"{file.parent} has no checkpoint; {remedy}"
            )
        return cls(plan, clock)

    def keep(self, folder: Path) -> None:
        """Writes the plan and the time used into the output folder, and at each log again."""
        self._file = folder / PLAN
        self._write()

    def _write(self) -> None:
        if self._file is not None:
            write_json(self._file, self._stored | {"seconds": round(self.clock.seconds, 3)})

    def on_log(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        if args.process_index == 0:
            self._write()

    def course_options(self) -> dict[str, Any]:
        """Further arguments of `ScheduledCourse`."""
        plan = self.plan
        return {"clock": self.clock, "expected_steps": plan.steps, "events": plan.events, "later": plan.later}

    def results(self, tokens: int, optimizer: str) -> dict[str, Any]:
        """Entries of results.json: plan and expectation, also for the `tokens` that the run has seen."""
        plan = self.plan
        planned = {"tokens_per_second": plan.speed, "tokens": plan.tokens, "steps": plan.steps} if plan.speed else {}
        budget = {
            "seconds": self.clock.budget,
            "unused": plan.unused,
            "planned": planned,
            "expected": plan.expected,
            "expected_for_tokens_seen": plan.expectation(tokens, optimizer),
            "choices": plan.choices,
        }
        return {"budget": budget}

    def held_out(self, examples: datasets.Dataset | None) -> datasets.Dataset | None:
        """The held-out examples that the plan evaluates, evenly spaced."""
        if examples is None or self.plan.held_out is None:
            return examples
        return examples.select(evenly(len(examples), self.plan.held_out))
