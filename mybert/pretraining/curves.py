"""training_curves.png: losses and accuracies against steps."""

from pathlib import Path

from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

_PANELS = {
    "masked-token loss": ("mlm_loss", "eval_mlm_loss"),
    "next-sentence loss": ("nsp_loss", "eval_nsp_loss"),
    "masked-token accuracy": ("eval_mlm_accuracy",),
    "next-sentence accuracy": ("eval_nsp_accuracy",),
}
_TRAINING = {"label": "training", "color": "tab:gray"}
_HELD_OUT = {"label": "held-out", "color": "tab:blue", "marker": "."}


def draw_curves(log_history: list[dict], path: str | Path) -> None:
    """Draws what was logged; panels of what was not (such as pairs) are left out.

    Args:
        log_history: of the Trainer's state.
        path: the image file to write.
    """
    panels = {
        title: lines
        for title, names in _PANELS.items()
        if (lines := [(name, points) for name in names if (points := _points(log_history, name))])
    }
    width = max(len(panels), 1)
    figure = Figure(figsize=(4 * width, 3.2), layout="tight")
    axes = figure.subplots(1, width, squeeze=False)[0]
    for axis, (title, lines) in zip(axes, panels.items(), strict=False):
        for name, points in lines:
            style = _HELD_OUT if name.startswith("eval_") else _TRAINING
            axis.plot(*zip(*points, strict=True), **({"marker": "o"} if len(points) == 1 else {}) | style)
        axis.set(title=title, xlabel="step")
        axis.xaxis.set_major_locator(MaxNLocator(5, integer=True))  # more labels of five digits would touch
        axis.grid(alpha=0.3)
        axis.legend()
    figure.savefig(path, dpi=120)


def _points(log_history: list[dict], name: str) -> list[tuple[int, float]]:
    return [(log["step"], log[name]) for log in log_history if name in log]
