"""The course of one connection, the same for all protocols but HTTP.

It executes command after command and replies in order. A command that has to wait (for a job, for a
payload from disk, for the client to read) delays those behind it on this connection, and no other.
What the commands are is up to the protocol.

The module also recognises input of other protocols, so that a listener refuses it.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

from mypy_extensions import i64

from taskyard.access.authenticator import Authenticator, RequestRef, may_connect
from taskyard.access.principal import PUSH, TAKE, Denied, Principal
from taskyard.broker.commit import Broker
from taskyard.broker.interfaces import Transport
from taskyard.broker.metrics import ProtocolStats
from taskyard.broker.replies import ReplyQueue
from taskyard.broker.turns import (
    AUTHENTICATED,
    AUTHENTICATING,
    COMMANDS_PER_TURN,
    UNAUTHENTICATED,
    ClientConnection,
    TokenBucket,
)
from taskyard.engine.model.events import (
    ALWAYS_ALLOWED_QUEUES,
    FetchRequest,
    JobEvent,
    JobWatcher,
    LifecycleNotice,
    Waiter,
)
from taskyard.engine.model.job import Job, Origin

INPUT_LIMIT: Final = 262_144  # bytes of commands kept while one has to wait
UNAUTHENTICATED_LIMIT: Final = 16_384  # bytes of input kept for a client that has to log in first

NOT_HTTP: Final = "this port does not speak HTTP"
NOT_TLS: Final = "this port does not speak TLS"
NOT_RESP: Final = "this port does not speak RESP"
NOT_PROXY: Final = "this port does not take the PROXY protocol"

_HANDSHAKE: Final = 0x16  # the first byte of a TLS connection, and of no command
_METHOD: Final = re.compile(rb"[A-Za-z-]{1,32}")
_VERSION: Final = re.compile(rb"HTTP/[0-9](\.[0-9])?")
_ARRAY: Final = re.compile(rb"\*[0-9]{1,9}")


class ProtocolConnection(ClientConnection):
    def __init__(
        self,
        broker: Broker,
        transport: Transport,
        origin: Origin,
        output_limit: i64,
        stats: ProtocolStats,
        principal: Principal,
    ) -> None:
        super().__init__(broker.engine.new_owner(), stats.protocol_name)
        self.principal = principal
        # the client has to log in first; until then its input is limited
        self.unauthenticated = False
        principal.connections += 1
        self.broker = broker
        self.engine = broker.engine
        self.origin = origin
        self.reply_queue = ReplyQueue(broker, transport, self, output_limit)
        self.now: i64 = broker.clock.now()  # of this turn
        self.current_command = stats.unknown_command  # the command that is to be answered
        self.closed = False
        self.closing_after_replies = False  # no more input will arrive: close when all is answered
        self.waiter: Waiter | None = None  # the fetch that has to wait
        self.watcher: JobWatcher | None = None  # the command that waits for a job's end
        self.command_suspended = False  # a payload is being read back from disk
        self._stopping = False  # since the server stops
        self._transport = transport
        self._reading = True
        self._token_bucket: TokenBucket | None = None  # None: no rate limit applies so far

    # For the protocols to implement

    def execute_next(self) -> bool:
        """Execute one complete command; False if there is none."""
        raise NotImplementedError

    def pending_input_bytes(self) -> i64:
        """Bytes of commands that have arrived and were not executed."""
        raise NotImplementedError

    def partial_command_bytes(self) -> i64:
        """About how many bytes of an incomplete command have arrived; 0: none."""
        raise NotImplementedError

    def send_error(self, text: str) -> None:
        """Send an error about the input, if the protocol has a form for that."""
        raise NotImplementedError

    def discard_input(self) -> None:
        """Discard the input that was not executed."""
        raise NotImplementedError

    def limit_unauthenticated_input(self, unauthenticated: bool) -> None:
        """Apply, or lift, the input limits of clients that have to log in first."""
        raise NotImplementedError

    def send_no_job(self) -> None:
        """Answer a fetch that got no job."""
        raise NotImplementedError

    def send_job(self, job: Job, payload: bytes) -> None:
        """Answer a fetch with its job and the payload."""
        raise NotImplementedError

    def on_wait_ended(self) -> None:
        """A command that had to wait is about to be answered."""

    def on_job_finished(self, event: JobEvent) -> bool:
        """Answer a command that waits for a job's end; False if it has to wait longer."""
        raise NotImplementedError

    def on_watch_cancelled(self) -> None:
        """Answer it although the job has not ended."""
        raise NotImplementedError

    def send_permission_denied(self, text: str) -> None:
        """Answer a command that is no longer allowed."""
        raise NotImplementedError

    def on_login(self, principal: Principal | None) -> None:
        """Answer a login; None: the credentials were wrong."""
        raise NotImplementedError

    def check_watch_permission(self, job: Job) -> None:
        """Raise Denied unless the client may still wait for this job's end."""

    def keeps_watching(self) -> bool:
        """Whether to keep such a command waiting after the client has closed its side."""
        return False

    def is_command_running(self) -> bool:
        """Whether a command is being executed in chunks."""
        return False

    # For the log

    def address(self) -> str:
        return self.origin.holder.rpartition("#")[0]

    def has_pending_replies(self) -> bool:
        return self.reply_queue.has_waiting()

    # From the connection

    def resume(self) -> None:
        self.process_input()

    def has_partial_command(self) -> bool:
        return (
            self.partial_command_bytes() > 0
            and self.waiter is None
            and self.watcher is None
            and not (
                self.command_suspended or self.closed or self.queued_for_turn or self.rate_limited
            )
        )

    def on_read_timeout(self) -> None:
        self.now = self.broker.begin_turn()
        self.send_error("the rest of a command did not come in time")
        self.close()
        self.broker.end_turn()

    def reject_protocol(self, reason: str) -> None:
        """The input belongs to another protocol: send an error and close."""
        self.now = self.broker.begin_turn()
        self.log_protocol_error(reason)
        self.send_error(reason)
        self.close(drain_input=True)
        self.broker.end_turn()

    def login_state(self) -> i64:
        if not self.unauthenticated:
            return AUTHENTICATED
        return AUTHENTICATING if self.command_suspended else UNAUTHENTICATED

    def close_unauthenticated(self, reason: str) -> None:
        if self.closed:
            self.reply_queue.abort()  # its last replies were not read in all this time
            return
        self.now = self.broker.begin_turn()
        self.send_permission_denied(reason)
        self.close()
        self.broker.end_turn()

    def take_turn(self) -> None:
        self.now = self.broker.begin_turn()
        self._execute_commands()
        self._end_turn()
        self.broker.end_turn()

    def on_disconnect(self) -> None:
        self.closed = True
        self.principal.connections -= 1
        self.broker.unregister(self)
        if not self._stopping:
            self.release_resources()
        self.reply_queue.detach_connection()

    def on_eof(self) -> None:
        self._finish_and_close()

    def shut_down(self) -> None:
        self._stopping = True
        self._finish_and_close()

    def _finish_and_close(self) -> None:
        """Answer what has arrived without waiting for jobs, and close."""
        self.closing_after_replies = True
        waiter = self.waiter
        if waiter is not None:
            self.waiter = None
            self.engine.stop_waiting(waiter)
            self.send_no_job()
        watcher = self.watcher
        if watcher is not None and (self._stopping or not self.keeps_watching()):
            self.watcher = None
            self.engine.stop_watching(watcher)
            self.on_watch_cancelled()
        self.process_input()

    def on_permissions_changed(self) -> None:
        """Cancel the wait of a client that may no longer take the job, or see its end."""
        self.apply_principal_limits()
        try:
            if self.waiter is not None:
                self.check_fetch_permission(self.waiter.request)
            elif self.watcher is not None:
                job = self.engine.state.live_job(self.watcher.job_id)
                if job is not None:
                    self.check_watch_permission(job)
        except Denied as denial:
            self.now = self.broker.begin_turn()
            self._cancel_waits()
            self.on_wait_ended()
            self.send_permission_denied(str(denial))
            self._start_or_queue()
            self.broker.end_turn()

    def check_fetch_permission(self, request: FetchRequest) -> None:
        """Raise Denied unless the client may make this fetch."""
        for queue in request.queues:
            self.require_permission(TAKE, queue.decode())
        if request.move_to:
            self.require_permission(PUSH, request.move_to)

    # From the broker

    def on_job_assigned(self, waiter: Waiter, job: Job) -> None:
        self.waiter = None
        self.on_wait_ended()
        payload = waiter.payload
        if payload is None:
            self.deliver_job(job)
        else:
            self.send_job(job, payload)
        self._process_in_turn()

    def on_payload_unreadable(self, waiter: Waiter) -> None:
        self.waiter = None
        self.discard_input()  # nothing of it could be answered
        self.reply_queue.abort()

    def on_wait_timeout(self, waiter: Waiter) -> None:
        self.waiter = None
        self.on_wait_ended()
        self.send_no_job()
        self._process_in_turn()

    def on_job_event(self, event: JobEvent) -> None:
        if event.watcher is not self.watcher:
            return  # the command no longer waits
        self.now = self.broker.clock.now()
        if self.on_job_finished(event):
            self.watcher = None
            self._process_in_turn()

    def on_notice(self, notice: LifecycleNotice) -> None:
        raise NotImplementedError

    # Commands

    def process_input(self) -> None:
        """Execute the commands that have arrived, until one has to wait or the turn is over."""
        if self.broker.turn_queue.has_waiting():
            self._queue_for_turn()
            self._end_turn()
            return
        self.now = self.broker.begin_turn()
        self._start_or_queue()
        self.broker.end_turn()

    def _process_in_turn(self) -> None:
        """Execute commands inside a turn that has already begun."""
        self.now = self.broker.clock.now()
        self._start_or_queue()

    def _start_or_queue(self) -> None:
        if self.broker.turn_queue.must_queue(self.now, self):
            self._queue_for_turn()
        elif not self.queued_for_turn:
            self._execute_commands()
        self._end_turn()

    def _queue_for_turn(self) -> None:
        size = self.pending_input_bytes()
        if not self.queued_for_turn and (size or self.closing_after_replies):
            self.broker.turn_queue.enqueue(self, size)

    def _end_turn(self) -> None:
        limit: i64 = UNAUTHENTICATED_LIMIT if self.unauthenticated else INPUT_LIMIT
        self._set_reading(self.pending_input_bytes() <= limit and not self.rate_limited)
        self.reply_queue.flush_output()

    def _execute_commands(self) -> None:
        turn: i64 = COMMANDS_PER_TURN
        if self.broker.rate_limiter.commands_per_second:
            turn = self._commands_this_turn()
        left = turn
        while not self._must_wait():
            if not left:
                self._continue_next_turn(turn)
                break
            left -= 1
            self.command_count += 1
            if not self.execute_next():
                left += 1
                self.command_count -= 1
                if self.closing_after_replies and not self.closed:
                    self.close()
                break
        if self._token_bucket is not None:
            self._token_bucket.consume(turn - left)

    def _commands_this_turn(self) -> i64:
        """How many commands this turn may execute under the rate limit."""
        if self._stopping:
            return COMMANDS_PER_TURN
        share = self._token_bucket
        if share is None:
            share = TokenBucket()
            self._token_bucket = share
        return min(
            i64(COMMANDS_PER_TURN),
            share.available(self.broker.rate_limiter.commands_per_second, self.now),
        )

    def _continue_next_turn(self, turn: i64) -> None:
        if not (self.pending_input_bytes() or self.closing_after_replies):
            return
        if turn == COMMANDS_PER_TURN:
            self.broker.turn_queue.requeue(self)
        else:
            self.broker.rate_limiter.resume_later(self)

    def _must_wait(self) -> bool:
        """Whether the next command has to wait."""
        return (
            self.waiter is not None
            or self.watcher is not None
            or self.command_suspended
            or self.closed
            or self.output_blocked
            or self.queued_for_turn
            or not self.reply_queue.check_capacity()
        )

    def require_permission(self, action: str, queue: str) -> None:
        """Raise Denied unless the client may do this to the queue."""
        principal = self.principal
        if not principal.is_superuser:
            principal.check_permission(action, queue)

    def log_in(self, authenticator: Authenticator, address: str, name: str, secret: str) -> None:
        """Authenticate the client, then call `on_login`."""
        principal = authenticator.cached_login(address, name, secret)
        if principal is not None:
            self._complete_login(authenticator, principal)
            return
        self.command_suspended = True
        asker = RequestRef(self.connection_number, self.request_id(self.command_count))
        authenticator.log_in(
            address, name, secret, _LoginCallback(self, authenticator).on_authenticated, asker
        )

    def on_authenticated(self, authenticator: Authenticator, principal: Principal | None) -> None:
        self.command_suspended = False
        if not self.closed:
            self.now = self.broker.begin_turn()
            self.on_wait_ended()
            self._complete_login(authenticator, principal)
            self._start_or_queue()
            self.broker.end_turn()

    def _complete_login(self, authenticator: Authenticator, principal: Principal | None) -> None:
        if (
            principal is None
            or principal is self.principal
            or may_connect(authenticator, principal)
        ):
            self.on_login(principal)
        else:
            self.send_permission_denied(f"user {principal.name} has too many connections")

    def set_principal(self, principal: Principal) -> None:
        """Make this the client's principal."""
        self.principal.connections -= 1
        self.principal = principal
        principal.connections += 1
        self.apply_principal_limits()

    def apply_principal_limits(self) -> None:
        """Set the input limits of this principal; call it whenever the principal changes."""
        unknown = self.principal.needs_login()
        if unknown != self.unauthenticated:
            self.unauthenticated = unknown
            self.limit_unauthenticated_input(unknown)
            if unknown and self.on_login_lost is not None:
                self.on_login_lost()

    def fetch(self, request: FetchRequest, timeout: i64) -> None:
        """Answer with a job, now or when there is one, or with none after the timeout."""
        job = self.engine.fetch(request, self.now)
        if job is not None:
            self.deliver_job(job)
        elif self.closing_after_replies:
            self.send_no_job()
        else:
            self.waiter = self.engine.wait_for_job(request, self.now + timeout)
            if len(request.queues) > ALWAYS_ALLOWED_QUEUES:
                self.broker.report_memory_use(request.waiter_bytes())

    def deliver_job(self, job: Job) -> None:
        payload = self.broker.cached_payload(job)
        if payload is not None:
            self.send_job(job, payload)
            return
        self.read_from_disk(
            job.payload_at, job.payload_size, _JobDeliveryCallback(self, job).on_payload_read
        )

    def read_from_disk(self, at: i64, size: i64, then: Callable[[bytes | None], None]) -> None:
        """Read bytes from disk, then call `then` with them, or with None if they cannot be read."""
        self.command_suspended = True
        if not self.command_started_at:
            self.command_started_at = self.broker.turn_queue.now
        self.broker.read_from_disk(at, size, _DiskReadCallback(self, then).on_read)

    def on_disk_read(self, data: bytes | None, then: Callable[[bytes | None], None]) -> None:
        self.command_suspended = False
        if self.broker.failure:  # what was done before the read may never be on disk
            self.reply_queue.abort()
        elif not self.closed:
            self.on_wait_ended()
            then(data)
            if not self.command_suspended and not self.is_command_running():
                self.finish_deferred_command()
            self._process_in_turn()

    def finish_deferred_command(self) -> None:
        """Finish the timing of a command that could not be answered at once."""
        since = self.command_started_at
        self.command_started_at = 0
        slow = self.broker.slow_commands
        now = self.broker.clock.now()  # a turn may have begun long ago
        if (
            not since
            or self.waiter is not None
            or self.watcher is not None
            or self.has_pending_replies()
        ):
            return
        if now - since > slow.threshold_us:
            slow.record(self, self.current_command, self.command_count, 1, since, 0, 0, now)

    def send(self, reply: bytes, position: i64) -> None:
        """Answer the command; each one has one reply."""
        self.current_command.replies += 1
        self.reply_queue.send(reply, position)

    def close(self, drain_input: bool = False) -> None:
        """Close once all replies are out; `drain_input`: discard what the client still sends."""
        self.closed = True
        if not self._stopping:  # else its jobs go back when the server starts again
            self.release_resources()
        self.reply_queue.close(drain_input)

    def release_resources(self) -> None:
        """Give up the leases, waits and input of this connection."""
        self.discard_input()
        self._cancel_waits()
        self.engine.disconnect(self.owner, self.origin, self.broker.begin_turn())
        self.broker.end_turn()

    def _cancel_waits(self) -> None:
        waiter = self.waiter
        if waiter is not None:
            self.waiter = None
            self.engine.stop_waiting(waiter)
        watcher = self.watcher
        if watcher is not None:
            self.watcher = None
            self.engine.stop_watching(watcher)

    def _set_reading(self, wanted: bool) -> None:
        if wanted == self._reading or self.closed:
            return
        self._reading = wanted
        if wanted:
            self._transport.resume_reading()
        else:
            self._transport.pause_reading()


