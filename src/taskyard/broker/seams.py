"""The narrow places where the outside comes in: time, the event loop, a client's transport."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from mypy_extensions import i64, mypyc_attr


@mypyc_attr(allow_interpreted_subclasses=True)
class Clock:
    """Not a protocol: it is asked for each command, and a class that is compiled costs half."""

    def now(self) -> i64:
        """Microseconds since the Unix epoch; never less than it said before."""
        raise NotImplementedError


class Cancellable(Protocol):
    def cancel(self) -> None: ...


class Scheduler(Protocol):
    """What the broker wants of an event loop."""

    def call_soon(self, call: Callable[[], None]) -> None:
        """Once what has arrived so far has been handled."""
        ...

    def call_at(self, when: int, call: Callable[[], None]) -> Cancellable:
        """At a time of the clock."""
        ...

    def call_after_us(self, delay: int, call: Callable[[], None]) -> Cancellable:
        """In so many microseconds, without the milliseconds by which `call_at` may be late. One at
        a time: it takes the place of the one before."""
        ...

    def run_blocking(
        self, work: Callable[[], None], done: Callable[[BaseException | None], None]
    ) -> None:
        """Run `work` off the loop, then `done` on it."""
        ...

    def flush_file(self, file: int, done: Callable[[int, int], None]) -> bool:
        """Flush a file in a thread that does not hold up the loop, then tell `done` the errno or 0,
        and how many microseconds it took; False if there is no such thread. One at a time."""
        ...


class ReplySender(Protocol):
    """Where replies wait until the loop has gone round."""

    def mark_priority(self) -> None:
        """What comes from now on may be wanted at once."""
        ...

    def send_priority_now(self) -> None:
        """And is: the loop will be busy with others for a while."""
        ...


class Transport(Protocol):
    """A client's connection, as seen from inside."""

    def certificate_name(self) -> str:
        """Whose certificate the client has shown; "": it has shown none."""
        ...

    def write(self, data: bytes) -> None: ...

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...

    def close(self) -> None:
        """Send what was written, then close."""
        ...

    def close_after_draining(self) -> None:
        """The same for a client that is in the middle of sending: what still comes is read for a
        moment, and dropped. Else the close would be a reset, which may overtake the last reply."""
        ...

    def abort(self) -> None:
        """Close at once, unanswered."""
        ...
