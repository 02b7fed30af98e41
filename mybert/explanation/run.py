"""`mybert explain`: checkpoint + rows → a prediction for each row with the words that it depends on."""

import itertools
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TextIO

from mybert.artifacts.manifest import identity, json_line, write_manifest
from mybert.artifacts.staging import staged_file
from mybert.common.progress import Bar
from mybert.common.tables import print_table
from mybert.explanation.explainer import Explainer
from mybert.explanation.page import write_page
from mybert.explanation.settings import INTEGRATED_GRADIENTS, ExplainSettings
from mybert.inference.predict import checked_parts
from mybert.inference.predictor import Part
from mybert.io.files import STDIN


def main(settings: ExplainSettings) -> Path | None:
    began = time.monotonic()
    summary = explain(settings)
    table = [*summary.items(), ("seconds", time.monotonic() - began)]
    if settings.output == STDIN:
        return None
    error = "completeness error: the sum of the attributions minus the change of the score"
    print_table(f"Explanations ({error})" if settings.method == INTEGRATED_GRADIENTS else "Explanations", table)
    return Path(settings.output)


def explain(settings: ExplainSettings) -> dict[str, Any]:
    """Writes the explained predictions of all rows as JSON lines or as a page; see `Explainer`.

    Returns:
        The numbers of the closing table: rows, errors, explained scores; for integrated gradients also the mean and
        largest completeness error, the largest as a share of the sum of absolute attributions, and the mean number of
        steps.

    Raises:
        UserError: checkpoint, output or, with `errors="strict"`, a row cannot be used; no file is written.
    """
    if settings.output == STDIN:
        return _write_lines(settings, Explainer(settings), sys.stdout)
    with staged_file(settings.output, settings.inputs, overwrite=settings.overwrite) as path:
        explainer = Explainer(settings)
        if path.suffix == ".html":
            first: list[tuple[int, Part]] = []
            records = list(_records(settings, explainer, first))
            summary = _summary(records)
            attentions, task = _attentions(explainer, first), explainer.predictor.task
            write_page(path, records, attentions, settings, list(summary.items()), task)
        else:
            with path.open("w", encoding="utf-8", newline="\n") as file:
                summary = _write_lines(settings, explainer, file)
        write_manifest(
            path.parent,
            "explain",
            settings=settings,
            inputs={"model": identity(settings.model), "rows": [identity(name) for name in settings.inputs]},
            counts=summary,
        )
    return summary


def _write_lines(settings: ExplainSettings, explainer: Explainer, file: TextIO) -> dict[str, Any]:
    records: list[dict[str, Any]] = []
    for record in _records(settings, explainer):
        file.write(json_line(record))
        file.flush()
        records.append({name: record[name] for name in ("error", "note", "explanations") if name in record})
    return _summary(records)


def _records(
    settings: ExplainSettings, explainer: Explainer, first: list[tuple[int, Part]] | None = None
) -> Iterator[dict[str, Any]]:
    """The explained predictions; `first` gets the numbers and the rows of those whose attention is shown."""
    count = 0
    with Bar(desc="explaining", unit="scores") as bar:
        for part in checked_parts(settings.inputs, settings.errors, explainer.predictor):
            if first is not None and len(first) < settings.attention:
                usable = ((count + place, row) for place, row in part.usable_rows())
                first += itertools.islice(usable, settings.attention - len(first))
            yield from part.records(explainer.explain(part, bar.update))
            count += len(part.numbers)


def _attentions(explainer: Explainer, rows: list[tuple[int, Part]]) -> Iterator[tuple[int, list[str], Any]]:
    for number, row in rows:
        attention = explainer.attention(row)
        if attention is not None:
            yield number, *attention


def _summary(records: list[dict[str, Any]]) -> dict[str, Any]:
    explanations = [one for record in records for one in record.get("explanations", ())]
    summary: dict[str, Any] = {"rows": len(records)}
    if failed := sum("error" in record for record in records):
        summary["rows with errors"] = failed
    if unexplained := sum("note" in record for record in records):
        summary["rows with nothing to explain"] = unexplained
    summary["explained scores"] = len(explanations)
    complete = [one for one in explanations if one["completeness_error"] is not None]
    if complete:
        errors = [abs(one["completeness_error"]) for one in complete]
        sums = [sum(abs(token["attribution"]) for token in one["tokens"]) for one in complete]
        summary |= {
            "completeness error, mean": sum(errors) / len(errors),
            "completeness error, largest": max(errors),
            "completeness error, largest, relative": max(
                error / max(total, 1e-9) for error, total in zip(errors, sums, strict=True)
            ),
            "steps, mean": sum(one["steps"] for one in complete) / len(complete),
        }
    return summary
