"""Hardware and code version, recorded in manifests."""

import functools
import os
import platform
import subprocess
import sys
from pathlib import Path

CHECKOUT = Path(__file__).parents[2]
_CPUINFO = Path("/proc/cpuinfo")


def usable_cores() -> int:
    """The number of CPU cores available to this process, which may be fewer than the machine has."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def hardware() -> str:
    """Count and model of the available CPU cores, and of the GPUs if CUDA is initialised in this process."""
    parts = [f"{usable_cores()} x {_processor()}"]
    torch = sys.modules.get("torch")  # do not import torch only to describe the machine
    if torch is not None and torch.cuda.is_initialized():
        parts.insert(0, f"{os.environ.get('WORLD_SIZE', 1)} x {torch.cuda.get_device_name()}")
    return ", ".join(parts)


def _processor() -> str:
    if _CPUINFO.is_file():
        for line in _CPUINFO.read_text(encoding="utf-8", errors="replace").splitlines():
            name, _, value = line.partition(":")
            if name.strip() == "model name":
                return " ".join(value.split())
    return platform.processor() or platform.machine()


@functools.cache
def commit(checkout: Path = CHECKOUT) -> str | None:
    """The git commit of this checkout, with a note if files are modified; None outside a checkout."""
    if not (checkout / ".git").exists():  # an installed package may be inside another repository
        return None
    command = ["git", "--no-optional-locks", "status", "--porcelain=v2", "--branch", "--untracked-files=no"]
    try:
        done = subprocess.run(command, cwd=checkout, capture_output=True, text=True, timeout=30)
    except (OSError, subprocess.TimeoutExpired):
        return None
    head, changed = "", False
    for line in done.stdout.splitlines():
        if line.startswith("# branch.oid "):
            head = line.split()[2]
        changed |= not line.startswith("#")
    if done.returncode or not head.isalnum():  # a checkout without a commit says (initial)
        return None
    return f"{head[:10]}, with changes" if changed else head[:10]
