"""`mybert finetune`: checkpoint + labelled rows → a model with one head."""

import copy
import dataclasses
import shutil
from pathlib import Path

import numpy as np
from accelerate import PartialState
from transformers import TrainingArguments
from transformers.trainer_utils import IntervalStrategy

from modeling_mybert import MyBertConfig
from mybert.common.arguments import prepare_launch
from mybert.common.devices import advise_half
from mybert.common.disk_space import report_full_disk
from mybert.common.errors import UserError
from mybert.common.manifest import identity, read_manifest, versions, write_json, write_manifest
from mybert.common.memory_allocator import keep_freed_memory
from mybert.common.output_folders import empty_folder, exclusive_lock, is_vacant, refuse_existing
from mybert.common.preemption import on_signals
from mybert.common.resuming import check_unchanged, choices_of
from mybert.common.tables import format_cell
from mybert.finetuning.data.run_data import RunData, load_data
from mybert.finetuning.evaluation.evaluate import (
    evaluate_rows,
    print_evaluation,
    print_if_nothing_learned,
    write_evaluation,
)
from mybert.finetuning.interruptions import StopWhenAsked
from mybert.finetuning.recipes import Run, planned_runs, print_summaries, runs_to_keep, summarise
from mybert.finetuning.settings import FinetuneSettings, FinetuningArguments
from mybert.finetuning.task_checkpoint import new_model, new_task
from mybert.finetuning.tasks.base import Task
from mybert.finetuning.training import MODEL, RESULTS, Job, is_finished, train_run, try_run

STAGE = "finetune"
_AMOUNTS = ("steps", "best_step", "seconds", "tokens_seen", "flops")
RUNS = "runs"
# settings that may differ when a run is resumed
_FREE = {"resume", "overwrite", "output", "bootstrap", "attn_implementation"}
_FIXED = (  # arguments that may not, beside those of a step
    *("num_train_epochs", "max_steps", "label_smoothing_factor", "train_sampling_strategy"),
    "per_device_train_batch_size",  # by which the folder of a run is named
)


def finetune(settings: FinetuneSettings, arguments: FinetuningArguments | None = None) -> Path:
    """Trains a head and its encoder on labelled rows, once or for several recipes and seeds, and keeps the best model.

    Args:
        settings: what is trained on what.
        arguments: how; those of `FinetuningArguments` when not given. Their `output_dir` becomes `settings.output`.

    Returns:
        The folder of the best model, as the Auto classes and `pipeline` read it, with results.json and manifest.json;
        `validation/` and `test/` hold scores, predictions and errors as `mybert evaluate` leaves them, `runs/` the
        numbers of every run.

    Raises:
        UserError: checkpoint, rows, settings and output do not fit together; nothing was trained then.
        Preempted: SIGTERM or Ctrl-C came; a checkpoint was saved.
    """
    arguments = FinetuningArguments(output_dir=settings.output) if arguments is None else copy.deepcopy(arguments)
    _check_arguments(settings, arguments)
    output = Path(settings.output)
    _refuse_existing(settings)
    task, tokenizer = new_task(settings)
    task, data = load_data(settings, task, tokenizer, arguments.seed, verbose=arguments.process_index == 0)
    if data.validation_features is None:
        arguments.eval_strategy, arguments.load_best_model_at_end = IntervalStrategy.NO, False
    advise_half(arguments, task.config.hidden_size)
    if task.config.hidden_dropout_prob == 0 and settings.dropout is None and arguments.process_index == 0:
        print(f"{settings.model} was pretrained without dropout, and is fine-tuned so; --dropout 0.1 is BERT's")
    job = Job(settings, arguments, task, tokenizer, data, _metric(settings, task, data), StopWhenAsked())
    _check_smoothing(settings, arguments, data)
    planned = planned_runs(settings, arguments)
    try_run(job, planned[0])
    with exclusive_lock(output, arguments.process_index), report_full_disk(output):
        _start_output(settings, arguments)
        results, scores, diverged = {}, {}, {}
        with on_signals(job.stop.ask):
            for number, run in enumerate(planned, 1):
                name = f"run {number} of {len(planned)}, {run.name}"
                aloud = len(planned) > 1 and arguments.process_index == 0
                if aloud and not is_finished(output / RUNS / run.name):
                    print(name, flush=True)
                found = train_run(job, run, output / RUNS / run.name)
                if "diverged" in found:
                    diverged[run] = found
                    if aloud:
                        print(f"{name}, left out: {found['diverged']}", flush=True)
                    continue
                results[run] = found
                scores[run] = results[run]["metrics"].get(job.metric, 0.0)  # without validation, the first is kept
                if aloud and job.metric in results[run]["metrics"]:
                    print(f"{name}: {job.metric} {format_cell(scores[run])}", flush=True)
                hopeful = [run for run in planned if run not in diverged]
                _keep_models(output, results, runs_to_keep(scores, hopeful, job.metric))
                job.stop.check(arguments, f"run {number} of {len(planned)}")
        if not results:
            raise UserError(next(iter(diverged.values()))["diverged"])
        if arguments.process_index == 0:
            _finish(job, results, scores, diverged)
        PartialState().wait_for_everyone()
    return output


