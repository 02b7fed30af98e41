"""CPU cores, threads, memory allocator and hardware of this process."""

import ctypes
import functools
import math
import os
import platform
import re
import sys
import threading
import time
from collections.abc import Collection
from pathlib import Path
from typing import NamedTuple

from mybert.common.errors import UserError, short

_CPUINFO, _OWN_GROUPS, _GROUPS = Path("/proc/cpuinfo"), Path("/proc/self/cgroup"), Path("/sys/fs/cgroup")
_CHOSEN_THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS")
_CHOSEN_WAITING = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME", "KMP_LIBRARY")
"""Variables by which the user has chosen the number of threads, and how they wait."""
_FIRST_WINDOW, _WINDOW = 0.3, 2.0  # seconds over which the use of the cores is measured
_LACKING = 0.3
"""Part of a core that another program takes from the threads of PyTorch before they stop to wait busily."""


def usable_cores() -> int:
    """The number of CPU cores that this process can use: by its affinity, and by the CPU quota of its container."""
    return max(1, math.floor(min(len(_affinity()), _quota())))


def _affinity() -> Collection[int]:
    if hasattr(os, "sched_getaffinity"):
        return os.sched_getaffinity(0)  # noqa: TID251
    return range(os.cpu_count() or 1)


def _quota() -> float:
    """The number of cores that the control groups of this process may use on average, `inf` without a quota."""
    quotas = [math.inf]
    for line in _text(_OWN_GROUPS).splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers and "cpu" not in controllers.split(","):
            continue
        root = _GROUPS / controllers  # version 2 has no controllers there
        group = root / path.lstrip("/")
        # a container may see its own group as the root, under the path that the group has outside
        quotas += [_quota_of(folder) for folder in (group, *group.parents) if folder.is_relative_to(root)]
    return min(quotas)


def _quota_of(group: Path) -> float:
    text = _text(group / "cpu.max") or _text(group / "cpu.cfs_quota_us") + _text(group / "cpu.cfs_period_us")
    numbers = [int(word) for word in text.split() if word.isdigit()]  # "max" or -1 without a quota
    return numbers[0] / numbers[1] if len(numbers) == 2 and numbers[1] else math.inf


def _text(path: Path) -> str:
    try:
        return path.read_text("utf-8")
    except OSError:
        return ""


_INSTRUCTIONS = ("ONEDNN_MAX_CPU_ISA", "DNNL_MAX_CPU_ISA", "ATEN_CPU_CAPABILITY")
"""Variables that limit the instructions of PyTorch's kernels."""


class _Use(NamedTuple):
    """Times in seconds: now, the idle time and all time of the usable cores, the CPU time of this process."""

    now: float
    idle: float
    total: float
    own: float

    @classmethod
    def measure(cls) -> "_Use":
        import psutil  # here, since commands without PyTorch do not need it

        cores = psutil.cpu_times(percpu=True)
        usable = [cores[number] for number in _affinity() if number < len(cores)] or cores
        idle = sum(core.idle + getattr(core, "iowait", 0.0) for core in usable)
        return cls(time.perf_counter(), idle, sum(map(sum, usable)), time.process_time())

    def free_cores(self, before: "_Use") -> float:
        """Mean number of cores that were idle or used by this process since `before`; `inf` if unknown."""
        seconds = self.now - before.now
        if self.total - before.total < 0.5 * seconds:  # some sandboxes count nothing
            return math.inf
        return (self.idle - before.idle + self.own - before.own) / seconds


