"""The Ray engine on a cluster of two nodes on this machine, one of which is killed while it works."""

import functools
import logging
import threading
import time
from types import SimpleNamespace

import pytest

from mybert.artifacts.engines import run_tasks
from mybert.common.errors import UserError
from mybert.corpus.settings import CorpusSettings
from mybert.corpus.text import document_store as documents_module
from mybert.corpus.text.selection import load_filter

ray = pytest.importorskip("ray", reason="Ray is not installed (mybert[ray])")
RAY = CorpusSettings(inputs=["a"], tokenizer="t", output="o", engine="ray")
NODE = {"num_cpus": 1, "object_store_memory": 80 * 2**20}

FILTER = """
import time, ray
end = time.monotonic() + 400
def keep(text):
    if ray.is_initialized():
        node = ray.get_runtime_context().get_node_id()
        with open({seen!r}, "a") as file:
            file.write(node + "\\n")
        while node == {doomed!r} or {doomed!r} not in open({seen!r}).read():  # leaves work for the second node
            assert time.monotonic() < end, "the second node has no work, or still lives"
            time.sleep(0.01)
    return "school" not in text[:40]
"""


@pytest.fixture(scope="module")
def cluster():
    """A cluster of one node, which notices the death of another node within seconds.

    Without usage statistics: their threads log errors that parse source code, beside the parsing of other tests.
    """
    from ray.cluster_utils import Cluster

    checks = {"health_check_period_ms": 500, "health_check_failure_threshold": 3}
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_DATA_DISABLE_PROGRESS_BARS", "1")
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        cluster = Cluster(initialize_head=True, head_node_args=NODE | {"_system_config": checks})
        ray.init(address=cluster.address, log_to_driver=False)
        yield cluster
        ray.shutdown()
        cluster.shutdown()


@pytest.fixture
def second_node(cluster):
    """A second node; `kill_when(condition)` kills it in a thread as soon as `condition()` is true."""
    node = cluster.add_node(**NODE)

    def kill_when(condition):
        deadline = time.monotonic() + 400
        while not condition() and time.monotonic() < deadline:
            time.sleep(0.01)
        cluster.remove_node(node, allow_graceful=False)

    def start(condition) -> threading.Thread:
        killer = threading.Thread(target=kill_when, args=(condition,))
        killer.start()
        return killer

    return SimpleNamespace(name=node.node_id, kill_when=start)


def alive_nodes(expected: int) -> int:
    """The number of nodes that live, once it is as expected; on a busy machine Ray notices a death late."""
    deadline = time.monotonic() + 200
    while (found := sum(node["Alive"] for node in ray.nodes())) != expected and time.monotonic() < deadline:
        time.sleep(0.1)
    return found


def test_a_node_killed_at_work_costs_nothing_and_the_bytes_are_those_of_processes(
    second_node, build, make_documents, write_jsonl, tmp_path, monkeypatch, content
):
    seen = tmp_path / "seen"
    (tmp_path / "slow_filter.py").write_text(FILTER.format(seen=str(seen), doomed=second_node.name))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(documents_module, "CHARACTERS_PER_TASK", 40_000)
    inputs = [write_jsonl(make_documents(800, sentences=(5, 20), words=(10, 20)))]
    assert alive_nodes(2) == 2
    killer = second_node.kill_when(lambda: seen.exists() and second_node.name in seen.read_text())
    folder, *_, manifest = build(inputs, engine="ray", num_proc=None, filter=["slow_filter:keep"])
    killer.join()
    nodes = seen.read_text().split()
    assert len(set(nodes)) == 2 and len(nodes) > 800, "no work was lost with the second node and done again"
    assert alive_nodes(1) == 1
    expected = build(inputs, filter=["slow_filter:keep"], num_proc=2, output=str(tmp_path / "local"))
    assert manifest["counts"] == expected[3]["counts"] and manifest["counts"]["documents_filtered"]
    assert content(folder) == content(expected[0])
    with pytest.raises(UserError, match="no_function"):  # a mistake found on a node is as plain as one found here
        run_tasks(functools.partial(load_filter, place=str(tmp_path)), ["slow_filter:no_function"], RAY, "filter")


def test_a_node_killed_while_parts_are_computed_costs_no_row_and_the_bytes_are_those_of_one_process(
    second_node, run_in_parts, texts, tmp_path, caplog
):
    assert alive_nodes(2) == 2
    logging.getLogger(ray.data.__name__).addHandler(caplog.handler)
    parts, whole = ".embed-ray*/.scratch/parts/*.part", tmp_path / "embed-ray.jsonl"
    killer = second_node.kill_when(lambda: len(list(tmp_path.glob(parts))) >= 2 or whole.exists())
    for command in ("embed", "predict"):
        expected, output = tmp_path / f"{command}.jsonl", tmp_path / f"{command}-ray.jsonl"
        assert run_in_parts(command, texts, expected) == 0
        assert run_in_parts(command, texts, output, "--engine", "ray") == 0
        assert output.read_bytes() == expected.read_bytes()
    killer.join()
    assert alive_nodes(1) == 1
    assert "deprecated" not in caplog.text
