"""Between a socket and a protocol: bytes in, bytes out, backpressure both ways.

listener.py makes the connections; sending.py sends the replies of many at once.
"""

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

from taskyard.broker.commit import Broker
from taskyard.broker.interfaces import Cancellable, Scheduler
from taskyard.broker.turns import AUTHENTICATING, UNAUTHENTICATED, ClientConnection
from taskyard.server.logs import fields, log

if TYPE_CHECKING:
    from taskyard.server.net.sending import BatchingReplySender


_DRAIN_SECONDS: Final = 2.0  # seconds that a client has to read its last reply while it still sends
# Bytes of one command that a client must send while others are disconnected for being too slow.
_PROGRESS_BYTES: Final = 4096
# Connections up to which replies are sent at once: a batch would be sent later.
_MAX_CONNECTIONS_WITHOUT_BATCHING: Final = 4
# And from which on they may take so long that their requests are acknowledged before.
_MAX_CONNECTIONS_WITH_PROMPT_ACKS: Final = 1000
_MAX_BATCHED_REPLY_BYTES: Final = 65_536  # bytes up to which a reply joins a batch
_MAX_BATCHED_CLIENT_BYTES: Final = 65_536  # and which are too many for one that has some already
NO_LIMIT: Final = 0x7FFF_FFFF_FFFF_FFFF

_CHECKS_PER_TIMEOUT: Final = 4  # in the time after which a client is disconnected
_MAX_INTERVAL_US: Final = 15_000_000  # microseconds between two walks
_CONNECTIONS_PER_STEP: Final = 1000  # connections, before it is the turn of others

# What `Connection.check_progress` finds.
NOT_STALLED: Final = 0
STALLED_INPUT: Final = 1  # a command has begun, and its end does not arrive
STALLED_OUTPUT: Final = 2  # the client does not take its replies


# Connections


class LoginTracker(Seam):
    """Tracks connections whose clients have to log in."""

    def add(self, one: Connection) -> None: ...

    def discard(self, one: Connection) -> None: ...


class ProtocolFactory(Seam):
    """Makes the protocol object of each connection of a listener."""

    def connect(self, transport: Connection, peer: str) -> ClientConnection: ...


class ConnectionRegistry:
    """The open connections, and a way to wait until all are closed."""

    def __init__(self) -> None:
        self._open: dict[Connection, None] = {}  # in the order in which they were opened
        self._empty = asyncio.Event()
        self._empty.set()
        self.shutting_down = False  # new ones are shut down at once
        self.last_number: i64 = 0  # connections that there were
        # Bytes received and sent since the memory of all of them was last measured, and how
        # many there may be until that is done again: see memory_limit.py.
        self.bytes_since_check: i64 = 0
        self.check_after_bytes: i64 = NO_LIMIT
        self.on_check_due: Callable[[Connection], None] | None = None
        self.reply_sender: BatchingReplySender | None = None
        self.use_batching = False  # there are so many that batches are worth it
        self.login_tracker: LoginTracker | None = None  # where clients have to log in
        # and so many that replies take longer than TCP waits for them
        self.use_delayed_acks = False

    def all(self) -> list[Connection]:
        return list(self._open)

    def check_memory(self, connection: Connection) -> None:
        """Check the memory of all connections: the bytes until the next check are used up."""
        if self.on_check_due is not None:
            self.on_check_due(connection)

    def add(self, connection: Connection) -> None:
        self._open[connection] = None
        self._update_modes()
        self._empty.clear()

    def discard(self, connection: Connection) -> None:
        self._open.pop(connection, None)
        self._update_modes()
        if not self._open:
            self._empty.set()

    def _update_modes(self) -> None:
        self.use_batching = len(self._open) > _MAX_CONNECTIONS_WITHOUT_BATCHING
        self.use_delayed_acks = len(self._open) > _MAX_CONNECTIONS_WITH_PROMPT_ACKS

    async def wait_until_closed(self, seconds: float) -> None:
        """Wait this long until all are closed; then abort those that are left."""
        try:
            await asyncio.wait_for(self._empty.wait(), seconds)
        except TimeoutError:
            for connection in list(self._open):
                connection.abort()