class Threads:
    """The threads of PyTorch on the CPU: at most one for each usable core, and fast beside other programs.

    Their number changes the order of sums, so it depends on no other program. OpenMP's threads wait busily for each
    other, since they are awake at once then. If another program computes on one of the cores, they keep this core from
    the thread that they wait for: two are slower than one then. So they sleep while cores are lacking.

    Attributes:
        free_cores: cores that were idle or used by this process in the last measurement; `inf` if unknown.
        are_cores_lacking: whether they are fewer than the threads.
    """

    def __init__(self) -> None:
        self.free_cores, self.are_cores_lacking = math.inf, False
        self._before: _Use | None = None
        self._window = _FIRST_WINDOW
        self._sleeping: threading.Event | None = None
        self._lock = threading.Lock()

    def resume(self, number: int) -> bool:
        """Takes the number of an earlier run, for the same order of sums; returns whether that is possible."""
        import torch

        if number <= usable_cores() and not _is_chosen(_CHOSEN_THREADS):
            torch.set_num_threads(number)
        return torch.get_num_threads() == number

    def share(self) -> None:
        """Measures every 2 seconds whether cores are lacking; called before the first batch and between batches."""
        is_early = self._before is not None and time.perf_counter() - self._before.now < self._window
        if is_early or not self._lock.acquire(blocking=False):
            return
        try:
            self._measure()
        finally:
            self._lock.release()

    def settle(self) -> None:
        """Measures at once, while this process waits for 0.3 seconds; called before speeds are measured."""
        with self._lock:
            self._before = None
            self._measure()
            time.sleep(_FIRST_WINDOW)
            self._measure()

    def _measure(self) -> None:
        import torch

        use = _Use.measure()
        if self._before is None:
            if torch.get_num_threads() > usable_cores() and not _is_chosen(_CHOSEN_THREADS):
                torch.set_num_threads(usable_cores())
        else:
            self.free_cores, self._window = use.free_cores(self._before), _WINDOW
            self.are_cores_lacking = self.free_cores < torch.get_num_threads() - _LACKING
            if not _is_chosen(_CHOSEN_WAITING):
                self._wait_busily(not self.are_cores_lacking)
        self._before = use

    def _wait_busily(self, busily: bool) -> None:
        openmp = _openmp()
        if openmp is None:
            return
        if hasattr(openmp, "kmp_set_blocktime"):  # of LLVM and Intel: macOS, Windows, conda
            openmp.kmp_set_blocktime(200 if busily else 0)  # milliseconds; 200 is the default
        elif hasattr(openmp, "GOMP_parallel"):
            if busily and self._sleeping is not None:
                self._sleeping.set()
                self._sleeping = None
            elif not busily and self._sleeping is None:
                self._sleeping = threading.Event()
                threading.Thread(target=_add_threads, args=(openmp, self._sleeping), daemon=True).start()


def _is_chosen(variables: Collection[str]) -> bool:
    return any(name in os.environ for name in variables)


@functools.cache
def _openmp() -> ctypes.CDLL | None:
    """The OpenMP library that PyTorch has loaded."""
    try:
        return ctypes.CDLL("libiomp5md.dll" if sys.platform == "win32" else None)
    except OSError:
        return None


def _add_threads(openmp: ctypes.CDLL, end: threading.Event) -> None:
    """Keeps further threads of GNU OpenMP until `end`: none of its threads waits busily if they exceed the cores.

    This is documented for GOMP_SPINCOUNT, which is read once when PyTorch is loaded.
    """
    run = openmp.GOMP_parallel
    run.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint, ctypes.c_uint]
    run(ctypes.cast(openmp.omp_get_num_threads, ctypes.c_void_p), None, len(_affinity()) + 1, 0)
    end.wait()


threads = Threads()


def launched_processes() -> int:
    """The number of processes that torchrun started for this run; 1 without it.

    Raises:
        UserError: WORLD_SIZE holds something else.
    """
    given = os.environ.get("WORLD_SIZE", "1")
    if not (given.isdecimal() and int(given)):
        raise UserError(f"the environment variable WORLD_SIZE is {short(given)}, expected a count; unset it")
    return int(given)


def hardware() -> str:
    """Count and model of the available CPU cores, and of the GPUs if CUDA is initialised in this process.

    Of a processor that is made to compute as an older one, with the instructions that it may use.
    """
    match = re.search(r"^model name\s*: (.*)$", _text(_CPUINFO), re.MULTILINE)
    parts = [f"{usable_cores()} x {match[1] if match else platform.machine()}"]
    limits = dict.fromkeys(os.environ[name].upper() for name in _INSTRUCTIONS if os.environ.get(name))
    parts[0] += f" ({' and '.join(limits)} by environment)" if limits else ""
    torch = sys.modules.get("torch")  # do not import torch only to describe the machine
    if torch is not None and torch.cuda.is_initialized():
        parts.insert(0, f"{os.environ.get('WORLD_SIZE', 1)} x {torch.cuda.get_device_name()}")
    return ", ".join(parts)


_TRIM_THRESHOLD, _MMAP_MAX = -1, -4  # malloc.h of glibc


def keep_freed_memory() -> bool:
    """Makes glibc reuse freed memory instead of returning it to the operating system.

    Each training step frees and allocates the same memory. Without this setting, page faults take a sixth of the
    training time and a twentieth of the inference time.

    Returns:
        Whether the setting took effect, which requires glibc.
    """
    if not sys.platform.startswith("linux"):
        return False
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    return bool(mallopt and mallopt(_MMAP_MAX, 0) and mallopt(_TRIM_THRESHOLD, -1))