class _LoginCallback:
    """Continues a login when the authenticator has answered."""

    def __init__(self, connection: ProtocolConnection, authenticator: Authenticator) -> None:
        self._connection = connection
        self._authenticator = authenticator

    def on_authenticated(self, principal: Principal | None) -> None:
        self._connection.on_authenticated(self._authenticator, principal)


class _DiskReadCallback:
    """Continues a command when its bytes have been read from disk."""

    def __init__(
        self, connection: ProtocolConnection, then: Callable[[bytes | None], None]
    ) -> None:
        self._connection = connection
        self._then = then

    def on_read(self, data: bytes | None) -> None:
        self._connection.on_disk_read(data, self._then)


class _JobDeliveryCallback:
    """Delivers a job when its payload has been read from disk."""

    def __init__(self, connection: ProtocolConnection, job: Job) -> None:
        self._connection = connection
        self._job = job

    def on_payload_read(self, payload: bytes | None) -> None:
        if payload is None:
            self._connection.reply_queue.abort()
        else:
            self._connection.send_job(self._job, payload)


# Input of other protocols at a port that does not speak them. A browser sends HTTP requests for
# whatever page it shows, to any port of its own machine, and a TLS handshake where the page says
# so; a proxy may be set up for the wrong port. The first lines of those are no commands, but what
# an attacker's page has put behind or into them may be.


def looks_like_tls(data: bytes) -> bool:
    """Whether a connection that begins with this is encrypted."""
    return len(data) > 0 and data[0] == _HANDSHAKE


def wrong_protocol_error(words: list[bytes]) -> str:
    """Which protocol a line that is no command belongs to: what to say of it; "": none that is
    known. No command of ours begins in one of these ways."""
    if not words:
        return ""
    first = words[0]
    if first[:5].upper() in (b"POST", b"HOST:") or looks_like_http(words):
        return NOT_HTTP
    return NOT_PROXY if first == b"PROXY" else ""


def wrong_protocol_or_resp_error(words: list[bytes]) -> str:
    """The same for protocols whose commands are lines: each line of a RESP array would be a
    command.
    """
    error = wrong_protocol_error(words)
    if not error and words and _ARRAY.fullmatch(words[0]) is not None:
        return NOT_RESP
    return error


def looks_like_http(words: list[bytes]) -> bool:
    """Whether it is the first line of a request, as GET / HTTP/1.1 or PRI * HTTP/2.0."""
    return (
        len(words) == 3
        and _VERSION.fullmatch(words[2]) is not None
        and _METHOD.fullmatch(words[0]) is not None
    )
