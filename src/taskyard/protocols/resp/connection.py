"""One RESP connection: what its commands share, whatever they are about.

The commands themselves are functions in the modules `lists`, `keys`, `jobs`, `batches` and
`server`; `protocol` brings them together. MULTI and EXEC are here. User documentation:
docs/resp.md.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from librt.strings import BytesWriter
from mypy_extensions import i64

from taskyard.access.authenticator import (
    Authenticator,
    OpenAuthenticator,
    authenticate_certificate,
    host_of,
)
from taskyard.access.principal import Denied, Principal
from taskyard.broker.commit import Broker
from taskyard.broker.interfaces import Transport
from taskyard.broker.metrics import CommandStats, ProtocolStats
from taskyard.engine.model.events import (
    ALWAYS_ALLOWED_QUEUES,
    WATCH_FAILED,
    WATCH_GONE,
    WATCH_LEASED,
    WATCH_SUCCEEDED,
    FetchRequest,
    JobEvent,
    ReadOnly,
    TaskyardError,
)
from taskyard.engine.model.job import CLIENT, PQUEUE, REDIS, Job, Origin, Policy, default_policy
from taskyard.engine.model.queue import Queue
from taskyard.engine.operations.lease import deadline_after
from taskyard.protocols.connection import (
    INPUT_LIMIT,
    NOT_HTTP,
    NOT_TLS,
    ProtocolConnection,
    looks_like_http,
    looks_like_tls,
    wrong_protocol_error,
)
from taskyard.protocols.resp.wire import (
    ARG_OVERHEAD,
    BROKEN,
    INCOMPLETE,
    OK,
    WRONG_TYPE,
    CommandError,
    QueueNameCache,
    RespFrameParser,
    bulk,
    error_line,
    error_text,
    unknown_command,
    wrong_arg_count,
)

MAX_TRANSACTION_COMMANDS: Final = 10_000  # commands between MULTI and EXEC, unless it is configured
MAX_TRANSACTION_BYTES: Final = 64 * 1_048_576  # of them, and of the replies to them in one go
# that they may have on an average: a push of many values is much to do too
MAX_AVERAGE_ARGS: Final = 16

# bytes of a command that may stay in memory until the next one
MAX_RETAINED_ARGS_BYTES: Final = 4096
QUEUED: Final = b"+QUEUED\r\n"
NO_AUTH: Final = "NOAUTH Authentication required."


class Resp:
    """State shared by all connections of this protocol."""

    def __init__(
        self,
        broker: Broker,
        queue: str,
        payload_limit: i64,
        output_limit: i64,
        max_losses: i64,
        authenticator: Authenticator | None = None,
        batch_limit: i64 = MAX_TRANSACTION_COMMANDS,
    ) -> None:
        self.broker = broker
        self.authenticator: Authenticator = authenticator or OpenAuthenticator()
        self.queue = queue  # of the items of Pqueue
        self.payload_limit = payload_limit
        self.output_limit = output_limit
        self.max_losses = max_losses
        self.batch_limit = batch_limit
        # Of jobs without one of their own: elements of lists and items, and JOB.PUSH.
        self.policy = Policy(max_losses=max_losses)
        self.job_policy = default_policy(max_losses)
        self.started: i64 = broker.clock.now()
        self.stats = ProtocolStats("resp")
        broker.metrics.add_protocol(self.stats)
        self.commands: dict[bytes, RespCommand] = {}
        self.claims: dict[str, ConsumerClaim] = {}  # by the consumer's name
        self.updates: i64 = 0
        self.ops: i64 = 0
        self.queue_names = QueueNameCache()
        self.spare_writer: BytesWriter | None = None  # that has grown, and is not in use

    def add_command(
        self,
        name: bytes,
        run: Callable[[RespConnection, list[bytes]], None],
        min_args: i64,
        max_args: i64,
        immediate: bool = False,
        when_read_only: bool = False,
    ) -> None:
        verb = self.stats.add_command(name.decode().lower())
        self.commands[name] = RespCommand(
            name, verb, run, min_args, max_args, immediate, when_read_only
        )

    def connect(self, transport: Transport, peer: str) -> RespConnection:
        self.stats.total_connections += 1
        connection = RespConnection(self, transport, peer)
        self.stats.open_connections += 1
        self.broker.register(connection)
        return connection


class ConsumerClaim:
    """The exclusive holder of a consumer, until its last connection is lost."""

    def __init__(self, holder: str, user: str, peer: str) -> None:
        self.holder = holder
        self.user = user
        self.peer = peer
        self.connections: i64 = 0


class RespConnection(ProtocolConnection):
    def __init__(self, resp: Resp, transport: Transport, peer: str) -> None:
        self.id: i64 = resp.stats.total_connections
        self.peer = peer
        holder = f"{peer}#{self.id}"
        self._certificate = transport.certificate_name()
        principal = authenticate_certificate(resp.authenticator, self._certificate)
        origin = Origin(REDIS, principal.name, holder)
        super().__init__(
            resp.broker,
            transport,
            origin,
            resp.output_limit,
            resp.stats,
            principal,
        )
        self.resp = resp
        self.item_origin = Origin(PQUEUE, principal.name, holder)
        self.job_origin = Origin(CLIENT, principal.name, holder)
        self.name = b""
        self.resp_version: i64 = 2
        self.database: i64 = 0
        self.prefix = b""  # of keys in another database than the first
        self.item_queue = resp.queue  # the queue of Pqueue's items
        self.item_queue_utf8 = resp.queue.encode()
        self.chunked_command: ChunkedCommand | None = None
        self.transaction: MultiTransaction | None = None  # since MULTI
        self._queued_commands: list[
            tuple[RespCommand, list[bytes]]
        ] = []  # of EXEC, the next one last
        self._queued_bytes: i64 = 0  # bytes of all of them
        self._in_transaction = False
        self.last_pop: list[bytes] = []  # which consumers send again and again
        self.claimed_consumers: list[str] = []  # names of consumers
        self.last_request = FetchRequest([], self.owner, origin)
        self.last_wait: i64 = 0
        self._login_reply: LoginReply | None = None  # the command that logs in
        self._fetch_reply: FetchReply | None = None  # to the command that waits for a job
        self._result_reply: ResultReply | None = None  # the command that waits for a job's end
        self._frame_parser = RespFrameParser(resp.payload_limit)
        self._awaits_first_bytes = True  # nothing has arrived yet
        self._input_unreadable = False  # the input can no longer be parsed
        self.apply_principal_limits()

    # From the connection

    def feed(self, data: bytes) -> None:
        if self.closed or self.closing_after_replies or self._input_unreadable:
            return
        if self._awaits_first_bytes:
            self._awaits_first_bytes = False
            if looks_like_tls(data):
                self.reject_protocol(NOT_TLS)
                return
        self._frame_parser.feed(data)
        self.process_input()

    def on_disconnect(self) -> None:
        self.resp.stats.open_connections -= 1
        self.release_claims()
        super().on_disconnect()

    def release_claims(self) -> None:
        claims = self.resp.claims
        for name in self.claimed_consumers:
            claims[name].connections -= 1
            if not claims[name].connections:
                del claims[name]
        self.claimed_consumers = []

    # Commands

    def pending_input_bytes(self) -> i64:
        if self._input_unreadable:
            return INPUT_LIMIT + 1  # no more is needed
        return self._frame_parser.pending_bytes() + (
            1 if self.chunked_command is not None or self._queued_commands else 0
        )

    def buffered_bytes(self) -> i64:
        held = self._frame_parser.buffered_bytes()
        if self.transaction is not None:
            held += self.transaction.size
        return held + self._queued_bytes if self._queued_commands else held

    def needs_more_input(self) -> bool:
        if self.transaction is None:
            return self.has_partial_command()
        return not (
            self.command_suspended
            or self.closed
            or self.queued_for_turn
            or self.rate_limited
            or self.pending_input_bytes()
        )

    def partial_command_bytes(self) -> i64:
        return self._frame_parser.partial_command_bytes() if self.chunked_command is None else 0

    def send_error(self, text: str) -> None:
        self.current_command = self.resp.stats.unknown_command
        self.refuse(f"ERR Protocol error: {text}")

    def limit_unauthenticated_input(self, unauthenticated: bool) -> None:
        self._frame_parser.limit_unauthenticated_input(unauthenticated)

    def discard_input(self) -> None:
        self.chunked_command = None
        self.transaction = None
        self._queued_commands = []
        self._frame_parser.discard()

    def execute_next(self) -> bool:
        if self.chunked_command is not None or self._queued_commands:
            self.command_count -= 1  # it is the same one still
            if self.chunked_command is not None:
                self._run_chunk(self.chunked_command)
            else:
                self._run_queued_commands()
            if not self.is_command_running():
                self.command_started_at = 0
            return True
        reader = self._frame_parser
        if reader.args_memory_bytes > MAX_RETAINED_ARGS_BYTES:  # those of the last command
            reader.release_args()
        found = reader.parse_next()
        if found == INCOMPLETE:
            overhead = reader.take_unreported_overhead()
            if overhead:
                self.broker.report_memory_use(overhead)
            return False
        if found == BROKEN:
            self._reject_and_close(reader.error)
            return True
        args = reader.args
        commands = self.resp.commands
        command = commands.get(args[0])
        if command is None:
            command = commands.get(args[0].upper())
        self.resp.ops += 1
        if command is None:
            self.current_command = self.resp.stats.unknown_command
            self.current_command.count += 1
            error = wrong_protocol_error(args)
            if error:
                self._reject_and_close(error)
            else:
                self._refuse_early(unknown_command(args, commands))
        else:
            self.current_command = command.verb
            command.verb.count += 1
            self._execute_command(command, args)
        return True

    def _reject_and_close(self, text: str) -> None:
        self.log_protocol_error(text.partition(",")[0])  # what it has sent is behind that
        self.send_error(text)
        self._input_unreadable = True
        self.close(drain_input=True)

    def _execute_command(self, command: RespCommand, args: list[bytes]) -> None:
        count: i64 = len(args)
        if count < command.min_args or (command.max_args and count > command.max_args):
            if looks_like_http(args):  # GET is a command of both
                self._reject_and_close(NOT_HTTP)
            else:
                self._refuse_early(wrong_arg_count(command.name))
        elif self._frame_parser.oversize:
            limit = self.resp.payload_limit
            self._refuse_early(f"ERR an argument is larger than the limit of {limit} bytes")
        elif self.transaction is not None and not command.immediate:
            self._queue_command(self.transaction, command, args)
        else:
            self._run_command(command, args)

    def _run_command(self, command: RespCommand, args: list[bytes]) -> None:
        try:
            if not command.when_read_only:
                self.check_alive()
            command.run(self, args)
        except CommandError as refusal:  # a name of its own: mypyc gives each name one type
            self.refuse(str(refusal))
        except Denied as denial:
            self.send_permission_denied(str(denial))
        except TaskyardError as error:
            self.refuse(error_text(error))

    def _refuse_early(self, text: str) -> None:
        """Refuse a command before it is executed, and with it the batch that it is in."""
        if self.transaction is not None:
            self.transaction.abort()
        self.refuse(text)

    def _queue_command(
        self, transaction: MultiTransaction, command: RespCommand, args: list[bytes]
    ) -> None:
        transaction.add(command, args)
        if transaction.unreported_bytes > MAX_RETAINED_ARGS_BYTES:
            self.broker.report_memory_use(transaction.unreported_bytes)
            transaction.unreported_bytes = 0
        if transaction.limit_error:
            self.refuse(f"ERR {transaction.limit_error}")
        else:
            self.send(QUEUED, 0)

    def run_transaction(self, transaction: MultiTransaction) -> None:
        """Execute the queued commands; each command answers for itself."""
        self._queued_commands = transaction.commands
        self._queued_bytes = transaction.size
        self._queued_commands.reverse()
        self._run_queued_commands()

    def _run_queued_commands(self) -> None:
        self._in_transaction = True
        # No other client is served in between, though this one has not read its replies so far.
        most = self.reply_queue.total_bytes + MAX_TRANSACTION_BYTES
        while (
            self._queued_commands
            and self.chunked_command is None
            and self.reply_queue.total_bytes < most
        ):
            if self.command_suspended or self.closed or self.waiter is not None:
                break
            command, args = self._queued_commands.pop()
            self.current_command = command.verb
            command.verb.count += 1
            self._run_command(command, args)
        self._in_transaction = False

    def start_chunked(self, command: ChunkedCommand) -> None:
        """Execute a command in chunks, the first of them now."""
        self.chunked_command = command
        began = not self.command_started_at  # else the code that set it continues when this is done
        if began:
            self.command_started_at = self.broker.turn_queue.now
        self._run_chunk(command)
        if began and not self.is_command_running():
            self.command_started_at = 0

    def is_command_running(self) -> bool:
        return (
            self.chunked_command is not None
            or bool(self._queued_commands)
            or self.command_suspended
        )

    def yield_turn(self) -> None:
        """A chunk was a whole turn's work: the next one comes after all connections that wait for
        their turn.
        """
        if not self.queued_for_turn:
            self.broker.turn_queue.requeue(self)

    def _run_chunk(self, command: ChunkedCommand) -> None:
        try:
            self.check_alive()
            if command.run_chunk(self) and self.chunked_command is command:
                self.chunked_command = None
        except CommandError as refusal:
            self.chunked_command = None
            self.refuse(str(refusal))
        except Denied as denial:
            self.chunked_command = None
            self.send_permission_denied(str(denial))
        except TaskyardError as error:
            self.chunked_command = None
            self.refuse(error_text(error))

    def check_alive(self) -> None:
        """What is in memory and not on disk will never be there, once a write has failed."""
        if self.engine.read_only_reason:
            self.engine.check_not_read_only()

    def read_for_command(self, at: i64, size: i64, then: Callable[[bytes], None]) -> None:
        """Read bytes from disk, then call `then` with them."""
        self.read_from_disk(at, size, CommandReadCallback(self, then).on_read)

    # Authentication

    def start_login(self, name: str, secret: str, reply: LoginReply) -> None:
        self._login_reply = reply
        self.log_in(self.resp.authenticator, host_of(self.peer), name, secret)

    def send_permission_denied(self, text: str) -> None:
        self._fetch_reply = None
        known = bool(self.principal.name) or self._login_reply is not None
        self._login_reply = None
        self.refuse(f"NOPERM {text}" if known else NO_AUTH)

    def on_login(self, principal: Principal | None) -> None:
        if principal is not None:
            self.switch_principal(principal)
        login = self._login_reply
        self._login_reply = None
        if login is not None:
            login.send(self, principal is not None)

    def reset_principal(self) -> None:
        """Reset to the principal of a new connection: anonymous, or its certificate's holder."""
        gate = self.resp.authenticator
        self.switch_principal(
            gate.anonymous
        )  # else it would count itself in the limit of connections
        self.switch_principal(authenticate_certificate(gate, self._certificate))

    def switch_principal(self, principal: Principal) -> None:
        """Make this the client's principal; records name it."""
        holder = self.origin.holder
        self.set_principal(principal)
        self.origin = Origin(REDIS, principal.name, holder)
        self.item_origin = Origin(PQUEUE, principal.name, holder)
        self.job_origin = Origin(CLIENT, principal.name, holder)
        self.last_pop = []  # its Take names the old origin

    # Keys

    def queue_name(self, key: bytes) -> str:
        return self.resp.queue_names.queue_name(self.prefix + key if self.prefix else key)

    def require_key_permission(self, action: str, key: bytes) -> None:
        """The same as `require_permission` for a list or a string, whose name is a key."""
        if not self.principal.is_superuser:
            self.principal.check_permission(action, self.full_key(key).decode(errors="replace"))

    def full_key(self, key: bytes) -> bytes:
        """A key in the name space that all databases share."""
        return self.prefix + key if self.prefix else key

    def local_name(self, queue: bytes) -> bytes:
        """A queue's name as the client knows it."""
        return queue[len(self.prefix) :]

    def list_queue(self, key: bytes) -> Queue | None:
        """The queue that a list command is about; it must not be a string."""
        state = self.engine.state
        full = self.prefix + key if self.prefix else key
        if state.values and full in state.values:
            raise CommandError(WRONG_TYPE)
        return state.queues.get(full)

    def has_list(self, key: bytes) -> bool:
        queue = self.engine.state.queues.get(self.full_key(key))
        return queue is not None and queue.ready.size > 0

    # Taking jobs

    def fetch_and_reply(self, request: FetchRequest, wait: i64, reply: FetchReply) -> None:
        """Fetch a job and answer with it, now or when there is one; `wait` 0: do not wait."""
        self._fetch_reply = reply
        gone = request.pop or bool(request.move_to)
        if gone and self._try_read_first(request, 0 if self._in_transaction else wait, reply):
            return
        job = self.engine.fetch(request, self.now)
        if job is not None:
            self.deliver_job(job)
        elif self.closing_after_replies or self._in_transaction or not wait:
            self.send_no_job()
        else:
            self.waiter = self.engine.wait_for_job(request, deadline_after(self.now, wait))
            if len(request.queues) > ALWAYS_ALLOWED_QUEUES:
                self._frame_parser.release_args()  # it may wait for long
                self.broker.report_memory_use(request.waiter_bytes())

    def _try_read_first(self, request: FetchRequest, wait: i64, reply: FetchReply) -> bool:
        """Whether the job to be popped or moved has to be read from disk first: if that fails
        afterwards, or the client is gone by then, no client would get it.
        """
        job = self.engine.next_job(request, self.now)
        if job is None or self.broker.cached_payload(job) is not None:
            return False
        pop = PopAfterRead(self, request, wait, reply, job)
        self.read_for_command(job.payload_at, job.payload_size, pop.on_payload_read)
        return True

    def send_no_job(self) -> None:
        reply = self._fetch_reply
        self._fetch_reply = None
        if reply is not None:
            reply.send_no_job(self)

    def send_job(self, job: Job, payload: bytes) -> None:
        reply = self._fetch_reply
        self._fetch_reply = None
        if (
            self.engine.read_only_reason
        ):  # while the payload was read: what was popped will be there again
            self.refuse(error_text(ReadOnly(self.engine.read_only_reason)))
        elif reply is not None:
            reply.send_job(self, job, payload)

    # Watching jobs

    def watch_job(self, job: Job, wait: i64, reply: ResultReply) -> None:
        """Answer when the job has ended, or when the time is over; `wait` 0: do not wait."""
        if self.closing_after_replies or self._in_transaction or not wait:
            reply.on_timeout(self)
            return
        self._result_reply = reply
        self.watcher = self.engine.watch_job(job.id, self.owner, deadline_after(self.now, wait))

    def on_job_finished(self, event: JobEvent) -> bool:
        reply = self._result_reply
        kind = event.event
        if kind == WATCH_LEASED or reply is None:
            return False
        self._result_reply = None
        queue = event.queue
        if queue is not None and kind in (WATCH_SUCCEEDED, WATCH_FAILED):
            reply.on_job_ended(self, kind == WATCH_SUCCEEDED, queue.name)
        elif kind == WATCH_GONE:
            reply.on_job_gone(self)
        else:
            reply.on_timeout(self)
        return True

    def on_watch_cancelled(self) -> None:
        reply = self._result_reply
        self._result_reply = None
        if reply is not None:
            reply.on_timeout(self)

    # Replies

    def continue_after_reply(self) -> None:
        """A command was answered outside a turn: queue the connection so that those behind it run
        soon.
        """
        self.reply_queue.flush_output()
        if not self.queued_for_turn:
            self.broker.turn_queue.requeue(self)

    def reply(self, reply: bytes) -> None:
        """Answer with what is true once everything so far is on disk."""
        self.send(reply, self.engine.records.end_position())

    def send_bulk(self, data: bytes) -> None:
        self.send(bulk(data), self.engine.records.end_position())

    def send_nil(self, nil: bytes = b"$-1\r\n", position: i64 = -1) -> None:
        """Answer that there is nothing; `nil` is how the older protocol spells it."""
        self.current_command.no_result += 1
        self.send(
            b"_\r\n" if self.resp_version == 3 else nil,
            self.engine.records.end_position() if position < 0 else position,
        )

    def nil(self) -> bytes:
        """Nothing, inside of an array."""
        return b"_\r\n" if self.resp_version == 3 else b"$-1\r\n"

    def map_header(self, count: int) -> bytes:
        return b"%%%d\r\n" % count if self.resp_version == 3 else b"*%d\r\n" % (2 * count)

    def refuse(self, text: str) -> None:
        self.current_command.errors += 1
        # An error may show a change that is not on disk yet, so it waits like any reply.
        self.send(error_line(text), self.engine.records.end_position())


