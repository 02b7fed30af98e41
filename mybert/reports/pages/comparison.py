"""The page of a comparison: which run is better, where, and whether it may be chance."""

import itertools
import operator
from collections.abc import Mapping, Sequence
from typing import Any

from mybert.artifacts.manifest import CHANGES
from mybert.common.metrics import SURE, Metric, changed_rows, metric_of, verdict
from mybert.common.quantities import counted, duration
from mybert.reports.charts import Line, line_chart
from mybert.reports.components import Chart, Page, Predictions, Section, Share, Table, Tile
from mybert.reports.pages.shared import facts, subtitle
from mybert.reports.prediction_table import (
    answers_of,
    around_answer,
    id_column_of,
    input_text,
    name_column,
    named_row,
    packed,
    short_cell,
)
from mybert.reports.stage_files import StageFiles, is_number

_FIRST, _LABELS, _MOST = 25, 100, 20_000  # rows without JavaScript, labels, and rows of a page


def page(files: StageFiles) -> Page:
    results, metric = files.results, files.results["metric"]
    runs, compared = results["runs"], results["comparisons"]
    named, first = metric_of(metric), compared[0]["metrics"][metric]
    tiles = []
    for run in runs:
        spread, note = run["deviations"].get(metric), ""
        if spread is not None:
            note = f"mean of {run['seeds']} runs, deviation {named.written(spread)}"
        tiles.append(Tile(run["name"], named.written(run["metrics"][metric]), note))
    interval = "95% interval " + " to ".join(map(named.change, first["interval"]))
    tiles += [
        Tile("Difference", named.change(first["difference"]), interval),
        Tile("p", f"{first['p']:.3g}", first["test"]),
    ]
    intro = f"{counted(results['rows'], 'row')}, the same for all runs."
    sections = [Section("Scores", [_scores(runs), _cost(runs)], intro)]
    for entry in compared:
        sections += _comparison(files, entry, metric, len(compared) > 1)
    sections.append(_curves(runs, metric))
    return Page(
        "Comparison",
        subtitle(files),
        tiles,
        sections,
        facts(files),
        " ".join(verdict(entry, metric) for entry in compared),
    )


def _scores(runs: Sequence[Mapping[str, Any]]) -> Table:
    metrics = {name: metric_of(name) for name in runs[0]["metrics"]}
    rows = [(run["name"], *(Share(0.0, one.written(run["metrics"][n])) for n, one in metrics.items())) for run in runs]
    return Table("Every score", ["run", *(one.title for one in metrics.values())], rows)


def _cost(runs: Sequence[Mapping[str, Any]]) -> Table | None:
    """What runs cost, as far as their folders say."""
    seconds = (run["training_seconds"] for run in runs)
    measures = {
        "rows per second": [run["rows_per_second"] for run in runs],
        "parameters": [run["parameters"] for run in runs],
        "training time": [duration(one) if is_number(one) else None for one in seconds],
        "tokens of training": [run["tokens_seen"] for run in runs],
    }
    known = {name: values for name, values in measures.items() if any(value is not None for value in values)}
    rows = list(zip((run["name"] for run in runs), *known.values(), strict=True))
    note = "Rows per second are those of the evaluation, on the machine that ran it. "
    note += "Time and tokens of training include the models of all folds."
    return Table("Cost", ["run", *known], rows, note) if known else None


