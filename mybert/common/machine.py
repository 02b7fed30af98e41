"""CPU cores and hardware of this process."""

import os
import platform
import re
import sys
from pathlib import Path

_CPUINFO = Path("/proc/cpuinfo")


def usable_cores() -> int:
    """The number of CPU cores available to this process, which may be fewer than the machine has."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1  # noqa: TID251


def hardware() -> str:
    """Count and model of the available CPU cores, and of the GPUs if CUDA is initialised in this process."""
    found = re.search(
        r"^model name\s*: (.*)$", _CPUINFO.read_text("utf-8") if _CPUINFO.is_file() else "", re.MULTILINE
    )
    parts = [f"{usable_cores()} x {found[1] if found else platform.machine()}"]
    torch = sys.modules.get("torch")  # do not import torch only to describe the machine
    if torch is not None and torch.cuda.is_initialized():
        parts.insert(0, f"{os.environ.get('WORLD_SIZE', 1)} x {torch.cuda.get_device_name()}")
    return ", ".join(parts)