# Commands, and how those are answered that take time: in chunks, with a job, at a job's end


class RespCommand:
    """A command as it stands in the table: its count, and how many arguments it takes with its own
    name.
    """

    def __init__(
        self,
        name: bytes,
        verb: CommandStats,
        run: Callable[[RespConnection, list[bytes]], None],
        min_args: i64,
        max_args: i64,
        immediate: bool,
        when_read_only: bool,
    ) -> None:
        self.name = name  # in upper case
        self.verb = verb
        self.run = run
        self.min_args = min_args
        self.max_args = max_args  # 0: as many as one likes
        self.immediate = immediate  # also between MULTI and EXEC
        # it can be answered although the journal cannot be written
        self.when_read_only = when_read_only

    def arity(self) -> int:
        """As Redis gives it: negative for "at least"."""
        return self.min_args if self.min_args == self.max_args else -self.min_args


class ChunkedCommand:
    """The remaining work of a command, done in chunks so that other connections do not wait."""

    def run_chunk(self, connection: RespConnection) -> bool:
        """Do one chunk; True when it was the last, and the command is answered."""
        raise NotImplementedError


class FetchReply:
    """How a command that fetches a job is answered, once there is one."""

    def send_job(self, connection: RespConnection, job: Job, payload: bytes) -> None:
        raise NotImplementedError

    def send_no_job(self, connection: RespConnection) -> None:
        connection.send_nil(b"*-1\r\n", 0)


