"""Workq: lines of text over TCP, with payloads and results of raw bytes behind them.

Replies come in the order of the commands; lease, result and run may have to wait, and hold up
what is behind them on their connection. User documentation: docs/workq.md.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from mypy_extensions import i64

from taskyard.access.gate import Gate, OpenGate, at_the_gate, host_of
from taskyard.access.principal import ADMIN, INSPECT, PUSH, TAKE, Denied, Principal
from taskyard.broker.broker import Broker
from taskyard.broker.metrics import Traffic, Verb
from taskyard.broker.seams import Transport
from taskyard.engine.model.effects import (
    WATCH_FAILED,
    WATCH_GONE,
    WATCH_LEASED,
    WATCH_SUCCEEDED,
    Take,
    Watched,
)
from taskyard.engine.model.errors import (
    DuplicateJob,
    DuplicateResult,
    InvalidOption,
    JobNotFound,
    TaskyardError,
    UidTaken,
)
from taskyard.engine.model.job import FAILED, GONE, LEASED, SUCCEEDED, WORKQ, Job, Origin
from taskyard.engine.model.queue import Queue
from taskyard.protocols.conversation import INPUT_LIMIT, Conversation
from taskyard.protocols.strays import NOT_TLS, is_of_tls, stray_line_or_array
from taskyard.protocols.uids import show_uid
from taskyard.protocols.workq import requests
from taskyard.protocols.workq.frames import (
    BAD_ENDING,
    NOTHING,
    TOO_LARGE,
    TOO_LONG,
    Reader,
)
from taskyard.protocols.workq.look import inspect
from taskyard.protocols.workq.requests import (
    BAD_PAYLOAD,
    BAD_RESULT,
    MILLISECOND,
    Refused,
    Requests,
)

OK: Final = b"+OK\r\n"
TIMEOUT: Final = b"-TIMEOUT\r\n"
NOT_FOUND: Final = b"-NOT-FOUND\r\n"
STOPPING: Final = (
    b"-SERVER-ERROR The server stops; the job goes on, its result can be asked for\r\n"
)

REMEMBERED: Final = 32  # fields of a lease; a longer one is read anew each time
UNKNOWN: Final = "Unknown command"


class Workq:
    """What all connections of this dialect share."""

    def __init__(
        self,
        broker: Broker,
        output_limit: i64,
        lease_ttr: bool,
        max_losses: i64,
        gate: Gate | None = None,
    ) -> None:
        self.broker = broker
        self.gate: Gate = gate or OpenGate()
        self.output_limit = output_limit
        self.lease_ttr = lease_ttr
        self.requests = Requests(max_losses)
        self.started: i64 = broker.clock.now()
        self.traffic = Traffic("workq")
        broker.metrics.add_dialect(self.traffic)
        self.commands = {
            verb: Command(self.traffic.verb(verb.decode()), run) for verb, run in _COMMANDS.items()
        }
        self._names: list[bytes] = []
        self._names_of: i64 = -1

    def connect(self, transport: Transport, peer: str) -> WorkqConnection:
        self.traffic.connections += 1
        connection = WorkqConnection(self, transport, peer)
        self.traffic.clients += 1
        self.broker.join(connection)
        return connection

    def names(self) -> list[bytes]:
        """The queues that this protocol can spell, in the order of the alphabet."""
        state = self.broker.engine.state
        if self._names_of != state.queues_changed:
            self._names_of = state.queues_changed
            self._names = sorted([name for name in state.queues if requests.spells(name)])
        return self._names


class WorkqConnection(Conversation):
    def __init__(self, workq: Workq, transport: Transport, peer: str) -> None:
        principal = at_the_gate(workq.gate, transport.certificate_name())
        origin = Origin(WORKQ, principal.name, f"{peer}#{workq.traffic.connections}")
        super().__init__(
            workq.broker,
            transport,
            origin,
            workq.output_limit,
            workq.traffic,
            principal,
        )
        self.workq = workq
        self._peer = peer
        self._reader = Reader(workq.broker.engine.state.settings.payload_limit)
        self._fresh = True  # nothing has come yet
        self._over = False  # what comes can no longer be read
        self._call: Job | None = None  # of the run that waits
        self._last_lease: list[bytes] = []  # which workers send again and again
        self._last_take = Take([], self.owner, origin)
        self._last_wait: i64 = 0
        self.look_at_principal()

    # From the connection

    def feed(self, data: bytes) -> None:
        if self.closed or self.ending or self._over:
            return
        if self._fresh:
            self._fresh = False
            if is_of_tls(data):
                self.turn_away(NOT_TLS)
                return
        self._reader.feed(data)
        self.run()

    def lost(self) -> None:
        self.workq.traffic.clients -= 1
        super().lost()

    def let_go(self) -> None:
        self._end_call(self.broker.begin())
        super().let_go()
        self.broker.end()

    # Commands

    def unread(self) -> i64:
        return INPUT_LIMIT + 1 if self._over else self._reader.unread()

    def holding(self) -> i64:
        return self._reader.holding()

    def begun(self) -> i64:
        return self._reader.begun()

    def complain(self, text: str) -> None:
        self.verb = self.workq.traffic.unknown
        self._refuse(text[0].upper() + text[1:])

    def bound_input(self, unknown: bool) -> None:
        self._reader.bound(unknown)

    def forget_input(self) -> None:
        self._reader.drop()

    def next_command(self) -> bool:
        reader = self._reader
        found = reader.next()
        if found == NOTHING:
            if self.ending and not self._stopping and reader.lacks_block():
                return self._refuse_half()
            return False
        self.verb = self.workq.traffic.unknown
        if found == BAD_ENDING:
            self._refuse("Invalid line ending")
        elif found == TOO_LONG:
            self._refuse("Line too long")
            self._close("line too long")
        elif found == TOO_LARGE:
            self._refuse(_bad_size(reader.fields))
            self._close("payload too large")
        else:
            fields = reader.fields
            command = self.workq.commands.get(fields[0]) if fields else None
            if command is None:
                self.verb.count += 1
                stray = stray_line_or_array(fields)
                if stray:
                    self.complain(stray)
                    self._close(stray)
                else:
                    self._refuse(UNKNOWN)
            else:
                self.verb = command.verb
                command.verb.count += 1
                if self.unknown and reader.left_out:
                    self.denied("log in first")
                else:
                    self._carry_out(command, fields)
        return True

    def _refuse_half(self) -> bool:
        """The client has said that it sends nothing more, in the middle of a payload or result."""
        fields = self._reader.fields
        self.verb = self.workq.traffic.unknown
        self.verb.count += 1
        self._refuse(_bad_size(fields))
        self._reader.drop()
        return True

    def _close(self, why: str) -> None:
        self.fault(why)
        self._over = True
        self.quit(lingers=True)

    def _carry_out(self, command: Command, fields: list[bytes]) -> None:
        try:
            command.run(self, fields)
        except Refused as refusal:  # a name of its own: mypyc gives each name one type
            self._refuse(str(refusal))
        except Denied as denial:
            self.denied(str(denial))
        except TaskyardError as error:
            self._refuse_with(error, fields[0])

    def _add(self, fields: list[bytes]) -> None:
        new = self.workq.requests.add(fields, self._reader.block)
        self.require(PUSH, new.queue)
        self.engine.push(new, self.origin, self.now)
        self.send(OK, self.engine.log.mark())

    def _schedule(self, fields: list[bytes]) -> None:
        new = self.workq.requests.schedule(fields, self._reader.block, self.now)
        self.require(PUSH, new.queue)
        self.engine.push(new, self.origin, self.now)
        self.send(OK, self.engine.log.mark())

    def _lease(self, fields: list[bytes]) -> None:
        if fields != self._last_lease:
            names, wait = self.workq.requests.lease(fields)
            take = Take(names, self.owner, self.origin, uniform=len(names) > 1)
            if len(fields) > REMEMBERED:
                self._lease_from(take, wait)
                return
            self._last_lease = fields
            self._last_take = take
            self._last_wait = wait
        self._lease_from(self._last_take, self._last_wait)

    def _lease_from(self, take: Take, wait: i64) -> None:
        if not self.principal.free:
            for queue in take.queues:
                self.require(TAKE, queue.decode())
        self.fetch(take, wait)

    def _complete(self, fields: list[bytes]) -> None:
        uid, result = requests.finish(fields, self._reader.block, BAD_PAYLOAD)
        self.engine.complete(self.job_for(uid, TAKE).id, result, self.origin, self.now)
        self.send(OK, self.engine.log.mark())

    def _fail(self, fields: list[bytes]) -> None:
        uid, result = requests.finish(fields, self._reader.block, BAD_RESULT)
        self.engine.fail(self.job_for(uid, TAKE).id, result, self.origin, self.now)
        self.send(OK, self.engine.log.mark())

    def _delete(self, fields: list[bytes]) -> None:
        job = self.job_for(requests.delete(fields), ADMIN)
        self.engine.delete(job.id, self.origin, self.now)
        self.send(OK, self.engine.log.mark())

    def job_for(self, uid: bytes, action: str) -> Job:
        """The job with this uid, to which the client may do that."""
        job = self.engine.job_by_uid(uid)
        if job is None:
            raise JobNotFound
        self.require(action, job.queue.name)
        return job

    # Who it is

    def _auth(self, fields: list[bytes]) -> None:
        gate = self.workq.gate
        if not gate.has_users:
            raise Refused(UNKNOWN)
        name, secret = requests.credentials(fields)
        self.log_in(gate, host_of(self._peer), name, secret)

    def check_watching(self, job: Job) -> None:
        self._check_watching_in(job.queue)

    def _check_watching_in(self, queue: Queue) -> None:
        self.require(INSPECT if self._call is None else PUSH, queue.name)

    def denied(self, text: str) -> None:
        self._end_call(self.now)
        self._refuse("Permission denied")

    def logged_in(self, principal: Principal | None) -> None:
        if principal is None:
            self._refuse("Authentication failed")
            return
        self.change_principal(principal)
        self.origin = Origin(WORKQ, principal.name, self.origin.holder)
        self._last_lease = []  # its Take names the old origin
        self.send(OK, 0)

    # Waiting for a job's end

    def _result(self, fields: list[bytes]) -> None:
        uid, wait = requests.result(fields)
        self.engine.check_alive()
        job = self.job_for(uid, INSPECT)
        if job.state == SUCCEEDED or job.state == FAILED:
            self._tell_result(job, False)
        elif not wait or self.ending:
            self._time_out(0)
        else:
            self.watcher = self.engine.watch(job.id, self.owner, self.now + wait)

    def _run(self, fields: list[bytes]) -> None:
        new, wait = self.workq.requests.run(fields, self._reader.block, self.owner)
        self.require(PUSH, new.queue)
        job = self.engine.push(new, self.origin, self.now)
        self._call = job
        if job.state == LEASED:
            self.watcher = self.engine.watch(job.id, self.owner)
        elif wait and not self.ending:
            self.watcher = self.engine.watch(job.id, self.owner, self.now + wait)
        else:
            self._end_call(self.now)
            self._time_out(self.engine.log.mark())

    def heard(self, event: Watched) -> bool:
        """Something happened to the job that a result or run waits for; whether that is all."""
        kind = event.event
        job = event.job
        call = self._call
        if kind not in (WATCH_LEASED, WATCH_GONE) and event.queue is not None:
            try:  # it may have moved since, and the rules may have changed
                self._check_watching_in(event.queue)
            except Denied as denial:
                self.denied(str(denial))
                return True
        if kind == WATCH_LEASED:
            if call is not None:  # from now on it is the job's own time that counts
                self.engine.watch_on(event.watcher)
            return False
        if kind == WATCH_GONE and (call is None or call.more().expires_at > self.now):
            self._call = None
            self.find_nothing()
        elif job is not None and kind in (WATCH_SUCCEEDED, WATCH_FAILED):
            extra = job.extra
            if call is not None and extra is not None and not extra.has_result:
                self._end_call(self.now)
                self._time_out(self.engine.log.mark())
            else:
                self._tell_result(job, kind == WATCH_SUCCEEDED)
        elif call is not None and call.state == LEASED:
            # Somebody else was told of the same moment first, and took the job.
            self.watcher = self.engine.watch(call.id, self.owner)
            return False
        elif call is not None and (call.state == SUCCEEDED or call.state == FAILED):
            self._tell_result(call, False)
        else:
            self._end_call(self.now)
            self._time_out(self.engine.log.mark())
        return True

    def waits_on(self) -> bool:
        call = self._call
        return call is not None and call.state == LEASED

    def unheard(self) -> None:
        call = self._call
        if call is not None and call.state == LEASED:
            self._call = None
            self.verb.errors += 1
            self.send(STOPPING, self.engine.log.mark())
        else:
            self._end_call(self.broker.clock.now())
            self._time_out(self.engine.log.mark())

    def _tell_result(self, job: Job, succeeded: bool) -> None:
        extra = job.extra
        at: i64 = 0
        size: i64 = 0
        if extra is not None and extra.has_result:
            at = extra.result_at
            size = extra.result_size
        answer = _Result(self, job, succeeded or job.state == SUCCEEDED)
        result = self.broker.journal.read(at, size)
        if result is None:
            self.load(at, size, answer.give)
        else:
            answer.give(result)

    def give_result(self, job: Job, succeeded: bool, result: bytes | None) -> None:
        if result is None:  # not there any more, or the disk cannot be read
            if job.state != GONE:
                self.outbox.abort()
            self.find_nothing()
            return
        if self._call is job:
            self._end_call(self.broker.clock.now())
        head = b"+OK 1\r\n%b %d %d\r\n" % (
            show_uid(self.engine.uid_of(job)),
            1 if succeeded else 0,
            len(result),
        )
        self.send(b"".join([head, result, b"\r\n"]), self.engine.log.mark())

    def _end_call(self, now: i64) -> None:
        """The run is over. Its job goes as well, unless somebody works on it."""
        call = self._call
        self._call = None
        if call is not None and not self.engine.read_only:
            self.engine.withdraw(call.id, self.origin, now)

    # Replies

    def empty_handed(self) -> None:
        self._time_out(0)

    def _time_out(self, mark: i64) -> None:
        self.verb.empty += 1
        self.send(TIMEOUT, mark)

    def find_nothing(self) -> None:
        # It may tell of a change that is not on disk yet, so it waits like any reply.
        self.verb.errors += 1
        self.send(NOT_FOUND, self.engine.log.mark())

    def deliver(self, job: Job, payload: bytes) -> None:
        uid = show_uid(self.engine.uid_of(job))
        name = job.queue.utf8
        lease = job.lease
        if self.workq.lease_ttr and lease is not None:
            ttr = (lease.deadline - lease.since) // MILLISECOND
            head = b"+OK 1\r\n%b %b %d %d\r\n" % (uid, name, ttr, len(payload))
            self.send(b"".join([head, payload, b"\r\n"]), self.broker.payload_mark(job))
            return
        size = str(len(payload)).encode()
        parts = [b"+OK 1\r\n", uid, b" ", name, b" ", size, b"\r\n", payload, b"\r\n"]
        self.send(b"".join(parts), self.broker.payload_mark(job))

    def _refuse(self, text: str) -> None:
        self.verb.errors += 1
        self.send(f"-CLIENT-ERROR {text}\r\n".encode(), self.engine.log.mark())

    def _refuse_with(self, error: TaskyardError, verb: bytes) -> None:
        """The engine's refusal in this protocol's words."""
        if isinstance(error, JobNotFound):
            self.find_nothing()
        elif isinstance(error, DuplicateJob):
            self._refuse("Duplicate job")
        elif isinstance(error, UidTaken):  # other words: clients take those above for success
            self._refuse("ID taken")
        elif isinstance(error, DuplicateResult):
            self._refuse("Duplicate result")
        elif isinstance(error, InvalidOption):  # the server's limit may be below the protocol's
            self._refuse(_bad_size([verb]))
        else:
            self.verb.errors += 1
            self.send(f"-SERVER-ERROR {error}\r\n".encode(), self.engine.log.mark())


def _bad_size(fields: list[bytes]) -> str:
    return BAD_RESULT if fields[0] == b"fail" else BAD_PAYLOAD


class _Result:
    """Remembers whose result is being read."""

    def __init__(self, connection: WorkqConnection, job: Job, succeeded: bool) -> None:
        self._connection = connection
        self._job = job
        self._succeeded = succeeded

    def give(self, result: bytes | None) -> None:
        self._connection.give_result(self._job, self._succeeded, result)


class Command:
    """A command, and its count."""

    def __init__(self, verb: Verb, run: Callable[[WorkqConnection, list[bytes]], None]) -> None:
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
