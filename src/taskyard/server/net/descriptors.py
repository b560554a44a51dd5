"""How many files a server may have open, and so how many connections."""

from __future__ import annotations

import contextlib
import resource
from typing import Final

from taskyard.server.logs import fields, log

# descriptors that connections leave to the journal and to the process
RESERVED_DESCRIPTORS: Final = 64


def raise_file_limit() -> None:
    """As many connections as the system allows; the usual soft limit is for other programs."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def max_open_connections(configured: int | None) -> int:
    """Return the configured number, less what the other descriptors need."""
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if files == resource.RLIM_INFINITY:
        return configured or 10_000_000
    possible = files - min(RESERVED_DESCRIPTORS, files // 2)
    if configured is not None and configured > possible:
        log.warning(
            "fewer connections possible than configured: the open file limit is too low",
            extra=fields(connections=possible, configured=configured, files=files),
        )
    return possible if configured is None else min(configured, possible)
