"""What the server counts while it runs: plain numbers, added to in place, shown when asked for.

What the engine and the journal know anyway (jobs, records, bytes) is not counted again here.
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64

from taskyard.broker.seams import Cancellable, Clock, Scheduler
from taskyard.engine.structures.measures import Histogram

SECOND: Final = 1_000_000
# A loop counts whole milliseconds: a timer may ring so much later without anybody's fault.
_SLACK: Final = 1_500
# From 16 microseconds in steps of two to some 17 seconds.
_FIRST: Final = 4
_BOUNDS: Final = 21


class Verb:
    """One command of a protocol: how often it was asked for, and how it was answered."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.count: i64 = 0
        self.replies: i64 = 0
        self.errors: i64 = 0  # of the replies
        self.empty: i64 = 0  # of the replies: there was no job, or no result, in time

    def succeeded(self) -> i64:
        return self.replies - self.errors - self.empty


class Traffic:
    """The connections of a dialect, and what they ask for."""

    def __init__(self, dialect: str) -> None:
        self.dialect = dialect
        self.clients: i64 = 0  # connections that are open
        self.connections: i64 = 0  # all there were
        self.verbs: list[Verb] = []
        self.unknown = self.verb("unknown")  # what is no command of the protocol

    def verb(self, name: str) -> Verb:
        """Count another command."""
        verb = Verb(name)
        self.verbs.append(verb)
        return verb


class Strain:
    """What the limits of the server have kept from happening."""

    def __init__(self) -> None:
        self.refused_total: i64 = 0  # connections, since there were as many as may be
        self.refused_address: i64 = 0  # since their address had as many as it may have
        self.not_accepted: i64 = 0  # times that the system had no descriptor for one
        self.stalled_input: i64 = 0  # clients let go in the middle of a command
        self.stalled_output: i64 = 0  # and without having taken their replies
        self.stalled_login: i64 = 0  # clients that did not log in in time
        self.made_room: i64 = 0  # and that had not, when a full server had another one come
        self.held_back: i64 = 0  # clients that wait for memory now
        self.in_flight: i64 = 0  # bytes of commands and replies, as last measured


class Metrics:
    def __init__(self) -> None:
        self.strain = Strain()
        self.dialects: list[Traffic] = []
        self.flushes = Histogram(_FIRST, 1, _BOUNDS)  # a write and the sync that follows it
        self.loop_lag = Histogram(_FIRST, 1, _BOUNDS)

    def add_dialect(self, traffic: Traffic) -> None:
        self.dialects.append(traffic)


class LagProbe:
    """Sees once a second how late the event loop is."""

    def __init__(self, metrics: Metrics, clock: Clock, scheduler: Scheduler) -> None:
        self._lag = metrics.loop_lag
        self._clock = clock
        self._scheduler = scheduler
        self._due: i64 = 0
        self._alarm: Cancellable | None = None

    def start(self) -> None:
        self._due = self._clock.now() + SECOND
        self._alarm = self._scheduler.call_at(self._due, self._ring)

    def stop(self) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None

    def _ring(self) -> None:
        self._lag.add(self._clock.now() - self._due - _SLACK)
        self.start()
