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
from taskyard.engine.model.effects import Take, Waiter
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
from taskyard.engine.model.state import Session
from taskyard.protocols.conversation import Conversation
from taskyard.protocols.glovebox import bincode
from taskyard.protocols.glovebox import messages as glovebox_messages
from taskyard.protocols.glovebox.asked import Asked, Delivery, Frames, microseconds
from taskyard.protocols.glovebox.letters import Letters, ping, stage_index
from taskyard.protocols.glovebox.out import NOW, PROMISED, SYNCED, WRITTEN, Out
from taskyard.protocols.glovebox.types import (
    BAD_REQUEST,
    NO_OBJECT,
    NOT_SAID,
    OBJECT_ALREADY_EXISTS,
    PERMISSION_DENIED,
    READY,
    SYNC,
    UNAVAILABLE,
    WRITE,
    Create,
    Error,
    Fetch,
    Finish,
    Hello,
    Malformed,
    Message,
    NoMessage,
    Notice,
    Pop,
    Post,
    Request,
    Response,
)
from taskyard.protocols.glovebox.websocket_frames import BINARY, TEXT, frame

if TYPE_CHECKING:
    from taskyard.protocols.glovebox.commands import Glovebox

MAX_WAITING: Final = 4096  # pops and fetches of one connection that wait at the same time
MAX_KEY: Final = 255  # characters of an error's key
STAGE_INDEX_READY: Final = 0
STAGE_INDEX_FINISH: Final = 4
SHARD: Final = 0  # there is one


