"""The connections of clients, and when each of them may execute commands.

ClientConnection is what the protocols extend, TurnQueue decides which connection has the next turn,
and RateLimiter resumes connections that have used up their commands of a second.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from mypy_extensions import i64

from taskyard.broker.interfaces import Clock, ReplySender, Scheduler
from taskyard.broker.metrics import CommandStats, SlowCommandLog
from taskyard.engine.model.events import JobEvent, LifecycleNotice, Waiter
from taskyard.engine.model.job import Job
from taskyard.engine.structures.ordered import Fifo

# Client connections

NO_COMMAND: Final = CommandStats("unknown")

# What `login_state` returns for a client, where clients have to log in.
AUTHENTICATED: Final = 0  # it has, or need not
UNAUTHENTICATED: Final = 1  # it has not
AUTHENTICATING: Final = 2  # it is about to, or its input is not processed yet

log = logging.getLogger("taskyard")


class ClientConnection:
    """Base of every protocol's connection: one object that is notified of what happens. `owner` is
    its number as a holder of leases.
    """

    def __init__(self, owner: i64, protocol_name: str = "") -> None:
        self.owner = owner
        self.protocol_name = protocol_name
        # its number in the log; not the owner, which may be a secret
        self.connection_number: i64 = 0
        self.current_command = NO_COMMAND  # the command that is to be answered
        # when a command began that takes several turns; 0: there is none
        self.command_started_at: i64 = 0
        self.queued_at: i64 = 0  # when it was queued
        self.output_blocked = False  # the client does not read: no further command until `resume`
        self.queued_for_turn = False  # has commands that wait for its turn
        self.rate_limited = False  # has used up its share of commands: see RateLimiter
        self.command_count: i64 = 0  # executed commands, the current one included
        self.on_login_lost: Callable[[], None] | None = None  # called when its login is revoked

    def feed(self, data: bytes) -> None:
        """Bytes have arrived."""
        raise NotImplementedError

    def take_turn(self) -> None:
        """Execute some of the commands that have arrived."""
        raise NotImplementedError

    def resume(self) -> None:
        """Continue with commands that had to wait until replies could be sent."""
        raise NotImplementedError

    def buffered_bytes(self) -> i64:
        """Bytes of input that are kept."""
        return 0

    def needs_more_input(self) -> bool:
        """Whether the input that is kept can be used only when more has arrived."""
        return self.has_partial_command()

    def has_partial_command(self) -> bool:
        """Whether part of a command has arrived, and its remainder is all that is waited for."""
        return False

    def on_read_timeout(self) -> None:
        """The remainder of a command did not arrive in time: send an error, and close."""
        raise NotImplementedError

    def login_state(self) -> i64:
        """Return AUTHENTICATED, UNAUTHENTICATED or AUTHENTICATING."""
        return AUTHENTICATED

    def close_unauthenticated(self, reason: str) -> None:
        """Send the reason to a client that has not authenticated, and close."""
        raise NotImplementedError

    def on_eof(self) -> None:
        """The client sends nothing more: answer what has arrived, and close."""
        raise NotImplementedError

    def on_disconnect(self) -> None:
        """The connection is closed."""
        raise NotImplementedError

    def shut_down(self) -> None:
        """The server stops: answer what has arrived, accept nothing new."""
        raise NotImplementedError

    def on_permissions_changed(self) -> None:
        """The users were reloaded: commands that wait may no longer be permitted."""

    def on_job_assigned(self, waiter: Waiter, job: Job) -> None:
        """A blocked fetch has a job."""
        raise NotImplementedError

    def on_payload_unreadable(self, waiter: Waiter) -> None:
        """A blocked fetch has ended, since the payload of its job cannot be read; the job stays."""
        raise NotImplementedError

    def on_wait_timeout(self, waiter: Waiter) -> None:
        """A blocked fetch has timed out."""
        raise NotImplementedError

    def on_job_event(self, event: JobEvent) -> None:
        """Something happened to a job that this connection watches."""
        raise NotImplementedError

    def on_notice(self, notice: LifecycleNotice) -> None:
        """A lifecycle notice for this connection's session."""
        raise NotImplementedError

    # For the log

    def address(self) -> str:
        """Where the client is."""
        return ""

    def describe_command(self, command: CommandStats) -> tuple[str, str]:
        """Return a command's name, and its queue if that is known."""
        return command.name, ""

    def request_id(self, number: i64) -> str:
        """What the log calls a command of this connection."""
        return f"{self.connection_number}-{number}"

    def has_pending_replies(self) -> bool:
        """Whether replies wait for a commit."""
        return False

    def log_fields(self) -> dict[str, object]:
        """Return the fields that identify this connection in the log."""
        return {
            "connection": int(self.connection_number),
            "dialect": self.protocol_name,
            "peer": self.address(),
        }

    def log_protocol_error(self, reason: str) -> None:
        """Log that the client violates the protocol. `reason` must not contain anything that the
        client has sent.
        """
        told = self.log_fields()
        told["request"] = self.request_id(self.command_count)
        told["reason"] = reason
        log.info("protocol error", extra={"fields": told})


