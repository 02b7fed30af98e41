"""The data of charts; test_browser.py looks at their drawing."""

import json

import pytest

from mybert.reports.charts import Line, bar_chart, line_chart, thinned
from mybert.reports.pages.shared import log_chart


def drawn(chart, axis: int = 0) -> dict[str, dict]:
    return {line["name"]: line for line in json.loads(chart.data)["axes"][axis]["lines"]}


def test_lines_keep_their_points_in_order_and_a_constant_reaches_from_end_to_end():
    chart = line_chart(
        "Loss", {"step": [Line("a", {20: 2.0, 10: 3.0}), Line("b", {5: 1.0})]}, constant=("chance", 0.5)
    )
    lines = drawn(chart)
    assert (lines["a"]["x"], lines["a"]["y"]) == ([10, 20], [3.0, 2.0])
    assert lines["b"]["marked"]  # a single point would be invisible without a mark
    assert (lines["chance"]["x"], lines["chance"]["y"], lines["chance"]["dashed"]) == ([5, 20], [0.5, 0.5], True)
    assert [list(row) for row in chart.table.rows] == [[5, None, 1.0], [10, 3.0, None], [20, 2.0, None]]


def test_long_lines_are_thinned_with_both_ends():
    for count in (1, 2, 399, 400, 401, 5000):
        kept = thinned(list(range(count)))
        assert len(kept) <= 400 and (kept[0], kept[-1]) == (0, count - 1)


@pytest.mark.parametrize(
    ("name", "shown"),
    [("_other", "_other"), ("\u202eab\x00", "ab"), ("x" * 99, f"{'x' * 18}…{'x' * 18}")],
)
def test_names_in_the_legend_are_printable_and_short(name, shown):
    assert list(drawn(line_chart("t", {"step": [Line(name, {1: 1.0})]}))) == [shown]


def test_bars_have_their_names():
    chart = bar_chart("Lengths", ("tokens", "rows"), {"0 to 9": 4, "10 to 19": 2})
    (axis,) = json.loads(chart.data)["axes"]
    assert axis["names"] == ["0 to 9", "10 to 19"] and axis["lines"][0]["y"] == [4, 2]


def test_lines_of_a_log_over_few_steps_are_left_out():
    """At an evaluation after step 41 the log has the mean of one step, which looks like a dip."""
    log = [{"step": step, "loss": 3.0} for step in (10, 20, 30, 40)]
    log += [{"step": 41, "loss": 0.1}, {"step": 41, "eval_loss": 3.1}, {"step": 50, "loss": 2.9}]
    log += [{"step": 50, "train_loss": 3.0}]  # the last line of a run is about all of it
    names = {"loss": "training", "eval_loss": "held-out"}
    lines = drawn(log_chart("Loss", log, names))
    assert lines["training"]["x"] == [10, 20, 30, 40, 50] and lines["held-out"]["x"] == [41]


@pytest.mark.parametrize("steps", [(1,), (1, 2, 3), (5, 10, 13), (1, 10, 100, 1000)])
def test_short_logs_and_growing_intervals_stay_whole(steps):
    log = [{"step": step, "loss": 1.0} for step in steps]
    found = drawn(log_chart("Loss", log, {"loss": "training"}))["training"]["x"]
    assert found == list(steps) if len(steps) < 4 else found[-1] == steps[-1]