class GloveboxConnection(Conversation):
    def __init__(
        self,
        glovebox: Glovebox,
        transport: Transport,
        origin: Origin,
        id: i64,
        binary: bool,
        session: Session | None,
        principal: Principal,
    ) -> None:
        super().__init__(
            glovebox.broker, transport, origin, glovebox.output_limit, glovebox.traffic, principal
        )
        self.owner = id
        self.frames: Frames | None = None  # makes messages of the bytes that arrive
        self.letters: Letters | None = None if session is None else Letters(session.numbered)
        self._glovebox = glovebox
        self._binary = binary
        self._session = session
        # That the session is kept must be true before its client reads its id.
        self._greeting_mark: i64 = 0 if session is None else self.engine.log.mark()
        self._out = Out(self.broker, glovebox.scheduler, self.outbox, self._greeting_mark)
        self._input: deque[tuple[bool, bytes]] = deque()
        self._input_size: i64 = 0
        self._waiting: dict[int, Asked] = {}  # by the number of their waiter
        self._waiters: dict[int, Waiter] = {}
        self._unread_size: i64 = 0  # bytes sent although the client does not read
        self._loads: i64 = 0  # messages that are being read back from disk
        # By queue: pops behind one whose message is being read back. All of them would read it.
        self._behind: dict[bytes, deque[tuple[Asked, Take]]] = {}
        self._left = False  # waits for nothing more, and the session is no longer its

    def greet(self, before: i64) -> None:
        """Say hello, and what the session is owed; `before`: where the journal was then."""
        self._say(Hello(self.owner), PROMISED, self._greeting_mark)
        session = self._session
        letters = self.letters
        if session is None or letters is None or not session.outbox:
            return
        owed = list(session.outbox)
        frames = [self._framed(Notice(letter.label, stage_index(letter.stage))) for letter in owed]
        letters.sent([letter.number for letter in owed])
        frames.append(ping(owed[-1].number))
        self._out.send_backlog(frames, before)

    # From the listener

    def feed(self, data: bytes) -> None:
        frames = self.frames
        if frames is not None:
            frames.feed(data)

    def hang_up(self, why: str) -> None:
        """The client has ended the conversation, or `why` says how it has broken the protocol."""
        if why:
            self.fault(why)
        super().quit(lingers=bool(why))  # what is being read back is not popped yet

    def text(self, data: bytes) -> None:
        """A text message has arrived in whole."""
        self._arrived(False, data)

    def data(self, data: bytes) -> None:
        """A binary message has arrived in whole."""
        self._arrived(True, data)

    def pong(self, data: bytes) -> None:
        """A pong has come: the client has read all that was sent before its ping."""
        letters = self.letters
        if letters is None or self._left or len(data) != 8:
            return
        if letters.confirmed(int.from_bytes(data, "big")):
            now = self.broker.begin()
            self.engine.letters_delivered(self.owner, letters.delivered(), self.origin, now)
            self.broker.end()

    def resume(self) -> None:
        if not self.stuffed:
            self._unread_size = 0
        super().resume()

    def lost(self) -> None:
        frames = self.frames
        if frames is not None:
            self.frames = None
            frames.lost()
        self._glovebox.gone(self)
        super().lost()

    def quit(self, lingers: bool = False) -> None:
        if not self._loads:  # else once they are there, and answered
            super().quit(lingers)

    def replaced(self) -> None:
        """The client has come back on another socket, which goes on with the session."""
        self._leave()
        self.broker.leave(self)
        self.closed = True
        self.outbox.abort()

    def let_go(self) -> None:
        if self._left:
            return
        self._leave()
        self._glovebox.detached(self)
        if self._session is not None:
            self.engine.detach_session(self.owner, self.origin, self.broker.begin())
            self.broker.end()

    def rules_changed(self) -> None:
        if self.principal.is_powerless():
            self._end()
            return
        self.now = self.broker.begin()
        for waiter in list(self._waiters.values()):
            queue = waiter.take.queues[0].decode()
            if not self._may_take(queue):
                self.engine.stop_waiting(waiter)
                asked = self._answered(waiter)
                assert asked is not None
                self.verb = self._glovebox.verbs["pop" if asked.pop else "fetch"]
                self._refuse(asked.label, PERMISSION_DENIED, queue)
        self._end_turn()
        self.broker.end()

    def _may_take(self, queue: str) -> bool:
        try:
            self._glovebox.allow(self.principal, TAKE, queue)
        except Denied:
            return False
        return True

    def _leave(self) -> None:
        self._left = True
        self.forget_input()
        self._stop_waiting()

    def _stop_waiting(self) -> list[Asked]:
        asked = list(self._waiting.values())
        for waiter in self._waiters.values():
            self.engine.stop_waiting(waiter)
        self._waiters = {}
        self._waiting = {}
        return asked

    def _end(self) -> None:
        self.ending = True
        for asked in self._stop_waiting():
            self._no_message(asked)
        self.run()

    def _arrived(self, binary: bool, data: bytes) -> None:
        if self.closed or self.ending:
            return
        self._input.append((binary, data))
        self._input_size += len(data) + 1
        self.run()

    # From the broker

    def assigned(self, waiter: Waiter, job: Job) -> None:
        asked = self._answered(waiter)
        if asked is not None:
            self._hand_out(asked, job, waiter.payload)

    def read_failed(self, waiter: Waiter) -> None:
        self._answered(waiter)
        self._stop_waiting()  # what they would get is not to be sent any more
        self.forget_input()
        self.outbox.abort()

    def gave_up(self, waiter: Waiter) -> None:
        asked = self._answered(waiter)
        if asked is not None:
            self._no_message(asked)

    def _answered(self, waiter: Waiter) -> Asked | None:
        self._waiters.pop(waiter.number, None)
        return self._waiting.pop(waiter.number, None)

    def noticed(self, notice: effects.Notice) -> None:
        if self._left:
            return
        stage = notice.stage
        when: i64 = PROMISED
        if stage == STAGE_READY:
            when = NOW
        elif stage == STAGE_WRITE:
            when = WRITTEN
        elif stage == STAGE_SYNC:
            when = SYNCED
        data = self._framed(Notice(notice.label, stage_index(stage)))
        letters = self.letters
        if letters is not None:
            data += ping(letters.next())
        self._send_frame(data, when, notice.mark)

    # Requests

    def unread(self) -> i64:
        return self._input_size

    def holding(self) -> i64:
        return self._input_size + self.begun()

    def begun(self) -> i64:
        frames = self.frames
        return 0 if frames is None else frames.begun()

    def complain(self, text: str) -> None:
        """There is no request that it would be the answer to."""

    def forget_input(self) -> None:
        self._input.clear()
        self._input_size = 0

    def next_command(self) -> bool:
        if not self._input:
            return False
        binary, data = self._input.popleft()
        self._input_size -= len(data) + 1
        try:
            request = (
                bincode.decode_request(data) if binary else glovebox_messages.decode_request(data)
            )
        except Malformed as error:
            self._count("unknown")
            self._refuse(error.label, BAD_REQUEST, str(error))
            return True
        try:
            self._carry_out(request)
        except Denied:
            self._refuse(request.label, PERMISSION_DENIED, request.queue)
        except TaskyardError as refusal:
            self._refuse_for(request.label, request.queue, refusal)
        if self.broker.is_behind() and not self.outbox.waits():
            # Whoever asks for no answers would never have to wait for the disk.
            self.outbox.send(b"", self.engine.log.mark())
        return True

    def _carry_out(self, request: Request) -> None:
        if isinstance(request, Post):
            self._begin("post", PUSH, request)
            self._post(request, self._queue(request))
        elif isinstance(request, Fetch):
            self._begin("fetch", TAKE, request)
            queue = self._queue(request)
            ttr = microseconds("work_timeout", request.work_timeout)
            if not ttr:
                raise InvalidOption("work_timeout", "must not be 0")
            asked = Asked(request.label, request.sync, False)
            take = Take([queue.utf8], self.owner, self.origin, ttr=ttr)
            self._take(asked, take, request.block_timeout, "block_timeout")
        elif isinstance(request, Pop):
            self._begin("pop", TAKE, request)
            queue = self._queue(request)
            asked = Asked(request.label, request.sync, True)
            take = Take([queue.utf8], self.owner, self.origin, pop=True)
            self._take(asked, take, request.timeout, "timeout")
        elif isinstance(request, Finish):
            self._begin("finish", TAKE, request)
            self._finish(request, self._queue(request))
        elif isinstance(request, Create):
            self._begin("create", ADMIN, request)
            self._create(request)

    def _begin(self, verb: str, action: str, request: Request) -> None:
        self._count(verb)
        self._glovebox.allow(self.principal, action, request.queue)

    def _queue(self, request: Request) -> Queue:
        queue = self.engine.queue(request.queue.encode())
        if queue is None:
            raise QueueNotFound(request.queue)
        return queue

    def _count(self, name: str) -> None:
        """Each request has one answer, now or later; notices are beside them."""
        glovebox = self._glovebox
        self.verb = glovebox.verbs.get(name, glovebox.traffic.unknown)
        self.verb.count += 1
        self.verb.replies += 1

    def _no_message(self, asked: Asked) -> None:
        self._glovebox.verbs["pop" if asked.pop else "fetch"].empty += 1
        self._say(NoMessage(asked.label), PROMISED, 0)

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

    def _take(self, asked: Asked, take: Take, seconds: float | None, option: str) -> None:
        """Answer with a message, at once or when there is one, or with none after the timeout."""
        asked.timeout = 0 if seconds is None else microseconds(option, seconds)
        asked.option = option
        self._take_or_wait(asked, take)

    def _take_or_wait(self, asked: Asked, take: Take) -> None:
        timeout = asked.timeout
        if take.pop and (self._stands_behind(asked, take) or self._reads_first(asked, take)):
            return
        job = self.engine.fetch(take, self.now)
        if job is not None:
            self._hand_out(asked, job, None)
        elif not timeout or self.ending:
            self._no_message(asked)
        elif len(self._waiting) >= MAX_WAITING:
            raise _too_many(asked)
        else:
            waiter = self.engine.wait(take, self.now + timeout, len(self._waiting))
            self._waiters[waiter.number] = waiter
            self._waiting[waiter.number] = asked

    def _stands_behind(self, asked: Asked, take: Take) -> bool:
        """Whether a pop of the same queue before this one waits for the disk: this one follows."""
        line = self._behind.get(take.queues[0])
        if line is None:
            return False
        if len(line) >= MAX_WAITING:
            raise _too_many(asked)
        line.append((asked, take))
        return True

    def _reads_first(self, asked: Asked, take: Take) -> bool:
        """Whether the message that is to be popped has to be read back: it is popped after that,
        since nobody would have it if that cannot be done."""
        job = self.engine.next_job(take, self.now)
        if job is None or self.broker.payload(job) is not None:
            return False

        def read(payload: bytes | None) -> None:
            behind = self._behind.pop(take.queues[0])
            self._go_on_popping(asked, take, job, payload)
            self._go_on_behind(take.queues[0], behind)
            self.read_back()

        self._loads += 1
        self._behind[take.queues[0]] = deque()
        self.broker.load(job.payload_at, job.payload_size, read)
        return True

    def _go_on_popping(self, asked: Asked, take: Take, job: Job, payload: bytes | None) -> None:
        if self.closed or self.outbox.aborted:
            return
        if self.broker.failure or (payload is None and job.state != GONE):
            self.outbox.abort()
            return
        engine = self.engine
        queue = take.queues[0].decode()
        self.verb = self._glovebox.verbs["pop"]
        self.now = self.broker.clock.now()  # records are in the order of time
        try:
            self._glovebox.allow(self.principal, TAKE, queue)
            if (
                payload is None or engine.next_job(take, self.now) is not job
            ):  # somebody was quicker
                self._take_or_wait(asked, take)
                return
            engine.fetch(take, self.now)
        except Denied:
            self._refuse(asked.label, PERMISSION_DENIED, queue)
        except TaskyardError as refusal:
            self._refuse_for(asked.label, queue, refusal)
        else:
            self._hand_out(asked, job, payload)

    def _go_on_behind(self, name: bytes, behind: deque[tuple[Asked, Take]]) -> None:
        """Go on with these pops, up to one whose message has to be read back as well."""
        queue = name.decode()
        while behind and not (self.closed or self.outbox.aborted):
            line = self._behind.get(name)
            if line is not None:
                line.extend(behind)
                return
            asked, take = behind.popleft()
            try:
                self._glovebox.allow(self.principal, TAKE, queue)
                self._take_or_wait(asked, take)
            except Denied:
                self._refuse(asked.label, PERMISSION_DENIED, queue)
            except TaskyardError as refusal:
                self._refuse_for(asked.label, queue, refusal)

    def _finish(self, request: Finish, queue: Queue) -> None:
        engine = self.engine
        sequence = request.sequence
        job = engine.state.live(sequence) if sequence < FOREVER else None
        if job is None or request.shard != SHARD or job.queue is not queue:
            raise NotLeaseholder(sequence)
        engine.ack(sequence, self.owner, self.origin, self.now)
        response = request.response
        if response != NOT_SAID:
            when = (NOW, WRITTEN, SYNCED)[response]
            self._say(Notice(request.label, STAGE_INDEX_FINISH), when, engine.log.mark())

    def _create(self, request: Create) -> None:
        if not self._glovebox.creation:
            self._refuse(request.label, PERMISSION_DENIED, request.queue)
            return
        retries = request.retries
        settings = QueueSettings(retries=-1 if retries is None else retries)
        self.engine.create_queue(request.queue, settings, self.origin, self.now)
        self._say(Notice(request.label, STAGE_INDEX_READY), PROMISED, self.engine.log.mark())

    # Messages on their way

    def _hand_out(self, asked: Asked, job: Job, payload: bytes | None) -> None:
        """`payload` is None if it is not known to be in memory."""
        when, mark = self._due(asked, job)
        delivery = Delivery(self, asked, job.id, when, mark)
        if payload is None:
            payload = self.broker.payload(job)
        if payload is None:
            self._loads += 1
            self.broker.load(job.payload_at, job.payload_size, delivery.loaded)
        else:
            delivery.go_on(payload)

    def read_back(self) -> None:
        self._loads -= 1
        if self.ending and not self.closed:
            self._run_on()

    def _due(self, asked: Asked, job: Job) -> tuple[int, int]:
        """What the message waits for: its own push always, its assignment as the client asks.

        Who has popped it and said nothing gets the promise that an acknowledgement would give.
        """
        mark = self.engine.log.mark()
        if asked.sync == NOT_SAID:
            return PROMISED, mark
        if asked.sync == SYNC:
            return SYNCED, mark
        own = self.broker.payload_mark(job)
        if asked.sync == READY:
            return PROMISED, own
        assert asked.sync == WRITE
        return (WRITTEN if own <= self.broker.released else PROMISED), mark

    def deliver_message(
        self, asked: Asked, id: i64, payload: bytes | None, when: i64, mark: i64
    ) -> None:
        if self.closed:
            return
        if payload is None or self.broker.failure:  # or that it was taken may never be on disk
            self.outbox.abort()
            return
        self._say(Message(asked.label, SHARD, id, payload, asked.pop), when, mark)

    # Responses

    def _refuse_for(self, label: int, queue: str, refusal: TaskyardError) -> None:
        if isinstance(refusal, (NotLeaseholder, QueueNotFound)):
            self._refuse(label, NO_OBJECT, queue)
        elif isinstance(refusal, QueueExists):
            self._refuse(label, OBJECT_ALREADY_EXISTS, queue)
        elif isinstance(refusal, (NoSpace, QueueFull, ReadOnly, Draining, TooManyWaiting)):
            self._refuse(label, UNAVAILABLE, str(refusal))
        else:
            self._refuse(label, BAD_REQUEST, str(refusal))

    def _refuse(self, label: int, code: int, key: str) -> None:
        # An error may tell of a change that is not on disk yet, so it waits like any reply.
        self.verb.errors += 1
        self._say(Error(label, code, key[:MAX_KEY]), PROMISED, self.engine.log.mark())

    def _say(self, response: Response, when: i64, mark: i64) -> None:
        self._send_frame(self._framed(response), when, mark)

    def _framed(self, response: Response) -> bytes:
        if self._binary:
            return frame(BINARY, bincode.encode_response(response))
        return frame(TEXT, glovebox_messages.encode_response(response))

    def _send_frame(self, data: bytes, when: i64, mark: i64) -> None:
        if self.stuffed:  # what is not an answer comes all the same, but not without end
            self._unread_size += len(data)
            if self._unread_size > self._glovebox.output_limit:
                self.outbox.abort()
                return
        self._out.send(data, when, mark)


def _too_many(asked: Asked) -> InvalidOption:
    what = f"{MAX_WAITING} requests of this connection wait already"
    return InvalidOption(asked.option, what)
