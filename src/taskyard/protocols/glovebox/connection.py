"""One client of Glovebox: its requests, and what it is sent.

See glovebox.py for what all of them share.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final

from mypy_extensions import i64

from taskyard.access.principal import ADMIN, PUSH, TAKE, Denied, Principal
from taskyard.broker.seams import Transport
from taskyard.engine.model import effects
from taskyard.engine.model.effects import FetchRequest, Waiter
from taskyard.engine.model.errors import (
    Draining,
    InvalidOption,
    NoSpace,
    NotLeaseholder,
    QueueExists,
    QueueFull,
    QueueNotFound,
    ReadOnly,
    TaskyardError,
    TooManyWaiting,
)
from taskyard.engine.model.job import (
    FOREVER,
    GONE,
    Job,
    NewJob,
    Notify,
    Origin,
)
from taskyard.engine.model.queue import Queue, QueueSettings
from taskyard.engine.model.stages import STAGE_READY, STAGE_SYNC, STAGE_WRITE
from taskyard.engine.model.state import DurableSession
from taskyard.protocols.conversation import ProtocolConnection
from taskyard.protocols.glovebox import bincode
from taskyard.protocols.glovebox import messages as glovebox_messages
from taskyard.protocols.glovebox.asked import (
    MessageDelivery,
    PendingFetch,
    WebSocketReader,
    microseconds,
)
from taskyard.protocols.glovebox.letters import NoticeTracker, encode_ping, stage_index
from taskyard.protocols.glovebox.out import NOW, PROMISED, SYNCED, WRITTEN, DurabilityOutput
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
from taskyard.protocols.glovebox.websocket_frames import BINARY, TEXT, encode_frame

if TYPE_CHECKING:
    from taskyard.protocols.glovebox.commands import Glovebox

MAX_PENDING_FETCHES: Final = 4096  # pops and fetches of one connection that wait at the same time
MAX_ERROR_KEY_CHARS: Final = 255  # characters of an error's key
STAGE_INDEX_READY: Final = 0
STAGE_INDEX_FINISH: Final = 4
SHARD: Final = 0  # there is one


class GloveboxConnection(ProtocolConnection):
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

    def on_notice(self, notice: effects.LifecycleNotice) -> None:
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
