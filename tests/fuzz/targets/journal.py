"""Whole journals out of fuzzed segments: a start, or an error that is declared; and repairs hold.

An input is a list of steps, each of them a byte, and a block where it needs one. Checksums, salts,
sequence numbers and sizes are put right, so that it is what they protect that is tried.
"""

from __future__ import annotations

import json
from random import Random

from engine.records.test_records import EXAMPLES, encode
from fuzz.inputs import Choices
from journal.building import Running
from support.replaying import persistent

from taskyard.engine.model.state import EngineSettings, State
from taskyard.engine.records.decode import SIZE_PREFIX_BYTES
from taskyard.engine.records.describe import describe
from taskyard.journal.errors import JournalCorrupt, JournalError, JournalTooNew
from taskyard.journal.format import (
    SEGMENT_HEADER_BYTES,
    SegmentBytes,
    SegmentHeader,
    frame_at,
    frame_header,
    parse_header,
    segment_name,
    segment_names,
)
from taskyard.journal.identity import (
    JOURNAL,
    Identity,
    JournalExtent,
    JournalSettings,
    load_identity,
    save_identity,
)
from taskyard.journal.memory import MemoryDisk
from taskyard.journal.opening import open_journal
from taskyard.journal.reader import JournalChunk, JournalReader
from taskyard.journal.recovery import Recovery
from taskyard.journal.repair import JournalStats, execute_repair, plan_repair

TIMELINE = b"t" * 16
NOW = 1_700_000_000_000_000
SEGMENT, FRAME, RECORD, GARBAGE, DAMAGE, REACH, SYNCED, ZEROS = range(8)
LONGEST = 4096


def step(kind: int, body: bytes = b"") -> bytes:
    return bytes([kind]) + len(body).to_bytes(2, "little") + body


class Builder:
    """The segments that the steps of an input say."""

    def __init__(self) -> None:
        self.disk = MemoryDisk()
        self.directory = self.disk.directory(JOURNAL)
        self.identity = Identity(TIMELINE, b"s" * 16, NOW, [])
        self._random = Random(1)
        self._base = 0
        self._seq = 1
        self._durable = 0
        self._records: list[bytes] = []
        self._data = bytearray()
        self._salt = 0

    def build(self, data: bytes) -> MemoryDisk:
        choices = Choices(data)
        self._begin(b"")
        while choices and self._base + len(self._data) < 1 << 17:
            self._step(choices.below(8), choices.block())
        self._end_segment()
        save_identity(self.disk, self.identity)
        return self.disk

    def _step(self, kind: int, body: bytes) -> None:
        if kind == RECORD:
            self._records.append(len(body).to_bytes(SIZE_PREFIX_BYTES, "little") + body)
            return
        self._end_frame()
        if kind == SEGMENT:
            self._end_segment()
            self._begin(body)
        elif kind == GARBAGE:
            self._data += body
        elif kind == DAMAGE and len(body) >= 3:
            at = int.from_bytes(body[:2], "little") % max(len(self._data), 1)
            for offset, byte in enumerate(body[2:]):
                if at + offset < len(self._data):
                    self._data[at + offset] ^= byte
        elif kind == REACH and body:
            self.identity.extent = JournalExtent(int.from_bytes(body[:3], "little"), body[0], 1, 5)
        elif kind == SYNCED:
            self._durable = self._seq - 1
        elif kind == ZEROS and body:
            self._data += bytes(body[0])

    def _begin(self, body: bytes) -> None:
        """A new segment; its header may say where replay begins, or that its file was used."""
        choices = Choices(body)
        flags = choices.byte()
        self._salt = self._random.getrandbits(62) | 1
        header = SegmentHeader(
            TIMELINE,
            self._base,
            self._seq + (choices.byte() if flags & 2 else 0),
            self._salt,
            NOW,
            self._durable,
            min(choices.short() << 3, self._base) if flags & 4 else 0,
            recycled=flags & 1 != 0,
        )
        self._data = bytearray(header.encode())

    def _end_frame(self) -> None:
        if self._records:
            body = b"".join(self._records)
            count = len(self._records)
            self._data += frame_header(body, self._seq, count, self._salt, self._durable) + body
            self._seq += count
            self._records = []

    def _end_segment(self) -> None:
        self._end_frame()
        self.directory.put(segment_name(self._base), bytes(self._data))
        self._base += len(self._data)


