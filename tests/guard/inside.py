"""Counts function calls: the broker inside this process, plain Python, with a profiler's hook.

    PYTHONPATH=src:tests python -m guard.inside [--dearer]

prints them for a job of each workload as JSON. It runs in a process of its own, since compiled
functions that call each other are not seen. With --dearer, one function of the hot path calls more
than it should, which is for the test of this guard.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Final

from guard.workloads import DIALECTS, SHAPES, Channel, Workload, title
from support.simulated import GloveboxPeer, SimulatedPeer, SimulatedServer

import taskyard
from taskyard.broker.metrics import form
from taskyard.broker.replies import ReplyQueue

PRODUCT: Final = str(Path(taskyard.__file__).parent) + "/"
LISTENERS: Final = {"lists": "resp", "pqueue": "resp"}
WARM: Final = 4  # rounds before those that are counted, so that what is kept is there
ROUNDS: Final = 10


class Lines:
    def __init__(self, yard: SimulatedServer, peer: SimulatedPeer) -> None:
        self._yard = yard
        self._peer = peer

    def say(self, messages: Sequence[bytes]) -> None:
        self._peer.arrive(b"".join(messages))

    def hear(self) -> bytes:
        self._yard.run_pending()
        return self._peer.read_line()


class Messages:
    def __init__(self, yard: SimulatedServer, peer: GloveboxPeer) -> None:
        self._yard = yard
        self._peer = peer
        assert peer.next()["type"] == "hello"

    def say(self, messages: Sequence[bytes]) -> None:
        assert self._peer.connection is not None
        for message in messages:
            self._peer.connection.on_text(message)

    def hear(self) -> bytes:
        self._yard.run_pending()
        return json.dumps(self._peer.next()).encode()


class Inside:
    """The broker in this process, where nothing happens until somebody wants to hear something."""

    def __init__(self) -> None:
        self._yard = SimulatedServer(segment_size=1 << 22)

    def open(self, dialect: str) -> Channel:
        if dialect == "glovebox":
            return Messages(self._yard, self._yard.connect_glovebox())
        return Lines(self._yard, self._yard.connect(LISTENERS.get(dialect, dialect)))

    @contextmanager
    def together(self) -> Iterator[None]:
        yield


class CallCounter:
    """A hook for `sys.setprofile`: calls of functions of the product, and those they make to C.

    Comprehensions are left out: whether they are calls changes from one Python to the next.
    """

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, frame: FrameType, event: str, _: object) -> None:
        if event == "call":
            code = frame.f_code
            if code.co_filename.startswith(PRODUCT) and not code.co_name.startswith("<"):
                self.calls += 1
        elif event == "c_call" and frame.f_code.co_filename.startswith(PRODUCT):
            self.calls += 1


def calls_of(workload: Workload, rounds: int) -> int:
    counter = CallCounter()
    sys.setprofile(counter)
    try:
        workload.run(rounds)
    finally:
        sys.setprofile(None)
    return counter.calls


def count() -> dict[str, float]:
    """Calls for a job, by workload."""
    found: dict[str, float] = {}
    for make in DIALECTS:
        for shape in SHAPES:
            dialect = make()
            workload = Workload(Inside(), dialect, shape)
            workload.run(WARM)
            found[title(dialect, shape)] = calls_of(workload, ROUNDS) / (ROUNDS * shape.jobs)
    return found


def make_dearer() -> None:
    """A function that each reply goes through calls a hundred others more."""
    send = ReplyQueue.send

    def dearer(self: ReplyQueue, reply: bytes, mark: int) -> None:
        for _ in range(100):
            self.has_waiting()
        send(self, reply, mark)

    setattr(ReplyQueue, "send", dearer)  # noqa: B010 (mypy refuses the assignment)


def main() -> int:
    if form() == "compiled":
        sys.stderr.write("calls can be counted in plain Python only (PYTHONPATH=src:tests)\n")
        return 2
    if sys.argv[1:] == ["--dearer"]:
        make_dearer()
    sys.stdout.write(json.dumps(count()) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
