"""Which events a client asks for: from where on, until where, of which queues, of which kinds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from taskyard.engine.model.job import FOREVER
from taskyard.engine.records.job_changes import Fail, Move
from taskyard.engine.records.job_lifecycle import EVENT_NAMES, FIRST_CARRY, Record
from taskyard.engine.records.side_records import Batch
from taskyard.protocols.http.messages import Request
from taskyard.shared.misspelt import or_rather

PARAMETERS: Final = ("after", "event", "queue", "until")
_MOST_DIGITS: Final = 20  # of a number of an event
_NOW: Final = "now"
KINDS: Final = {name: kind for kind, name in EVENT_NAMES.items() if kind < FIRST_CARRY}


class BadRequest(Exception):
    """The request cannot be understood; the text says why."""


class Filter:
    """None: all of them."""

    def __init__(self, queues: frozenset[bytes] | None, kinds: frozenset[int] | None) -> None:
        self._queues = queues
        self._kinds = kinds

    def takes(self, record: Record) -> bool:
        if self._kinds is not None and record.kind() not in self._kinds:
            return False
        return self._queues is None or not self._queues.isdisjoint(_queues_of(record))


@dataclass(frozen=True, slots=True)
class Asked:
    next_seq: int  # 0: from the first record that is there
    filter: Filter
    other_timeline: str = ""  # the one that the client was on, if it is not this one
    last_seq: int = FOREVER


def asked_for(request: Request, timeline: str, durable_seq: int) -> Asked:
    query = request.query
    for name in query:
        if name not in PARAMETERS:
            there_are = ", ".join(PARAMETERS)
            question = or_rather(name, PARAMETERS)
            raise BadRequest(f"there is no parameter {name} here{question} There are {there_are}")
    wanted = Filter(_queues(query.get("queue", "")), _kinds(query.get("event", "")))
    last = _last(query.get("until", ""), durable_seq)
    # The header is of a client that connects again, to the address that it had before.
    place = request.headers.get("last-event-id", "") or query.get("after", "")
    if not place:
        return Asked(durable_seq + 1, wanted, last_seq=last)
    named, colon, number = place.rpartition(":")
    if not _is_number(number):
        raise BadRequest(f"{place!r} is no id of an event: it would be timeline:seq, or a number")
    if colon and named != timeline:
        return Asked(0, wanted, named, last)
    seq = int(number)
    if seq > durable_seq:
        raise BadRequest(f"there is no event {seq} yet: the last one is {durable_seq}")
    return Asked(seq + 1 if seq else 0, wanted, last_seq=last)


def _last(text: str, durable_seq: int) -> int:
    if not text:
        return FOREVER
    if text == _NOW:
        return durable_seq
    if not _is_number(text):
        raise BadRequest(f"until is {text!r}: it would be the number of an event, or {_NOW}")
    return int(text)


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) <= _MOST_DIGITS


def queues_of(request: Request) -> list[str]:
    """Those that a client wants to hear of, by name; [""]: of everything."""
    return [name for name in request.query.get("queue", "").split(",") if name] or [""]


def _queues(text: str) -> frozenset[bytes] | None:
    names = [name.encode() for name in text.split(",") if name]
    return frozenset(names) if names else None


def _kinds(text: str) -> frozenset[int] | None:
    names = [name for name in text.split(",") if name]
    for name in names:
        if name not in KINDS:
            raise BadRequest(f"there is no event {name!r}; there are {', '.join(KINDS)}")
    return frozenset(KINDS[name] for name in names) if names else None


# What an event leaves out for those who may not inspect the queue in which it happened.
PERSONAL: Final = (
    "user",
    "holder",
    "owner",
    "consumer",
    "error",
    "error_line",
    "error_size",
    "message",
)


def happened_in(record: Record) -> list[bytes]:
    """The queues in which the jobs of a record were when it happened; []: it is of none."""
    if isinstance(record, Batch):
        return record.queues
    name = getattr(record, "queue", None)
    return [name] if isinstance(name, bytes) else []


def leave_out_personal(found: dict[str, Any]) -> None:
    """Leave an event without its error, and without those who were part of it."""
    for name in PERSONAL:
        found.pop(name, None)


def _queues_of(record: Record) -> list[bytes]:
    """Those that a record concerns."""
    if isinstance(record, Batch):
        return record.queues
    name = getattr(record, "queue", None)
    if not isinstance(name, bytes):
        return []
    if isinstance(record, Move):
        return [name, record.to]
    if isinstance(record, Fail) and record.dead_queue:
        return [name, record.dead_queue.encode()]
    return [name]
