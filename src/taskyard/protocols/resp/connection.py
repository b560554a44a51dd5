"""One RESP connection: what its commands share, whatever they are about.

The commands themselves are functions in the modules resp_lists, resp_keys, resp_pqueue, resp_jobs
and others; resp.py brings them together. User documentation: docs/resp.md.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from librt.strings import BytesWriter
from mypy_extensions import i64

from taskyard.access.gate import Gate, OpenGate, at_the_gate, host_of
from taskyard.access.principal import Denied, Principal
from taskyard.broker.broker import Broker
from taskyard.broker.metrics import Traffic
from taskyard.broker.seams import Transport
from taskyard.engine.model.effects import (
    FEW_QUEUES,
    WATCH_FAILED,
    WATCH_GONE,
    WATCH_LEASED,
    WATCH_SUCCEEDED,
    Take,
    Watched,
)
from taskyard.engine.model.errors import ReadOnly, TaskyardError
from taskyard.engine.model.job import CLIENT, PQUEUE, REDIS, Job, Origin, Policy, default_policy
from taskyard.engine.model.queue import Queue
from taskyard.engine.operations.lease import after
from taskyard.protocols.conversation import INPUT_LIMIT, Conversation
from taskyard.protocols.resp.answers import Answer, Login, Watch, Work
from taskyard.protocols.resp.cold import ColdPop, ReadBack
from taskyard.protocols.resp.command import MAX_BATCH, MAX_BATCH_BYTES, Batch, Command
from taskyard.protocols.resp.errors import error_text, unknown_command, wrong_count
from taskyard.protocols.resp.frames import BROKEN, NOTHING, Reader
from taskyard.protocols.resp.names import QueueNames
from taskyard.protocols.resp.values import (
    WRONG_TYPE,
    Refused,
    bulk,
    error_line,
)
from taskyard.protocols.strays import NOT_HTTP, NOT_TLS, is_of_http, is_of_tls, stray_line

KEPT_ARGS: Final = 4096  # bytes of a command that may stay in memory until the next one comes
QUEUED: Final = b"+QUEUED\r\n"
NO_AUTH: Final = "NOAUTH Authentication required."


class Claim:
    """Who has a consumer alone, until the last of these connections is lost."""

    def __init__(self, holder: str, user: str, peer: str) -> None:
        self.holder = holder
        self.user = user
        self.peer = peer
        self.connections: i64 = 0


class Resp:
    """What all connections of this dialect share."""

    def __init__(
        self,
        broker: Broker,
        queue: str,
        payload_limit: i64,
        output_limit: i64,
        max_losses: i64,
        gate: Gate | None = None,
        batch_limit: i64 = MAX_BATCH,
    ) -> None:
        self.broker = broker
        self.gate: Gate = gate or OpenGate()
        self.queue = queue  # of the items of Pqueue
        self.payload_limit = payload_limit
        self.output_limit = output_limit
        self.max_losses = max_losses
        self.batch_limit = batch_limit
        # Of jobs that come without one of their own: elements of lists and items, and JOB.PUSH.
        self.policy = Policy(max_losses=max_losses)
        self.job_policy = default_policy(max_losses)
        self.started: i64 = broker.clock.now()
        self.traffic = Traffic("resp")
        broker.metrics.add_dialect(self.traffic)
        self.commands: dict[bytes, Command] = {}
        self.claims: dict[str, Claim] = {}  # by the consumer's name
        self.updates: i64 = 0
        self.ops: i64 = 0
        self.names = QueueNames()
        self.spare: BytesWriter | None = None  # that has grown, and nobody writes to

    def add(
        self,
        name: bytes,
        run: Callable[[RespConnection, list[bytes]], None],
        least: i64,
        most: i64,
        at_once: bool = False,
        always: bool = False,
    ) -> None:
        verb = self.traffic.verb(name.decode().lower())
        self.commands[name] = Command(name, verb, run, least, most, at_once, always)

    def connect(self, transport: Transport, peer: str) -> RespConnection:
        self.traffic.connections += 1
        connection = RespConnection(self, transport, peer)
        self.traffic.clients += 1
        self.broker.join(connection)
        return connection


class RespConnection(Conversation):
    def __init__(self, resp: Resp, transport: Transport, peer: str) -> None:
        self.id: i64 = resp.traffic.connections
        self.peer = peer
        holder = f"{peer}#{self.id}"
        self._certificate = transport.certificate_name()
        principal = at_the_gate(resp.gate, self._certificate)
        origin = Origin(REDIS, principal.name, holder)
        super().__init__(
            resp.broker,
            transport,
            origin,
            resp.output_limit,
            resp.traffic,
            principal,
        )
        self.resp = resp
        self.item_origin = Origin(PQUEUE, principal.name, holder)
        self.job_origin = Origin(CLIENT, principal.name, holder)
        self.name = b""
        self.protocol: i64 = 2
        self.database: i64 = 0
        self.prefix = b""  # of keys in another database than the first
        self.items = resp.queue  # the queue of Pqueue's items
        self.items_utf8 = resp.queue.encode()
        self.work: Work | None = None
        self.batch: Batch | None = None  # since MULTI
        self._todo: list[tuple[Command, list[bytes]]] = []  # of EXEC, the next one last
        self._todo_size: i64 = 0  # bytes of all of them
        self._in_batch = False
        self.last_pop: list[bytes] = []  # which consumers send again and again
        self.claimed: list[str] = []  # names of consumers
        self.last_take = Take([], self.owner, origin)
        self.last_wait: i64 = 0
        self._login: Login | None = None  # the command that says who it is
        self._answer: Answer | None = None  # to the command that waits for a job
        self._watch: Watch | None = None  # the command that waits for a job's end
        self._reader = Reader(resp.payload_limit)
        self._fresh = True  # nothing has come yet
        self._over = False  # what comes can no longer be read
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
        self.resp.traffic.clients -= 1
        self.release_claims()
        super().lost()

    def release_claims(self) -> None:
        claims = self.resp.claims
        for name in self.claimed:
            claims[name].connections -= 1
            if not claims[name].connections:
                del claims[name]
        self.claimed = []

    # Commands

    def unread(self) -> i64:
        if self._over:
            return INPUT_LIMIT + 1  # no more is wanted
        return self._reader.unread() + (1 if self.work is not None or self._todo else 0)

    def holding(self) -> i64:
        held = self._reader.holding()
        if self.batch is not None:
            held += self.batch.size
        return held + self._todo_size if self._todo else held

    def waits_for_input(self) -> bool:
        if self.batch is None:
            return self.half_read()
        return not (self.loading or self.closed or self.in_line or self.slowed or self.unread())

    def begun(self) -> i64:
        return self._reader.begun() if self.work is None else 0

    def complain(self, text: str) -> None:
        self.verb = self.resp.traffic.unknown
        self.refuse(f"ERR Protocol error: {text}")

    def bound_input(self, unknown: bool) -> None:
        self._reader.bound(unknown)

    def forget_input(self) -> None:
        self.work = None
        self.batch = None
        self._todo = []
        self._reader.drop()

    def next_command(self) -> bool:
        if self.work is not None or self._todo:
            self.commands -= 1  # it is the same one still
            if self.work is not None:
                self._work_on(self.work)
            else:
                self._run_todo()
            if not self.is_working():
                self.since = 0
            return True
        reader = self._reader
        if reader.kept > KEPT_ARGS:  # those of the last command
            reader.forget_args()
        found = reader.next()
        if found == NOTHING:
            overhead = reader.new_overhead()
            if overhead:
                self.broker.takes_memory(overhead)
            return False
        if found == BROKEN:
            self._break_off(reader.error)
            return True
        args = reader.args
        commands = self.resp.commands
        command = commands.get(args[0])
        if command is None:
            command = commands.get(args[0].upper())
        self.resp.ops += 1
        if command is None:
            self.verb = self.resp.traffic.unknown
            self.verb.count += 1
            stray = stray_line(args)
            if stray:
                self._break_off(stray)
            else:
                self._refuse_early(unknown_command(args, commands))
        else:
            self.verb = command.verb
            command.verb.count += 1
            self._carry_out(command, args)
        return True

    def _break_off(self, text: str) -> None:
        self.fault(text.partition(",")[0])  # what it has sent is behind that
        self.complain(text)
        self._over = True
        self.quit(lingers=True)

    def _carry_out(self, command: Command, args: list[bytes]) -> None:
        count: i64 = len(args)
        if count < command.least or (command.most and count > command.most):
            if is_of_http(args):  # GET is a command of both
                self._break_off(NOT_HTTP)
            else:
                self._refuse_early(wrong_count(command.name))
        elif self._reader.oversize:
            limit = self.resp.payload_limit
            self._refuse_early(f"ERR an argument is larger than the limit of {limit} bytes")
        elif self.batch is not None and not command.at_once:
            self._put_off(self.batch, command, args)
        else:
            self._run(command, args)

    def _run(self, command: Command, args: list[bytes]) -> None:
        try:
            if not command.always:
                self.check_alive()
            command.run(self, args)
        except Refused as refusal:  # a name of its own: mypyc gives each name one type
            self.refuse(str(refusal))
        except Denied as denial:
            self.denied(str(denial))
        except TaskyardError as error:
            self.refuse(error_text(error))

    def _refuse_early(self, text: str) -> None:
        """Refuse a command before it is carried out, and with it the batch that it is in."""
        if self.batch is not None:
            self.batch.give_up()
        self.refuse(text)

    def _put_off(self, batch: Batch, command: Command, args: list[bytes]) -> None:
        batch.add(command, args)
        if batch.untold > KEPT_ARGS:
            self.broker.takes_memory(batch.untold)
            batch.untold = 0
        if batch.too_much:
            self.refuse(f"ERR {batch.too_much}")
        else:
            self.send(QUEUED, 0)

    def run_batch(self, batch: Batch) -> None:
        """Carry out what was put off; each command answers for itself."""
        self._todo = batch.commands
        self._todo_size = batch.size
        self._todo.reverse()
        self._run_todo()

    def _run_todo(self) -> None:
        self._in_batch = True
        # Nobody shall come in between, though the client has not taken what it was sent so far.
        most = self.outbox.sent + MAX_BATCH_BYTES
        while self._todo and self.work is None and self.outbox.sent < most:
            if self.loading or self.closed or self.waiter is not None:
                break
            command, args = self._todo.pop()
            self.verb = command.verb
            command.verb.count += 1
            self._run(command, args)
        self._in_batch = False

    def begin_work(self, work: Work) -> None:
        """Answer a command by work in portions, of which the first is done now."""
        self.work = work
        began = not self.since  # else whoever set it goes on when this is done
        if began:
            self.since = self.broker.line.now
        self._work_on(work)
        if began and not self.is_working():
            self.since = 0

    def is_working(self) -> bool:
        return self.work is not None or bool(self._todo) or self.loading

    def rest(self) -> None:
        """A portion was a whole turn's work: the next one comes after all who are in line."""
        if not self.in_line:
            self.broker.line.join(self)

    def _work_on(self, work: Work) -> None:
        try:
            self.check_alive()
            if work.step(self) and self.work is work:
                self.work = None
        except Refused as refusal:
            self.work = None
            self.refuse(str(refusal))
        except Denied as denial:
            self.work = None
            self.denied(str(denial))
        except TaskyardError as error:
            self.work = None
            self.refuse(error_text(error))

    def check_alive(self) -> None:
        """What is in memory and not on disk will never be there, once a write has failed."""
        if self.engine.read_only:
            self.engine.check_alive()

    def read_back(self, at: i64, size: i64, then: Callable[[bytes], None]) -> None:
        """Read bytes back from disk, and go on with `then` when they have come."""
        self.load(at, size, ReadBack(self, then).go_on)

    # Who it is

    def begin_login(self, name: str, secret: str, answer: Login) -> None:
        self._login = answer
        self.log_in(self.resp.gate, host_of(self.peer), name, secret)

    def denied(self, text: str) -> None:
        self._answer = None
        known = bool(self.principal.name) or self._login is not None
        self._login = None
        self.refuse(f"NOPERM {text}" if known else NO_AUTH)

    def logged_in(self, principal: Principal | None) -> None:
        if principal is not None:
            self.become(principal)
        login = self._login
        self._login = None
        if login is not None:
            login.answer(self, principal is not None)

    def become_nobody(self) -> None:
        """As it was when it came: nobody, or the holder of the certificate that it has shown."""
        gate = self.resp.gate
        self.become(gate.stranger)  # else it would count itself where it is looked for room
        self.become(at_the_gate(gate, self._certificate))

    def become(self, principal: Principal) -> None:
        """From now on this is who asks; records say so."""
        holder = self.origin.holder
        self.change_principal(principal)
        self.origin = Origin(REDIS, principal.name, holder)
        self.item_origin = Origin(PQUEUE, principal.name, holder)
        self.job_origin = Origin(CLIENT, principal.name, holder)
        self.last_pop = []  # its Take names the old origin

    # Keys

    def queue_name(self, key: bytes) -> str:
        return self.resp.names.of(self.prefix + key if self.prefix else key)

    def require_key(self, action: str, key: bytes) -> None:
        """The same as `require` for a list or a string, whose name is a key."""
        if not self.principal.free:
            self.principal.check(action, self.full(key).decode(errors="replace"))

    def full(self, key: bytes) -> bytes:
        """A key in the name space that all databases share."""
        return self.prefix + key if self.prefix else key

    def bare(self, queue: bytes) -> bytes:
        """A queue's name as the client knows it."""
        return queue[len(self.prefix) :]

    def list_at(self, key: bytes) -> Queue | None:
        """The queue that a list command is about; it must not be a string."""
        state = self.engine.state
        full = self.prefix + key if self.prefix else key
        if state.values and full in state.values:
            raise Refused(WRONG_TYPE)
        return state.queues.get(full)

    def has_list(self, key: bytes) -> bool:
        queue = self.engine.state.queues.get(self.full(key))
        return queue is not None and queue.ready.size > 0

    # Taking jobs

    def take(self, take: Take, wait: i64, answer: Answer) -> None:
        """Take a job and answer with it, now or when there is one; `wait` 0: do not wait."""
        self._answer = answer
        gone = take.pop or bool(take.move_to)
        if gone and self._loads_first(take, 0 if self._in_batch else wait, answer):
            return
        job = self.engine.fetch(take, self.now)
        if job is not None:
            self.hand_out(job)
        elif self.ending or self._in_batch or not wait:
            self.empty_handed()
        else:
            self.waiter = self.engine.wait(take, after(self.now, wait))
            if len(take.queues) > FEW_QUEUES:
                self._reader.forget_args()  # it may wait for long
                self.broker.takes_memory(take.size())

    def _loads_first(self, take: Take, wait: i64, answer: Answer) -> bool:
        """Whether the job that is to be popped or moved has to be read back: that is done first,
        since nobody would be told of the job if it cannot be, or the client is gone by then.
        """
        job = self.engine.next_job(take, self.now)
        if job is None or self.broker.payload(job) is not None:
            return False
        pop = ColdPop(self, take, wait, answer, job)
        self.read_back(job.payload_at, job.payload_size, pop.go_on)
        return True

    def empty_handed(self) -> None:
        answer = self._answer
        self._answer = None
        if answer is not None:
            answer.nothing(self)

    def deliver(self, job: Job, payload: bytes) -> None:
        answer = self._answer
        self._answer = None
        if self.engine.read_only:  # while the payload was read: what was popped will be there again
            self.refuse(error_text(ReadOnly(self.engine.read_only)))
        elif answer is not None:
            answer.give(self, job, payload)

    # Watching jobs

    def watch(self, job: Job, wait: i64, watch: Watch) -> None:
        """Answer when the job has ended, or when the time is over; `wait` 0: do not wait."""
        if self.ending or self._in_batch or not wait:
            watch.too_late(self)
            return
        self._watch = watch
        self.watcher = self.engine.watch(job.id, self.owner, after(self.now, wait))

    def heard(self, event: Watched) -> bool:
        watch = self._watch
        kind = event.event
        if kind == WATCH_LEASED or watch is None:
            return False
        self._watch = None
        queue = event.queue
        if queue is not None and kind in (WATCH_SUCCEEDED, WATCH_FAILED):
            watch.ended(self, kind == WATCH_SUCCEEDED, queue.name)
        elif kind == WATCH_GONE:
            watch.gone(self)
        else:
            watch.too_late(self)
        return True

    def unheard(self) -> None:
        watch = self._watch
        self._watch = None
        if watch is not None:
            watch.too_late(self)

    # Replies

    def go_on(self) -> None:
        """A command was answered outside of a turn: those behind it have theirs soon."""
        self.outbox.flush()
        if not self.in_line:
            self.broker.line.join(self)

    def reply(self, reply: bytes) -> None:
        """Answer with what is true once everything so far is on disk."""
        self.send(reply, self.engine.log.mark())

    def send_bulk(self, data: bytes) -> None:
        self.send(bulk(data), self.engine.log.mark())

    def send_nothing(self, nil: bytes = b"$-1\r\n", mark: i64 = -1) -> None:
        """Answer that there is nothing; `nil` is how the older protocol spells it."""
        self.verb.empty += 1
        self.send(
            b"_\r\n" if self.protocol == 3 else nil, self.engine.log.mark() if mark < 0 else mark
        )

    def nil(self) -> bytes:
        """Nothing, inside of an array."""
        return b"_\r\n" if self.protocol == 3 else b"$-1\r\n"

    def map_head(self, count: int) -> bytes:
        return b"%%%d\r\n" % count if self.protocol == 3 else b"*%d\r\n" % (2 * count)

    def refuse(self, text: str) -> None:
        self.verb.errors += 1
        # An error may tell of a change that is not on disk yet, so it waits like any reply.
        self.send(error_line(text), self.engine.log.mark())
