"""The Ray engine on a cluster of two nodes on this machine, one of which is killed while it works."""

import functools
import threading
import time

import pytest

from mybert.common.errors import UserError
from mybert.corpus.examples.engines import run_tasks
from mybert.corpus.settings import CorpusSettings
from mybert.corpus.text import document_store as documents_module
from mybert.corpus.text.selection import load_filter

ray = pytest.importorskip("ray", reason="Ray is not installed (mybert[ray])")
RAY = CorpusSettings(inputs=["a"], tokenizer="t", output="o", engine="ray")
SMALL = {"num_cpus": 1, "object_store_memory": 80 * 2**20}

FILTER = """
import os, pathlib, time, ray
def keep(text):
    if ray.is_initialized():
        node = ray.get_runtime_context().get_node_id()
        with open({seen!r}, "a") as file:
            file.write(node + "\\n")
        time.sleep(3600 if node == {doomed!r} else 0.01)
    return "school" not in text[:40]
"""


@pytest.fixture
def cluster(monkeypatch):
    from ray.cluster_utils import Cluster

    monkeypatch.setenv("RAY_DATA_DISABLE_PROGRESS_BARS", "1")
    cluster = Cluster(initialize_head=True, head_node_args=SMALL)
    cluster.second = cluster.add_node(**SMALL)
    ray.init(address=cluster.address, log_to_driver=False)
    yield cluster
    ray.shutdown()
    cluster.shutdown()


def alive_nodes(expected: int) -> int:
    """The number of nodes that live, once it is as expected; on a busy machine Ray notices a death late."""
    deadline = time.monotonic() + 60
    while (found := sum(node["Alive"] for node in ray.nodes())) != expected and time.monotonic() < deadline:
        time.sleep(0.1)
    return found


def test_a_node_killed_at_work_costs_nothing_and_the_bytes_are_those_of_processes(
    cluster, build, make_documents, write_jsonl, tmp_path, monkeypatch, content
):
    seen = tmp_path / "seen"
    second = cluster.second.node_id
    (tmp_path / "slow_filter.py").write_text(FILTER.format(seen=str(seen), doomed=second))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(documents_module, "CHARACTERS_PER_TASK", 40_000)
    inputs = [write_jsonl(make_documents(800, sentences=(5, 20), words=(10, 20)))]

    def kill_the_second_node_at_work():
        deadline = time.monotonic() + 120
        while not (seen.exists() and second in seen.read_text()) and time.monotonic() < deadline:
            time.sleep(0.01)
        cluster.remove_node(cluster.second, allow_graceful=False)

    killer = threading.Thread(target=kill_the_second_node_at_work)
    killer.start()
    folder, *_, manifest = build(inputs, engine="ray", num_proc=None, filter=["slow_filter:keep"])
    killer.join()
    nodes = seen.read_text().split()
    assert len(set(nodes)) == 2 and len(nodes) > 800, "no work was lost with the second node and done again"
    assert len(ray.nodes()) == 2 and alive_nodes(1) == 1
    expected = build(inputs, filter=["slow_filter:keep"], num_proc=2, output=str(tmp_path / "local"))
    assert manifest["counts"] == expected[3]["counts"] and manifest["counts"]["documents_filtered"]
    assert content(folder) == content(expected[0])
    with pytest.raises(UserError, match="no_function"):  # a mistake found on a node is as plain as one found here
        run_tasks(functools.partial(load_filter, place=str(tmp_path)), ["slow_filter:no_function"], RAY, "filter")


def test_processes_of_this_machine_are_not_counted_for_a_cluster():
    with pytest.raises(UserError, match="--num-proc has no effect with --engine ray"):
        CorpusSettings(inputs=["a"], tokenizer="t", output="o", engine="ray", num_proc=2)
