"""training_curves.png: losses and metrics against steps."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

CURVES = "training_curves.png"


class Panel(NamedTuple):
    """One diagram.

    Attributes:
        training, evaluation: names of the logged values; None for no line.
        constant: the score of the best constant prediction, a dashed line; None for no line.
    """

    title: str
    training: str | None = None
    evaluation: str | None = None
    constant: float | None = None


def draw_curves(log_history: Sequence[dict[str, Any]], panels: Sequence[Panel], path: str | Path) -> None:
    """Draws the panels side by side; those without a logged value are left out."""
    drawn = [(panel, lines) for panel in panels if (lines := _lines(log_history, panel))]
    figure = Figure(figsize=(4 * max(len(drawn), 1), 3.2), layout="tight")
    axes = figure.subplots(1, max(len(drawn), 1), squeeze=False)[0]
    for axis, (panel, lines) in zip(axes, drawn, strict=False):
        for label, color, points in lines:
            marker = "." if label == "evaluation" else "o" if len(points) == 1 else None
            axis.plot(*zip(*points, strict=True), label=label, color=color, marker=marker)
        if panel.constant is not None:
            axis.axhline(panel.constant, label="constant prediction", color="tab:red", linestyle="--", linewidth=1)
        axis.set(title=panel.title, xlabel="step")
        axis.xaxis.set_major_locator(MaxNLocator(5, integer=True))  # more labels of five digits would overlap
        axis.grid(alpha=0.3)
        axis.legend()
    figure.savefig(path, dpi=120)


def _lines(log_history: Sequence[dict[str, Any]], panel: Panel) -> list[tuple[str, str, list[tuple[int, float]]]]:
    """Label, colour and points (step, value) of the panel's curves that have points."""
    curves = []
    for label, color, name in (("training", "tab:gray", panel.training), ("evaluation", "tab:blue", panel.evaluation)):
        if points := [(log["step"], log[name]) for log in log_history if name in log and log[name] is not None]:
            curves.append((label, color, points))
    return curves
