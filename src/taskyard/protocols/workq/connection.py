"""Workq: lines of text over TCP, with payloads and results of raw bytes behind them.

Replies are in the order of the commands; lease, result and run may have to wait, and delay those
behind them on their connection. User documentation: docs/workq.md.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from mypy_extensions import i64

from taskyard.access.authenticator import (
    Authenticator,
    OpenAuthenticator,
    authenticate_certificate,
    host_of,
)
from taskyard.access.principal import ADMIN, INSPECT, PUSH, TAKE, Denied, Principal
from taskyard.broker.commit import Broker
from taskyard.broker.interfaces import Transport
from taskyard.broker.metrics import CommandStats, ProtocolStats
from taskyard.engine.model.events import (
    WATCH_FAILED,
    WATCH_GONE,
    WATCH_LEASED,
    WATCH_SUCCEEDED,
    DuplicateJob,
    DuplicateResult,
    FetchRequest,
    InvalidOption,
    JobEvent,
    JobNotFound,
    TaskyardError,
    UidTaken,
)
from taskyard.engine.model.job import FAILED, GONE, LEASED, SUCCEEDED, WORKQ, Job, Origin
from taskyard.engine.model.queue import Queue
from taskyard.protocols.connection import (
    INPUT_LIMIT,
    NOT_TLS,
    ProtocolConnection,
    looks_like_tls,
    wrong_protocol_or_resp_error,
)
from taskyard.protocols.text import show_uid
from taskyard.protocols.workq import messages
from taskyard.protocols.workq.inspect import inspect
from taskyard.protocols.workq.messages import (
    BAD_ENDING,
    BAD_PAYLOAD,
    BAD_RESULT,
    INCOMPLETE,
    MILLISECOND,
    TOO_LARGE,
    TOO_LONG,
    CommandError,
    RequestParser,
    WorkqFrameParser,
)

OK: Final = b"+OK\r\n"
TIMEOUT: Final = b"-TIMEOUT\r\n"
NOT_FOUND: Final = b"-NOT-FOUND\r\n"
STOPPING: Final = (
    b"-SERVER-ERROR The server stops; the job goes on, its result can be asked for\r\n"
)

MAX_CACHED_LEASE_FIELDS: Final = 32  # fields of a lease; a longer one is read anew each time
UNKNOWN: Final = "Unknown command"


class Workq:
    """State shared by all connections of this protocol."""

    def __init__(
        self,
        broker: Broker,
        output_limit: i64,
        lease_ttr: bool,
        max_losses: i64,
        authenticator: Authenticator | None = None,
    ) -> None:
        self.broker = broker
        self.authenticator: Authenticator = authenticator or OpenAuthenticator()
        self.output_limit = output_limit
        self.lease_ttr = lease_ttr
        self.parser = RequestParser(max_losses)
        self.started: i64 = broker.clock.now()
        self.stats = ProtocolStats("workq")
        broker.metrics.add_protocol(self.stats)
        self.commands = {
            verb: WorkqCommand(self.stats.add_command(verb.decode()), run)
            for verb, run in _COMMANDS.items()
        }
        self._names: list[bytes] = []
        self._names_version: i64 = -1

    def connect(self, transport: Transport, peer: str) -> WorkqConnection:
        self.stats.total_connections += 1
        connection = WorkqConnection(self, transport, peer)
        self.stats.open_connections += 1
        self.broker.register(connection)
        return connection

    def sorted_queue_names(self) -> list[bytes]:
        """The queues that this protocol can spell, in the order of the alphabet."""
        state = self.broker.engine.state
        if self._names_version != state.queues_version:
            self._names_version = state.queues_version
            self._names = sorted([name for name in state.queues if messages.is_valid_name(name)])
        return self._names


class WorkqConnection(ProtocolConnection):
    def __init__(self, workq: Workq, transport: Transport, peer: str) -> None:
        principal = authenticate_certificate(workq.authenticator, transport.certificate_name())
        origin = Origin(WORKQ, principal.name, f"{peer}#{workq.stats.total_connections}")
        super().__init__(
            workq.broker,
            transport,
            origin,
            workq.output_limit,
            workq.stats,
            principal,
        )
        self.workq = workq
        self._peer = peer
        self._frame_parser = WorkqFrameParser(workq.broker.engine.state.settings.payload_limit)
        self._awaits_first_bytes = True  # nothing has arrived yet
        self._input_unreadable = False  # the input can no longer be parsed
        self._run_job: Job | None = None  # of the run that waits
        self._last_lease: list[bytes] = []  # which workers send again and again
        self._last_request = FetchRequest([], self.owner, origin)
        self._last_wait: i64 = 0
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
        self.workq.stats.open_connections -= 1
        super().on_disconnect()

    def release_resources(self) -> None:
        self._end_run(self.broker.begin_turn())
        super().release_resources()
        self.broker.end_turn()

    # Commands

    def pending_input_bytes(self) -> i64:
        return INPUT_LIMIT + 1 if self._input_unreadable else self._frame_parser.pending_bytes()

    def buffered_bytes(self) -> i64:
        return self._frame_parser.buffered_bytes()

    def partial_command_bytes(self) -> i64:
        return self._frame_parser.partial_command_bytes()

    def send_error(self, text: str) -> None:
        self.current_command = self.workq.stats.unknown_command
        self._refuse(text[0].upper() + text[1:])

    def limit_unauthenticated_input(self, unauthenticated: bool) -> None:
        self._frame_parser.limit_unauthenticated_input(unauthenticated)

    def discard_input(self) -> None:
        self._frame_parser.discard()

    def execute_next(self) -> bool:
        reader = self._frame_parser
        found = reader.parse_next()
        if found == INCOMPLETE:
            if self.closing_after_replies and not self._stopping and reader.needs_block():
                return self._refuse_incomplete_block()
            return False
        self.current_command = self.workq.stats.unknown_command
        if found == BAD_ENDING:
            self._refuse("Invalid line ending")
        elif found == TOO_LONG:
            self._refuse("Line too long")
            self._report_and_close("line too long")
        elif found == TOO_LARGE:
            self._refuse(_size_error(reader.fields))
            self._report_and_close("payload too large")
        else:
            fields = reader.fields
            command = self.workq.commands.get(fields[0]) if fields else None
            if command is None:
                self.current_command.count += 1
                error = wrong_protocol_or_resp_error(fields)
                if error:
                    self.send_error(error)
                    self._report_and_close(error)
                else:
                    self._refuse(UNKNOWN)
            else:
                self.current_command = command.verb
                command.verb.count += 1
                if self.unauthenticated and reader.block_skipped:
                    self.send_permission_denied("log in first")
                else:
                    self._execute_command(command, fields)
        return True

    def _refuse_incomplete_block(self) -> bool:
        """The client has said that it sends nothing more, in the middle of a payload or result."""
        fields = self._frame_parser.fields
        self.current_command = self.workq.stats.unknown_command
        self.current_command.count += 1
        self._refuse(_size_error(fields))
        self._frame_parser.discard()
        return True

    def _report_and_close(self, reason: str) -> None:
        self.log_protocol_error(reason)
        self._input_unreadable = True
        self.close(drain_input=True)

    def _execute_command(self, command: WorkqCommand, fields: list[bytes]) -> None:
        try:
            command.run(self, fields)
        except CommandError as refusal:  # a name of its own: mypyc gives each name one type
            self._refuse(str(refusal))
        except Denied as denial:
            self.send_permission_denied(str(denial))
        except TaskyardError as error:
            self._send_engine_error(error, fields[0])

    def _add(self, fields: list[bytes]) -> None:
        new = self.workq.parser.parse_add(fields, self._frame_parser.block)
        self.require_permission(PUSH, new.queue)
        self.engine.push(new, self.origin, self.now)
        self.send(OK, self.engine.records.end_position())

    def _schedule(self, fields: list[bytes]) -> None:
        new = self.workq.parser.parse_schedule(fields, self._frame_parser.block, self.now)
        self.require_permission(PUSH, new.queue)
        self.engine.push(new, self.origin, self.now)
        self.send(OK, self.engine.records.end_position())

    def _lease(self, fields: list[bytes]) -> None:
        if fields != self._last_lease:
            names, wait = self.workq.parser.parse_lease(fields)
            request = FetchRequest(names, self.owner, self.origin, random_queue=len(names) > 1)
            if len(fields) > MAX_CACHED_LEASE_FIELDS:
                self._check_and_lease(request, wait)
                return
            self._last_lease = fields
            self._last_request = request
            self._last_wait = wait
        self._check_and_lease(self._last_request, self._last_wait)

    def _check_and_lease(self, request: FetchRequest, wait: i64) -> None:
        if not self.principal.is_superuser:
            for queue in request.queues:
                self.require_permission(TAKE, queue.decode())
        self.fetch(request, wait)

    def _complete(self, fields: list[bytes]) -> None:
        uid, result = messages.parse_finish(fields, self._frame_parser.block, BAD_PAYLOAD)
        self.engine.complete(self.find_job(uid, TAKE).id, result, self.origin, self.now)
        self.send(OK, self.engine.records.end_position())

    def _fail(self, fields: list[bytes]) -> None:
        uid, result = messages.parse_finish(fields, self._frame_parser.block, BAD_RESULT)
        self.engine.fail(self.find_job(uid, TAKE).id, result, self.origin, self.now)
        self.send(OK, self.engine.records.end_position())

    def _delete(self, fields: list[bytes]) -> None:
        job = self.find_job(messages.parse_delete(fields), ADMIN)
        self.engine.delete_job(job.id, self.origin, self.now)
        self.send(OK, self.engine.records.end_position())

    def find_job(self, uid: bytes, action: str) -> Job:
        """The job with this uid, to which the client may do that."""
        job = self.engine.job_by_uid(uid)
        if job is None:
            raise JobNotFound
        self.require_permission(action, job.queue.name)
        return job

    # Authentication

    def _auth(self, fields: list[bytes]) -> None:
        gate = self.workq.authenticator
        if not gate.has_users:
            raise CommandError(UNKNOWN)
        name, secret = messages.parse_credentials(fields)
        self.log_in(gate, host_of(self._peer), name, secret)

    def check_watch_permission(self, job: Job) -> None:
        self._check_watch_permission_in(job.queue)

    def _check_watch_permission_in(self, queue: Queue) -> None:
        self.require_permission(INSPECT if self._run_job is None else PUSH, queue.name)

    def send_permission_denied(self, text: str) -> None:
        self._end_run(self.now)
        self._refuse("Permission denied")

    def on_login(self, principal: Principal | None) -> None:
        if principal is None:
            self._refuse("Authentication failed")
            return
        self.set_principal(principal)
        self.origin = Origin(WORKQ, principal.name, self.origin.holder)
        self._last_lease = []  # its Take names the old origin
        self.send(OK, 0)

    # Waiting for a job's end

    def _result(self, fields: list[bytes]) -> None:
        uid, wait = messages.parse_result(fields)
        self.engine.check_not_read_only()
        job = self.find_job(uid, INSPECT)
        if job.state == SUCCEEDED or job.state == FAILED:
            self._send_result(job, False)
        elif not wait or self.closing_after_replies:
            self._send_timeout(0)
        else:
            self.watcher = self.engine.watch_job(job.id, self.owner, self.now + wait)

    def _run(self, fields: list[bytes]) -> None:
        new, wait = self.workq.parser.parse_run(fields, self._frame_parser.block, self.owner)
        self.require_permission(PUSH, new.queue)
        job = self.engine.push(new, self.origin, self.now)
        self._run_job = job
        if job.state == LEASED:
            self.watcher = self.engine.watch_job(job.id, self.owner)
        elif wait and not self.closing_after_replies:
            self.watcher = self.engine.watch_job(job.id, self.owner, self.now + wait)
        else:
            self._end_run(self.now)
            self._send_timeout(self.engine.records.end_position())

    def on_job_finished(self, event: JobEvent) -> bool:
        """Something happened to the job that a result or run waits for; whether that is all."""
        kind = event.event
        job = event.job
        call = self._run_job
        if kind not in (WATCH_LEASED, WATCH_GONE) and event.queue is not None:
            try:  # it may have moved since, and the rules may have changed
                self._check_watch_permission_in(event.queue)
            except Denied as denial:
                self.send_permission_denied(str(denial))
                return True
        if kind == WATCH_LEASED:
            if call is not None:  # from now on it is the job's own time that counts
                self.engine.watch_without_deadline(event.watcher)
            return False
        if kind == WATCH_GONE and (call is None or call.ensure_extras().expires_at > self.now):
            self._run_job = None
            self.send_not_found()
        elif job is not None and kind in (WATCH_SUCCEEDED, WATCH_FAILED):
            extra = job.extras
            if call is not None and extra is not None and not extra.has_result:
                self._end_run(self.now)
                self._send_timeout(self.engine.records.end_position())
            else:
                self._send_result(job, kind == WATCH_SUCCEEDED)
        elif call is not None and call.state == LEASED:
            # Another connection was notified first and took the job.
            self.watcher = self.engine.watch_job(call.id, self.owner)
            return False
        elif call is not None and (call.state == SUCCEEDED or call.state == FAILED):
            self._send_result(call, False)
        else:
            self._end_run(self.now)
            self._send_timeout(self.engine.records.end_position())
        return True

    def keeps_watching(self) -> bool:
        call = self._run_job
        return call is not None and call.state == LEASED

    def on_watch_cancelled(self) -> None:
        call = self._run_job
        if call is not None and call.state == LEASED:
            self._run_job = None
            self.current_command.errors += 1
            self.send(STOPPING, self.engine.records.end_position())
        else:
            self._end_run(self.broker.clock.now())
            self._send_timeout(self.engine.records.end_position())

    def _send_result(self, job: Job, succeeded: bool) -> None:
        extra = job.extras
        at: i64 = 0
        size: i64 = 0
        if extra is not None and extra.has_result:
            at = extra.result_at
            size = extra.result_size
        answer = _ResultReadCallback(self, job, succeeded or job.state == SUCCEEDED)
        result = self.broker.journal.read_blob(at, size)
        if result is None:
            self.read_from_disk(at, size, answer.on_read)
        else:
            answer.on_read(result)

    def on_result_read(self, job: Job, succeeded: bool, result: bytes | None) -> None:
        if result is None:  # not there any more, or the disk cannot be read
            if job.state != GONE:
                self.reply_queue.abort()
            self.send_not_found()
            return
        if self._run_job is job:
            self._end_run(self.broker.clock.now())
        head = b"+OK 1\r\n%b %d %d\r\n" % (
            show_uid(self.engine.uid_of(job)),
            1 if succeeded else 0,
            len(result),
        )
        self.send(b"".join([head, result, b"\r\n"]), self.engine.records.end_position())

    def _end_run(self, now: i64) -> None:
        """End the run. Its job is cancelled as well, unless a worker has leased it."""
        call = self._run_job
        self._run_job = None
        if call is not None and not self.engine.read_only_reason:
            self.engine.cancel_abandoned(call.id, self.origin, now)

    # Replies

    def send_no_job(self) -> None:
        self._send_timeout(0)

    def _send_timeout(self, position: i64) -> None:
        self.current_command.no_result += 1
        self.send(TIMEOUT, position)

    def send_not_found(self) -> None:
        # It may show a change that is not on disk yet, so it waits like any reply.
        self.current_command.errors += 1
        self.send(NOT_FOUND, self.engine.records.end_position())

    def send_job(self, job: Job, payload: bytes) -> None:
        uid = show_uid(self.engine.uid_of(job))
        name = job.queue.utf8
        lease = job.lease
        if self.workq.lease_ttr and lease is not None:
            ttr = (lease.deadline - lease.since) // MILLISECOND
            head = b"+OK 1\r\n%b %b %d %d\r\n" % (uid, name, ttr, len(payload))
            self.send(b"".join([head, payload, b"\r\n"]), self.broker.delivery_position(job))
            return
        size = str(len(payload)).encode()
        parts = [b"+OK 1\r\n", uid, b" ", name, b" ", size, b"\r\n", payload, b"\r\n"]
        self.send(b"".join(parts), self.broker.delivery_position(job))

    def _refuse(self, text: str) -> None:
        self.current_command.errors += 1
        self.send(f"-CLIENT-ERROR {text}\r\n".encode(), self.engine.records.end_position())

    def _send_engine_error(self, error: TaskyardError, verb: bytes) -> None:
        """The engine's refusal in this protocol's words."""
        if isinstance(error, JobNotFound):
            self.send_not_found()
        elif isinstance(error, DuplicateJob):
            self._refuse("Duplicate job")
        elif isinstance(error, UidTaken):  # other words: clients take those above for success
            self._refuse("ID taken")
        elif isinstance(error, DuplicateResult):
            self._refuse("Duplicate result")
        elif isinstance(error, InvalidOption):  # the server's limit may be below the protocol's
            self._refuse(_size_error([verb]))
        else:
            self.current_command.errors += 1
            self.send(f"-SERVER-ERROR {error}\r\n".encode(), self.engine.records.end_position())


def _size_error(fields: list[bytes]) -> str:
    return BAD_RESULT if fields[0] == b"fail" else BAD_PAYLOAD


class _ResultReadCallback:
    """Keeps the job whose result is being read."""

    def __init__(self, connection: WorkqConnection, job: Job, succeeded: bool) -> None:
        self._connection = connection
        self._job = job
        self._succeeded = succeeded

    def on_read(self, result: bytes | None) -> None:
        self._connection.on_result_read(self._job, self._succeeded, result)


class WorkqCommand:
    """A command, and its count."""

    def __init__(
        self, verb: CommandStats, run: Callable[[WorkqConnection, list[bytes]], None]
    ) -> None:
        self.verb = verb
        self.run = run


_COMMANDS: Final[dict[bytes, Callable[[WorkqConnection, list[bytes]], None]]] = {
    b"add": WorkqConnection._add,
    b"schedule": WorkqConnection._schedule,
    b"run": WorkqConnection._run,
    b"result": WorkqConnection._result,
    b"lease": WorkqConnection._lease,
    b"complete": WorkqConnection._complete,
    b"fail": WorkqConnection._fail,
    b"delete": WorkqConnection._delete,
    b"inspect": inspect,
    b"auth": WorkqConnection._auth,
}
