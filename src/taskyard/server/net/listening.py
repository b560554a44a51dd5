"""Accepting connections, as many as there may be.

The server accepts by itself instead of leaving that to the event loop, whose listeners end at the
first accept for which there is no descriptor. Here they rest for a moment, and go on.
"""

from __future__ import annotations

import asyncio
import errno
import socket
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Final

from taskyard.broker.metrics import Strain
from taskyard.protocols.http.problems import problem
from taskyard.protocols.http.wire import encode
from taskyard.server.logs import fields, log
from taskyard.server.net.connection import Connection

_BACKLOG: Final = 1024
_AT_ONCE: Final = 64  # connections that are accepted before it is the turn of others
_REST: Final = 0.25  # seconds, after the system had no descriptor for a connection
_LEAVING: Final = 8  # connections that were refused and may still read why
_PROBES: Final = 4  # that a peer may leave unanswered

Secure = Callable[[Connection], asyncio.Protocol]  # what speaks TLS in front of it
Make = Callable[[Callable[[], None]], Connection]  # from what is to be called when it is gone


class Shares:
    """So many of something for each key, such as connections for an address. 0: any number."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._taken: dict[str, int] = {}

    def take(self, key: str) -> bool:
        """False if the key has as many as it may have."""
        if not self._limit:
            return True
        taken = self._taken.get(key, 0)
        if taken >= self._limit:
            return False
        self._taken[key] = taken + 1
        return True

    def has_room(self, key: str) -> bool:
        return not self._limit or self._taken.get(key, 0) < self._limit

    def give_back(self, key: str) -> None:
        left = self._taken.get(key, 0) - 1
        if left > 0:
            self._taken[key] = left
        else:
            self._taken.pop(key, None)


class Admission:
    """Who may come in: so many in all, and so many from each address."""

    def __init__(
        self, total: int, per_address: int, strain: Strain, spares_local: bool = False
    ) -> None:
        """`spares_local`: this machine's own clients may take all there is."""
        self._total = total
        self._addresses = Shares(per_address)
        self._spares_local = spares_local
        self._strain = strain
        self.open = 0
        # Lets somebody go who has not said who they are; False: there is nobody.
        self.make_room: Callable[[], bool] | None = None

    def refusal(self, address: str) -> str:
        """Why one more is not let in from there; "": it is, and must `leave` one day."""
        counts = not (self._spares_local and _is_of_this_machine(address))
        if self.open >= self._total and not self._finds_room(address, counts):
            self._strain.refused_total += 1
            return self._refusal("too many connections", address, self._strain.refused_total)
        if counts and not self._addresses.take(address):
            self._strain.refused_address += 1
            why = "too many connections from this address"
            return self._refusal(why, address, self._strain.refused_address)
        self.open += 1
        return ""

    def _finds_room(self, address: str, counts: bool) -> bool:
        if self.make_room is None or (counts and not self._addresses.has_room(address)):
            return False
        return self.make_room() and self.open < self._total

    def _refusal(self, why: str, address: str, times: int) -> str:
        if times & (times - 1) == 0:  # not each of them: the log is not for clients to fill
            told = fields(address=address, times=times, why=why)
            log.warning("a connection was not let in", extra=told)
        return why

    def leave(self, address: str) -> None:
        self.open -= 1
        self._addresses.give_back(address)


