"""`mybert finetune --dry-run`: the plan of the runs, and time and memory measured on a few steps."""

import copy
import dataclasses
from collections.abc import Sequence

import psutil
import torch
from transformers.trainer_utils import IntervalStrategy, SaveStrategy

from mybert.common.quantities import duration, with_unit
from mybert.common.tables import print_table
from mybert.finetuning.cross_validation import folds_of
from mybert.finetuning.few_labels import planned_steps
from mybert.finetuning.recipes import Run
from mybert.finetuning.training import Job, build_trainer
from mybert.tasks.features import rows_cut
from mybert.training.trainer import RunTrainer


def dry_run(job: Job, planned: Sequence[Run]) -> None:
    """Prints the plan and trains a few steps of the first run, which writes nothing."""
    arguments = copy.deepcopy(job.arguments)
    arguments.save_strategy, arguments.eval_strategy = SaveStrategy.NO, IntervalStrategy.NO
    arguments.load_best_model_at_end, arguments.report_to = False, []
    trainer = build_trainer(dataclasses.replace(job, arguments=arguments), planned[0], dry_run=True)
    if trainer.is_world_process_zero():
        _print_plan(job, planned, trainer)
    trainer.train()
    if trainer.is_world_process_zero():
        _print_measurement(planned, trainer, folds_of(job) or 1, _planned_steps(job, trainer))


def _planned_steps(job: Job, trainer: RunTrainer) -> int:
    return planned_steps(len(job.data.train_features)) if job.data.few_labels else trainer.planned_steps()


def _print_plan(job: Job, planned: Sequence[Run], trainer: RunTrainer) -> None:
    features, recipe = job.data.train_features, planned[0].recipe
    rows = [
        ("parameters", trainer.model.num_parameters()),
        ("runs", len(planned)),
        ("learning rate of the first run", f"{recipe.learning_rate:g}"),
        ("training features", len(features)),
        ("tokens per sequence (--max-length)", job.task.options.length),
        ("training rows cut at --max-length", rows_cut(features)),
        ("steps of the first run", _planned_steps(job, trainer)),
        ("features per step", trainer.get_total_train_batch_size(trainer.args)),
        ("epochs", "by --max-steps" if job.arguments.max_steps > 0 else f"{recipe.epochs:g}"),
        ("checkpoint", with_unit(trainer.checkpoint_bytes(), "B")),
    ]
    print_table("Plan", rows)


def _print_measurement(planned: Sequence[Run], trainer: RunTrainer, folds: int, steps: int) -> None:
    """Prints speed, memory, and the time of all runs; those of other recipes read the rows in proportion to epochs.

    The models of `folds` together read the rows one time less than there are folds.
    """
    on_gpu = trainer.args.device.type == "cuda"
    memory = torch.cuda.max_memory_allocated() if on_gpu else psutil.Process().memory_info().rss
    seconds = trainer.seconds_per_step
    tokens = trainer.state.num_input_tokens_seen / trainer.state.global_step
    runs = folds - 1 + sum(run.recipe.epochs for run in planned) / planned[0].recipe.epochs
    print(
        f"measured: {seconds:.3g} s per step, {tokens / seconds:,.0f} tokens/s, {with_unit(memory, 'B')} of memory; "
        f"{duration(runs * steps * seconds)} of training in total, without evaluation"
    )
