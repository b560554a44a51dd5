"""Records that are alike are encoded from a template: their bytes do not show it."""

import sys
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.effort import effort

from taskyard.engine.model.job import API, MASENKO, NewJob, Notify, Origin, Policy
from taskyard.engine.records import job_lifecycle as r
from taskyard.engine.records.entities import ValueSet
from taskyard.engine.records.log import RecordBuffer

BASE = 4096
NEXT_BASE = 1 << 33  # places need more than 32 bits

Fields = dict[str, Any]

# Of each kind of record that can be alike: what it says beside its job and its blob, and what else
# that may be. The first of each is the plain one, and some are equal without being the same.
COMMON: dict[str, tuple[Any, ...]] = {
    "time": (1000, 1001),
    "origin": (Origin(API, "ann", "worker"), Origin(API, "ann", "worker"), Origin(MASENKO, "", "")),
    "queue": (b"queue", b"".join([b"que", b"ue"]), b"other"),
}
PUSH: dict[str, tuple[Any, ...]] = COMMON | {
    "policy": (Policy(max_fails=3), Policy(max_fails=3), Policy(max_fails=4, dead_queue="dead")),
    "name": ("task", "".join(["ta", "sk"]), "work"),
    "priority": (0, 1, -1),
    "run_at": (0, 2000, 2001),
    "content": (0, 1),
    "front": (False, True),
    "ttl_ms": (0, 5, 6),
    "uid": (None, b"u" * 16, b"v" * 16),
    "key": (None, b"key", b"yek"),
    "notify": (None, Notify(1, 2, 3), Notify(1, 2, 4)),
    "limit_key": (None, b"limit", b"other"),
    "blockers": (None, [], [1], [1, 2]),
}
LEASE: dict[str, tuple[Any, ...]] = COMMON | {
    "owner": (1, 2),
    "bound": (False, True),
    "epoch": (1, 2),
    "attempt": (1, 2),
    "deadline": (0, 3000, 3001),
}
FINISH: dict[str, tuple[Any, ...]] = COMMON | {
    "attempt": (1, 2),
    "way": (r.ACKED, r.COMPLETED),
    "kept_until": (0, 4000, 4001),
    "uid": (None, b"u" * 16, b"v" * 16),
}
KINDS = {r.PushRecord: PUSH, r.LeaseRecord: LEASE, r.FinishRecord: FINISH}
OF_THE_RECORD = ("time", "origin", "queue", "blockers")  # and not of the job that is pushed

ids = st.sampled_from((1, 2, 255, 256, 2**40, 2**63 - 1))
blobs = st.sampled_from((b"", b"", b"x", b"yy", b"x" * 300))


class Writer:
    """Makes records; some pushes share one NewJob, whose payload is swapped as push_all does."""

    def __init__(self) -> None:
        self._shared: dict[tuple[Any, ...], NewJob] = {}

    def make(self, kind: type, fields: Fields, id: int, blob: bytes, shares: bool) -> r.Record:
        if kind is r.PushRecord:
            return self._push(fields, id, blob, shares)
        more = {name: each for name, each in fields.items() if name not in ("time", "origin")}
        if kind is r.FinishRecord:
            more["result"] = blob
        record = kind(fields["time"], fields["origin"], id, **more)
        assert isinstance(record, r.Record)
        return record

    def _push(self, fields: Fields, id: int, payload: bytes, shares: bool) -> r.PushRecord:
        wish = {name: each for name, each in fields.items() if name not in OF_THE_RECORD}
        new = NewJob("queue", payload=payload, **wish)
        if shares:
            new = self._shared.setdefault(tuple(wish.values()), new)
            new.payload = payload
        queue, blockers = fields["queue"], fields["blockers"]
        return r.PushRecord(fields["time"], fields["origin"], id, queue, new, blockers)


class Checked:
    """A log, beside which each record is also written by one that has seen no other."""

    def __init__(self) -> None:
        self.log = RecordBuffer(7, BASE)
        self._alone = b""
        self._kept: list[tuple[int, bytes]] = []

    def append(self, record: r.Record) -> None:
        log = self.log
        alone = RecordBuffer(log.next_seq, log.start_position + log.size())
        log.append(record)
        found = place(record)
        alone.append(record)
        assert found == place(record)
        assert log.next_seq == alone.next_seq
        assert log.end_position() == alone.end_position()
        self._alone += alone.drain(0)
        self._kept.append((record.blob_at, record.blob))

    def take(self, next_base: int) -> None:
        """The frame is what all of them have written, and has the blobs from now on."""
        log = self.log
        base = log.start_position
        assert log.count == len(self._kept)
        for at, blob in self._kept:
            assert log.unwritten_blob(at) == (blob or None)
            assert log.unwritten_blob(at - 1) is None
        data = log.drain(next_base)
        assert data == self._alone
        for at, blob in self._kept:
            assert log.unwritten_blob(at) is None
            assert data[at - base :].startswith(blob)
        self._alone = b""
        self._kept = []


