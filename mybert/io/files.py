"""Open files by name: format, compression, bytes and text.

In every format LF, CRLF and CR end a line; form feed, U+0085 and U+2028 are part of it. The last line needs no end. A
byte order mark at the start is no text.
"""

import codecs
import contextlib
import gzip
import io
import re
import sys
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import BinaryIO, NamedTuple, cast

from mybert.common.errors import UserError, did_you_mean

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

COMPRESSIONS = (".gz", ".zst")
PLAIN_TEXT = (".txt", ".md")
STDIN = "-"
_SURROGATE = re.compile("[\ud800-\udfff]")
# reads what `zstd --long=31` writes
_ZSTD_OPTIONS: Mapping[int, int] = {zstd.DecompressionParameter.window_log_max: 31}
_UTF16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
_BLOCK = 1 << 20  # bytes


class FileFormat(NamedTuple):
    """Format and compression suffixes of a file name, in lower case; "" if absent. `kind` of plain text is `.txt`."""

    kind: str
    compression: str


def file_format(name: str | Path) -> FileFormat:
    """Splits the suffixes of a file name: `Train.CSV.gz` gives (`.csv`, `.gz`)."""
    path = Path(name)
    compression = path.suffix.lower() if path.suffix.lower() in COMPRESSIONS else ""
    kind = (path.with_suffix("") if compression else path).suffix.lower()
    return FileFormat(".txt" if kind in PLAIN_TEXT else kind, compression)


def is_unicode(text: str) -> bool:
    """Whether `text` can be encoded as UTF-8, that is, contains no lone surrogate."""
    return text.isascii() or not _SURROGATE.search(text)


def decompressed(file: BinaryIO, name: str | Path) -> BinaryIO:
    """Wraps `file` in a decompressor chosen by the suffix of `name`."""
    compression = file_format(name).compression
    if compression == ".gz":
        return cast(BinaryIO, gzip.GzipFile(fileobj=file))
    return cast(BinaryIO, zstd.ZstdFile(file, options=_ZSTD_OPTIONS)) if compression == ".zst" else file


@contextlib.contextmanager
def open_file(name: str | Path) -> Iterator[BinaryIO]:
    """Opens a file, or standard input for `-`, for reading bytes, decompressed if necessary."""
    try:
        with contextlib.nullcontext(sys.stdin.buffer) if name == STDIN else open(name, "rb") as file:
            content = decompressed(file, name)
            start = content.peek(8)[:8] if hasattr(content, "peek") else b""
            halves = start[::2], start[1::2]
            alternates = any(all(one) and not any(other) for one, other in (halves, halves[::-1]))  # Latin letters
            if start[:2] in _UTF16 or (alternates and len(start) >= 4):
                raise UserError(f"{name} is UTF-16, not UTF-8; save it as UTF-8")
            yield content
    except (EOFError, gzip.BadGzipFile, zlib.error, zstd.ZstdError) as error:
        raise UserError(f"{name} is damaged ({error}); compress it again or leave it out") from error
    except FileNotFoundError as error:
        raise UserError(f"{name}: no such file{did_you_mean(str(name))}") from error
    except (PermissionError, IsADirectoryError) as error:
        raise UserError(f"{name}: {error.strerror}") from error


@contextlib.contextmanager
def open_text(name: str, newline: str | None = None) -> Iterator[io.TextIOBase]:
    """Opens a file, or standard input for `-`, for reading UTF-8 text. `newline` is that of `open`.

    Invalid bytes become lone surrogates, which the reader detects with `is_unicode` and reports by line.
    """
    with open_file(name) as file:
        text = io.TextIOWrapper(file, encoding="utf-8-sig", errors="surrogateescape", newline=newline)
        try:
            yield text
        finally:
            text.detach()


def arriving_lines(file: BinaryIO) -> Iterator[list[bytes]]:
    """Yields lines without their ends as soon as they arrive: an interactive writer gets each answer at once."""
    begun: list[bytes] = []
    after_cr = False  # of a line that has been read; a LF that follows belongs to it
    while block := cast(io.BufferedIOBase, file).read1(_BLOCK):
        block = block.removeprefix(b"\n") if after_cr else block
        after_cr = block.endswith(b"\r")
        lines = block.splitlines()  # of bytes: at LF, CRLF and CR only
        rest = [] if block.endswith((b"\n", b"\r")) else lines[-1:]
        ended = lines[: len(lines) - len(rest)]
        if ended:
            yield [b"".join([*begun, ended[0]]), *ended[1:]]
            begun = []
        begun += rest
    if begun:
        yield [b"".join(begun)]
