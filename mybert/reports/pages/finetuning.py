"""The report of a fine-tuning: training, then validation and test rows."""

from typing import Any

from mybert.common.errors import visible
from mybert.common.metrics import metric_of
from mybert.reports.charts import cell
from mybert.reports.components import Page, Section, Table
from mybert.reports.pages.evaluation import evaluation_sections, score_summary, score_tiles
from mybert.reports.pages.shared import AXES, facts, log_chart, subtitle, training_section, training_tiles
from mybert.reports.stage_files import StageFiles

_MEASURES = {
    "rows": "rows",
    "median_length": "tokens, median",
    "length_95": "tokens, 95th percentile",
    "longest": "tokens, longest",
    "longer_than_max_length": "rows of more than --max-length tokens",
    "unknown_tokens": "unknown tokens",
}
_SHARES = ("longer_than_max_length", "unknown_tokens")


def page(files: StageFiles) -> Page:
    results, metric = files.results, files.results.get("metric")
    parts = files.parts
    named = metric_of(str(metric))
    chart = log_chart(
        f"{named.title} on validation rows",
        files.log,
        {f"eval_{metric}": "validation"},
        constant=parts.get("validation", {}).get("constant_baselines", {}).get(metric),
        as_share=named.is_share,
        axes=AXES,
    )
    evaluated = [section for part, scores in parts.items() for section in evaluation_sections(files, part, scores)]
    loss = {"Loss": {"loss": "training", "eval_loss": "validation"}}
    tiles = [tile for part, part_results in parts.items() for tile in score_tiles(files, part, part_results)]
    task = "regression" if files.is_regression else files.task.replace("-", " ")
    return Page(
        f"Fine-tuning report: {task}",
        subtitle(files),
        [*tiles, *training_tiles(results.get("best", {}))],
        [*evaluated, training_section(files, loss, chart), _runs(results), _data(results)],
        facts(files),
        next((score_summary(files, part, part_results) for part, part_results in parts.items()), ""),
    )


def _runs(results: dict[str, Any]) -> Section | None:
    recipes, metric = results.get("recipes") or [], results.get("metric")
    if len(results.get("runs", [])) < 2 or not recipes:
        return None
    rows = [
        (f"{r['learning_rate']:g}", r["batch_size"], f"{r['epochs']:g}", r["mean"], r["deviation"], r["best_seed"])
        for r in recipes
    ]
    columns = ["learning rate", "batch", "epochs", f"{metric_of(str(metric)).title}, mean", "deviation", "best seed"]
    tables = [Table("Runs, best first", columns, rows)]
    if diverged := results.get("diverged"):
        failed = [(f"{run['learning_rate']:g}", run["batch_size"], run["seed"], run["diverged"]) for run in diverged]
        tables.append(Table("Runs that diverged", ["learning rate", "batch", "seed", "message"], failed))
    return Section("Runs", tables)


def _data(results: dict[str, Any]) -> Section | None:
    data, checks = results.get("data") or {}, results.get("data_checks") or {}
    if not data:
        return None
    measures = _MEASURES.items()
    rows = [(title, *(cell(split.get(name), name in _SHARES) for split in data.values())) for name, title in measures]
    labels = list(dict.fromkeys(label for split in data.values() for label in split["balance"]))
    counts = [(visible(label), *(split["balance"].get(label, 0) for split in data.values())) for label in labels]
    tables = [
        Table("Rows", ["measure", *data], rows),
        Table("Labels", ["label", *data], counts, folded=len(labels) > 20),
    ]
    if overlaps := checks.get("overlaps"):
        rows = [(o["of"], o["in"], o["rows"], o["equal"], o["near"]) for o in overlaps]
        note = "Nearly: but for case, punctuation, spaces or a few words."
        columns = ["rows of", "also in", "rows", "equal", "nearly equal"]
        tables.append(Table("Rows in two parts", columns, rows, note))
    if words := checks.get("giveaway_words"):
        rows = [(w["label"], w["word"], w["with_label"], w["rows"], w["without"], w["f1"]) for w in words]
        columns = ["label", "word", "rows of the label with it", "rows of the label", "other rows with it", "F1"]
        note = "F1 near 1: the word alone gives the label away."
        tables.append(Table("The word that tells most about each label", columns, rows, note))
    return Section("Data", tables)
