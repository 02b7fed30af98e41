"""`mybert finetune`: checkpoint + labelled rows → a model with the head of a task."""

import copy
import dataclasses
import math
import shutil
from pathlib import Path
from typing import Any

import numpy as np
from accelerate import PartialState
from transformers import TrainingArguments
from transformers.trainer_utils import IntervalStrategy

from mybert.artifacts.manifest import identity
from mybert.common.errors import UserError
from mybert.common.metrics import metric_of, metric_title
from mybert.evaluation.analysis import check_slices
from mybert.evaluation.labelling_files import check_form
from mybert.finetuning import few_labels
from mybert.finetuning.arguments import FinetuningArguments
from mybert.finetuning.cross_validation import FOLDS, check_folds, cross_validated, folds_of, trainer_of_fold
from mybert.finetuning.dry_run import dry_run
from mybert.finetuning.recipes import Run, planned_runs, runs_to_keep
from mybert.finetuning.report import write_results
from mybert.finetuning.run_data import RunData, load_data, new_task
from mybert.finetuning.settings import (
    BATCH,
    EPOCHS,
    FinetuneSettings,
    default_batch_size,
    default_epochs,
    default_learning_rate,
)
from mybert.finetuning.soft_labels import remove_logits, store_logits
from mybert.finetuning.training import MODEL, RUNS, Job, Outcome, build_trainer, is_finished, train_run
from mybert.settings.declare import flag_of
from mybert.tasks.base import Task
from mybert.training.arguments import advise_half, prepare_launch
from mybert.training.options import decisive_arguments
from mybert.training.run_folder import RunFolder
from mybert.training.stopping import StopOnSignal, on_signals
from mybert.training.trainer import RunTrainer

STAGE = "finetune"
_INPUTS = ("model", "validation", "test", "teacher", "unlabelled")
_SWEPT = ("learning_rate", "per_device_train_batch_size", "num_train_epochs", "max_steps")


def finetune(settings: FinetuneSettings, arguments: FinetuningArguments | None = None) -> Path:
    """Trains a head and its encoder on labelled rows, for one or several recipes and seeds, and keeps the best model.

    Args:
        settings: model, task, rows and output.
        arguments: how to train (default: `FinetuningArguments`); `settings.output` replaces their `output_dir`.

    Returns:
        The folder of the best model, for the Auto classes and `pipeline`, with results.json, log.jsonl,
        training_curves.png and manifest.json; `validation/` and `test/` have scores, predictions and
        errors as `mybert evaluate` writes them, `runs/` the numbers of every run. With `dry_run` nothing is written.

    Raises:
        UserError: checkpoint, rows, settings and output do not fit together, and nothing was trained; or all runs
            have diverged.
        Preempted: SIGTERM or Ctrl-C stopped the run after a checkpoint was saved.
    """
    arguments = FinetuningArguments(output_dir=settings.output) if arguments is None else copy.deepcopy(arguments)
    _check_arguments(settings, arguments)
    inputs = {name: getattr(settings, name) for name in _INPUTS if getattr(settings, name) is not None}
    inputs |= {
        f"train-{number}" if number > 1 else "train": name for number, name in enumerate(settings.train_files, 1)
    }
    if settings.dry_run:
        dry_run(_prepare(settings, arguments), planned_runs(settings, arguments))
        return Path(settings.output)
    folder = RunFolder(settings, STAGE, inputs.values())
    folder.keep_precision(arguments)
    job = _prepare(settings, arguments)
    planned = planned_runs(settings, arguments)
    finished = [run for run in planned if folder.is_resumed and is_finished(folder.path / RUNS / run.name)]
    first = next((run for run in planned if run not in finished), None)
    identities = {name: identity(path) for name, path in inputs.items()}
    batch = {"per_device_train_batch_size": arguments.per_device_train_batch_size}  # names the folder of a run
    folder.check_same(settings, identities, arguments, decisive_arguments(arguments) | batch)
    trainers = {} if first is None else _first_trainer(job, first, folder)
    if folder.was_complete and arguments.process_index == 0:
        print(f"the run in {folder.path} is finished: no step is left to train")
    with folder.opened(next(iter(trainers.values()), None)), on_signals(job.stop.ask):
        if arguments.process_index == 0:
            store_logits(job.data.train_features, folder.path)
        own = cross_validated(job, planned[0], folder.path / RUNS, trainers)
        outcome = _train_all(own, planned, folder.path, trainers)
        if arguments.process_index == 0:
            write_results(own, outcome, folder)
            remove_logits(folder.path)
    return folder.path


