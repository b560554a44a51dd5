"""Waiting for a condition, and for nothing else."""

import time
from collections.abc import Callable

from support.sockets import HANG_GUARD, POLL_INTERVAL


def wait_for(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + HANG_GUARD
    while not condition():
        assert time.monotonic() < deadline, "in vain"
        time.sleep(POLL_INTERVAL)
