"""Charts: lines and bars as JSON, which `template/charts.js` draws with uPlot, and the table of their numbers."""

import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

from mybert.common.metrics import percent
from mybert.common.quantities import evenly
from mybert.reports.components import Chart, Share, Table, printable

Item = TypeVar("Item")
_POINTS = 400  # of a line; the table of a chart has as many rows
_LEGEND = 36  # characters of a name
_WHOLE, _LOGGED = ("step", "tokens"), ("step", "tokens", "hours")  # axes with whole numbers, and those of logs


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
    diagonal: str = "",
    as_share: bool = False,
    x_as_share: bool = False,
    from_zero: bool = False,
    note: str = "",
    width: str = "half",
    table: Table | None = None,
) -> Chart:
    """
    Args:
        lines: the lines for each choice of the horizontal axis, by the axis' name.
        constant: name and value of a dashed horizontal line.
        diagonal: name of a dashed line of equal values.
        as_share, x_as_share: write vertical or horizontal values in percent.
        from_zero: begin the vertical axis at zero.
        width: of the chart.
        table: of its numbers (default: those of the first axis).
    """
    axes = []
    for name, some in lines.items():
        drawn = [_drawn(line.name, thinned(sorted(line.points.items())), marked=line.marked) for line in some]
        places = [x for line in some for x in line.points]
        if constant is not None:
            ends = sorted({min(places), max(places)})
            drawn.append(_drawn(constant[0], [(x, constant[1]) for x in ends], dashed=True))
        if diagonal:
            drawn.append(_drawn(diagonal, [(0.0, 0.0), (1.0, 1.0)], dashed=True))
        axes.append({"name": name, "whole": name in _WHOLE, "logged": name in _LOGGED, "lines": drawn})
    data = {"axes": axes, "label": y_label, "share": as_share, "xShare": x_as_share, "fromZero": from_zero}
    table = table or _line_table(title, *next(iter(lines.items())), as_share)
    return Chart(title, json.dumps(data), table, note, width)


def _drawn(
    name: str, points: Sequence[tuple[float, float]], marked: bool = False, dashed: bool = False
) -> dict[str, Any]:
    x, y = zip(*points, strict=True)
    name = printable(name)
    name = name if len(name) <= _LEGEND else f"{name[: _LEGEND // 2]}…{name[-_LEGEND // 2 :]}"
    return {"name": name, "x": x, "y": y, "marked": marked or len(x) == 1, "dashed": dashed}


def bar_chart(title: str, columns: tuple[str, str], bars: Mapping[str, float], note: str = "") -> Chart:
    """A histogram: one bar for each name, in order. The axis shows the beginning of a range such as `2 to 3`.

    Args:
        columns: what the names and the values of the bars are.
    """
    names, values = [printable(name) for name in bars], list(bars.values())
    line = {**_drawn(columns[1], list(enumerate(values))), "bars": True}
    data = {"axes": [{"name": columns[0], "lines": [line], "names": names}], "label": columns[1], "fromZero": True}
    return Chart(title, json.dumps(data), Table(title, columns, list(bars.items()), folded=True), note)


def thinned(points: Sequence[Item], most: int = _POINTS) -> Sequence[Item]:
    """At most `most` of the points, evenly spread, with the first and the last one."""
    return [points[place] for place in evenly(len(points), most)]


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
