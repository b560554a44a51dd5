"""Replies of one connection, in order, each held back until what it promises is on disk."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from mypy_extensions import i64

from taskyard.broker.metrics import Verb
from taskyard.broker.receiver import NO_VERB, Receiver
from taskyard.broker.seams import Transport

if TYPE_CHECKING:
    from taskyard.broker.broker import Broker

_ONE_WRITE: Final = 65_536  # bytes that are gathered for one write at most


class _Batch:
    """Replies that are let go together, since their records are written together."""

    __slots__ = (
        "began",
        "count",
        "first",
        "following",
        "mark",
        "more",
        "number",
        "since",
        "size",
        "verb",
        "waited",
    )

    def __init__(self) -> None:
        self.mark: i64 = 0
        self.count: i64 = 0
        self.first = b""
        self.more: list[bytes] = []  # replies after that, which most batches have none of
        self.size: i64 = 0
        self.following: _Batch | None = None
        # Of the command that has the first of them: see slow.py.
        self.since: i64 = 0  # when it came
        self.waited: i64 = 0  # until it was its turn
        self.began: i64 = 0  # when the turn began in which it was answered
        self.number: i64 = 0
        self.verb: Verb = NO_VERB

    def add(self, reply: bytes, mark: i64) -> None:
        if mark > self.mark:
            self.mark = mark
        if self.count:
            self.more.append(reply)
        else:
            self.first = reply
        self.count += 1
        self.size += len(reply)

    def clear(self) -> None:
        self.mark = 0
        self.first = b""
        if self.count > 1:
            self.more = []
        self.count = 0
        self.size = 0
        self.following = None
        self.waited = 0
        self.number = 0
        self.verb = NO_VERB


class Outbox:
    """With many connections, each is out of the processor's cache when its turn comes: what a
    single reply needs is kept in as few objects as possible."""

    def __init__(
        self, broker: Broker, transport: Transport, receiver: Receiver, limit: i64
    ) -> None:
        self._broker = broker
        self._transport = transport
        self._write = transport.write  # looked up once: it is called for every reply
        self._receiver: Receiver | None = receiver  # until the connection is lost
        self._limit = limit
        # What may go, and goes in one write at the end of the turn.
        self._ready: i64 = 0  # replies
        self._ready_size: i64 = 0
        self._ready_first = b""
        self._ready_more: list[bytes] = []
        # What has to wait: few batches, one for each commit that is under way.
        self._first: _Batch | None = None
        self._last: _Batch | None = None  # gets what comes, while its records are not written
        self._spare: _Batch | None = None  # one that is empty, to be used again
        self._closing = False
        self._lingers = False
        self._overfull = False
        self._aside: i64 = 0  # replies that wait for another place: see aside.py
        self.aborted = False  # nothing that waited may be seen any more
        self.listed = False  # among those the broker looks at after a commit
        self.answered: i64 = 0  # when a slow disk let go the last of what waited: see convoy.py
        self.is_prompt = False  # and whether more came soon after that, the last time
        self.size: i64 = 0  # bytes held back
        self.sent: i64 = 0  # bytes of all replies so far

    def send(self, reply: bytes, mark: i64) -> None:
        """Send `reply` once the journal has reached `mark`, after all replies before it."""
        size: i64 = len(reply)
        broker = self._broker
        self.sent += size
        last = self._last
        if last is None and mark <= broker.released:
            self.overtake(reply)
            return
        if last is None or last.mark <= broker.journal.written:
            last = self._begin(last)
        last.add(reply, mark)
        self.size += size
        broker.held += size
        if not self.listed:
            self.listed = True
            broker.hold(self)

    def _begin(self, last: _Batch | None) -> _Batch:
        batch = self._spare
        if batch is None:
            batch = _Batch()
        else:
            self._spare = None
        self._stamp(batch)
        if last is None:
            self._first = batch
        else:
            batch.mark = last.mark
            last.following = batch
        self._last = batch
        return batch

    def _stamp(self, batch: _Batch) -> None:
        line = self._broker.line
        now = line.now
        batch.began = now
        batch.since = now
        receiver = self._receiver
        if receiver is not None:
            if line.turn is receiver:
                batch.waited = line.waited
                batch.since = now - line.waited
            if receiver.since:
                batch.since = receiver.since
            batch.number = receiver.commands
            batch.verb = receiver.verb

    def overtake(self, reply: bytes) -> None:
        """Send `reply` with the next flush, ahead of those held back: it is true already."""
        if self._ready:
            self._ready_more.append(reply)
        else:
            self._ready_first = reply
        self._ready += 1
        self._ready_size += len(reply)
        if self._ready_size > _ONE_WRITE:
            self.flush()

    def put_aside(self, size: i64) -> None:
        """A reply waits for another place than those held back here."""
        self._aside += 1
        self.size += size
        self._broker.held += size

    def take_back(self, replies: list[bytes]) -> None:
        """Such replies may go."""
        for reply in replies:
            self._aside -= 1
            self.size -= len(reply)
            self._broker.held -= len(reply)
            self.overtake(reply)
        self.flush()
        self._go_on()

    def flush(self) -> None:
        count = self._ready
        if not count:
            return
        data = self._ready_first
        if count > 1:
            more = self._ready_more
            self._ready_more = []
            data = b"".join([data, *more])
        self._ready = 0
        self._ready_size = 0
        self._ready_first = b""
        self._write(data)

    def has_room(self) -> bool:
        """Whether one more command may be answered; if not, the receiver is resumed later."""
        self._overfull = self.size > self._limit or (
            self._first is not None and self._broker.is_behind()
        )
        return not self._overfull

    def release(self, mark: i64) -> None:
        """The journal has reached `mark`: let go what waited for it."""
        broker = self._broker
        patience = broker.flush_ended - broker.slow.limit  # who came before that was too slow
        batch = self._first
        while batch is not None and batch.mark <= mark:
            if batch.since < patience:
                self._note(batch)
            self.size -= batch.size
            broker.held -= batch.size
            self._let_go(batch)
            following = batch.following
            batch.clear()
            self._spare = batch
            batch = following
        self._first = batch
        if batch is None:
            self._last = None
        self.flush()
        self._go_on()

    def _let_go(self, batch: _Batch) -> None:
        if self._ready:
            self._ready_more.append(batch.first)
        else:
            self._ready_first = batch.first
        if batch.count > 1:
            self._ready_more.extend(batch.more)
        self._ready += batch.count
        self._ready_size += batch.size

    def _note(self, batch: _Batch) -> None:
        receiver = self._receiver
        if receiver is None:
            return
        broker = self._broker
        # What came during a flush has waited for that one, too.
        written = batch.began if batch.began < broker.flush_free else broker.flush_began
        now = broker.flush_ended
        disk = now - max(written, batch.began)
        broker.slow.note(
            receiver, batch.verb, batch.number, batch.count, batch.since, batch.waited, disk, now
        )

    def _go_on(self) -> None:
        """Fewer replies are held back: it may be time to close, or to answer more commands."""
        if self._closing:
            if self._first is None and not self._aside:
                self._close()
        elif self._overfull and self.has_room() and self._receiver is not None:
            self._receiver.resume()

    def forget_receiver(self) -> None:
        """The connection is lost. Else the two would keep each other alive."""
        self._receiver = None
        self._broker.left(self)

    def is_lost(self) -> bool:
        return self._receiver is None

    def waits(self) -> bool:
        return self._first is not None

    def close(self, lingers: bool = False) -> None:
        """Close the connection once all replies are out."""
        self._lingers = lingers
        self.flush()
        if self._first is not None or self._aside:
            self._closing = True
        else:
            self._close()

    def _close(self) -> None:
        if self._lingers:
            self._transport.linger()
        else:
            self._transport.close()

    def abort(self) -> None:
        """Replies that were held back must never be seen: the promise cannot be kept."""
        self.aborted = True
        self._first = None
        self._last = None
        self._ready = 0
        self._ready_size = 0
        self._ready_first = b""
        self._ready_more = []
        self._aside = 0
        self._broker.held -= self.size
        self.size = 0
        self._transport.abort()
