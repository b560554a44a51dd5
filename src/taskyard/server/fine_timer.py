"""One alarm at a time that rings within some tens of microseconds: the loop counts milliseconds.

It is one of the kernel's (timerfd), which Python itself offers from 3.13 on. Where there is none,
the loop's own has to do.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
from collections.abc import Callable
from typing import Final

_CLOCK_MONOTONIC: Final = 1
_SECOND: Final = 1_000_000
_ROUNDING: Final = 0.0015  # seconds by which an alarm of the loop may be early: see loop.py


class _Times(ctypes.Structure):
    """`struct itimerspec`: an interval, which is not used, and the time until it rings."""

    _fields_ = (
        ("interval_seconds", ctypes.c_long),
        ("interval_nanoseconds", ctypes.c_long),
        ("seconds", ctypes.c_long),
        ("nanoseconds", ctypes.c_long),
    )


class FineTimer:
    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._call: Callable[[], None] | None = None
        self._coarse: asyncio.TimerHandle | None = None
        self._file = -1
        self._library: ctypes.CDLL | None = None
        with contextlib.suppress(OSError, AttributeError):
            library = ctypes.CDLL(None)
            self._file = library.timerfd_create(_CLOCK_MONOTONIC, os.O_NONBLOCK | os.O_CLOEXEC)
            self._library = library
        if self._file >= 0:
            loop.add_reader(self._file, self._ring)

    def set(self, microseconds: int, call: Callable[[], None]) -> None:
        """Instead of what was set before."""
        self._call = call
        if self._file >= 0:
            self._arm(max(1, microseconds))
        else:
            self._stop_coarse()
            self._coarse = self._loop.call_later(microseconds / _SECOND + _ROUNDING, self._ring)

    def cancel(self) -> None:
        self._call = None
        if self._file >= 0:
            self._arm(0)
        else:
            self._stop_coarse()

    def close(self) -> None:
        self.cancel()
        if self._file >= 0:
            self._loop.remove_reader(self._file)
            os.close(self._file)
            self._file = -1

    def _arm(self, microseconds: int) -> None:
        assert self._library is not None
        seconds, rest = divmod(microseconds, _SECOND)
        times = _Times(0, 0, seconds, rest * 1000)
        self._library.timerfd_settime(self._file, 0, ctypes.byref(times), None)

    def _stop_coarse(self) -> None:
        if self._coarse is not None:
            self._coarse.cancel()
            self._coarse = None

    def _ring(self) -> None:
        if self._file >= 0:
            try:
                os.read(self._file, 8)
            except BlockingIOError:  # set anew, or cancelled, in the round in which it has rung
                return
        call = self._call
        self._call = None
        if call is not None:
            call()