class ResultReply:
    """How a command that waits for a job's end is answered."""

    def on_job_ended(self, connection: RespConnection, succeeded: bool, queue: str) -> None:
        """`queue`: where it was at its end."""
        raise NotImplementedError

    def on_job_gone(self, connection: RespConnection) -> None:
        raise NotImplementedError

    def on_timeout(self, connection: RespConnection) -> None:
        """The time is over, or the connection ends; the job may have ended all the same."""
        raise NotImplementedError


class LoginReply:
    """How a command that logs in is answered."""

    def send(self, connection: RespConnection, succeeded: bool) -> None:
        raise NotImplementedError


# Commands that continue when bytes have been read from disk


class CommandReadCallback:
    """Continues a command with bytes from disk, outside its own turn."""

    def __init__(self, connection: RespConnection, then: Callable[[bytes], None]) -> None:
        self._connection = connection
        self._then = then

    def on_read(self, data: bytes | None) -> None:
        connection = self._connection
        if data is None:
            connection.discard_input()  # nothing of it could be answered
            connection.reply_queue.abort()
            return
        connection.now = connection.broker.clock.now()  # records are in the order of time
        try:
            connection.check_alive()
            self._then(data)
        except CommandError as refusal:
            connection.chunked_command = None
            connection.refuse(str(refusal))
        except Denied as denial:
            connection.chunked_command = None
            connection.send_permission_denied(str(denial))
        except TaskyardError as error:
            connection.chunked_command = None
            connection.refuse(error_text(error))


