"""Between a socket and a dialect: bytes in, bytes out, back-pressure both ways."""

from __future__ import annotations

import asyncio
import fcntl
import logging
import os
import sys
import termios
import time
from asyncio.protocols import Protocol
from collections.abc import Callable
from typing import TYPE_CHECKING, Final
from typing import Protocol as Seam

from mypy_extensions import i64

from taskyard.broker.receiver import BUSY, STRANGER, Receiver
from taskyard.server.logs import fields, log

if TYPE_CHECKING:
    from taskyard.server.net.postman import Postman

_LINGER: Final = 2.0  # seconds that a client has to read its last reply while it still sends
# Bytes of one command that a client must send while others are let go for being too slow.
_PROGRESS: Final = 4096
# Connections up to which replies are sent at once: the postman's round would come later.
_FEW: Final = 4
# And from which on they may take so long that their requests are acknowledged before.
_THOUSANDS: Final = 1000
_LETTER: Final = 65_536  # bytes up to which a reply is given to the postman
_PARCEL: Final = 65_536  # and which are too many for one that has some already
NO_LIMIT: Final = 0x7FFF_FFFF_FFFF_FFFF

# What `Connection.verdict` finds.
FINE: Final = 0
STALLED_INPUT: Final = 1  # a command has begun, and does not come to its end
STALLED_OUTPUT: Final = 2  # the client does not take its replies


class Login(Seam):
    """Who looks after connections whose clients have to log in."""

    def add(self, one: Connection) -> None: ...

    def discard(self, one: Connection) -> None: ...


class Dialect(Seam):
    """What speaks a protocol on the connections of a listener."""

    def connect(self, transport: Connection, peer: str) -> Receiver: ...


class OpenConnections:
    """Those that are there now, and a way to wait until there are none."""

    def __init__(self) -> None:
        self._open: dict[Connection, None] = {}  # in the order in which they came
        self._none = asyncio.Event()
        self._none.set()
        self.closing = False  # those that still come are shut down at once
        self.numbered: i64 = 0  # connections that there were
        # Bytes that have come and gone since it was last measured what all of them hold, and how
        # many there may be until that is done again: see flow.py.
        self.fresh: i64 = 0
        self.budget: i64 = NO_LIMIT
        self.on_spent: Callable[[Connection], None] | None = None
        self.postman: Postman | None = None
        self.crowded = False  # there are so many that the postman is worth it
        self.strangers: Login | None = None  # where clients have to log in
        self.slow = False  # and so many that replies take longer than TCP waits for them

    def all(self) -> list[Connection]:
        return list(self._open)

    def spent(self, connection: Connection) -> None:
        """The budget is used up by something that this one has sent or was sent."""
        if self.on_spent is not None:
            self.on_spent(connection)

    def add(self, connection: Connection) -> None:
        self._open[connection] = None
        self._count()
        self._none.clear()

    def discard(self, connection: Connection) -> None:
        self._open.pop(connection, None)
        self._count()
        if not self._open:
            self._none.set()

    def _count(self) -> None:
        self.crowded = len(self._open) > _FEW
        self.slow = len(self._open) > _THOUSANDS

    async def all_closed(self, seconds: float) -> None:
        """Give them this long to go; then they are cut off."""
        try:
            await asyncio.wait_for(self._none.wait(), seconds)
        except TimeoutError:
            for connection in list(self._open):
                connection.abort()


