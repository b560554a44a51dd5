"""Masenko: JSON lines over TCP.

A line is a verb and, behind the first space, JSON. Replies come in the order of the commands; a
FETCH that has to wait holds up what is behind it. User documentation: docs/masenko.md.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from mypy_extensions import i64

from taskyard.access.gate import Gate, OpenGate, at_the_gate, host_of
from taskyard.access.principal import INSPECT, PUSH, TAKE, Denied, Principal
from taskyard.broker.broker import Broker
from taskyard.broker.metrics import Traffic, Verb
from taskyard.broker.seams import Cancellable, Scheduler, Transport
from taskyard.engine.model.effects import Take
from taskyard.engine.model.errors import StepRefused, TaskyardError
from taskyard.engine.model.job import JSON, MASENKO, Job, NewJob, Origin
from taskyard.engine.operations.push import Step
from taskyard.protocols.conversation import INPUT_LIMIT, UNKNOWN_LIMIT, Conversation
from taskyard.protocols.digits import decimal
from taskyard.protocols.jsontext import as_json
from taskyard.protocols.lines import LineBuffer, LineTooLong
from taskyard.protocols.masenko.messages import encode_json
from taskyard.protocols.masenko.names import Names
from taskyard.protocols.masenko.parsing import (
    SPACE,
    Refused,
    Requests,
    credentials,
    error_text,
    job_id,
    step_text,
    verb_end,
)
from taskyard.protocols.strays import NOT_TLS, is_of_tls, stray_line_or_array

LINE_ROOM: Final = 65_536  # what a line may be longer than the largest payload
MAX_STEPS: Final = 10_000
STEP_OVERHEAD: Final = 512  # bytes that a step takes in memory beside what it says
STEPS_TOLD: Final = 64  # of them, after which it is looked whether there is memory for more
REMEMBERED: Final = 4096  # bytes of a FETCH; a longer one is read anew each time
NEVER: Final = b"\n"  # what no line can have
MAX_STEP_BYTES: Final = 64 * 1_048_576
# Rounds of the event loop that a silent client gets before it is judged: in the second one all is
# read that came while the whole server stood still.
LOOKS: Final = 2

OK: Final = b"OK {}\n"
PONG: Final = b"PONG {}\n"
EMPTY: Final = b"EMPTY {}\n"


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
        gate: Gate | None = None,
    ) -> None:
        self.broker = broker
        self.gate: Gate = gate or OpenGate()
        self.scheduler = scheduler
        self.heartbeat = heartbeat
        self.line_limit = payload_limit + LINE_ROOM
        self.output_limit = output_limit
        self.requests = Requests(heartbeat, max_losses)
        self.traffic = Traffic("masenko")
        broker.metrics.add_dialect(self.traffic)
        self.commands = {
            verb: Command(self.traffic.verb(verb.decode()), run) for verb, run in _COMMANDS.items()
        }
        self.push = self.commands[b"PUSH"]
        self.fetch = self.commands[b"FETCH"]
        self.ack = self.commands[b"ACK"]
        self.auth = self.commands[b"AUTH"]
        self.names = Names()

    def frequent(self, line: bytes, end: i64) -> Command | None:
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
        self.traffic.connections += 1
        connection = MasenkoConnection(self, transport, peer)
        self.traffic.clients += 1
        self.broker.join(connection)
        return connection


class MasenkoConnection(Conversation):
    def __init__(self, masenko: Masenko, transport: Transport, peer: str) -> None:
        principal = at_the_gate(masenko.gate, transport.certificate_name())
        origin = Origin(MASENKO, principal.name, f"{peer}#{masenko.traffic.connections}")
        super().__init__(
            masenko.broker,
            transport,
            origin,
            masenko.output_limit,
            masenko.traffic,
            principal,
        )
        self._masenko = masenko
        self._peer = peer
        self._lines = LineBuffer(masenko.line_limit)
        self._line_limit = masenko.line_limit  # of who has logged in, or has not
        self._fresh = True  # nothing has come yet
        self._too_long = False  # a line has come that is beyond the limit
        self._steps: list[Step] | None = None  # of the transaction that is being read
        self._step_bytes: i64 = 0
        self._step_error = ""  # the first thing that is wrong with it
        self._last_fetch = NEVER  # JSON of the last FETCH, which workers send again and again
        self._last_take = Take([], self.owner, origin)
        self._last_timeout: i64 = 0
        self._heard_at: i64 = self.now
        self._alarm: Cancellable | None = None
        self._looks: i64 = 0  # rounds it was given since it was found to be silent
        self._set_alarm(self.now)
        self.look_at_principal()

    # From the connection

    def feed(self, data: bytes) -> None:
        if self.closed or self.ending or self._too_long:
            return
        if self._fresh:
            self._fresh = False
            if is_of_tls(data):
                self.turn_away(NOT_TLS)
                return
        try:
            self._lines.feed(data)
        except LineTooLong:
            self._too_long = True
        self.run()

    def lost(self) -> None:
        self._masenko.traffic.clients -= 1
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None
        super().lost()

    # Commands

    def unread(self) -> i64:
        if self._too_long:
            return INPUT_LIMIT + 1  # no more is wanted
        lines = self._lines
        # While it is found out who it is, a line that has begun may be too long or not.
        return lines.size + lines.rest_size if self.loading else lines.size

    def holding(self) -> i64:
        held = self._lines.size + self._lines.rest_size
        if self._steps is not None:
            held += self._step_bytes + len(self._steps) * STEP_OVERHEAD
        return held

    def waits_for_input(self) -> bool:
        if self._steps is None:
            return self.half_read()
        return not (self.loading or self.closed or self.in_line or self.slowed or self.unread())

    def begun(self) -> i64:
        return 0 if self._lines.size else self._lines.rest_size

    def complain(self, text: str) -> None:
        self.verb = self._masenko.traffic.unknown
        self._refuse(text)

    def bound_input(self, unknown: bool) -> None:
        self._line_limit = i64(UNKNOWN_LIMIT) if unknown else self._masenko.line_limit

    def forget_input(self) -> None:
        self._steps = None
        self._lines.drop()

    def next_command(self) -> bool:
        line = self._lines.take()
        if line is None:
            if self._too_long or self._lines.rest_size > self._line_limit:
                self._end_line()
            return False
        if len(line) > self._line_limit:
            self._end_line()
            return False
        self._heard_at = self.now
        if line and line[-1] <= SPACE:
            line = line.rstrip(b" \r")
        end = verb_end(line)
        rest = line[end + 1 :]
        masenko = self._masenko
        steps = self._steps
        if steps is None:
            frequent = masenko.frequent(line, end)
            if frequent is not None:
                self.verb = frequent.verb
                frequent.verb.count += 1
                self._carry_out(frequent, rest)
                return True
        sent = line[:end]
        verb = sent
        command = masenko.commands.get(verb)
        if command is None:
            verb = verb.upper()
            command = masenko.commands.get(verb)
        if command is masenko.auth and not masenko.gate.has_users:
            command = None
        if steps is not None and verb != b"DONE":
            self._add_step(steps, verb, rest)
        elif command is None:
            self.verb = self._masenko.traffic.unknown
            self.verb.count += 1
            stray = stray_line_or_array(line.split(None, 3))
            if stray:
                self.fault(stray)
                self._refuse(stray)
                self.quit(lingers=True)
                return True
            self._refuse(f"unknown verb {sent.decode(errors='replace')}")
        else:
            self.verb = command.verb
            command.verb.count += 1
            self._carry_out(command, rest)
        return True

    def _end_line(self) -> None:
        """Say that a line is too long; nothing more is read."""
        self._too_long = True
        self.verb = self._masenko.traffic.unknown
        self.fault("line too long")
        self._refuse("line too long")
        self.quit(lingers=True)

    def _carry_out(self, command: Command, rest: bytes) -> None:
        try:
            # Those that come again and again without the detour by a table.
            if command is self._masenko.push:
                self._push(rest)
            elif command is self._masenko.fetch:
                self._fetch(rest)
            elif command is self._masenko.ack:
                self._ack(rest)
            else:
                command.run(self, rest)
        except Refused as refusal:  # a name of its own: mypyc gives each name one type
            self._refuse(str(refusal))
        except Denied as denial:
            self.denied(str(denial))
        except TaskyardError as error:
            self._refuse(error_text(error, None))

    def _ping(self, _: bytes) -> None:
        self.send(PONG, 0)

    def _push(self, rest: bytes) -> None:
        new = self._masenko.requests.new_job(rest)
        self._check_push(new)
        blocked_by = new.blocked_by
        if blocked_by is not None:
            for blocker in blocked_by:
                if blocker <= 0:
                    raise Refused("cannot use relative blocked by outside of a transaction")
        try:
            job = self.engine.push(new, self.origin, self.now)
        except TaskyardError as error:
            raise Refused(error_text(error, new)) from error
        self.send(b'OK {"id":' + decimal(job.id) + b"}\n", self.engine.log.mark())

    def _check_push(self, new: NewJob) -> None:
        if not self.principal.free:
            self.require(PUSH, new.queue)
            if new.policy.dead_queue:
                self.require(PUSH, new.policy.dead_queue)

    def _check_pushes(self, steps: list[Step]) -> None:
        """They were allowed when they came, and the rules may be others now."""
        if not self.principal.free:
            for step in steps:
                new = step.new
                if new is not None:
                    self._check_push(new)

    def _fetch(self, rest: bytes) -> None:
        if rest != self._last_fetch:
            queues, timeout = self._masenko.requests.fetch(rest, self.engine.state.queues)
            take = Take(queues, self.owner, self.origin, bound=True)
            if len(rest) > REMEMBERED:
                self._fetch_from(take, timeout)
                return
            self._last_fetch = rest
            self._last_take = take
            self._last_timeout = timeout
        self._fetch_from(self._last_take, self._last_timeout)

    def _fetch_from(self, take: Take, timeout: i64) -> None:
        if not self.principal.free:
            for queue in take.queues:
                self.require(TAKE, queue.decode())
        if take.queues:
            self.fetch(take, timeout)
        else:
            self.empty_handed()

    def _ack(self, rest: bytes) -> None:
        self.engine.ack(job_id(rest), self.owner, self.origin, self.now)
        self.send(OK, self.engine.log.mark())

    def _nack(self, rest: bytes) -> None:
        self.engine.nack(job_id(rest), self.owner, b"", self.origin, self.now)
        self.send(OK, self.engine.log.mark())

    def _info(self, _: bytes) -> None:
        self.engine.check_alive()  # else it would count what will never be on disk
        text = encode_json(info(self._masenko, self.principal))
        self.send(b"OK " + text + b"\n", self.engine.log.mark())

    def _auth(self, rest: bytes) -> None:
        name, secret = credentials(rest)
        self.log_in(self._masenko.gate, host_of(self._peer), name, secret)

    def denied(self, text: str) -> None:
        self._refuse(f"permission denied: {text}")

    def logged_in(self, principal: Principal | None) -> None:
        if principal is None:
            self._refuse("authentication failed")
            return
        self.change_principal(principal)
        self.origin = Origin(MASENKO, principal.name, self.origin.holder)
        self._last_fetch = NEVER  # its Take names the old origin
        self.send(OK, 0)

    def _quit(self, _: bytes) -> None:
        self.let_go()
        self.send(OK, self.engine.log.mark())
        self.quit()

    def _atomic(self, _: bytes) -> None:
        self._steps = []
        self._step_bytes = 0
        # Nothing is kept for who has to log in first; what is wrong is said at the end.
        self._step_error = "permission denied: log in first" if self.unknown else ""

    def _done(self, _: bytes) -> None:
        steps = self._steps
        if steps is None:
            raise Refused("DONE is not allowed outside of a transaction.")
        self._steps = None
        try:
            self._check_pushes(steps)
            if self._step_error:  # the first bad line decides, and one before may be bad as well
                self.engine.check_steps(steps, self.owner, self.origin)
                raise Refused(self._step_error)
            ids = self.engine.transact(steps, self.owner, self.origin, self.now)
        except StepRefused as error:
            raise Refused(step_text(steps[error.index], error)) from error
        text = b'{"ids":' + encode_json(ids) + b"}" if ids else b"{}"
        self.send(b"OK " + text + b"\n", self.engine.log.mark())

    def _add_step(self, steps: list[Step], verb: bytes, rest: bytes) -> None:
        """Take a line of a transaction; what is wrong with it is said at its end."""
        if self._step_error:
            return
        self._step_bytes += len(rest)
        if len(steps) >= MAX_STEPS or self._step_bytes > MAX_STEP_BYTES:
            self._step_error = "transaction too large"
            return
        try:
            if verb == b"PUSH":
                new = self._masenko.requests.new_job(rest)
                self._check_push(new)
                steps.append(Step(new))
            elif verb == b"ACK":
                steps.append(Step(None, job_id(rest)))
            else:
                name = verb.decode(errors="replace")
                self._step_error = f"{name} is not allowed in transaction."
            if steps and not len(steps) % STEPS_TOLD:
                self.broker.takes_memory(STEPS_TOLD * STEP_OVERHEAD)
        except Refused as error:
            self._step_error = f"message {len(steps)}: {verb.decode()}: {error}"
        except Denied as denied:
            self._step_error = f"message {len(steps)}: {verb.decode()}: permission denied: {denied}"

    # Replies

    def empty_handed(self) -> None:
        self.verb.empty += 1
        self.send(EMPTY, 0)

    def deliver(self, job: Job, payload: bytes) -> None:
        names = self._masenko.names.of(job)
        if job.content != JSON:
            payload = as_json(payload)
        key = b',"payload":' if payload else b""
        end = b"}\n"
        if job.fails:
            end = b',"failures":' + decimal(i64(job.fails)) + end
        parts = [b'OK {"id":', decimal(job.id), names, key, payload, end]
        self.send(b"".join(parts), self.broker.payload_mark(job))

    def _refuse(self, text: str) -> None:
        self.verb.errors += 1
        # An error may tell of a change that is not on disk yet, so it waits like any reply.
        self.send(b'ERR {"msg":' + encode_json(text) + b"}\n", self.engine.log.mark())

    # Heartbeat

    def wait_is_over(self) -> None:
        self._heard_at = self.broker.clock.now()

    def _set_alarm(self, heard_at: i64) -> None:
        when = heard_at + self._masenko.heartbeat
        self._alarm = self._masenko.scheduler.call_at(when, self._check_heartbeat)

    def _check_heartbeat(self) -> None:
        self._alarm = None
        if self.closed:
            self.outbox.abort()  # its last replies were not read in all this time
            return
        now = self.broker.begin()
        if self._is_kept_waiting():
            self._looks = 0
            self._set_alarm(now)
        elif now < self._heard_at + self._masenko.heartbeat:
            self._looks = 0
            self._set_alarm(self._heard_at)
        elif self._looks < LOOKS:
            self._looks += 1
            self._set_alarm(now)
            self._masenko.scheduler.call_soon(self._look_again)
        else:
            self.verb = self._masenko.traffic.unknown
            self.fault("no heartbeat")
            self._refuse("no heartbeat")
            self.quit()
            self._set_alarm(now)
        self.broker.end()

    def _is_kept_waiting(self) -> bool:
        """Whether it is the server's turn, also while the disk takes its time."""
        return self.waiter is not None or self.loading or self.in_line or self.outbox.waits()

    def _look_again(self) -> None:
        alarm = self._alarm
        if alarm is not None and not self.closed:  # else it has gone meanwhile
            alarm.cancel()
            self._check_heartbeat()


class Command:
    """A command, and its count."""

    def __init__(self, verb: Verb, run: Callable[[MasenkoConnection, bytes], None]) -> None:
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


def info(masenko: Masenko, principal: Principal) -> dict[str, object]:
    """What INFO says: the queues in order of creation that may be seen, and counters.

    Strangers are told no counters, unless they may inspect the whole server.
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
        "clients": masenko.traffic.clients,
        "connections": masenko.traffic.connections,
        "jobs": state.jobs.size - len(state.finished),
        "requests": {
            verb.decode(): command.verb.count
            for verb, command in masenko.commands.items()
            if verb != b"AUTH"  # an extension that old clients know nothing of
        },
    }
    return {"queues": queues, "metrics": metrics}
