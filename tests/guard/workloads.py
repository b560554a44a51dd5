"""What is counted: a fixed number of jobs, pushed, taken and finished in each protocol.

A workload talks over `Channel`s and knows nothing of what is behind them: the broker inside a test,
or a server process. It waits for each reply, so the same jobs always make the same commands in the
same turns.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Final, Protocol

PAYLOAD: Final = 200
QUEUE: Final = "guarded"
REFUSALS: Final = (b"ERR", b"-", b'{"type":"error"', b'{"type": "error"')


class Channel(Protocol):
    """A connection on which what is said and heard are whole messages, or lines."""

    def say(self, messages: Sequence[bytes]) -> None:
        """All of them arrive together."""

    def hear(self) -> bytes:
        """The next line or message."""


class Place(Protocol):
    """Where the commands are executed."""

    def open(self, dialect: str) -> Channel: ...

    def together(self) -> AbstractContextManager[None]:
        """What is said within it, on any channel, arrives in one round of the server's loop."""


class Dialect(Protocol):
    """The commands of one job, and how many lines or messages answer each of them."""

    name: str
    replies: tuple[int, int, int]

    def greeting(self) -> list[bytes]:
        """What must be said once before."""

    def push(self, serial: int, payload: bytes) -> bytes: ...

    def take(self, serial: int) -> bytes: ...

    def finish(self, serial: int, taken: bytes) -> bytes:
        """b"": taking it was the end of the job."""


class Masenko:
    name = "masenko"
    replies = (1, 1, 1)

    def greeting(self) -> list[bytes]:
        return []

    def push(self, serial: int, payload: bytes) -> bytes:
        text = b'PUSH {"name":"work","queue":"%b","payload":"%b"}\n'
        return text % (QUEUE.encode(), payload[2:])

    def take(self, serial: int) -> bytes:
        return b'FETCH {"queues":["%b"]}\n' % QUEUE.encode()

    def finish(self, serial: int, taken: bytes) -> bytes:
        job = json.loads(taken.removeprefix(b"OK "))["id"]
        return b'ACK {"id":%d}\n' % job


class Workq:
    name = "workq"
    replies = (1, 3, 1)

    def greeting(self) -> list[bytes]:
        return []

    def push(self, serial: int, payload: bytes) -> bytes:
        head = b"add 00000000-0000-4000-8000-%012x %b 60000 60000 %d\r\n"
        return head % (serial, QUEUE.encode(), len(payload)) + payload + b"\r\n"

    def take(self, serial: int) -> bytes:
        return b"lease %b 60000\r\n" % QUEUE.encode()

    def finish(self, serial: int, taken: bytes) -> bytes:
        uid = taken.split(b"\r\n")[1].split(b" ")[0]
        return b"complete %b 4\r\ndone\r\n" % uid


class Lists:
    name = "lists"
    replies = (1, 2, 0)

    def greeting(self) -> list[bytes]:
        return []

    def push(self, serial: int, payload: bytes) -> bytes:
        return resp(b"RPUSH", QUEUE.encode(), payload)

    def take(self, serial: int) -> bytes:
        return resp(b"LPOP", QUEUE.encode())

    def finish(self, serial: int, taken: bytes) -> bytes:
        assert taken.startswith(b"$%d\r\n" % PAYLOAD), taken
        return b""


class Pqueue:
    name = "pqueue"
    replies = (1, 1, 0)

    def greeting(self) -> list[bytes]:
        return []

    def push(self, serial: int, payload: bytes) -> bytes:
        return resp(b"UPDATE", b"item-%016d" % serial, b"1")

    def take(self, serial: int) -> bytes:
        return resp(b"NEXT")

    def finish(self, serial: int, taken: bytes) -> bytes:
        assert taken.startswith(b"+item-"), taken
        return b""


class Glovebox:
    name = "glovebox"
    replies = (1, 1, 1)

    def greeting(self) -> list[bytes]:
        return [message(type="create", queue=QUEUE, label=1)]

    def push(self, serial: int, payload: bytes) -> bytes:
        text = payload.decode()
        return message(type="post", queue=QUEUE, message=text, label=serial, notify=["sync"])

    def take(self, serial: int) -> bytes:
        fields = {"block_timeout": 60, "work_timeout": 60, "label": serial}
        return message(type="fetch", queue=QUEUE, **fields)

    def finish(self, serial: int, taken: bytes) -> bytes:
        sequence = json.loads(taken)["sequence"]
        fields = {"shard": 0, "label": serial, "response": "sync"}
        return message(type="finish", queue=QUEUE, sequence=sequence, **fields)


def resp(*words: bytes) -> bytes:
    parts = [b"$%d\r\n%b\r\n" % (len(word), word) for word in words]
    return b"*%d\r\n" % len(words) + b"".join(parts)


def message(**fields: object) -> bytes:
    return json.dumps(fields).encode()


DIALECTS: Final[tuple[Callable[[], Dialect], ...]] = (Masenko, Workq, Lists, Pqueue, Glovebox)


@dataclass(frozen=True, slots=True)
class Shape:
    """How many connections, and how many jobs each sends at once."""

    name: str
    connections: int
    depth: int

    @property
    def jobs(self) -> int:
        """Of one round."""
        return self.connections * self.depth


SHAPES: Final = (
    Shape("one by one", 1, 1),
    Shape("pipelined", 1, 20),
    Shape("8 connections", 8, 1),
)


class Workload:
    """Jobs in one protocol and shape, at one place."""

    def __init__(self, place: Place, dialect: Dialect, shape: Shape, payload: int = PAYLOAD):
        self._place = place
        self._dialect = dialect
        self._shape = shape
        self._payload = b"x" * payload
        # No two shapes share a number: they may run one after the other at one place.
        self._serial = (SHAPES.index(shape) + 1) * 1_000_000
        self._channels = [place.open(dialect.name) for _ in range(shape.connections)]
        for said in dialect.greeting():
            self._channels[0].say([said])
            self._channels[0].hear()

    def run(self, rounds: int) -> int:
        """Gives how many jobs that were."""
        for _ in range(rounds):
            self._round()
        return rounds * self._shape.jobs

    def _round(self) -> None:
        dialect, jobs = self._dialect, self._shape.jobs
        serials = range(self._serial, self._serial + jobs)
        self._serial += jobs
        pushed, taken, finished = dialect.replies
        self._step([dialect.push(serial, self._payload) for serial in serials], pushed)
        given = self._step([dialect.take(serial) for serial in serials], taken)
        ends = [dialect.finish(serial, got) for serial, got in zip(serials, given, strict=True)]
        if finished:
            self._step(ends, finished)

    def _step(self, messages: Sequence[bytes], replies: int) -> list[bytes]:
        """Say each connection's share of them, and give what was answered to each."""
        depth = self._shape.depth
        alone = len(self._channels) == 1
        with nullcontext() if alone else self._place.together():
            for number, channel in enumerate(self._channels):
                channel.say(messages[number * depth : (number + 1) * depth])
        answers = [
            b"".join(channel.hear() for _ in range(replies))
            for channel in self._channels
            for _ in range(depth)
        ]
        for answer in answers:
            assert not answer.startswith(REFUSALS), answer
        return answers


def title(dialect: Dialect, shape: Shape) -> str:
    return f"{dialect.name}, {shape.name}"
