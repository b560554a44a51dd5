"""Accepts connections, up to the limits.

The server accepts by itself instead of leaving that to the event loop, whose listeners end at the
first accept for which there is no descriptor. Here they pause for a moment, and continue.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import resource
import socket
from collections import deque
from collections.abc import Callable, Mapping, MutableMapping
from functools import partial
from typing import Final

from taskyard.broker.metrics import LimitCounters
from taskyard.protocols.http.wire import encode, problem
from taskyard.server.logs import fields, log
from taskyard.server.net.connection import Connection
from taskyard.server.settings.schema import ConfigError, Settings, identifies_clients, is_local

_BACKLOG: Final = 1024
_ACCEPTS_PER_STEP: Final = 64  # connections that are accepted before it is the turn of others
_PAUSE_SECONDS: Final = 0.25  # seconds, after the system had no descriptor for a connection
_MAX_REFUSED_OPEN: Final = 8  # connections that were refused and may still read why
_KEEP_ALIVE_PROBES: Final = 4  # that a peer may leave unanswered

FIRST_DESCRIPTOR: Final = 3  # the descriptors before that are input, output and errors
_VARIABLES: Final = ("LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES")

# descriptors that connections leave to the journal and to the process
RESERVED_DESCRIPTORS: Final = 64

TlsFactory = Callable[[Connection], asyncio.Protocol]  # what speaks TLS in front of it
ConnectionFactory = Callable[
    [Callable[[], None]], Connection
]  # from what is to be called when it is gone

PassedSockets = dict[str, list[socket.socket]]  # by the name of the listener


# Listeners


class KeyedCounter:
    """Counts something for each key, such as connections for an address, up to a limit. 0: no
    limit.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._counts: dict[str, int] = {}

    def try_add(self, key: str) -> bool:
        """False if the key has as many as it may have."""
        if not self._limit:
            return True
        taken = self._counts.get(key, 0)
        if taken >= self._limit:
            return False
        self._counts[key] = taken + 1
        return True

    def has_capacity(self, key: str) -> bool:
        return not self._limit or self._counts.get(key, 0) < self._limit

    def remove(self, key: str) -> None:
        left = self._counts.get(key, 0) - 1
        if left > 0:
            self._counts[key] = left
        else:
            self._counts.pop(key, None)


class ConnectionLimits:
    """The limits of open connections: in total, and for each address."""

    def __init__(
        self, total: int, per_address: int, counters: LimitCounters, exempts_local: bool = False
    ) -> None:
        """`exempts_local`: clients on this machine have no limit per address."""
        self._total = total
        self._addresses = KeyedCounter(per_address)
        self._exempts_local = exempts_local
        self._counters = counters
        self.open_count = 0
        # Closes a connection without a login; False: there is none.
        self.evict_oldest: Callable[[], bool] | None = None

    def admit(self, address: str) -> str:
        """Count one more connection from there and return ""; or return why it is refused. What is
        counted must be released.
        """
        counts = not (self._exempts_local and _is_loopback(address))
        if self.open_count >= self._total and not self._evict_for(address, counts):
            self._counters.refused_total += 1
            return self._log_refusal("too many connections", address, self._counters.refused_total)
        if counts and not self._addresses.try_add(address):
            self._counters.refused_address += 1
            why = "too many connections from this address"
            return self._log_refusal(why, address, self._counters.refused_address)
        self.open_count += 1
        return ""

    def _evict_for(self, address: str, counts: bool) -> bool:
        if self.evict_oldest is None or (counts and not self._addresses.has_capacity(address)):
            return False
        return self.evict_oldest() and self.open_count < self._total

    def _log_refusal(self, reason: str, address: str, times: int) -> str:
        if times & (times - 1) == 0:  # not each of them: the log is not for clients to fill
            told = fields(address=address, times=times, reason=reason)
            log.warning("connection refused", extra=told)
        return reason

    def release(self, address: str) -> None:
        self.open_count -= 1
        self._addresses.remove(address)


