"""How computing on the CPU keeps its memory."""

import ctypes
import sys

_TRIM_THRESHOLD, _MMAP_MAX = -1, -4  # malloc.h of glibc


def keep_freed_memory() -> bool:
    """Tells glibc to keep what is freed for the next batch, not to give it back and clear new pages each time.

    A step of training frees and asks for the same gigabytes again and again: a sixth of its time went into new pages,
    and a twentieth where a model is only applied.

    Returns:
        Whether this process runs on glibc, so that it took effect.
    """
    if not sys.platform.startswith("linux"):
        return False
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    return bool(mallopt and mallopt(_MMAP_MAX, 0) and mallopt(_TRIM_THRESHOLD, -1))
