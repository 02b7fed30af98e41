"""Report a full disk as a one-line error."""

import contextlib
import errno
import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

from mybert.common.errors import UserError

FULL_DISK = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
"""Error numbers for a full disk, an exhausted quota and a file size limit."""

_REMEDY = "free some space or choose another --output; incomplete output is never taken for complete"


@contextlib.contextmanager
def report_full_disk(path: str | Path, needed: int | None = None, remedy: str = _REMEDY) -> Iterator[None]:
    """Converts "no space left" and "file too large" errors into a UserError.

    `path` is the file being written, `needed` its size in bytes if known; the message ends with `remedy`.
    """
    try:
        yield
    except Exception as error:
        number = _error_number(error)
        if number not in FULL_DISK:
            raise
        free = shutil.disk_usage(Path(path).absolute().parent).free
        needs = "" if needed is None else f"it takes about {needed / 2**30:.3g} GiB; "
        state = f"{os.strerror(number)}; {needs}{free / 2**30:.3g} GiB free on that disk"
        raise UserError(f"no room to write {path} ({state}): {remedy}") from error


def _error_number(error: Exception) -> int | None:
    if isinstance(error, OSError) and error.errno is not None:
        return error.errno
    if "inline_container" in str(error):  # torch.save gives no errno; only writing fails there
        return errno.ENOSPC
    found = re.search(r"\bos error (\d+)", str(error))  # tokenizers and safetensors (Rust)
    return int(found[1]) if found else None
