"""Tells the C library's malloc to keep freed memory for a while.

By default malloc gets a buffer of some 100 kB from the system as a mapping of its own, and returns
space at the end of the heap once there is twice as much. A loaded server then gets the frames of
its journal and long replies in fresh pages, each of them a page fault: on a virtual machine whose
host has reclaimed those pages, they cost more than what is done with the buffer.
"""

from __future__ import annotations

import contextlib
import ctypes
from typing import Final

# mallopt's names for them, and bytes.
_TRIM_THRESHOLD: Final = -1
_MMAP_THRESHOLD: Final = -3
_KEPT_BYTES: Final = 16 * 1_048_576
_LARGE_BYTES: Final = 4 * 1_048_576


def tune_malloc() -> None:
    """Do nothing where the C library has no such settings."""
    with contextlib.suppress(OSError, AttributeError):
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(_TRIM_THRESHOLD, _KEPT_BYTES)
        mallopt(_MMAP_THRESHOLD, _LARGE_BYTES)
