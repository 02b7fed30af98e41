"""A full disk, said in one line whoever was writing."""

import contextlib
import errno
import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

from mybert.common.errors import UserError

FULL_DISK = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
"""What the system calls a disk that takes no more, a quota or a limit of size that is reached."""


@contextlib.contextmanager
def report_full_disk(
    path: str | Path,
    needed: int | None = None,
    remedy: str = "free some space or choose an --output elsewhere; no half-written folder looks like a complete one",
) -> Iterator[None]:
    """Turns "no space left" and "file too large" into a UserError that says what to do.

    Args:
        path: what is written.
        needed: bytes that it takes, if known.
        remedy: what to do.
    """
    try:
        yield
    except Exception as error:
        number = _full_disk(error)
        if number is None:
            raise
        free = shutil.disk_usage(Path(path).absolute().parent).free / 2**30
        needs = "" if needed is None else f"it takes about {needed / 2**30:.3g} GiB; "
        raise UserError(
            f"no room to write {path} ({os.strerror(number)}; {needs}{free:.3g} GiB free on that disk): {remedy}"
        ) from error


def _full_disk(error: Exception) -> int | None:
    """The operating system's number for a full disk, if that is what `error` is about."""
    if isinstance(error, OSError) and error.errno is not None:
        return error.errno if error.errno in FULL_DISK else None
    if "inline_container" in str(error):  # torch.save tells no reason; only writing fails there
        return errno.ENOSPC
    found = re.search(r"\bos error (\d+)", str(error))  # tokenizers and safetensors, which are written in Rust
    return int(found[1]) if found and int(found[1]) in FULL_DISK else None
