"""`mybert evaluate`: score a fine-tuned checkpoint on labelled rows."""

import dataclasses
import itertools
import time
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from datasets import Dataset
from transformers import PreTrainedTokenizerBase

from mybert.artifacts.manifest import (
    ANALYSIS,
    PREDICTIONS,
    RESULTS,
    behind,
    identity,
    inputs_of,
    is_model,
    json_line,
    read_manifest,
    versions,
    write_json,
    write_manifest,
)
from mybert.artifacts.staging import staged_folder
from mybert.common.errors import visible
from mybert.common.metrics import metric_of, percent
from mybert.common.progress import Bar
from mybert.common.quantities import counted
from mybert.common.tables import print_table
from mybert.evaluation.analysis import Evaluation, Matrix, analyse, check_slices, intervals
from mybert.evaluation.confidence import Suspect, find_suspects, find_wrong_tags, ranks_labels
from mybert.evaluation.labelling_files import RowToLabel, check_form, write_rows_to_label
from mybert.inference.logits import Model, logits_of, token_count
from mybert.inference.task_checkpoint import load_finetuned
from mybert.reports.checks.evaluation import better_than
from mybert.rows.splits import Split
from mybert.tasks.base import Task
from mybert.tasks.bootstrap_scores import LABEL_COLUMNS
from mybert.tasks.features import CUT, ROW
from mybert.tasks.reading import read_split, row_digests, usable_rows
from mybert.tasks.settings import LABELLING_FORMS, EvaluateSettings, EvaluationOptions

TRAINING_ROWS = "runs/training_rows.npy"
"""File of a fine-tuning with the digests of its training rows. `mybert push` leaves out the folder."""
_LABELS_SHOWN = 20
_WORST = 100  # rows
_CELL = 200  # characters of a value in errors.txt
_LONG = ("scores", "n_best")  # fields of predictions that errors.txt does not list


def evaluate(settings: EvaluateSettings) -> Path:
    """Scores a checkpoint on labelled rows and prints the scores.

    Returns:
        The output folder with results.json, analysis.json, predictions.jsonl, errors.txt and manifest.json.

    Raises:
        UserError: checkpoint, rows, output or a setting cannot be used; nothing is written.
    """
    assert settings.data is not None  # otherwise `mybert.retrieval` evaluates documents
    inputs = (settings.model, settings.data)
    with staged_folder(settings.output, overwrite=settings.overwrite, stage="evaluate", inputs=inputs) as folder:
        model, tokenizer, task = load_finetuned(settings)
        split = read_split(settings.data, task, split="validation")
        for line in split.describe_columns():
            print(line)
        stored, task = task.options, task.with_label_reading([split])
        if task.options != stored:
            print(task.summary(split.rows))
        split = usable_rows(split, task, tokenizer, training=False, errors=settings.errors)
        check_slices([split], settings.slices)
        check_form("--suspects", settings.suspects, task, split.rows.column_names)
        evaluation = evaluate_rows(
            model, task, tokenizer, split.rows, settings.bootstrap, settings.seed, settings.max_tokens_per_batch
        )
        data = identity(settings.data)
        trained = _find_training_rows(split.rows, task, settings.model, data)
        of_run = {"settings": dataclasses.asdict(settings), "versions": versions()}
        facts = {"task": task.name, "metric": task.main_metric, "training_rows": trained, **of_run}
        suspects = write_evaluation(folder, evaluation, split, facts, task, settings, Path(settings.model).name)
        write_manifest(
            folder,
            "evaluate",
            settings=settings,
            inputs={"model": identity(settings.model), "data": data},
            counts={"rows": len(split.rows)},
            metrics=evaluation.metrics,
        )
    print_evaluation(settings.data, evaluation, task, suspects, settings.output)
    return Path(settings.output)


def evaluate_rows(
    model: Model,
    task: Task,
    tokenizer: PreTrainedTokenizerBase,
    rows: Dataset,
    samples: int = 1000,
    seed: int = 42,
    max_tokens_per_batch: int | None = None,
    train: Dataset | None = None,
    logits: Sequence[np.ndarray] | None = None,
) -> Evaluation:
    """Predicts and scores rows with columns by role, with intervals from bootstrap `samples`.

    Args:
        train: the rows that the model was trained on, for the scores of a simple model beside it.
        logits: of each feature, in place of those of `model`.
    """
    began, known = time.perf_counter(), logits is not None
    features = task.features(rows, tokenizer, training=False)
    if logits is None:
        with Bar(total=len(features), desc="evaluating", unit="features", leave=False) as bar:
            logits = logits_of(model, task, tokenizer, features, max_tokens_per_batch, bar.update)
    predictions, references = task.decode(logits, features, rows), task.references(rows)
    seconds = None if known else time.perf_counter() - began
    errors = task.errors(predictions, references)
    worst = {
        row: task.describe_error(predictions[row], references[row], rows[row])
        for row in np.argsort(-np.asarray(errors), kind="stable")[:_WORST].tolist()
        if errors[row] > 0
    }
    simple = {} if train is None else task.simple_predictions(train, rows)
    return Evaluation(
        task.score(predictions, references),
        intervals(task, predictions, references, samples, np.random.default_rng(seed)),
        task.baselines(references),
        {name: task.score(answers, references) for name, answers in simple.items()},
        predictions,
        references,
        errors,
        worst,
        task.label_scores(predictions, references),
        Matrix.of(task, predictions, references),
        *_lengths(features, len(rows)),
        seconds,
        task.tag_probabilities(logits, features, rows),
    )