class Connection(Protocol):
    """One client. What the protocol writes is sent as it is; a client that does not read is not
    read from, so that its replies stay within bounds.
    """

    def __init__(
        self,
        protocol_factory: ProtocolFactory,
        output_limit: int,
        registry: ConnectionRegistry,
        on_gone: Callable[[], None] | None = None,
    ) -> None:
        """`leave` is called once, when the connection is gone."""
        self._protocol_factory = protocol_factory
        self._output_limit = output_limit
        self._registry = registry
        self._transport: asyncio.Transport | None = None
        self._client: ClientConnection | None = None
        self._output_blocked = False  # the client does not read what it was sent
        self._paused_for_memory = False  # it waits until there is memory for more
        self._wants_input = True  # the protocol wants to read
        self._input_ended = False  # nothing more can be read
        self._descriptor: i64 = -1  # of the socket, if bytes go into it as they are
        self._transport_has_output = False  # the transport may have some that must go before
        self.reply_batch: i64 = 0  # the last batch that has a reply for it
        self.reply_index: i64 = 0  # where that is
        self.previous_batch: i64 = 0  # the one before that
        self._drain_timer: asyncio.TimerHandle | None = None
        self._on_gone = on_gone
        registry.last_number += 1
        self.number: i64 = registry.last_number  # in the log
        self._opened_at = 0.0
        self._close_reason = ""  # it ends
        # that speaks TLS, until it has shaken hands
        self.tls_transport: asyncio.Transport | None = None
        self._received_bytes: i64 = 0
        self._written_bytes: i64 = 0
        # As `check_progress` last saw it.
        self._taken_bytes: i64 = 0  # bytes that the client has taken
        self._taken_since: i64 = 0  # no more since then; 0: it has taken all
        self._partial_command: i64 = 0  # how many were executed before the incomplete one
        self._partial_received_bytes: i64 = 0  # bytes received then
        self._partial_since: i64 = 0  # 0: none is half here

    def start_login_timeout(self) -> None:
        """Start the time for a login, of a new client or of one whose login was revoked."""
        if self._registry.login_tracker is not None:
            self._registry.login_tracker.add(self)

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        transport.set_write_buffer_limits(high=self._output_limit)
        self._transport = transport
        self.tls_transport = None
        self._descriptor = _plain_socket(transport)
        self._registry.add(self)
        self.start_login_timeout()
        receiver = self._protocol_factory.connect(self, _peer_address(transport))
        self._client = receiver
        receiver.connection_number = self.number
        if self._registry.login_tracker is not None:
            receiver.on_login_lost = self.start_login_timeout
        if log.isEnabledFor(logging.DEBUG):
            self._opened_at = time.monotonic()
            log.debug("connection opened", extra={"fields": receiver.log_fields()})
        if self._registry.shutting_down:
            receiver.shut_down()

    def data_received(self, data: bytes) -> None:
        size: i64 = len(data)
        self._received_bytes += size
        everyone = self._registry
        everyone.bytes_since_check += size
        if everyone.bytes_since_check > everyone.check_after_bytes:
            everyone.check_memory(self)
        if self._client is not None:
            self._client.feed(data)

    def eof_received(self) -> bool:
        """The client may have closed only its half of the connection, and wait for replies."""
        self._input_ended = True
        self._set_close_reason("closed by the client")
        if self._drain_timer is not None:
            return False
        if self._client is not None:
            self._client.on_eof()
        return True

    def connection_lost(self, exc: Exception | None) -> None:
        self._withdraw_pending()  # before the descriptor is another connection's
        self._descriptor = -1
        receiver = self._client
        self._client = None
        self._registry.discard(self)
        if self._drain_timer is not None:
            self._drain_timer.cancel()
        if receiver is not None:
            if self._opened_at:
                self._log_close(receiver, exc)
            receiver.on_disconnect()
        self.on_gone()

    def _set_close_reason(self, reason: str) -> None:
        """Set the reason of the close, unless there is one already."""
        if not self._close_reason:
            self._close_reason = "server stopping" if self._registry.shutting_down else reason

    def _log_close(self, client: ClientConnection, exc: Exception | None) -> None:
        self._set_close_reason(
            "connection broken" if exc is None else f"connection broken: {type(exc).__name__}"
        )
        told = client.log_fields()
        told["seconds"] = round(time.monotonic() - self._opened_at, 3)
        told["commands"] = int(client.command_count)
        told["received"] = int(self._received_bytes)
        told["sent"] = int(self._written_bytes)
        told["reason"] = self._close_reason
        log.debug("connection closed", extra={"fields": told})

    def on_gone(self) -> None:
        """Release the connection's place: it is closed, or was never opened."""
        if self._registry.login_tracker is not None:
            self._registry.login_tracker.discard(self)
        self.tls_transport = None
        self._release_limits()

    def _release_limits(self) -> None:
        leave = self._on_gone
        self._on_gone = None
        if leave is not None:
            leave()

    def pause_writing(self) -> None:
        self._set_output_blocked(True)

    def resume_writing(self) -> None:
        self._set_output_blocked(False)
        if self._client is not None:
            self._client.resume()

    def _set_output_blocked(self, blocked: bool) -> None:
        self._output_blocked = blocked
        if self._client is not None:
            self._client.output_blocked = blocked or self._paused_for_memory
        self._update_reading()

    # For the checks of all connections

    def pause_for_memory(self, paused: bool) -> None:
        """Execute nothing more for this client and do not read from it; or continue."""
        if paused == self._paused_for_memory:
            return
        self._paused_for_memory = paused
        receiver = self._client
        if receiver is not None:
            receiver.output_blocked = paused or self._output_blocked
        self._update_reading()
        if receiver is not None and not receiver.output_blocked:
            receiver.resume()

    def unsent_bytes(self) -> i64:
        """Bytes of replies that the client has not taken."""
        return 0 if self._transport is None else self._transport.get_write_buffer_size()

    def unanswered_bytes(self) -> i64:
        """Bytes of commands that are kept."""
        return 0 if self._client is None else self._client.buffered_bytes()

    def check_progress(self, now: i64, timeout_us: i64) -> i64:
        """Return whether this client has made no progress for the timeout; to be called from time
        to time.
        """
        if self._check_output_timeout(now, timeout_us):
            return STALLED_OUTPUT
        return STALLED_INPUT if self._check_input_timeout(now, timeout_us) else NOT_STALLED

    def _check_output_timeout(self, now: i64, timeout_us: i64) -> bool:
        unsent = self.unsent_bytes()
        taken = self._written_bytes - unsent
        if not unsent:
            self._taken_since = 0
        elif not self._taken_since or taken > self._taken_bytes:
            self._taken_since = now
            self._taken_bytes = taken
        else:
            return now - self._taken_since >= timeout_us
        return False

    def _check_input_timeout(self, now: i64, timeout_us: i64) -> bool:
        receiver = self._client
        if receiver is None or not self._accepts_input() or not receiver.has_partial_command():
            self._partial_since = 0
            return False
        commands = receiver.command_count
        more = self._received_bytes - self._partial_received_bytes
        if not self._partial_since or commands != self._partial_command or more >= _PROGRESS_BYTES:
            self._partial_since = now
            self._partial_command = commands
            self._partial_received_bytes = self._received_bytes
            return False
        return now - self._partial_since >= timeout_us

    def _accepts_input(self) -> bool:
        """Whether more input of this client would be read if it sent some."""
        if self._input_ended or self._output_blocked or not self._wants_input:
            return False
        return not self._paused_for_memory or not self._has_unread_input()

    def _has_unread_input(self) -> bool:
        """Whether input has arrived that was not read."""
        if self._transport is None or self._transport.is_closing():
            return False
        found = self._transport.get_extra_info("socket")
        return found is not None and _unread_bytes(found.fileno()) > 0

    def can_make_progress(self) -> bool:
        """Whether it would hold less memory in the end if it were not paused."""
        receiver = self._client
        if receiver is None or self._output_blocked or self.unsent_bytes():
            return False
        return not receiver.needs_more_input() or self._has_unread_input()

    def close_stalled(self, stall: i64) -> None:
        receiver = self._client
        stalled = stall == STALLED_INPUT
        why = "incomplete command timed out" if stalled else "client did not read its replies"
        self._set_close_reason(why)
        told = {} if receiver is None else receiver.log_fields()
        log.info("client disconnected", extra=fields(**told, reason=why))
        if stalled and receiver is not None:
            receiver.on_read_timeout()
        else:
            self.abort()

    def login_state(self) -> i64:
        """Whether the client has authenticated."""
        receiver = self._client
        if receiver is not None:
            return receiver.login_state()
        return AUTHENTICATING if self.tls_transport is None else UNAUTHENTICATED

    def close_unauthenticated(self, reason: str, at_once: bool = False) -> None:
        """Close the connection of a client that has not authenticated; `at_once`: another
        connection takes its place.
        """
        self._set_close_reason(reason)
        receiver = self._client
        if receiver is not None:
            receiver.close_unauthenticated(reason)
        if at_once:
            self._release_limits()
        if at_once or receiver is None:
            self.abort()

    # As the protocol's transport

    def switch_protocol(self, client: ClientConnection) -> None:
        """Continue the connection in another protocol."""
        client.output_blocked = self._output_blocked or self._paused_for_memory
        client.connection_number = self.number
        if self._registry.login_tracker is not None:
            client.on_login_lost = self.start_login_timeout
        if self._client is not None:
            client.command_count += self._client.command_count
        self._client = client

    def detach_transport(self) -> asyncio.Transport:
        assert self._transport is not None
        self._stop_direct_sending()  # what others write must not be overtaken
        return self._transport

    def certificate_name(self) -> str:
        """Return the name in the client's certificate, as verified by TLS; "": there is none."""
        transport = self._transport
        return "" if transport is None else str(transport.get_extra_info("certificate_name", ""))

    def write(self, data: bytes) -> None:
        size: i64 = len(data)
        self._written_bytes += size
        if self._descriptor >= 0:
            self._send_or_batch(data)
        else:
            self._write_to_transport(data)
        everyone = self._registry
        everyone.bytes_since_check += size
        if everyone.bytes_since_check > everyone.check_after_bytes:
            everyone.check_memory(self)

    def _write_to_transport(self, data: bytes) -> None:
        transport = self._transport
        if transport is not None and not transport.is_closing():  # uvloop would raise
            transport.write(data)

    def _send_or_batch(self, data: bytes) -> None:
        """Send into the socket itself, or through the reply sender. The transport is for what does
        not fit: it would keep the bytes until the end of the round, at twice the cost.
        """
        if self._transport_has_output:
            if self.unsent_bytes():
                self._write_to_transport(data)
                return
            self._transport_has_output = False
        postman = self._registry.reply_sender
        if postman is not None:
            if self.reply_batch == postman.batch_number:
                if (
                    postman.append(self, data) > _MAX_BATCHED_CLIENT_BYTES
                ):  # let it feel that the client does not read
                    self._flush_pending()
                return
            if self.reply_batch > postman.completed_batch or (
                self._registry.use_batching
                and len(data) <= _MAX_BATCHED_REPLY_BYTES
                and postman.choose_batching()
            ):
                postman.enqueue(self, self._descriptor, data)
                return
        self.send_now(data)

    def send_now(self, data: bytes) -> None:
        file = self._descriptor
        if file < 0:
            return  # it is lost
        sent: i64 = 0
        try:
            sent = os.write(file, data)
        except OSError:  # full, or broken: the transport waits, or finds out why
            sent = 0
        if sent != len(data):
            self.on_partial_send(data[sent:] if sent else data)

    # From and to the reply sender

    def on_partial_send(self, data: bytes) -> None:
        """Pass what the socket has not taken to the transport."""
        self.reply_batch = 0
        self._transport_has_output = True
        self._write_to_transport(data)

    def _withdraw_pending(self) -> bytes:
        """Withdraw and return what the reply sender has not started to send; wait for the rest."""
        postman = self._registry.reply_sender
        if postman is None or self.reply_batch <= postman.completed_batch:
            return b""
        waiting = b""
        on_its_way = self.reply_batch
        if on_its_way == postman.batch_number:
            on_its_way = self.previous_batch
            waiting = postman.withdraw(self)
        if on_its_way > postman.completed_batch:
            postman.wait_until_sent()
        self.reply_batch = 0
        return waiting

    def _flush_pending(self) -> None:
        """Send what the reply sender has for this client."""
        data = self._withdraw_pending()
        if data:
            if self._transport_has_output:
                self._write_to_transport(data)
            else:
                self.send_now(data)

    def _stop_direct_sending(self) -> None:
        """Send everything through the transport from now on, which is about to close."""
        self._flush_pending()
        self._descriptor = -1

    def pause_reading(self) -> None:
        self._wants_input = False
        self._update_reading()

    def resume_reading(self) -> None:
        self._wants_input = True
        self._update_reading()

    def close(self) -> None:
        self._set_close_reason("closed by the server")
        self._stop_direct_sending()
        if self._transport is not None:
            self._transport.close()

    def close_after_draining(self) -> None:
        self._set_close_reason("protocol error")
        transport = self._transport
        if transport is None or transport.is_closing() or self._input_ended:
            self.close()
            return
        self._stop_direct_sending()
        transport.write_eof()
        self._drain_timer = asyncio.get_running_loop().call_later(_DRAIN_SECONDS, self.abort)
        self.resume_reading()

    def abort(self) -> None:
        self._set_close_reason("aborted by the server")
        self._withdraw_pending()
        self._descriptor = -1
        if self._transport is not None:
            self._transport.abort()
        elif self.tls_transport is not None:
            self.tls_transport.abort()

    def _update_reading(self) -> None:
        transport = self._transport
        if transport is None or transport.is_closing() or self._input_ended:
            return
        wanted = self._wants_input and not self._output_blocked and not self._paused_for_memory
        if wanted != transport.is_reading():
            if wanted:
                transport.resume_reading()
            else:
                transport.pause_reading()


