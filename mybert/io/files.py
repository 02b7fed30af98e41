"""Open files by name: format, compression, bytes and text."""

import codecs
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

from mybert.common.error_messages import did_you_mean
from mybert.common.errors import UserError

COMPRESSIONS = (".gz", ".zst")
STDIN = "-"
_SURROGATE = re.compile("[\ud800-\udfff]")
_CHUNK = 1 << 20
_UTF16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)


class FileFormat(NamedTuple):
    """Format and compression suffixes of a file name, in lower case; "" if absent."""

    kind: str
    compression: str


def file_format(name: str | Path) -> FileFormat:
    """Splits the suffixes of a file name: `Train.CSV.gz` gives (`.csv`, `.gz`)."""
    path = Path(name)
    compression = path.suffix.lower() if path.suffix.lower() in COMPRESSIONS else ""
    return FileFormat((path.with_suffix("") if compression else path).suffix.lower(), compression)


def is_unicode(text: str) -> bool:
    """Whether `text` can be encoded as UTF-8, that is, contains no lone surrogate."""
    return text.isascii() or not _SURROGATE.search(text)


class _ZstdStream(io.RawIOBase):
    """A stream of decompressed Zstandard frames. Unlike the library's reader, it raises on truncated files."""

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
    """Wraps `file` in a decompressor chosen by the suffix of `name`."""
    compression = file_format(name).compression
    if compression == ".gz":
        return gzip.GzipFile(fileobj=file)
    return io.BufferedReader(_ZstdStream(file), _CHUNK) if compression == ".zst" else file


@contextlib.contextmanager
def open_file(name: str | Path) -> Iterator[BinaryIO]:
    """Opens a file, or standard input for `-`, for reading bytes, decompressed if necessary.

    Raises:
        UserError: the file cannot be opened, or its compressed data is damaged.
    """
    try:
        with contextlib.nullcontext(sys.stdin.buffer) if name == STDIN else open(name, "rb") as file:
            yield decompressed(file, name)
    except (EOFError, gzip.BadGzipFile, zlib.error, zstandard.ZstdError) as error:
        raise UserError(f"{name} is damaged ({error}); compress it again or leave it out") from error
    except FileNotFoundError as error:
        raise UserError(f"{name}: no such file{did_you_mean(str(name))}") from error
    except (PermissionError, IsADirectoryError) as error:
        raise UserError(f"{name}: {error.strerror}") from error


@contextlib.contextmanager
def open_text(name: str, newline: str | None = None) -> Iterator[io.TextIOBase]:
    """Opens a file, or standard input for `-`, for reading UTF-8 text.

    A byte order mark is skipped. LF, CRLF and CR end a line. Invalid bytes become lone surrogates, which the reader
    detects with `is_unicode` and reports by line.

    Args:
        newline: as for `open`; None converts every line end to LF.

    Raises:
        UserError: see `open_file`.
    """
    with open_file(name) as file:
        if hasattr(file, "peek") and file.peek(2)[:2] in _UTF16:
            raise UserError(f"{name} is UTF-16, not UTF-8; save it as UTF-8")
        text = io.TextIOWrapper(file, encoding="utf-8-sig", errors="surrogateescape", newline=newline)
        try:
            yield text
        finally:
            text.detach()
