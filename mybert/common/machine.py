"""What made a result: the processors that computed it, and the state of this code."""

import functools
import os
import platform
import subprocess
import sys
from pathlib import Path

CHECKOUT = Path(__file__).parents[2]
_CPUINFO = Path("/proc/cpuinfo")


def usable_cores() -> int:
    """Cores that this process may run on: a scheduler or container may leave it a part of the machine's."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def hardware() -> str:
    """Number and model of the GPUs of all processes, if this one has used one, and of the cores that it may use."""
    parts = [f"{usable_cores()} x {_processor()}"]
    torch = sys.modules.get("torch")  # a stage that has not loaded it did not compute with it
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
    """The commit of the checkout that this code runs from, marked if files of it have changed; None if it is none."""
    if not (checkout / ".git").exists():  # an installed package may lie in somebody else's
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