def steps_of(disk: MemoryDisk) -> bytes:
    """The input that builds a journal like this one."""
    directory = disk.directory(JOURNAL)
    out = bytearray()
    for number, name in enumerate(segment_names(directory)):
        data = directory.content(name)
        content = SegmentBytes(data, len(data))
        header = parse_header(content)
        if number:
            out += step(SEGMENT, b"\4" + int(header.recovery_base >> 3).to_bytes(2, "little"))
        at = SEGMENT_HEADER_BYTES
        while (frame := frame_at(content, at, header.salt)) is not None:
            where = frame.body
            while where < frame.end:
                size = SIZE_PREFIX_BYTES + int.from_bytes(
                    data[where : where + SIZE_PREFIX_BYTES], "little"
                )
                out += step(RECORD, data[where + SIZE_PREFIX_BYTES : where + size])
                where += size
            out += step(SYNCED)
            at = frame.end
    return bytes(out)


def _lived() -> bytes:
    disk = MemoryDisk()
    running = Running(disk, segment_size=1024)
    jobs = [running.push(b"payload %d" % number) for number in range(3)]
    running.commit()
    taken = running.take()
    assert taken is not None
    running.ack(taken)
    running.commit()
    running.push(b"x" * 200, "other")
    running.commit()
    running.journal.close()
    again = Running(disk, segment_size=1024, now=NOW + 5)
    again.push(b"y")
    again.commit()
    again.journal.close()
    assert jobs
    return steps_of(disk)


LIVED = _lived()
SEEDS = [
    b"",
    LIVED,
    LIVED + step(DAMAGE, b"\xa0\0\xff"),
    LIVED[: len(LIVED) // 2] + step(DAMAGE, b"\x80\0\x01") + LIVED[len(LIVED) // 2 :],
    LIVED + step(GARBAGE, b"torn" * 20),
    LIVED + step(ZEROS, b"\xff"),
    LIVED + step(REACH, b"\xff\xff\0"),
    *(step(RECORD, encode(record)[SIZE_PREFIX_BYTES:]) for record in EXAMPLES),
    *(LIVED + step(RECORD, encode(record)[SIZE_PREFIX_BYTES:]) for record in EXAMPLES),
]
WORDS = [step(kind) for kind in range(8)]


def fuzz(data: bytes) -> None:
    disk = Builder().build(data)
    _read(disk)
    try:
        _recover(disk)
    except JournalCorrupt:
        try:
            _repair(disk)
        except JournalTooNew:
            return  # behind the damage: nobody but a newer version can judge it
    except JournalError:
        return
    _start(disk)


def _recover(disk: MemoryDisk) -> Recovery:
    """As `taskyard journal check` does it."""
    identity = load_identity(disk)
    assert identity is not None
    directory = disk.directory(JOURNAL)
    recovery = Recovery(directory, identity, State(EngineSettings()))
    recovery.run()
    JournalStats(directory, recovery, []).collect()
    return recovery


def _repair(disk: MemoryDisk) -> None:
    """What repairs leave is intact; where several things are wrong, one may not be enough."""
    segments = len(segment_names(disk.directory(JOURNAL)))
    for number in range(segments + 3):  # each takes at least one of them away
        plan = plan_repair(disk)
        assert plan.is_needed() or number
        if not plan.is_needed():
            return
        execute_repair(disk, plan, f"damaged-{number}", Random(number).randbytes, NOW)
    raise AssertionError("it is still damaged")


def _start(disk: MemoryDisk) -> None:
    """A start, and another one that finds just what the first one had."""
    first = State(EngineSettings())
    settings = JournalSettings(1 << 16, 0)
    journal, _ = open_journal(disk, settings, first, NOW, Random(3).randbytes)
    journal.close()
    again = _recover(disk)
    here, there = persistent(first), persistent(again.state)
    for name, value in here.items():
        assert there[name] == value, f"{name} differs"


def _read(disk: MemoryDisk) -> None:
    """As readers of events do it, which apply nothing."""
    directory = disk.directory(JOURNAL)
    for carries in (False, True):
        try:
            for entry in JournalReader(directory, blobs=True).read(0, carries):
                json.dumps(describe(entry.record, True))
        except JournalError:
            pass
    for job in (0, 1):
        portion = JournalChunk(directory, 1, 1 << 40, 50, None, job)
        portion.run()
        assert portion.next_seq >= 1
