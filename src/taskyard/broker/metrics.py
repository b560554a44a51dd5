"""What the server counts while it runs: plain numbers that are added to in place.

What the engine and the journal count themselves (jobs, records, bytes) is not counted again here.
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64

from taskyard.broker.seams import Cancellable, Clock, Scheduler
from taskyard.engine.structures.measures import Histogram

SECOND_US: Final = 1_000_000
# A loop counts whole milliseconds: a timer may always fire so much later.
_TIMER_SLACK_US: Final = 1_500
# From 16 microseconds in steps of two to some 17 seconds.
_FIRST_EXPONENT: Final = 4
_BOUND_COUNT: Final = 21


class CommandStats:
    """One command of a protocol: how often it was requested, and how it was answered."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.count: i64 = 0
        self.replies: i64 = 0
        self.errors: i64 = 0  # of the replies
        self.no_result: i64 = 0  # of the replies: there was no job, or no result, in time

    def success_count(self) -> i64:
        return self.replies - self.errors - self.no_result


class ProtocolStats:
    """The connections and commands of one protocol."""

    def __init__(self, protocol_name: str) -> None:
        self.protocol_name = protocol_name
        self.open_connections: i64 = 0  # connections that are open
        self.total_connections: i64 = 0  # all there were
        self.commands: list[CommandStats] = []
        self.unknown_command = self.add_command("unknown")  # what is no command of the protocol

    def add_command(self, name: str) -> CommandStats:
        """Count another command."""
        verb = CommandStats(name)
        self.commands.append(verb)
        return verb


class LimitCounters:
    """What the limits of the server have refused, closed or paused."""

    def __init__(self) -> None:
        self.refused_total: i64 = 0  # connections, since there were as many as may be
        self.refused_address: i64 = 0  # since their address had as many as it may have
        self.failed_accepts: i64 = 0  # times that the system had no descriptor for one
        self.input_timeouts: i64 = 0  # clients disconnected in the middle of a command
        self.output_timeouts: i64 = 0  # and without having taken their replies
        self.login_timeouts: i64 = 0  # clients that did not log in in time
        self.evicted_logins: i64 = 0  # and that had not, when a full server got another connection
        self.paused_connections: i64 = 0  # clients that wait for memory now
        self.in_flight_bytes: i64 = 0  # bytes of commands and replies, as last measured


class Metrics:
    def __init__(self) -> None:
        self.limit_counters = LimitCounters()
        self.protocols: list[ProtocolStats] = []
        self.flush_durations = Histogram(
            _FIRST_EXPONENT, 1, _BOUND_COUNT
        )  # a write and the sync that follows it
        self.loop_lag = Histogram(_FIRST_EXPONENT, 1, _BOUND_COUNT)

    def add_protocol(self, stats: ProtocolStats) -> None:
        self.protocols.append(stats)


class EventLoopLagProbe:
    """Measures once a second how late the event loop is."""

    def __init__(self, metrics: Metrics, clock: Clock, scheduler: Scheduler) -> None:
        self._lag = metrics.loop_lag
        self._clock = clock
        self._scheduler = scheduler
        self._due_at: i64 = 0
        self._timer_handle: Cancellable | None = None

    def start(self) -> None:
        self._due_at = self._clock.now() + SECOND_US
        self._timer_handle = self._scheduler.call_at(self._due_at, self._measure)

    def stop(self) -> None:
        if self._timer_handle is not None:
            self._timer_handle.cancel()
            self._timer_handle = None

    def _measure(self) -> None:
        self._lag.add(self._clock.now() - self._due_at - _TIMER_SLACK_US)
        self.start()
