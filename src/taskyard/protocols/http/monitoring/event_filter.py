"""Which events a client requests: from where on, until where, of which queues, of which kinds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from taskyard.engine.model.job import FOREVER
from taskyard.engine.records.job_changes import FailRecord, MoveRecord
from taskyard.engine.records.job_lifecycle import EVENT_NAMES, FIRST_SNAPSHOT, Record
from taskyard.engine.records.side_records import BatchRecord
from taskyard.protocols.http.messages import Request
from taskyard.shared.misspelt import suggestion

PARAMETERS: Final = ("after", "event", "queue", "until")
_MOST_DIGITS: Final = 20  # of a number of an event
_NOW: Final = "now"
KINDS: Final = {name: kind for kind, name in EVENT_NAMES.items() if kind < FIRST_SNAPSHOT}


class InvalidEventQuery(Exception):
    """The request cannot be understood; the text says why."""


class EventFilter:
    """None: all of them."""

    def __init__(self, queues: frozenset[bytes] | None, kinds: frozenset[int] | None) -> None:
        self._queues = queues
        self._kinds = kinds

    def matches(self, record: Record) -> bool:
        if self._kinds is not None and record.kind() not in self._kinds:
            return False
        return self._queues is None or not self._queues.isdisjoint(_concerned_queues(record))


@dataclass(frozen=True, slots=True)
class EventQuery:
    next_seq: int  # 0: from the first record that is there
    filter: EventFilter
    other_timeline: str = ""  # the one that the client was on, if it is not this one
    last_seq: int = FOREVER


def parse_event_query(request: Request, timeline: str, durable_seq: int) -> EventQuery:
    query = request.query
    for name in query:
        if name not in PARAMETERS:
            there_are = ", ".join(PARAMETERS)
            question = suggestion(name, PARAMETERS)
            raise InvalidEventQuery(
                f"there is no parameter {name} here{question} There are {there_are}"
            )
    wanted = EventFilter(
        _parse_queues(query.get("queue", "")), _parse_kinds(query.get("event", ""))
    )
    last = _parse_until(query.get("until", ""), durable_seq)
    # The header is of a client that connects again, to the address that it had before.
    place = request.headers.get("last-event-id", "") or query.get("after", "")
    if not place:
        return EventQuery(durable_seq + 1, wanted, last_seq=last)
    named, colon, number = place.rpartition(":")
    if not _is_number(number):
        raise InvalidEventQuery(
            f"{place!r} is no id of an event: it would be timeline:seq, or a number"
        )
    if colon and named != timeline:
        return EventQuery(0, wanted, named, last)
    seq = int(number)
    if seq > durable_seq:
        raise InvalidEventQuery(f"there is no event {seq} yet: the last one is {durable_seq}")
    return EventQuery(seq + 1 if seq else 0, wanted, last_seq=last)


def _parse_until(text: str, durable_seq: int) -> int:
    if not text:
        return FOREVER
    if text == _NOW:
        return durable_seq
    if not _is_number(text):
        raise InvalidEventQuery(f"until is {text!r}: it would be the number of an event, or {_NOW}")
    return int(text)


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) <= _MOST_DIGITS


def requested_queues(request: Request) -> list[str]:
    """The queues whose events a client asks for; [""]: all."""
    return [name for name in request.query.get("queue", "").split(",") if name] or [""]


def _parse_queues(text: str) -> frozenset[bytes] | None:
    names = [name.encode() for name in text.split(",") if name]
    return frozenset(names) if names else None


def _parse_kinds(text: str) -> frozenset[int] | None:
    names = [name for name in text.split(",") if name]
    for name in names:
        if name not in KINDS:
            raise InvalidEventQuery(f"there is no event {name!r}; there are {', '.join(KINDS)}")
    return frozenset(KINDS[name] for name in names) if names else None


# What an event leaves out for clients that may not inspect the queue in which it happened.
PERSONAL_FIELDS: Final = (
    "user",
    "holder",
    "owner",
    "consumer",
    "error",
    "error_line",
    "error_size",
    "message",
)


def origin_queues(record: Record) -> list[bytes]:
    """The queues in which the jobs of a record were when it happened; []: it is of none."""
    if isinstance(record, BatchRecord):
        return record.queues
    name = getattr(record, "queue", None)
    return [name] if isinstance(name, bytes) else []


def remove_personal_fields(found: dict[str, Any]) -> None:
    """Remove its error from an event, and the names of users and holders."""
    for name in PERSONAL_FIELDS:
        found.pop(name, None)


def _concerned_queues(record: Record) -> list[bytes]:
    """Those that a record concerns."""
    if isinstance(record, BatchRecord):
        return record.queues
    name = getattr(record, "queue", None)
    if not isinstance(name, bytes):
        return []
    if isinstance(record, MoveRecord):
        return [name, record.to]
    if isinstance(record, FailRecord) and record.dead_queue:
        return [name, record.dead_queue.encode()]
    return [name]
