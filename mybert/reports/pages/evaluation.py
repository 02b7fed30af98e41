"""The report of an evaluation: scores, confusions, slices, predictions."""

import operator
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import mean
from typing import Any

from mybert.common.errors import visible
from mybert.common.metrics import Metric, interval_of, metric_of
from mybert.common.quantities import counted
from mybert.reports.charts import Line, line_chart
from mybert.reports.checks.evaluation import FEW_RED, better_than, has_one_answer, main_metric
from mybert.reports.components import Chart, Interval, Page, Section, Share, Table, Tile
from mybert.reports.pages.probabilities import probability_sections
from mybert.reports.pages.shared import facts, subtitle
from mybert.reports.prediction_table import prediction_table, rows_at
from mybert.reports.stage_files import StageFiles, is_number

_LABELS = 100
_MATRIX = 25  # labels of a whole confusion matrix
_PACKED = 4_000_000  # bytes of all predictions of a page
_SLICES = {"truncated": "truncation"}
_GROUPS = f"Groups of rows and their scores; those of fewer than {FEW_RED} rows say little."
_ANSWERS = {
    "text-classification": ("reference label", "predicted label", "confidence"),
    "token-classification": ("reference", "prediction", "confidence"),
    "question-answering": ("reference answer", "predicted answer", "score"),
    "multiple-choice": ("reference choice", "predicted choice", "confidence"),
}
"""Headers of the columns of every row; the last one is a probability if it is a confidence."""
_NUMBERS = ("reference", "prediction", "confidence")
_ERRORS = {
    "several labels": "The largest errors come first; the error is the number of missing and additional labels.",
    "regression": "The largest errors come first; the error is the absolute difference.",
    "one answer": "Incorrect predictions come first. The error is 1 minus the probability of the reference for an "
    "incorrect prediction, and 0 for a correct one.",
    "token-classification": "The rows with most incorrect tags come first. An entity that the other side lacks has a "
    "dashed border; of tags that name no entities, only incorrect ones are shown.",
    "question-answering": "The worst answers come first; the error is 1 minus the F1 with the best reference.",
}


def page(files: StageFiles) -> Page:
    sections = evaluation_sections(files, "", files.results) if files.results else []
    tiles = score_tiles(files, "", files.results)
    if files.results:
        tiles.append(Tile("Rows", f"{files.results['rows']:,}", _rate(files.results)))
    summary = score_summary(files, "", files.results)
    return Page("Evaluation report", subtitle(files), tiles, sections, facts(files), summary)


def score_tiles(files: StageFiles, part: str, results: Mapping[str, Any]) -> list[Tile]:
    """The main score."""
    if not results.get("metrics"):
        return []
    name = main_metric(files, results)
    metric, interval = metric_of(name), interval_of(results, name)
    notes = [counted(results["rows"], "row")] if part else []
    notes += [f"95% interval {metric.interval(*interval)}"] if interval else []
    teacher = (files.results.get("teacher") or {}).get(part, {})
    notes += [f"its teacher {metric.written(teacher[name])}"] if name in teacher else []
    notes.append(f"best constant prediction {metric.written(results['constant_baselines'].get(name))}")
    notes += [f"{model} {metric.written(scores.get(name))}" for model, scores in results["simple_baselines"].items()]
    where = f" ({part})" if part else ""
    return [Tile(f"{metric.title}{where}", metric.written(results["metrics"][name]), "; ".join(notes))]


def score_summary(files: StageFiles, part: str, results: Mapping[str, Any]) -> str:
    """The main score in words, and whether the model has learned anything."""
    if not results.get("metrics"):
        return ""
    name, unit = main_metric(files, results), "row" if results["rows"] == 1 else "rows"
    rows = " ".join(filter(None, (f"{results['rows']:,}", part, unit)))
    metric, value, constant = metric_of(name), results["metrics"][name], results["constant_baselines"].get(name)
    if value is None:
        return f"{metric.title} of the {rows} could not be computed."
    if name == "accuracy" and files.task != "token-classification":  # there it is a share of tags, not of rows
        text = f"The model is right on {metric.written(value)} of {rows}."
    else:
        text = f"{metric.title} on {rows}: {metric.written(value)}{f' ({metric.meaning})' if metric.meaning else ''}."
    if constant is None:
        return text
    if has_one_answer(results, name):
        return f"{text} All rows have the same answer, so that this does not show what the model has learned."
    text += f" The best constant prediction, one answer for all rows, has {metric.written(constant)}"
    simple = results["simple_baselines"].items()
    others = {model: scores[name] for model, scores in simple if scores.get(name) is not None}
    text += "".join(f"; {model}, a simple model, {metric.written(value)}" for model, value in others.items()) + ": "
    compared = {"the best constant prediction": constant, **others}
    best = max(compared, key=lambda model: -compared[model] if metric.is_loss else compared[model])
    good, sure = better_than(results, name, compared[best])
    if sure:
        return f"{text}the model is clearly better{' than both' if others else ''}."
    return text + (f"the difference from {best} may be chance." if good else f"the model is no better than {best}.")


