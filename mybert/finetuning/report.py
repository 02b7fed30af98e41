"""The results of a fine-tuning: evaluates the best model and writes results.json, curves, history and manifest."""

import dataclasses
import itertools
import shutil
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np
from datasets import Dataset
from scipy.optimize import minimize_scalar
from scipy.special import log_softmax
from torch import nn
from transformers import PreTrainedModel

from modeling_mybert import MyBertConfig
from mybert.artifacts.manifest import HISTORY, RESULTS, versions, write_json
from mybert.common.metrics import metric_of
from mybert.common.tables import format_cell
from mybert.evaluation.analysis import Evaluation
from mybert.evaluation.evaluate import (
    TRAINING_ROWS,
    evaluate_rows,
    print_evaluation,
    write_evaluation,
)
from mybert.finetuning.cross_validation import cost_of_folds
from mybert.finetuning.recipes import print_summaries, summarise
from mybert.finetuning.summary import check_data
from mybert.finetuning.training import MODEL, RUNS, Job, Outcome, trained_model
from mybert.inference.logits import logits_of
from mybert.inference.task_checkpoint import load_finetuned
from mybert.tasks.base import Task
from mybert.tasks.reading import row_digests
from mybert.tasks.settings import PredictorSettings
from mybert.training.curves import CURVES, Panel, draw_curves
from mybert.training.run_folder import RunFolder

_CALIBRATED = ".calibrated"  # temporary subfolder of a run
_MOVED = ".moved"  # the model of a run while its files are moved into the output folder
_TEMPERATURES = (0.05, 20.0)
_AMOUNTS = ("steps", "best_step", "seconds", "tokens_seen", "flops")


def write_results(job: Job, outcome: Outcome, folder: RunFolder) -> None:
    """Moves the best model into the output folder, evaluates it, and writes the results and the manifest."""
    settings, arguments, data, metric = job.settings, job.arguments, job.data, job.metric
    output, results, scores = folder.path, outcome.results, outcome.scores
    summaries = summarise(scores, metric)
    best = summaries[0].best
    amounts = {name: results[best][name] for name in _AMOUNTS}
    run = output / RUNS / best.name
    if (run / _MOVED).is_dir():  # a killed run is resumed here
        _move_files(run / _MOVED, output)
    place = run / MODEL if (run / MODEL).is_dir() else output  # also already moved
    model = outcome.models.get(best) or trained_model(job, place)
    task = dataclasses.replace(job.task, config=cast(MyBertConfig, model.config))
    if place != output:
        if settings.calibrate and "temperature" not in results[best]:
            _calibrate(job, model, task, results[best], run)
        _move_files(place.rename(run / _MOVED), output)
    if amounts["best_step"] < amounts["steps"]:
        print(f"scores of the checkpoint of step {amounts['best_step']:,}, the best by {task.title(metric)}")
    for name in ("label_threshold", "no_answer_threshold"):
        if "validation" in data.splits and (threshold := getattr(model.config, name, None)):
            print(f"{name} {format_cell(threshold)} in config.json was tuned on the validation rows")
    evaluated = _evaluate(job, folder, model, task)
    evaluations = {
        name: {**evaluation.results(), "rows_left_out": data.splits[name].left_out}
        for name, evaluation in evaluated.items()
    }
    teacher = _score_teacher(job, settings.teacher) if settings.teacher else {}
    shutil.copyfile(output / RUNS / best.name / HISTORY, output / HISTORY)
    np.save(output / TRAINING_ROWS, np.array(row_digests(data.splits["train"].rows, task), dtype=np.uint64))
    constant = evaluated["validation"].baselines.get(metric) if "validation" in evaluated else None
    panels = [Panel("loss", "loss", "eval_loss"), Panel(metric, None, f"eval_{metric}", constant)]
    draw_curves(results[best]["log"], panels, output / CURVES)
    if data.validation_features is not None and len(scores) > 1:
        print_summaries(summaries, metric)
        if arguments.bf16 or arguments.fp16:
            print("runs are scored in half precision, like training; the tables above are in float32")
    write_json(
        output / RESULTS,
        {
            "task": settings.task,
            "metric": job.main_metric,
            **evaluations,
            "best": {**best.recipe._asdict(), "seed": best.seed, **amounts},
            "folds": cost_of_folds(output / RUNS),
            "few_labels": data.few_labels,
            "recipes": [
                {**s.recipe._asdict(), "mean": s.mean, "deviation": s.deviation, "best_seed": s.best.seed}
                for s in (summaries if evaluations.get("validation") else ())
            ],
            "runs": list(results.values()),
            "diverged": list(outcome.diverged.values()),
            "data": data.overview,
            "data_checks": check_data({name: data.splits[name] for name in data.overview}, task),
            "temperature": results[best].get("temperature"),
            "teacher": teacher,
            "settings": dataclasses.asdict(settings),
            "training_arguments": arguments.to_dict(),
            "versions": versions(),
        },
    )
    folder.finish(
        counts={name: split["rows"] for name, split in data.overview.items()},
        training=amounts,
        metrics={name: entry["metrics"] for name, entry in evaluations.items()},
    )


