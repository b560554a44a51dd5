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

    __slots__ = ("began", "mark", "number", "replies", "since", "size", "verb", "waited")

    def __init__(self) -> None:
        self.mark: i64 = 0
        self.replies: list[bytes] = []
        self.size: i64 = 0
        # Of the command that has the first of them: see slow.py.
        self.since: i64 = 0  # when it came
        self.waited: i64 = 0  # until it was its turn
        self.began: i64 = 0  # when the turn began in which it was answered
        self.number: i64 = 0
        self.verb: Verb = NO_VERB

    def clear(self) -> None:
        self.mark = 0
        self.replies = []
        self.size = 0
        self.waited = 0
        self.number = 0
        self.verb = NO_VERB


class Outbox:
    def __init__(
        self, broker: Broker, transport: Transport, receiver: Receiver, limit: i64
    ) -> None:
        self._broker = broker
        self._transport = transport
        self._write = transport.write  # looked up once: it is called for every reply
        self._receiver: Receiver | None = receiver  # until the connection is lost
        self._limit = limit
        self._ready: list[bytes] = []  # may go, and goes in one write at the end of the turn
        self._ready_size: i64 = 0
        self._held: list[_Batch] = []  # few: one for each commit that is under way
        self._spare: _Batch | None = None  # one that is empty, to be used again
        self._open: _Batch | None = None  # the last of them, while its records are not written
        self._closing = False
        self._lingers = False
        self._overfull = False
        self._aside: i64 = 0  # replies that wait for another place: see aside.py
        self.listed = False  # among those the broker looks at after a commit
        self.size: i64 = 0  # bytes held back
        self.sent: i64 = 0  # bytes of all replies so far

    def send(self, reply: bytes, mark: i64) -> None:
        """Send `reply` once the journal has reached `mark`, after all replies before it."""
        self.sent += len(reply)
        if mark <= self._broker.released and not self._held:
            self._ready.append(reply)
            self._ready_size += len(reply)
            if self._ready_size > _ONE_WRITE:
                self.flush()
            return
        batch = self._open
        if batch is None or batch.mark <= self._broker.journal.written:
            last = batch
            batch = self._spare
            if batch is None:
                batch = _Batch()
            else:
                self._spare = None
            self._stamp(batch)
            if last is not None:
                batch.mark = last.mark
            self._open = batch
            self._held.append(batch)
        if mark > batch.mark:
            batch.mark = mark
        batch.replies.append(reply)
        batch.size += len(reply)
        self.size += len(reply)
        self._broker.held += len(reply)
        if not self.listed:
            self.listed = True
            self._broker.hold(self)

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
        self._ready.append(reply)
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
        ready = self._ready
        if ready:
            self._ready = []
            self._ready_size = 0
            self._write(ready[0] if len(ready) == 1 else b"".join(ready))

    def has_room(self) -> bool:
        """Whether one more command may be answered; if not, the receiver is resumed later."""
        self._overfull = self.size > self._limit or (bool(self._held) and self._broker.is_behind())
        return not self._overfull

    def release(self, mark: i64) -> None:
        """The journal has reached `mark`: let go what waited for it."""
        held = self._held
        broker = self._broker
        patience = broker.flush_ended - broker.slow.limit  # who came before that was too slow
        while held and held[0].mark <= mark:
            batch = held.pop(0)
            if batch.since < patience:
                self._note(batch)
            self.size -= batch.size
            broker.held -= batch.size
            if self._ready:
                self._ready.extend(batch.replies)
            else:
                self._ready = batch.replies
            batch.clear()
            self._spare = batch
        if not held:
            self._open = None
        self.flush()
        self._go_on()

    def _note(self, batch: _Batch) -> None:
        receiver = self._receiver
        if receiver is None:
            return
        broker = self._broker
        # What came during a flush has waited for that one, too.
        written = batch.began if batch.began < broker.flush_free else broker.flush_began
        now = broker.flush_ended
        disk = now - max(written, batch.began)
        count: i64 = len(batch.replies)
        broker.slow.note(
            receiver, batch.verb, batch.number, count, batch.since, batch.waited, disk, now
        )

    def _go_on(self) -> None:
        """Fewer replies are held back: it may be time to close, or to answer more commands."""
        if self._closing:
            if not self._held and not self._aside:
                self._close()
        elif self._overfull and self.has_room() and self._receiver is not None:
            self._receiver.resume()

    def forget_receiver(self) -> None:
        """The connection is lost. Else the two would keep each other alive."""
        self._receiver = None

    def waits(self) -> bool:
        return bool(self._held)

    def close(self, lingers: bool = False) -> None:
        """Close the connection once all replies are out."""
        self._lingers = lingers
        self.flush()
        if self._held or self._aside:
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
        self._held.clear()
        self._open = None
        self._ready = []
        self._ready_size = 0
        self._aside = 0
        self._broker.held -= self.size
        self.size = 0
        self._transport.abort()
