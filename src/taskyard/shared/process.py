"""What the operating system says about this process."""

from __future__ import annotations

import os
import resource
from dataclasses import dataclass
from typing import Final

_PROC: Final = "/proc/self"


@dataclass(frozen=True, slots=True)
class Usage:
    """None: this system does not say."""

    cpu_seconds: float
    open_files: int | None
    max_files: int
    memory_bytes: int | None
    virtual_bytes: int | None


def process_usage(proc: str = _PROC) -> Usage:
    times = os.times()
    memory = _memory(proc)
    return Usage(
        cpu_seconds=times.user + times.system,
        open_files=_open_files(proc),
        max_files=resource.getrlimit(resource.RLIMIT_NOFILE)[0],
        memory_bytes=memory[1] if memory else None,
        virtual_bytes=memory[0] if memory else None,
    )


def _memory(proc: str) -> tuple[int, int] | None:
    """All of it, and what of it is in memory."""
    try:
        with open(f"{proc}/statm", encoding="ascii") as file:
            words = file.read().split()
    except OSError:
        return None
    page = resource.getpagesize()
    return int(words[0]) * page, int(words[1]) * page


def _open_files(proc: str) -> int | None:
    try:
        return len(os.listdir(f"{proc}/fd"))
    except OSError:
        return None
