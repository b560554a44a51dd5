"""Waiting for a condition, and for nothing else."""

import time
from collections.abc import Callable

from support.sockets import HANG_GUARD, POLL_INTERVAL

SPARK_GUARD = 240.0  # seconds; a JVM takes its time on a machine that does much else


def wait_for(
    condition: Callable[[], object], guard: float = HANG_GUARD, pause: float = POLL_INTERVAL
) -> None:
    deadline = time.monotonic() + guard
    while not condition():
        assert time.monotonic() < deadline, "in vain"
        time.sleep(pause)
