"""Sets the limits of the narrow queue, over RESP, before any client uses it. No I/O."""

from __future__ import annotations

import json
from random import Random

from support.drill.book import CheckedLimits, HistoryChecker
from support.drill.habits import NARROW, DriverOptions
from support.drill.slip import require
from support.replies_resp import Failure, Incomplete, ReplyReader, command

OF_KEY = 1  # jobs of one limit key that may be out


def narrow_settings(habits: DriverOptions) -> bytes:
    """The body of a PUT: all say the same, so that it does not matter who is the last."""
    count, seconds = habits.narrow_rate
    body = {
        "concurrency": habits.narrow,
        "key_concurrency": OF_KEY,
        "rate": {"count": count, "per": seconds},
    }
    return json.dumps(body).encode()


def narrowed(limits: CheckedLimits, habits: DriverOptions) -> None:
    """That was acknowledged."""
    limits.in_flight[NARROW] = habits.narrow
    limits.in_flight_of_key[NARROW] = OF_KEY
    limits.rate[NARROW] = habits.narrow_rate


class SettingsDriver:
    """A client that says what a queue is like, again if need be, and otherwise nothing of use."""

    def __init__(
        self, name: str, book: HistoryChecker, chance: Random, habits: DriverOptions
    ) -> None:
        self.name = name
        self._book = book
        self._habits = habits
        self._replies = ReplyReader()
        self._pending: list[bool] = []  # whether it was about the queue

    def request(self) -> bytes:
        self._book.ask()
        about = NARROW not in self._book.limits.in_flight
        self._pending.append(about)
        if not about:
            return command("PING")
        return command("API", "PUT", f"/api/v1/queues/{NARROW}", narrow_settings(self._habits))

    def receive(self, data: bytes) -> None:
        self._replies.feed(data)
        while self._pending:
            try:
                reply = self._replies.next()
            except Incomplete:
                return
            if self._pending.pop(0) and isinstance(reply, list):
                self._told(int(reply[0]))
            elif isinstance(reply, Failure):
                require(self._habits.disk_fails, f"a setting was refused: {reply}")

    def is_idle(self) -> bool:
        return not self._pending

    def leave(self) -> None:
        self.lost()

    def lost(self) -> None:
        self._book.on_disconnect(self.name)

    def _told(self, status: int) -> None:
        if status in (200, 201):
            narrowed(self._book.limits, self._habits)
        else:
            require(self._habits.disk_fails, f"a setting was refused: {status}")
