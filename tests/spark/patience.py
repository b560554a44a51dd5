"""Waiting for what Spark does, which may take its time on a busy machine."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

from support.sockets import POLL_INTERVAL

PATIENCE: Final = 240.0  # seconds; a guard against a hang, never an assertion about speed


def wait_patiently(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, "in vain"
        time.sleep(POLL_INTERVAL)
