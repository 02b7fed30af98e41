"""What a reader may do with an input: read it, or refuse it in one line. Anything else is a defect, and named.

Python's audit events tell of every file opened for writing, program, connection, unpickled name and piece of foreign
code, also of those that a library below catches.
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
from types import FrameType

from mybert.common.errors import UserError

SECONDS = 20
"""What reading one input may take."""
BYTES = 2 << 30
"""What it may add to the address space of the process."""
READ, REFUSED = "read", "refused"
_LONGEST_MESSAGE = 3000
_WRITERS = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
_CHANGES = frozenset(
    f"os.{name}" for name in ("mkdir", "remove", "rename", "rmdir", "link", "symlink", "chmod", "truncate", "utime")
)
_NEVER = frozenset(
    [
        *("pickle.find_class", "socket.connect", "socket.getaddrinfo", "subprocess.Popen"),
        *("os.system", "os.exec", "os.fork", "os.posix_spawn", "os.spawn"),
    ]
)


class Defect(AssertionError):
    """An input did what none may do."""


class Stopped(BaseException):
    """Raised inside a reader that does what it must not; no `except Exception` catches it."""


@dataclass(frozen=True)
class Target:
    """Something of ours that reads what others wrote.

    Attributes:
        name: of the row in the table.
        make: from a source of chance to the input: name → content of each file.
        read: reads the folder that holds them.
        weight: its part of all inputs: about as many in a thousand.
        prepare: puts files beside them that are the same for every input.
        refusals: exceptions, by exact type, that refuse an input.
        names_place: whether a refusal names the folder.
        lines: of a refusal at most.
    """

    name: str
    make: Callable[[Random], dict[str, bytes]]
    read: Callable[[Path], None]
    weight: float
    prepare: Callable[[Path], None] | None = None
    refusals: tuple[type[Exception], ...] = (UserError,)
    names_place: bool = True
    lines: int = 1


@dataclass
class Place:
    """Where a target's inputs lie.

    Attributes:
        root: nothing outside of it is touched.
        folder: of the input, which nobody else writes to; deep enough for `../..` to stay within `root`.
        free: where readers may write: caches and temporary files.
    """

    root: Path
    folder: Path = field(init=False)
    free: Path = field(init=False)

    def __post_init__(self):
        self.folder, self.free = self.root / "a/b/c/input", self.root / "free"
        self.folder.mkdir(parents=True)
        self.free.mkdir()


class _Watch:
    """The one audit hook of the process; it cannot be taken out, so it is switched on and off."""

    def __init__(self):
        self.place: Place | None = None
        self.thread = 0
        self.found: list[str] = []
        sys.addaudithook(self)

    def __call__(self, event: str, arguments: tuple) -> None:
        if self.place is None or self.thread != threading.get_ident():
            return
        said = None
        if event in _NEVER or (event == "open" and _writes(arguments)) or event in _CHANGES:
            said = self._outside(event, arguments)
        elif event == "exec" and str(self.place.folder) in getattr(arguments[0], "co_filename", ""):
            said = f"code of the input was run: {arguments[0].co_filename}"
        if said:
            self.found.append(said)
            raise Stopped(said)

    def _outside(self, event: str, arguments: tuple) -> str | None:
        if event not in _NEVER:
            free = (str(self.place.free), os.devnull)
            paths = [os.fsdecode(a) for a in arguments[:2] if isinstance(a, str | bytes | os.PathLike)]
            paths = paths[:1] if event == "open" else [_of_open_folder(path, arguments[-1]) for path in paths]
            if all(os.path.realpath(path).startswith(free) for path in paths):
                return None
        return f"{event} {str(arguments)[:200]}"


def _of_open_folder(path: str, folder: int) -> str:
    """`path` as it is meant by functions with `dir_fd`; -1 is none."""
    return path if folder < 0 else os.path.join(os.readlink(f"/proc/self/fd/{folder}"), path)


def _writes(arguments: tuple) -> bool:
    _, mode, flags = arguments
    return any(c in mode for c in "wax+") if isinstance(mode, str) else bool((flags or 0) & _WRITERS)


_WATCH = _Watch()


def attempt(target: Target, place: Place, files: dict[str, bytes]) -> str:
    """Reads one input.

    Returns:
        READ or REFUSED.

    Raises:
        Defect: another exception came than a refusal, or the refusal does not say what is wrong with which file; it
            took too long or too much memory; something was run, unpickled, connected to, or written elsewhere.
    """
    for name, content in files.items():
        path = place.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    try:
        with _watched(place):
            target.read(place.folder)
        return READ
    except Defect:
        raise
    except BaseException as error:
        if type(error) not in target.refusals:
            if isinstance(error, KeyboardInterrupt):
                raise
            raise Defect(f"{target.name}: {_last_lines(error)}") from error
        _check_message(target, place, str(error))
        return REFUSED
    finally:
        for name in files:
            (place.folder / name).unlink(missing_ok=True)


def _check_message(target: Target, place: Place, message: str) -> None:
    if target.names_place and str(place.folder) not in message:
        raise Defect(f"{target.name}: the refusal does not name the file: {message[:300]!r}")
    if len(message.splitlines()) > target.lines or len(message) > _LONGEST_MESSAGE:
        raise Defect(f"{target.name}: the refusal is long: {len(message):,} characters, {message[:300]!r}")


@contextlib.contextmanager
def _watched(place: Place) -> Iterator[None]:
    def stop(number: int, frame: FrameType | None) -> None:
        raise Stopped(f"not done after {SECONDS} s")

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, SECONDS)
    _WATCH.found, _WATCH.thread, _WATCH.place = [], threading.get_ident(), place
    try:
        yield
    finally:
        _WATCH.place = None
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        if _WATCH.found:
            raise Defect("; ".join(_WATCH.found))


@contextlib.contextmanager
def bounded(place: Place) -> Iterator[None]:
    """Holds the address space to `BYTES` more than now, and sends temporary files and caches into `place`."""
    import datasets

    pages = int(Path("/proc/self/statm").read_text().split()[0])
    limits, caches = resource.getrlimit(resource.RLIMIT_AS), datasets.config.HF_DATASETS_CACHE
    folder, tempfile.tempdir = tempfile.tempdir, str(place.free)
    cached, sys.dont_write_bytecode = sys.dont_write_bytecode, True  # a module may be loaded only now
    datasets.config.HF_DATASETS_CACHE = str(place.free / "datasets")
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + BYTES, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, limits)
        datasets.config.HF_DATASETS_CACHE = caches
        tempfile.tempdir, sys.dont_write_bytecode = folder, cached


def _last_lines(error: BaseException) -> str:
    return "".join(traceback.format_exception(error)[-3:]).strip()