class Listener:
    """One dialect's port, on each address that the host's name stands for."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        dialect: str,
        make: Make,
        admission: Admission,
        strain: Strain,
        secure: Secure | None = None,
        keep_alive: int = 180_000_000,
    ) -> None:
        """`keep_alive`: microseconds after which a peer that has vanished is found out."""
        self.sockets: list[socket.socket] = []
        self._loop = loop
        self._dialect = dialect
        self._make = make
        self._admission = admission
        self._strain = strain
        self._secure = secure
        self._keep_alive = keep_alive
        self._coming: set[asyncio.Task[None]] = set()
        self._leaving: deque[socket.socket] = deque()
        self._resting = False

    async def open(self, host: str, port: int) -> None:
        found = await self._loop.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
        for family, kind, protocol, _, address in dict.fromkeys(found):
            listener = socket.socket(family, kind, protocol)
            self.sockets.append(listener)
            _prepare(listener, self._keep_alive)
            try:
                listener.bind(address)
            except OSError as error:
                raise OSError(self._why_not(host, port, error)) from None
            listener.listen(_BACKLOG)
        self._begin()

    def _why_not(self, host: str, port: int, error: OSError) -> str:
        why = str(error.strerror).lower()
        text = f"cannot listen at {host}:{port} for {self._dialect}: {why}"
        if error.errno != errno.EADDRINUSE:
            return text
        flag = f"--{self._dialect}-port"
        return f"{text}. Stop the program that uses it, or choose another port with {flag}"

    def take_over(self, sockets: list[socket.socket]) -> None:
        """Listen at those that were opened by somebody else, and stay open when this ends."""
        self.sockets = sockets
        for listener in sockets:
            _set_options(listener, self._keep_alive)
        self._begin()

    def _begin(self) -> None:
        for listener in self.sockets:
            self._loop.add_reader(listener, self._accept, listener)

    def close(self) -> None:
        for listener in self.sockets:
            self._loop.remove_reader(listener)
            listener.close()
        while self._leaving:
            self._leaving.popleft().close()

    def _accept(self, listener: socket.socket) -> None:
        for _ in range(_AT_ONCE):
            try:
                peer, address = listener.accept()
            except (BlockingIOError, InterruptedError):
                return
            except ConnectionError:
                continue  # it has gone before it was let in
            except OSError as error:
                self._rest(listener, error)
                return
            self._resting = False
            peer.setblocking(False)
            self._let_in(peer, str(address[0]))

    def _rest(self, listener: socket.socket, error: OSError) -> None:
        """There is no descriptor, or no memory, for one more. Those that come wait in their
        line: to look at it again and again would take the time from those who are here."""
        self._strain.not_accepted += 1
        if not self._resting:
            self._resting = True
            log.error(
                "no connection can be accepted: %s", error, extra=fields(dialect=self._dialect)
            )
        self._loop.remove_reader(listener)
        self._loop.call_later(_REST, self._go_on, listener)

    def _go_on(self, listener: socket.socket) -> None:
        if listener.fileno() >= 0:
            self._loop.add_reader(listener, self._accept, listener)

    def _let_in(self, peer: socket.socket, address: str) -> None:
        refusal = self._admission.refusal(address)
        if refusal:
            self._refuse(peer, refusal)
            return
        connection = self._make(partial(self._admission.leave, address))
        task = self._loop.create_task(self._connect(peer, connection))
        self._coming.add(task)
        task.add_done_callback(self._coming.discard)

    async def _connect(self, peer: socket.socket, connection: Connection) -> None:
        protocol = connection if self._secure is None else self._secure(connection)
        connection.is_coming()
        try:
            await self._loop.connect_accepted_socket(lambda: protocol, peer)
        except OSError:  # it has gone meanwhile
            connection.left()
            peer.close()

    def _refuse(self, peer: socket.socket, text: str) -> None:
        """Say why, and close. It stays for a moment, since a close with something unread would be
        a reset, which may overtake the reason."""
        try:
            if self._secure is None:
                peer.send(refusal_of(self._dialect, text))
            peer.shutdown(socket.SHUT_WR)
            peer.recv(65_536)
        except OSError:  # nothing to read, or it has gone
            pass
        self._leaving.append(peer)
        if len(self._leaving) > _LEAVING:
            self._leaving.popleft().close()
        else:
            self._loop.call_later(_REST, self._close_first)

    def _close_first(self) -> None:
        if self._leaving:
            self._leaving.popleft().close()


def refusal_of(dialect: str, text: str) -> bytes:
    """The same in the words of the protocol."""
    if dialect == "masenko":
        return f'ERR {{"msg":"{text}"}}\n'.encode()
    if dialect == "workq":
        return f"-SERVER-ERROR {text[0].upper()}{text[1:]}\r\n".encode()
    if dialect == "resp":
        return b"-ERR max number of clients reached\r\n"
    answer = problem(503, f"The server has {text}: try again later.")
    answer.headers.append(("retry-after", "1"))
    return encode(answer, keep_alive=False, head_only=False)


def _is_of_this_machine(address: str) -> bool:
    return address.startswith(("127.", "::ffff:127.")) or address == "::1"


def _prepare(listener: socket.socket, keep_alive: int) -> None:
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if listener.family == socket.AF_INET6:
        listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
    _set_options(listener, keep_alive)


def _set_options(listener: socket.socket, keep_alive: int) -> None:
    """What is set here holds for the connections that it accepts."""
    listener.setblocking(False)
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _patience(keep_alive // 1000):
        if hasattr(socket, name):
            listener.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


def _patience(milliseconds: int) -> list[tuple[str, int]]:
    """Who is silent is asked when two thirds of the time are over, and again until it is. Who has
    not confirmed what it was sent is asked nothing, and would stay for a quarter of an hour."""
    seconds = milliseconds // 1000
    return [
        ("TCP_KEEPIDLE", max(1, seconds * 2 // 3)),
        ("TCP_KEEPINTVL", max(1, seconds // (3 * _PROBES))),
        ("TCP_KEEPCNT", _PROBES),
        ("TCP_USER_TIMEOUT", milliseconds),
    ]
