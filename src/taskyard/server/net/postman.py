"""Replies to many clients at once go out from a thread that never asks for the interpreter.

Most of what a small command costs is its reply's way into the socket. So replies of one round of
the event loop are put into a bag, and a thread written in C empties it on another core. Whatever a
socket does not take comes back, and is left to the connection's transport. Only one bag is away at
a time, and a connection has at most one letter in it, so that nothing is overtaken.

Among thousands a reply may take longer than TCP waits for it to carry the acknowledgement of its
request, which is then a packet of its own; and from the second time on the kernel makes one of each
request as soon as that is read, on the loop's time. So it is told with each reply to wait again.

The thread is there if the compiled form was built. Without it, and for few, the loop sends.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, Protocol

from mypy_extensions import i64

if TYPE_CHECKING:
    from taskyard.server.net.connection import Connection, OpenConnections

# Letters for which it does not pay to wake the thread; the second if another thread flushes the
# disk, which wants that core as well, and those who wait for it.
FEW: Final = 12
FEW_BESIDE_FLUSHES: Final = 40
# Letters of one bag up to which it is not worth to gather them, and replies that are sent at once
# until it is tried again whether there are more by now.
_ALONE: Final = 2
_TRIAL: Final = 64
_MOST: Final = 512  # letters of one bag: who leaves may have to wait until it is empty
# Letters after which the loop, while it helps, looks at its sockets again: so many at least, and
# such a part of a large bag. To look costs as much as to send one, and brings a few at a time.
_HANDFUL: Final = 4
_PART: Final = 4
_LARGE: Final = 65_536  # bytes of a bag for which it pays, however few letters they are
_HEAVY: Final = 1_048_576  # bytes of a bag that are not to be kept longer than necessary


class Carrier(Protocol):
    """See _postman.c."""

    def fileno(self) -> int: ...

    def begin(self, files: list[int], letters: list[bytes], patient: bool, /) -> None: ...

    def send(self, file: int, letter: bytes, patient: bool, /) -> int: ...

    def help(self, most: int, /) -> bool: ...

    def wish(self) -> bool: ...

    def heard(self) -> None: ...

    def end(self) -> list[tuple[int, int]] | None: ...

    def wait(self) -> None: ...

    def close(self) -> None: ...


class Postman:
    def __init__(
        self,
        everyone: OpenConnections,
        carrier: Carrier,
        call_soon: Callable[[Callable[[], None]], object],
        few: i64 = FEW,
    ) -> None:
        self._everyone = everyone
        self._carrier = carrier
        self._call_soon = call_soon
        self.bag: i64 = 1  # the number of the one that is being filled
        self.delivered: i64 = 0  # and of the last one of which everything is known
        self._connections: list[Connection] = []
        self._files: list[int] = []
        self._letters: list[bytes] = []
        self._mark: i64 = 0  # those from here on may be wanted at once
        self._size: i64 = 0
        self._away: list[Connection] = []
        self._away_bag: i64 = 0
        self._away_letters: list[bytes] = []
        self._planned = False
        self._watching = False
        self._seen: i64 = -1
        self._handful: i64 = _HANDFUL
        self._few = few
        self._crowd: i64 = 0  # letters of a bag, in the last few of them
        self._trial: i64 = _TRIAL

    def is_wanted(self) -> bool:
        """Whether a reply is better put into the bag than sent at once."""
        if self._planned or self._crowd > _ALONE:
            return True
        self._trial -= 1
        if self._trial > 0:
            return False
        self._trial = _TRIAL
        return True

    def post(self, connection: Connection, file: i64, data: bytes) -> None:
        """The bag must not have anything for it yet."""
        connection.before = connection.posted
        self._put(connection, file, data)
        if len(self._files) < _MOST:
            self._plan()
        else:
            self._go()

    def _put(self, connection: Connection, file: i64, data: bytes) -> None:
        connection.place = len(self._files)
        connection.posted = self.bag
        self._connections.append(connection)
        self._files.append(file)
        self._letters.append(data)
        self._size += len(data)

    def _plan(self) -> None:
        if not self._planned:
            self._planned = True
            self._call_soon(self._go)

    def add(self, connection: Connection, data: bytes) -> i64:
        """The bag has something for it already; how much that is now."""
        letter = self._letters[connection.place] + data
        self._letters[connection.place] = letter
        self._size += len(data)
        return len(letter)

    def take_out(self, connection: Connection) -> bytes:
        """What the bag has for it; nothing of that is sent from here."""
        if connection.posted != self.bag:
            return b""
        place = connection.place
        data = self._letters[place]
        self._size -= len(data)
        self._files[place] = -1
        self._letters[place] = b""
        connection.posted = 0
        return data

    def wait(self) -> None:
        """Until nothing is away any more."""
        if self._away:
            self._carrier.wait()
            self._come_back()

    def mark(self) -> None:
        self._mark = len(self._letters)

    def hurry(self) -> None:
        for place in range(self._mark, len(self._letters)):
            connection = self._connections[place]
            letter = self._letters[place]
            if letter and connection.before <= self.delivered:
                self.take_out(connection)
                connection.send_now(letter)

    def told(self) -> None:
        """A round is over."""
        self._carrier.heard()
        if self._letters or self._away:
            self._go()

    def close(self, loop: asyncio.AbstractEventLoop) -> None:
        loop.remove_reader(self._carrier.fileno())
        self._carrier.close()

    def _go(self) -> None:
        self._planned = False
        if self._away and not self._come_back():
            self._help_out()
            return
        count: i64 = len(self._letters)
        if not count:
            return
        self._crowd = max(count, self._crowd - 1)
        if count <= self._few and self._size <= _LARGE:
            self._send_all()
            return
        self._away_bag = self.bag
        self._away = self._connections
        self._away_letters = self._letters
        self._carrier.begin(self._files, self._letters, self._everyone.slow)
        self._handful = max(i64(_HANDFUL), count // _PART)
        if self._size > _HEAVY:
            self._carrier.wish()
        self._next_bag()
        self._seen = -1
        if not self._watching:
            self._watching = True
            self._call_soon(self._watch)

    def _watch(self) -> None:
        """While the loop finds nothing else to do, it does its part of what is away."""
        fresh = self._everyone.fresh
        if fresh == self._seen and not self._carrier.help(self._handful):
            self._watching = False
            if self._away:  # the thread does not tell of what could not be sent from here
                self._come_back()
            return
        self._seen = fresh
        self._call_soon(self._watch)

    def _next_bag(self) -> None:
        self.bag += 1
        self._connections = []
        self._files = []
        self._letters = []
        self._mark = 0
        self._size = 0

    def _send_all(self) -> None:
        """From here: nothing is on its way that could be overtaken."""
        connections = self._connections
        letters = self._letters
        files = self._files
        self.delivered = self.bag
        self._next_bag()
        for place, letter in enumerate(letters):
            if letter:
                self._send(connections[place], files[place], letter)

    def _send(self, connection: Connection, file: int, letter: bytes) -> None:
        """By the carrier, which keeps the interpreter meanwhile: to let go of it costs more than a
        socket that takes the bytes at once."""
        sent: i64 = self._carrier.send(file, letter, self._everyone.slow)
        if sent != len(letter):
            connection.not_sent(letter[sent:])

    def _help_out(self) -> None:
        """The thread has more than it can do at the moment, so these are sent from here; but what
        is for somebody who has a letter on its way has to wait until it has arrived."""
        connections = self._connections
        letters = self._letters
        files = self._files
        self._next_bag()
        delivered = self.delivered
        for place, connection in enumerate(connections):
            letter = letters[place]
            if not letter:
                continue
            if connection.before > delivered:
                self._put(connection, files[place], letter)
            else:
                connection.posted = 0
                self._send(connection, files[place], letter)
        if self._letters and not self._carrier.wish():
            self._plan()

    def _come_back(self) -> bool:
        """Whether the round is over; then what was not sent is in the hands of the transports."""
        rest = self._carrier.end()
        if rest is None:
            return False
        away = self._away
        letters = self._away_letters
        self._away = []
        self._away_letters = []
        self.delivered = self._away_bag
        for place, sent in rest:
            connection = away[place]
            connection.not_sent(letters[place][sent:] + self.take_out(connection))
        return True


def make_postman(
    everyone: OpenConnections, loop: asyncio.AbstractEventLoop, few: i64
) -> Postman | None:
    carrier = _make_carrier()
    if carrier is None:
        return None
    made = Postman(everyone, carrier, loop.call_soon, few)
    loop.add_reader(carrier.fileno(), made.told)
    return made


def _make_carrier() -> Carrier | None:
    with contextlib.suppress(ImportError):
        from taskyard.server.net._postman import Postman as Made

        made: Carrier = Made()
        return made
    return None
