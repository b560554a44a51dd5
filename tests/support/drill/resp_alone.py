"""Clients of RESP that have a database to themselves: each reply must be exactly that of a model.

Items with scores, values, lists: what is not shared needs no history checker. Who comes to a
database that somebody has left without a word begins by looking at what is there.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from random import Random
from typing import Any

from support.drill.door import DriverConnector
from support.drill.habits import DriverOptions
from support.drill.resp_replies import is_refusal
from support.load_resp import DATABASES, ITEMS, KEYS, LISTS, LoneTalk, expect_ok
from support.model_resp import Model, Request

INSPECTIONS: tuple[Request, ...] = (
    *(("LRANGE", name, 0, -1) for name in LISTS),
    *(("SCORE", item) for item in ITEMS),
    ("PEEK",),
    *(("GET", key) for key in KEYS),
    *(("TTL", key) for key in KEYS),
)


@dataclass(eq=False, slots=True)
class LoneRespClients:
    chance: Random
    habits: DriverOptions
    models: dict[int, Model] = field(default_factory=lambda: {n: Model() for n in DATABASES})
    free: list[int] = field(default_factory=lambda: list(DATABASES))

    def has_room(self) -> bool:
        return bool(self.free)

    def add_client(self, name: str) -> LoneRespDriver:
        database = self.free.pop(self.chance.randrange(len(self.free)))
        return LoneRespDriver(self, database, name)

    def release_database(self, database: int) -> None:
        """A driver calls this when it leaves with nothing open."""
        self.free.append(database)

    def on_crash(self) -> None:
        """What was still on its way will not arrive any more."""
        self.free = list(DATABASES)

    def check_databases(self, door: DriverConnector) -> None:
        """Once more at the end, when nothing is on its way."""
        self.on_crash()
        for database in DATABASES:
            talk = LoneRespDriver(self, database, f"look-{database}")
            door.connect("resp", talk)
            door.exchange(talk, b"".join(talk.looks()))
            door.disconnect(talk)


class LoneRespDriver(LoneTalk):
    def __init__(self, people: LoneRespClients, database: int, name: str) -> None:
        model = people.models[database]
        largest = people.habits.largest_payload
        super().__init__(model, database, people, people.chance, largest)  # type: ignore[arg-type]
        self.name = name
        self._of = database
        self._people = people
        self._to_look = list(INSPECTIONS)
        self._seen: list[Any] = []
        self._unsure = False  # a look was refused

    def request(self) -> bytes:
        if not self._selected:
            self._selected = True
            return self.ask(("SELECT", self._of), expect_ok)
        if self._to_look:
            return self.ask(self._to_look.pop(0), self._looked)
        if self._unsure or len(self._seen) < len(INSPECTIONS):
            return self.ask(("PING",), partial(_expect, "PONG"))
        request = self._choose()
        self._model.asked(request)
        return self.ask(request, self._heard)

    def looks(self) -> list[bytes]:
        """All that it does before it begins to talk."""
        return [self.request() for _ in range(1 + len(INSPECTIONS))]

    def lost(self) -> None:
        """Its database is nobody's until nothing of it can arrive any more."""

    def _heard(self, reply: Any) -> None:
        if is_refusal(reply):
            self._model.open.pop(0)
        else:
            self._model.answered(reply)

    def _looked(self, reply: Any) -> None:
        self._seen.append(reply)
        self._unsure = self._unsure or is_refusal(reply)
        if len(self._seen) == len(INSPECTIONS) and not self._unsure:
            self._model.found(_contents(self._seen))


def _contents(seen: list[Any]) -> dict[str, Any]:
    """In the form of the model."""
    replies = iter(seen)
    lists = {name: next(replies) for name in LISTS}
    scores = {item: next(replies) for item in ITEMS}
    first = next(replies)
    values = {key: next(replies) for key in KEYS}
    ttls = {key: next(replies) for key in KEYS}
    return {
        "lists": {name: jobs for name, jobs in lists.items() if jobs},
        "scores": {item: score for item, score in scores.items() if score is not None},
        "first": first.encode() if first is not None else None,
        "values": {
            key: (value, ttls[key] > 0) for key, value in values.items() if value is not None
        },
    }


def _expect(expected: str, reply: Any) -> None:
    assert reply == expected, reply
