"""What a model gets wrong, as text and as a picture."""

import io
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from rich.console import Console
from rich.table import Table

from mybert.finetuning.data.dataset_loading import Split
from mybert.finetuning.tasks.base import Matrix

_WORST = 100
_CELL = 200  # characters of a value
_COUNTS = 100  # errors that are counted are fewer
_LONG = ("scores", "n_best")  # left out of predictions
_NAMES_IN_CELLS = 20  # labels up to which text and picture have all counts
_NAMES_AT_SIDES = 100  # labels up to which the picture names them; more would cover each other


def write_errors(
    path: Path, split: Split, predictions: Sequence[dict], errors: Sequence[float], matrix: Matrix | None
) -> None:
    """Writes the confusion matrix, if there is one, and the worst rows with what was said of them, the worst first.

    Rows are numbered as in the file, from 1.
    """
    console = Console(file=io.StringIO(), width=140, emoji=False)
    if matrix is not None and len(matrix.names) > _NAMES_IN_CELLS:
        console.print(_confusions(matrix), markup=False)
    elif matrix is not None:
        table = Table("true \\ predicted", *matrix.names, title="Confusion matrix", title_justify="left")
        for name, counts in zip(matrix.names, matrix.counts.tolist(), strict=True):
            table.add_row(name, *map(str, counts))
        console.print(table, markup=False)
    wrong = [row for row in np.argsort(-np.asarray(errors), kind="stable").tolist() if errors[row] > 0]
    console.print(
        f"{len(wrong)} of {len(errors)} rows are not right, errors are {np.mean(errors):.4g} on average; the worst "
        f"{min(_WORST, len(wrong))}:",
        soft_wrap=True,
    )
    for row in wrong[:_WORST]:
        console.print(f"\nrow {split.numbers[row] + 1}, error {errors[row]:.4g}", markup=False, highlight=False)
        said = {name: value for name, value in predictions[row].items() if name not in _LONG}
        for name, value in {**split.rows[row], "predicted": said}.items():
            console.print(f"  {name}: {_short(value)}", markup=False, highlight=False, soft_wrap=True)
    path.write_text(console.file.getvalue(), encoding="utf-8")


def _confusions(matrix: Matrix) -> Table:
    """The commonest ones, of more labels than a page has columns."""
    counts = matrix.counts.copy()
    np.fill_diagonal(counts, 0)
    table = Table("true", "predicted", "times", title="The commonest confusions", title_justify="left")
    for place in np.argsort(-counts, axis=None, kind="stable")[:_WORST].tolist():
        true, said = divmod(place, len(matrix.names))
        if counts[true, said]:
            table.add_row(matrix.names[true], matrix.names[said], str(counts[true, said]))
    return table


def _short(value) -> str:
    text = " ".join(str(value).split())
    return text if len(text) <= _CELL else f"{text[: _CELL - 1]}…"


def draw_errors(path: Path, errors: Sequence[float], matrix: Matrix | None) -> None:
    """Draws the confusion matrix, coloured by the share of each true label; without labels, how large errors are."""
    if matrix is None:
        figure = Figure(figsize=(5, 3.5), layout="tight")
        axis = figure.subplots()
        counted = max(errors) < _COUNTS and not np.mod(errors, 1).any()  # as wrong tags are
        axis.hist(errors, bins=np.arange(max(errors) + 2) - 0.5 if counted else 30)
        axis.xaxis.set_major_locator(MaxNLocator(integer=counted))
        axis.set(xlabel="error of a row", ylabel="rows")
    else:
        size = 2 + 0.5 * min(len(matrix.names), 40)
        figure = Figure(figsize=(size + 1, size), layout="tight")
        axis = figure.subplots()
        shares = matrix.counts / np.maximum(matrix.counts.sum(1, keepdims=True), 1)
        image = axis.imshow(shares, cmap="Blues", vmin=0, vmax=1)
        if len(matrix.names) <= _NAMES_AT_SIDES:
            ticks = range(len(matrix.names))
            axis.set_xticks(ticks, matrix.names, rotation=90, parse_math=False)
            axis.set_yticks(ticks, matrix.names, parse_math=False)
        axis.set(xlabel="predicted", ylabel="true")
        figure.colorbar(image, label="share of the true label")
        if len(matrix.names) <= _NAMES_IN_CELLS:
            for true, said in np.ndindex(matrix.counts.shape):
                colour = "white" if shares[true, said] > 0.5 else "black"
                axis.text(said, true, matrix.counts[true, said], ha="center", va="center", color=colour)
    figure.savefig(path, dpi=120)
