"""Files as their names say: the format, how they are compressed, and the bytes or text in them."""

import contextlib
import gzip
import io
import re
import sys
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, NamedTuple

import zstandard

from mybert.common.errors import UserError
from mybert.common.paths import did_you_mean

COMPRESSIONS = (".gz", ".zst")
STDIN = "-"
_SURROGATE = re.compile("[\ud800-\udfff]")
_CHUNK = 1 << 20


class FileFormat(NamedTuple):
    """The suffixes of a file's name that say how to read it, in lower case, each "" where there is none."""

    kind: str
    compression: str


def file_format(name: str | Path) -> FileFormat:
    """`.csv` and `.gz` of `Train.CSV.gz`."""
    path = Path(name)
    compression = path.suffix.lower() if path.suffix.lower() in COMPRESSIONS else ""
    return FileFormat((path.with_suffix("") if compression else path).suffix.lower(), compression)


def is_unicode(text: str) -> bool:
    """Whether `text` can be written as UTF-8: it holds no half of a surrogate pair."""
    return text.isascii() or not _SURROGATE.search(text)


class _ZstdStream(io.RawIOBase):
    """Decompressed bytes of Zstandard frames; unlike the library's own reader it notices that the end is missing."""

    def __init__(self, file: BinaryIO):
        self._chunks = self._decompressed(file)
        self._ready = memoryview(b"")

    @staticmethod
    def _decompressed(file: BinaryIO) -> Iterator[bytes]:
        decompressor = zstandard.ZstdDecompressor(max_window_size=2**31)
        frame = None
        while chunk := file.read(_CHUNK):
            while chunk:
                frame = frame or decompressor.decompressobj()
                yield frame.decompress(chunk)
                chunk, frame = (frame.unused_data, None) if frame.eof else (b"", frame)
        if frame:
            raise EOFError("the file ends within a compressed frame")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer) -> int:
        while not self._ready:
            chunk = next(self._chunks, None)
            if chunk is None:
                return 0
            self._ready = memoryview(chunk)
        count = min(len(buffer), len(self._ready))
        buffer[:count] = self._ready[:count]
        self._ready = self._ready[count:]
        return count


def decompressed(file: BinaryIO, name: str | Path) -> BinaryIO:
    """The bytes that `file`, whose name says how it is compressed, stands for."""
    compression = file_format(name).compression
    if compression == ".gz":
        return gzip.GzipFile(fileobj=file)
    return io.BufferedReader(_ZstdStream(file), _CHUNK) if compression == ".zst" else file


@contextlib.contextmanager
def open_file(name: str | Path) -> Iterator[BinaryIO]:
    """Opens a file, or standard input for `-`, as the bytes that were compressed, if they were.

    Raises:
        UserError: the file cannot be opened, or its compressed bytes are damaged.
    """
    try:
        with contextlib.nullcontext(sys.stdin.buffer) if name == STDIN else open(name, "rb") as file:
            yield decompressed(file, name)
    except (EOFError, gzip.BadGzipFile, zlib.error, zstandard.ZstdError) as error:
        raise UserError(f"{name} is damaged ({error}); compress it again or leave it out") from error
    except FileNotFoundError as error:
        raise UserError(f"{name}: there is no such file{did_you_mean(str(name))}") from error
    except (PermissionError, IsADirectoryError) as error:
        raise UserError(f"{name}: {error.strerror}") from error


@contextlib.contextmanager
def open_text(name: str, newline: str | None = None) -> Iterator[io.TextIOBase]:
    """`open_file` as UTF-8 text.

    A byte order mark is left out; LF, CRLF and CR end a line. A byte that is not UTF-8 becomes a lone surrogate, for
    the reader to find with `is_unicode` and to report with its line.

    Args:
        newline: as for `open`; None turns every line end into LF.

    Raises:
        UserError: see `open_file`.
    """
    with open_file(name) as file:
        text = io.TextIOWrapper(file, encoding="utf-8-sig", errors="surrogateescape", newline=newline)
        try:
            yield text
        finally:
            text.detach()
