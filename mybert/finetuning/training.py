"""One run: train, keep the best checkpoint, leave its model and its numbers in the run's folder."""

import json
import shutil
import tempfile
from pathlib import Path
from typing import NamedTuple

from accelerate import PartialState
from transformers import EarlyStoppingCallback, TrainerState, set_seed
from transformers.trainer import TRAINER_STATE_NAME, TRAINING_ARGS_NAME
from transformers.trainer_utils import PREFIX_CHECKPOINT_DIR, get_last_checkpoint

from mybert.common.arguments import try_optimizer
from mybert.common.errors import UserError
from mybert.common.log_lines import log_in_lines
from mybert.common.manifest import write_json
from mybert.common.resuming import check_optimizer
from mybert.finetuning.data.run_data import RunData
from mybert.finetuning.interruptions import StopWhenAsked
from mybert.finetuning.recipes import Run, planned_runs
from mybert.finetuning.settings import FinetuneSettings, FinetuningArguments
from mybert.finetuning.task_checkpoint import new_model
from mybert.finetuning.tasks.base import LOWER_IS_BETTER, Task
from mybert.finetuning.trainer import Diverged, FinetuningTrainer, WeightedLoss, metrics_function
from tokenization import MyBertTokenizer

MODEL = "model"  # subfolder of a run
RESULTS = "results.json"


class Job(NamedTuple):
    """What the runs of a fine-tuning have in common.

    Attributes:
        arguments: of the command; a run's recipe and seed replace theirs.
        metric: chooses the best checkpoint, where there are validation rows.
        stop: ends them when it is asked to.
    """

    settings: FinetuneSettings
    arguments: FinetuningArguments
    task: Task
    tokenizer: MyBertTokenizer
    data: RunData
    metric: str
    stop: StopWhenAsked


def is_finished(folder: Path) -> bool:
    """Whether the run in `folder` has been trained to its end."""
    return (folder / RESULTS).is_file()


def try_run(job: Job, run: Run) -> None:
    """Makes all that a run is made of, so that nothing is lost to arguments that do not work.

    Raises:
        UserError: transformers cannot work with the arguments.
    """
    try:
        with tempfile.TemporaryDirectory() as folder:
            try_optimizer(_trainer(job, run.arguments(job.arguments, folder)))
    except (ValueError, TypeError, RuntimeError, ImportError) as error:
        raise UserError(str(error)) from error


def train_run(job: Job, run: Run, folder: Path) -> dict:
    """Trains in `folder`, from its last checkpoint if there is one, or reads what a finished run has left there.

    Returns:
        What `folder/results.json` holds: `metrics` on the validation rows, steps, losses, seconds. The model is in
        `folder/model`. Of a run among several that has `diverged`, that in words, and no model.

    Raises:
        Diverged: the only run has.
        Preempted: SIGTERM or Ctrl-C came; a checkpoint was saved.
    """
    processes = PartialState()
    if not is_finished(folder):
        trainer = _trainer(job, run.arguments(job.arguments, str(folder)))
        try:
            _train(trainer, _last_checkpoint(folder), job.task)
        except Diverged as error:
            if len(planned_runs(job.settings, job.arguments)) == 1:
                raise
            results = {**run.recipe._asdict(), "seed": run.seed, "diverged": str(error)}
        else:
            metrics = trainer.evaluate() if job.data.validation_features is not None else {}
            trainer.save_model(str(folder / MODEL))
            results = _results(run, trainer, metrics)
        if processes.is_main_process:
            (folder / MODEL / TRAINING_ARGS_NAME).unlink(missing_ok=True)  # a pickle; results.json says it in words
            write_json(folder / RESULTS, results)
    if processes.is_main_process:
        for checkpoint in folder.glob(f"{PREFIX_CHECKPOINT_DIR}-*"):  # those left by a kill right here, too
            shutil.rmtree(checkpoint)
    processes.wait_for_everyone()
    return json.loads((folder / RESULTS).read_text(encoding="utf-8"))


