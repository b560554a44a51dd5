"""The process that loads the server: plain sockets, one thread, a ledger of every job.

It is asked over a pipe and answers each message with a tally, so it never waits for its reader.
"""

import selectors
import signal
import socket
from dataclasses import dataclass, field
from multiprocessing.connection import Connection as Pipe
from typing import Final

from benchmarks import rig
from benchmarks.soak.dialect import MASENKO, Counts, Dialect
from benchmarks.soak.ledger import Stream, WrongAnswer
from benchmarks.soak.work import KINDS, Talk, Work, WorkSetting

PATIENCE: Final = 60.0
RECEIVE: Final = 1 << 18


@dataclass(frozen=True, slots=True)
class Connect:
    """A server is there; `recovered` when it has the data of one that crashed."""

    port: int
    recovered: bool = False


@dataclass(frozen=True, slots=True)
class Crashed:
    """The server was killed."""


@dataclass(frozen=True, slots=True)
class SetWorks:
    """From now on this is the load; what is not in the list ends with its batch."""

    works: tuple[WorkSetting, ...]


@dataclass(frozen=True, slots=True)
class Report:
    """Only the tally is wanted."""


@dataclass(frozen=True, slots=True)
class CheckTaken:
    """Everything was taken out: compare the ledger."""


Message = Connect | Crashed | SetWorks | Report | CheckTaken


@dataclass(frozen=True, slots=True)
class Tally:
    live_jobs: int = 0
    live_bytes: int = 0
    dead_jobs: int = 0
    dead_bytes: int = 0
    pushed: int = 0
    finished: int = 0
    running: tuple[str, ...] = ()
    disconnected: bool = False
    problem: str = ""
    streams: dict[str, int] = field(default_factory=dict)  # live jobs


class Conversation:
    """One connection that is led by one talk."""

    def __init__(self, work: Work, port: int, dialect: Dialect) -> None:
        self.work = work
        self.socket = socket.create_connection((rig.HOST, port), timeout=PATIENCE)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket.setblocking(False)
        self.has_more_to_send = False
        self.watched = selectors.EVENT_READ
        self._dialect = dialect
        self._talk: Talk = work.talk()
        self._unsent = memoryview(b"")
        self._unread = bytearray()
        self._replies: list[bytes] = []
        self._want = 0

    def begin(self) -> bool:
        """False when there is nothing to do."""
        try:
            self._ask(*next(self._talk))
        except StopIteration:
            return False
        return True

    def send(self) -> None:
        try:
            sent = self.socket.send(self._unsent)
        except BlockingIOError:
            sent = 0
        self._unsent = self._unsent[sent:]
        self.has_more_to_send = bool(self._unsent)

    def receive(self) -> bool:
        """False when the talk has ended."""
        data = self.socket.recv(RECEIVE)
        if not data:
            raise ConnectionResetError
        self._unread += data
        self._replies += self._dialect.split(self._unread)
        if len(self._replies) < self._want:
            return True
        replies, self._replies = self._replies, []
        if len(replies) > self._want:
            raise WrongAnswer(f"{len(replies)} replies to {self._want} requests")
        try:
            self._ask(*self._talk.send(replies))
        except StopIteration:
            return False
        return True

    def close(self) -> None:
        self._talk.close()
        self.socket.close()

    def _ask(self, data: bytes, replies: int) -> None:
        self._want = replies
        self._unsent = memoryview(data)
        self.send()