def _prepare(settings: FinetuneSettings, arguments: FinetuningArguments) -> Job:
    """Loads and checks what all runs share."""
    task, tokenizer = new_task(settings)
    is_alone, is_first = arguments.world_size == 1, arguments.process_index == 0
    few = few_labels.may_be_few(settings, arguments)
    task, data = load_data(settings, task, tokenizer, arguments.seed, is_first, few and is_alone)
    if few and is_first and not is_alone and few_labels.has_few_labels(task, data.splits["train"].rows):
        print("few labels: one process would train them otherwise; several processes train as usual")
    check_form("--suspects", settings.suspects, task, data.splits["train"].rows.column_names)
    if data.validation_features is None:
        arguments.eval_strategy, arguments.load_best_model_at_end = IntervalStrategy.NO, False
    if settings.folds is not None and arguments.world_size > 1:
        raise UserError("--folds trains in one process; leave it out, or start one process")
    if data.few_labels:
        if settings.seeds > 1 and data.validation_features is None:
            raise UserError(
                "few labels: cross-validation trains with one seed; give --validation, or leave --seeds out"
            )
        if arguments.process_index == 0:
            folds = f"cross-validation in {settings.folds or FOLDS} folds gives the scores; "
            print(
                f"few labels (fewer than {few_labels.FEW} rows a label on average): contrastive learning trains the "
                "encoder, and the head is a logistic regression\n"
                f"{'' if data.validation_features is not None else folds}--num-train-epochs 3 trains as usual instead"
            )
            if unused := [flag_of(name) for name in few_labels.UNUSED if getattr(arguments, name)]:
                print(f"warning: no effect on few labels: {', '.join(unused)}")
        arguments.learning_rate, arguments.num_train_epochs = few_labels.LEARNING_RATE, few_labels.EPOCHS
        arguments.per_device_train_batch_size = few_labels.BATCH
    _choose_defaults(settings, arguments, task, len(data.train_features))
    advise_half(arguments, task.config.hidden_size)
    if task.config.hidden_dropout_prob == 0 and settings.dropout is None and arguments.process_index == 0:
        print(f"{settings.model} was pretrained without dropout, so fine-tuning has none; BERT uses --dropout 0.1")
    _check_classes(settings, arguments, data)
    batch, features = arguments.per_device_train_batch_size * arguments.world_size, len(data.train_features)
    if settings.sweep is None and not data.few_labels and features < batch and arguments.process_index == 0:
        print(f"warning: {features:,} training features are fewer than a batch of {batch:,}: each epoch is one step")
    metric = _metric(settings, task, data)
    compares = data.validation_features is not None
    arguments.metric_for_best_model = f"eval_{metric}" if compares else None
    arguments.greater_is_better = not metric_of(metric).is_loss if compares else None
    job = Job(settings, arguments, task, tokenizer, data, metric, StopOnSignal(STAGE))
    scored = [split for name, split in data.splits.items() if name != "train" or folds_of(job) is not None]
    check_slices(scored, settings.slices)
    return job


def _choose_defaults(settings: FinetuneSettings, arguments: FinetuningArguments, task: Task, features: int) -> None:
    """Sets learning rate, batch size and epochs that are not given, and prints those that depend on model or rows."""
    say = print if settings.sweep is None and arguments.process_index == 0 else lambda line: None
    size = task.config.hidden_size
    if arguments.learning_rate is None:
        arguments.learning_rate = rate = default_learning_rate(size, task.name)
        say(f"using --learning-rate {rate:g}, the default for {task.name} and a hidden size of {size}")
    if arguments.per_device_train_batch_size is None:
        arguments.per_device_train_batch_size = batch = default_batch_size(features, task.name)
        if batch != BATCH:
            say(f"using --per-device-train-batch-size {batch}, the default for {task.name} on so few questions")
    if arguments.num_train_epochs is None:
        batches = math.ceil(features / (arguments.per_device_train_batch_size * arguments.world_size))
        steps = math.ceil(batches / arguments.gradient_accumulation_steps)
        arguments.num_train_epochs = epochs = default_epochs(steps)
        if epochs > EPOCHS and arguments.max_steps <= 0:
            say(f"using --num-train-epochs {epochs:g}, the default for so few rows")


