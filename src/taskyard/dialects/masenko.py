"""Masenko: JSON lines over TCP.

A line is a verb and, behind the first space, JSON. Replies come in the order of the commands; a
FETCH that has to wait holds up what is behind it. User documentation: docs/masenko.md.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from mypy_extensions import i64

from taskyard.broker.broker import Broker
from taskyard.broker.outbox import Outbox
from taskyard.broker.receiver import Receiver
from taskyard.broker.seams import Cancellable, Scheduler, Transport
from taskyard.dialects.jsontext import as_json, compact
from taskyard.dialects.lines import LineBuffer, LineTooLong
from taskyard.dialects.masenko_messages import (
    MALFORMED,
    decode_fetch,
    decode_finish,
    decode_push,
    encode_json,
    microseconds,
    timeout_of,
)
from taskyard.duration import format_duration
from taskyard.engine.checks import valid_name
from taskyard.engine.effects import Notice, Take, Waiter, Watched
from taskyard.engine.errors import (
    InvalidOption,
    NotLeaseholder,
    ReadOnly,
    StepRefused,
    TaskyardError,
)
from taskyard.engine.job import (
    BACKOFF_QUARTIC,
    JSON,
    MASENKO,
    MAX_BLOCKERS,
    Job,
    NewJob,
    Origin,
    Policy,
)
from taskyard.engine.pushing import Step

LINE_ROOM: Final = 65_536  # what a line may be longer than the largest payload
MAX_STEPS: Final = 10_000
MAX_STEP_BYTES: Final = 64 * 1_048_576
DEFAULT_RETRY: Final = 20
INPUT_LIMIT: Final = 262_144  # bytes of commands kept while a FETCH waits

OK: Final = b"OK {}\n"
PONG: Final = b"PONG {}\n"
EMPTY: Final = b"EMPTY {}\n"


class Refused(Exception):
    """A command that is answered with ERR and this text."""


class Masenko:
    """What all connections of this dialect share."""

    def __init__(
        self,
        broker: Broker,
        scheduler: Scheduler,
        heartbeat: i64,
        payload_limit: i64,
        output_limit: i64,
        max_losses: i64,
    ) -> None:
        self.broker = broker
        self.scheduler = scheduler
        self.heartbeat = heartbeat
        self.payload_limit = payload_limit
        self.output_limit = output_limit
        self.max_losses = max_losses
        self.clients: i64 = 0
        self.connections: i64 = 0
        self.requests: dict[str, int] = {}
        self._policies: dict[tuple[int, str], Policy] = {}
        self._names: dict[str, bytes] = {}

    def connect(self, transport: Transport, peer: str) -> MasenkoConnection:
        self.connections += 1
        connection = MasenkoConnection(self, transport, peer)
        self.clients += 1
        self.broker.join(connection)
        return connection

    def policy(self, retry: int, dead_queue: str) -> Policy:
        key = (retry, dead_queue)
        known = self._policies.get(key)
        if known is None:
            known = Policy(
                max_fails=retry + 1,
                max_losses=self.max_losses,
                backoff=BACKOFF_QUARTIC,
                dead_queue=dead_queue,
                lost_is_failed=True,
            )
            if len(self._policies) >= 1024:
                self._policies.clear()
            self._policies[key] = known
        return known

    def quoted(self, name: str) -> bytes:
        """A queue or task name as a JSON string."""
        known = self._names.get(name)
        if known is None:
            known = encode_json(name)
            if len(self._names) >= 4096:
                self._names.clear()
            self._names[name] = known
        return known


class MasenkoConnection(Receiver):
    def __init__(self, masenko: Masenko, transport: Transport, peer: str) -> None:
        broker = masenko.broker
        super().__init__(broker.engine.new_owner())
        self._masenko = masenko
        self._broker = broker
        self._engine = broker.engine
        self._transport = transport
        self._outbox = Outbox(broker, transport, self, masenko.output_limit)
        self._origin = Origin(MASENKO, "", f"{peer}#{masenko.connections}")
        self._lines = LineBuffer(masenko.payload_limit + LINE_ROOM)
        self._steps: list[Step] | None = None  # of the transaction that is being read
        self._step_bytes: i64 = 0
        self._step_error = ""  # the first thing that is wrong with it
        self._waiter: Waiter | None = None  # the FETCH that has to wait
        self._loading = False  # a payload is being read back from disk
        self._too_long = False  # a line has come that is beyond the limit
        self._last_fetch = b"-"  # JSON of the last FETCH, which workers send again and again
        self._last_take = Take([], self.owner, self._origin)
        self._last_timeout: i64 = 0
        self._closed = False
        self._stopping = False
        self._reading = True
        self._now: i64 = 0
        self._heard_at: i64 = broker.clock.now()
        self._alarm: Cancellable | None = None
        self._set_alarm(self._heard_at)

    # From the connection

    def feed(self, data: bytes) -> None:
        if self._closed or self._stopping or self._too_long:
            return
        try:
            self._lines.feed(data)
        except LineTooLong:
            self._too_long = True
        self._run()

    def resume(self) -> None:
        self._run()

    def lost(self) -> None:
        self._closed = True
        self._masenko.clients -= 1
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None
        self._broker.leave(self)
        if not self._stopping:  # else its jobs go back when the server starts again
            self._let_go()

    def shut_down(self) -> None:
        self._stopping = True
        waiter = self._waiter
        if waiter is not None:
            self._waiter = None
            self._engine.stop_waiting(waiter)
            self._send(EMPTY, 0)
            self._run()
        if not self._closed:
            self._closed = True
            self._outbox.close()

    # From the broker

    def assigned(self, waiter: Waiter, job: Job) -> None:
        self._waiter = None
        self._restart_clock()
        self._hand_out(job)
        self._run_on()

    def gave_up(self, waiter: Waiter) -> None:
        self._waiter = None
        self._restart_clock()
        self._send(EMPTY, 0)
        self._run_on()

    def watched(self, event: Watched) -> None:
        raise NotImplementedError  # this dialect watches nothing

    def noticed(self, notice: Notice) -> None:
        raise NotImplementedError  # and asks for no notices

    # Commands

    def _run(self) -> None:
        """Carry out the lines that have come, until one has to wait."""
        self._now = self._broker.begin()
        self._run_lines()
        self._outbox.flush()
        self._broker.end()

    def _run_on(self) -> None:
        """The same, inside of a turn that has already begun."""
        self._now = self._broker.clock.now()
        self._run_lines()
        self._outbox.flush()

    def _run_lines(self) -> None:
        lines = self._lines
        while not self._busy():
            line = lines.take()
            if line is None:
                if self._too_long:
                    self._refuse("line too long")
                    self._quit()
                break
            self._heard_at = self._now
            self._handle(line)
        self._keep_reading(lines.size <= INPUT_LIMIT and not self._too_long)

    def _busy(self) -> bool:
        """Whether the next command has to wait."""
        return (
            self._waiter is not None
            or self._loading
            or self._closed
            or self.stuffed
            or not self._outbox.has_room()
        )

    def _handle(self, line: bytes) -> None:
        verb, _, rest = line.rstrip(b" \r").partition(b" ")
        command = _COMMANDS.get(verb)
        if command is None:
            verb = verb.upper()
            command = _COMMANDS.get(verb)
        steps = self._steps
        if steps is not None and verb != b"DONE":
            self._add_step(steps, verb, rest)
            return
        if command is None:
            name = verb.decode(errors="replace")
            self._refuse(f"unknown verb {name}")
            return
        requests = self._masenko.requests
        name = verb.decode()
        requests[name] = requests.get(name, 0) + 1
        try:
            command(self, rest)
        except Refused as error:
            self._refuse(str(error))
        except NotLeaseholder:
            self._refuse("task not acquired")
        except ReadOnly as error:
            self._refuse(f"read only: {error}")
        except TaskyardError as error:
            self._refuse(str(error))

    def _ping(self, _: bytes) -> None:
        self._send(PONG, 0)

    def _push(self, rest: bytes) -> None:
        new = self._new_job(rest)
        blocked_by = new.blocked_by
        if blocked_by is not None:
            for blocker in blocked_by:
                if blocker <= 0:
                    raise Refused("cannot use relative blocked by outside of a transaction")
        job = self._engine.push(new, self._origin, self._now)
        self._send(b'OK {"id":%d}\n' % job.id, self._engine.log.mark())

    def _fetch(self, rest: bytes) -> None:
        if rest != self._last_fetch:
            self._read_fetch(rest)
        take = self._last_take
        if not take.queues:
            self._send(EMPTY, 0)
            return
        job = self._engine.fetch(take, self._now)
        if job is not None:
            self._hand_out(job)
        elif self._stopping:
            self._send(EMPTY, 0)
        else:
            self._waiter = self._engine.wait(take, self._now + self._last_timeout)

    def _ack(self, rest: bytes) -> None:
        self._engine.ack(_job_id(rest), self.owner, self._origin, self._now)
        self._send(OK, self._engine.log.mark())

    def _nack(self, rest: bytes) -> None:
        self._engine.nack(_job_id(rest), self.owner, b"", self._origin, self._now)
        self._send(OK, self._engine.log.mark())

    def _info(self, _: bytes) -> None:
        self._send(b"OK %b\n" % encode_json(info(self._masenko)), self._engine.log.mark())

    def _bye(self, _: bytes) -> None:
        self._let_go()
        self._send(OK, self._engine.log.mark())
        self._quit()

    def _atomic(self, _: bytes) -> None:
        self._steps = []
        self._step_bytes = 0
        self._step_error = ""

    def _done(self, _: bytes) -> None:
        steps = self._steps
        if steps is None:
            raise Refused("DONE is not allowed outside of a transaction.")
        self._steps = None
        try:
            if self._step_error:  # the first bad line decides, and one before may be bad as well
                self._engine.check_steps(steps, self.owner)
                raise Refused(self._step_error)
            ids = self._engine.transact(steps, self.owner, self._origin, self._now)
        except StepRefused as error:
            raise Refused(_step_text(steps[error.index], error)) from error
        text = b'{"ids":%b}' % encode_json(ids) if ids else b"{}"
        self._send(b"OK %b\n" % text, self._engine.log.mark())

    # Parts of commands

    def _new_job(self, rest: bytes) -> NewJob:
        try:
            message = decode_push(rest)
            if not rest.isascii():
                rest.decode()  # strings that are passed on as they are must be text too
        except MALFORMED:
            raise Refused("cannot unmarshal payload") from None
        name = message.name or ""
        queue = message.queue or "default"
        dead_queue = message.deadqueue or ""
        self._check_names(queue, name, dead_queue)
        blocked_by = message.blocked_by or None
        if blocked_by is not None and len(blocked_by) > MAX_BLOCKERS:
            raise Refused("at most 255 blocked by task IDs can be provided")
        payload = compact(bytes(message.payload))
        if len(payload) > self._masenko.payload_limit:
            raise Refused("payload too large")
        retry = message.retry
        return NewJob(
            queue,
            name,
            payload,
            self._masenko.policy(DEFAULT_RETRY if retry is None else retry, dead_queue),
            0,
            _run_at(message.execute_at),
            JSON,
            False,
            0,
            None,
            None,
            blocked_by,
        )

    def _check_names(self, queue: str, name: str, dead_queue: str) -> None:
        known = self._engine.state.queues.get(queue.encode())
        if known is None and not valid_name(queue):
            raise Refused(f"invalid queue name {quote(queue)}")
        if (known is None or name not in known.names) and not valid_name(name):
            raise Refused(f"invalid task name {quote(name)}")
        if dead_queue and not valid_name(dead_queue):
            raise Refused(f"invalid queue name {quote(dead_queue)}")

    def _read_fetch(self, rest: bytes) -> None:
        heartbeat = self._masenko.heartbeat
        bound: int = heartbeat * 1000  # an int of any size, as the timeout may be
        try:
            message = decode_fetch(rest or b"{}")
            timeout: int = timeout_of(message, bound // 2)
        except MALFORMED:
            raise Refused("cannot unmarshal payload") from None
        except ValueError:
            raise Refused("cannot unmarshal payload") from None
        if timeout <= 0:
            raise Refused("timeout must be greater than zero")
        if timeout >= bound:
            frequency = format_duration(heartbeat)
            raise Refused(f"timeout must be smaller than the heartbeat frequency {frequency}")
        names: list[str] = ["default"] if message.queues is None else message.queues
        for name in names:
            if not valid_name(name):
                raise Refused(f"invalid queue name {quote(name)}")
        queues = [name.encode() for name in dict.fromkeys(names)]
        self._last_fetch = rest
        self._last_take = Take(queues, self.owner, self._origin, bound=True)
        self._last_timeout = (timeout + 999) // 1000

    def _hand_out(self, job: Job) -> None:
        payload = self._broker.payload(job)
        if payload is not None:
            self._send_job(job, payload)
            return
        self._loading = True
        self._broker.load(job.payload_at, job.payload_size, _Loaded(self, job).then)

    def loaded(self, job: Job, payload: bytes | None) -> None:
        """The payload of a job that was handed out has been read back from disk."""
        self._loading = False
        if self._closed:
            return
        if payload is None:
            self._outbox.abort()
            return
        self._restart_clock()
        self._send_job(job, payload)
        self._run_on()

    def _send_job(self, job: Job, payload: bytes) -> None:
        masenko = self._masenko
        reply = b'OK {"id":%d,"queue":%b,"name":%b' % (
            job.id,
            masenko.quoted(job.queue.name),
            masenko.quoted(job.name),
        )
        if job.content != JSON:
            reply += b',"payload":%b' % as_json(payload)
        elif payload:
            reply += b',"payload":%b' % payload
        if job.fails:
            reply += b',"failures":%d' % job.fails
        self._send(reply + b"}\n", self._broker.payload_mark(job))

    def _add_step(self, steps: list[Step], verb: bytes, rest: bytes) -> None:
        """Take a line of a transaction; what is wrong with it is said at its end."""
        if self._step_error:
            return
        index = len(steps)
        self._step_bytes += len(rest)
        if index >= MAX_STEPS or self._step_bytes > MAX_STEP_BYTES:
            self._step_error = "transaction too large"
        elif verb == b"PUSH":
            try:
                steps.append(Step(self._new_job(rest)))
            except Refused as error:
                self._step_error = f"message {index}: PUSH: {error}"
        elif verb == b"ACK":
            try:
                steps.append(Step(None, _job_id(rest)))
            except Refused as error:
                self._step_error = f"message {index}: ACK: {error}"
        else:
            name = verb.decode(errors="replace")
            self._step_error = f"{name} is not allowed in transaction."

    # Replies and connection

    def _send(self, reply: bytes, mark: i64) -> None:
        self._outbox.send(reply, mark)

    def _refuse(self, text: str) -> None:
        # An error may tell of a change that is not on disk yet, so it waits like any reply.
        self._send(b'ERR {"msg":%b}\n' % encode_json(text), self._engine.log.mark())

    def _quit(self) -> None:
        self._closed = True
        self._let_go()
        self._outbox.close()

    def _let_go(self) -> None:
        """Whatever this connection holds or waits for is no longer its."""
        self._steps = None
        self._lines.drop()
        waiter = self._waiter
        if waiter is not None:
            self._waiter = None
            self._engine.stop_waiting(waiter)
        self._engine.disconnect(self.owner, self._origin, self._broker.begin())
        self._broker.end()

    def _keep_reading(self, wanted: bool) -> None:
        if wanted == self._reading or self._closed:
            return
        self._reading = wanted
        if wanted:
            self._transport.resume_reading()
        else:
            self._transport.pause_reading()

    # Heartbeat

    def _restart_clock(self) -> None:
        self._heard_at = self._broker.clock.now()

    def _set_alarm(self, heard_at: i64) -> None:
        when = heard_at + self._masenko.heartbeat
        self._alarm = self._masenko.scheduler.call_at(when, self._check_heartbeat)

    def _check_heartbeat(self) -> None:
        self._alarm = None
        if self._closed:
            return
        now = self._broker.begin()
        if self._waiter is not None or self._loading:
            self._set_alarm(now)
        elif now >= self._heard_at + self._masenko.heartbeat:
            self._refuse("no heartbeat")
            self._quit()
        else:
            self._set_alarm(self._heard_at)
        self._broker.end()


class _Loaded:
    """Remembers for which job a payload is being loaded."""

    def __init__(self, connection: MasenkoConnection, job: Job) -> None:
        self._connection = connection
        self._job = job

    def then(self, payload: bytes | None) -> None:
        self._connection.loaded(self._job, payload)


_COMMANDS: Final[dict[bytes, Callable[[MasenkoConnection, bytes], None]]] = {
    b"PING": MasenkoConnection._ping,
    b"PUSH": MasenkoConnection._push,
    b"FETCH": MasenkoConnection._fetch,
    b"ACK": MasenkoConnection._ack,
    b"NACK": MasenkoConnection._nack,
    b"INFO": MasenkoConnection._info,
    b"QUIT": MasenkoConnection._bye,
    b"ATOMIC": MasenkoConnection._atomic,
    b"DONE": MasenkoConnection._done,
}


def info(masenko: Masenko) -> dict[str, object]:
    """What INFO says: the queues in order of creation, and counters."""
    state = masenko.broker.engine.state
    queues = [
        {
            "name": queue.name,
            "ready": queue.ready.size,
            "delayed": queue.delayed.size + queue.blocked.size,
            "to_ack": queue.leased.size,
        }
        for queue in state.queues.values()
    ]
    metrics = {
        "clients": masenko.clients,
        "connections": masenko.connections,
        "jobs": state.jobs.size - len(state.finished),
        "requests": masenko.requests,
    }
    return {"queues": queues, "metrics": metrics}


def quote(text: str) -> str:
    return encode_json(text).decode()


def _job_id(rest: bytes) -> i64:
    try:
        id = decode_finish(rest).id
    except MALFORMED as error:
        raise Refused(f"unmarshal payload: {error}") from None
    if not id:
        raise Refused("missing id")
    return id


def _run_at(moment: str | None) -> i64:
    if moment is None:
        return 0
    try:
        return microseconds(moment)
    except ValueError:
        raise Refused("cannot unmarshal payload") from None


def _step_text(step: Step, error: StepRefused) -> str:
    cause = error.cause
    if step.new is None:
        if isinstance(cause, NotLeaseholder):
            return f"task {step.ack} not acquired"
        return f"message {error.index}: ACK: {cause}"
    if isinstance(cause, InvalidOption) and cause.option == "blocked_by":
        text = (
            "cannot self reference in blocked by"
            if 0 in (step.new.blocked_by or [])
            else "invalid relative task position in blocked by"
        )
        return f"message {error.index}: PUSH: {text}"
    return f"message {error.index}: PUSH: {cause}"
