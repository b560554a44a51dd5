"""Glovebox: labelled requests over a WebSocket, in JSON or bincode.

A request that has to wait delays no other: its answer has its label. A client's session holds what
it fetches; the session is its connection, or outlives it if the client asks for that. Knows whole
messages and whole frames; the WebSocket itself is the listener's. The module `types` has the
requests and answers. User documentation: docs/glovebox.md.
"""

from __future__ import annotations

import secrets
from collections import deque
from collections.abc import Callable
from typing import Final, Protocol

from mypy_extensions import i64

from taskyard.access.principal import (
    ADMIN,
    ANONYMOUS,
    PUSH,
    TAKE,
    Allow,
    Denied,
    Principal,
    check_rules,
)
from taskyard.broker.commit import SYNC, WRITE, Broker
from taskyard.broker.interfaces import Scheduler, Transport
from taskyard.broker.metrics import ProtocolStats
from taskyard.broker.replies import DeferredReplies, ReplyQueue
from taskyard.engine.model import events
from taskyard.engine.model.events import (
    Draining,
    FetchRequest,
    InvalidOption,
    NoSpace,
    NotLeaseholder,
    QueueExists,
    QueueFull,
    QueueNotFound,
    ReadOnly,
    TaskyardError,
    TooManyWaiting,
    Waiter,
)
from taskyard.engine.model.job import (
    FOREVER,
    GLOVEBOX,
    GONE,
    MAX_TRIES,
    SECOND,
    STAGE_READY,
    STAGE_SYNC,
    STAGE_WRITE,
    Job,
    NewJob,
    Notify,
    Origin,
    Policy,
)
from taskyard.engine.model.queue import Queue, QueueSettings
from taskyard.engine.model.state import FIRST_SESSION_ID, DurableSession
from taskyard.protocols.connection import ProtocolConnection
from taskyard.protocols.glovebox import bincode
from taskyard.protocols.glovebox import messages as glovebox_messages
from taskyard.protocols.glovebox.types import (
    BAD_REQUEST,
    NO_OBJECT,
    OBJECT_ALREADY_EXISTS,
    PERMISSION_DENIED,
    READY,
    UNAVAILABLE,
    UNSPECIFIED,
    WAIT_SYNCED,
    WAIT_WRITTEN,
    Create,
    Error,
    Fetch,
    FetchedMessage,
    Finish,
    GloveboxRequest,
    GloveboxResponse,
    Hello,
    MalformedMessage,
    NoMessage,
    Notice,
    Pop,
    Post,
)

MAX_SECONDS: Final = 366 * 86_400

# When a frame may be sent: at once, with the answers that keep the server's promise, when all up to
# its position has been written, or when it has been synced.
NOW: Final = 0
PROMISED: Final = 1
WRITTEN: Final = 2
SYNCED: Final = 3

# Opcodes of WebSocket frames.
TEXT: Final = 1
BINARY: Final = 2
CLOSE: Final = 8
PING: Final = 9
PONG: Final = 10

_FIN: Final = 0x80

# unconfirmed notices; the engine's own bound is below that by default
_MAX_UNCONFIRMED: Final = 65_536

MAX_PENDING_FETCHES: Final = 4096  # pops and fetches of one connection that wait at the same time
MAX_ERROR_KEY_CHARS: Final = 255  # characters of an error's key
STAGE_INDEX_READY: Final = 0
STAGE_INDEX_FINISH: Final = 4
SHARD: Final = 0  # there is one

DEFAULT_RETRIES: Final = 20
VERBS: Final = ("post", "fetch", "finish", "pop", "create")


def random_session_id() -> int:
    """A session's id. A client that knows it can take over the session, so it must not be
    guessable.

    Its upper bit is set, so that it is never the number of a connection of another protocol.
    """
    return FIRST_SESSION_ID | secrets.randbits(62)


