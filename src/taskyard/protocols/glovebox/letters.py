"""Tracks which notices a durable session's client was sent, and which it has confirmed.

A notice of such a session is kept in the engine, numbered in the order of the records. Behind it
goes a ping with that number; the pong says that the client has it. What was written to a socket may
still be lost with it, so only that counts as delivered.
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64

from taskyard.protocols.glovebox.websocket_frames import PING, encode_frame

# unconfirmed notices; the engine's own bound is below that by default
_MAX_UNCONFIRMED: Final = 65_536


class NoticeTracker:
    def __init__(self, numbered: i64) -> None:
        self.last_notice = numbered  # the last one that was sent
        self._unconfirmed: dict[int, None] = {}  # sent and not confirmed, in order
        self._pings: dict[int, list[int]] = {}  # the notices that each ping follows

    def number_next(self) -> i64:
        """Number the notice that is sent now, with a ping of its own."""
        self.last_notice += 1
        self.mark_sent([self.last_notice])
        return self.last_notice

    def mark_sent(self, numbers: list[int]) -> None:
        """Record that these were sent in a row; the ping carries the last of the numbers."""
        for number in numbers:
            self._unconfirmed[number] = None
        self._pings[numbers[-1]] = numbers
        while len(self._unconfirmed) > _MAX_UNCONFIRMED:  # a client that answers no pings
            del self._unconfirmed[next(iter(self._unconfirmed))]
            del self._pings[next(iter(self._pings))]

    def confirm(self, number: int) -> bool:
        """Handle the pong with this number; False if no ping had it."""
        numbers = self._pings.pop(number, None)
        if numbers is None:
            return False
        for confirmed in numbers:
            self._unconfirmed.pop(confirmed, None)
        return True

    def last_delivered(self) -> i64:
        """The client has received all notices up to this one."""
        return next(iter(self._unconfirmed)) - 1 if self._unconfirmed else self.last_notice


def stage_index(stage: int) -> int:
    return stage.bit_length() - 1


def encode_ping(number: int) -> bytes:
    return encode_frame(PING, number.to_bytes(8, "big"))
