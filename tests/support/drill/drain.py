"""Takes out everything that is there, over one protocol, and finishes it. No I/O."""

from __future__ import annotations

from typing import Protocol

from support.drill.habits import EVERY_QUEUE
from support.drill.slip import Lease
from support.talk import ProtocolDriver


class DrainWorker(ProtocolDriver, Protocol):
    """A client that follows orders."""

    def lost(self) -> None: ...

    def holds(self) -> list[Lease]: ...

    def take(self, queues: list[str], wait_ms: int) -> bytes: ...

    def finish(self, lease: Lease) -> bytes: ...


class Drain:
    """A talk that is done when nothing is ready any more."""

    def __init__(self, worker: DrainWorker) -> None:
        self._worker = worker
        self._left = list(EVERY_QUEUE)  # queues that may still have something
        self._asks = False  # for more

    @property
    def done(self) -> bool:
        return not self._left

    def request(self) -> bytes:
        held = self._worker.holds()
        if held:
            self._left = list(EVERY_QUEUE)  # it may release others
            return self._worker.finish(held[0])
        self._asks = True
        return self._worker.take(self._left[:1], 200)

    def receive(self, data: bytes) -> None:
        self._worker.receive(data)
        if self._asks and self.is_idle():
            self._asks = False
            if not self._worker.holds():
                del self._left[0]

    def is_idle(self) -> bool:
        return self._worker.is_idle()

    def leave(self) -> None:
        self._worker.leave()

    def lost(self) -> None:
        self._worker.lost()