class Glovebox:
    """State shared by all connections of this protocol."""

    def __init__(
        self,
        broker: Broker,
        scheduler: Scheduler,
        output_limit: i64,
        creation: bool = True,
        generate_id: Callable[[], int] = random_session_id,
        allow: Allow = check_rules,
    ) -> None:
        self.broker = broker
        self.scheduler = scheduler
        self.output_limit = output_limit
        self.allows_creation = creation  # clients may create queues
        self.check_permission = allow
        self.stats = ProtocolStats("glovebox")
        broker.metrics.add_protocol(self.stats)
        self.verbs = {name: self.stats.add_command(name) for name in VERBS}
        self._generate_id = generate_id
        self._policies: dict[int, Policy] = {}
        self._attached: dict[int, GloveboxConnection] = {}  # of durable sessions

    def connect(
        self,
        transport: Transport,
        peer: str,
        binary: bool = False,
        durable: bool = False,
        reconnect_as: int | None = None,
        principal: Principal = ANONYMOUS,
        accept: Callable[[], None] | None = None,
    ) -> GloveboxConnection:
        """Send hello to a new client.

        A session that cannot be kept is refused with a TaskyardError; once `accept` was called,
        nothing is refused any more.
        """
        engine = self.broker.engine
        now = self.broker.begin_turn()
        origin = Origin(GLOVEBOX, principal.name, f"{peer}#{self.stats.total_connections + 1}")
        known = None if reconnect_as is None else engine.state.sessions.get(reconnect_as)
        before = engine.records.end_position()
        session: DurableSession | None = None
        try:
            if known is not None:
                session = engine.attach_session(known.id, origin, now)
                self._take_over_session(known.id)
            elif durable:
                session = engine.open_session(self._new_id(), origin, now)
        except TaskyardError:
            self.broker.end_turn()
            raise
        id = self._new_id() if session is None else session.id
        self.stats.total_connections += 1
        self.stats.open_connections += 1
        if accept is not None:
            accept()
        connection = GloveboxConnection(self, transport, origin, id, binary, session, principal)
        if session is not None:
            self._attached[id] = connection
        self.broker.register(connection)
        connection.send_hello(before)
        self.broker.end_turn()
        return connection

    def on_disconnect(self, connection: GloveboxConnection) -> None:
        self.stats.open_connections -= 1
        self.detach(connection)

    def detach(self, connection: GloveboxConnection) -> None:
        if self._attached.get(connection.owner) is connection:
            del self._attached[connection.owner]

    def policy(self, queue: Queue) -> Policy:
        retries = queue.effective_settings.retries
        if retries < 0:
            retries = DEFAULT_RETRIES
        policy = self._policies.get(retries)
        if policy is None:
            attempts = retries + 1
            # Only attempts count: however one of them ends, the next follows while there is one.
            policy = Policy(max_attempts=attempts if attempts <= MAX_TRIES else 0, max_fails=-1)
            self._policies[retries] = policy
        return policy

    def _new_id(self) -> int:
        id = self._generate_id()
        while id in self.broker.engine.state.sessions:
            id = self._generate_id()
        return id

    def _take_over_session(self, id: int) -> None:
        """A client is back before its old socket was known to be dead."""
        old = self._attached.pop(id, None)
        if old is not None:
            old.on_session_taken_over()