def main(settings: FinetuneSettings, arguments: FinetuningArguments) -> None:
    keep_freed_memory()
    output = finetune(settings, arguments)
    if arguments.process_index == 0:
        print(f"the model is in {output}")


def _check_arguments(settings: FinetuneSettings, arguments: TrainingArguments) -> None:
    prepare_launch(arguments, settings.output, STAGE)
    if settings.sweep is not None:
        _leave_to_sweep(arguments)
    if settings.patience is not None and arguments.eval_strategy == IntervalStrategy.NO:
        raise UserError("--patience counts evaluations; leave it or --eval-strategy no out")


def _leave_to_sweep(arguments: TrainingArguments) -> None:
    names = ("learning_rate", "per_device_train_batch_size", "num_train_epochs", "max_steps")
    defaults = {field.name: field.default for field in dataclasses.fields(arguments)}
    for name in names:
        if getattr(arguments, name) != defaults[name]:
            raise UserError(f"--{name.replace('_', '-')} is chosen by the sweep; leave it or --sweep out")


def _choices(settings: FinetuneSettings, arguments: TrainingArguments) -> dict:
    """What may not change when a run is resumed: else its steps would not be those of one run."""
    free = _FREE | _inputs(settings).keys()  # inputs are compared by what they hold
    fixed = {name: value for name, value in dataclasses.asdict(settings).items() if name not in free}
    return {**fixed, **choices_of(arguments, *_FIXED)}


def _inputs(settings: FinetuneSettings) -> dict[str, str]:
    names = ("model", "train", "validation", "test")
    return {name: getattr(settings, name) for name in names if getattr(settings, name) is not None}


def _start_output(settings: FinetuneSettings, arguments: TrainingArguments) -> None:
    """Empties the folder of a new run and writes down what it is; that of a resumed one must be the same run.

    Raises:
        UserError: what is there is no run to resume, or it was started with something else.
    """
    output, choices = Path(settings.output), _choices(settings, arguments)
    inputs = {name: identity(path) for name, path in _inputs(settings).items()}
    processes = PartialState()
    begun = settings.resume and not is_vacant(output)
    if begun:
        before = read_manifest(output)
        if before.get("stage") != STAGE:
            raise UserError(f"--resume: {output} has no run of `mybert finetune` to go on with")
        check_unchanged(before, choices, inputs)
        if before.get("complete") and processes.is_main_process:
            print(f"the run in {output} is finished: no step is left to train")
    _refuse_existing(settings)  # what another run may have made while the rows were read
    processes.wait_for_everyone()  # all have seen the folder as it was
    if processes.is_main_process and not begun:
        empty_folder(output)
        write_manifest(output, STAGE, settings=settings, inputs=inputs, counts={}, choices=choices, complete=False)
    processes.wait_for_everyone()


