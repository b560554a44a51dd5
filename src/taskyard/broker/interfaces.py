"""The interfaces to the outside: time, the event loop, a client's transport.

is_fatal says after which errors the server must exit.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final, Protocol

from mypy_extensions import i64, mypyc_attr

from taskyard.engine.model.events import TaskyardError

# Time and the event loop


@mypyc_attr(allow_interpreted_subclasses=True)
class Clock:
    """Not a protocol: it is read for each command, and a compiled class costs half."""

    def now(self) -> i64:
        """Microseconds since the Unix epoch; never less than it said before."""
        raise NotImplementedError


class AnchoredClock(Clock):
    """Wall time that never goes backwards: read once, and continued by the monotonic clock.

    It resumes at or after the last record's time, so that records are in order of time whatever
    happens to the machine's clock in between.
    """

    def __init__(
        self,
        not_before: int = 0,
        wall: Callable[[], int] = time.time_ns,
        monotonic: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        """The two clocks of the machine give nanoseconds."""
        self._monotonic = monotonic
        self._wall_start_us: i64 = max(wall() // 1000, not_before)
        self._monotonic_start_ns: i64 = monotonic()

    def now(self) -> i64:
        elapsed: i64 = self._monotonic()
        return self._wall_start_us + (elapsed - self._monotonic_start_ns) // 1000


class Cancellable(Protocol):
    def cancel(self) -> None: ...


class Scheduler(Protocol):
    """What the broker needs of an event loop."""

    def call_soon(self, call: Callable[[], None]) -> None:
        """Call after what has arrived so far has been handled."""
        ...

    def call_at(self, when: int, call: Callable[[], None]) -> Cancellable:
        """Call at a time of the clock."""
        ...

    def call_after_us(self, delay: int, call: Callable[[], None]) -> Cancellable:
        """Call after this many microseconds, without the milliseconds by which `call_at` may be
        late. Only one call can be pending; a new one replaces it.
        """
        ...

    def run_blocking(
        self, work: Callable[[], None], done: Callable[[BaseException | None], None]
    ) -> None:
        """Run `work` off the loop, then `done` on it."""
        ...

    def flush_file(self, file: int, done: Callable[[int, int], None]) -> bool:
        """Flush a file in a thread that does not block the loop, then call `done` with the errno or
        0, and the duration in microseconds. False if there is no such thread. One at a time.
        """
        ...


# Clients


class ReplySender(Protocol):
    """Collects replies until the end of a round of the loop."""

    def mark_priority(self) -> None:
        """Mark replies from here on as possibly urgent."""
        ...

    def send_priority_now(self) -> None:
        """Send the marked replies now: long commands come next."""
        ...


class Transport(Protocol):
    """A client's connection, as the broker sees it."""

    def certificate_name(self) -> str:
        """Return the name in the client's certificate; "": it has shown none."""
        ...

    def write(self, data: bytes) -> None: ...

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...

    def close(self) -> None:
        """Send what was written, then close."""
        ...

    def close_after_draining(self) -> None:
        """Close while the client still sends: read and drop its input for a moment. Else the close
        would be a reset, which may overtake the last reply.
        """
        ...

    def abort(self) -> None:
        """Close at once, unanswered."""
        ...


# Fatal errors

# Where a change is made. The broker calls protocols as well, so it counts where nothing else does.
_CHANGING_MODULES: Final = ("taskyard.engine.", "taskyard.journal.")
_CALLING_MODULE: Final = "taskyard.broker."


def is_fatal(error: BaseException) -> bool:
    """Whether the error was raised where a change may be half made: then the state in memory cannot
    be trusted, and the server must exit and start again. Refusals are raised before any change.

    A change has steps: a record is encoded, appended to the journal, and applied. A change that
    breaks off in between, for lack of memory or by a mistake in the code, leaves half of it. It
    must never be written, and nothing may be decided by it. Every change that was confirmed is on
    disk, so the next start has all of them.
    """
    if isinstance(error, MemoryError):
        return True
    if isinstance(error, TaskyardError):
        return False
    trace = error.__traceback__
    module = ""
    while trace is not None:
        module = str(trace.tb_frame.f_globals.get("__name__"))
        if module.startswith(_CHANGING_MODULES):
            return True
        trace = trace.tb_next
    return module.startswith(_CALLING_MODULE)
