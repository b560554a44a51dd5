"""Two small processes that ask the server something now and then, and time it.

`loop` sends a command that is refused at once: its round trip is long only while the server's
loop (or the machine) is busy elsewhere. `cycle` pushes, takes and finishes one job, with the
disk in it. How late each wakes from its own sleep says how far the machine is to blame.
"""

import signal
import socket
import time
from dataclasses import dataclass, field
from multiprocessing.connection import Connection as Pipe
from typing import Final, Literal

from benchmarks import rig
from benchmarks.soak.dialect import MASENKO, Dialect
from benchmarks.soak.ledger import Stream, WrongAnswer

Kind = Literal["loop", "cycle"]
INTERVALS: Final[dict[Kind, float]] = {"loop": 0.003, "cycle": 0.02}
PATIENCE: Final = 60.0
QUEUE: Final = "probe"
PAYLOAD: Final = 200


@dataclass(frozen=True, slots=True)
class Listen:
    """Where to send probes from now on; None for nowhere."""

    port: int | None


@dataclass(frozen=True, slots=True)
class Readings:
    """All since the last ones, in seconds."""

    taken: list[float] = field(default_factory=list)
    late: list[float] = field(default_factory=list)
    problem: str = ""


class Probe:
    def __init__(self, kind: Kind, pipe: Pipe, dialect: Dialect) -> None:
        self._kind = kind
        self._pipe = pipe
        self._dialect = dialect
        self._stream = Stream(QUEUE, PAYLOAD)
        self._socket: socket.socket | None = None
        self._taken: list[float] = []
        self._late: list[float] = []
        self._problem = ""

    def run(self) -> None:
        interval = INTERVALS[self._kind]
        while True:
            # Answering takes time too, so the next probe is planned only after it.
            while self._pipe.poll(None if self._socket is None else 0):
                try:
                    message: Listen | None = self._pipe.recv()
                except EOFError:
                    return
                if message is not None:
                    self._listen(message.port)
                self._pipe.send(Readings(self._taken, self._late, self._problem))
                self._taken, self._late = [], []
            planned = time.monotonic() + interval
            time.sleep(interval)
            begun = time.monotonic()
            self._late.append(begun - planned)
            self._probe(begun)

    def _probe(self, begun: float) -> None:
        try:
            if self._kind == "loop":
                self._ask(self._dialect.mistake())
            else:
                self._cycle()
        except (OSError, WrongAnswer) as error:
            # A killed server; if nobody killed it, whoever reads this will say so.
            self._problem = f"{type(error).__name__}: {error}"
            self._listen(None)
            return
        self._taken.append(time.monotonic() - begun)

    def _cycle(self) -> None:
        [number] = self._stream.pushing(1)
        reply = self._ask(self._dialect.push(QUEUE, self._stream.payload(number)))
        self._dialect.check(reply)
        job = self._dialect.read_taken(self._ask(self._dialect.take(QUEUE, 1000)))
        # Before the first cycle after a crash the queue may have one of the time before.
        if job is not None:
            self._dialect.check(self._ask(self._dialect.finish(job.id)))

    def _ask(self, request: bytes) -> bytes:
        assert self._socket is not None
        self._socket.sendall(request)
        unread = bytearray()
        while not (replies := self._dialect.split(unread)):
            data = self._socket.recv(1 << 16)
            if not data:
                raise ConnectionResetError
            unread += data
        return replies[0]

    def _listen(self, port: int | None) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None
        if port is not None:
            self._problem = ""
            self._socket = socket.create_connection((rig.HOST, port), timeout=PATIENCE)
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


def probe(kind: Kind, pipe: Pipe) -> None:
    """The process."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    Probe(kind, pipe, MASENKO).run()
