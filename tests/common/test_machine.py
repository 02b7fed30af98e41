"""Cores and hardware recorded in manifests."""

import os
import platform
import re

import pytest

from mybert.common.machine import hardware, usable_cores
from mybert.common.manifest import read_manifest, write_manifest


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="no CPU affinity on this system")
def test_only_the_cores_available_to_the_process_are_counted():
    before = os.sched_getaffinity(0)
    try:
        os.sched_setaffinity(0, {min(before)})
        assert usable_cores() == 1 and hardware().split(", ")[-1].startswith("1 x ")
    finally:
        os.sched_setaffinity(0, before)
    assert usable_cores() == len(before)


def test_every_manifest_has_the_hardware_without_the_host_name(tmp_path):
    write_manifest(tmp_path, "corpus", settings={}, inputs={}, counts={})
    found = read_manifest(tmp_path)["hardware"]
    assert re.fullmatch(r"(\d+ x .+, )?\d+ x .+", found) and found.isprintable()
    assert platform.node() not in found
