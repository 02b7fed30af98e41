"""Errors of an evaluation: errors.txt with the worst rows, errors.png with pictures of scores and errors."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties, findfont, fontManager, get_font
from matplotlib.ticker import MaxNLocator

from mybert.common.metrics import metric_of, metric_title
from mybert.common.quantities import counted
from mybert.evaluation.analysis import Evaluation, Matrix
from mybert.rows.splits import Split
from mybert.tasks.bootstrap_scores import LabelScores

_CELL = 200  # characters of a value
_LONG = ("scores", "n_best")  # fields of predictions that are not listed
_NAMES_IN_CELLS = 20  # labels up to which the confusion matrix shows counts
_NAMES_AT_SIDES = 100  # labels up to which axes show names
_BARS = 40  # labels with bars
_LONGEST = 30  # characters of a name; longer ones leave no room for the picture
_BOXES = "lastresort"
"""In the names, without spaces, of fonts that draw a box for every character, such as .LastResort of macOS."""


def write_errors(path: Path, split: Split, evaluation: Evaluation) -> None:
    """Writes the worst rows, the worst first.

    Rows are numbered by their line or row in the file, from 1. For tags, only the differing spans are shown.
    """
    lines = [_summary(evaluation.errors, len(evaluation.worst))]
    for row, described in evaluation.worst.items():
        lines.append(f"\n{split.unit} {split.numbers[row] + 1}, error {evaluation.errors[row]:.4g}")
        lines += [f"  {line}" for line in described or _fields(split.rows[row], evaluation.predictions[row])]
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8", newline="\n")


def _summary(errors: Sequence[float], worst: int) -> str:
    incorrect = np.count_nonzero(errors)
    if not incorrect:
        return f"All {counted(len(errors), 'row')} are correct." if len(errors) > 1 else "The row is correct."
    are = "row is" if incorrect == 1 else "rows are"
    return f"{incorrect} of {len(errors)} {are} incorrect, the mean error is {np.mean(errors):.4g}; the worst {worst}:"


def _fields(row: dict[str, Any], prediction: dict[str, Any]) -> list[str]:
    shown = {name: value for name, value in prediction.items() if name not in _LONG}
    texts = {name: " ".join(str(value).split()) for name, value in {**row, "predicted": shown}.items()}
    return [f"{name}: {text if len(text) <= _CELL else f'{text[: _CELL - 1]}…'}" for name, text in texts.items()]


def draw_errors(path: Path, evaluation: Evaluation) -> None:
    """Draws two pictures side by side.

    Left: the confusion matrix, coloured by the share of each reference label; for several labels a row, precision and
    recall of each; for regression, predictions against references; otherwise a histogram of the rows' errors. Right:
    each score with its 95% interval, beside the best constant prediction.
    """
    matrix, labels = evaluation.matrix, evaluation.labels
    size = 3 + 0.4 * min(len(matrix.names) if matrix else len(labels), _BARS)
    figure = Figure(figsize=(size + 6, max(size, 3.5)), layout="constrained")
    left, right = figure.subplots(1, 2, width_ratios=(size + 1, 4))
    if matrix is not None:
        _draw_matrix(left, matrix)
    elif labels:
        _draw_labels(left, labels)
    elif isinstance(evaluation.references[0], float):
        _draw_numbers(left, [prediction["score"] for prediction in evaluation.predictions], evaluation.references)
    else:
        left.hist(evaluation.errors, bins=30)
        left.yaxis.set_major_locator(MaxNLocator(integer=True))
        left.set(xlabel="error of a row", ylabel="rows")
    _draw_scores(right, evaluation)
    figure.savefig(path, dpi=120)


def _draw_matrix(axis: Axes, matrix: Matrix) -> None:
    shares = matrix.counts / np.maximum(matrix.counts.sum(1, keepdims=True), 1)
    image = axis.imshow(shares, cmap="Blues", vmin=0, vmax=1)
    if len(matrix.names) <= _NAMES_AT_SIDES:
        ticks = range(len(matrix.names))
        names, fonts = drawable(matrix.names)
        axis.set_xticks(ticks, names, rotation=90, parse_math=False, fontfamily=fonts)
        axis.set_yticks(ticks, names, parse_math=False, fontfamily=fonts)
    axis.set(xlabel="predicted", ylabel="reference")
    axis.figure.colorbar(image, ax=axis, label="share of the reference label")
    if len(matrix.names) <= _NAMES_IN_CELLS:
        for reference, prediction in np.ndindex(matrix.counts.shape):
            colour = "white" if shares[reference, prediction] > 0.5 else "black"
            count = matrix.counts[reference, prediction]
            axis.text(prediction, reference, str(count), ha="center", va="center", color=colour)


def _draw_labels(axis: Axes, labels: dict[str, LabelScores]) -> None:
    names = list(labels)[:_BARS]
    places = np.arange(len(names))
    for offset, score in ((-0.2, "precision"), (0.2, "recall")):
        axis.barh(places + offset, [getattr(labels[name], score) for name in names], height=0.4, label=score)
    drawn, fonts = drawable(names)
    shown = [f"{name} ({labels[key].true:,})" for name, key in zip(drawn, names, strict=True)]
    axis.set_yticks(places, shown, parse_math=False, fontfamily=fonts)
    axis.invert_yaxis()
    axis.set(xlim=(0, 1), xlabel="precision and recall of each label (with its number of rows)")
    axis.legend(loc="lower center", bbox_to_anchor=(0.5, 1), ncols=2)


def _draw_numbers(axis: Axes, predicted: Sequence[float], true: Sequence[float]) -> None:
    axis.scatter(true, predicted, s=12, alpha=0.5, rasterized=True)
    axis.axline((float(np.mean(true)),) * 2, slope=1, color="black", linewidth=1, label="predicted = reference")
    axis.axhline(float(np.mean(true)), color="grey", linestyle="--", label="constant prediction: the mean")
    axis.set(xlabel="reference", ylabel="predicted")
    axis.legend()


def _draw_scores(axis: Axes, evaluation: Evaluation) -> None:
    """Scores with a common scale: those that are better the higher they are."""
    names = [name for name in evaluation.metrics if not metric_of(name).is_loss]
    for place, name in enumerate(names):
        value, baseline = evaluation.metrics[name], evaluation.baselines[name]
        low, high = evaluation.intervals.get(name, (value, value))
        first = place == 0
        axis.plot([low, high], [place] * 2, color="C0", linewidth=3, label="95% interval" if first else None)
        axis.plot([value], [place], "o", color="C0", label="score" if first else None)
        constant = "best constant prediction" if first else None
        axis.plot([baseline] * 2, [place - 0.4, place + 0.4], "--", color="black", label=constant)
    axis.set_yticks(range(len(names)), list(map(metric_title, names)))
    axis.set(ylim=(len(names) - 0.5, -0.5), xlim=(min(0, axis.get_xlim()[0]), 1.02), xlabel="score")
    axis.legend(loc="lower center", bbox_to_anchor=(0.5, 1))


def drawable(names: Sequence[str]) -> tuple[list[str], list[str]]:
    """Short names in one line that matplotlib can draw, and the installed font families for them, the usual one first.

    A name with a character that no installed font has becomes `label N`; N is its place in `names`, from 1.
    """
    lines = (" ".join(name.split()) for name in names)
    names = [line if len(line) <= _LONGEST else f"{line[: _LONGEST - 1]}…" for line in lines]
    families, missing = list(matplotlib.rcParams["font.family"]), set("".join(names))
    missing -= _characters(findfont(FontProperties()), missing)
    for font in sorted(fontManager.ttflist, key=lambda font: (font.name, font.fname)):
        if not missing:
            break
        is_regular = font.style == "normal" and font.weight in (400, "normal")
        draws_boxes = _BOXES in font.name.lower().replace(" ", "")
        if is_regular and not draws_boxes and (covered := _characters(font.fname, missing)):
            families.append(font.name)
            missing -= covered
    drawn = [name if missing.isdisjoint(name) else f"label {number}" for number, name in enumerate(names, 1)]
    return drawn, families


def _characters(file: str | Path, wanted: set[str]) -> set[str]:
    """Those of the characters that a font file has as outlines."""
    try:
        font = get_font(file)
    except (OSError, RuntimeError):  # a damaged file, or a format that matplotlib cannot read
        return set()
    return {character for character in wanted if font.scalable and font.get_char_index(ord(character))}
