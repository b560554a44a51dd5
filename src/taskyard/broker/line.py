"""The queue of connections that have more commands than fit into one turn.

A connection executes a few commands, then the next one has its turn. After some time the loop polls
its sockets, whoever is still queued. So neither a client that sends a thousand commands at once,
nor a thousand clients that send one each, delay all others. Connections with short commands
overtake those with many.
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64

from taskyard.broker.receiver import ClientConnection
from taskyard.broker.seams import Clock, ReplySender, Scheduler
from taskyard.broker.slow import SlowCommandLog
from taskyard.engine.structures.fifo import Fifo

COMMANDS_PER_TURN: Final = 16  # commands of one connection
_ROUND_US: Final = 2_500  # microseconds
_SHORT_COMMAND_BYTES: Final = 1024  # bytes of commands that are done before what takes many turns


class TurnQueue:
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
