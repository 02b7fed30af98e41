"""Cores, quotas and threads, kept memory, and the hardware recorded in manifests."""

import math
import os
import platform
import re
import subprocess
import sys

import pytest
import torch

from mybert.artifacts.manifest import read_manifest, write_manifest
from mybert.common import machine
from mybert.common.machine import Threads, _Use, hardware, usable_cores


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="no CPU affinity on this system")
def test_only_the_cores_available_to_the_process_are_counted():
    before = os.sched_getaffinity(0)
    try:
        os.sched_setaffinity(0, {min(before)})
        assert usable_cores() == 1 and hardware().split(", ")[-1].startswith("1 x ")
    finally:
        os.sched_setaffinity(0, before)
    assert usable_cores() <= len(before)


V1 = "4:memory:/m\n3:cpu,cpuacct:/docker/a\n0::/docker/a\n"


@pytest.mark.parametrize(
    ("own", "files", "cores"),
    [
        ("", {}, 16),
        ("0::/\n", {"cpu.max": "max 100000"}, 16),
        ("0::/\n", {"cpu.max": "400000 100000"}, 4),  # in a container
        ("0::/a/b\n", {"a/cpu.max": "250000 100000", "a/b/cpu.max": "800000 100000"}, 2),  # of a parent
        ("0::/kubepods/pod1\n", {"cpu.max": "50000 100000"}, 1),  # the path outside of the container
        ("0::/../other\n", {"cpu.max": "300000 100000"}, 3),
        (V1, {"cpu,cpuacct/docker/a/cpu.cfs_quota_us": "-1", "cpu,cpuacct/docker/a/cpu.cfs_period_us": "100000"}, 16),
        (V1, {"cpu,cpuacct/docker/a/cpu.cfs_quota_us": "60000", "cpu,cpuacct/docker/a/cpu.cfs_period_us": "20000"}, 3),
        (V1, {"cpu,cpuacct/cpu.cfs_quota_us": "200000", "cpu,cpuacct/cpu.cfs_period_us": "100000"}, 2),
        ("0::/\n", {"cpu.max": "garbage"}, 16),
    ],
)
def test_a_quota_of_the_control_groups_limits_the_cores(monkeypatch, tmp_path, own, files, cores):
    (tmp_path / "self").write_text(own)
    for name, text in files.items():
        path = tmp_path / "groups" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{text}\n")
    monkeypatch.setattr(machine, "_affinity", lambda: range(16))
    monkeypatch.setattr(machine, "_OWN_GROUPS", tmp_path / "self")
    monkeypatch.setattr(machine, "_GROUPS", tmp_path / "groups")
    assert usable_cores() == cores


@pytest.fixture
def load(monkeypatch):
    """A machine of 2 cores; its time passes and its cores are free as a test says. Records how threads wait."""
    for name in (*machine._CHOSEN_THREADS, *machine._CHOSEN_WAITING):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(machine, "usable_cores", lambda: 2)

    class Load:
        now, idle, total, number = 100.0, 0.0, 0.0, 4

        def __init__(self):
            self.threads, self.busily = Threads(), []
            self.threads._wait_busily = self.busily.append

        def passes(self, seconds: float, free: float) -> bool | None:
            """Whether threads wait busily after the time; None if it was not measured."""
            self.now, self.idle, self.total = self.now + seconds, self.idle + seconds * free, self.total + 4 * seconds
            self.busily.clear()
            self.threads.share()
            return self.busily[-1] if self.busily else None

    load = Load()
    monkeypatch.setattr(machine.time, "perf_counter", lambda: load.now)
    monkeypatch.setattr(_Use, "measure", classmethod(lambda cls: cls(load.now, load.idle, load.total, 0.0)))
    monkeypatch.setattr(torch, "get_num_threads", lambda: load.number)
    monkeypatch.setattr(torch, "set_num_threads", lambda number: setattr(load, "number", number))
    return load


def test_threads_wait_busily_while_no_core_is_lacking(load):
    load.threads.share()
    assert load.number == 2, "at most the usable cores"
    for seconds, free, busily in (
        (0.2, 1.0, None),  # too short a time
        (0.2, 1.0, False),
        (1.5, 1.0, None),
        (1.5, 1.0, False),
        (2.5, 1.8, True),
        (2.5, 1.5, False),
    ):
        assert load.passes(seconds, free) is busily
        if busily is not None:
            assert load.threads.are_cores_lacking == (not busily)


