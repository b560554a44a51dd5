"""Masenko: JSON lines over TCP.

A line is a verb and, behind the first space, JSON. Replies are in the order of the commands; a
FETCH that has to wait delays those behind it. `parsing` reads the commands. User documentation:
docs/masenko.md.
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
from taskyard.access.principal import INSPECT, PUSH, TAKE, Denied, Principal
from taskyard.broker.commit import Broker
from taskyard.broker.interfaces import Cancellable, Scheduler, Transport
from taskyard.broker.metrics import CommandStats, ProtocolStats
from taskyard.engine.model.events import FetchRequest, TaskyardError, TransactionStepRefused
from taskyard.engine.model.job import JSON, MASENKO, Job, NewJob, Origin
from taskyard.engine.model.queue import Queue
from taskyard.engine.operations.push import TransactionStep
from taskyard.protocols.connection import (
    INPUT_LIMIT,
    NOT_TLS,
    UNAUTHENTICATED_LIMIT,
    ProtocolConnection,
    looks_like_tls,
    wrong_protocol_or_resp_error,
)
from taskyard.protocols.masenko.messages import encode_json
from taskyard.protocols.masenko.parsing import (
    SPACE,
    CommandError,
    RequestParser,
    error_text,
    parse_credentials,
    parse_job_id,
    step_error_text,
    verb_end,
)
from taskyard.protocols.text import LineBuffer, LineTooLong, as_json, decimal

_CACHE_SIZE: Final = 4096
_QUOTE: Final = 34
_BACKSLASH: Final = 92

LINE_OVERHEAD: Final = 65_536  # what a line may be longer than the largest payload
MAX_STEPS: Final = 10_000
STEP_OVERHEAD: Final = 512  # bytes that a step takes in memory beside what it says
STEPS_PER_MEMORY_CHECK: Final = 64  # steps after which the memory limit is checked
MAX_CACHED_FETCH_BYTES: Final = 4096  # bytes of a FETCH; a longer one is read anew each time
NO_FETCH: Final = b"\n"  # what no line can have
MAX_STEP_BYTES: Final = 64 * 1_048_576
# Rounds of the event loop that a silent client gets before it times out: in the second one all is
# read that arrived while the whole server stood still.
HEARTBEAT_GRACE_ROUNDS: Final = 2

OK: Final = b"OK {}\n"
PONG: Final = b"PONG {}\n"
EMPTY: Final = b"EMPTY {}\n"


class Masenko:
    """State shared by all connections of this protocol."""

    def __init__(
        self,
        broker: Broker,
        scheduler: Scheduler,
        heartbeat: i64,
        payload_limit: i64,
        output_limit: i64,
        max_losses: i64,
        authenticator: Authenticator | None = None,
    ) -> None:
        self.broker = broker
        self.authenticator: Authenticator = authenticator or OpenAuthenticator()
        self.scheduler = scheduler
        self.heartbeat = heartbeat
        self.line_limit = payload_limit + LINE_OVERHEAD
        self.output_limit = output_limit
        self.parser = RequestParser(heartbeat, max_losses)
        self.stats = ProtocolStats("masenko")
        broker.metrics.add_protocol(self.stats)
        self.commands = {
            verb: MasenkoCommand(self.stats.add_command(verb.decode()), run)
            for verb, run in _COMMANDS.items()
        }
        self.push = self.commands[b"PUSH"]
        self.fetch = self.commands[b"FETCH"]
        self.ack = self.commands[b"ACK"]
        self.auth = self.commands[b"AUTH"]
        self.name_cache = NameCache()

    def match_common_verb(self, line: bytes, end: i64) -> MasenkoCommand | None:
        """One of the three commands that workers and producers send all the time, as they are
        usually spelled; found without making an object of the verb."""
        if end == 4:
            if line[0] == 80 and line[1] == 85 and line[2] == 83 and line[3] == 72:
                return self.push
        elif end == 5:
            if line[0] == 70 and line[1] == 69 and line[2] == 84 and line[3] == 67:
                return self.fetch if line[4] == 72 else None
        elif end == 3 and line[0] == 65 and line[1] == 67 and line[2] == 75:
            return self.ack
        return None

    def connect(self, transport: Transport, peer: str) -> MasenkoConnection:
        self.stats.total_connections += 1
        connection = MasenkoConnection(self, transport, peer)
        self.stats.open_connections += 1
        self.broker.register(connection)
        return connection


class MasenkoConnection(ProtocolConnection):
    def __init__(self, masenko: Masenko, transport: Transport, peer: str) -> None:
        principal = authenticate_certificate(masenko.authenticator, transport.certificate_name())
        origin = Origin(MASENKO, principal.name, f"{peer}#{masenko.stats.total_connections}")
        super().__init__(
            masenko.broker,
            transport,
            origin,
            masenko.output_limit,
            masenko.stats,
            principal,
        )
        self._masenko = masenko
        self._peer = peer
        self._input_lines = LineBuffer(masenko.line_limit)
        self._line_limit = masenko.line_limit  # of a client that has logged in, or has not
        self._awaits_first_bytes = True  # nothing has arrived yet
        self._too_long = False  # a line has arrived that is beyond the limit
        self._steps: list[TransactionStep] | None = None  # of the transaction that is being read
        self._step_bytes: i64 = 0
        self._step_error = ""  # the first thing that is wrong with it
        self._last_fetch = NO_FETCH  # JSON of the last FETCH, which workers send again and again
        self._last_request = FetchRequest([], self.owner, origin)
        self._last_timeout: i64 = 0
        self._last_command_at: i64 = self.now
        self._heartbeat_timer: Cancellable | None = None
        self._grace_rounds: i64 = 0  # rounds it was given since its heartbeat was overdue
        self._schedule_heartbeat_check(self.now)
        self.apply_principal_limits()

    # From the connection

    def feed(self, data: bytes) -> None:
        if self.closed or self.closing_after_replies or self._too_long:
            return
        if self._awaits_first_bytes:
            self._awaits_first_bytes = False
            if looks_like_tls(data):
                self.reject_protocol(NOT_TLS)
                return
        try:
            self._input_lines.feed(data)
        except LineTooLong:
            self._too_long = True
        self.process_input()

    def on_disconnect(self) -> None:
        self._masenko.stats.open_connections -= 1
        if self._heartbeat_timer is not None:
            self._heartbeat_timer.cancel()
            self._heartbeat_timer = None
        super().on_disconnect()

    # Commands

    def pending_input_bytes(self) -> i64:
        if self._too_long:
            return INPUT_LIMIT + 1  # no more is needed
        lines = self._input_lines
        # While the client is being authenticated, a line that has begun may be too long or not.
        return lines.size + lines.partial_bytes if self.command_suspended else lines.size

    def buffered_bytes(self) -> i64:
        held = self._input_lines.size + self._input_lines.partial_bytes
        if self._steps is not None:
            held += self._step_bytes + len(self._steps) * STEP_OVERHEAD
        return held

    def needs_more_input(self) -> bool:
        if self._steps is None:
            return self.has_partial_command()
        return not (
            self.command_suspended
            or self.closed
            or self.queued_for_turn
            or self.rate_limited
            or self.pending_input_bytes()
        )

    def partial_command_bytes(self) -> i64:
        return 0 if self._input_lines.size else self._input_lines.partial_bytes

    def send_error(self, text: str) -> None:
        self.current_command = self._masenko.stats.unknown_command
        self._refuse(text)

    def limit_unauthenticated_input(self, unauthenticated: bool) -> None:
        self._line_limit = (
            i64(UNAUTHENTICATED_LIMIT) if unauthenticated else self._masenko.line_limit
        )

    def discard_input(self) -> None:
        self._steps = None
        self._input_lines.discard()

    def execute_next(self) -> bool:
        line = self._input_lines.next_line()
        if line is None:
            if self._too_long or self._input_lines.partial_bytes > self._line_limit:
                self._reject_long_line()
            return False
        if len(line) > self._line_limit:
            self._reject_long_line()
            return False
        self._last_command_at = self.now
        if line and line[-1] <= SPACE:
            line = line.rstrip(b" \r")
        end = verb_end(line)
        rest = line[end + 1 :]
        masenko = self._masenko
        steps = self._steps
        if steps is None:
            common_command = masenko.match_common_verb(line, end)
            if common_command is not None:
                self.current_command = common_command.verb
                common_command.verb.count += 1
                self._execute_command(common_command, rest)
                return True
        sent = line[:end]
        verb = sent
        command = masenko.commands.get(verb)
        if command is None:
            verb = verb.upper()
            command = masenko.commands.get(verb)
        if command is masenko.auth and not masenko.authenticator.has_users:
            command = None
        if steps is not None and verb != b"DONE":
            self._add_step(steps, verb, rest)
        elif command is None:
            self.current_command = self._masenko.stats.unknown_command
            self.current_command.count += 1
            error = wrong_protocol_or_resp_error(line.split(None, 3))
            if error:
                self.log_protocol_error(error)
                self._refuse(error)
                self.close(drain_input=True)
                return True
            self._refuse(f"unknown verb {sent.decode(errors='replace')}")
        else:
            self.current_command = command.verb
            command.verb.count += 1
            self._execute_command(command, rest)
        return True

    def _reject_long_line(self) -> None:
        """Reject a line that is too long; nothing more is read."""
        self._too_long = True
        self.current_command = self._masenko.stats.unknown_command
        self.log_protocol_error("line too long")
        self._refuse("line too long")
        self.close(drain_input=True)

    def _execute_command(self, command: MasenkoCommand, arguments: bytes) -> None:
        try:
            # The most frequent ones without the detour by a table.
            if command is self._masenko.push:
                self._push(arguments)
            elif command is self._masenko.fetch:
                self._fetch(arguments)
            elif command is self._masenko.ack:
                self._ack(arguments)
            else:
                command.run(self, arguments)
        except CommandError as refusal:  # a name of its own: mypyc gives each name one type
            self._refuse(str(refusal))
        except Denied as denial:
            self.send_permission_denied(str(denial))
        except TaskyardError as error:
            self._refuse(error_text(error, None))

    def _ping(self, _: bytes) -> None:
        self.send(PONG, 0)

    def _push(self, arguments: bytes) -> None:
        new = self._masenko.parser.parse_push(arguments)
        self._check_push_permission(new)
        blocked_by = new.blocked_by
        if blocked_by is not None:
            for blocker in blocked_by:
                if blocker <= 0:
                    raise CommandError("cannot use relative blocked by outside of a transaction")
        try:
            job = self.engine.push(new, self.origin, self.now)
        except TaskyardError as error:
            raise CommandError(error_text(error, new)) from error
        self.send(b'OK {"id":' + decimal(job.id) + b"}\n", self.engine.records.end_position())

    def _check_push_permission(self, new: NewJob) -> None:
        if not self.principal.is_superuser:
            self.require_permission(PUSH, new.queue)
            if new.policy.dead_queue:
                self.require_permission(PUSH, new.policy.dead_queue)

    def _check_step_permissions(self, steps: list[TransactionStep]) -> None:
        """They were allowed when they arrived, and the permissions may have changed."""
        if not self.principal.is_superuser:
            for step in steps:
                new = step.new
                if new is not None:
                    self._check_push_permission(new)

    def _fetch(self, arguments: bytes) -> None:
        if arguments != self._last_fetch:
            queues, timeout = self._masenko.parser.parse_fetch(arguments, self.engine.state.queues)
            request = FetchRequest(queues, self.owner, self.origin, bound_to_connection=True)
            if len(arguments) > MAX_CACHED_FETCH_BYTES:
                self._check_and_fetch(request, timeout)
                return
            self._last_fetch = arguments
            self._last_request = request
            self._last_timeout = timeout
        self._check_and_fetch(self._last_request, self._last_timeout)

    def _check_and_fetch(self, request: FetchRequest, timeout: i64) -> None:
        if not self.principal.is_superuser:
            for queue in request.queues:
                self.require_permission(TAKE, queue.decode())
        if request.queues:
            self.fetch(request, timeout)
        else:
            self.send_no_job()

    def _ack(self, arguments: bytes) -> None:
        self.engine.ack(parse_job_id(arguments), self.owner, self.origin, self.now)
        self.send(OK, self.engine.records.end_position())

    def _nack(self, arguments: bytes) -> None:
        self.engine.nack(parse_job_id(arguments), self.owner, b"", self.origin, self.now)
        self.send(OK, self.engine.records.end_position())

    def _info(self, _: bytes) -> None:
        self.engine.check_not_read_only()  # else it would count what will never be on disk
        text = encode_json(server_info(self._masenko, self.principal))
        self.send(b"OK " + text + b"\n", self.engine.records.end_position())

    def _auth(self, arguments: bytes) -> None:
        name, secret = parse_credentials(arguments)
        self.log_in(self._masenko.authenticator, host_of(self._peer), name, secret)

    def send_permission_denied(self, text: str) -> None:
        self._refuse(f"permission denied: {text}")

    def on_login(self, principal: Principal | None) -> None:
        if principal is None:
            self._refuse("authentication failed")
            return
        self.set_principal(principal)
        self.origin = Origin(MASENKO, principal.name, self.origin.holder)
        self._last_fetch = NO_FETCH  # its Take names the old origin
        self.send(OK, 0)

    def _quit(self, _: bytes) -> None:
        self.release_resources()
        self.send(OK, self.engine.records.end_position())
        self.close()

    def _atomic(self, _: bytes) -> None:
        self._steps = []
        self._step_bytes = 0
        # Nothing is kept for a client that has to log in first; errors are sent at the end.
        self._step_error = "permission denied: log in first" if self.unauthenticated else ""

    def _done(self, _: bytes) -> None:
        steps = self._steps
        if steps is None:
            raise CommandError("DONE is not allowed outside of a transaction.")
        self._steps = None
        try:
            self._check_step_permissions(steps)
            if self._step_error:  # the first bad line decides, and one before may be bad as well
                self.engine.check_steps(steps, self.owner, self.origin)
                raise CommandError(self._step_error)
            ids = self.engine.transact(steps, self.owner, self.origin, self.now)
        except TransactionStepRefused as error:
            raise CommandError(step_error_text(steps[error.index], error)) from error
        text = b'{"ids":' + encode_json(ids) + b"}" if ids else b"{}"
        self.send(b"OK " + text + b"\n", self.engine.records.end_position())

    def _add_step(self, steps: list[TransactionStep], verb: bytes, arguments: bytes) -> None:
        """Add a line of a transaction; its errors are reported at its end."""
        if self._step_error:
            return
        self._step_bytes += len(arguments)
        if len(steps) >= MAX_STEPS or self._step_bytes > MAX_STEP_BYTES:
            self._step_error = "transaction too large"
            return
        try:
            if verb == b"PUSH":
                new = self._masenko.parser.parse_push(arguments)
                self._check_push_permission(new)
                steps.append(TransactionStep(new))
            elif verb == b"ACK":
                steps.append(TransactionStep(None, parse_job_id(arguments)))
            else:
                name = verb.decode(errors="replace")
                self._step_error = f"{name} is not allowed in transaction."
            if steps and not len(steps) % STEPS_PER_MEMORY_CHECK:
                self.broker.report_memory_use(STEPS_PER_MEMORY_CHECK * STEP_OVERHEAD)
        except CommandError as error:
            self._step_error = f"message {len(steps)}: {verb.decode()}: {error}"
        except Denied as denied:
            self._step_error = f"message {len(steps)}: {verb.decode()}: permission denied: {denied}"

    # Replies

    def send_no_job(self) -> None:
        self.current_command.no_result += 1
        self.send(EMPTY, 0)

    def send_job(self, job: Job, payload: bytes) -> None:
        names = self._masenko.name_cache.name_fields(job)
        if job.content != JSON:
            payload = as_json(payload)
        key = b',"payload":' if payload else b""
        end = b"}\n"
        if job.fails:
            end = b',"failures":' + decimal(i64(job.fails)) + end
        parts = [b'OK {"id":', decimal(job.id), names, key, payload, end]
        self.send(b"".join(parts), self.broker.delivery_position(job))

    def _refuse(self, text: str) -> None:
        self.current_command.errors += 1
        # An error may show a change that is not on disk yet, so it waits like any reply.
        self.send(b'ERR {"msg":' + encode_json(text) + b"}\n", self.engine.records.end_position())

    # Heartbeat

    def on_wait_ended(self) -> None:
        self._last_command_at = self.broker.clock.now()

    def _schedule_heartbeat_check(self, last_command_at: i64) -> None:
        when = last_command_at + self._masenko.heartbeat
        self._heartbeat_timer = self._masenko.scheduler.call_at(when, self._check_heartbeat)

    def _check_heartbeat(self) -> None:
        self._heartbeat_timer = None
        if self.closed:
            self.reply_queue.abort()  # its last replies were not read in all this time
            return
        now = self.broker.begin_turn()
        if self._server_is_busy_with_it():
            self._grace_rounds = 0
            self._schedule_heartbeat_check(now)
        elif now < self._last_command_at + self._masenko.heartbeat:
            self._grace_rounds = 0
            self._schedule_heartbeat_check(self._last_command_at)
        elif self._grace_rounds < HEARTBEAT_GRACE_ROUNDS:
            self._grace_rounds += 1
            self._schedule_heartbeat_check(now)
            self._masenko.scheduler.call_soon(self._recheck_heartbeat)
        else:
            self.current_command = self._masenko.stats.unknown_command
            self.log_protocol_error("no heartbeat")
            self._refuse("no heartbeat")
            self.close()
            self._schedule_heartbeat_check(now)
        self.broker.end_turn()

    def _server_is_busy_with_it(self) -> bool:
        """Whether the client waits for the server, also while the disk is busy."""
        return (
            self.waiter is not None
            or self.command_suspended
            or self.queued_for_turn
            or self.reply_queue.has_waiting()
        )

    def _recheck_heartbeat(self) -> None:
        alarm = self._heartbeat_timer
        if alarm is not None and not self.closed:  # else it has gone meanwhile
            alarm.cancel()
            self._check_heartbeat()


class MasenkoCommand:
    """A command, and its count."""

    def __init__(self, verb: CommandStats, run: Callable[[MasenkoConnection, bytes], None]) -> None:
        self.verb = verb
        self.run = run


_COMMANDS: Final[dict[bytes, Callable[[MasenkoConnection, bytes], None]]] = {
    b"PING": MasenkoConnection._ping,
    b"PUSH": MasenkoConnection._push,
    b"FETCH": MasenkoConnection._fetch,
    b"ACK": MasenkoConnection._ack,
    b"NACK": MasenkoConnection._nack,
    b"INFO": MasenkoConnection._info,
    b"QUIT": MasenkoConnection._quit,
    b"ATOMIC": MasenkoConnection._atomic,
    b"DONE": MasenkoConnection._done,
    b"AUTH": MasenkoConnection._auth,
}


def server_info(masenko: Masenko, principal: Principal) -> dict[str, object]:
    """What INFO says: the queues in order of creation that may be seen, and counters.

    Clients that have not logged in get no counters, unless they may inspect the whole server.
    """
    state = masenko.broker.engine.state
    queues = [
        {
            "name": queue.name,
            "ready": queue.ready.size + queue.limited.size,
            "delayed": queue.delayed.size + queue.blocked.size,
            "to_ack": queue.leased.size,
        }
        for queue in state.queues.values()
        if principal.may(INSPECT, queue.name)
    ]
    if not principal.name and not principal.may(INSPECT, ""):
        return {"queues": queues, "metrics": {}}
    metrics = {
        "clients": masenko.stats.open_connections,
        "connections": masenko.stats.total_connections,
        "jobs": state.jobs.size - len(state.finished_ring),
        "requests": {
            verb.decode(): command.verb.count
            for verb, command in masenko.commands.items()
            if verb != b"AUTH"  # an extension that old clients know nothing of
        },
    }
    return {"queues": queues, "metrics": metrics}


# How names of queues and tasks are spelled in answers


class NameCache:
    """Caches the names of the last delivered job, and of tasks."""

    def __init__(self) -> None:
        self._tasks: dict[str, bytes] = {}
        self._last_queue = b""
        self._last_task = ""
        self._last_fields = b""

    def name_fields(self, job: Job) -> bytes:
        """What an answer says of a job's queue and name: most are as the one before."""
        queue = job.queue
        if queue.utf8 is not self._last_queue or job.name != self._last_task:
            parts = [
                b',"queue":',
                self._encode_queue(queue),
                b',"name":',
                self._encode_task(job.name),
            ]
            self._last_fields = b"".join(parts)
            self._last_queue = queue.utf8
            self._last_task = job.name
        return self._last_fields

    def _encode_queue(self, queue: Queue) -> bytes:
        """As a JSON string. There may be more of them than can be remembered, and nearly all are
        spelled as they are."""
        utf8 = queue.utf8
        if _QUOTE in utf8 or _BACKSLASH in utf8:
            return self._encode_task(queue.name)
        return b'"' + utf8 + b'"'

    def _encode_task(self, name: str) -> bytes:
        known = self._tasks.get(name)
        if known is None:
            known = encode_json(name)
            if len(self._tasks) >= _CACHE_SIZE:
                self._tasks.clear()
            self._tasks[name] = known
        return known
