"""Compaction: the oldest segments go, once what still lives in them has been written forward.

One pass frees one segment, and those behind it in which nothing lives:

    scan    read the parts of the segment in which something lives, off the loop, and carry each job
            and value that is found there
    close   carry the queues, sessions, consumers, readers and uids that are only told of before
            the new base, then say in a Base record that a replay may begin there
    wait    until that record is durable
    drop    remove the segments before it, off the loop

It is done in portions between other turns, and can be cut off at any point: until the Base record
is durable the old segments are there, and a replay that begins in them finds every carry to say
what it knows. Nothing is carried while dependents of an ended job are still to be told, so that
no carry shows a job waiting for one that has ended.
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64

from taskyard.engine import compaction as carrying
from taskyard.engine.model.job import GONE, Job
from taskyard.engine.operations.core import Core
from taskyard.engine.operations.room import STEP_ROOM, fits
from taskyard.engine.records.carry_records import CarryValue
from taskyard.engine.records.decode import Decoder, job_id_at, kind_at, size_at
from taskyard.engine.records.job_lifecycle import (
    CARRY_JOB,
    CARRY_VALUE,
    FAIL,
    FINISH,
    PUSH,
    RETRY,
    VALUE,
)
from taskyard.engine.records.side_records import ValueSet
from taskyard.engine.remainder import LOOK, NO_ROOM, Remainder
from taskyard.engine.structures.weights import ZONE
from taskyard.journal.head_read import BlobsRead, HeadRead
from taskyard.journal.journal import Journal
from taskyard.journal.segment import SEGMENT_HEADER

IDLE: Final = 0
SCAN: Final = 1
CLOSE: Final = 2
WAIT: Final = 3

_LEAST_ROOM: Final = 65_536  # what must be free for a portion, or a part of a small segment
_CARRY: Final = 192  # and to write one, beside its blob
_EMPTY: Final = 16  # one of so many bytes may live in a segment that is as good as empty


class Compactor:
    def __init__(self, core: Core, journal: Journal, percent: i64) -> None:
        self.percent = percent  # that the bytes on disk are kept at, of the live bytes
        self.phase: i64 = IDLE
        self.damage = ""  # why no more is compacted
        self.passes: i64 = 0
        self.target: i64 = 0  # the base of the journal after this pass
        self._core = core
        self._journal = journal
        self._decoder = Decoder(blobs=False)
        self._scanned: i64 = 0  # frames that begin before it were looked at
        self._zone: i64 = 0  # the next one to look into
        self._chunk: HeadRead | None = None  # frames that are being looked at
        self._frame: i64 = 0
        self._record: i64 = 0  # of that frame
        self._at: i64 = 0  # offset of that record
        self._late: dict[int, None] = {}  # jobs with a blob elsewhere
        self._blobs: dict[int, bytes] = {}  # such blobs
        self._has_blobs = False  # they were read
        self._reading = False
        self._remainder: Remainder | None = None  # while closing
        self._least_room: i64 = min(i64(_LEAST_ROOM), journal.settings.segment_size // 16)
        self._mark: i64 = 0  # what must be durable before segments are dropped
        self._looked: i64 = -1  # the zone that was written to when the first one was weighed

    # When

    def used(self) -> i64:
        """Bytes that a replay has to read."""
        return self._journal.end - self._journal.base

    def limit(self) -> i64:
        """The bytes at which a pass begins: early enough to stay at about the ratio."""
        slack = self._journal.settings.segment_size // 2
        return self._core.state.weight() * (self.percent - 25) // 100 + slack

    def is_due(self) -> bool:
        """Whether a pass should begin."""
        journal = self._journal
        if self.phase != IDLE or self.damage or not self.percent:
            return False
        after = journal.next_base(journal.base)
        if not after:
            return False
        if journal.room.refusing:  # any segment that can be freed is worth it, if it can
            live = self._live_between(journal.base, after)
            return 2 * live < after - journal.base and self._has_room(live)
        if self.used() > self.limit():
            return True
        return journal.wants_spare() and self._is_first_empty(after)

    def _is_first_empty(self, after: i64) -> bool:
        """Whether almost nothing need be carried for the first segment to go.

        However much lives behind it: its file will do for the next segment, and to write that
        full of zeros instead takes the disk from those who wait for their records.
        """
        journal = self._journal
        zone = journal.end // ZONE
        if zone == self._looked:
            return False  # too little has happened since
        self._looked = zone
        state = self._core.state
        most = (after - journal.base) // _EMPTY
        rest = state.weights.loose + LOOK * (len(state.queues) + len(state.tombstones.stones))
        return rest < most and self._live_between(journal.base, after) < most - rest

    def _has_room(self, size: i64) -> bool:
        """Whether that much may be carried: on a full disk, finishing work goes before."""
        core = self._core
        room = core.room
        if not room.refusing:
            return fits(core, size)
        kept = self._journal.settings.segment_size // 4
        return core.log.size() + size + STEP_ROOM <= room.free - kept

    def pace(self) -> i64:
        """Percent of the new bytes to carry: the more, the further it is behind."""
        live = max(self._core.state.weight(), self._journal.settings.segment_size)
        over = max(i64(0), self.used() - self.limit())
        return 100 + min(i64(700), 600 * over // live)

    def begin(self) -> None:
        journal = self._journal
        base = journal.base
        target = journal.next_base(base)
        while True:
            after = journal.next_base(target)
            if not after or self._live_between(target, after):
                break
            target = after
        self.target = target
        self.phase = SCAN
        self._scanned = base
        self._zone = base // ZONE
        self._chunk = None

    def _live_between(self, start: i64, end: i64) -> i64:
        """How many bytes live there at most."""
        weights = self._core.state.weights
        live: i64 = 0
        zone = start // ZONE
        while zone <= end // ZONE:
            live += weights.in_zone_of(zone * ZONE)
            zone += 1
        return live

    # Work off the loop

    def next_read(self) -> HeadRead | None:
        """Something to be read before the pass can go on: run it, then give it to `loaded`."""
        if self.phase != SCAN or self._reading or self._chunk is not None or self._late:
            return None
        if not self._has_room(self._least_room):
            return None
        read = self._next_part()
        if read is not None:
            self._reading = True
        elif not self._has_blobs:
            self._begin_closing()
        return read

    def loaded(self, read: HeadRead, error: str) -> None:
        self._reading = False
        if error:
            self._give_up(error)
            return
        self._chunk = read
        self._frame = 0
        self._record = 0
        if read.frames:
            self._at = read.frames[0].body
            self._scanned = read.start + read.frames[-1].end

    def late_read(self) -> BlobsRead | None:
        """The same for blobs that are not where the rest of their job is."""
        if self.phase != SCAN or self._reading or self._chunk is not None or not self._late:
            return None
        if self._has_blobs or not self._has_room(self._least_room):
            return None
        wanted: list[tuple[int, int, int]] = []
        for id in self._late:
            job = self._core.state.live(id)
            if job is not None:
                for at, size in carrying.job_blobs(job, carrying.job_moves(job, self.target)):
                    wanted.append((self._journal.base_of(at), at, size))
        self._reading = True
        return BlobsRead(self._journal.directory, wanted)

    def late_loaded(self, read: BlobsRead, error: str) -> None:
        self._reading = False
        if error:
            self._give_up(error)
        else:
            self._blobs = read.blobs
            self._has_blobs = True

    def _give_up(self, error: str) -> None:
        self.phase = IDLE
        self.damage = error
        self._late = {}
        self._blobs = {}
        self._has_blobs = False

    def _next_part(self) -> HeadRead | None:
        """The next part of the dying segments in which something lives."""
        journal = self._journal
        weights = self._core.state.weights
        last = self.target // ZONE
        while self._zone <= last:
            zone = self._zone
            start = max(journal.frames.start(zone), self._scanned)
            if start < self.target and weights.in_zone_of(zone * ZONE):
                base = journal.base_of(start)
                if start < base + SEGMENT_HEADER:
                    start = base + SEGMENT_HEADER
                limit = journal.next_base(base)
                end = min((zone + 1) * ZONE, limit)
                if end < (zone + 1) * ZONE and limit < self.target:
                    self._scanned = limit  # the zone goes on in the next segment
                else:
                    self._zone += 1
                if start < end:
                    return HeadRead(journal.directory, base, start, end, limit)
                if start < limit:  # a frame that only touches the zone with its end
                    return HeadRead(journal.directory, base, start, start + 1, limit)
            else:
                self._zone += 1
        return None

    # Portions

    def can_step(self) -> bool:
        """Whether `step` would do something now."""
        if self.phase == SCAN:
            return self._chunk is not None or self._has_blobs
        return self.phase == CLOSE

    def step(self, now: i64, budget: i64) -> i64:
        """Go on for about so many bytes; gives how many it were."""
        spent: i64 = 0
        core = self._core
        while spent < budget and not core.state.followups and not core.read_only:
            if not self._has_room(self._least_room):
                break
            if self.phase == SCAN and self._chunk is not None:
                spent += self._look(self._chunk, now)
            elif self.phase == SCAN and self._has_blobs:
                spent += self._carry_late(now)
            elif self._remainder is not None:
                closed = self._close(self._remainder, now)
                if not closed:
                    break
                spent += closed
            else:
                break
        return spent

    def _look(self, chunk: HeadRead, now: i64) -> i64:
        """Look at the records of one frame, or at the rest of them."""
        if self._frame >= len(chunk.frames):
            self._chunk = None
            return 1
        frame = chunk.frames[self._frame]
        data = chunk.data
        spent: i64 = 0
        while self._record < frame.count:
            at = self._at
            kind = kind_at(data, at)
            self._at = at + size_at(data, at)
            self._record += 1
            spent += LOOK
            if kind in (PUSH, CARRY_JOB, FINISH, RETRY, FAIL):
                job = self._core.state.jobs.get(job_id_at(data, at))
                if job is not None and job.state != GONE:
                    spent += self._carry(job, chunk, now)
            elif kind in (VALUE, CARRY_VALUE):
                spent += self._carry_value(chunk, at, now)
            if spent > 65_536:
                return spent
        self._frame += 1
        self._record = 0
        if self._frame < len(chunk.frames):
            self._at = chunk.frames[self._frame].body
        return spent

    def _carry(self, job: Job, chunk: HeadRead, now: i64) -> i64:
        moves = carrying.job_moves(job, self.target)
        if not moves:
            return 0
        if job.extra is None:  # as most are: nothing but a payload moves
            start = job.payload_at - chunk.start
            end = start + job.payload_size
            if start >= 0 and end <= len(chunk.data) and self._has_room(job.payload_size):
                carrying.carry_job(self._core, job, moves, chunk.data[start:end], now)
                return _CARRY + job.payload_size
        parts: list[bytes] = []
        size: i64 = 0
        for at, length in carrying.job_blobs(job, moves):
            start = i64(at) - chunk.start
            if start >= 0 and start + length <= len(chunk.data):
                parts.append(chunk.data[start : start + length])
            else:
                found = self._journal.read(at, length)
                if found is None:
                    self._late[job.id] = None
                    return 0
                parts.append(found)
            size += length
        if not self._has_room(size):
            self._late[job.id] = None
            return 0
        blob = parts[0] if len(parts) == 1 else b"".join(parts)
        carrying.carry_job(self._core, job, moves, blob, now)
        return _CARRY + size

    def _carry_late(self, now: i64) -> i64:
        """Carry the jobs whose blobs had to be read, those that are left of them."""
        spent: i64 = LOOK
        blobs = self._blobs
        again: dict[int, None] = {}
        for id in self._late:
            job = self._core.state.live(id)
            if job is None:
                continue
            moves = carrying.job_moves(job, self.target)
            if not moves:
                continue
            parts = [blobs.get(at) for at, _ in carrying.job_blobs(job, moves)]
            whole = [part for part in parts if part is not None]
            if len(whole) < len(parts):
                again[id] = None  # it has got another result or error meanwhile
                continue
            blob = b"".join(whole)
            if not self._has_room(len(blob)):
                again[id] = None
                continue
            carrying.carry_job(self._core, job, moves, blob, now)
            spent += _CARRY + len(blob)
        self._late = again
        self._blobs = {}
        self._has_blobs = False
        return spent

    def _carry_value(self, chunk: HeadRead, at: i64, now: i64) -> i64:
        record = self._decoder.read(chunk.data, at, chunk.start)
        assert isinstance(record, (ValueSet, CarryValue))
        value = self._core.state.values.get(record.key)
        if value is None or value.at != record.blob_at or value.at > self.target:
            return 0
        start = value.at - chunk.start
        carrying.carry_value(self._core, value, chunk.data[start : start + value.size], now)
        return _CARRY + value.size

    # Closing

    def _begin_closing(self) -> None:
        first_seq = self._journal.first_seq_of(self.target)
        self._remainder = Remainder(self._core, self.target, first_seq, self._has_room)
        self.phase = CLOSE

    def _close(self, remainder: Remainder, now: i64) -> i64:
        """Carry one thing more, or end; 0: there is no room for it."""
        spent = remainder.carry_one(now)
        if spent == NO_ROOM:
            return 0
        if not spent:
            carrying.close_base(self._core, self.target, now)
            self._mark = self._core.log.mark()
            self._remainder = None
            self.phase = WAIT
            return LOOK
        return spent

    # The end of a pass

    def has_closed(self) -> bool:
        """Whether the new base is durable, so that what is before it can go."""
        return self.phase == WAIT and self._journal.durable >= self._mark

    def finish(self) -> None:
        """From now on the journal begins at the new base."""
        self._journal.move_base(self.target)
        self._core.state.weights.forget_before(self.target)
        self.passes += 1
        self.phase = IDLE