class Listener:
    """One protocol's port, on each address of the host's name."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        protocol_name: str,
        make_connection: ConnectionFactory,
        limits: ConnectionLimits,
        counters: LimitCounters,
        make_tls: TlsFactory | None = None,
        keep_alive_us: int = 180_000_000,
    ) -> None:
        """`keep_alive`: microseconds after which a peer that has vanished is found out."""
        self.sockets: list[socket.socket] = []
        self._loop = loop
        self._protocol_name = protocol_name
        self._make_connection = make_connection
        self._limits = limits
        self._counters = counters
        self._make_tls = make_tls
        self._keep_alive_us = keep_alive_us
        self._connecting: set[asyncio.Task[None]] = set()
        self._refused: deque[socket.socket] = deque()
        self._paused = False

    async def open(self, host: str, port: int) -> None:
        found = await self._loop.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
        for family, kind, protocol, _, address in dict.fromkeys(found):
            listener = socket.socket(family, kind, protocol)
            self.sockets.append(listener)
            _prepare_socket(listener, self._keep_alive_us)
            try:
                listener.bind(address)
            except OSError as error:
                raise OSError(self._bind_error_text(host, port, error)) from None
            listener.listen(_BACKLOG)
        self._start_accepting()

    def _bind_error_text(self, host: str, port: int, error: OSError) -> str:
        why = str(error.strerror).lower()
        text = f"cannot listen at {host}:{port} for {self._protocol_name}: {why}"
        if error.errno != errno.EADDRINUSE:
            return text
        flag = f"--{self._protocol_name}-port"
        return f"{text}. Stop the program that uses it, or choose another port with {flag}"

    def adopt_sockets(self, sockets: list[socket.socket]) -> None:
        """Listen on sockets of another process, which stay open when this one ends."""
        self.sockets = sockets
        for listener in sockets:
            _set_options(listener, self._keep_alive_us)
        self._start_accepting()

    def _start_accepting(self) -> None:
        for listener in self.sockets:
            self._loop.add_reader(listener, self._accept, listener)

    def close(self) -> None:
        for listener in self.sockets:
            self._loop.remove_reader(listener)
            listener.close()
        while self._refused:
            self._refused.popleft().close()

    def _accept(self, listener: socket.socket) -> None:
        for _ in range(_ACCEPTS_PER_STEP):
            try:
                peer, address = listener.accept()
            except (BlockingIOError, InterruptedError):
                return
            except ConnectionError:
                continue  # it has gone before it was let in
            except OSError as error:
                self._pause_accepting(listener, error)
                return
            self._paused = False
            peer.setblocking(False)
            self._admit(peer, str(address[0]))

    def _pause_accepting(self, listener: socket.socket, error: OSError) -> None:
        """Stop accepting for a moment: there is no descriptor, or no memory, for one more. New
        connections wait in the backlog.
        """
        self._counters.failed_accepts += 1
        if not self._paused:
            self._paused = True
            log.error(
                "cannot accept connections: %s",
                error,
                extra=fields(dialect=self._protocol_name),
            )
        self._loop.remove_reader(listener)
        self._loop.call_later(_PAUSE_SECONDS, self._resume_accepting, listener)

    def _resume_accepting(self, listener: socket.socket) -> None:
        if listener.fileno() >= 0:
            self._loop.add_reader(listener, self._accept, listener)

    def _admit(self, peer: socket.socket, address: str) -> None:
        refusal = self._limits.admit(address)
        if refusal:
            self._refuse(peer, refusal)
            return
        connection = self._make_connection(partial(self._limits.release, address))
        task = self._loop.create_task(self._connect(peer, connection))
        self._connecting.add(task)
        task.add_done_callback(self._connecting.discard)

    async def _connect(self, peer: socket.socket, connection: Connection) -> None:
        protocol = connection if self._make_tls is None else self._make_tls(connection)
        connection.start_login_timeout()
        try:
            await self._loop.connect_accepted_socket(lambda: protocol, peer)
        except OSError:  # it has gone meanwhile
            connection.on_gone()
            peer.close()

    def _refuse(self, peer: socket.socket, text: str) -> None:
        """Say why, and close. It stays for a moment, since a close with something unread would be
        a reset, which may overtake the reason."""
        try:
            if self._make_tls is None:
                peer.send(refusal_bytes(self._protocol_name, text))
            peer.shutdown(socket.SHUT_WR)
            peer.recv(65_536)
        except OSError:  # nothing to read, or it has gone
            pass
        self._refused.append(peer)
        if len(self._refused) > _MAX_REFUSED_OPEN:
            self._refused.popleft().close()
        else:
            self._loop.call_later(_PAUSE_SECONDS, self._close_oldest_refused)

    def _close_oldest_refused(self) -> None:
        if self._refused:
            self._refused.popleft().close()


def refusal_bytes(protocol_name: str, text: str) -> bytes:
    """The refusal in the protocol's own words."""
    if protocol_name == "masenko":
        return f'ERR {{"msg":"{text}"}}\n'.encode()
    if protocol_name == "workq":
        return f"-SERVER-ERROR {text[0].upper()}{text[1:]}\r\n".encode()
    if protocol_name == "resp":
        return b"-ERR max number of clients reached\r\n"
    answer = problem(503, f"The server has {text}: try again later.")
    answer.headers.append(("retry-after", "1"))
    return encode(answer, keep_alive=False, head_only=False)