class GloveboxConnection(ProtocolConnection):
    """One client: its requests, and what it is sent. Glovebox has what all of them share."""

    def __init__(
        self,
        glovebox: Glovebox,
        transport: Transport,
        origin: Origin,
        id: i64,
        binary: bool,
        session: DurableSession | None,
        principal: Principal,
    ) -> None:
        super().__init__(
            glovebox.broker, transport, origin, glovebox.output_limit, glovebox.stats, principal
        )
        self.owner = id
        self.websocket: WebSocketReader | None = None  # makes messages of the bytes that arrive
        self.notice_tracker: NoticeTracker | None = (
            None if session is None else NoticeTracker(session.numbered)
        )
        self._glovebox = glovebox
        self._binary = binary
        self._session = session
        # That the session is kept must be true before its client reads its id.
        self._hello_position: i64 = 0 if session is None else self.engine.records.end_position()
        self._output = DurabilityOutput(
            self.broker, glovebox.scheduler, self.reply_queue, self._hello_position
        )
        self._input: deque[tuple[bool, bytes]] = deque()
        self._input_size: i64 = 0
        self._pending: dict[int, PendingFetch] = {}  # by the number of their waiter
        self._waiters: dict[int, Waiter] = {}
        self._unread_output_bytes: i64 = 0  # bytes sent although the client does not read
        self._disk_reads: i64 = 0  # messages that are being read back from disk
        # By queue: pops behind one whose message is being read from disk. All of them would read
        # it.
        self._pops_behind_read: dict[bytes, deque[tuple[PendingFetch, FetchRequest]]] = {}
        self._detached = False  # waits for nothing more, and the session is no longer its

    def send_hello(self, journal_position: i64) -> None:
        """Send hello, then the notices that the session is owed; `journal_position`: end of the
        journal at the time.
        """
        self._send_response(Hello(self.owner), PROMISED, self._hello_position)
        session = self._session
        letters = self.notice_tracker
        if session is None or letters is None or not session.outbox:
            return
        owed = list(session.outbox)
        frames = [
            self._encode_frame(Notice(letter.label, stage_index(letter.stage))) for letter in owed
        ]
        letters.mark_sent([letter.number for letter in owed])
        frames.append(encode_ping(owed[-1].number))
        self._output.send_owed_notices(frames, journal_position)

    # From the listener

    def feed(self, data: bytes) -> None:
        frames = self.websocket
        if frames is not None:
            frames.feed(data)

    def on_close(self, reason: str) -> None:
        """The client has closed the WebSocket; `reason`: how it has broken the protocol, or ""."""
        if reason:
            self.log_protocol_error(reason)
        super().close(drain_input=bool(reason))  # what is being read back is not popped yet

    def on_text(self, data: bytes) -> None:
        """A text message has arrived in whole."""
        self._on_message(False, data)

    def on_binary(self, data: bytes) -> None:
        """A binary message has arrived in whole."""
        self._on_message(True, data)

    def on_pong(self, data: bytes) -> None:
        """Handle a pong: the client has read all that was sent before its ping."""
        letters = self.notice_tracker
        if letters is None or self._detached or len(data) != 8:
            return
        if letters.confirm(int.from_bytes(data, "big")):
            now = self.broker.begin_turn()
            self.engine.acknowledge_notices(self.owner, letters.last_delivered(), self.origin, now)
            self.broker.end_turn()

    def resume(self) -> None:
        if not self.output_blocked:
            self._unread_output_bytes = 0
        super().resume()

    def on_disconnect(self) -> None:
        frames = self.websocket
        if frames is not None:
            self.websocket = None
            frames.on_disconnect()
        self._glovebox.on_disconnect(self)
        super().on_disconnect()

    def close(self, drain_input: bool = False) -> None:
        if not self._disk_reads:  # else once they are there, and answered
            super().close(drain_input)

    def on_session_taken_over(self) -> None:
        """The client has reconnected on another socket, which continues the session."""
        self._detach()
        self.broker.unregister(self)
        self.closed = True
        self.reply_queue.abort()

    def release_resources(self) -> None:
        if self._detached:
            return
        self._detach()
        self._glovebox.detach(self)
        if self._session is not None:
            self.engine.detach_session(self.owner, self.origin, self.broker.begin_turn())
            self.broker.end_turn()

    def on_permissions_changed(self) -> None:
        if self.principal.has_no_permissions():
            self._finish_and_close()
            return
        self.now = self.broker.begin_turn()
        for waiter in list(self._waiters.values()):
            queue = waiter.request.queues[0].decode()
            if not self._may_fetch(queue):
                self.engine.stop_waiting(waiter)
                pending = self._remove_pending(waiter)
                assert pending is not None
                self.current_command = self._glovebox.verbs["pop" if pending.is_pop else "fetch"]
                self._refuse(pending.label, PERMISSION_DENIED, queue)
        self._end_turn()
        self.broker.end_turn()

    def _may_fetch(self, queue: str) -> bool:
        try:
            self._glovebox.check_permission(self.principal, TAKE, queue)
        except Denied:
            return False
        return True

    def _detach(self) -> None:
        self._detached = True
        self.discard_input()
        self._cancel_pending()

    def _cancel_pending(self) -> list[PendingFetch]:
        pending = list(self._pending.values())
        for waiter in self._waiters.values():
            self.engine.stop_waiting(waiter)
        self._waiters = {}
        self._pending = {}
        return pending

    def _finish_and_close(self) -> None:
        self.closing_after_replies = True
        for pending in self._cancel_pending():
            self._send_no_message(pending)
        self.process_input()

    def _on_message(self, binary: bool, data: bytes) -> None:
        if self.closed or self.closing_after_replies:
            return
        self._input.append((binary, data))
        self._input_size += len(data) + 1
        self.process_input()

    # From the broker

    def on_job_assigned(self, waiter: Waiter, job: Job) -> None:
        pending = self._remove_pending(waiter)
        if pending is not None:
            self._deliver_message(pending, job, waiter.payload)

    def on_payload_unreadable(self, waiter: Waiter) -> None:
        self._remove_pending(waiter)
        self._cancel_pending()  # what they would get is not to be sent any more
        self.discard_input()
        self.reply_queue.abort()

    def on_wait_timeout(self, waiter: Waiter) -> None:
        pending = self._remove_pending(waiter)
        if pending is not None:
            self._send_no_message(pending)

    def _remove_pending(self, waiter: Waiter) -> PendingFetch | None:
        self._waiters.pop(waiter.number, None)
        return self._pending.pop(waiter.number, None)

    def on_notice(self, notice: events.LifecycleNotice) -> None:
        if self._detached:
            return
        stage = notice.stage
        when: i64 = PROMISED
        if stage == STAGE_READY:
            when = NOW
        elif stage == STAGE_WRITE:
            when = WRITTEN
        elif stage == STAGE_SYNC:
            when = SYNCED
        data = self._encode_frame(Notice(notice.label, stage_index(stage)))
        letters = self.notice_tracker
        if letters is not None:
            data += encode_ping(letters.number_next())
        self._send_frame(data, when, notice.durable_position)

    # Requests

    def pending_input_bytes(self) -> i64:
        return self._input_size

    def buffered_bytes(self) -> i64:
        return self._input_size + self.partial_command_bytes()

    def partial_command_bytes(self) -> i64:
        frames = self.websocket
        return 0 if frames is None else frames.partial_message_bytes()

    def send_error(self, text: str) -> None:
        """Send nothing: there is no request that it would be the answer to."""

    def discard_input(self) -> None:
        self._input.clear()
        self._input_size = 0

    def execute_next(self) -> bool:
        if not self._input:
            return False
        binary, data = self._input.popleft()
        self._input_size -= len(data) + 1
        try:
            request = (
                bincode.decode_request(data) if binary else glovebox_messages.decode_request(data)
            )
        except MalformedMessage as error:
            self._count_request("unknown")
            self._refuse(error.label, BAD_REQUEST, str(error))
            return True
        try:
            self._execute_request(request)
        except Denied:
            self._refuse(request.label, PERMISSION_DENIED, request.queue)
        except TaskyardError as refusal:
            self._send_engine_error(request.label, request.queue, refusal)
        if self.broker.is_backlogged() and not self.reply_queue.has_waiting():
            # A client that asks for no answers would never have to wait for the disk.
            self.reply_queue.send(b"", self.engine.records.end_position())
        return True

    def _execute_request(self, request: GloveboxRequest) -> None:
        if isinstance(request, Post):
            self._count_and_authorize("post", PUSH, request)
            self._post(request, self._find_queue(request))
        elif isinstance(request, Fetch):
            self._count_and_authorize("fetch", TAKE, request)
            queue = self._find_queue(request)
            ttr = microseconds("work_timeout", request.work_timeout)
            if not ttr:
                raise InvalidOption("work_timeout", "must not be 0")
            pending = PendingFetch(request.label, request.sync, False)
            fetch_request = FetchRequest([queue.utf8], self.owner, self.origin, ttr=ttr)
            self._fetch_or_pop(pending, fetch_request, request.block_timeout, "block_timeout")
        elif isinstance(request, Pop):
            self._count_and_authorize("pop", TAKE, request)
            queue = self._find_queue(request)
            pending = PendingFetch(request.label, request.sync, True)
            fetch_request = FetchRequest([queue.utf8], self.owner, self.origin, pop=True)
            self._fetch_or_pop(pending, fetch_request, request.timeout, "timeout")
        elif isinstance(request, Finish):
            self._count_and_authorize("finish", TAKE, request)
            self._finish(request, self._find_queue(request))
        elif isinstance(request, Create):
            self._count_and_authorize("create", ADMIN, request)
            self._create(request)

    def _count_and_authorize(self, verb: str, action: str, request: GloveboxRequest) -> None:
        self._count_request(verb)
        self._glovebox.check_permission(self.principal, action, request.queue)

    def _find_queue(self, request: GloveboxRequest) -> Queue:
        queue = self.engine.queue(request.queue.encode())
        if queue is None:
            raise QueueNotFound(request.queue)
        return queue

    def _count_request(self, name: str) -> None:
        """Each request has one answer, now or later; notices are beside them."""
        glovebox = self._glovebox
        self.current_command = glovebox.verbs.get(name, glovebox.stats.unknown_command)
        self.current_command.count += 1
        self.current_command.replies += 1

    def _send_no_message(self, pending: PendingFetch) -> None:
        self._glovebox.verbs["pop" if pending.is_pop else "fetch"].no_result += 1
        self._send_response(NoMessage(pending.label), PROMISED, 0)

    def _post(self, request: Post, queue: Queue) -> None:
        notify: Notify | None = None
        if request.stages:
            notify = Notify(self.owner, request.label, request.stages)
        new = NewJob(
            queue.name,
            queue.name,
            request.message,
            self._glovebox.policy(queue),
            priority=request.priority,
            notify=notify,
        )
        self.engine.push(new, self.origin, self.now)

    def _fetch_or_pop(
        self, pending: PendingFetch, request: FetchRequest, seconds: float | None, option: str
    ) -> None:
        """Answer with a message, now or when there is one, or with none after the timeout."""
        pending.timeout = 0 if seconds is None else microseconds(option, seconds)
        pending.option = option
        self._fetch_or_wait(pending, request)

    def _fetch_or_wait(self, pending: PendingFetch, request: FetchRequest) -> None:
        timeout = pending.timeout
        if request.pop and (
            self._try_queue_behind_read(pending, request) or self._try_read_first(pending, request)
        ):
            return
        job = self.engine.fetch(request, self.now)
        if job is not None:
            self._deliver_message(pending, job, None)
        elif not timeout or self.closing_after_replies:
            self._send_no_message(pending)
        elif len(self._pending) >= MAX_PENDING_FETCHES:
            raise _too_many_pending(pending)
        else:
            waiter = self.engine.wait_for_job(request, self.now + timeout, len(self._pending))
            self._waiters[waiter.number] = waiter
            self._pending[waiter.number] = pending

    def _try_queue_behind_read(self, pending: PendingFetch, request: FetchRequest) -> bool:
        """Queue this pop behind an earlier one of the same queue that waits for the disk; False:
        there is none.
        """
        line = self._pops_behind_read.get(request.queues[0])
        if line is None:
            return False
        if len(line) >= MAX_PENDING_FETCHES:
            raise _too_many_pending(pending)
        line.append((pending, request))
        return True

    def _try_read_first(self, pending: PendingFetch, request: FetchRequest) -> bool:
        """Whether the message of this pop has to be read from disk first: if that fails after the
        pop, no client would have it.
        """
        job = self.engine.next_job(request, self.now)
        if job is None or self.broker.cached_payload(job) is not None:
            return False

        def read(payload: bytes | None) -> None:
            behind = self._pops_behind_read.pop(request.queues[0])
            self._finish_pop(pending, request, job, payload)
            self._resume_pops_behind(request.queues[0], behind)
            self.on_payload_read()

        self._disk_reads += 1
        self._pops_behind_read[request.queues[0]] = deque()
        self.broker.read_from_disk(job.payload_at, job.payload_size, read)
        return True

    def _finish_pop(
        self, pending: PendingFetch, request: FetchRequest, job: Job, payload: bytes | None
    ) -> None:
        if self.closed or self.reply_queue.aborted:
            return
        if self.broker.failure or (payload is None and job.state != GONE):
            self.reply_queue.abort()
            return
        engine = self.engine
        queue = request.queues[0].decode()
        self.current_command = self._glovebox.verbs["pop"]
        self.now = self.broker.clock.now()  # records are in the order of time
        try:
            self._glovebox.check_permission(self.principal, TAKE, queue)
            if (
                payload is None or engine.next_job(request, self.now) is not job
            ):  # another client was quicker
                self._fetch_or_wait(pending, request)
                return
            engine.fetch(request, self.now)
        except Denied:
            self._refuse(pending.label, PERMISSION_DENIED, queue)
        except TaskyardError as refusal:
            self._send_engine_error(pending.label, queue, refusal)
        else:
            self._deliver_message(pending, job, payload)

    def _resume_pops_behind(
        self, name: bytes, behind: deque[tuple[PendingFetch, FetchRequest]]
    ) -> None:
        """Continue with these pops, up to one whose message has to be read from disk as well."""
        queue = name.decode()
        while behind and not (self.closed or self.reply_queue.aborted):
            line = self._pops_behind_read.get(name)
            if line is not None:
                line.extend(behind)
                return
            pending, request = behind.popleft()
            try:
                self._glovebox.check_permission(self.principal, TAKE, queue)
                self._fetch_or_wait(pending, request)
            except Denied:
                self._refuse(pending.label, PERMISSION_DENIED, queue)
            except TaskyardError as refusal:
                self._send_engine_error(pending.label, queue, refusal)

    def _finish(self, request: Finish, queue: Queue) -> None:
        engine = self.engine
        sequence = request.sequence
        job = engine.state.live_job(sequence) if sequence < FOREVER else None
        if job is None or request.shard != SHARD or job.queue is not queue:
            raise NotLeaseholder(sequence)
        engine.ack(sequence, self.owner, self.origin, self.now)
        response = request.response
        if response != UNSPECIFIED:
            when = (NOW, WRITTEN, SYNCED)[response]
            self._send_response(
                Notice(request.label, STAGE_INDEX_FINISH), when, engine.records.end_position()
            )

    def _create(self, request: Create) -> None:
        if not self._glovebox.allows_creation:
            self._refuse(request.label, PERMISSION_DENIED, request.queue)
            return
        retries = request.retries
        settings = QueueSettings(retries=-1 if retries is None else retries)
        self.engine.create_queue(request.queue, settings, self.origin, self.now)
        self._send_response(
            Notice(request.label, STAGE_INDEX_READY), PROMISED, self.engine.records.end_position()
        )

    # Messages being sent

    def _deliver_message(self, pending: PendingFetch, job: Job, payload: bytes | None) -> None:
        """`payload` is None if it is not known to be in memory."""
        when, position = self._required_durability(pending, job)
        delivery = MessageDelivery(self, pending, job.id, when, position)
        if payload is None:
            payload = self.broker.cached_payload(job)
        if payload is None:
            self._disk_reads += 1
            self.broker.read_from_disk(job.payload_at, job.payload_size, delivery.on_payload_read)
        else:
            delivery.send(payload)

    def on_payload_read(self) -> None:
        self._disk_reads -= 1
        if self.closing_after_replies and not self.closed:
            self._process_in_turn()

    def _required_durability(self, pending: PendingFetch, job: Job) -> tuple[int, int]:
        """Which durability the message waits for: always its own push, its assignment as the client
        asks.

        A pop without a level gets the promise that an acknowledgement would give.
        """
        position = self.engine.records.end_position()
        if pending.sync == UNSPECIFIED:
            return PROMISED, position
        if pending.sync == WAIT_SYNCED:
            return SYNCED, position
        own = self.broker.delivery_position(job)
        if pending.sync == READY:
            return PROMISED, own
        assert pending.sync == WAIT_WRITTEN
        return (WRITTEN if own <= self.broker.reply_position else PROMISED), position

    def send_message(
        self, pending: PendingFetch, id: i64, payload: bytes | None, level: i64, position: i64
    ) -> None:
        if self.closed:
            return
        if payload is None or self.broker.failure:  # or that it was taken may never be on disk
            self.reply_queue.abort()
            return
        self._send_response(
            FetchedMessage(pending.label, SHARD, id, payload, pending.is_pop), level, position
        )

    # Responses

    def _send_engine_error(self, label: int, queue: str, refusal: TaskyardError) -> None:
        if isinstance(refusal, (NotLeaseholder, QueueNotFound)):
            self._refuse(label, NO_OBJECT, queue)
        elif isinstance(refusal, QueueExists):
            self._refuse(label, OBJECT_ALREADY_EXISTS, queue)
        elif isinstance(refusal, (NoSpace, QueueFull, ReadOnly, Draining, TooManyWaiting)):
            self._refuse(label, UNAVAILABLE, str(refusal))
        else:
            self._refuse(label, BAD_REQUEST, str(refusal))

    def _refuse(self, label: int, code: int, key: str) -> None:
        # An error may show a change that is not on disk yet, so it waits like any reply.
        self.current_command.errors += 1
        self._send_response(
            Error(label, code, key[:MAX_ERROR_KEY_CHARS]),
            PROMISED,
            self.engine.records.end_position(),
        )

    def _send_response(self, response: GloveboxResponse, level: i64, position: i64) -> None:
        self._send_frame(self._encode_frame(response), level, position)

    def _encode_frame(self, response: GloveboxResponse) -> bytes:
        if self._binary:
            return encode_frame(BINARY, bincode.encode_response(response))
        return encode_frame(TEXT, glovebox_messages.encode_response(response))

    def _send_frame(self, data: bytes, level: i64, position: i64) -> None:
        if self.output_blocked:  # what is not an answer is sent all the same, but not without end
            self._unread_output_bytes += len(data)
            if self._unread_output_bytes > self._glovebox.output_limit:
                self.reply_queue.abort()
                return
        self._output.send(data, level, position)