def _rate(results: Mapping[str, Any]) -> str:
    rate = results["rows_per_second"]
    return "predicted by folds" if rate is None else f"{rate:,} rows per second"


def evaluation_sections(files: StageFiles, part: str, results: Mapping[str, Any]) -> list[Section]:
    """`part` is `validation`, `test`, or "" for `mybert evaluate`."""
    analysis, named = files.analysis(part), f" ({part})" if len(files.parts) > 1 else ""
    slices = [_slices(title, rows, results) for title, rows in (analysis.get("slices") or {}).items()]
    limit = _PACKED // max(1, len(files.parts))
    names = _NUMBERS if files.is_regression else _ANSWERS.get(files.task, _ANSWERS["text-classification"])
    graded = not files.is_regression
    data, settings = files.results.get("data") or {}, files.results.get("settings") or {}
    source = str((data.get(part, {}).get("source") if part else settings.get("data")) or "the file")
    name = Path(source.partition("% of ")[2] or source).name  # held-out rows keep the numbers of the training file
    numbering = f"Rows have their numbers in {name}, which count lines if it has lines."
    lines = list(files.predictions(part))
    table = prediction_table(f"Predictions{named}", lines, names, limit, graded)
    scores: list[Any] = [_scores(results), _labels(results), _matrix(analysis)]
    scores += [_predicted_numbers(lines)] * files.is_regression
    kind = "regression" if files.is_regression else "several labels" if files.has_several_labels else files.task
    errors = _ERRORS.get(kind, _ERRORS["one answer"])
    return [
        Section(f"Scores{named}", scores, f"{counted(results['rows'], 'row')}, {_rate(results)}."),
        *probability_sections(analysis, results, named),
        Section(f"Where it fails{named}", [*slices, _suspects(files, part, lines)], f"{_GROUPS} {numbering}"),
        Section(f"Every row{named}", [table], f"Choose a header to sort. {numbering} {errors}"),
    ]


def _scores(results: Mapping[str, Any]) -> Table:
    rows = []
    for name, value in results["metrics"].items():
        metric, constant = metric_of(name), results["constant_baselines"].get(name)
        interval = interval_of(results, name)
        shown = _interval(metric, value, interval, constant)
        between = metric.interval(*interval) if interval else "-"
        simple = [_number(metric, scores.get(name)) for scores in results["simple_baselines"].values()]
        others = [_number(metric, constant), *simple]
        rows.append((metric.title, _number(metric, value), between, *others, shown, metric.meaning))
    columns = ["metric", "value", "95% interval", "best constant prediction", *results["simple_baselines"]]
    columns += ["from 0 to 1", "meaning"]
    note = "The dot is the score and the band its interval. The line is the best constant prediction."
    if not any(isinstance(row[-2], Interval) for row in rows):
        columns, rows, note = [*columns[:-2], columns[-1]], [(*row[:-2], row[-1]) for row in rows], ""
    return Table("All metrics", columns, rows, note)


def _number(metric: Metric, value: float | None) -> Share | None:
    """A cell with a value of a metric."""
    return None if value is None else Share(0.0, metric.written(value))


def _interval(
    metric: Metric, value: float | None, interval: tuple[float, float] | None, other: float | None
) -> Interval | str:
    """A score on a scale from 0 to 1; empty for metrics with other scales."""
    if metric.is_loss or value is None:
        return ""
    low, high = interval or (value, value)
    fits = 0 <= value <= 1 and 0 <= low <= high <= 1
    return Interval(value, low, high, other) if fits else ""


