"""Sends replies to many clients from a C thread that does not need the GIL.

Most of what a small command costs is the way of its reply into the socket. So the replies of one
round of the event loop form a batch, which a thread written in C sends on another core. What a
socket does not take is returned, and left to the connection's transport. Only one batch is being
sent at a time, and a connection has at most one reply in it, so that replies stay in order.

Among thousands of connections a reply may take longer than TCP delays the acknowledgement of its
request, which is then a packet of its own; and from the second time on the kernel acknowledges each
request at once, on the loop's time. So each reply tells the kernel to delay again.

The thread exists if the compiled form was built. Without it, and for few replies, the loop sends.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, Protocol

from mypy_extensions import i64

if TYPE_CHECKING:
    from taskyard.server.net.connection import Connection, ConnectionRegistry

# Replies for which it does not pay to wake the thread; the second if another thread flushes the
# disk, which needs that core as well, as do the clients that wait for it.
MAX_INLINE_REPLIES: Final = 12
MAX_INLINE_REPLIES_WITH_SYNC: Final = 40
# Replies of one batch up to which batching does not pay, and replies that are sent at once
# until batching is tried again.
_TOO_FEW_TO_BATCH: Final = 2
_SENDS_BETWEEN_TRIALS: Final = 64
# replies of one batch: a closing connection may have to wait until all are sent
_MAX_BATCH_REPLIES: Final = 512
# Replies after which the loop, while it assists, polls its sockets again: so many at least, and
# such a part of a large batch. A poll costs as much as to send one, and brings a few commands.
_MIN_ASSIST_REPLIES: Final = 4
_ASSIST_DIVISOR: Final = 4
# bytes of a batch for which the thread pays, however few replies they are
_LARGE_BATCH_BYTES: Final = 65_536
# bytes of a batch that are not to be kept longer than necessary
_URGENT_BATCH_BYTES: Final = 1_048_576


class SendThread(Protocol):
    """See _postman.c."""

    def fileno(self) -> int: ...

    def start(self, descriptors: list[int], replies: list[bytes], delay_acks: bool, /) -> None: ...

    def send(self, descriptor: int, reply: bytes, delay_acks: bool, /) -> int: ...

    def assist(self, most: int, /) -> bool: ...

    def request_wakeup(self) -> bool: ...

    def clear_wakeup(self) -> None: ...

    def collect_results(self) -> list[tuple[int, int]] | None: ...

    def wait(self) -> None: ...

    def close(self) -> None: ...


class BatchingReplySender:
    def __init__(
        self,
        registry: ConnectionRegistry,
        send_thread: SendThread,
        call_soon: Callable[[Callable[[], None]], object],
        max_inline: i64 = MAX_INLINE_REPLIES,
    ) -> None:
        self._registry = registry
        self._send_thread = send_thread
        self._call_soon = call_soon
        self.batch_number: i64 = 1  # the number of the one that is being filled
        self.completed_batch: i64 = 0  # and of the last one of which everything is known
        self._connections: list[Connection] = []
        self._descriptors: list[int] = []
        self._replies: list[bytes] = []
        self._priority_from: i64 = 0  # those from here on may be priority replies
        self._batch_bytes: i64 = 0
        self._sending_connections: list[Connection] = []
        self._sending_batch: i64 = 0
        self._sending_replies: list[bytes] = []
        self._dispatch_scheduled = False
        self._assisting = False
        self._seen_bytes: i64 = -1
        self._assist_replies: i64 = _MIN_ASSIST_REPLIES
        self._max_inline = max_inline
        self._recent_replies: i64 = 0  # replies of a batch, in the last few of them
        self._sends_until_trial: i64 = _SENDS_BETWEEN_TRIALS

    def choose_batching(self) -> bool:
        """Decide whether a reply joins the batch instead of being sent at once."""
        if self._dispatch_scheduled or self._recent_replies > _TOO_FEW_TO_BATCH:
            return True
        self._sends_until_trial -= 1
        if self._sends_until_trial > 0:
            return False
        self._sends_until_trial = _SENDS_BETWEEN_TRIALS
        return True

    def enqueue(self, connection: Connection, descriptor: i64, data: bytes) -> None:
        """Add a connection's first reply to the batch."""
        connection.previous_batch = connection.reply_batch
        self._put_last(connection, descriptor, data)
        if len(self._descriptors) < _MAX_BATCH_REPLIES:
            self._schedule_dispatch()
        else:
            self._dispatch()

    def _put_last(self, connection: Connection, descriptor: i64, data: bytes) -> None:
        connection.reply_index = len(self._descriptors)
        connection.reply_batch = self.batch_number
        self._connections.append(connection)
        self._descriptors.append(descriptor)
        self._replies.append(data)
        self._batch_bytes += len(data)

    def _schedule_dispatch(self) -> None:
        if not self._dispatch_scheduled:
            self._dispatch_scheduled = True
            self._call_soon(self._dispatch)

    def append(self, connection: Connection, data: bytes) -> i64:
        """Append to a connection's reply in the batch; return its size."""
        letter = self._replies[connection.reply_index] + data
        self._replies[connection.reply_index] = letter
        self._batch_bytes += len(data)
        return len(letter)

    def withdraw(self, connection: Connection) -> bytes:
        """Remove and return what the batch has for this connection."""
        if connection.reply_batch != self.batch_number:
            return b""
        place = connection.reply_index
        data = self._replies[place]
        self._batch_bytes -= len(data)
        self._descriptors[place] = -1
        self._replies[place] = b""
        connection.reply_batch = 0
        return data

    def wait_until_sent(self) -> None:
        """Wait until no batch is being sent."""
        if self._sending_connections:
            self._send_thread.wait()
            self._collect_results()

    def mark_priority(self) -> None:
        self._priority_from = len(self._replies)

    def send_priority_now(self) -> None:
        for place in range(self._priority_from, len(self._replies)):
            connection = self._connections[place]
            letter = self._replies[place]
            if letter and connection.previous_batch <= self.completed_batch:
                self.withdraw(connection)
                connection.send_now(letter)

    def on_thread_done(self) -> None:
        """The thread has sent a batch."""
        self._send_thread.clear_wakeup()
        if self._replies or self._sending_connections:
            self._dispatch()

    def close(self, loop: asyncio.AbstractEventLoop) -> None:
        loop.remove_reader(self._send_thread.fileno())
        self._send_thread.close()

    def _dispatch(self) -> None:
        self._dispatch_scheduled = False
        if self._sending_connections and not self._collect_results():
            self._send_inline_beside_thread()
            return
        count: i64 = len(self._replies)
        if not count:
            return
        self._recent_replies = max(count, self._recent_replies - 1)
        if count <= self._max_inline and self._batch_bytes <= _LARGE_BATCH_BYTES:
            self._send_all_inline()
            return
        self._sending_batch = self.batch_number
        self._sending_connections = self._connections
        self._sending_replies = self._replies
        self._send_thread.start(self._descriptors, self._replies, self._registry.use_delayed_acks)
        self._assist_replies = max(i64(_MIN_ASSIST_REPLIES), count // _ASSIST_DIVISOR)
        if self._batch_bytes > _URGENT_BATCH_BYTES:
            self._send_thread.request_wakeup()
        self._start_next_batch()
        self._seen_bytes = -1
        if not self._assisting:
            self._assisting = True
            self._call_soon(self._assist_thread)

    def _assist_thread(self) -> None:
        """While the loop has nothing else to do, send part of the batch from here."""
        fresh = self._registry.bytes_since_check
        if fresh == self._seen_bytes and not self._send_thread.assist(self._assist_replies):
            self._assisting = False
            if (
                self._sending_connections
            ):  # the thread does not report what could not be sent from here
                self._collect_results()
            return
        self._seen_bytes = fresh
        self._call_soon(self._assist_thread)

    def _start_next_batch(self) -> None:
        self.batch_number += 1
        self._connections = []
        self._descriptors = []
        self._replies = []
        self._priority_from = 0
        self._batch_bytes = 0

    def _send_all_inline(self) -> None:
        """Send the batch from the loop: no other batch is being sent, so replies stay in order."""
        connections = self._connections
        letters = self._replies
        files = self._descriptors
        self.completed_batch = self.batch_number
        self._start_next_batch()
        for place, letter in enumerate(letters):
            if letter:
                self._send_one(connections[place], files[place], letter)

    def _send_one(self, connection: Connection, descriptor: int, reply: bytes) -> None:
        """Send through the thread's module without releasing the GIL: releasing it costs more than
        a socket that takes the bytes at once.
        """
        sent: i64 = self._send_thread.send(descriptor, reply, self._registry.use_delayed_acks)
        if sent != len(reply):
            connection.on_partial_send(reply[sent:])

    def _send_inline_beside_thread(self) -> None:
        """Send the batch from the loop while the thread is busy. A reply whose connection has one
        in the thread's batch waits for that.
        """
        connections = self._connections
        letters = self._replies
        files = self._descriptors
        self._start_next_batch()
        delivered = self.completed_batch
        for place, connection in enumerate(connections):
            letter = letters[place]
            if not letter:
                continue
            if connection.previous_batch > delivered:
                self._put_last(connection, files[place], letter)
            else:
                connection.reply_batch = 0
                self._send_one(connection, files[place], letter)
        if self._replies and not self._send_thread.request_wakeup():
            self._schedule_dispatch()

    def _collect_results(self) -> bool:
        """Return whether the batch was sent; what was not goes to the transports."""
        rest = self._send_thread.collect_results()
        if rest is None:
            return False
        away = self._sending_connections
        letters = self._sending_replies
        self._sending_connections = []
        self._sending_replies = []
        self.completed_batch = self._sending_batch
        for place, sent in rest:
            connection = away[place]
            connection.on_partial_send(letters[place][sent:] + self.withdraw(connection))
        return True


def make_reply_sender(
    registry: ConnectionRegistry, loop: asyncio.AbstractEventLoop, max_inline: i64
) -> BatchingReplySender | None:
    carrier = _make_send_thread()
    if carrier is None:
        return None
    made = BatchingReplySender(registry, carrier, loop.call_soon, max_inline)
    loop.add_reader(carrier.fileno(), made.on_thread_done)
    return made


def _make_send_thread() -> SendThread | None:
    with contextlib.suppress(ImportError):
        from taskyard.server.net._postman import SendThread as Made

        made: SendThread = Made()
        return made
    return None