def _calibrate(job: Job, model: PreTrainedModel, task: Task, result: dict[str, Any], run: Path) -> None:
    """Scales the head of a run's model by a temperature fitted on the validation rows; adds it to the run's results.

    Called once, also if the run is resumed: the temperature of a scaled head is 1.
    """
    features, rows = job.data.validation_features, job.data.splits["validation"].rows
    assert features is not None  # `--calibrate` has been refused otherwise
    logits = logits_of(model, task, job.tokenizer, features)
    temperature = fit_temperature(*class_probabilities(task, logits, features, rows))
    scale_head(model, temperature)
    model.save_pretrained(run / _CALIBRATED)
    result["temperature"] = temperature
    _move_files(run / _CALIBRATED, run / MODEL)
    write_json(run / RESULTS, result)


def fit_temperature(probabilities: Sequence[Sequence[float]], labels: Sequence[int]) -> float:
    """The temperature by which logits must be divided for the least cross-entropy of the labels.

    Their softmax is given, of rows that may have different numbers of choices. A probability that float32 rounds to 0
    counts as its smallest number, or the loss of a surely wrong row would be infinite at any temperature.
    """
    given = np.array(list(itertools.zip_longest(*probabilities, fillvalue=np.nan))).T
    logits = np.where(np.isnan(given), -np.inf, np.log(np.maximum(given, np.finfo(np.float32).tiny)))

    def loss(logarithm: float) -> float:
        return -log_softmax(logits / np.exp(logarithm), axis=1)[np.arange(len(labels)), labels].mean()

    return float(np.exp(minimize_scalar(loss, bounds=np.log(_TEMPERATURES), method="bounded").x))


def class_probabilities(
    task: Task, logits: Sequence[np.ndarray], features: Dataset, rows: Dataset
) -> tuple[list[Sequence[float]], list[int]]:
    """The probabilities of the classes or choices of each row or word, and the place of the right one."""
    references, of_words = task.references(rows), task.tag_probabilities(logits, features, rows)
    if of_words is not None:
        return [*itertools.chain(*of_words)], [task.label2id[tag] for tags in references for tag in tags]
    scores = [prediction["scores"] for prediction in task.decode(logits, features, rows)]
    if isinstance(scores[0], list):
        return scores, references
    return [[*some.values()] for some in scores], [task.label2id[name] for name in references]


def scale_head(model: PreTrainedModel, temperature: float) -> None:
    """Divides the logits of a model by the temperature, in the weights of its last layer."""
    head: Any = model.classifier
    last = [part for part in head.modules() if isinstance(part, nn.Linear)][-1]
    for parameter in last.parameters():
        parameter.data /= temperature


def _move_files(folder: Path, target: Path) -> None:
    for path in folder.iterdir():
        path.replace(target / path.name)
    folder.rmdir()


def _evaluate(job: Job, folder: RunFolder, model: PreTrainedModel, task: Task) -> dict[str, Evaluation]:
    """Scores the model on the validation and test rows; writes and prints the scores."""
    settings, data = job.settings, job.data
    evaluations: dict[str, Evaluation] = {}
    for name in ("validation", "test"):
        if name in data.splits:
            split, place = data.splits[name], folder.path / name
            logits = data.out_of_fold if name == "validation" else None
            train, seed = None if logits is not None else data.splits["train"].rows, job.arguments.seed
            evaluation = evaluate_rows(
                *(model, task, job.tokenizer, split.rows, settings.bootstrap, seed), train=train, logits=logits
            )
            place.mkdir(exist_ok=True)
            facts = {"source": split.source, "metric": job.main_metric}
            unlearned = [] if logits is None else _of_one_row(task, split.rows)
            suspects = write_evaluation(place, evaluation, split, facts, task, settings, folder.path.name, unlearned)
            print_evaluation(f"{name}, {split.source}", evaluation, task, suspects, place)
            evaluations[name] = evaluation
    return evaluations


def _of_one_row(task: Task, rows: Dataset) -> list[str]:
    """Labels with a single row, which a fold that predicts this row has not learned."""
    counts = Counter(label for labels in task.row_labels(rows) for label in labels)
    return [label for label, count in counts.items() if count == 1]


def _score_teacher(job: Job, name: str) -> dict[str, dict[str, float]]:
    """Scores the teacher on the validation and test rows as the student read them; returns and prints its metrics."""
    metric = job.main_metric
    teacher = load_finetuned(PredictorSettings(model=name))
    task = dataclasses.replace(job.task, config=teacher.task.config)  # with the thresholds of the teacher
    scores: dict[str, dict[str, float]] = {}
    for part in ("validation", "test"):
        if part in job.data.splits:
            rows = job.data.splits[part].rows
            scores[part] = evaluate_rows(teacher.model, task, job.tokenizer, rows, samples=0).metrics
            score = metric_of(metric).written(scores[part].get(metric))
            print(f"{part}, teacher {name}: {task.title(metric)} {score}")
    return scores
