"""What became of every job that the driver pushed, in one byte each.

Millions of jobs pass through a soak, so there is no object a job: a stream of jobs numbers them
from 0, the payload carries the number, and the number is the place of its byte. Knows no protocol.
"""

from typing import Final

NEVER: Final = 0
ASKED: Final = 1  # pushed, not answered yet
WAITING: Final = 2  # acknowledged: the server must have it
HELD: Final = 3
FINISHING: Final = 4  # finished, not answered yet
DONE: Final = 5
FAILING: Final = 6  # failed, not answered yet
DEAD: Final = 7  # a dead letter that no queue hands out
MAYBE: Final = 8  # a crash took the answer: it may be there or not

_FILLER: Final = bytes(
    b"abcdefghijklmnopqrstuvwxyz0123456789"[(i * i + i // 36) % 36] for i in range(4096)
)
_AFTER_CRASH: Final = bytes.maketrans(
    bytes((ASKED, HELD, FINISHING, FAILING)), bytes((MAYBE, WAITING, MAYBE, MAYBE))
)
_NAMES: Final = (
    "never pushed", "pushed and not answered", "waiting", "held", "being finished", "done",
    "being failed", "a dead letter", "there or not",
)  # fmt: skip


class WrongAnswer(Exception):
    """The server said or did what cannot be."""


class Stream:
    """The jobs of one kind: one queue, one size."""

    def __init__(self, name: str, payload: int, dead_queue: str = "") -> None:
        self.name = name
        self.dead_queue = dead_queue  # where they go when they have failed for good
        self.payload_bytes = payload
        self.live = 0  # acknowledged, and neither done nor a dead letter
        self.ready = 0  # of those, not held
        self.dead = 0
        self.pushed = 0  # acknowledged
        self.finished = 0
        self._states = bytearray()

    def payload(self, number: int) -> bytes:
        """A JSON string of the stream's size that no other job has."""
        head = b'"%s:%d:' % (self.name.encode(), number)
        need = self.payload_bytes - len(head) - 1
        start = number % 89
        filler = _FILLER[start : start + need]
        if len(filler) < need:
            filler = (_FILLER * (need // len(_FILLER) + 2))[start : start + need]
        return head + filler + b'"'

    # Requests, before they are sent

    def pushing(self, count: int) -> range:
        """The numbers of the jobs to push now."""
        first = len(self._states)
        self._states += bytes((ASKED,)) * count
        return range(first, first + count)

    def finishing(self, number: int) -> None:
        self._states[number] = FINISHING

    def failing(self, number: int) -> None:
        self._states[number] = FAILING

    # Replies

    def was_pushed(self, numbers: range) -> None:
        states = self._states
        for number in numbers:
            # Another connection may have had it delivered before this answer was read.
            if states[number] == ASKED:
                states[number] = WAITING
                self.ready += 1
                self.live += 1
        self.pushed += len(numbers)

    def handed_out(self, number: int, payload: bytes) -> None:
        state = self._states[number] if number < len(self._states) else NEVER
        if state == WAITING:
            self.ready -= 1
        elif state in (ASKED, MAYBE):
            self.live += 1
        else:
            raise WrongAnswer(f"{self.name}:{number} was handed out, and is {_NAMES[state]}")
        if payload != self.payload(number):
            raise WrongAnswer(f"{self.name}:{number} came with another payload: {payload[:80]!r}")
        self._states[number] = HELD

    def was_finished(self, numbers: list[int]) -> None:
        for number in numbers:
            self._states[number] = DONE
        self.live -= len(numbers)
        self.finished += len(numbers)

    def was_failed(self, number: int, *, for_good: bool) -> None:
        self._states[number] = DEAD if for_good else WAITING
        if for_good:
            self.dead += 1
            self.live -= 1
        else:
            self.ready += 1

    # What happens to the server

    def crashed(self) -> None:
        """What was held is back; what had no answer may have happened or not."""
        self._states = self._states.translate(_AFTER_CRASH)
        self.ready = self.live = self._states.count(WAITING)

    @property
    def uncertain(self) -> int:
        """Jobs that may be there or not."""
        return self._states.count(MAYBE) + self._states.count(ASKED)

    def check_taken(self) -> None:
        """All that can be delivered has been: is an acknowledged job missing?"""
        for state in (WAITING, HELD):
            at = self._states.find(state)
            if at >= 0:
                count = self._states.count(state)
                raise WrongAnswer(
                    f"{count} jobs of {self.name} are acknowledged and lost, as number {at}"
                )

    @property
    def live_bytes(self) -> int:
        return self.live * self.payload_bytes
