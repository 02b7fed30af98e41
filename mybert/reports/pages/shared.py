"""Parts that the pages of several stages have: subtitle, settings, charts of a training log."""

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from mybert.common.quantities import duration
from mybert.reports.charts import Line, line_chart
from mybert.reports.components import Chart, Section, Tile
from mybert.reports.stage_files import StageFiles, is_number

AXES = {"step": ("step", 1.0), "tokens": ("tokens", 1.0), "hours": ("seconds", 1 / 3600)}
"""Choices of a horizontal axis, each with its name in log.jsonl and the factor from the value there."""
_SETTING = 400  # characters
_MEASURES = {
    "learning_rate": ("Learning rate", "How large the steps may be."),
    "grad_norm": ("Gradient norm", "Before clipping, of the last step of each log."),
    "gradient_noise": (
        "Gradient noise",
        "1 minus the cosine of the gradients of successive batches; above 100% they point in opposite directions.",
    ),
    "update_ratio": ("Size of a step", "Change of the weights by one step, relative to their size."),
    "tokens_per_second": ("Tokens per second", "Real tokens, without padding."),
    "mfu": ("Machine use", "Useful operations, relative to the measured speed of matrix products (MFU)."),
}
"""Measures of the training: name in log.jsonl, title and note of the chart."""
_SHARES = ("gradient_noise", "update_ratio", "mfu")


def subtitle(files: StageFiles) -> str:
    """The folder and the time of the stage, and the model and the data of an evaluation."""
    settings = files.manifest.get("settings", {})
    if files.stage == "evaluate" and settings.get("model") and settings.get("data"):
        used = f"{Path(str(settings['model'])).name} on {Path(str(settings['data'])).name}, in "
    else:
        used = ""
    state = ", not finished" if files.manifest.get("complete") is False else ""
    output = Path(settings.get("output") or files.folder)  # the folder may have another name yet
    name = output.name or files.folder.resolve().name  # of `--output .`
    return f"{used}{name}, {str(files.manifest.get('created', '')).replace('T', ' ')[:16]} UTC{state}"


def facts(files: StageFiles) -> list[tuple[str, str]]:
    """Settings, training arguments, hardware and versions, as name and text."""
    entries = _entries(files, "choices") | _entries(files, "settings")
    if entries.get("max_tokens_per_batch") is not None:  # then a step has no fixed number of sequences
        entries.pop("sequences_per_step", None)
    entries["hardware"] = files.manifest.get("hardware")
    entries |= {f"version of {name}": number for name, number in _entries(files, "versions").items()}
    return [
        (name, (value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str))[:_SETTING])
        for name, value in entries.items()
        if value not in (None, [], {})
    ]


def _entries(files: StageFiles, group: str) -> dict[str, Any]:
    values = files.manifest.get(group)
    return dict(values) if isinstance(values, Mapping) else {}


def log_chart(
    title: str,
    log: Sequence[Mapping[str, Any]],
    names: Mapping[str, str],
    *,
    constant: float | None = None,
    axes: Iterable[str] = ("step",),
    **options: Any,
) -> Chart | None:
    """A chart of logged values.

    Args:
        names: name in the log → name of the line. Values of evaluations are marked.
        constant: the score of the best constant prediction.
        options: others of `line_chart`.

    Returns:
        None if nothing of it was logged.
    """
    lines, log = {}, _whole_intervals(log)
    for axis in axes:
        field, factor = AXES[axis]
        curves = [
            Line(title, points, marked=name.startswith("eval_"))
            for name, title in names.items()
            if (points := {entry[field] * factor: entry[name] for entry in log if _has(entry, field, name)})
        ]
        if curves:
            lines[axis] = curves
    if not lines:
        return None
    dashed = None if constant is None else ("best constant prediction", constant)
    return line_chart(title, lines, constant=dashed, **options)


def _whole_intervals(log: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """The log without training lines over less than half of the usual number of steps, such as those at an evaluation.

    A mean over so few steps is noise: it looks like a dip or a peak of the curve.
    """
    steps = sorted({entry["step"] for entry in log if _has(entry, "step") and not _is_evaluation(entry)})
    intervals = dict(zip(steps, np.diff([0, *steps]).tolist(), strict=True))
    usual = np.median(list(intervals.values())) if len(intervals) > 3 else 0
    return [entry for entry in log if _is_evaluation(entry) or intervals.get(entry.get("step"), usual) >= usual / 2]


def _is_evaluation(entry: Mapping[str, Any]) -> bool:
    return any(name.startswith("eval_") for name in entry)


def _has(entry: Mapping[str, Any], *names: str) -> bool:
    return all(is_number(entry.get(name)) for name in names)


def training_section(files: StageFiles, losses: Mapping[str, Mapping[str, str]], *more: Chart | None) -> Section:
    """Losses, each chart with its `names` of `log_chart`; then `more` charts; learning rate, gradient, speed."""
    log = files.log
    charts = [*(log_chart(title, log, names, axes=AXES) for title, names in losses.items()), *more]
    for name, (title, note) in _MEASURES.items():
        as_share, names = name in _SHARES, {name: title.lower()}
        charts.append(log_chart(title, log, names, as_share=as_share, from_zero=True, note=note, width="third"))
    return Section("Training", charts, axes=list(AXES))


def training_tiles(results: Mapping[str, Any]) -> list[Tile]:
    tiles = []
    if "steps" in results:
        seen = results.get("tokens_seen")
        tiles.append(Tile("Steps", f"{results['steps']:,}", f"{seen:,} tokens seen" if seen else ""))
    seconds = results.get("training_seconds", results.get("seconds"))
    if seconds is not None:
        rate = results.get("tokens_per_second")
        tiles.append(Tile("Training time", duration(seconds), f"{rate:,} tokens per second" if rate else ""))
    return tiles