def _is_loopback(address: str) -> bool:
    return address.startswith(("127.", "::ffff:127.")) or address == "::1"


def _prepare_socket(listener: socket.socket, keep_alive: int) -> None:
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if listener.family == socket.AF_INET6:
        listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
    _set_options(listener, keep_alive)


def _set_options(listener: socket.socket, keep_alive: int) -> None:
    """What is set here holds for the connections that it accepts."""
    listener.setblocking(False)
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _keep_alive_options(keep_alive // 1000):
        if hasattr(socket, name):
            listener.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


def _keep_alive_options(milliseconds: int) -> list[tuple[str, int]]:
    """The options of TCP keep-alive: a silent peer is probed after two thirds of the time, and
    dropped at its end; so is one that does not acknowledge.
    """
    seconds = milliseconds // 1000
    return [
        ("TCP_KEEPIDLE", max(1, seconds * 2 // 3)),
        ("TCP_KEEPINTVL", max(1, seconds // (3 * _KEEP_ALIVE_PROBES))),
        ("TCP_KEEPCNT", _KEEP_ALIVE_PROBES),
        ("TCP_USER_TIMEOUT", milliseconds),
    ]


# Sockets passed by the process that started the server, as systemd does it


def collect_passed_sockets(settings: Settings, environ: MutableMapping[str, str]) -> PassedSockets:
    """Return the listening sockets that were passed to this process, and to none that it starts.

    They stay open while the server restarts: clients that connect meanwhile wait instead of being
    refused. LISTEN_FDS of them start at descriptor 3. Each belongs to the listener that its name in
    LISTEN_FDNAMES says, or else to the one whose port it is bound to.
    """
    found = _passed_descriptors(environ)
    for variable in _VARIABLES:
        environ.pop(variable, None)
    passed: PassedSockets = {}
    for number, name in found:
        taken = _open_socket(number)
        try:
            listener = _listener_of(taken, name, settings)
        except ConfigError:
            taken.close()
            raise
        passed.setdefault(listener, []).append(taken)
    return passed


def _passed_descriptors(environ: Mapping[str, str]) -> list[tuple[int, str]]:
    """Descriptors and their names; "": it has none that says anything."""
    if environ.get("LISTEN_PID") != str(os.getpid()):
        return []  # they are another's
    text = environ.get("LISTEN_FDS", "")
    if not text.isascii() or not text.isdigit():
        raise ConfigError(f"LISTEN_FDS must be a number, not {text!r}.")
    names = environ.get("LISTEN_FDNAMES", "").split(":")
    count = int(text)
    names += [""] * (count - len(names))
    return [(FIRST_DESCRIPTOR + index, names[index]) for index in range(count)]


def _open_socket(number: int) -> socket.socket:
    try:
        os.set_inheritable(number, False)
        taken = socket.socket(fileno=number)
        is_listening = taken.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
    except OSError as error:
        raise ConfigError(f"Descriptor {number} was passed and is no socket: {error}.") from error
    if taken.family not in (socket.AF_INET, socket.AF_INET6) or not is_listening:
        taken.close()
        raise ConfigError(f"Descriptor {number} was passed and does not listen to TCP.")
    return taken


def _listener_of(taken: socket.socket, name: str, settings: Settings) -> str:
    host, port = taken.getsockname()[:2]
    ports = {
        "masenko": settings.masenko_port,
        "workq": settings.workq_port,
        "resp": settings.resp_port,
        "http": settings.http_port,
    }
    if name not in ports:
        name = next((each for each, known in ports.items() if known == port), "")
    if not name or ports[name] is None:
        raise ConfigError(f"A socket at {host}:{port} was passed, which is no listener's port.")
    if not is_local(host) and not identifies_clients(settings):
        raise ConfigError(
            f"A socket at {host}:{port} was passed, which other machines may reach: name the users "
            "with --users, have clients show certificates with --tls-client-ca, or allow it with "
            "--allow-anonymous on."
        )
    return name


# Limits of open files


def raise_file_limit() -> None:
    """As many connections as the system allows; the usual soft limit is for other programs."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def max_open_connections(configured: int | None) -> int:
    """Return the configured number, less what the other descriptors need."""
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if files == resource.RLIM_INFINITY:
        return configured or 10_000_000
    possible = files - min(RESERVED_DESCRIPTORS, files // 2)
    if configured is not None and configured > possible:
        log.warning(
            "fewer connections possible than configured: the open file limit is too low",
            extra=fields(connections=possible, configured=configured, files=files),
        )
    return possible if configured is None else min(configured, possible)
