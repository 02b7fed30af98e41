"""Charts as inline SVG, drawn by matplotlib. Colours are CSS variables, so that a page can be light or dark."""

import io
import re
import warnings
from collections.abc import Mapping, Sequence
from typing import NamedTuple, TypeVar

import matplotlib
from markupsafe import Markup
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

from mybert.reports.components import Chart, Share, Table
from mybert.reports.escaping import printable
from mybert.reports.metric_names import percent

Item = TypeVar("Item")
_POINTS = 400  # of a line; the table of a chart has as many rows
_LEGEND = 36  # characters of a name
_STYLE = {
    "svg.fonttype": "none",  # text stays text: readable by screen readers, found by a search
    "text.parse_math": False,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": "#0000f1",
    "axes.labelcolor": "#0000f2",
    "xtick.color": "#0000f2",
    "ytick.color": "#0000f2",
    "text.color": "#0000f2",
    "grid.color": "#0000f3",
    "font.size": 9,
    "legend.facecolor": "#0000f4",  # keeps the names readable above lines
    "legend.edgecolor": "none",
}
SERIES = ("#0000e1", "#0000e2", "#0000e3", "#0000e4", "#0000e5")
"""Colours of lines and bars."""
_STEPS = [1, 2, 2.5, 5, 10]  # between ticks
_ABOVE = 0.02  # of an axis of shares is above 100%, so that a line at 100% is seen whole
_WHOLE = ("step", "tokens")  # axes with whole numbers
MUTED = "#0000f2"
_VARIABLES = {colour: f"var(--series-{number})" for number, colour in enumerate(SERIES, 1)}
_VARIABLES |= {"#0000f1": "var(--line)", "#0000f2": "var(--muted)", "#0000f3": "var(--grid)", "#0000f4": "var(--card)"}
_PREFIXES = ((1e9, "B"), (1e6, "M"), (1e3, "k"))
_SIZES = {"half": (4.4, 2.5), "third": (3.2, 2.1)}  # inches: text as large as that around it
_BORDERS = (0.62, 0.2, 0.47, 0.1)  # inches at the left, right, bottom and top of the axes
_LABELLED = 0.82  # inches at the left for a name of the axis beside values such as 98.75%


class Line(NamedTuple):
    """One line of a chart.

    Attributes:
        name: in the legend and the table.
        points: horizontal value → vertical value.
        marked: whether each point has a mark.
    """

    name: str
    points: Mapping[float, float]
    marked: bool = False


def line_chart(
    title: str,
    lines: Mapping[str, Sequence[Line]],
    *,
    y_label: str = "",
    constant: tuple[str, float] | None = None,
    as_share: bool = False,
    x_as_share: bool = False,
    from_zero: bool = False,
    note: str = "",
    width: str = "half",
) -> Chart:
    """
    Args:
        lines: the lines for each choice of the horizontal axis, by the axis' name.
        constant: name and value of a dashed horizontal line.
        as_share, x_as_share: write vertical or horizontal values in percent.
        from_zero: begin the vertical axis at zero.
        width: of the chart.
    """
    svgs = {}
    for axis_name, some in lines.items():

        def draw(axis: Axes, some=some, axis_name=axis_name) -> None:
            for number, line in enumerate(some):
                x, y = zip(*thinned(sorted(line.points.items())), strict=True)
                axis.plot(
                    *(x, y),
                    color=SERIES[number % len(SERIES)],
                    label=_in_legend(line.name),
                    linewidth=1.6,
                    marker="o" if line.marked or len(x) == 1 else None,
                    markersize=4,
                )
            if constant is not None:
                axis.axhline(constant[1], color=MUTED, linestyle="--", linewidth=1, label=constant[0])
            axis.set(xlabel=axis_name, ylabel=y_label)
            axis.xaxis.set_major_locator(MaxNLocator(6, steps=_STEPS, integer=axis_name in _WHOLE))
            axis.xaxis.set_major_formatter(FuncFormatter(short_percent if x_as_share else _short_number))
            axis.set_xlim(left=0)
            if from_zero:
                axis.set_ylim(bottom=0)
            _end_at_all(axis, some, as_share, x_as_share)
            axis.yaxis.set_major_locator(MaxNLocator(5, steps=_STEPS))
            axis.yaxis.set_major_formatter(FuncFormatter(short_percent if as_share else _short_number))
            axis.grid(axis="y")
            if len(some) > 1 or constant is not None:
                axis.legend(loc="best")

        svgs[axis_name] = figure(title, draw, name=f"{title} {axis_name}", width=width)
    return Chart(title, svgs, _line_table(title, *next(iter(lines.items())), as_share), note, width)


def _in_legend(name: str) -> str:
    """The name without its middle if it is long, and with a space before `_`, for which matplotlib leaves it out."""
    text = printable(name)
    text = text if len(text) <= _LEGEND else f"{text[: _LEGEND // 2]}…{text[-_LEGEND // 2 :]}"
    return f" {text}" if text.startswith("_") else text