def test_before_a_measurement_of_speed_the_cores_are_measured_at_once(load, monkeypatch):
    for free, busily in ((0.9, False), (1.9, True)):

        def sleep(seconds: float, free: float = free) -> None:
            load.now, load.idle, load.total = load.now + seconds, load.idle + seconds * free, load.total + 4 * seconds

        monkeypatch.setattr(machine.time, "sleep", sleep)
        load.threads.settle()
        assert load.number == 2 and load.busily[-1] is busily


def test_choices_of_the_user_stay(load, monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "4")
    monkeypatch.setenv("OMP_WAIT_POLICY", "active")
    load.threads.share()
    assert load.number == 4 and not load.threads.resume(1) and load.threads.resume(4)
    assert load.passes(1.0, 0.0) is None and load.threads.are_cores_lacking


def test_a_resumed_run_takes_the_number_of_threads_that_it_had(load):
    assert load.threads.resume(1) and load.number == 1
    assert not load.threads.resume(3) and load.number == 1, "more than there are cores"


@pytest.mark.skipif(not hasattr(machine._openmp(), "GOMP_parallel"), reason="another OpenMP")
def test_waiting_changes_and_changes_back():
    threads, before = Threads(), torch.ones(300, 300) @ torch.ones(300, 300)
    for busily in (False, False, True, True, False, True):
        threads._wait_busily(busily)
        assert (threads._sleeping is None) == busily
        assert torch.equal(torch.ones(300, 300) @ torch.ones(300, 300), before)


def test_a_machine_that_counts_no_time_leaves_the_threads_as_they_are():
    before, now = _Use(0.0, 0.0, 0.0, 0.0), _Use(9.0, 0.0, 0.0, 8.0)
    assert now.free_cores(before) == math.inf
    assert _Use(10.0, 5.0, 40.0, 20.0).free_cores(_Use(0.0, 0.0, 0.0, 0.0)) == 2.5


def test_the_use_of_the_cores_is_measured():
    before, count = _Use.measure(), 0
    while (now := _Use.measure()).now - before.now < 0.2:
        count += 1
    assert now.own > before.own and now.total >= now.idle > 0
    assert 0 < now.free_cores(before) <= len(os.sched_getaffinity(0)) + 0.5


def test_every_manifest_has_the_hardware_without_the_host_name(tmp_path):
    write_manifest(tmp_path, "corpus", settings={}, inputs={}, counts={})
    found = read_manifest(tmp_path)["hardware"]
    assert re.fullmatch(r"(\d+ x .+, )?\d+ x .+", found) and found.isprintable()
    assert platform.node() not in found


def test_the_hardware_names_the_instructions_that_the_environment_allows(monkeypatch):
    for name in machine._INSTRUCTIONS:
        monkeypatch.delenv(name, raising=False)
    found = hardware()
    monkeypatch.setenv("ATEN_CPU_CAPABILITY", "avx2")
    monkeypatch.setenv("ONEDNN_MAX_CPU_ISA", "AVX2")
    assert hardware() == f"{found} (AVX2 by environment)"


PROGRAM = """
import ctypes
import resource

import numpy as np

from mybert.common.machine import keep_freed_memory

PR_SET_THP_DISABLE = 41
ctypes.CDLL(None).prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0)  # huge pages would be fewer


def new_pages():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(5):
        np.ones(12_000_000, np.float32)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before


returned = min(new_pages() for _ in range(3))
assert keep_freed_memory()
kept = min(new_pages() for _ in range(5))  # the heap grows in the first rounds
print(returned, kept)
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="glibc's allocator")
def test_memory_that_is_kept_needs_no_new_pages():
    """In a process of its own: the allocator keeps its settings, and the memory that other tests have freed."""
    output = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True).stdout
    returned, kept = map(int, output.split())
    assert returned > 5 * 10_000  # 48 MB in pages of 4 KB, five times
    assert kept < 5 * 500