def _too_many_pending(pending: PendingFetch) -> InvalidOption:
    what = f"{MAX_PENDING_FETCHES} requests of this connection wait already"
    return InvalidOption(pending.option, what)


class WebSocketReader(Protocol):
    """The reading side of a WebSocket."""

    def feed(self, data: bytes) -> None: ...

    def partial_message_bytes(self) -> int:
        """Bytes of a message whose end has not arrived, as far as that is known."""
        ...

    def on_disconnect(self) -> None: ...


# Pops and fetches that wait


class PendingFetch:
    """A pop or fetch, and its timeout, until it is answered."""

    __slots__ = ("is_pop", "label", "option", "sync", "timeout")

    def __init__(self, label: int, sync: i64, pop: bool) -> None:
        self.label = label
        self.sync = sync
        self.is_pop = pop
        self.timeout: i64 = 0  # how long it may wait, in microseconds
        self.option = ""  # as it calls that


def microseconds(option: str, seconds: float) -> i64:
    """A time that a client has sent, which may be any float; 0 only if it is."""
    if not 0 <= seconds <= MAX_SECONDS:  # NaN is not either
        raise InvalidOption(option, f"must be 0 to {MAX_SECONDS} seconds")
    whole = round(seconds * SECOND)
    return whole if whole or not seconds else 1


