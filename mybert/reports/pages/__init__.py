"""The page of each stage: which numbers it shows, in which order, under which names."""

from collections.abc import Mapping

from mybert.common.metrics import metric_of
from mybert.reports.components import Page, Section, Table, Tile
from mybert.reports.pages import comparison, corpus, evaluation, finetuning, pretraining, retrieval
from mybert.reports.pages.shared import facts, subtitle, training_section, training_tiles
from mybert.reports.stage_files import StageFiles

_PAGES = {
    "corpus": corpus.page,
    "pretrain": pretraining.page,
    "adapt": pretraining.page,
    "distill": pretraining.page,
    "finetune": finetuning.page,
    "evaluate": evaluation.page,
    "compare": comparison.page,
}


def page_of(files: StageFiles) -> Page:
    if files.task == "retrieval" and files.stage == "evaluate":
        return retrieval.page(files)
    return _PAGES.get(files.stage, _other)(files)


def _other(files: StageFiles) -> Page:
    """The page of a stage without a page of its own: its scores, log, counts and settings."""
    metrics = files.results.get("metrics") or files.manifest.get("metrics") or {}
    constant = files.results.get("constant_baselines") or {}
    numbers = {name: value for name, value in metrics.items() if isinstance(value, int | float)}
    tiles = [Tile(metric_of(name).title, metric_of(name).written(value)) for name, value in list(numbers.items())[:4]]
    scores = [(metric_of(name).title, value, constant.get(name)) for name, value in numbers.items()]
    given = files.manifest.get("counts") or {}
    counts = [(name.replace("_", " "), value) for name, value in given.items() if not isinstance(value, Mapping)]
    sections = [
        _section("Scores", ["metric", "value", "best constant prediction"], scores),
        training_section(files, {"Loss": {"loss": "training", "eval_loss": "held-out"}}),
        _section("Counts", ["count", "number"], counts),
    ]
    title = f"{files.stage.capitalize()} report"
    return Page(title, subtitle(files), [*tiles, *training_tiles(files.results)], sections, facts(files))


def _section(title: str, columns: list[str], rows: list[tuple]) -> Section:
    return Section(title, [Table(title, columns, rows)] if rows else [])
