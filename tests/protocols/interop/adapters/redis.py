"""Lists of Redis as the conformance suite speaks them, and as toq programs do: RPUSH and BLPOP.

A pop finishes the job, so there is nothing to hold, to finish or to fail.
"""

from typing import ClassVar

from protocols.interop.adapters.base import Adapter, BadName, Can, Counts, Options, Taken
from support.naming import BAD_QUEUE
from support.resp import command
from support.wire import Peer

LISTENER = "resp"
MOMENT = 0.000_001  # to pop and not to wait, as BLPOP has it


class RedisAdapter(Adapter):
    dialect = "redis"
    can: ClassVar = frozenset(
        {
            Can.PUSH,
            Can.POP,
            Can.WAIT_TO_POP,
            Can.ANY_BYTES,
            Can.ANY_NAME,
            Can.COUNT_READY,
        }
    )
    result_outlives_job = False
    loss_is_failure = False
    default_fails = 1
    max_losses = 10
    shows_json = False

    @classmethod
    def pause_after_fail(cls, fails: int) -> int:
        return 0

    def reconnect(self) -> None:
        self.peer = self._connect(LISTENER)
        self.waiting = False

    def keep_alive(self) -> None:
        """Redis lets its clients be silent."""

    def push(self, queue: str, payload: bytes, options: Options) -> str:
        self.peer.send(command("RPUSH", queue, payload))
        self._integer()
        return ""

    def ask(self, queue: str, wait: float) -> None:
        self.peer.send(command("BLPOP", queue, f"{wait or MOMENT:.6f}"))
        self.waiting = True

    def arrived(self) -> Taken:
        self.peer.expect(b"*2\r\n")
        self.waiting = False
        queue = read_bulk(self.peer).decode()
        return Taken(queue, read_bulk(self.peer))

    def came_to_nothing(self) -> None:
        self.peer.expect(b"*-1\r\n")
        self.waiting = False

    def finish(self, taken: Taken, result: bytes = b"") -> None:
        raise NotImplementedError(self.dialect)

    def fail(self, taken: Taken, error: bytes = b"") -> None:
        raise NotImplementedError(self.dialect)

    def counts(self, queue: str) -> Counts:
        self.peer.send(command("LLEN", queue))
        return {"ready": self._integer()}

    def _integer(self) -> int:
        line = self.peer.read_line()
        if line == b"-%s\r\n" % BAD_QUEUE.encode():
            raise BadName(line.decode())
        assert line.startswith(b":"), line
        return int(line[1:])


def read_bulk(peer: Peer) -> bytes:
    """A bulk string, line by line, since any bytes may be in it."""
    size = int(peer.read_line().removeprefix(b"$"))
    data = b""
    while len(data) < size + 2:
        data += peer.read_line()
    assert len(data) == size + 2, data
    return data[:-2]
