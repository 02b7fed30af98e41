"""One run of a fine-tuning: train, keep the best checkpoint, write its model and numbers into the run's folder."""

import dataclasses
import functools
import json
import shutil
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from accelerate import PartialState
from transformers import EarlyStoppingCallback, EvalPrediction, PreTrainedModel, set_seed
from transformers.trainer import TRAINING_ARGS_NAME
from transformers.trainer_utils import PREFIX_CHECKPOINT_DIR

from modeling_mybert import MyBertConfig
from mybert.artifacts.manifest import RESULTS, write_json
from mybert.finetuning import few_labels
from mybert.finetuning.arguments import FinetuningArguments
from mybert.finetuning.objective import Finetuning, WeightedLoss, tuned_scores
from mybert.finetuning.recipes import Run, planned_runs
from mybert.finetuning.run_data import RunData
from mybert.finetuning.settings import FinetuneSettings
from mybert.finetuning.soft_labels import SoftLabels
from mybert.inference.checkpoint import keep_layers
from mybert.inference.logits import logits_of
from mybert.inference.task_checkpoint import new_model
from mybert.tasks.base import Task
from mybert.training.arguments import explain_unusable
from mybert.training.log import History
from mybert.training.nonfinite import Diverged
from mybert.training.sealed_checkpoints import last_undamaged, set_aside
from mybert.training.stopping import StopOnSignal
from mybert.training.trainer import RunTrainer
from tokenization import MyBertTokenizer

RUNS = "runs"  # subfolder of the output with a folder per run
MODEL = "model"  # subfolder of a run


@dataclass(frozen=True)
class Job:
    """Data and settings shared by the runs of a fine-tuning.

    Each run replaces recipe and seed of `arguments`. `metric` chooses the best checkpoint, if there are validation
    rows; `stop` ends the runs on a signal.
    """

    settings: FinetuneSettings
    arguments: FinetuningArguments
    task: Task
    tokenizer: MyBertTokenizer
    data: RunData
    metric: str
    stop: StopOnSignal

    @property
    def main_metric(self) -> str:
        """The metric that reports begin with."""
        return self.settings.metric or self.task.main_metric


@dataclass
class Outcome:
    """What the runs of a fine-tuning have given.

    Attributes:
        results: of each run that has not diverged.
        scores: the metric of each of these.
        diverged: the results of those that have.
        models: the model of the last run, if it was trained here.
    """

    results: dict[Run, dict[str, Any]] = field(default_factory=dict)
    scores: dict[Run, float] = field(default_factory=dict)
    diverged: dict[Run, dict[str, Any]] = field(default_factory=dict)
    models: dict[Run, PreTrainedModel] = field(default_factory=dict)


def is_finished(folder: Path) -> bool:
    """Whether the run in `folder` has ended."""
    return (folder / RESULTS).is_file()


def train_run(
    job: Job, run: Run, folder: Path, trainer: RunTrainer | None = None
) -> tuple[dict[str, Any], PreTrainedModel | None]:
    """Trains in `folder`, from its last undamaged checkpoint if there is one, or reads the results of a finished run.

    Args:
        trainer: of this run, if it is built.

    Returns:
        The content of `folder/results.json`: `metrics` on the validation rows, steps, losses, seconds; and the model
        as it is in `folder/model`, None if it was not trained here or is sharded. One of several runs that has
        `diverged` has that message and no model.

    Raises:
        Diverged: the only run has diverged.
        Preempted: SIGTERM or Ctrl-C stopped the run after a checkpoint was saved.
    """
    processes, model = PartialState(), None
    is_final = job.data.few_labels or job.data.out_of_fold is not None
    if is_final and not is_finished(folder) and processes.is_main_process:
        print(f"final model, trained on all {len(job.data.splits['train'].rows):,} rows", flush=True)
    if job.data.few_labels and not is_finished(folder):
        model = _write_few(job, run, folder)
    if not is_finished(folder):
        trainer = trainer or build_trainer(job, run, folder)
        try:
            ended = trainer.run(find_checkpoint(folder))
            if ended and processes.is_main_process and trainer.state.global_step < trainer.state.max_steps:
                print("stopped early: the last evaluations have not improved (--patience)")
        except Diverged as error:
            if len(planned_runs(job.settings, job.arguments)) == 1:
                raise
            results = {**run.recipe._asdict(), "seed": run.seed, "diverged": str(error)}
        else:
            metrics = trainer.objective.final_metrics() if job.data.validation_features is not None else {}
            trainer.save_model(str(folder / MODEL))
            results = _results(run, trainer, metrics)
            if not (trainer.is_fsdp_enabled or trainer.is_deepspeed_enabled):
                model = trainer.accelerator.unwrap_model(trainer.model, keep_fp32_wrapper=False).eval()
        if processes.is_main_process:
            (folder / MODEL / TRAINING_ARGS_NAME).unlink(missing_ok=True)  # a pickle; results.json has it as text
            write_json(folder / RESULTS, results)
    if processes.is_main_process:
        for checkpoint in folder.glob(f"*{PREFIX_CHECKPOINT_DIR}-*"):  # also those left when a run is killed here
            shutil.rmtree(checkpoint)
    processes.wait_for_everyone()
    return json.loads((folder / RESULTS).read_text(encoding="utf-8")), model