def _trainer(job: Job, arguments: FinetuningArguments) -> FinetuningTrainer:
    """
    Args:
        arguments: those of the run.
    """
    settings, _, task, tokenizer, data, metric, stop = job
    arguments.metric_for_best_model = f"eval_{metric}"
    arguments.greater_is_better = metric not in LOWER_IS_BETTER
    arguments.restore_callback_states_from_checkpoint = True  # the patience that is left
    set_seed(arguments.seed)
    model = new_model(task, settings.model)
    validation = data.splits.get("validation")
    trainer = FinetuningTrainer(
        model=model,
        args=arguments,
        data_collator=task.collator(tokenizer),
        train_dataset=data.train_features,
        eval_dataset=data.validation_features,
        processing_class=tokenizer,
        compute_metrics=validation and metrics_function(task, data.validation_features, validation.rows, model.config),
        compute_loss_func=WeightedLoss(data.train_features, task.classes) if settings.class_weights else None,
        callbacks=[stop, *([EarlyStoppingCallback(settings.patience)] if settings.patience else ())],
        freeze_encoder=settings.freeze == "encoder",
        occurring_rows=True,
    )
    log_in_lines(trainer)
    return trainer


def _train(trainer: FinetuningTrainer, checkpoint: str | None, task: Task) -> None:
    if checkpoint:
        state = TrainerState.load_from_json(str(Path(checkpoint) / TRAINER_STATE_NAME))
        if trainer.is_world_process_zero():
            print(f"--resume: {state.global_step:,} of {state.max_steps:,} steps of this run are done")
        if _has_ended(state):
            best = Path(checkpoint)
            if trainer.args.load_best_model_at_end and state.best_model_checkpoint:
                best = best.with_name(Path(state.best_model_checkpoint).name)  # wherever the folder was then
            trainer.model.load_state_dict(task.head.from_pretrained(best).state_dict())
            trainer.state = state
            return
        check_optimizer(Path(checkpoint))
    trainer.train(resume_from_checkpoint=checkpoint)
    if trainer.state.global_step < trainer.state.max_steps and trainer.is_world_process_zero():
        print("stopped early: the last evaluations have not improved (--patience)")


def _has_ended(state: TrainerState) -> bool:
    """Whether nothing is left to train: Trainer would go on by a step, or by an epoch if patience was spent."""
    stopping = state.stateful_callbacks.get(EarlyStoppingCallback.__name__)
    waited = stopping["attributes"]["early_stopping_patience_counter"] if stopping else 0
    spent = stopping is not None and waited >= stopping["args"]["early_stopping_patience"]
    return spent or state.global_step >= state.max_steps


def _last_checkpoint(folder: Path) -> str | None:
    """The last one that is complete."""
    processes = PartialState()
    if processes.is_main_process:
        for checkpoint in folder.glob(f"{PREFIX_CHECKPOINT_DIR}-*"):
            if not _is_complete(checkpoint):
                shutil.rmtree(checkpoint)
    processes.wait_for_everyone()
    return get_last_checkpoint(str(folder)) if folder.is_dir() else None


def _is_complete(checkpoint: Path) -> bool:
    """Whether what is written last was written to its end."""
    try:
        TrainerState.load_from_json(str(checkpoint / TRAINER_STATE_NAME))
    except (OSError, ValueError):
        return False
    return True


def _results(run: Run, trainer: FinetuningTrainer, metrics: dict) -> dict:
    state = trainer.state
    runtime = next((log["train_runtime"] for log in reversed(state.log_history) if "train_runtime" in log), None)
    measures = ("_time", "_runtime", "_per_second", "epoch", "num_input_tokens_seen")
    return {
        **run.recipe._asdict(),
        "seed": run.seed,
        "metrics": {name.removeprefix("eval_"): v for name, v in metrics.items() if not name.endswith(measures)},
        "steps": state.global_step,
        "best_step": (trainer.args.load_best_model_at_end and state.best_global_step) or state.global_step,
        "seconds": runtime,  # of the last session, evaluations included
        "tokens_seen": state.num_input_tokens_seen,  # without padding
        "flops": state.total_flos,  # 6 for each parameter and position, padding included
        "log": state.log_history,
    }
