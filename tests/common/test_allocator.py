"""Kept memory means few new pages."""

import ctypes
import resource
import sys

import pytest
import torch
from forked import exit_status

from mybert.common.machine import keep_freed_memory

PR_SET_THP_DISABLE = 41
DEFAULTS = {-1: 2**17, -3: 2**17, -4: 2**16}
"""M_TRIM_THRESHOLD, M_MMAP_THRESHOLD and M_MMAP_MAX of malloc.h."""


def check_new_pages(keep) -> None:
    """In a process of its own, since the allocator keeps its settings."""
    libc = ctypes.CDLL(None)
    libc.prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0)  # huge pages would be fewer
    if keep:
        assert keep_freed_memory()
    else:  # as at the start of a process, whatever other tests have set
        assert all(libc.mallopt(name, value) for name, value in DEFAULTS.items())

    def faults() -> int:
        for _ in range(5):
            torch.ones(12_000_000)
        return resource.getrusage(resource.RUSAGE_SELF).ru_minflt

    pages = -faults() + faults()
    assert pages < 5 * 500 if keep else pages > 5 * 10_000, pages  # 48 MB in pages of 4 KB, five times


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="glibc's allocator")
@pytest.mark.parametrize("keep", [False, True])
def test_memory_that_is_kept_needs_no_new_pages(keep):
    assert exit_status(check_new_pages, keep) == 0