class MessageDelivery:
    """Delivers a message when its payload has been read from disk."""

    def __init__(
        self,
        connection: GloveboxConnection,
        pending: PendingFetch,
        id: i64,
        level: i64,
        position: i64,
    ) -> None:
        self._connection = connection
        self._pending = pending
        self._id = id
        self._level = level
        self._position = position

    def on_payload_read(self, payload: bytes | None) -> None:
        self.send(payload)
        self._connection.on_payload_read()

    def send(self, payload: bytes | None) -> None:
        self._connection.send_message(self._pending, self._id, payload, self._level, self._position)


# Notices and frames


class NoticeTracker:
    """Tracks which notices a durable session's client was sent, and which it has confirmed.

    A notice of such a session is kept in the engine, numbered in the order of the records. Behind
    it goes a ping with that number; the pong says that the client has it. What was written to a
    socket may still be lost with it, so only that counts as delivered.
    """

    def __init__(self, numbered: i64) -> None:
        self.last_notice = numbered  # the last one that was sent
        self._unconfirmed: dict[int, None] = {}  # sent and not confirmed, in order
        self._pings: dict[int, list[int]] = {}  # the notices that each ping follows

    def number_next(self) -> i64:
        """Number the notice that is sent now, with a ping of its own."""
        self.last_notice += 1
        self.mark_sent([self.last_notice])
        return self.last_notice

    def mark_sent(self, numbers: list[int]) -> None:
        """Record that these were sent in a row; the ping carries the last of the numbers."""
        for number in numbers:
            self._unconfirmed[number] = None
        self._pings[numbers[-1]] = numbers
        while len(self._unconfirmed) > _MAX_UNCONFIRMED:  # a client that answers no pings
            del self._unconfirmed[next(iter(self._unconfirmed))]
            del self._pings[next(iter(self._pings))]

    def confirm(self, number: int) -> bool:
        """Handle the pong with this number; False if no ping had it."""
        numbers = self._pings.pop(number, None)
        if numbers is None:
            return False
        for confirmed in numbers:
            self._unconfirmed.pop(confirmed, None)
        return True

    def last_delivered(self) -> i64:
        """The client has received all notices up to this one."""
        return next(iter(self._unconfirmed)) - 1 if self._unconfirmed else self.last_notice


