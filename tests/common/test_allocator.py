"""Kept memory means few new pages."""

import subprocess
import sys

import pytest

SCRIPT = """
import ctypes, resource, sys, torch
PR_SET_THP_DISABLE = 41
ctypes.CDLL(None).prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0)  # huge pages would be fewer
from mybert.common.machine import keep_freed_memory
if sys.argv[1] == "keep":
    assert keep_freed_memory()
def faults():
    for _ in range(20):
        torch.ones(12_000_000)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt
first = faults()
print(faults() - first)
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="glibc's allocator")
@pytest.mark.slow
def test_memory_that_is_kept_needs_no_new_pages():
    new_pages = {
        how: int(
            subprocess.run([sys.executable, "-c", SCRIPT, how], capture_output=True, text=True, check=True).stdout
        )
        for how in ("keep", "leave")
    }
    assert new_pages["leave"] > 20 * 10_000  # 48 MB in pages of 4 KB, twenty times
    assert new_pages["keep"] < new_pages["leave"] / 20