class Driver:
    def __init__(self, pipe: Pipe, dialect: Dialect, dead_limit: int) -> None:
        self._pipe = pipe
        self._dialect = dialect
        self._dead_limit = dead_limit  # of the server, on bytes of dead letters
        self._streams: dict[str, Stream] = {}
        self._works: dict[WorkSetting, Work] = {}
        self._conversations: set[Conversation] = set()
        self._selector = selectors.DefaultSelector()
        self._port = 0
        self._disconnected = False
        self._problem = ""

    def run(self) -> None:
        self._selector.register(self._pipe, selectors.EVENT_READ)
        while True:
            for key, events in self._selector.select(PATIENCE):
                if key.fileobj is not self._pipe:
                    self._serve(key.data, events)
                    continue
                try:
                    message: Message = self._pipe.recv()
                except EOFError:
                    return
                self._handle(message)
                self._pipe.send(self._tally())

    def _handle(self, message: Message) -> None:
        try:
            if isinstance(message, Connect):
                self._connect(message)
            elif isinstance(message, Crashed):
                self._hang_up()
                for stream in self._streams.values():
                    stream.crashed()
            elif isinstance(message, SetWorks):
                self._set_works(message.works)
            elif isinstance(message, CheckTaken):
                self._check_taken()
        except WrongAnswer as error:
            self._fail(error)
        except OSError:
            self._lose()

    def _serve(self, conversation: Conversation, events: int) -> None:
        if conversation not in self._conversations:
            return  # closed by an earlier event of the same round
        try:
            if events & selectors.EVENT_WRITE:
                conversation.send()
            if events & selectors.EVENT_READ and not conversation.receive():
                self._end(conversation)
                return
            self._watch(conversation)
        except WrongAnswer as error:
            self._fail(error)
        except OSError:
            self._lose()

    def _watch(self, conversation: Conversation) -> None:
        wanted = selectors.EVENT_READ
        if conversation.has_more_to_send:
            wanted |= selectors.EVENT_WRITE
        if wanted != conversation.watched:
            self._selector.modify(conversation.socket, wanted, conversation)
            conversation.watched = wanted

    def _connect(self, message: Connect) -> None:
        self._port = message.port
        self._disconnected = False
        if message.recovered:
            self._check_counts(self._ask_counts())
        for work in self._works.values():
            self._begin(work)

    def _set_works(self, wanted: tuple[WorkSetting, ...]) -> None:
        for setting, work in list(self._works.items()):
            if setting not in wanted:
                work.stopping = True
                del self._works[setting]
        for setting in wanted:
            if setting not in self._works:
                work = KINDS[setting.kind](setting, self._dialect, self._streams)
                self._works[setting] = work
                self._begin(work)

    def _begin(self, work: Work) -> None:
        for _ in range(work.setting.connections):
            conversation = Conversation(work, self._port, self._dialect)
            if not conversation.begin():
                conversation.close()
                return
            self._conversations.add(conversation)
            self._selector.register(conversation.socket, conversation.watched, conversation)
            self._watch(conversation)

    def _end(self, conversation: Conversation) -> None:
        self._conversations.discard(conversation)
        self._selector.unregister(conversation.socket)
        conversation.close()

    def _hang_up(self) -> None:
        for conversation in list(self._conversations):
            self._end(conversation)

    def _lose(self) -> None:
        """The server is gone. Whether it should be is for the one who kills it to know."""
        self._hang_up()
        self._disconnected = True

    def _fail(self, error: WrongAnswer) -> None:
        self._problem = self._problem or str(error)
        self._hang_up()

    def _ask_counts(self) -> Counts:
        with socket.create_connection((rig.HOST, self._port), timeout=PATIENCE) as connection:
            connection.sendall(self._dialect.count())
            unread = bytearray()
            while not (replies := self._dialect.split(unread)):
                data = connection.recv(RECEIVE)
                if not data:
                    raise ConnectionResetError
                unread += data
        return self._dialect.read_counts(replies[0])

    def _check_counts(self, counts: Counts) -> None:
        """What the server has must be what the ledger knows, give or take what it cannot know."""
        streams = self._streams.values()
        for stream in streams:
            names = (stream.name, stream.dead_queue)
            have = sum(counts.queues[name].all for name in names if name in counts.queues)
            expect(f"jobs of {stream.name}", have, stream.live, stream.live + stream.uncertain)
        dead = counts.jobs - sum(queue.all for queue in counts.queues.values())
        most = sum(stream.dead + stream.uncertain for stream in streams)
        expect("dead letters", dead, sum(map(self._kept_dead, streams)), most)

    def _check_taken(self) -> None:
        for stream in self._streams.values():
            if stream.name != "delayed":
                stream.check_taken()
        self._check_counts(self._ask_counts())

    def _tally(self) -> Tally:
        streams = self._streams.values()
        return Tally(
            live_jobs=sum(stream.live for stream in streams),
            live_bytes=sum(stream.live_bytes for stream in streams),
            dead_jobs=sum(self._kept_dead(stream) for stream in streams),
            dead_bytes=sum(self._kept_dead(each) * each.payload_bytes for each in streams),
            pushed=sum(stream.pushed for stream in streams),
            finished=sum(stream.finished for stream in streams),
            running=tuple({each.work.setting.kind for each in self._conversations}),
            disconnected=self._disconnected,
            problem=self._problem,
            streams={stream.name: stream.live for stream in streams},
        )

    def _kept_dead(self, stream: Stream) -> int:
        """The server keeps the last dead letters of a queue up to so many bytes."""
        return min(stream.dead, self._dead_limit // (stream.payload_bytes + 512))


def expect(what: str, have: int, least: int, most: int) -> None:
    if not least <= have <= most:
        raise WrongAnswer(f"the server has {have} {what}, and should have {least} to {most}")


def drive(dead_limit: int, pipe: Pipe) -> None:
    """The process."""
    # An interrupt is for the parent, which then tells this one to stop.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    Driver(pipe, MASENKO, dead_limit).run()