def _refuse_existing(settings: FinetuneSettings) -> None:
    if not settings.resume or is_vacant(settings.output):
        refuse_existing(settings.output, overwrite=settings.overwrite, stage=STAGE, inputs=_inputs(settings).values())


def _metric(settings: FinetuneSettings, task: Task, data: RunData) -> str:
    """What chooses the best checkpoint.

    Raises:
        UserError: the task has no such metric.
    """
    if settings.metric is None:
        return task.best_metric
    known = task.baselines(task.references(data.splits["validation"].rows))
    if settings.metric not in known:
        raise UserError(f"--metric {settings.metric}: expected one of {', '.join(known)}")
    return settings.metric


def _check_smoothing(settings: FinetuneSettings, arguments: TrainingArguments, data: RunData) -> None:
    """
    Raises:
        UserError: transformers would smooth nothing, and not say so, or fail.
    """
    labels = np.asarray(data.train_features[0].get("labels", 0.0))
    if arguments.label_smoothing_factor and (labels.dtype.kind != "i" or settings.class_weights):
        other = "with --class-weights" if settings.class_weights else "for these rows, whose targets are no classes"
        raise UserError(f"--label-smoothing-factor has no effect {other}; leave it out")


def _keep_models(output: Path, done: dict[Run, dict], kept: set[Run]) -> None:
    """A sweep would fill the disk with models that cannot win any more."""
    processes = PartialState()
    if processes.is_main_process:
        for run in done:
            if run not in kept:
                shutil.rmtree(output / RUNS / run.name / MODEL, ignore_errors=True)
    processes.wait_for_everyone()


def _finish(job: Job, results: dict[Run, dict], scores: dict[Run, float], diverged: dict[Run, dict]) -> None:
    """Moves the best model up, evaluates it, and writes and prints what there is to say."""
    settings, arguments, task, tokenizer, data, metric, _ = job
    output = Path(settings.output)
    summaries = summarise(scores, metric)
    best = summaries[0].best
    amounts = {name: results[best][name] for name in _AMOUNTS}
    if (model := output / RUNS / best.name / MODEL).is_dir():  # not where a run that was killed after this goes on
        for path in model.iterdir():
            path.replace(output / path.name)
        model.rmdir()
    task = dataclasses.replace(task, config=MyBertConfig.from_pretrained(str(output)))  # with tuned thresholds
    model = new_model(task, str(output)).to(arguments.device)
    evaluations = {}
    for name in ("validation", "test"):
        if name in data.splits:
            found = evaluate_rows(model, task, tokenizer, data.splits[name].rows, settings.bootstrap, arguments.seed)
            (output / name).mkdir(exist_ok=True)
            write_evaluation(output / name, found, data.splits[name], {"source": data.splits[name].source})
            print_evaluation(f"{name}, {data.splits[name].source}", found, task)
            if name == "validation":
                print_if_nothing_learned(metric, found)
            evaluations[name] = found.results()
    if data.validation_features is not None and len(scores) > 1:
        print_summaries(summaries, metric)
        if arguments.bf16 or arguments.fp16:
            print("runs are scored in half precision, as they are trained, and the model above in float32")
    write_json(
        output / RESULTS,
        {
            "task": settings.task,
            "metric": metric,
            **evaluations,
            "best": {**best.recipe._asdict(), "seed": best.seed, **amounts},
            "recipes": [
                {**s.recipe._asdict(), "mean": s.mean, "deviation": s.deviation, "best_seed": s.best.seed}
                for s in (summaries if evaluations.get("validation") else ())
            ],
            "runs": list(results.values()),
            "diverged": list(diverged.values()),
            "data": data.overview,
            "duplicates": data.duplicates,
            "settings": dataclasses.asdict(settings),
            "training_arguments": arguments.to_dict(),
            "versions": versions(),
        },
    )
    write_manifest(
        output,
        STAGE,
        settings=settings,
        inputs=read_manifest(output)["inputs"],
        counts={name: split["rows"] for name, split in data.overview.items()},
        training=amounts,
        choices=_choices(settings, arguments),
        metrics={name: found["metrics"] for name, found in evaluations.items()},
        complete=True,
    )
