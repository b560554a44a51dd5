"""A timer that fires within some tens of microseconds: the loop counts milliseconds.

It is one of the kernel's (timerfd), which Python itself offers from 3.13 on. Where there is none,
the loop's own timer is used. One call at a time.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
from collections.abc import Callable
from typing import Final

_CLOCK_MONOTONIC: Final = 1
_SECOND_US: Final = 1_000_000
_ROUNDING_SECONDS: Final = 0.0015  # seconds by which a timer of the loop may be early: see loop.py


class _TimerSpec(ctypes.Structure):
    """`struct itimerspec`: an interval, which is not used, and the time until it fires."""

    _fields_ = (
        ("interval_seconds", ctypes.c_long),
        ("interval_nanoseconds", ctypes.c_long),
        ("seconds", ctypes.c_long),
        ("nanoseconds", ctypes.c_long),
    )


class TimerfdTimer:
    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._call: Callable[[], None] | None = None
        self._loop_timer: asyncio.TimerHandle | None = None
        self._descriptor = -1
        self._library: ctypes.CDLL | None = None
        with contextlib.suppress(OSError, AttributeError):
            library = ctypes.CDLL(None)
            self._descriptor = library.timerfd_create(
                _CLOCK_MONOTONIC, os.O_NONBLOCK | os.O_CLOEXEC
            )
            self._library = library
        if self._descriptor >= 0:
            loop.add_reader(self._descriptor, self._on_expiry)

    def set(self, microseconds: int, call: Callable[[], None]) -> None:
        """Instead of what was set before."""
        self._call = call
        if self._descriptor >= 0:
            self._arm(max(1, microseconds))
        else:
            self._stop_loop_timer()
            self._loop_timer = self._loop.call_later(
                microseconds / _SECOND_US + _ROUNDING_SECONDS, self._on_expiry
            )

    def cancel(self) -> None:
        self._call = None
        if self._descriptor >= 0:
            self._arm(0)
        else:
            self._stop_loop_timer()

    def close(self) -> None:
        self.cancel()
        if self._descriptor >= 0:
            self._loop.remove_reader(self._descriptor)
            os.close(self._descriptor)
            self._descriptor = -1

    def _arm(self, microseconds: int) -> None:
        assert self._library is not None
        seconds, rest = divmod(microseconds, _SECOND_US)
        times = _TimerSpec(0, 0, seconds, rest * 1000)
        self._library.timerfd_settime(self._descriptor, 0, ctypes.byref(times), None)

    def _stop_loop_timer(self) -> None:
        if self._loop_timer is not None:
            self._loop_timer.cancel()
            self._loop_timer = None

    def _on_expiry(self) -> None:
        if self._descriptor >= 0:
            try:
                os.read(self._descriptor, 8)
            except BlockingIOError:  # set anew, or cancelled, in the round in which it has rung
                return
        call = self._call
        self._call = None
        if call is not None:
            call()
