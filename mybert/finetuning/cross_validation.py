"""Cross-validation: each training row is predicted by a model that was trained without its fold."""

import dataclasses
import json
import shutil
import time
from pathlib import Path
from typing import Any

import numpy as np
from datasets import Dataset

from mybert.artifacts.manifest import RESULTS, write_json
from mybert.common.metrics import metric_of
from mybert.common.quantities import duration
from mybert.finetuning.held_out import fold_of_rows
from mybert.finetuning.recipes import Run
from mybert.finetuning.training import MODEL, Job, build_trainer, is_finished, train_few, train_run, trained_model
from mybert.inference.logits import logits_of
from mybert.tasks.features import ROW
from mybert.training.trainer import RunTrainer

FOLDS = 4
"""Of few labels."""
_LOGITS = "logits.npz"


def cross_validated(job: Job, run: Run, runs: Path, trainers: dict[Path, RunTrainer]) -> Job:
    """The job with predictions of models of other folds for its training rows, in place of validation rows.

    `trainers` has those that are built, by folder, and is emptied.
    """
    folds, train = folds_of(job), job.data.splits["train"]
    if folds is None:
        return job
    features = job.task.features(train.rows, job.tokenizer, training=False)
    logits = _out_of_fold(job, run, runs, features, folds, trainers)
    task = job.task.with_config(**job.task.tuned(logits, features, train.rows))
    held_out = train._replace(source=f"{folds} folds of {train.source}", left_out=0)
    splits = {"train": train, "validation": held_out, **job.data.splits}
    return dataclasses.replace(_with_data(job, out_of_fold=logits, splits=splits), task=task)


def cost_of_folds(runs: Path) -> dict[str, float]:
    """Seconds and tokens of the training of all folds; empty if there are none."""
    results = [json.loads(file.read_text(encoding="utf-8")) for file in runs.glob(f"*-fold*of*/{RESULTS}")]
    return {name: sum(each[name] for each in results) for name in ("seconds", "tokens_seen") if results}


def folds_of(job: Job) -> int | None:
    """The number of folds; None: no row is predicted by the model of another fold."""
    few = job.data.few_labels and "validation" not in job.data.splits
    return job.settings.folds or (FOLDS if few else None)


def check_folds(job: Job) -> None:
    """Raises a UserError if the training rows have fewer different texts than there are folds."""
    if (folds := folds_of(job)) is not None:
        _folds(job, folds)


def trainer_of_fold(job: Job, run: Run, runs: Path, is_resumed: bool) -> dict[Path, RunTrainer]:
    """The trainer of the first fold that is left to train, by its folder."""
    folds = folds_of(job) or 0
    for fold, folder in enumerate(_folders(run, runs, folds)):
        is_done = is_finished(folder) or (folder / _LOGITS).is_file()
        if not (is_resumed and is_done):
            return {folder: build_trainer(_without_fold(job, _folds(job, folds) == fold), run, folder)}
    return {}


def _folders(run: Run, runs: Path, folds: int) -> list[Path]:
    return [runs / f"{run.name}-fold{number}of{folds}" for number in range(1, folds + 1)]


def _folds(job: Job, folds: int) -> np.ndarray:
    return fold_of_rows(job.data.splits["train"].rows, job.task, folds, job.arguments.seed)


def _without_fold(job: Job, is_held_out: np.ndarray) -> Job:
    rest = job.data.splits["train"].select(np.flatnonzero(~is_held_out).tolist())
    features = job.task.features(rest.rows, job.tokenizer, training=True)
    return _with_data(job, splits={"train": rest}, train_features=features)


def _with_data(job: Job, **changes: Any) -> Job:
    return dataclasses.replace(job, data=dataclasses.replace(job.data, **changes))


def _out_of_fold(
    job: Job, run: Run, runs: Path, features: Dataset, folds: int, trainers: dict[Path, RunTrainer]
) -> list[np.ndarray]:
    """The logits of each feature of the training rows; of finished folds of a resumed run those that were kept."""
    of_rows = _folds(job, folds)
    owners = np.asarray(features[ROW][:])
    all_logits: list[np.ndarray] = [np.empty(0)] * len(features)
    folders = _folders(run, runs, folds)
    done = sum((folder / _LOGITS).is_file() for folder in folders)
    if done and job.arguments.process_index == 0:
        print(f"--resume: {done} of {folds} folds are done", flush=True)
    for fold, folder in enumerate(folders):
        if not (folder / _LOGITS).is_file():
            _train_fold(job, run, folder, of_rows == fold, fold, folds, trainers.pop(folder, None))
        with np.load(folder / _LOGITS) as kept:
            for place, logits in zip(np.flatnonzero(of_rows[owners] == fold).tolist(), kept.values(), strict=True):
                all_logits[place] = logits
    return all_logits


def _train_fold(
    job: Job,
    run: Run,
    folder: Path,
    is_held_out: np.ndarray,
    fold: int,
    folds: int,
    trainer: RunTrainer | None,
) -> None:
    """Trains without the rows of a fold, predicts them, writes their logits into `folder`, and prints the score."""
    name = f"fold {fold + 1} of {folds}"
    if job.arguments.process_index == 0:
        print(f"cross-validation, {name}", flush=True)
    began, few = time.perf_counter(), job.data.few_labels
    held_out = job.data.splits["train"].select(np.flatnonzero(is_held_out).tolist())
    own = _without_fold(job, is_held_out)
    if few:
        model, _, amounts = train_few(own, run, f"{fold} of {folds} folds")
        folder.mkdir(parents=True, exist_ok=True)
        write_json(folder / RESULTS, amounts)
    else:
        model = train_run(own, run, folder, trainer)[1] or trained_model(own, folder / MODEL)
    model.eval()
    features = job.task.features(held_out.rows, job.tokenizer, training=False)
    logits = logits_of(model, job.task, job.tokenizer, features)
    np.savez(folder / f"partial.{_LOGITS}", *logits)
    (folder / f"partial.{_LOGITS}").replace(folder / _LOGITS)
    shutil.rmtree(folder / MODEL, ignore_errors=True)
    predictions = job.task.decode(logits, features, held_out.rows)
    metric = job.main_metric
    score = metric_of(metric).written(job.task.score(predictions, job.task.references(held_out.rows))[metric])
    seconds = duration(time.perf_counter() - began)
    if job.arguments.process_index == 0:
        print(f"{name}: {job.task.title(metric)} {score}, {seconds}", flush=True)
    job.stop.check(job.arguments, name)
