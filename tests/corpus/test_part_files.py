"""`mybert embed` and `predict` in parts: killed and resumed; test_ray.py computes parts on a cluster."""

import json
import os
import signal

import pytest
from forked import exit_status
from json_files import read_lines

from mybert.artifacts.jobs import Parts


@pytest.fixture
def computed(monkeypatch):
    """The numbers of the parts that are computed; when there are `limit[0]`, what `limit[1]` does happens."""
    numbers, limit, compute = [], [None, None], Parts.compute

    def counted(self, function, number, progress):
        if len(numbers) == limit[0]:
            limit[1]()
        numbers.append(number)
        compute(self, function, number, progress)

    monkeypatch.setattr(Parts, "compute", counted)
    return numbers, limit


def interrupt():
    raise KeyboardInterrupt


@pytest.mark.parametrize("command", ["embed", "predict"])
def test_killed_and_interrupted_runs_resume_to_the_bytes_of_a_whole_run(
    command, run_in_parts, texts, tmp_path, computed, capsys
):
    numbers, limit = computed
    whole, output = tmp_path / "whole.jsonl", tmp_path / "out.jsonl"
    assert run_in_parts(command, texts, whole) == 0
    parts = len(numbers)
    assert parts >= 6
    numbers.clear()
    limit[:] = [2, lambda: os.kill(os.getpid(), signal.SIGKILL)]
    assert exit_status(run_in_parts, command, texts, output) == -signal.SIGKILL and not output.exists()
    limit[1] = interrupt
    assert run_in_parts(command, texts, output, "--resume") == 130 and not output.exists()
    limit[0] = None
    assert run_in_parts(command, texts, output, "--resume") == 0
    assert numbers == list(range(2, parts)), "a finished part was computed again, or one was left out"
    assert output.read_bytes() == whole.read_bytes()
    manifests = [json.loads(path.with_name(f"{path.name}.manifest.json").read_bytes()) for path in (whole, output)]
    assert manifests[0]["counts"] == manifests[1]["counts"]
    assert not [path for path in tmp_path.iterdir() if ".partial-" in path.name]
    numbers.clear()
    capsys.readouterr()
    assert run_in_parts(command, texts, output, "--resume") == 0 and numbers == []
    assert f"the run in {output} is finished: nothing is left to compute" in capsys.readouterr().out
    assert run_in_parts(command, texts, output, "--resume", "--max-length", "8") == 2
    assert "is finished, with other settings or inputs" in capsys.readouterr().err


def test_a_resumed_table_has_the_inputs_of_its_own_rows(run_in_parts, texts, tmp_path, computed):
    _, limit = computed
    table = tmp_path / "texts.csv"
    table.write_text("text,id\n" + "".join(f"the sea {number},{number}\n" for number in range(12)))
    limit[:] = [1, interrupt]
    assert run_in_parts("predict", table, tmp_path / "out.jsonl", "--resume") == 130
    limit[0] = None
    assert run_in_parts("predict", table, tmp_path / "out.jsonl", "--resume") == 0
    rows = read_lines(tmp_path / "out.jsonl")
    assert [int(row["input"]["id"]) for row in rows] == list(range(12))


def test_other_inputs_start_anew(run_in_parts, texts, tmp_path, computed, caplog):
    numbers, limit = computed
    limit[:] = [2, interrupt]
    assert run_in_parts("predict", texts, tmp_path / "out.jsonl", "--resume") == 130
    texts.write_text(texts.read_text() + '{"text": "sea"}\n')
    limit[0] = None
    assert run_in_parts("predict", texts, tmp_path / "out.jsonl", "--resume") == 0
    assert "other inputs; starting anew" in caplog.text and numbers.count(0) == 2
    assert len((tmp_path / "out.jsonl").read_text().splitlines()) == 42


@pytest.mark.parametrize(
    ("command", "message"),
    [("predict", "--resume and --engine ray need files as inputs"), ("embed", "--resume cannot read standard input")],
)
def test_standard_input_cannot_be_resumed(assert_refused, command, message):
    assert_refused([command, "m", "-", "--output", "o.jsonl", "--resume"], message)
