"""What the client of a durable session has been sent, and what it is known to have.

A notice of such a session is a letter of its outbox in the engine, numbered in the order of the
records. Behind it goes a ping with that number; the pong says that the client has it. What was
written to a socket may still be lost with it, so only that counts as delivered.
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64

from taskyard.protocols.glovebox.websocket_frames import PING, frame

_MOST: Final = 65_536  # letters on their way; the engine's own bound is below that by default


class Letters:
    def __init__(self, numbered: i64) -> None:
        self.numbered = numbered  # the last one that was sent
        self._open: dict[int, None] = {}  # sent and not confirmed, in order
        self._pings: dict[int, list[int]] = {}  # the letters that each of them stands behind

    def next(self) -> i64:
        """Number the letter that is to be sent now, with a ping of its own."""
        self.numbered += 1
        self.sent([self.numbered])
        return self.numbered

    def sent(self, numbers: list[int]) -> None:
        """These go out one behind the other; the ping bears the last of the numbers."""
        for number in numbers:
            self._open[number] = None
        self._pings[numbers[-1]] = numbers
        while len(self._open) > _MOST:  # a client that answers no pings
            del self._open[next(iter(self._open))]
            del self._pings[next(iter(self._pings))]

    def confirmed(self, number: int) -> bool:
        """The ping with this number came back; False if none is out."""
        numbers = self._pings.pop(number, None)
        if numbers is None:
            return False
        for confirmed in numbers:
            self._open.pop(confirmed, None)
        return True

    def delivered(self) -> i64:
        """The client has all letters up to this one."""
        return next(iter(self._open)) - 1 if self._open else self.numbered


def stage_index(stage: int) -> int:
    return stage.bit_length() - 1


def ping(number: int) -> bytes:
    return frame(PING, number.to_bytes(8, "big"))