class Connection(Protocol):
    """One client. What the dialect writes goes out as it is; a client that does not read is not
    read from, so that its replies stay within bounds."""

    def __init__(
        self,
        dialect: Dialect,
        output_limit: int,
        open_connections: OpenConnections,
        leave: Callable[[], None] | None = None,
    ) -> None:
        """`leave` is called once, when the connection is gone."""
        self._dialect = dialect
        self._output_limit = output_limit
        self._open = open_connections
        self._transport: asyncio.Transport | None = None
        self._receiver: Receiver | None = None
        self._stuffed = False  # the client does not read what it was sent
        self._held_back = False  # it waits until there is memory for more
        self._wanted = True  # the dialect wants to read
        self._ended = False  # nothing more can be read
        self._file: i64 = -1  # of the socket, if bytes go into it as they are
        self._queued = False  # the transport may have some that must go before
        self.posted: i64 = 0  # the last bag of the postman that has something for it
        self.place: i64 = 0  # where that is
        self.before: i64 = 0  # the one before that
        self._lingering: asyncio.TimerHandle | None = None
        self._leave = leave
        open_connections.numbered += 1
        self.number: i64 = open_connections.numbered  # in the log
        self._came = 0.0
        self._why = ""  # it ends
        self.outer: asyncio.Transport | None = None  # that speaks TLS, until it has shaken hands
        self._received: i64 = 0
        self._written: i64 = 0
        # As `verdict` last saw it.
        self._taken: i64 = 0  # bytes that the client has taken
        self._taken_since: i64 = 0  # no more since then; 0: it has taken all
        self._command: i64 = 0  # how many were carried out before the one that is half here
        self._command_size: i64 = 0  # bytes received then
        self._command_since: i64 = 0  # 0: none is half here

    def is_coming(self) -> None:
        """Its client is let in, and may have to shake hands first; or must log in once more."""
        if self._open.strangers is not None:
            self._open.strangers.add(self)

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        transport.set_write_buffer_limits(high=self._output_limit)
        self._transport = transport
        self.outer = None
        self._file = _plain_socket(transport)
        self._open.add(self)
        self.is_coming()
        receiver = self._dialect.connect(self, _peer(transport))
        self._receiver = receiver
        receiver.connection = self.number
        if self._open.strangers is not None:
            receiver.on_stranger = self.is_coming
        if log.isEnabledFor(logging.DEBUG):
            self._came = time.monotonic()
            log.debug("a connection came", extra={"fields": receiver.told()})
        if self._open.closing:
            receiver.shut_down()

    def data_received(self, data: bytes) -> None:
        size: i64 = len(data)
        self._received += size
        everyone = self._open
        everyone.fresh += size
        if everyone.fresh > everyone.budget:
            everyone.spent(self)
        if self._receiver is not None:
            self._receiver.feed(data)

    def eof_received(self) -> bool:
        """The client may have closed only its half of the connection, and wait for replies."""
        self._ended = True
        self._ends("the client has closed it")
        if self._lingering is not None:
            return False
        if self._receiver is not None:
            self._receiver.ended()
        return True

    def connection_lost(self, exc: Exception | None) -> None:
        self._take_back()  # before the descriptor is another connection's
        self._file = -1
        receiver = self._receiver
        self._receiver = None
        self._open.discard(self)
        if self._lingering is not None:
            self._lingering.cancel()
        if receiver is not None:
            if self._came:
                self._tell_end(receiver, exc)
            receiver.lost()
        self.left()

    def _ends(self, why: str) -> None:
        """The first reason is the one."""
        if not self._why:
            self._why = "the server stops" if self._open.closing else why

    def _tell_end(self, receiver: Receiver, exc: Exception | None) -> None:
        self._ends("it broke" if exc is None else f"it broke: {type(exc).__name__}")
        told = receiver.told()
        told["seconds"] = round(time.monotonic() - self._came, 3)
        told["commands"] = int(receiver.commands)
        told["received"] = int(self._received)
        told["sent"] = int(self._written)
        told["why"] = self._why
        log.debug("a connection went", extra={"fields": told})

    def left(self) -> None:
        """It is gone, or has never come to be."""
        if self._open.strangers is not None:
            self._open.strangers.discard(self)
        self.outer = None
        self._give_place()

    def _give_place(self) -> None:
        leave = self._leave
        self._leave = None
        if leave is not None:
            leave()

    def pause_writing(self) -> None:
        self._stuff(True)

    def resume_writing(self) -> None:
        self._stuff(False)
        if self._receiver is not None:
            self._receiver.resume()

    def _stuff(self, stuffed: bool) -> None:
        self._stuffed = stuffed
        if self._receiver is not None:
            self._receiver.stuffed = stuffed or self._held_back
        self._choose()

    # From those who look after all connections

    def hold_back(self, held: bool) -> None:
        """Carry out nothing more for this client, and do not read from it; or go on."""
        if held == self._held_back:
            return
        self._held_back = held
        receiver = self._receiver
        if receiver is not None:
            receiver.stuffed = held or self._stuffed
        self._choose()
        if receiver is not None and not receiver.stuffed:
            receiver.resume()

    def unsent(self) -> i64:
        """Bytes of replies that the client has not taken."""
        return 0 if self._transport is None else self._transport.get_write_buffer_size()

    def unanswered(self) -> i64:
        """Bytes of commands that are kept."""
        return 0 if self._receiver is None else self._receiver.holding()

    def verdict(self, now: i64, patience: i64) -> i64:
        """Whether this client has not got on for so long; to be asked now and then."""
        if self._is_deaf(now, patience):
            return STALLED_OUTPUT
        return STALLED_INPUT if self._is_stuck(now, patience) else FINE

    def _is_deaf(self, now: i64, patience: i64) -> bool:
        unsent = self.unsent()
        taken = self._written - unsent
        if not unsent:
            self._taken_since = 0
        elif not self._taken_since or taken > self._taken:
            self._taken_since = now
            self._taken = taken
        else:
            return now - self._taken_since >= patience
        return False

    def _is_stuck(self, now: i64, patience: i64) -> bool:
        receiver = self._receiver
        if receiver is None or not self._is_awaited() or not receiver.half_read():
            self._command_since = 0
            return False
        commands = receiver.commands
        more = self._received - self._command_size
        if not self._command_since or commands != self._command or more >= _PROGRESS:
            self._command_since = now
            self._command = commands
            self._command_size = self._received
            return False
        return now - self._command_since >= patience

    def _is_awaited(self) -> bool:
        """Whether more would be taken from this client, if only it sent something."""
        if self._ended or self._stuffed or not self._wanted:
            return False
        return not self._held_back or not self._has_more()

    def _has_more(self) -> bool:
        """Whether something has arrived that was not read."""
        if self._transport is None or self._transport.is_closing():
            return False
        found = self._transport.get_extra_info("socket")
        return found is not None and _arrived(found.fileno()) > 0

    def can_go_on(self) -> bool:
        """Whether it would hold less in the end if it were not held back."""
        receiver = self._receiver
        if receiver is None or self._stuffed or self.unsent():
            return False
        return not receiver.waits_for_input() or self._has_more()

    def let_go(self, verdict: i64) -> None:
        receiver = self._receiver
        stalled = verdict == STALLED_INPUT
        why = "a command did not come to its end" if stalled else "replies were not taken"
        self._ends(why)
        told = {} if receiver is None else receiver.told()
        log.info("a client was let go", extra=fields(**told, why=why))
        if stalled and receiver is not None:
            receiver.stalled()
        else:
            self.abort()

    def standing(self) -> i64:
        """Whether its client has said who it is."""
        receiver = self._receiver
        if receiver is not None:
            return receiver.standing()
        return BUSY if self.outer is None else STRANGER

    def send_away(self, why: str, at_once: bool = False) -> None:
        """Its client has not; `at_once`: its place is another's already."""
        self._ends(why)
        receiver = self._receiver
        if receiver is not None:
            receiver.dismissed(why)
        if at_once:
            self._give_place()
        if at_once or receiver is None:
            self.abort()

    # As the dialect's transport

    def become(self, receiver: Receiver) -> None:
        """The connection goes on in another protocol."""
        receiver.stuffed = self._stuffed or self._held_back
        receiver.connection = self.number
        if self._open.strangers is not None:
            receiver.on_stranger = self.is_coming
        if self._receiver is not None:
            receiver.commands += self._receiver.commands
        self._receiver = receiver

    def raw(self) -> asyncio.Transport:
        assert self._transport is not None
        self._end_sending()  # what others write must not be overtaken
        return self._transport

    def certificate_name(self) -> str:
        """Whose certificate the client has shown, as verified by TLS; "": nobody's."""
        transport = self._transport
        return "" if transport is None else str(transport.get_extra_info("certificate_name", ""))

    def write(self, data: bytes) -> None:
        size: i64 = len(data)
        self._written += size
        if self._file >= 0:
            self._send(data)
        else:
            self._leave_to_transport(data)
        everyone = self._open
        everyone.fresh += size
        if everyone.fresh > everyone.budget:
            everyone.spent(self)

    def _leave_to_transport(self, data: bytes) -> None:
        transport = self._transport
        if transport is not None and not transport.is_closing():  # uvloop would raise
            transport.write(data)

    def _send(self, data: bytes) -> None:
        """Into the socket itself, or by the postman: the transport is for what does not fit. It
        would keep the bytes until the end of the round, at twice the cost."""
        if self._queued:
            if self.unsent():
                self._leave_to_transport(data)
                return
            self._queued = False
        postman = self._open.postman
        if postman is not None:
            if self.posted == postman.bag:
                if postman.add(self, data) > _PARCEL:  # let it feel that the client does not read
                    self._hand_over()
                return
            if self.posted > postman.delivered or (
                self._open.crowded and len(data) <= _LETTER and postman.is_wanted()
            ):
                postman.post(self, self._file, data)
                return
        self.send_now(data)

    def send_now(self, data: bytes) -> None:
        file = self._file
        if file < 0:
            return  # it is lost
        sent: i64 = 0
        try:
            sent = os.write(file, data)
        except OSError:  # full, or broken: the transport waits, or finds out why
            sent = 0
        if sent != len(data):
            self.not_sent(data[sent:] if sent else data)

    # From and to the postman

    def not_sent(self, data: bytes) -> None:
        """The socket has not taken this."""
        self.posted = 0
        self._queued = True
        self._leave_to_transport(data)

    def _take_back(self) -> bytes:
        """What the postman has for this client and has not set out with; the rest is sent."""
        postman = self._open.postman
        if postman is None or self.posted <= postman.delivered:
            return b""
        waiting = b""
        on_its_way = self.posted
        if on_its_way == postman.bag:
            on_its_way = self.before
            waiting = postman.take_out(self)
        if on_its_way > postman.delivered:
            postman.wait()
        self.posted = 0
        return waiting

    def _hand_over(self) -> None:
        """Send what the postman has."""
        data = self._take_back()
        if data:
            if self._queued:
                self._leave_to_transport(data)
            else:
                self.send_now(data)

    def _end_sending(self) -> None:
        """Nothing goes past the transport from now on, which is about to close."""
        self._hand_over()
        self._file = -1

    def pause_reading(self) -> None:
        self._wanted = False
        self._choose()

    def resume_reading(self) -> None:
        self._wanted = True
        self._choose()

    def close(self) -> None:
        self._ends("the server has closed it")
        self._end_sending()
        if self._transport is not None:
            self._transport.close()

    def linger(self) -> None:
        self._ends("the client broke the protocol")
        transport = self._transport
        if transport is None or transport.is_closing() or self._ended:
            self.close()
            return
        self._end_sending()
        transport.write_eof()
        self._lingering = asyncio.get_running_loop().call_later(_LINGER, self.abort)
        self.resume_reading()

    def abort(self) -> None:
        self._ends("the server has cut it off")
        self._take_back()
        self._file = -1
        if self._transport is not None:
            self._transport.abort()
        elif self.outer is not None:
            self.outer.abort()

    def _choose(self) -> None:
        transport = self._transport
        if transport is None or transport.is_closing() or self._ended:
            return
        wanted = self._wanted and not self._stuffed and not self._held_back
        if wanted != transport.is_reading():
            if wanted:
                transport.resume_reading()
            else:
                transport.pause_reading()


def _arrived(file: int) -> int:
    """Bytes that wait to be read from a socket."""
    return int.from_bytes(fcntl.ioctl(file, termios.FIONREAD, bytes(4)), sys.byteorder)


def _plain_socket(transport: asyncio.BaseTransport) -> int:
    """The descriptor of a socket to which bytes go as they are; -1: TLS, or no socket."""
    if transport.get_extra_info("ssl_object") is not None:
        return -1
    found = transport.get_extra_info("socket")
    return -1 if found is None else int(found.fileno())


def _peer(transport: asyncio.BaseTransport) -> str:
    address = transport.get_extra_info("peername")
    return f"{address[0]}:{address[1]}" if isinstance(address, tuple) else "unknown"