def _lengths(features: Dataset, rows: int) -> tuple[list[int], list[bool]]:
    """Tokens of each row, and whether it was truncated."""
    lengths, truncated, owners = np.zeros(rows, dtype=int), np.zeros(rows, dtype=bool), np.asarray(features[ROW][:])
    np.add.at(lengths, owners, list(map(token_count, features["input_ids"][:])))
    if CUT in features.column_names:
        truncated[owners[np.asarray(features[CUT][:], dtype=bool)]] = True
    return lengths.tolist(), truncated.tolist()


def write_evaluation(
    folder: Path,
    evaluation: Evaluation,
    split: Split,
    facts: dict[str, Any],
    task: Task,
    settings: EvaluationOptions,
    model: str,
    unlearned: Collection[str] = (),
) -> dict[str, int]:
    """Writes results.json, analysis.json, predictions.jsonl, suspects.* and errors.txt.

    Each prediction has the `reference`, the `error`, its `row` or `line` in the file, and the row as `input`. The rows
    of several files are counted together.

    Args:
        model: name of the model.
        unlearned: see `find_suspects`.

    Returns:
        The name of the file of labels that look incorrect, and their number; empty if there are none, or if the model
        is no better than the best constant prediction, and its probabilities do not rank the rows either.
    """
    given, slices = list(split.given()), settings.slices
    suspects = _suspects(evaluation, task, unlearned)
    analysis = analyse(task, evaluation, split.numbers, given, slices, facts["metric"], suspects)
    for column in slices:
        if len(analysis["slices"][column]) == 1:
            print(f"--slices {column}: all rows of {split.source} have the same value, so there is one group")
    (folder / ANALYSIS).write_text(json_line(analysis), encoding="utf-8", newline="\n")
    write_json(folder / RESULTS, {**evaluation.results(), "rows_left_out": split.left_out, **facts})
    columns = (given, evaluation.predictions, evaluation.references, evaluation.errors, split.numbers)
    unit = "row" if split.parts else split.unit
    with (folder / PREDICTIONS).open("w", encoding="utf-8", newline="\n") as file:
        for row, prediction, reference, error, number in zip(*columns, strict=True):
            about = {"reference": reference, "error": error, unit: number + 1, "input": row}
            file.write(json_line({**prediction, **about}))
    write_errors(folder / "errors.txt", split, evaluation)
    if not suspects:
        return {}
    return {_write_suspects(folder, suspects, evaluation, split, given, task, settings.suspects, model): len(suspects)}


def write_errors(path: Path, split: Split, evaluation: Evaluation) -> None:
    """Writes the worst rows, the worst first.

    Rows are named by their line or row in the file, from 1. For tags, only the differing spans are shown.
    """
    errors, worst = evaluation.errors, evaluation.worst
    incorrect = f"incorrect: {np.count_nonzero(errors):,} of {counted(len(errors), 'row')}"
    lines = [f"{incorrect}; mean error {np.mean(errors):.4g}; the worst {len(worst)}:"]
    for row, described in worst.items():
        lines.append(f"\n{split.named(row)}, error {errors[row]:.4g}")
        lines += [f"  {line}" for line in described or _fields(split.rows[row], evaluation.predictions[row])]
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8", newline="\n")


def _fields(row: dict[str, Any], prediction: dict[str, Any]) -> list[str]:
    shown = {name: value for name, value in prediction.items() if name not in _LONG}
    texts = {name: " ".join(str(value).split()) for name, value in {**row, "predicted": shown}.items()}
    return [f"{name}: {text if len(text) <= _CELL else f'{text[: _CELL - 1]}…'}" for name, text in texts.items()]