def trained_model(job: Job, folder: Path) -> PreTrainedModel:
    """The model in `folder`, which was trained before the run was killed or is sharded."""
    task = dataclasses.replace(job.task, config=MyBertConfig.from_pretrained(str(folder)))
    return new_model(task, str(folder)).to(job.arguments.device)  # type: ignore[arg-type]  # decorated by transformers


def train_few(job: Job, run: Run, saved: str) -> tuple[PreTrainedModel, list[dict[str, Any]], dict[str, float]]:
    """A model that is trained for few labels, its log, and the numbers of its results. Nothing is written.

    A signal stops it between two steps; the message says what was `saved` before.
    """
    set_seed(run.seed)
    model, data = new_model(job.task, job.settings.model), job.data
    model.to(job.arguments.device)  # type: ignore[arg-type]  # of a decorator of transformers
    collate, options = job.task.collator(job.tokenizer), (job.settings.class_weights, job.arguments.bf16)
    stop = functools.partial(job.stop.check, job.arguments, saved)
    log = few_labels.train(model, data.train_features, collate, run.seed, *options, after_step=stop)
    steps, tokens, seconds = log[-1].values()
    return model, log, {"steps": steps, "best_step": steps, "seconds": seconds, "tokens_seen": tokens, "flops": 0}


def _write_few(job: Job, run: Run, folder: Path) -> PreTrainedModel:
    """Trains for few labels, and writes what a run writes; one that was killed starts again."""
    model, log, amounts = train_few(job, run, "0 steps" if job.data.out_of_fold is None else "the folds")
    folder.mkdir(parents=True, exist_ok=True)
    features, metrics = job.data.validation_features, dict[str, float]()
    if features is not None:
        rows, logits = job.data.splits["validation"].rows, logits_of(model, job.task, job.tokenizer, features)
        metrics = tuned_scores(job.task, features, rows, model.config, logits)
    model.save_pretrained(folder / MODEL)
    job.tokenizer.save_pretrained(folder / MODEL)
    History(writes=True).restart(str(folder), log)
    facts = {**run.recipe._asdict(), "seed": run.seed, "metrics": metrics, **amounts, "log": log}
    write_json(folder / RESULTS, facts)
    return model


def build_trainer(job: Job, run: Run, folder: Path | None = None, dry_run: bool = False) -> RunTrainer:
    """The trainer of a run, with everything that it needs: unusable arguments fail here, and nothing is written.

    Args:
        folder: of the run; None if it is only checked.
    """
    with explain_unusable(), tempfile.TemporaryDirectory() as temporary:  # transformers creates it
        trainer = _trainer(job, run.arguments(job.arguments, temporary), dry_run)
        trainer.args.output_dir = str(folder or temporary)
        trainer.check_setup()
    return trainer


def _trainer(job: Job, arguments: FinetuningArguments, dry_run: bool) -> RunTrainer:
    settings, task, data = job.settings, job.task, job.data
    arguments.restore_callback_states_from_checkpoint = True  # the remaining patience
    set_seed(arguments.seed)
    model = new_model(task, settings.model)
    if settings.layers is not None:
        keep_layers(model, settings.layers, settings.model)
    soft_labels = SoftLabels.of(task, settings) if settings.teacher else None
    collate = task.collator(job.tokenizer)

    def compute_metrics(evaluation: EvalPrediction) -> dict[str, float]:
        features, rows, found = data.validation_features, data.splits["validation"].rows, evaluation.predictions
        assert features is not None
        logits = list(np.stack(found, -1) if isinstance(found, tuple) else found)
        return tuned_scores(task, features, rows, model.config, logits)

    return RunTrainer(
        objective=Finetuning(soft_labels, settings.freeze == "encoder"),
        model=model,
        args=arguments,
        data_collator=soft_labels.collator(collate) if soft_labels else collate,
        train_dataset=data.train_features,
        eval_dataset=data.validation_features,
        processing_class=job.tokenizer,
        compute_metrics=None if data.validation_features is None else compute_metrics,
        compute_loss_func=WeightedLoss(data.train_features, task.classes or 0) if settings.class_weights else None,
        callbacks=[EarlyStoppingCallback(settings.patience)] if settings.patience else None,
        stop=job.stop,
        dry_run=dry_run,
    )


def find_checkpoint(folder: Path) -> Path | None:
    """The last undamaged checkpoint; damaged ones are renamed."""
    processes = PartialState()
    checkpoint, damaged = last_undamaged(folder)
    processes.wait_for_everyone()
    if processes.is_main_process:
        set_aside(damaged, checkpoint)
    processes.wait_for_everyone()
    return checkpoint


def _results(run: Run, trainer: RunTrainer, metrics: dict[str, Any]) -> dict[str, Any]:
    state = trainer.state
    measures = ("_time", "_runtime", "_per_second", "epoch")
    return {
        **run.recipe._asdict(),
        "seed": run.seed,
        "metrics": {name.removeprefix("eval_"): v for name, v in metrics.items() if not name.endswith(measures)},
        "steps": state.global_step,
        "best_step": (trainer.args.load_best_model_at_end and state.best_global_step) or state.global_step,
        "seconds": round(trainer.metrics.seconds, 3),  # without evaluation and saving
        "tokens_seen": state.num_input_tokens_seen,  # without padding
        "flops": state.total_flos,  # 6 per parameter and position, with padding
        "log": state.log_history,
    }
