"""Cross-validation: each training row is predicted by a model that was trained without its fold."""

import dataclasses
import shutil
from pathlib import Path
from typing import Any

import numpy as np
from datasets import Dataset
from transformers import PreTrainedModel

from modeling_mybert import MyBertConfig
from mybert.finetuning.held_out import fold_of_rows
from mybert.finetuning.recipes import Run
from mybert.finetuning.training import MODEL, RUNS, Job, train_few, train_run
from mybert.inference.logits import logits_of
from mybert.inference.task_checkpoint import new_model
from mybert.tasks.features import ROW

FOLDS = 4
"""Of few labels."""
_LOGITS = "logits.npz"


def cross_validated(job: Job, run: Run, output: Path) -> Job:
    """The job with predictions of models of other folds for its training rows, in place of validation rows."""
    folds, train = folds_of(job), job.data.splits["train"]
    if folds is None:
        return job
    features = job.task.features(train.rows, job.tokenizer, training=False)
    logits = _out_of_fold(job, run, output / RUNS, features, folds)
    task = job.task.with_config(**job.task.tuned(logits, features, train.rows))
    held_out = train._replace(source=f"{folds} folds of {train.source}", left_out=0)
    splits = {"train": train, "validation": held_out, **job.data.splits}
    return dataclasses.replace(_with_data(job, out_of_fold=logits, splits=splits), task=task)


def folds_of(job: Job) -> int | None:
    """The number of folds; None: no row is predicted by the model of another fold."""
    few = job.data.few_labels and "validation" not in job.data.splits
    return job.settings.folds or (FOLDS if few else None)


def _with_data(job: Job, **changes: Any) -> Job:
    return dataclasses.replace(job, data=dataclasses.replace(job.data, **changes))


def _out_of_fold(job: Job, run: Run, runs: Path, features: Dataset, folds: int) -> list[np.ndarray]:
    """The logits of each feature of the training rows; of finished folds of a resumed run those that were kept."""
    train, arguments = job.data.splits["train"], job.arguments
    of_rows = fold_of_rows(train.rows, job.task, folds, arguments.seed)
    owners = np.asarray(features[ROW][:])
    all_logits: list[np.ndarray] = [np.empty(0)] * len(features)
    for fold in range(folds):
        folder, inside = runs / f"{run.name}-fold{fold + 1}of{folds}", of_rows[owners] == fold
        if not (folder / _LOGITS).is_file():
            rest = train.select(np.flatnonzero(of_rows != fold).tolist())
            part = job.task.features(rest.rows, job.tokenizer, training=True)
            own = _with_data(job, splits={"train": rest}, train_features=part)
            if arguments.process_index == 0 and not job.data.few_labels:
                print(f"fold {fold + 1} of {folds}", flush=True)
            few = job.data.few_labels
            model = train_few(own, run, f"{fold} of {folds} folds")[0] if few else _trained(own, run, folder)
            model.eval()
            logits = logits_of(model, job.task, job.tokenizer, features.select(np.flatnonzero(inside)))
            folder.mkdir(parents=True, exist_ok=True)
            np.savez(folder / f"partial.{_LOGITS}", *logits)
            (folder / f"partial.{_LOGITS}").replace(folder / _LOGITS)
            shutil.rmtree(folder / MODEL, ignore_errors=True)
            job.stop.check(arguments, f"fold {fold + 1} of {folds}")
        with np.load(folder / _LOGITS) as kept:
            for place, logits in zip(np.flatnonzero(inside).tolist(), kept.values(), strict=True):
                all_logits[place] = logits
    return all_logits


def _trained(job: Job, run: Run, folder: Path) -> PreTrainedModel:
    _, model = train_run(job, run, folder)
    if model is None:  # trained before the run was killed
        task = dataclasses.replace(job.task, config=MyBertConfig.from_pretrained(str(folder / MODEL)))
        model = new_model(task, str(folder / MODEL))
    return model.to(job.arguments.device)  # type: ignore[arg-type]  # of a decorator of transformers
