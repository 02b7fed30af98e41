"""Refuses to remove or rename an open file, as Windows does. Linux only, which lists the open files of a process."""

import contextlib
import functools
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from resource import RUSAGE_SELF, getrusage

_PRODUCT = tuple(
    f"{Path(__file__).parents[1] / name}{os.sep}" for name in ("modeling_mybert", "mybert", "tokenization")
)


_active = False


def refuse_as_windows_does() -> Iterator[None]:
    """A fixture: applies to calls of this project's modules, also through other libraries."""
    global _active
    if Path("/proc/self/maps").is_file():
        _install()
        _active = True
    yield
    _active = False


@functools.cache
def _install() -> None:
    sys.addaudithook(_check)  # cannot be removed


def _check(event: str, arguments: tuple) -> None:
    if not _active or event not in ("os.remove", "os.rename") or sys.exception() or not _is_from_product():
        return  # while an exception is handled, its frames keep files open; what Windows leaves then is reported later
    folders = arguments[1:] if event == "os.remove" else arguments[2:]
    opened = {name for name in _open_files() if not name.endswith((" (deleted)", ".lock"))}  # filelock removes locks
    for path, folder in zip(arguments, folders, strict=False):
        here = os.readlink(f"/proc/self/fd/{folder}") if folder >= 0 else ""
        parent, name = os.path.split(os.path.join(here, os.fsdecode(path)))
        path = os.path.join(os.path.realpath(parent), name)  # a link is removed, not its target
        if found := [name for name in opened if name == path or name.startswith(f"{path}{os.sep}")]:
            raise PermissionError(13, f"{event}: Windows refuses, since {found[0]} is open", path)


def _is_from_product() -> bool:
    frame = sys._getframe(2)
    while frame is not None and not frame.f_code.co_filename.startswith(_PRODUCT):
        frame = frame.f_back
    return frame is not None


def _open_files() -> Iterator[str]:
    """Paths of open and of memory-mapped files."""
    for number in os.listdir("/proc/self/fd"):
        with contextlib.suppress(FileNotFoundError):  # the listing itself
            yield os.readlink(f"/proc/self/fd/{number}")
    yield from _mapped_files(Path("/proc/self/statm").read_bytes(), getrusage(RUSAGE_SELF).ru_minflt)


@functools.lru_cache(maxsize=1)
def _mapped_files(sizes: bytes, faults: int) -> list[str]:
    """Thousands of lines are read again only after the size of the memory or the number of page faults has changed.

    A file that has been mapped and read changes them.
    """
    return [os.fsdecode(name) for name in {*re.findall(rb"/.*", Path("/proc/self/maps").read_bytes())}]
