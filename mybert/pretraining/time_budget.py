"""The plan of a run with a time budget, which a resumed run reads back with the time used."""

import dataclasses
import math
from pathlib import Path
from typing import Any

import datasets
from accelerate.utils import broadcast_object_list
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from mybert.artifacts.manifest import write_json
from mybert.common.errors import UserError
from mybert.common.json_io import read_json_object
from mybert.common.quantities import duration, evenly
from mybert.pretraining.clock import ClockProgress
from mybert.pretraining.corpus_loading import Corpus
from mybert.pretraining.planning.budget_plan import PLAN, BudgetPlan, make_plan
from mybert.pretraining.settings import PretrainSettings
from mybert.training.run_folder import RunFolder
from mybert.training.sealed_checkpoints import checkpoints_in

_LEAST_LEFT = 0.1
"""Share of the budget that a resumed run needs to train from the first step."""


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

    def results(self, tokens: int, optimizer: str) -> dict[str, Any]:
        """Entries of results.json: plan and expectation, also for the `tokens` that the run has seen."""
        plan = self.plan
        planned = {"tokens_per_second": plan.speed, "tokens": plan.tokens, "steps": plan.steps} if plan.speed else {}
        expected = {"expected": plan.expected, "expected_for_tokens_seen": plan.expectation(tokens, optimizer)}
        facts = {"seconds": self.clock.budget, "unused": plan.unused, "planned": planned, "choices": plan.choices}
        return {"budget": facts | expected}

    def held_out(self, examples: datasets.Dataset | None) -> datasets.Dataset | None:
        """The held-out examples that the plan evaluates, evenly spaced."""
        if examples is None or self.plan.held_out is None:
            return examples
        return examples.select(evenly(len(examples), self.plan.held_out))