def _unread_bytes(descriptor: int) -> int:
    """Bytes that wait to be read from a socket."""
    return int.from_bytes(fcntl.ioctl(descriptor, termios.FIONREAD, bytes(4)), sys.byteorder)


def _plain_socket(transport: asyncio.BaseTransport) -> int:
    """The descriptor of a socket to which bytes go as they are; -1: TLS, or no socket."""
    if transport.get_extra_info("ssl_object") is not None:
        return -1
    found = transport.get_extra_info("socket")
    return -1 if found is None else int(found.fileno())


def _peer_address(transport: asyncio.BaseTransport) -> str:
    address = transport.get_extra_info("peername")
    return f"{address[0]}:{address[1]}" if isinstance(address, tuple) else "unknown"


# Clients that make no progress


class StallDetector:
    """Finds clients that make no progress, by checking all connections a few times within the
    timeout.

    No connection has a timer of its own: ten thousand idle ones cost a few milliseconds for each
    check. A client may be idle between two commands for any time.
    """

    def __init__(
        self, registry: ConnectionRegistry, broker: Broker, scheduler: Scheduler, timeout_us: int
    ) -> None:
        self._registry = registry
        self._broker = broker
        self._scheduler = scheduler
        self._timeout_us = timeout_us
        self._to_check: list[Connection] = []
        self._timer_handle: Cancellable | None = None
        self._stopped = False

    def start(self) -> None:
        pause = min(max(self._timeout_us // _CHECKS_PER_TIMEOUT, 1), _MAX_INTERVAL_US)
        when = self._broker.clock.now() + pause
        self._timer_handle = self._scheduler.call_at(when, self._start_check)

    def stop(self) -> None:
        self._stopped = True
        if self._timer_handle is not None:
            self._timer_handle.cancel()

    def _start_check(self) -> None:
        self._to_check = self._registry.all()
        self._check_some()

    def _check_some(self) -> None:
        if self._stopped:
            return
        now = self._broker.clock.now()
        portion = self._to_check[-_CONNECTIONS_PER_STEP:]
        del self._to_check[-_CONNECTIONS_PER_STEP:]
        for one in portion:
            verdict = one.check_progress(now, self._timeout_us)
            if verdict != NOT_STALLED:
                self._close_stalled(one, verdict)
        if self._to_check:
            self._scheduler.call_soon(self._check_some)
        else:
            self.start()

    def _close_stalled(self, one: Connection, stall: int) -> None:
        strain = self._broker.metrics.limit_counters
        if stall == STALLED_INPUT:
            strain.input_timeouts += 1
        else:
            strain.output_timeouts += 1
        one.close_stalled(stall)