def _comparison(files: StageFiles, entry: Mapping[str, Any], metric: str, is_one_of_many: bool) -> list[Section]:
    first, second = entry["runs"]
    title = f"{second} minus {first}"
    named = f": {title}" if is_one_of_many else ""
    rows = []
    for name, outcome in entry["metrics"].items():
        measure, difference, p = metric_of(name), outcome["difference"], outcome["p"]
        result = "better" if (difference > 0) != measure.is_loss else "worse"
        result = result if p < SURE else "may be chance"
        interval = " to ".join(map(measure.change, outcome["interval"]))
        rows.append((measure.title, measure.change(difference), interval, p, result))
    test = next(iter(entry["metrics"].values()))["test"]
    columns = ["metric", "difference", "95% interval", "p", f"result of {second}"]
    table = Table("Difference", columns, rows, f"p: {test}.")
    groups = [_slice(metric_of(metric), column, some, entry["runs"]) for column, some in entry["slices"].items()]
    settings = [(name, *map(_written, values)) for name, values in entry["settings"].items()]
    differing = Table("Settings, data and versions", ["name", *entry["runs"]], settings) if settings else None
    return [
        Section(title, [table, _labels(entry)]),
        Section(f"Where{named}", groups, "Of many groups, some have a small p value by chance."),
        Section(f"Changed rows{named}", [_changes(files, entry)], f"{changed_rows(entry)}."),
        Section(f"Settings that differ{named}", [differing]),
    ]


def _labels(entry: Mapping[str, Any]) -> Table | None:
    rows = [
        (one["label"], one["count"], *map(Share, one["f1"]), metric_of("f1").change(one["difference"]))
        for one in entry["labels"][:_LABELS]
    ]
    columns = ["label", "references", *(f"F1, {name}" for name in entry["runs"]), "difference"]
    return Table("Each label", columns, rows) if rows else None


def _slice(named: Metric, column: str, groups: Sequence[Mapping[str, Any]], runs: Sequence[str]) -> Table:
    rows = []
    for one in filter(operator.itemgetter("rows"), groups):
        scores = map(named.written, one["scores"]) if one.get("scores") else (None, None)
        difference = named.change(one["difference"]) if "difference" in one else "too few rows"
        rows.append((one["group"], one["rows"], *scores, difference, one.get("p")))
    return Table(column, [column, "rows", *runs, "difference", "p"], rows)


def _written(value: Any) -> str:
    return "-" if value in (None, []) else ", ".join(map(str, value)) if isinstance(value, list) else str(value)


def _changes(files: StageFiles, entry: Mapping[str, Any]) -> Predictions | None:
    rows = []
    changes = (line for line in files.lines(CHANGES) if line["run"] == entry["runs"][1])
    lines = list(itertools.islice(changes, _MOST))
    id_column = id_column_of(lines)
    for line in lines:
        answers = [answers_of({**line, **one}) for one in line["predictions"]]
        reference, before, after = answers[0][0], answers[0][1], answers[1][1]
        place, given = named_row(line, line["row"], id_column)
        text = input_text(around_answer(given, line["predictions"][1]), reference)
        rows.append([place, line["became"], *map(short_cell, (reference, before, after, text))])
    if not rows:
        return None
    columns = [name_column(rows, id_column), ("became", "choice"), ("reference", "text")]
    columns += [(name, "text") for name in entry["runs"]] + [("input", "text")]
    total = entry["became_right"] + entry["became_wrong"]
    left_out = f"The first {len(rows):,} of {total:,} changed rows; {CHANGES} has all of them."
    note = left_out if total > len(rows) else ""
    return Predictions("Changed rows", columns, total, packed(rows), rows[:_FIRST], note, graded=False)


def _curves(runs: Sequence[Mapping[str, Any]], metric: str) -> Section:
    named = metric_of(metric)
    titles = {f"eval_{metric}": named.title, "eval_loss": "Validation loss", "loss": "Training loss"}
    charts: list[Chart] = []
    for name, title in titles.items():
        lines = [
            Line(run["name"], points, marked=name.startswith("eval_"))
            for run in runs
            if (points := {e["step"]: e[name] for e in run["curve"] if is_number(e.get(name)) and "step" in e})
        ]
        if lines:
            as_share = name == f"eval_{metric}" and named.is_share
            charts.append(line_chart(title, {"step": lines}, as_share=as_share))
    return Section("Learning curves", charts)
