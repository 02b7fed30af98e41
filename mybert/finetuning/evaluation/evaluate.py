"""`mybert evaluate`: score a fine-tuned checkpoint on labelled rows."""

import itertools
import time
from pathlib import Path

import numpy as np
from datasets import Dataset
from tqdm.auto import tqdm
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from mybert.common.manifest import identity, json_line, versions, write_json, write_manifest
from mybert.common.memory_allocator import keep_freed_memory
from mybert.common.output_folders import staged_folder
from mybert.common.tables import print_table
from mybert.finetuning.data.dataset_loading import Split, read_split
from mybert.finetuning.data.validation import usable_rows
from mybert.finetuning.evaluation.bootstrap_scores import LabelScores, by_label
from mybert.finetuning.evaluation.error_report import draw_errors, write_errors
from mybert.finetuning.evaluation.evaluation_result import Evaluation
from mybert.finetuning.evaluation.inference import logits_of
from mybert.finetuning.settings import EvaluateSettings
from mybert.finetuning.task_checkpoint import load_finetuned
from mybert.finetuning.tasks.base import LOWER_IS_BETTER, Task, rows_cut

_LABELS_SHOWN = 20
_WORST = 100  # rows
_INDICES_AT_ONCE = 10_000_000  # of bootstrap samples; 80 MB


def evaluate(settings: EvaluateSettings) -> Path:
    """Scores a checkpoint on labelled rows and prints the scores.

    Returns:
        The output folder with results.json, predictions.jsonl, errors.txt, errors.png and manifest.json.

    Raises:
        UserError: checkpoint, rows, output or a setting cannot be used; nothing is written.
    """
    inputs = (settings.model, settings.data)
    with staged_folder(settings.output, overwrite=settings.overwrite, stage="evaluate", inputs=inputs) as folder:
        model, tokenizer, task = load_finetuned(settings)
        split = read_split(settings.data, task, split="validation")
        split = usable_rows(split, task, tokenizer, training=False, errors=settings.errors)
        found = evaluate_rows(
            model, task, tokenizer, split.rows, settings.bootstrap, settings.seed, settings.batch_tokens
        )
        write_evaluation(folder, found, split, {"settings": vars(settings), "versions": versions()})
        write_manifest(
            folder,
            "evaluate",
            settings=settings,
            inputs={"model": identity(settings.model), "data": identity(settings.data)},
            counts={"rows": len(split.rows)},
            metrics=found.metrics,
        )
    print_evaluation(settings.data, found, task)
    return Path(settings.output)


def main(settings: EvaluateSettings) -> None:
    keep_freed_memory()
    print(f"results.json, predictions and errors are in {evaluate(settings)}")


def evaluate_rows(
    model: PreTrainedModel,
    task: Task,
    tokenizer: PreTrainedTokenizerBase,
    rows: Dataset,
    samples: int = 1000,
    seed: int = 42,
    batch_tokens: int | None = None,
) -> Evaluation:
    """
    Args:
        rows: under the canonical column names of the task.
        samples: number of bootstrap samples for the intervals.
    """
    began = time.perf_counter()
    features = task.features(rows, tokenizer, training=False)
    model.eval()
    with tqdm(total=len(features), desc="evaluating", unit=" features", leave=False, disable=None) as bar:
        logits = logits_of(model, task, tokenizer, features, batch_tokens, bar.update)
    predictions, references = task.decode(logits, features, rows), task.references(rows)
    seconds = time.perf_counter() - began
    marks = task.labelled_spans(predictions, references)
    errors = task.errors(predictions, references)
    worst = {
        row: task.describe_error(predictions[row], references[row], rows[row])
        for row in np.argsort(-np.asarray(errors), kind="stable")[:_WORST].tolist()
        if errors[row] > 0
    }
    return Evaluation(
        task.score(predictions, references),
        _intervals(task, predictions, references, samples, seed),
        task.baselines(references),
        predictions,
        references,
        errors,
        worst,
        by_label(*marks) if marks else {},
        task.matrix(predictions, references),
        rows_cut(features),
        seconds,
    )


def _intervals(task: Task, predictions: list, references: list, samples: int, seed: int) -> dict:
    rows, generator, drawn = len(references), np.random.default_rng(seed), {}
    at_once = max(1, _INDICES_AT_ONCE // rows)
    for first in range(0, samples, at_once):
        indices = generator.integers(rows, size=(min(at_once, samples - first), rows))
        for name, values in task.bootstrap(predictions, references, indices).items():
            drawn.setdefault(name, []).extend(values)
    return {name: tuple(np.percentile(values, (2.5, 97.5)).tolist()) for name, values in drawn.items()}


def write_evaluation(folder: Path, found: Evaluation, split: Split, facts: dict) -> None:
    """Writes results.json, predictions.jsonl (with each row under `input`), errors.txt and errors.png."""
    write_json(folder / "results.json", {**found.results(), "rows_left_out": split.left_out, **facts})
    with (folder / "predictions.jsonl").open("w", encoding="utf-8") as file:
        for row, prediction in zip(split.given(), found.predictions, strict=True):
            file.write(json_line({**prediction, "input": row}))
    write_errors(folder / "errors.txt", split, found)
    draw_errors(folder / "errors.png", found)


def print_evaluation(source: str, found: Evaluation, task: Task) -> None:
    """Prints the scores beside their intervals and baselines, then the scores of each label."""
    rows = []
    for name, value in found.metrics.items():
        low, high = found.intervals.get(name, (None, None))
        interval = "-" if low is None else f"{low:.4g} to {high:.4g}"
        rows.append((task.title(name), value, interval, found.baselines[name]))
    cut = f", {found.cut:,} truncated to --max-length" if found.cut else ""
    print(f"{source}: {len(found.predictions):,} rows, {found.results()['rows_per_second']:,} rows/s{cut}")
    print_table("Scores", rows, ("metric", "value", "95 % interval", "best constant prediction"))
    if len(found.labels) > 1:
        rows = [(name, *scores) for name, scores in itertools.islice(found.labels.items(), _LABELS_SHOWN)]
        more = len(found.labels) - len(rows)
        title = f"The {len(rows)} most frequent labels ({more:,} more in results.json)" if more else "Each label"
        print_table(title, rows, ("label", *LabelScores._fields))


def print_if_nothing_learned(metric: str, found: Evaluation) -> None:
    """Prints a warning if the model is not better than the best constant prediction."""
    value, baseline = found.metrics[metric], found.baselines[metric]
    if (value >= baseline) if metric in LOWER_IS_BETTER else (value <= baseline):
        print(
            f"nothing learned: a constant prediction has {metric} {baseline:.4g}, the model {value:.4g}. Try more "
            "rows or epochs, another --learning-rate (higher for small models), no --freeze, or more pretraining"
        )