class PopAfterRead:
    """Continues a pop when the payload has been read from disk."""

    def __init__(
        self,
        connection: RespConnection,
        request: FetchRequest,
        wait: i64,
        reply: FetchReply,
        job: Job,
    ) -> None:
        self._connection = connection
        self._request = request
        self._wait = wait
        self._reply = reply
        self._job = job

    def on_payload_read(self, payload: bytes) -> None:
        connection = self._connection
        engine = connection.engine
        connection.check_fetch_permission(self._request)  # the rules may have changed meanwhile
        if (
            engine.next_job(self._request, connection.now) is not self._job
        ):  # another client was quicker
            connection.fetch_and_reply(self._request, self._wait, self._reply)
            return
        engine.fetch(self._request, connection.now)
        connection.send_job(self._job, payload)


# MULTI and EXEC: commands that are executed one after the other, with one array of replies. No
# other client is served in between, except while one of them works in chunks or reads from disk. A
# command that would wait for a job does not.


def add_transaction_commands(resp: Resp) -> None:
    resp.add_command(b"MULTI", _multi, 1, 1, immediate=True, when_read_only=True)
    resp.add_command(b"EXEC", _exec, 1, 1, immediate=True, when_read_only=True)
    resp.add_command(b"DISCARD", _discard, 1, 1, immediate=True, when_read_only=True)


