"""What the server measures of itself while it runs: counters, slow commands, and its form.

Counters are plain numbers that are added to in place. What the engine and the journal count
themselves (jobs, records, bytes) is not counted again here.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

from mypy_extensions import i64

from taskyard.broker.interfaces import Cancellable, Clock, Scheduler
from taskyard.engine.model.job import FOREVER
from taskyard.engine.structures.statistics import Histogram

if TYPE_CHECKING:
    from taskyard.broker.turns import ClientConnection


SECOND_US: Final = 1_000_000
# A loop counts whole milliseconds: a timer may always fire so much later.
_TIMER_SLACK_US: Final = 1_500
# From 16 microseconds in steps of two to some 17 seconds.
_FIRST_EXPONENT: Final = 4
_BOUND_COUNT: Final = 21


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


# Slow commands

MAX_KEPT: Final = 128


class SlowCommandLog:
    """Keeps the most recent slow commands and their number, and calls listeners for each.

    It uses times that are read anyway: at the start of a turn, before a write and after its sync.
    So a fast command costs one comparison for all that were answered with it. What is slow is a
    group: the first command that waited, and how many were answered together with it.
    """

    def __init__(self) -> None:
        self.threshold_us: i64 = FOREVER  # microseconds from which on a command is slow
        self.count: i64 = 0  # all there were
        self.count_by_protocol: dict[str, int] = {}  # the same by protocol
        self._recent: deque[SlowCommand] = deque()
        self._listeners: list[Callable[[SlowCommand], None]] = []

    def is_enabled(self) -> bool:
        return self.threshold_us < FOREVER

    def on_slow(self, call: Callable[[SlowCommand], None]) -> None:
        self._listeners.append(call)

    def newest_first(self) -> list[SlowCommand]:
        """Those that are kept, the newest first."""
        return list(reversed(self._recent))

    def kept_count(self) -> i64:
        return len(self._recent)

    def clear(self) -> None:
        self._recent.clear()

    def record(
        self,
        connection: ClientConnection,
        command: CommandStats,
        number: i64,
        count: i64,
        since: i64,
        queued_us: i64,
        disk_us: i64,
        now: i64,
    ) -> None:
        """Record commands that were answered `now`: how long they waited for their turn, and how
        long for the disk.
        """
        slow = SlowCommand(self.count, now, connection, command, number)
        slow.command_count = count
        slow.duration_us = now - since
        slow.queued_us = queued_us
        slow.disk_us = disk_us
        slow.processing_us = max(i64(0), slow.duration_us - queued_us - disk_us)
        self.count += 1
        self.count_by_protocol[slow.protocol_name] = (
            self.count_by_protocol.get(slow.protocol_name, 0) + 1
        )
        if len(self._recent) >= MAX_KEPT:
            self._recent.popleft()
        self._recent.append(slow)
        for call in self._listeners:
            call(slow)


class SlowCommand:
    """Durations are in microseconds, as is the time at which it was answered."""

    def __init__(
        self, id: i64, time: i64, connection: ClientConnection, command: CommandStats, number: i64
    ) -> None:
        self.id = id
        self.time = time
        self.protocol_name = connection.protocol_name
        self.connection_number = connection.connection_number
        self.peer = connection.address()
        self.command, self.queue = connection.describe_command(command)
        self.request_id = connection.request_id(number)
        # commands that were answered together, this one the first of them
        self.command_count: i64 = 1
        self.duration_us: i64 = 0
        self.queued_us: i64 = 0  # of that, until it was its turn
        self.processing_us: i64 = 0  # in the engine, and whatever else kept the event loop
        self.disk_us: i64 = 0  # until what was written had been synced


# Form of the hot modules: compiled by mypyc, or interpreted

Form = Literal["compiled", "interpreted"]

_REASON_FILE: Final = "not_compiled.txt"
"""Written by setup.py into a package that could not be compiled, with the reason."""


def describe_form() -> str:
    """The form in words, with the reason where there is one."""
    why = not_compiled_reason()
    return f"interpreted: {why}" if why and form() == "interpreted" else form()


def form() -> Form:
    """The form of the engine, found by what its job module was loaded from."""
    from taskyard.engine.model import job

    return "interpreted" if job.__file__.endswith(".py") else "compiled"


def not_compiled_reason() -> str:
    """What kept this installation from being compiled; empty if nothing did."""
    try:
        return (Path(__file__).parent.parent / _REASON_FILE).read_text(encoding="utf-8").strip()
    except OSError:
        return ""
