"""Commands of many rows over one connection: which are on their way, which are to be sent again.

It keeps a window of commands, whatever the number of rows, and counts what became of them.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from taskyard.client.address import Address
from taskyard.client.backoff import Backoff
from taskyard.client.commands import unexpected
from taskyard.client.connection import Connection
from taskyard.client.errors import Draining, NotNow, QueueFull, Refused, Unavailable
from taskyard.client.retrying import Patience
from taskyard.client.settings import PATIENCE, TIMEOUT, first
from taskyard.client.wire import Reply

_MOST_ROWS: Final = 16_384  # on their way
_MOST_BYTES: Final = 8 << 20
_CHUNK_ROWS: Final = 1024
_CHUNK_BYTES: Final = 1 << 18


class Refusal(Exception):
    """The server does not want this row."""

    def __init__(self, row: int, reason: Refused) -> None:
        super().__init__(str(reason))
        self.row = row


class _Chunk:
    """Commands that were sent together, of rows that follow one another."""

    __slots__ = ("answered", "commands", "row", "size")

    def __init__(self, row: int, commands: list[bytes]) -> None:
        self.row = row  # that of the first
        self.commands = commands
        self.answered = 0
        self.size = sum(map(len, commands))


class RowFeed:
    """A Feed, see taskyard.client.streaming. After a loss, `rewind` and stream it again."""

    def __init__(
        self, batches: Iterator[list[bytes]], settle: Callable[[Refused], str | None]
    ) -> None:
        """`settle`: as what to count a refusal that is none, such as that of a known uid; None
        if it is one.
        """
        self._batches = batches
        self._settle = settle
        self._batch: list[bytes] = []
        self._at = 0  # in the batch
        self._row = 0  # the next one that is to be sent for the first time
        self._sent: deque[_Chunk] = deque()
        self._rows = 0  # of those
        self._bytes = 0
        self._again: deque[_Chunk] = deque()
        self._put_off: list[_Chunk] = []
        self._ended = False
        self._broken: BaseException | None = None
        self._passing: Refused | None = None
        self.counts: dict[str, int] = {}
        self.answered = 0

    @property
    def done(self) -> bool:
        ended = self._ended and not self._again
        return not self._sent and (ended or self._passing is not None)

    def next(self) -> bytes:
        if self._passing is not None or self._rows >= _MOST_ROWS or self._bytes >= _MOST_BYTES:
            return b""
        chunk = self._again.popleft() if self._again else self._next_chunk()
        if chunk is None:
            return b""
        self._sent.append(chunk)
        self._rows += len(chunk.commands)
        self._bytes += chunk.size
        return b"".join(chunk.commands)

    def _next_chunk(self) -> _Chunk | None:
        try:
            while not self._ended and self._at == len(self._batch):
                self._batch, self._at = next(self._batches), 0
        except StopIteration:
            self._ended = True
        except BaseException as error:
            # What is on its way is read to its end first, so that it is known to be safe.
            self._ended, self._broken = True, error
        if self._ended:
            return None
        commands = self._batch[self._at : self._at + _CHUNK_ROWS]
        if sum(map(len, commands)) > _CHUNK_BYTES:
            commands = _few(commands)
        chunk = _Chunk(self._row, commands)
        self._at += len(commands)
        self._row += len(commands)
        return chunk

    def take(self, replies: Sequence[Reply]) -> None:
        at = 0
        while at < len(replies):
            if not self._sent:
                raise unexpected(replies[at])  # to what was never asked
            chunk = self._sent[0]
            some = min(len(chunk.commands) - chunk.answered, len(replies) - at)
            for offset in range(some):
                reply = replies[at + offset]
                if type(reply) is not int:
                    self._take_other(chunk, chunk.answered + offset, reply)
            at += some
            chunk.answered += some
            self.answered += some
            if chunk.answered == len(chunk.commands):
                self._sent.popleft()
                self._rows -= len(chunk.commands)
                self._bytes -= chunk.size

    def _take_other(self, chunk: _Chunk, place: int, reply: Reply) -> None:
        if reply in (b"OK", b"delayed", b"ready", b"failed"):
            return
        if not isinstance(reply, Refused):
            raise unexpected(reply)
        if isinstance(reply, NotNow | QueueFull | Draining):
            self._passing = reply
            self._put_off.append(_Chunk(chunk.row + place, [chunk.commands[place]]))
            self.answered -= 1
            return
        settled = self._settle(reply)
        if settled is None:
            self._ended = True
            self._again.clear()
            self._broken = self._broken or Refusal(chunk.row + place, reply)
        else:
            self.counts[settled] = self.counts.get(settled, 0) + 1

    def rewind(self) -> None:
        """The connection was lost, or the server could not do it: go on with what has no answer."""
        left = [_Chunk(one.row + one.answered, one.commands[one.answered :]) for one in self._sent]
        self._again = deque([*self._put_off, *left, *self._again])
        self._put_off = []
        self._sent.clear()
        self._rows = self._bytes = 0
        self._passing = None

    def held_up(self) -> Unavailable | None:
        """Why what was sent last is to be sent again, if it is."""
        if self._passing is None or self._broken is not None:
            return None
        error = Unavailable(f"the server cannot do it now: {self._passing}")
        error.__cause__ = self._passing
        return error

    def finish(self) -> None:
        """When it is done: raises what has ended it early."""
        if self._broken is not None:
            raise self._broken


def send(address: Address, feed: RowFeed) -> None:
    """Send all of it, however often the connection is lost, as long as the server comes back.

    Commands may be sent twice: they have to be such that this does no harm.
    """
    patience = Patience(first(address.patience, PATIENCE), Backoff())
    with Connection(address, timeout=first(address.timeout, TIMEOUT)) as connection:
        while True:
            before = feed.answered
            try:
                connection.stream(feed)
                held_up = feed.held_up()
            except Unavailable as lost:
                held_up = lost
            if held_up is None:
                break
            if feed.answered > before:
                patience.renew()
            time.sleep(patience.pause(held_up))
            feed.rewind()
    feed.finish()


def _few(commands: list[bytes]) -> list[bytes]:
    """As many as make a chunk of bytes, but at least one."""
    size = 0
    for at, command in enumerate(commands):
        size += len(command)
        if size > _CHUNK_BYTES:
            return commands[: max(at, 1)]
    return commands
