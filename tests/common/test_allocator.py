"""Kept memory means few new pages."""

import subprocess
import sys

import pytest

PROGRAM = """
import ctypes
import resource

import torch

from mybert.common.machine import keep_freed_memory

PR_SET_THP_DISABLE = 41
ctypes.CDLL(None).prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0)  # huge pages would be fewer


def new_pages():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(5):
        torch.ones(12_000_000)
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
