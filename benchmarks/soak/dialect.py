"""How the driver speaks to the server. Another protocol is another class here.

Requests are bytes to send, replies are cut out of the bytes that came. A protocol that can do more
(results, values, new scores) gets methods for it, and a workload of its own that asks for them.
"""

import json
import re
from dataclasses import dataclass
from typing import Final, Protocol

from benchmarks.soak.ledger import WrongAnswer


@dataclass(frozen=True, slots=True)
class Taken:
    """A job that was delivered. The payload says which it is: `"stream:number:..."`."""

    id: bytes
    queue: bytes
    stream: str
    number: int
    payload: bytes
    fails: int


@dataclass(frozen=True, slots=True)
class QueueCount:
    ready: int
    delayed: int
    held: int

    @property
    def all(self) -> int:
        return self.ready + self.delayed + self.held


@dataclass(frozen=True, slots=True)
class Counts:
    """What the server says that it has, and how much it has done since its start."""

    queues: dict[str, QueueCount]
    jobs: int  # dead letters included
    pushes: int
    finishes: int


class Dialect(Protocol):
    def push(
        self, queue: str, payload: bytes, *, retries: int = 20, dead_queue: str = "", due: str = ""
    ) -> bytes: ...
    def take(self, queue: str, wait_ms: int) -> bytes: ...
    def finish(self, id: bytes) -> bytes: ...
    def fail(self, id: bytes) -> bytes: ...
    def count(self) -> bytes: ...
    def mistake(self) -> bytes:
        """A request that is refused without a look at the disk."""

    def split(self, data: bytearray) -> list[bytes]:
        """Takes the whole replies out of what came."""

    def check(self, reply: bytes) -> None:
        """Raises unless a push, a finish or a fail went well."""

    def read_taken(self, reply: bytes) -> Taken | None: ...
    def read_counts(self, reply: bytes) -> Counts: ...


class Masenko:
    _TAKEN: Final = re.compile(
        rb'OK \{"id":(\d+),"queue":"([^"]*)","name":"soak",'
        rb'"payload":("([a-z-]+):(\d+):[^"]*")(?:,"failures":(\d+))?\}'
    )

    def push(
        self, queue: str, payload: bytes, *, retries: int = 20, dead_queue: str = "", due: str = ""
    ) -> bytes:
        more = f',"retry":{retries}' if retries != 20 else ""
        more += f',"deadqueue":"{dead_queue}"' if dead_queue else ""
        more += f',"execute_at":"{due}"' if due else ""
        return b'PUSH {"name":"soak","queue":"%s","payload":%s%s}\n' % (
            queue.encode(),
            payload,
            more.encode(),
        )

    def take(self, queue: str, wait_ms: int) -> bytes:
        return b'FETCH {"queues":["%s"],"timeout":"%dms"}\n' % (queue.encode(), wait_ms)

    def finish(self, id: bytes) -> bytes:
        return b'ACK {"id":%s}\n' % id

    def fail(self, id: bytes) -> bytes:
        return b'NACK {"id":%s}\n' % id

    def count(self) -> bytes:
        return b"INFO\n"

    def mistake(self) -> bytes:
        return b"MISTAKE\n"

    def split(self, data: bytearray) -> list[bytes]:
        end = data.rfind(b"\n")
        if end < 0:
            return []
        replies = bytes(data[:end]).split(b"\n")
        del data[: end + 1]
        return replies

    def check(self, reply: bytes) -> None:
        if not reply.startswith(b"OK "):
            raise WrongAnswer(f"the server answered {reply[:200]!r}")

    def read_taken(self, reply: bytes) -> Taken | None:
        if reply == b"EMPTY {}":
            return None
        found = self._TAKEN.fullmatch(reply)
        if found is None:
            raise WrongAnswer(f"a take was answered with {reply[:200]!r}")
        id, queue, payload, stream, number, fails = found.groups()
        return Taken(id, queue, stream.decode(), int(number), payload, int(fails or 0))

    def read_counts(self, reply: bytes) -> Counts:
        self.check(reply)
        told = json.loads(reply[3:])
        requests = told["metrics"]["requests"]
        return Counts(
            queues={
                queue["name"]: QueueCount(queue["ready"], queue["delayed"], queue["to_ack"])
                for queue in told["queues"]
            },
            jobs=told["metrics"]["jobs"],
            pushes=requests.get("PUSH", 0),
            finishes=requests.get("ACK", 0),
        )


MASENKO: Final[Dialect] = Masenko()
