"""Replies of one connection, in order, each held until what it promises is on disk.

ReplyQueue holds the replies that wait for what `--durability` promises, DeferredReplies those of
clients that ask for another level.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final

from mypy_extensions import i64

from taskyard.broker.interfaces import Transport
from taskyard.broker.metrics import CommandStats
from taskyard.broker.turns import NO_COMMAND, ClientConnection

if TYPE_CHECKING:
    from taskyard.broker.commit import Broker


_WRITE_BYTES: Final = 65_536  # bytes that are gathered for one write at most


class ReplyQueue:
    """The replies of one connection.

    With many connections, each is out of the processor's cache at its turn: what a single reply
    needs is kept in as few objects as possible.
    """

    def __init__(
        self, broker: Broker, transport: Transport, connection: ClientConnection, limit_bytes: i64
    ) -> None:
        self._broker = broker
        self._transport = transport
        self._write = transport.write  # bound once: it is called for every reply
        self._connection: ClientConnection | None = connection  # until the connection is closed
        self._limit_bytes = limit_bytes
        # What is released, and sent in one write at the end of the turn.
        self._ready_count: i64 = 0  # replies
        self._ready_bytes: i64 = 0
        self._ready_first = b""
        self._ready_more: list[bytes] = []
        # What has to wait: few groups, one for each commit that is running.
        self._first_group: _ReplyGroup | None = None
        # gets new replies, while its records are not written
        self._last_group: _ReplyGroup | None = None
        self._unused_group: _ReplyGroup | None = None  # one that is empty, to be used again
        self._closing = False
        self._drain_input = False
        self._overfull = False
        # replies that wait for another durability level: see DeferredReplies
        self._deferred_count: i64 = 0
        self.aborted = False  # nothing that waited may be seen any more
        self.awaits_commit = False  # among those the broker checks after a commit
        # when the last reply that waited for a slow disk was released: see CommitDelay
        self.replied_at: i64 = 0
        self.returns_quickly = False  # and whether commands arrived soon after that, the last time
        self.pending_bytes: i64 = 0  # bytes of replies that wait
        self.total_bytes: i64 = 0  # bytes of all replies so far

    def send(self, reply: bytes, position: i64) -> None:
        """Send `reply` once the journal has reached `position`, after all replies before it."""
        size: i64 = len(reply)
        broker = self._broker
        self.total_bytes += size
        last = self._last_group
        if last is None and position <= broker.reply_position:
            self.send_unordered(reply)
            return
        if last is None or last.position <= broker.journal.written:
            last = self._begin_group(last)
        last.add(reply, position)
        self.pending_bytes += size
        broker.pending_reply_bytes += size
        if not self.awaits_commit:
            self.awaits_commit = True
            broker.await_commit(self)

    def _begin_group(self, previous: _ReplyGroup | None) -> _ReplyGroup:
        batch = self._unused_group
        if batch is None:
            batch = _ReplyGroup()
        else:
            self._unused_group = None
        self._record_timing(batch)
        if previous is None:
            self._first_group = batch
        else:
            batch.position = previous.position
            previous.next_group = batch
        self._last_group = batch
        return batch

    def _record_timing(self, group: _ReplyGroup) -> None:
        line = self._broker.turn_queue
        now = line.now
        group.turn_started_at = now
        group.arrived_at = now
        receiver = self._connection
        if receiver is not None:
            if line.current is receiver:
                group.queued_us = line.current_queued_us
                group.arrived_at = now - line.current_queued_us
            if receiver.command_started_at:
                group.arrived_at = receiver.command_started_at
            group.command_number = receiver.command_count
            group.command = receiver.current_command

    def send_unordered(self, reply: bytes) -> None:
        """Send `reply` with the next write, ahead of replies that wait: it needs no commit."""
        if self._ready_count:
            self._ready_more.append(reply)
        else:
            self._ready_first = reply
        self._ready_count += 1
        self._ready_bytes += len(reply)
        if self._ready_bytes > _WRITE_BYTES:
            self.flush_output()

    def add_deferred(self, size: i64) -> None:
        """Count a reply that waits for a different durability level."""
        self._deferred_count += 1
        self.pending_bytes += size
        self._broker.pending_reply_bytes += size

    def send_deferred(self, replies: list[bytes]) -> None:
        """Send replies that have waited for a different durability level."""
        for reply in replies:
            self._deferred_count -= 1
            self.pending_bytes -= len(reply)
            self._broker.pending_reply_bytes -= len(reply)
            self.send_unordered(reply)
        self.flush_output()
        self._after_release()

    def flush_output(self) -> None:
        count = self._ready_count
        if not count:
            return
        data = self._ready_first
        if count > 1:
            more = self._ready_more
            self._ready_more = []
            data = b"".join([data, *more])
        self._ready_count = 0
        self._ready_bytes = 0
        self._ready_first = b""
        self._write(data)

    def check_capacity(self) -> bool:
        """Whether one more command may be answered; if not, the connection is resumed later."""
        self._overfull = self.pending_bytes > self._limit_bytes or (
            self._first_group is not None and self._broker.is_backlogged()
        )
        return not self._overfull

    def release_up_to(self, position: i64) -> None:
        """Release the replies that waited for `position`."""
        broker = self._broker
        # a command that arrived before that was too slow
        patience = broker.flush_ended_at - broker.slow_commands.threshold_us
        batch = self._first_group
        while batch is not None and batch.position <= position:
            if batch.arrived_at < patience:
                self._report_slow(batch)
            self.pending_bytes -= batch.size
            broker.pending_reply_bytes -= batch.size
            self._make_ready(batch)
            following = batch.next_group
            batch.clear()
            self._unused_group = batch
            batch = following
        self._first_group = batch
        if batch is None:
            self._last_group = None
        self.flush_output()
        self._after_release()

    def _make_ready(self, group: _ReplyGroup) -> None:
        if self._ready_count:
            self._ready_more.append(group.first_reply)
        else:
            self._ready_first = group.first_reply
        if group.count > 1:
            self._ready_more.extend(group.more_replies)
        self._ready_count += group.count
        self._ready_bytes += group.size

    def _report_slow(self, group: _ReplyGroup) -> None:
        receiver = self._connection
        if receiver is None:
            return
        broker = self._broker
        # Commands that arrived during a flush have waited for that one, too.
        written = (
            group.turn_started_at
            if group.turn_started_at < broker.disk_free_at
            else broker.flush_started_at
        )
        now = broker.flush_ended_at
        disk = now - max(written, group.turn_started_at)
        broker.slow_commands.record(
            receiver,
            group.command,
            group.command_number,
            group.count,
            group.arrived_at,
            group.queued_us,
            disk,
            now,
        )

    def _after_release(self) -> None:
        """Close, or resume the connection, after fewer replies are pending."""
        if self._closing:
            if self._first_group is None and not self._deferred_count:
                self._close()
        elif self._overfull and self.check_capacity() and self._connection is not None:
            self._connection.resume()

    def detach_connection(self) -> None:
        """Drop the reference to a closed connection, which refers to this object."""
        self._connection = None
        self._broker.on_client_gone(self)

    def is_detached(self) -> bool:
        return self._connection is None

    def has_waiting(self) -> bool:
        return self._first_group is not None

    def close(self, drain_input: bool = False) -> None:
        """Close the connection once all replies are out."""
        self._drain_input = drain_input
        self.flush_output()
        if self._first_group is not None or self._deferred_count:
            self._closing = True
        else:
            self._close()

    def _close(self) -> None:
        if self._drain_input:
            self._transport.close_after_draining()
        else:
            self._transport.close()

    def abort(self) -> None:
        """Drop all pending replies, which must never be seen, and abort the connection."""
        self.aborted = True
        self._first_group = None
        self._last_group = None
        self._ready_count = 0
        self._ready_bytes = 0
        self._ready_first = b""
        self._ready_more = []
        self._deferred_count = 0
        self._broker.pending_reply_bytes -= self.pending_bytes
        self.pending_bytes = 0
        self._transport.abort()


class _ReplyGroup:
    """Replies that are released together, since their records are written together."""

    __slots__ = (
        "arrived_at",
        "command",
        "command_number",
        "count",
        "first_reply",
        "more_replies",
        "next_group",
        "position",
        "queued_us",
        "size",
        "turn_started_at",
    )

    def __init__(self) -> None:
        self.position: i64 = 0
        self.count: i64 = 0
        self.first_reply = b""
        self.more_replies: list[bytes] = []  # replies after that, which most batches have none of
        self.size: i64 = 0
        self.next_group: _ReplyGroup | None = None
        # Of the command that has the first of them: see SlowCommandLog.
        self.arrived_at: i64 = 0  # when it arrived
        self.queued_us: i64 = 0  # until its turn
        self.turn_started_at: i64 = 0  # when the turn began in which it was answered
        self.command_number: i64 = 0
        self.command: CommandStats = NO_COMMAND

    def add(self, reply: bytes, position: i64) -> None:
        if position > self.position:
            self.position = position
        if self.count:
            self.more_replies.append(reply)
        else:
            self.first_reply = reply
        self.count += 1
        self.size += len(reply)

    def clear(self) -> None:
        self.position = 0
        self.first_reply = b""
        if self.count > 1:
            self.more_replies = []
        self.count = 0
        self.size = 0
        self.next_group = None
        self.queued_us = 0
        self.command_number = 0
        self.command = NO_COMMAND


# Replies that wait for another durability level


class DurabilityWaiters:
    """Replies waiting until the journal has been written (or synced) up to a position."""

    def __init__(self) -> None:
        self._waiting: list[DeferredReplies] = []

    def add(self, replies: DeferredReplies) -> None:
        replies.awaits_position = True
        self._waiting.append(replies)

    def has_waiting(self) -> bool:
        return bool(self._waiting)

    def release_up_to(self, position: i64) -> None:
        waiting = self._waiting
        if waiting:
            self._waiting = []
            for aside in waiting:
                aside.awaits_position = False
                aside.release_up_to(position)
                if (
                    aside.has_waiting() and not aside.awaits_position
                ):  # letting go may have led to more
                    self.add(aside)

    def abort(self) -> None:
        waiting = self._waiting
        self._waiting = []
        for aside in waiting:
            aside.awaits_position = False
            aside.abort()


class DeferredReplies:
    """Replies of one connection that wait for one durability level, in order.

    Most replies wait for what `--durability` promises. Some clients ask for a reply when a record
    is written although it is not synced, or when it is synced although no other reply waits for
    that.
    """

    def __init__(self, broker: Broker, reply_queue: ReplyQueue, waiters: DurabilityWaiters) -> None:
        self._broker = broker
        self._reply_queue = reply_queue
        self._waiters = waiters
        self._waiting: deque[tuple[int, bytes]] = deque()
        self.awaits_position = False  # at its milestone

    def add(self, reply: bytes, position: i64) -> None:
        if self._broker.failure:
            self._reply_queue.abort()  # that place will not be reached
        if self._reply_queue.aborted:
            return
        self._waiting.append((position, reply))
        self._reply_queue.add_deferred(len(reply))
        if not self.awaits_position:
            self._waiters.add(self)
        self._broker.schedule_commit()

    def has_waiting(self) -> bool:
        return bool(self._waiting)

    def release_up_to(self, position: i64) -> None:
        held = self._waiting
        if self._reply_queue.aborted:  # which counts none of these any more
            held.clear()
            return
        replies: list[bytes] = []
        while held and held[0][0] <= position:
            replies.append(held.popleft()[1])
        if replies:
            self._reply_queue.send_deferred(replies)

    def abort(self) -> None:
        self._waiting.clear()
        self._reply_queue.abort()
