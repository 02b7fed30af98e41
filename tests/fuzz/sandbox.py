"""Runs a reader on malformed input: it must read it or raise a one-line error, and touch nothing else.

Python's audit events report files opened for writing, started programs, connections, unpickled names and executed
code, also of libraries that catch the exception.
"""

import contextlib
import os
import resource
import signal
import sys
import tempfile
import threading
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from mybert.common.errors import UserError

SECONDS = 20
"""Limit on the CPU time of one input, which does not depend on other programs."""
MOST_SECONDS = 300
"""Limit on its time, for a reader that waits."""
BYTES = 2 << 30
"""Limit on the memory that an input may add to the process."""
READ, REFUSED = "read", "refused"
_LONGEST_MESSAGE = 3000
_WRITERS = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
_CHANGES = {
    f"os.{name}" for name in ["mkdir", "remove", "rename", "rmdir", "link", "symlink", "chmod", "truncate", "utime"]
}
_FORBIDDEN = {
    *("pickle.find_class", "socket.connect", "socket.getaddrinfo", "subprocess.Popen", "os.system", "os.exec"),
    *("os.fork", "os.posix_spawn", "os.spawn"),
}


class Defect(AssertionError):
    """A reader raised another exception than an error for users, or did something forbidden."""


class Stopped(BaseException):
    """Stops a reader that does something forbidden; no `except Exception` catches it."""


@dataclass(frozen=True)
class Target:
    """A reader and the malformed input for it.

    Attributes:
        name: shown as the name of the test.
        make: creates an input: file names and contents.
        read: reads the folder that holds them.
        weight: its share of all inputs, about 1 for 1 in 1,000.
        prepare: writes files that are the same for every input.
        refusals: exact types of exceptions that refuse an input.
        names_place: whether a refusal must name the folder.
        lines: maximum number of lines of a refusal.
    """

    name: str
    make: Callable[[Random], dict[str, bytes]]
    read: Callable[[Path], object]
    weight: float = 0.4
    prepare: Callable[[Path], None] | None = None
    refusals: tuple[type[Exception], ...] = (UserError,)
    names_place: bool = True
    lines: int = 1


@dataclass
class Place:
    """The folders of a test.

    Attributes:
        root: nothing outside may be changed.
        folder: holds the input; deep enough that `../..` stays in `root`.
        free: readers may write here: caches and temporary files.
    """

    root: Path
    folder: Path = field(init=False)
    free: Path = field(init=False)

    def __post_init__(self):
        self.folder, self.free = self.root / "a/b/c/input", self.root / "free"
        self.folder.mkdir(parents=True)
        self.free.mkdir()


class _Watch:
    """The audit hook of this process. Hooks cannot be removed, so `place` switches it on."""

    def __init__(self):
        self.place: Place | None = None
        self.thread = 0
        self.found: list[str] = []
        sys.addaudithook(self)

    def __call__(self, event: str, arguments: tuple) -> None:
        if self.place is None or self.thread != threading.get_ident():
            return
        found = ""
        if event in _FORBIDDEN or (event == "open" and _writes(*arguments)) or event in _CHANGES:
            found = "" if self._is_allowed(event, arguments) else f"{event} {str(arguments)[:200]}"
        elif event == "exec" and str(self.place.folder) in getattr(arguments[0], "co_filename", ""):
            found = f"code of the input was run: {arguments[0].co_filename}"
        if found:
            self.found.append(found)
            raise Stopped(found)

    def _is_allowed(self, event: str, arguments: tuple) -> bool:
        """Whether a change of files is in the folder for that."""
        if event in _FORBIDDEN:
            return False
        paths = [os.fsdecode(a) for a in arguments[:2] if isinstance(a, str | bytes | os.PathLike)]
        if event == "open":
            paths = paths[:1]
        elif arguments[-1] >= 0:  # dir_fd
            paths = [os.path.join(os.readlink(f"/proc/self/fd/{arguments[-1]}"), path) for path in paths]
        return all(os.path.realpath(path).startswith((str(self.place.free), os.devnull)) for path in paths)


def _writes(_: object, mode: str | None, flags: int) -> bool:
    return any(c in mode for c in "wax+") if isinstance(mode, str) else bool((flags or 0) & _WRITERS)


_WATCH = _Watch()


def attempt(target: Target, place: Place, files: dict[str, bytes]) -> str:
    """Reads one input.

    Returns:
        READ or REFUSED.

    Raises:
        Defect: an exception that is no refusal, a refusal without the name of the file, a limit on time or memory was
            exceeded, or something was executed, unpickled, connected to or written elsewhere.
    """
    for name, content in files.items():
        path = place.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    try:
        with _watched(place):
            target.read(place.folder)
        return READ
    except (Defect, KeyboardInterrupt):
        raise
    except BaseException as error:
        if not isinstance(error, UserError) and type(error) not in target.refusals:
            raise Defect("".join(traceback.format_exception(error)[-3:]).strip()) from error
        message = str(error)
        if target.names_place and str(place.folder) not in message:
            raise Defect(f"the refusal does not name the file: {message[:300]!r}") from error
        if len(message.splitlines()) > target.lines or len(message) > _LONGEST_MESSAGE:
            raise Defect(f"the refusal is long: {len(message):,} characters, {message[:300]!r}") from error
        return REFUSED
    finally:
        for name in files:
            (place.folder / name).unlink(missing_ok=True)


@contextlib.contextmanager
def _watched(place: Place) -> Iterator[None]:
    def stop(*_: object) -> None:
        raise Stopped(f"not done after {SECONDS} s of CPU time, or {MOST_SECONDS} s")

    before = [signal.signal(number, stop) for number in (signal.SIGPROF, signal.SIGALRM)]
    signal.setitimer(signal.ITIMER_PROF, SECONDS)
    signal.setitimer(signal.ITIMER_REAL, MOST_SECONDS)
    _WATCH.found, _WATCH.thread, _WATCH.place = [], threading.get_ident(), place
    try:
        yield
    finally:
        _WATCH.place = None
        for timer in (signal.ITIMER_PROF, signal.ITIMER_REAL):
            signal.setitimer(timer, 0)
        for number, handler in zip((signal.SIGPROF, signal.SIGALRM), before, strict=True):
            signal.signal(number, handler)
        if _WATCH.found:
            raise Defect("; ".join(_WATCH.found))


@contextlib.contextmanager
def bounded(place: Place) -> Iterator[None]:
    """Limits the memory of the process, and puts temporary files and caches into `place`."""
    import datasets

    pages = int(Path("/proc/self/statm").read_text(encoding="utf-8").split()[0])
    limits, cache = resource.getrlimit(resource.RLIMIT_AS), datasets.config.HF_DATASETS_CACHE
    folder, tempfile.tempdir = tempfile.tempdir, str(place.free)
    bytecode, sys.dont_write_bytecode = sys.dont_write_bytecode, True
    datasets.config.HF_DATASETS_CACHE = str(place.free / "datasets")
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + BYTES, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, limits)
        datasets.config.HF_DATASETS_CACHE = cache
        tempfile.tempdir, sys.dont_write_bytecode = folder, bytecode
