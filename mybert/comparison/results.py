"""The results of a comparison: scores, differences, settings that differ, and what is printed of them."""

import dataclasses
import statistics
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from mybert.artifacts.manifest import CHANGES, RESULTS, identity, json_line, versions, write_json, write_manifest
from mybert.common.errors import UserError
from mybert.common.metrics import changed_rows, metric_of, verdict
from mybert.common.tables import print_table
from mybert.comparison.paired import changes, differences, labels, scores, slices
from mybert.comparison.scoring import task_of
from mybert.comparison.settings import CompareSettings, folders_of
from mybert.comparison.sides import Side
from mybert.tasks.base import Task

_EVALUATION = "evaluation: "  # prefix of the settings of `mybert evaluate`, which only its folders have
_NOT_COMPARED = {"output", "output_dir", "overwrite", "resume", "logging_dir", "dry_run", "run_name", "command"}


def write_results(folder: Path, settings: CompareSettings, sides: Sequence[Side]) -> tuple[Task, dict[str, Any]]:
    """Compares the first of `sides` with each of the others, and writes all files but the page.

    Returns:
        The task, and the content of results.json.
    """
    task = task_of(sides)
    metric = _metric(settings, task, sides)
    compared, changed = [], []
    for side in sides[1:]:
        rows = changes(task, sides[0].rows, side.rows)
        changed += [{"run": side.name, **row} for row in rows]
        compared.append(_comparison(settings, task, metric, sides[0], side, rows))
    with (folder / CHANGES).open("w", encoding="utf-8", newline="\n") as file:
        file.writelines(map(json_line, changed))
    shown = {name: compared[0]["metrics"][metric][name] for name in ("difference", "interval", "p", "test")}
    facts = {"task": task.name, "metric": metric, "rows": len(sides[0].rows[0].places)}
    runs = [_side(task, side) for side in sides]
    of_run = {"settings": dataclasses.asdict(settings), "versions": versions()}
    results = {**shown, **facts, "runs": runs, "comparisons": compared, **of_run}
    write_json(folder / RESULTS, results)
    inputs = [name for run in settings.runs for name in folders_of(run)]
    write_manifest(
        folder,
        "compare",
        settings=settings,
        inputs={f"run-{number}": identity(name) for number, name in enumerate(inputs)},
        counts={"rows": facts["rows"], "runs": len(sides)},
        metrics={name: shown[name] for name in ("difference", "interval", "p")},
    )
    return task, results


def _metric(settings: CompareSettings, task: Task, sides: Sequence[Side]) -> str:
    if settings.metric is None:
        return task.main_metric
    known = list(task.score(sides[0].rows[0].predictions, sides[0].rows[0].references))
    if settings.metric not in known:
        raise UserError(f"--metric {settings.metric}: expected one of {', '.join(known)}")
    return settings.metric


def _comparison(
    settings: CompareSettings, task: Task, metric: str, first: Side, side: Side, changed: Sequence[Mapping[str, Any]]
) -> dict[str, Any]:
    by_metric = differences(task, first.rows, side.rows, settings.bootstrap, settings.seed)
    right = sum(row["became"] in ("right", "better") for row in changed)
    one, other = (dict(_facts(each)) for each in (first, side))
    names = [name for name in one | other if name in one.keys() & other.keys() or not name.startswith(_EVALUATION)]
    return {
        "runs": [first.name, side.name],
        "metrics": {name: value._asdict() for name, value in by_metric.items()},
        "became_right": right,
        "became_wrong": len(changed) - right,
        "labels": labels(task, first.rows, side.rows),
        "slices": slices(task, metric, first.rows, side.rows, settings.slices, settings.seed),
        "settings": {name: [one.get(name), other.get(name)] for name in names if one.get(name) != other.get(name)},
    }


def _side(task: Task, side: Side) -> dict[str, Any]:
    """Scores, cost and learning curve of a run."""
    run_scores = scores(task, side.rows)
    values = {name: [run[name] for run in run_scores] for name in run_scores[0]}
    trained = side.training.results if side.training else {}
    parts = [part for name in ("best", "folds") if (part := trained.get(name))]
    log = side.training.log if side.training else ()
    shown = ("step", "loss", "eval_loss", f"eval_{trained.get('metric')}")
    cost = {name: sum(part[name] for part in parts) if parts else None for name in ("seconds", "tokens_seen")}
    return {
        "name": side.name,
        "seeds": len(side.rows),
        "metrics": {name: statistics.mean(each) for name, each in values.items()},
        "deviations": {name: statistics.stdev(each) for name, each in values.items() if len(each) > 1},
        "rows_per_second": side.evaluation.get("rows_per_second"),
        "parameters": (side.training or side).manifest.get("counts", {}).get("parameters"),
        "training_seconds": cost["seconds"],
        "tokens_seen": cost["tokens_seen"],
        "curve": [{name: entry[name] for name in shown if name in entry} for entry in log],
    }


def _facts(side: Side) -> Iterator[tuple[str, Any]]:
    """The settings, arguments of training and data of a run."""
    stage = side.training
    evaluation = None if stage and side.manifest is stage.manifest else side.manifest.get("settings")
    for group, values in (
        ("", stage.results.get("settings") if stage else None),
        ("", stage.results.get("training_arguments") if stage else None),
        (_EVALUATION, evaluation),
        ("version of ", (stage.manifest if stage else side.manifest).get("versions")),
    ):
        for name, value in values.items() if isinstance(values, Mapping) else ():
            if name not in _NOT_COMPARED:
                yield f"{group}{name}", value
    for name, entry in (stage.manifest if stage else side.manifest).get("inputs", {}).items():
        if isinstance(entry, Mapping) and name != "model":
            yield f"content of {name}", str(entry.get("sha256", entry.get("path")))[:12]


def print_results(task: Task, results: Mapping[str, Any]) -> None:
    """Prints the scores of all runs, the differences, and what they mean."""
    metric, runs, compared = (results[name] for name in ("metric", "runs", "comparisons"))
    names = list(runs[0]["metrics"])
    rows = []
    for run in runs:
        deviations = run["deviations"]
        cells = [
            " ± ".join(metric_of(name).written(one[name]) for one in (run["metrics"], deviations) if name in one)
            for name in names
        ]
        rows.append((run["name"], *cells))
    print_table("Scores", rows, ("run", *map(task.title, names)))
    for entry in compared:
        rows = [
            (
                task.title(name),
                metric_of(name).change(m["difference"]),
                " to ".join(map(metric_of(name).change, m["interval"])),
                f"{m['p']:.3g}",
            )
            for name, m in entry["metrics"].items()
        ]
        test = entry["metrics"][metric]["test"]
        print_table(f"{entry['runs'][1]} minus {entry['runs'][0]}", rows, ("metric", "difference", "95%", "p"))
        print(f"{verdict(entry, metric)} p by {test}; {changed_rows(entry)} ({CHANGES})")
