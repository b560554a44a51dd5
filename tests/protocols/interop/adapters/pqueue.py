"""Pqueue as the conformance suite speaks it. Its items are in one queue, so that it takes part in
tests of its own only, and is not among ADAPTERS."""

from collections.abc import Callable

from protocols.interop.adapters.base import Taken
from protocols.interop.adapters.redis import LISTENER
from support.resp import command
from support.wire import Peer

QUEUE = "pqueue"
NIL = b"$-1\r\n"


class PqueueClient:
    def __init__(self, connect: Callable[[str], Peer]) -> None:
        self._peer = connect(LISTENER)

    def update(self, key: bytes, score: int) -> int:
        self._peer.send(command("UPDATE", key, score))
        return self._integer()

    def score(self, key: bytes) -> int | None:
        self._peer.send(command("SCORE", key))
        line = self._peer.read_line()
        return None if line == NIL else int(line.removeprefix(b":"))

    def next(self) -> Taken | None:
        """Take the next item, which is finished then."""
        self._peer.send(b"NEXT\r\n")
        line = self._peer.read_line()
        if line == NIL:
            return None
        assert line.startswith(b"+"), line
        return Taken(QUEUE, line[1:-2])

    def _integer(self) -> int:
        line = self._peer.read_line()
        assert line.startswith(b":"), line
        return int(line[1:])
