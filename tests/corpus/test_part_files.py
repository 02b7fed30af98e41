"""`mybert embed` and `predict` in parts: killed and resumed, and on a Ray cluster with a killed node."""

import json
import os
import signal
import threading
import time
from pathlib import Path

import pytest

from mybert import UserError, cli
from mybert.corpus.part_files import Parts
from mybert.embedding.settings import EmbedSettings
from mybert.finetuning.evaluation import predict
from mybert.io import stored_texts

COMMANDS = {"embed": ("encoder", "out.jsonl"), "predict": ("classifier", "out.jsonl")}


@pytest.fixture
def texts(tmp_path, monkeypatch):
    """A file of 40 rows in eight parts of each command, and one that cannot be used."""
    monkeypatch.setattr(stored_texts, "CHARACTERS_PER_BATCH", 60)
    monkeypatch.setattr(predict, "_ROWS_AT_ONCE", 5)
    path = tmp_path / "texts.jsonl"
    rows = [{"text": f"the sea {'is very ' * (number % 7)}dull", "id": number} for number in range(40)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows) + '{"id": 1}\n')
    return path


def run(models, command: str, texts: Path, output: Path, *more: str) -> int:
    words = [command, models(COMMANDS[command][0]), texts, "--errors", "skip", "--device", "cpu", "--output", output]
    return cli.main([*map(str, words), *more])


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


@pytest.mark.parametrize("command", COMMANDS)
def test_killed_and_interrupted_runs_resume_to_the_bytes_of_a_whole_run(command, models, texts, tmp_path, computed):
    numbers, limit = computed
    whole, output = tmp_path / "whole.jsonl", tmp_path / "out.jsonl"
    assert run(models, command, texts, whole) == 0
    parts = len(numbers)
    assert parts >= 6
    numbers.clear()
    limit[:] = [2, lambda: os.kill(os.getpid(), signal.SIGKILL)]
    child = os.fork()
    if child == 0:
        run(models, command, texts, output)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL and not output.exists()
    limit[1] = interrupt
    assert run(models, command, texts, output, "--resume") == 130 and not output.exists()
    limit[0] = None
    assert run(models, command, texts, output, "--resume") == 0
    assert numbers == list(range(2, parts)), "a finished part was computed again, or one was left out"
    assert output.read_bytes() == whole.read_bytes()
    manifests = [json.loads(path.with_name(f"{path.name}.manifest.json").read_bytes()) for path in (whole, output)]
    assert manifests[0]["counts"] == manifests[1]["counts"]
    assert not [path for path in tmp_path.iterdir() if ".partial-" in path.name]


def test_a_resumed_table_has_the_inputs_of_its_own_rows(models, texts, tmp_path, computed):
    _, limit = computed
    table = tmp_path / "texts.csv"
    table.write_text("text,id\n" + "".join(f"the sea {number},{number}\n" for number in range(12)))
    limit[:] = [1, interrupt]
    assert run(models, "predict", table, tmp_path / "out.jsonl", "--resume") == 130
    limit[0] = None
    assert run(models, "predict", table, tmp_path / "out.jsonl", "--resume") == 0
    rows = [json.loads(line) for line in (tmp_path / "out.jsonl").open()]
    assert [int(row["input"]["id"]) for row in rows] == list(range(12))


def test_other_inputs_start_anew(models, texts, tmp_path, computed, caplog):
    numbers, limit = computed
    limit[:] = [2, interrupt]
    assert run(models, "predict", texts, tmp_path / "out.jsonl", "--resume") == 130
    texts.write_text(texts.read_text() + '{"text": "sea"}\n')
    limit[0] = None
    assert run(models, "predict", texts, tmp_path / "out.jsonl", "--resume") == 0
    assert "other inputs; starting anew" in caplog.text and numbers.count(0) == 2
    assert len((tmp_path / "out.jsonl").read_text().splitlines()) == 42


def test_standard_input_cannot_be_resumed(capsys):
    assert cli.main(["predict", "m", "-", "--output", "o.jsonl", "--resume"]) == 2
    assert "--resume and --engine ray need files as inputs" in capsys.readouterr().err
    with pytest.raises(UserError, match="--resume cannot read standard input again"):
        EmbedSettings("m", inputs=["-"], output="v.npy", resume=True)


def test_a_killed_node_costs_no_row_and_the_bytes_are_those_of_one_process(models, texts, tmp_path, monkeypatch):
    pytest.importorskip("ray", reason="Ray is not installed (mybert[ray])")
    import ray
    from ray.cluster_utils import Cluster

    monkeypatch.setenv("RAY_DATA_DISABLE_PROGRESS_BARS", "1")
    expected = {}
    for command in COMMANDS:
        assert run(models, command, texts, tmp_path / f"{command}.jsonl") == 0
        expected[command] = (tmp_path / f"{command}.jsonl").read_bytes()
    node = {"num_cpus": 1, "object_store_memory": 80 * 2**20}
    cluster = Cluster(initialize_head=True, head_node_args=node)
    second = cluster.add_node(**node)
    ray.init(address=cluster.address, log_to_driver=False)
    killed = []

    def kill_the_second_node_at_work():
        deadline = time.monotonic() + 120
        while time.monotonic() < deadline and len(list(tmp_path.glob(".embed-ray*/.scratch/parts/*.part"))) < 2:
            time.sleep(0.01)
        cluster.remove_node(second, allow_graceful=False)
        killed.append(True)

    try:
        killer = threading.Thread(target=kill_the_second_node_at_work)
        killer.start()
        for command in COMMANDS:
            output = tmp_path / f"{command}-ray.jsonl"
            assert run(models, command, texts, output, "--engine", "ray") == 0
            assert output.read_bytes() == expected[command]
        killer.join()
        assert killed
        while sum(one["Alive"] for one in ray.nodes()) != 1:  # Ray notes a lost node after some seconds
            time.sleep(0.1)
    finally:
        ray.shutdown()
        cluster.shutdown()