def stage_index(stage: int) -> int:
    return stage.bit_length() - 1


class DurabilityOutput:
    """Sends the frames of one connection, each at the durability that it needs.

    Answers carry labels, so one may overtake another; nothing overtakes the hello, nor the notices
    a session is owed from before.
    """

    def __init__(
        self, broker: Broker, scheduler: Scheduler, reply_queue: ReplyQueue, hello_position: i64
    ) -> None:
        self._broker = broker
        self._scheduler = scheduler
        self._reply_queue = reply_queue
        self._written = DeferredReplies(broker, reply_queue, broker.written_waiters)
        self._synced = DeferredReplies(broker, reply_queue, broker.synced_waiters)
        self._hello_position = hello_position
        self._owed_position: i64 = 0  # position that must be synced before what was sent behind it
        self._flush_scheduled = False

    def send_owed_notices(self, frames: list[bytes], position: i64) -> None:
        """Send first what is owed from before; all of it is durable by then."""
        broker = self._broker
        for frame in frames:
            self.send(frame, SYNCED, position)
        if broker.durability != SYNC and position > broker.journal.durable:
            self._owed_position = max(position, self._hello_position)

    def send(self, frame: bytes, level: i64, position: i64) -> None:
        broker = self._broker
        journal = broker.journal
        if self._owed_position > journal.durable:
            level = SYNCED
            position = max(position, self._owed_position)
        elif self._hello_position > broker.reply_position:
            if level == SYNCED and position > journal.durable and broker.durability != SYNC:
                position = max(position, self._hello_position)
            else:
                level = PROMISED
        durability = broker.durability
        if (
            level == PROMISED
            or (level == WRITTEN and durability == WRITE)
            or (level == SYNCED and durability == SYNC)
        ):
            self._reply_queue.send(frame, position)
        elif level == WRITTEN and position > journal.written:
            self._written.add(frame, position)
        elif level == SYNCED and position > journal.durable:
            self._synced.add(frame, position)
        else:
            self._reply_queue.send_unordered(frame)
        self.schedule_flush()

    def schedule_flush(self) -> None:
        """Make one write of all frames of the rest of this turn."""
        if not self._flush_scheduled:
            self._flush_scheduled = True
            self._scheduler.call_soon(self._flush)

    def _flush(self) -> None:
        self._flush_scheduled = False
        self._reply_queue.flush_output()


def encode_ping(number: int) -> bytes:
    return encode_frame(PING, number.to_bytes(8, "big"))


def encode_frame(opcode: int, payload: bytes) -> bytes:
    """Encode a WebSocket frame as a server sends it: a whole message, unmasked."""
    size = len(payload)
    first = _FIN | opcode
    if size < 126:
        return bytes((first, size)) + payload
    if size <= 0xFFFF:
        return bytes((first, 126)) + size.to_bytes(2, "big") + payload
    return bytes((first, 127)) + size.to_bytes(8, "big") + payload