def _suspects(evaluation: Evaluation, task: Task, unlearned: Collection[str]) -> list[Suspect]:
    """The rows whose label looks incorrect; prints why there are none if the model cannot tell."""
    answers = evaluation.predictions, evaluation.references
    if evaluation.tag_probabilities is not None:
        names = [name for _, name in sorted(task.id2label.items())]
        suspects = find_wrong_tags(*answers, evaluation.tag_probabilities, names)
        if not suspects and any(evaluation.errors):
            print("no list of tags that look incorrect: the model is as often wrong as its probabilities say")
        return suspects
    suspects = find_suspects(*answers, unlearned)
    if suspects and not (_better_than_constant(evaluation, task)[0] or ranks_labels(*answers)):
        print("no list of labels that look incorrect: the model is no better than the best constant prediction")
        return []
    return suspects


def _better_than_constant(evaluation: Evaluation, task: Task) -> tuple[bool, bool]:
    """Whether a model is better than the best constant prediction, and its whole interval is."""
    return better_than(evaluation.results(), task.main_metric, evaluation.baselines[task.main_metric])


def _write_suspects(
    folder: Path,
    suspects: Sequence[Suspect],
    evaluation: Evaluation,
    split: Split,
    given: Sequence[dict[str, Any]],
    task: Task,
    form: str,
    model: str,
) -> str:
    """Writes the rows whose label looks incorrect, with their columns; returns the name of the file."""
    rows = [
        RowToLabel(
            given[row],
            split.rows[row],
            evaluation.predictions[row],
            answer.score,
            {**split.where(row), "probability": round(answer.own, 4), "reason": answer.reason()},
            evaluation.references[row],
        )
        for row, answer in suspects
    ]
    path = folder / f"suspects{LABELLING_FORMS[form]}"
    write_rows_to_label(path, rows, form, model, task)
    return path.name


def print_evaluation(
    source: str, evaluation: Evaluation, task: Task, suspects: dict[str, int], folder: Path | str
) -> None:
    """Prints the scores beside their intervals and baselines, the scores of each label, and the file of `suspects`."""
    rows = []
    for name, value in evaluation.metrics.items():
        named, bounds = metric_of(name), evaluation.intervals.get(name)
        interval = named.interval(*bounds) if bounds else "-"
        others = [named.cell(scores[name]) for scores in (evaluation.baselines, *evaluation.simple.values())]
        rows.append((task.title(name), named.cell(value), interval, *others))
    rate, cut = evaluation.results()["rows_per_second"], evaluation.cut
    notes = f"{'' if rate is None else f', {rate:,} rows/s'}{f', {cut:,} truncated to --max-length' if cut else ''}"
    print(f"{source}: {counted(len(evaluation.predictions), 'row')}{notes}")
    print_table("Scores", rows, ("metric", "value", "95% interval", "best constant prediction", *evaluation.simple))
    if len(evaluation.labels) > 1:
        rows = [
            (visible(name), *scores[:3], *map(percent, scores[3:]))
            for name, scores in itertools.islice(evaluation.labels.items(), _LABELS_SHOWN)
        ]
        more = len(evaluation.labels) - len(rows)
        title = f"The {len(rows)} most frequent labels ({more:,} more in results.json)" if more else "Each label"
        print_table(title, rows, ("label", *LABEL_COLUMNS))
    for name, number in suspects.items():
        sure = _better_than_constant(evaluation, task)[1]
        doubt = "" if sure else " to a model that may be no better than a constant prediction"
        several = isinstance(evaluation.references[0], list)  # tags, or several labels of a text
        rows_or_labels = counted(len(evaluation.references), "row" if several else "label")
        which = f"{rows_or_labels} have labels that" if several else rows_or_labels
        print(f"{number:,} of {which} look incorrect{doubt}: {Path(folder) / name}")


def _find_training_rows(rows: Dataset, task: Task, model: str, data: dict[str, str]) -> dict[str, Any] | None:
    """
    Args:
        rows: the evaluated rows, with columns by role.
        data: the manifest entry of the evaluated data.

    Returns:
        `same_file`: whether the model was trained on this file; `rows`, and how many of them are training rows,
        `equal`, or None if they are not recorded. None if the training of the model is not recorded.
    """
    own = read_manifest(model)
    models = [("", Path(model), own), *behind(own, lambda name, _: is_model(name))]
    trainings = [(folder, record) for _, folder, record in models if record.get("stage") == "finetune"]
    if not trainings:
        return None
    files = [folder / TRAINING_ROWS for folder, _ in trainings if (folder / TRAINING_ROWS).is_file()]
    equal = None
    if files:
        known = np.concatenate([np.load(file) for file in files])
        equal = int(np.isin(np.array(row_digests(rows, task), dtype=np.uint64), known).sum())
    is_folder = Path(data["path"].split(":")[0]).is_dir()  # which may have several splits
    inputs = [pair for _, manifest in trainings for pair in inputs_of(manifest).items()]
    hashes = {entry.get("sha256") for name, entry in inputs if name.startswith("train")}
    same = not is_folder and data.get("sha256") in hashes - {None}
    return {"same_file": same, "rows": len(rows), "equal": equal}
