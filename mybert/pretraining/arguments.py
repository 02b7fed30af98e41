"""TrainingArguments of pretraining, and the checks of settings and arguments before it starts."""

import copy
import dataclasses
from dataclasses import dataclass
from typing import Any

from transformers import TrainingArguments
from transformers.trainer_utils import IntervalStrategy, SaveStrategy, SchedulerType

from mybert.common.errors import UserError
from mybert.pretraining.settings import PretrainingOptions, PretrainSettings
from mybert.training.arguments import RunArguments, prepare_launch
from mybert.training.run_folder import RunFolder

STAGE = "pretrain"


@dataclass
class PretrainingArguments(PretrainingOptions, RunArguments):
    """transformers' TrainingArguments with the defaults of `PretrainingOptions`."""

    def __post_init__(self) -> None:
        super().__post_init__()
        config: Any = self.accelerator_config
        if config.split_batches or config.dispatch_batches:
            raise UserError(
                "accelerator_config: each process reads its own batches; leave split_batches and dispatch_batches out"
            )


def check_output(settings: PretrainSettings, arguments: TrainingArguments | None = None) -> None:
    """Checks the output folder and the arguments of `pretrain` before its corpus is built."""
    arguments = PretrainingArguments(output_dir=settings.output) if arguments is None else copy.deepcopy(arguments)
    check_arguments(settings, arguments, STAGE)
    if not settings.dry_run:
        inputs = (*settings.text, settings.init_from)
        RunFolder(settings, STAGE, inputs)


def check_arguments(settings: PretrainSettings, arguments: TrainingArguments, stage: str) -> None:
    """Raises a UserError if `arguments` cannot be used with `settings`; completes the others."""
    prepare_launch(arguments, settings.output, stage)
    if settings.is_scheduled:
        check_schedule_settings(settings, arguments)
    if settings.initial_weights != "random" and stage != STAGE:
        raise UserError(f"`mybert {stage}` has no --initial-weights")
    if arguments.fsdp and arguments.device.type == "cpu":  # accelerate would silently keep whole copies
        raise UserError("--fsdp has no effect on the CPU, where each process holds the whole model; leave it out")
    if settings.optimizer == "muon" and arguments.optim != type(arguments).optim:
        raise UserError("--optim has no effect with --optimizer muon; leave one of them out")
    if settings.optimizer == "muon" and (arguments.fsdp or arguments.deepspeed):
        raise UserError("--optimizer muon needs whole matrices: leave --fsdp and --deepspeed out")
    if settings.dry_run:
        arguments.save_strategy, arguments.eval_strategy = SaveStrategy.NO, IntervalStrategy.NO
        arguments.report_to = []


def check_schedule_settings(settings: PretrainSettings, arguments: TrainingArguments) -> None:
    """Raises a UserError for arguments that have no effect with a schedule, or contradict a time budget."""
    if IntervalStrategy.EPOCH in (arguments.eval_strategy, arguments.save_strategy, arguments.logging_strategy):
        raise UserError("with a schedule or a time budget, log, evaluate and save by steps, not by epoch")
    if settings.time_budget is None:
        return
    for name in ("max_steps", "num_train_epochs"):
        if name in given_options(settings, arguments):
            raise UserError(
                f"--time-budget and --{name.replace('_', '-')} exclude each other: one ends the run by the clock, one "
                "by steps; leave one of them out"
            )
    schedule = SchedulerType(arguments.lr_scheduler_type).value
    if schedule in ("reduce_lr_on_plateau", "greedy"):
        raise UserError(
            f"--lr-scheduler-type {schedule} cannot be used with --time-budget: it knows no end of the run"
        )
    if arguments.load_best_model_at_end:
        raise UserError("--load-best-model-at-end cannot be used with --time-budget: the last model is the best")


def given_options(settings: Any, arguments: TrainingArguments) -> set[str]:
    """Names of the options that the user gave."""
    names: set[str] = set()
    for part in (settings, arguments):
        changed = {entry.name for entry in dataclasses.fields(part) if getattr(part, entry.name) != _default(entry)}
        names |= getattr(part, "given", changed)
    return names


def _default(entry: dataclasses.Field[Any]) -> Any:
    return entry.default if entry.default_factory is dataclasses.MISSING else entry.default_factory()