# Turns

COMMANDS_PER_TURN: Final = 16  # commands of one connection
_ROUND_US: Final = 2_500  # microseconds
_SHORT_COMMAND_BYTES: Final = 1024  # bytes of commands that are done before what takes many turns


class TurnQueue:
    """The queue of connections that have more commands than fit into one turn.

    A connection executes a few commands, then the next one has its turn. After some time the loop
    polls its sockets, whoever is still queued. So neither a client that sends a thousand commands
    at once, nor a thousand clients that send one each, delay all others. Connections with short
    commands overtake those with many.
    """

    def __init__(self, clock: Clock, scheduler: Scheduler, slow_commands: SlowCommandLog) -> None:
        self._clock = clock
        self._scheduler = scheduler
        self._slow_commands = slow_commands
        self.now: i64 = 0  # when the current turn began
        self.clock_is_current = False  # it begins now: nothing was done since the clock was read
        self._arrival_time: i64 = 0  # about when the next commands arrived
        # connection whose turn is running, if it was queued
        self.current: ClientConnection | None = None
        self.current_queued_us: i64 = 0  # and how long it was queued
        self.commit_scheduled = False  # which will read the clock before long
        # The turn of which it is not known yet how long it took.
        self._timed: ClientConnection | None = None
        self._timed_since: i64 = 0
        self._timed_queued_us: i64 = 0
        self._timed_commands_before: i64 = 0  # executed before it
        self._timed_continues = False  # with a command of an earlier turn
        self._queued_count: i64 = 0  # of queued connections
        self._long: Fifo[ClientConnection] = Fifo()
        self._short: Fifo[ClientConnection] = Fifo()  # those with short commands
        self._short_credit: i64 = 1  # how many of these run before the next of the others
        self.reply_sender: ReplySender | None = None
        # priority replies of this round are still to be sent
        self._priority_pending = False
        self._round_started_at: i64 = 0  # when this round began
        self._round_open = False  # the round has not ended yet
        self._round_scheduled = False  # the next one, for queued connections

    def must_queue(self, now: i64, connection: ClientConnection) -> bool:
        """Whether this connection has to be queued; if not, its turn starts."""
        if self._timed is not None:
            self.finish_timing(now)
        self.now = now
        if self.has_waiting():
            return True
        if not self._round_open:
            self._open_round(now)
        elif now - self._round_started_at > _ROUND_US:
            return True
        self._start_timing(connection, now, 0)
        return False

    def has_waiting(self) -> bool:
        """Whether commands wait for their turn."""
        return self._queued_count > 0

    def enqueue(self, connection: ClientConnection, size: i64) -> None:
        """Queue a connection that has received `size` bytes of commands."""
        if size <= _SHORT_COMMAND_BYTES:
            self._append(connection, self._short)
        else:
            self._append(connection, self._long)

    def requeue(self, connection: ClientConnection) -> None:
        """Queue a connection again, behind all others, for another turn."""
        self._append(connection, self._long)

    def _append(self, connection: ClientConnection, queue: Fifo[ClientConnection]) -> None:
        connection.queued_for_turn = True
        if not self._round_scheduled:
            self._round_scheduled = True
            self._arrival_time = self._clock.now()
            self._scheduler.call_soon(self._run_round)
        connection.queued_at = self._arrival_time
        self._queued_count += 1
        queue.add(connection)

    # How long turns take: known at the next time at which the clock is read, and no sooner

    def _start_timing(self, connection: ClientConnection, now: i64, queued_us: i64) -> None:
        since = connection.command_started_at
        self._timed = connection
        self._timed_continues = since != 0
        if not since:
            since = now - queued_us
        self._timed_since = since
        self._timed_queued_us = queued_us
        self._timed_commands_before = connection.command_count

    def finish_timing_if_idle(self) -> None:
        """End the timing of the last turn: the loop may be idle from now on."""
        if self._timed is not None and self._slow_commands.is_enabled():
            self.finish_timing(self._clock.now())

    def finish_timing(self, now: i64) -> None:
        """End the timing of the last turn, if there was one."""
        last = self._timed
        if last is not None:
            self._timed = None
            if now - self._timed_since > self._slow_commands.threshold_us:
                self._report_slow(last, now)

    def _report_slow(self, connection: ClientConnection, now: i64) -> None:
        count = connection.command_count - self._timed_commands_before
        if (
            connection.command_started_at
            or connection.has_pending_replies()
            or (not count and not self._timed_continues)
        ):
            return  # it is not answered yet, or there was no command
        number = self._timed_commands_before + 1 if count else connection.command_count
        waited = self._timed_queued_us
        self._slow_commands.record(
            connection,
            connection.current_command,
            number,
            max(count, 1),
            self._timed_since,
            waited,
            0,
            now,
        )

    def _open_round(self, now: i64) -> None:
        self._round_started_at = now
        self._round_open = True
        self._scheduler.call_soon(self._close_round)

    def _close_round(self) -> None:
        """The loop has polled its sockets."""
        self._round_open = False
        if not self.commit_scheduled:
            self.finish_timing_if_idle()

    def _run_round(self) -> None:
        now: i64 = self._clock.now()
        self.finish_timing(now)
        self._open_round(now)
        end = now + _ROUND_US
        self._mark_priority()
        try:
            while self.has_waiting() and now <= end:
                if self._send_priority_replies():
                    now = self._clock.now()
                receiver = self._pop_next()
                receiver.queued_for_turn = False
                self.current = receiver
                self.current_queued_us = now - receiver.queued_at
                self._start_timing(receiver, now, self.current_queued_us)
                self.now = now
                self._arrival_time = now
                self.clock_is_current = True
                receiver.take_turn()
                now = self._clock.now()
                self.finish_timing(now)
        finally:
            self.current = None
            self.clock_is_current = False
            self._arrival_time = now
            if self.has_waiting():
                self._scheduler.call_soon(self._run_round)
            else:
                self._round_scheduled = False

    def _pop_next(self) -> ClientConnection:
        """Take the next connection. Those with short commands overtake the others, which still get
        as many turns as in a single queue.
        """
        self._queued_count -= 1
        if self._is_short_next():
            self._short_credit -= 1
            return self._short.pop_oldest()
        self._short_credit = max(i64(1), len(self._short) // len(self._long))
        return self._long.pop_oldest()

    def _is_short_next(self) -> bool:
        return not self._short.is_empty() and (self._short_credit > 0 or self._long.is_empty())

    def _send_priority_replies(self) -> bool:
        """Send the replies of short commands before the first long turn; return whether any were
        sent, since that takes time.
        """
        if not self._priority_pending or self.reply_sender is None or self._is_short_next():
            return False
        self._priority_pending = False
        self.reply_sender.send_priority_now()
        return True

    def _mark_priority(self) -> None:
        self._priority_pending = False
        if self.reply_sender is not None and not (self._short.is_empty() or self._long.is_empty()):
            self._priority_pending = True
            self.reply_sender.mark_priority()


# Rate limits

_RETRY_US: Final = 10_000  # microseconds between two checks of those that wait
_SECOND_US: Final = 1_000_000


class RateLimiter:
    """Limits how many commands a second a connection may execute.

    A connection that has used up its tokens waits for new ones: nothing is refused, and what it
    sends meanwhile stays in its socket. One timer serves all connections that wait.
    """

    def __init__(self, clock: Clock, scheduler: Scheduler) -> None:
        self.commands_per_second: i64 = 0  # commands a second; 0: no limit
        self.delay_count: i64 = 0  # how often a connection had to wait
        self._clock = clock
        self._scheduler = scheduler
        self._waiting: list[ClientConnection] = []

    def resume_later(self, connection: ClientConnection) -> None:
        """Resume this connection when it may have new tokens."""
        if connection.rate_limited:
            return
        connection.rate_limited = True
        self.delay_count += 1
        if not self._waiting:
            self._scheduler.call_at(self._clock.now() + _RETRY_US, self._resume_waiting)
        self._waiting.append(connection)

    def _resume_waiting(self) -> None:
        waiting = self._waiting
        self._waiting = []
        for receiver in waiting:
            receiver.rate_limited = False
            receiver.resume()


class TokenBucket:
    """The commands that one connection may still execute: at most those of one second."""

    def __init__(self) -> None:
        self._micro_tokens: i64 = 0  # millionths of a command
        self._refilled_at: i64 = 0

    def available(self, rate: i64, now: i64) -> i64:
        """Add the tokens of the time since the last call; return how many commands may run now."""
        passed = now - self._refilled_at
        self._refilled_at = now
        if passed >= _SECOND_US:
            self._micro_tokens = rate * _SECOND_US
        elif passed > 0:
            self._micro_tokens = min(self._micro_tokens + passed * rate, rate * _SECOND_US)
        return self._micro_tokens // _SECOND_US

    def consume(self, commands: i64) -> None:
        self._micro_tokens -= commands * _SECOND_US