def _labels(results: Mapping[str, Any]) -> Table | None:
    labels = results.get("labels") or {}
    if len(labels) < 2:
        return None
    rows = [
        (visible(name), s["true"], s["predicted"], s["right"], *map(Share, (s["precision"], s["recall"], s["f1"])))
        for name, s in list(labels.items())[:_LABELS]
    ]
    note = "Precision: share of its predictions that are right. Recall: share of its references that are found."
    note += "" if len(labels) <= _LABELS else f" The {_LABELS} most frequent of {len(labels):,}."
    columns = ["label", "reference", "predicted", "correct", "precision", "recall", "F1"]
    return Table("Each label", columns, rows, note)


def _matrix(analysis: Mapping[str, Any]) -> Table | None:
    matrix = analysis.get("confusion")
    if not matrix:
        return None
    names, counts = [*map(visible, matrix["names"])], matrix["counts"]
    if len(names) > _MATRIX:
        named = ((names[i], names[j], count) for i, row in enumerate(counts) for j, count in enumerate(row) if i != j)
        most = sorted(filter(operator.itemgetter(2), named), key=lambda confusion: -confusion[2])[:_LABELS]
        return Table("Most frequent confusions", ["reference", "predicted", "count"], most)
    rows = []
    for i, (name, row) in enumerate(zip(names, counts, strict=True)):
        total = max(sum(row), 1)
        rows.append([name, *(Share(c / total, f"{c:,}", "accent" if i == j else "bad") for j, c in enumerate(row))])
    note = "Each row is a reference label, each column a prediction. Blue: correct. Red: incorrect."
    return Table("Confusion matrix", ["reference", *names], rows, note)


def _predicted_numbers(lines: Sequence[Mapping[str, Any]]) -> Chart | None:
    """The mean predicted number for each reference, beside the reference itself."""
    predicted: dict[float, list[float]] = {}
    for line in lines:
        if is_number(line.get("reference")) and is_number(line.get("score")):
            predicted.setdefault(line["reference"], []).append(line["score"])
    if not predicted:
        return None
    means = Line("mean prediction", {true: mean(some) for true, some in predicted.items()}, marked=True)
    ends = Line("reference", {end: end for end in (min(predicted), max(predicted))})
    return line_chart("Predicted numbers", {"reference": [means, ends]})


def _slices(title: str, rows: list[dict[str, Any]], results: Mapping[str, Any]) -> Table | None:
    if len(rows) < 2:
        return None
    metric = rows[0]["metric"]
    named = metric_of(metric)
    cells: list[Sequence[Any]] = []
    for row in rows:
        interval = interval_of({"intervals_95": {metric: row.get("interval")}}, metric)
        shown = _interval(named, row["score"], interval, results["metrics"].get(metric))
        between = named.interval(*interval) if interval else "-"
        cells.append((row["value"], row["rows"], _number(named, row["score"]), between, shown))
    columns = [title, "rows", named.title, "95% interval", "the line is the score of all rows"]
    if not any(isinstance(row[-1], Interval) for row in cells):
        columns, cells = columns[:-1], [row[:-1] for row in cells]
    return Table(f"By {_SLICES.get(title, title)}", columns, cells)


def _suspects(files: StageFiles, part: str, lines: Sequence[Mapping[str, Any]]) -> Table | None:
    analysis = files.analysis(part)
    rows = analysis.get("suspects")
    if not rows:
        return None
    id_name, named = rows_at(lines, {row["row"] for row in rows})
    cells = []
    for row in rows:
        shares = (Share(row[name]) if name in row else None for name in ("probability", "confidence"))
        cells.append((*named.get(row["row"], (row["row"], None)), row["reference"], row["prediction"], *shares))
    columns = [id_name, "input", "reference", "prediction", "probability of the reference", "of the prediction"]
    count = analysis.get("suspect_rows", len(rows))
    listed = "" if count == len(rows) else f" These are the first {len(rows)}."
    written = [path.relative_to(files.folder).as_posix() for path in (files.folder / part).glob("suspects.*")]
    note = f"The model contradicts the labels of {counted(count, 'row')}. Look at them: the label may be incorrect."
    note += "".join(f" The file {name} has all of them, ready to be corrected." for name in written) + listed
    return Table("Labels that look incorrect", columns, cells, note)
