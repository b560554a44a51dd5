"""How much of the processors something else took while a part was measured.

Figures of a machine that others used at the same time are worth little, and nothing in them shows
it. All processes of a part are children that have ended when it is over, so what they took is
known; whatever else the machine was busy with belongs to others.
"""

import os
import time
from pathlib import Path


class Others:
    """From its making until it is asked."""

    def __init__(self) -> None:
        self._began = time.monotonic()
        self._busy = busy_seconds(Path("/proc/stat").read_text())
        self._own = own_seconds()

    def cores(self) -> float:
        busy = busy_seconds(Path("/proc/stat").read_text()) - self._busy
        taken = busy - (own_seconds() - self._own)
        return max(taken, 0.0) / (time.monotonic() - self._began)


def busy_seconds(stat: str) -> float:
    """User, nice and system time of all processors; interrupts are nobody's."""
    fields = stat.split("\n", 1)[0].split()
    return sum(map(int, fields[1:4])) / os.sysconf("SC_CLK_TCK")


def own_seconds() -> float:
    """Of this process and of its children that have ended."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system
