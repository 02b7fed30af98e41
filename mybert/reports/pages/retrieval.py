"""The report of an evaluation of retrieval: systems side by side, and the queries for which the model is worse."""

from collections.abc import Mapping
from typing import Any

from mybert.common.errors import excerpt
from mybert.common.metrics import metric_title
from mybert.common.quantities import counted
from mybert.common.tables import RETRIEVAL_SYSTEMS
from mybert.reports.components import Interval, Page, Section, Share, Table, Tile
from mybert.reports.pages.shared import facts, subtitle
from mybert.reports.stage_files import StageFiles

_SHOWN = 120  # characters of a document


def page(files: StageFiles) -> Page:
    results = files.results
    if not results:
        return Page("Evaluation report", subtitle(files), [], [], facts(files))
    metric, title = results["metric"], metric_title(results["metric"])
    worse = files.analysis().get("worse", {})
    tiles = []
    for name, shown in RETRIEVAL_SYSTEMS.items():
        if name in results:
            interval = results["intervals_95"][name][metric]
            note = "95% interval {:.3f} to {:.3f}".format(*interval) if interval else ""
            tiles.append(Tile(f"{title}: {shown}", f"{results[name][metric]:.3f}", note))
    sections = [
        Section("Scores", [_scores(results, title), _differences(results)], "Means over the queries."),
        Section("Where the model is worse", [_worse(name, one, title) for name, one in worse.items()]),
    ]
    return Page("Evaluation of retrieval", subtitle(files), tiles, sections, facts(files), _summary(results))


def _summary(results: Mapping[str, Any]) -> str:
    metric, queries = results["metric"], f"{results['rows']:,} {'query' if results['rows'] == 1 else 'queries'}"
    difference = results["differences"]["bm25"][metric]
    low, high = difference["interval"] or (difference["mean"], difference["mean"])
    verdict = "no different from" if low <= 0 <= high else "better than" if low > 0 else "worse than"
    hybrid = results["differences"]["hybrid"][metric]["mean"]
    return (
        f"On {queries} and {counted(results['documents'], 'document')} the model is {verdict} BM25 "
        f"({metric_title(metric)} differs by {difference['mean']:+.3f}). Both together score "
        f"{results['hybrid'][metric]:.3f}{': better than the model alone' if hybrid < 0 else ''}."
    )


def _scores(results: Mapping[str, Any], title: str) -> Table:
    names, rows = list(results["model"]), []
    for system, shown in RETRIEVAL_SYSTEMS.items():
        if system not in results:
            continue
        value = results[system][results["metric"]]
        low, high = results["intervals_95"][system][results["metric"]] or (value, value)
        band = Interval(value, low, high, results["bm25"][results["metric"]])
        rows.append((shown, *(Share(0.0, f"{results[system][name]:.3f}") for name in names), band))
    note = f"The band is the 95% interval of {title}; the line is BM25."
    return Table("Systems", ["ranked by", *map(metric_title, names), f"{title} from 0 to 1"], rows, note)


def _differences(results: Mapping[str, Any]) -> Table:
    rows = []
    for system, of_system in (("model", "differences"), ("reranked", "reranked_differences")):
        for other, of in results.get(of_system, {}).items():
            names = f"{RETRIEVAL_SYSTEMS[system]} minus {RETRIEVAL_SYSTEMS[other]}"
            for name, one in of.items():
                interval = "{:+.3f} to {:+.3f}".format(*one["interval"]) if one["interval"] else "-"
                rows.append((names, metric_title(name), f"{one['mean']:+.3f}", interval))
    columns = ["difference", "metric", "mean", "95% interval"]
    return Table("Differences", columns, rows, "The same queries are drawn for both.", folded=True)


def _worse(other: str, one: Mapping[str, Any], title: str) -> Table | None:
    if not one["queries"]:
        return None
    rows = []
    for query in one["queries"]:
        scores = (Share(0.0, f"{query[name]:.2f}") for name in ("model", other))
        found = _shown(query["found"]) if query["found"] else "nothing"
        rows.append((query["query"], *scores, _shown(query["relevant"]), found))
    columns = ["query", f"{title}, model", f"{title}, {RETRIEVAL_SYSTEMS[other]}", "relevant", "found first instead"]
    note = f"Worse for {one['worse']:,} queries, better for {one['better']:,}; the largest differences first."
    return Table(f"Compared with {RETRIEVAL_SYSTEMS[other]}", columns, rows, note)


def _shown(document: Mapping[str, Any]) -> str:
    text = document["text"]
    return f"{document['id']}: {excerpt(text, _SHOWN)}{'…' if len(text) > _SHOWN else ''}"