def _first_trainer(job: Job, run: Run, folder: RunFolder) -> dict[Path, RunTrainer]:
    """The trainer that will train first, by its folder; that of few labels is only checked."""
    runs = folder.path / RUNS
    if job.data.few_labels:
        check_folds(job)
        build_trainer(job, run)
        return {}
    if folds_of(job) is not None:
        return trainer_of_fold(job, run, runs, folder.is_resumed)
    return {runs / run.name: build_trainer(job, run, runs / run.name)}


def _train_all(job: Job, planned: list[Run], output: Path, trainers: dict[Path, RunTrainer]) -> Outcome:
    """Trains the runs in turn; `trainers` has those that are built, by folder, and is emptied."""
    outcome = Outcome()
    results, scores, diverged = outcome.results, outcome.scores, outcome.diverged

    def report(line: str) -> None:
        if len(planned) > 1 and job.arguments.process_index == 0:
            print(line, flush=True)

    for number, run in enumerate(planned, 1):
        name = f"run {number} of {len(planned)}, {run.name}"
        folder = output / RUNS / run.name
        if not is_finished(folder):
            report(name)
        outcome.models.clear()
        result, model = train_run(job, run, folder, trainers.pop(folder, None))
        if model is not None:
            outcome.models[run] = model
        if "diverged" in result:
            diverged[run] = result
            report(f"{name}, diverged: {result['diverged']}")
            continue
        results[run] = result
        scores[run] = result["metrics"].get(job.metric, 0.0)  # without validation rows the first run is kept
        if job.metric in result["metrics"]:
            report(f"{name}: {metric_title(job.metric)} {metric_of(job.metric).written(scores[run])}")
        hopeful = [run for run in planned if run not in diverged]
        _keep_models(output, results, runs_to_keep(scores, hopeful, job.metric))
        job.stop.check(job.arguments, f"run {number} of {len(planned)}")
    if not results:
        raise UserError(next(iter(diverged.values()))["diverged"])
    return outcome


def _check_arguments(settings: FinetuneSettings, arguments: TrainingArguments) -> None:
    prepare_launch(arguments, settings.output, STAGE)
    for field in dataclasses.fields(arguments) if settings.sweep is not None else ():
        if field.name in _SWEPT and getattr(arguments, field.name) != field.default:
            raise UserError(f"--{field.name.replace('_', '-')} is chosen by the sweep; leave it or --sweep out")
    if settings.patience is not None and arguments.eval_strategy == IntervalStrategy.NO:
        raise UserError("--patience counts evaluations; leave it or --eval-strategy no out")


def _metric(settings: FinetuneSettings, task: Task, data: RunData) -> str:
    """The metric that chooses the best checkpoint."""
    if settings.metric is None:
        return task.selection_metric
    known = task.baselines(task.references(data.splits.get("validation", data.splits["train"]).rows))
    if settings.metric not in known:
        raise UserError(f"--metric {settings.metric}: expected one of {', '.join(known)}")
    return settings.metric


def _check_classes(settings: FinetuneSettings, arguments: TrainingArguments, data: RunData) -> None:
    """Raises if label smoothing or calibration would have no effect, or fail."""
    labels = np.asarray(data.train_features[0].get("labels", 0.0))
    if arguments.label_smoothing_factor and (labels.dtype.kind != "i" or settings.class_weights):
        other = "with --class-weights" if settings.class_weights else "for these rows, whose targets are not classes"
        raise UserError(f"--label-smoothing-factor has no effect {other}; leave it out")
    if settings.calibrate and (labels.dtype.kind != "i" or data.validation_features is None):
        lacking = "targets that are classes" if labels.dtype.kind != "i" else "validation rows"
        raise UserError(f"--calibrate needs {lacking}; leave it out")


def _keep_models(output: Path, done: dict[Run, dict[str, Any]], kept: set[Run]) -> None:
    """Removes the models of runs that cannot be the best any more, since a sweep would fill the disk."""
    processes = PartialState()
    if processes.is_main_process:
        for run in done:
            if run not in kept:
                shutil.rmtree(output / RUNS / run.name / MODEL, ignore_errors=True)
    processes.wait_for_everyone()