def place(record: r.Record) -> tuple[int, int, int]:
    return record.seq, record.size, record.blob_at


def plain(kind: type) -> Fields:
    return {name: values[0] for name, values in KINDS[kind].items()}


def cases() -> list[Any]:
    return [
        pytest.param(kind, name, value, id=f"{kind.__name__}-{name}-{number}")
        for kind, fields in KINDS.items()
        for name, values in fields.items()
        for number, value in enumerate(values[1:])
    ]


@pytest.mark.parametrize("shares", [False, True])
@pytest.mark.parametrize(("kind", "name", "value"), cases())
def test_a_record_that_differs_in_one_thing_is_written_as_it_is(
    kind: type, name: str, value: object, shares: bool
) -> None:
    """In the midst of others, and as the first of its own kind."""
    writer, checked = Writer(), Checked()
    alike = plain(kind)
    other = alike | {name: value}
    order = (alike, alike, alike, other, alike, alike, other, other, other, alike)
    for id, fields in enumerate(order, 1):
        checked.append(writer.make(kind, fields, id, b"blob" * id, shares))
    checked.take(NEXT_BASE)
    for id, fields in enumerate(reversed(order), 100):
        checked.append(writer.make(kind, fields, id, b"", shares))
    checked.take(2 * NEXT_BASE)


@pytest.mark.parametrize("shares", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_each_alike_record_has_its_own_job_and_blob(kind: type, shares: bool) -> None:
    writer, checked = Writer(), Checked()
    sizes = (3, 0, 0, 70_000, 1, 255, 256, 0)
    for id, size in enumerate(sizes, 2**40):
        checked.append(writer.make(kind, plain(kind), id, b"b" * size, shares))
    checked.take(NEXT_BASE)


def test_kinds_in_turn_have_a_stencil_each() -> None:
    """As of workers that take one job and finish it, and of those who push meanwhile."""
    writer, checked = Writer(), Checked()
    for id in range(1, 9):
        for kind in KINDS:
            checked.append(writer.make(kind, plain(kind), id, b"x" * id, False))
        checked.append(ValueSet(1000, COMMON["origin"][0], b"key", 0, False, b"value"))
        if id % 3 == 0:
            checked.take(NEXT_BASE * id)
    checked.take(NEXT_BASE * 9)


def test_a_frame_that_is_too_large_to_use_its_buffer_again() -> None:
    writer, checked = Writer(), Checked()
    for id in range(1, 8):
        checked.append(writer.make(r.PushRecord, plain(r.PushRecord), id, b"x" * 1_000_000, True))
    checked.take(NEXT_BASE)
    for id in range(8, 11):
        checked.append(writer.make(r.PushRecord, plain(r.PushRecord), id, b"x", True))
    checked.take(2 * NEXT_BASE)


@pytest.mark.parametrize("kind", [*KINDS, ValueSet])
def test_no_blob_is_kept_when_it_is_written(kind: type) -> None:
    blob = b"x" * 1000
    unused = sys.getrefcount(blob)
    log = RecordBuffer(1, BASE)
    if kind is ValueSet:
        log.append(ValueSet(1000, COMMON["origin"][0], b"key", 0, False, blob))
    else:
        writer = Writer()
        for id in (1, 2):
            log.append(writer.make(kind, plain(kind), id, blob, False))
        del writer
    assert kind is r.LeaseRecord or sys.getrefcount(blob) > unused
    log.drain(NEXT_BASE)
    assert sys.getrefcount(blob) == unused


@st.composite
def few_alike(draw: st.DrawFn) -> list[tuple[type, Fields]]:
    """One record of some kind, and others that differ from it in one thing each, or are new."""
    found: list[tuple[type, Fields]] = []
    for _ in range(draw(st.integers(1, 2))):
        kind = draw(st.sampled_from(list(KINDS)))
        fields = plain(kind)
        choices = KINDS[kind]
        for name in draw(st.lists(st.sampled_from(list(choices)), max_size=3)):
            fields[name] = draw(st.sampled_from(choices[name]))
        found.append((kind, fields))
        found += [
            (kind, fields | {name: draw(st.sampled_from(choices[name]))})
            for name in draw(st.lists(st.sampled_from(list(choices)), max_size=2))
        ]
    return found


@given(few_alike(), st.data())
@settings(max_examples=effort(400, 60))
def test_any_order_of_records_is_written_as_each_of_them_alone(
    few: list[tuple[type, Fields]], data: st.DataObject
) -> None:
    writer, checked = Writer(), Checked()
    steps = st.tuples(st.sampled_from((*few, None)), ids, blobs, st.booleans())
    base = BASE
    for which, id, blob, shares in data.draw(st.lists(steps, max_size=25)):
        if which is None:
            base += checked.log.size() + 40
            checked.take(base)
        else:
            checked.append(writer.make(*which, id, blob, shares))
    checked.take(base + NEXT_BASE)