def _end_at_all(axis: Axes, lines: Sequence[Line], as_share: bool, x_as_share: bool) -> None:
    """No axis of shares shows more than 100% if no value is above it."""
    if as_share and max(y for line in lines for y in line.points.values()) <= 1:
        bottom, top = axis.get_ylim()
        axis.set_ylim(top=min(top, 1 + _ABOVE * max(1 - bottom, 0)))
    if x_as_share:
        axis.set_xlim(right=min(axis.get_xlim()[1], 1 + _ABOVE))


def bar_chart(title: str, columns: tuple[str, str], bars: Mapping[str, float], note: str = "") -> Chart:
    """A histogram: one bar for each name, in order. The axis shows the beginning of a range such as `2 to 3`.

    Args:
        columns: what the names and the values of the bars are.
    """
    names = list(bars)

    def draw(axis: Axes) -> None:
        axis.bar(range(len(names)), list(bars.values()), color=SERIES[0], width=0.85)
        axis.set(xlabel=columns[0], ylabel=columns[1])
        places = [int(tick) for tick in MaxNLocator(8, integer=True).tick_values(0, len(names) - 1)]
        places = [place for place in places if 0 <= place < len(names)]
        axis.set_xticks(places, [names[place].partition(" to ")[0] for place in places])
        axis.yaxis.set_major_formatter(FuncFormatter(_short_number))
        axis.grid(axis="y")
        axis.set_axisbelow(True)

    return Chart(title, {"": figure(title, draw)}, Table(title, columns, list(bars.items()), folded=True), note)


def figure(label: str, draw, *, name: str | None = None, width: str = "half") -> Markup:
    """Draws on one axis and returns the picture as safe HTML.

    Args:
        label: the accessible name of the picture.
        name: unique in the page (default: `label`).
    """
    name = re.sub(r"\W+", "-", name or label)
    content = io.StringIO()
    with matplotlib.rc_context({**_STYLE, "svg.hashsalt": name}), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # glyphs that matplotlib's font lacks: the browser has others
        picture = Figure(figsize=_SIZES[width])
        axis = picture.add_axes(_inside(*_SIZES[width]))  # fixed borders: layout="constrained" draws twice
        draw(axis)
        if axis.get_ylabel():
            axis.set_position(_inside(*_SIZES[width], left=_LABELLED))
        picture.savefig(content, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    svg = content.getvalue()
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>|<style.*?</style>", "", svg, flags=re.S)
    svg = re.sub(r' width="[\d.]+pt" height="[\d.]+pt"', "", svg, count=1)
    svg = re.sub(r"font-family: [^;\"]+;? ?", "", svg)
    svg = re.sub(r'(id="|url\(#|href="#)', rf"\g<1>{name}-", svg)  # ids of several pictures must differ
    for colour, variable in _VARIABLES.items():
        svg = svg.replace(colour, variable)
    return Markup(svg.replace("<svg ", Markup('<svg role="img" aria-label="{}" ').format(label), 1))


def _inside(width: float, height: float, left: float = _BORDERS[0]) -> tuple[float, float, float, float]:
    """Left, bottom, width and height of the axes as shares of the picture."""
    _, right, bottom, top = _BORDERS
    return left / width, bottom / height, 1 - (left + right) / width, 1 - (bottom + top) / height


def thinned(points: Sequence[Item], most: int = _POINTS) -> Sequence[Item]:
    """At most `most` of the points, evenly spread, with the first and the last one."""
    step = -(-(len(points) - 1) // (most - 1))
    return points if step <= 1 else [*points[:-1:step], points[-1]]


def _line_table(title: str, axis_name: str, lines: Sequence[Line], as_share: bool) -> Table:
    places = sorted({x for line in lines for x in line.points})
    kept = thinned(places)
    note = "" if len(kept) == len(places) else f"{len(kept):,} of {len(places):,} points."
    exact = [int(x) if float(x).is_integer() else x for x in kept]
    cells = [[cell(line.points.get(x), as_share) for line in lines] for x in kept]
    rows = [[x, *some] for x, some in zip(exact, cells, strict=True)]
    return Table(title, [axis_name, *(line.name for line in lines)], rows, note, folded=True)


def cell(value: float | None, as_share: bool) -> Share | float | None:
    """A number of a table, or a share in percent."""
    return Share(0.0, percent(value)) if as_share and value is not None else value


def short_percent(value: float, _=None) -> str:
    return f"{100 * value:.4g}%"


def _short_number(value: float, _=None) -> str:
    for size, suffix in _PREFIXES:
        if abs(value) >= size:
            return f"{value / size:.4g}{suffix}"
    return f"{value:.4g}"