def _multi(connection: RespConnection, args: list[bytes]) -> None:
    if connection.transaction is not None:
        raise CommandError("ERR MULTI calls can not be nested")
    if connection.unauthenticated:  # nothing is kept for such a client
        raise Denied("log in first")
    connection.transaction = MultiTransaction(connection.resp.batch_limit)
    connection.send(OK, 0)


def _exec(connection: RespConnection, args: list[bytes]) -> None:
    batch = connection.transaction
    if batch is None:
        raise CommandError("ERR EXEC without MULTI")
    connection.transaction = None
    if batch.limit_error:
        raise CommandError(f"EXECABORT Transaction discarded because of: {batch.limit_error}")
    if batch.aborted:
        raise CommandError("EXECABORT Transaction discarded because of previous errors.")
    connection.send(b"*%d\r\n" % len(batch.commands), 0)
    connection.run_transaction(batch)


def _discard(connection: RespConnection, args: list[bytes]) -> None:
    if connection.transaction is None:
        raise CommandError("ERR DISCARD without MULTI")
    connection.transaction = None
    connection.send(OK, 0)


class MultiTransaction:
    """Commands between MULTI and EXEC. No other client is served in between, so there is a
    bound to them. Commands that will not be executed are not kept.
    """

    def __init__(self, limit: i64) -> None:
        self.commands: list[tuple[RespCommand, list[bytes]]] = []
        self.size: i64 = 0
        # overhead bytes that were not reported to the memory limit yet
        self.unreported_bytes: i64 = 0
        self.aborted = False  # one of them cannot be executed, so none will be
        self.limit_error = ""  # says which bound they are beyond
        self._limit = limit
        self._args: i64 = 0

    def add(self, command: RespCommand, args: list[bytes]) -> None:
        if self.aborted:
            return
        self._args += len(args)
        self.unreported_bytes += len(args) * ARG_OVERHEAD
        for arg in args:
            self.size += len(arg) + ARG_OVERHEAD
        if len(self.commands) >= self._limit:
            self.limit_error = f"too much in one transaction: at most {self._limit} commands"
        elif self._args > self._limit * MAX_AVERAGE_ARGS:
            most = self._limit * MAX_AVERAGE_ARGS
            self.limit_error = f"too much in one transaction: at most {most} arguments"
        elif self.size > MAX_TRANSACTION_BYTES:
            self.limit_error = f"too much in one transaction: at most {MAX_TRANSACTION_BYTES} bytes"
        else:
            self.commands.append((command, args))
            return
        self.abort()

    def abort(self) -> None:
        self.aborted = True
        self.commands = []
        self.size = 0
