"""Cross-validation: each training row is predicted by a model that was trained without its fold."""

import dataclasses
import shutil
from pathlib import Path

import numpy as np
from datasets import Dataset

from modeling_mybert import MyBertConfig
from mybert.common.tables import format_cell
from mybert.finetuning.few_labels import FROZEN, STARTS
from mybert.finetuning.held_out import fold_of_rows
from mybert.finetuning.recipes import Run
from mybert.finetuning.training import MODEL, RUNS, Job, train_run
from mybert.inference.logits import logits_of
from mybert.inference.task_checkpoint import new_model
from mybert.tasks.base import LOWER_IS_BETTER, ROW, Task

FOLDS = 4
"""Of few labels."""
_LOGITS = "logits.npz"


def cross_validated(job: Job, planned: list[Run], output: Path) -> tuple[Job, list[Run]]:
    """The job with predictions of models of other folds for its training rows, in place of validation rows.

    For few labels, every start is tried, and the one with the best score is kept. The runs have its recipe.
    """
    if job.settings.folds is None and not job.data.few_labels:
        return job, planned
    folds = job.settings.folds or FOLDS
    rows, sign = job.data.splits["train"].rows, -1 if job.metric in LOWER_IS_BETTER else 1
    features = job.task.features(rows, job.tokenizer, training=False)
    found: dict[str | None, tuple[float, Task, list[np.ndarray]]] = {}
    for start in STARTS if job.data.few_labels else (None,):
        logits = _out_of_fold(_with_data(job, start=start), planned[0], output / RUNS, features, folds)
        task = job.task.with_config(**job.task.tuned(logits, features, rows))
        score = task.score(task.decode(logits, features, rows), task.references(rows))[job.metric]
        found[start] = sign * score, task, logits
    best = max(found, key=lambda start: found[start][0])
    if len(found) > 1 and job.arguments.process_index == 0:
        scores = ", ".join(f"{start} {format_cell(sign * score)}" for start, (score, _, _) in found.items())
        print(f"few labels: {job.task.title(job.metric)} on {folds} folds: {scores}; the encoder is {best}")
    if best == FROZEN:
        planned = [run._replace(recipe=run.recipe._replace(learning_rate=0.0, epochs=0.0)) for run in planned]
    job = dataclasses.replace(_with_data(job, start=best), task=found[best][1])
    if "validation" in job.data.splits:
        return job, planned
    train = job.data.splits["train"]
    held_out = train._replace(source=f"{folds} folds of {train.source}", left_out=0)
    splits = {"train": train, "validation": held_out, **job.data.splits}
    return _with_data(job, out_of_fold=found[best][2], splits=splits), planned


def _with_data(job: Job, **changes) -> Job:
    return dataclasses.replace(job, data=dataclasses.replace(job.data, **changes))


def _out_of_fold(job: Job, run: Run, runs: Path, features: Dataset, folds: int) -> list[np.ndarray]:
    """The logits of each feature of the training rows; of finished folds of a resumed run those that were kept."""
    train, arguments = job.data.splits["train"], job.arguments
    of_rows = fold_of_rows(train.rows, job.task, folds, arguments.seed)
    owners = np.asarray(features[ROW][:])
    found: list[np.ndarray] = [np.empty(0)] * len(features)
    for fold in range(folds):
        name = "-".join(filter(None, (run.name, job.data.start, f"fold{fold + 1}of{folds}")))
        folder, inside = runs / name, of_rows[owners] == fold
        if not (folder / _LOGITS).is_file():
            rest = train.select(np.flatnonzero(of_rows != fold).tolist())
            part = job.task.features(rest.rows, job.tokenizer, training=True)
            own = _with_data(job, splits={"train": rest}, train_features=part)
            if arguments.process_index == 0 and job.data.start is None:
                print(f"fold {fold + 1} of {folds}", flush=True)
            _, model = train_run(own, run, folder)
            if model is None:  # trained before the run was killed
                task = dataclasses.replace(job.task, config=MyBertConfig.from_pretrained(str(folder / MODEL)))
                model = new_model(task, str(folder / MODEL))
            model = model.to(arguments.device).eval()
            logits = logits_of(model, job.task, job.tokenizer, features.select(np.flatnonzero(inside)))
            np.savez(folder / f"partial.{_LOGITS}", *logits)
            (folder / f"partial.{_LOGITS}").replace(folder / _LOGITS)
            shutil.rmtree(folder / MODEL)
            job.stop.check(arguments, f"fold {fold + 1} of {folds}")
        with np.load(folder / _LOGITS) as kept:
            for place, logits in zip(np.flatnonzero(inside).tolist(), kept.values(), strict=True):
                found[place] = logits
    return found
