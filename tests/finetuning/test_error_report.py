"""errors.txt and errors.png: pictures of every task, labels of any characters."""

import dataclasses
from pathlib import Path

import numpy as np
import pytest
from datasets import Dataset
from matplotlib import rcParams
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties, findfont, fontManager, get_font

from mybert.common.tables import print_table
from mybert.evaluation.analysis import Evaluation, Matrix
from mybert.evaluation.error_report import draw_errors, write_errors
from mybert.rows.splits import Split
from mybert.tasks.bootstrap_scores import LabelScores

pytestmark = pytest.mark.draws


def evaluation(predictions: list, references: list, errors: list, matrix: Matrix | None, **more) -> Evaluation:
    """An evaluation with one score, with an interval and a baseline."""
    worst = {row: [] for row, error in enumerate(errors) if error}
    scores = {"metrics": {"accuracy": 0.9}, "intervals": {"accuracy": (0.8, 1.0)}, "baselines": {"accuracy": 0.5}}
    values = {**scores, "labels": {}, **more, "matrix": matrix, "errors": errors, "worst": worst}
    return Evaluation(
        predictions=predictions, references=references, lengths=[], truncated=[], seconds=1, **{"simple": {}, **values}
    )


def errors_of(tmp_path, found: Evaluation, **columns: list[str]) -> str:
    """errors.txt of an evaluation of rows with these columns."""
    rows = Dataset.from_dict(columns)
    write_errors(tmp_path / "errors.txt", Split("rows.jsonl", rows, lambda: rows, range(len(rows))), found)
    return (tmp_path / "errors.txt").read_text(encoding="utf-8")


def drawn(tmp_path, monkeypatch, found: Evaluation) -> list[Axes]:
    """The axes of errors.png, without the colour bar."""
    figures = []
    monkeypatch.setattr(Figure, "savefig", lambda figure, *_, **__: figures.append(figure))
    draw_errors(tmp_path / "errors.png", found)
    return [axis for axis in figures[0].axes if axis.get_label() != "<colorbar>"]


def test_labels_of_any_characters_are_drawn_printed_and_written_as_they_are(tmp_path, capsys, recwarn):
    names = ["$\\frac{$", "[red]:joy:", "a/b\tc", "<é & 好>"]
    print_table("Each label", [(name, 1) for name in names])
    assert "[red]:joy:" in capsys.readouterr().out
    found = evaluation([{"label": names[0]}] * 4, names, [0.0, 1.0, 1.0, 1.0], Matrix(names, np.eye(4, dtype=int)))
    draw_errors(tmp_path / "errors.png", found)
    assert (tmp_path / "errors.png").read_bytes().startswith(b"\x89PNG") and not recwarn.list
    text = errors_of(tmp_path, found, text=names, label=names)
    assert "  label: [red]:joy:\n  predicted: {'label': '$" in text
    assert text.count("[red]:joy:") == 2 and "<é & 好>" in text  # text and label


def test_pictures_depend_on_the_task_and_show_the_best_constant_prediction_dashed(tmp_path, monkeypatch):
    labels = {"grain": LabelScores(8, 4, 3, 0.75, 0.375, 0.5), "wheat": LabelScores(2, 2, 1, 0.5, 0.5, 0.5)}
    several = evaluation([{"labels": []}], [["grain"]], [1.0], None, labels=labels)
    left, right = drawn(tmp_path, monkeypatch, several)
    assert [bar.get_width() for bar in left.patches] == [0.75, 0.5, 0.375, 0.5]  # precision, then recall
    dashed = [list(line.get_xdata()) for line in right.lines if line.get_linestyle() == "--"]
    assert dashed == [[0.5, 0.5]] and [label.get_text() for label in right.get_yticklabels()] == ["accuracy"]
    numbers = evaluation([{"score": 2.5}, {"score": 1.0}], [2.0, 1.5], [0.5, 0.5], None)
    left, _ = drawn(tmp_path, monkeypatch, numbers)
    assert left.collections[0].get_offsets().tolist() == [[2.0, 2.5], [1.5, 1.0]]
    assert [line.get_linestyle() for line in left.lines] == ["-", "--"]
    left, _ = drawn(tmp_path, monkeypatch, evaluation([{"answer": "a"}] * 3, [["b"]] * 3, [1.0, 0.0, 1.0], None))
    assert sum(bar.get_height() for bar in left.patches) == 3


def test_a_label_that_no_installed_font_can_draw_is_numbered(tmp_path, monkeypatch):
    """It would be a row of boxes."""
    characters = [chr(number) for number in range(0x400, 0x30000) if chr(number).isprintable()]
    usual = get_font(findfont(FontProperties()))
    lacking = [character for character in characters if not usual.get_char_index(ord(character))]
    (stix,) = {font.fname for font in fontManager.ttflist if Path(font.fname).name == "STIXGeneral.ttf"}
    other = next(one for one in lacking if get_font(stix).get_char_index(ord(one)))
    entry = next(font for font in fontManager.ttflist if font.fname == stix)
    boxes = [dataclasses.replace(entry, name=name) for name in (".LastResort", "Last Resort High-Efficiency")]
    monkeypatch.setattr(fontManager, "ttflist", [*boxes, entry])
    nowhere = next(one for one in lacking if not get_font(stix).get_char_index(ord(one)))
    names = ["good", f"{other}\tb", f"bad {nowhere}"]
    found = evaluation([{"label": "good"}] * 3, names, [0.0] * 3, Matrix(names, np.eye(3, dtype=int)))
    left, _ = drawn(tmp_path, monkeypatch, found)
    shown = [label.get_text() for label in left.get_yticklabels()]
    assert shown == [label.get_text() for label in left.get_xticklabels()] == ["good", f"{other} b", "label 3"]
    assert left.get_yticklabels()[0].get_fontfamily() == [*rcParams["font.family"], "STIXGeneral"]
    labels = {name: LabelScores(8, 4, 3, 0.75, 0.375, 0.5) for name in names}
    left, _ = drawn(tmp_path, monkeypatch, evaluation([{"labels": []}], [["good"]], [1.0], None, labels=labels))
    assert [label.get_text() for label in left.get_yticklabels()] == ["good (8)", f"{other} b (8)", "label 3 (8)"]


def test_long_labels_leave_room_for_the_picture(tmp_path, monkeypatch):
    names = ["a sentence as a label " * 10, "b"]
    found = evaluation([{"label": "b"}], names[1:], [0.0], Matrix(names, np.eye(2, dtype=int)))
    left, _ = drawn(tmp_path, monkeypatch, found)
    assert [label.get_text() for label in left.get_yticklabels()] == ["a sentence as a label a sente…", "b"]
