"""Compaction: copies what still lives in the oldest segments to the end, then removes them.

One pass frees one segment, and those behind it in which nothing lives:

    scan        read the parts of the segment in which something lives, off the loop, and write a
                snapshot of each job and value that is found there
    checkpoint  write snapshots of the queues, sessions, consumers, readers and uids whose only
                records are before it, then a Checkpoint: a replay may begin there
    wait        until the Checkpoint is durable
    remove      the segments before it, off the loop

It runs in steps between other turns, and can be cut off at any point: until the Checkpoint is
durable the old segments are there, and a replay that begins in them knows already what each
snapshot says. No snapshot is written while dependents of an ended job are pending, so that none
shows a job that waits for one that has ended.
"""

from __future__ import annotations

import errno
from typing import Final

from mypy_extensions import i64

from taskyard.engine import compaction
from taskyard.engine.compaction import OUT_OF_SPACE, SCAN_COST_BYTES, EntitySnapshotter
from taskyard.engine.model.job import GONE, Job
from taskyard.engine.operations.core import Core
from taskyard.engine.operations.room import MAX_STEP_BYTES, ensure_space
from taskyard.engine.records.decode import Decoder, job_id_at, kind_at, record_size_at
from taskyard.engine.records.entities import ValueSet
from taskyard.engine.records.job_lifecycle import (
    FAIL,
    FINISH,
    PUSH,
    RETRY,
    SNAPSHOT_JOB,
    SNAPSHOT_VALUE,
    VALUE,
)
from taskyard.engine.records.snapshots import ValueSnapshot
from taskyard.engine.structures.index import REGION_BYTES
from taskyard.journal.disk import Disk, File
from taskyard.journal.format import (
    FRAME_HEADER_BYTES,
    SEGMENT_HEADER_BYTES,
    BadHeader,
    Frame,
    SegmentBytes,
    frame_at,
    frame_length,
    parse_header,
    segment_name,
)
from taskyard.journal.writer import Journal

# Reading parts of old segments off the loop, for compaction


class SegmentScanRead:
    """Whole frames out of one segment: those that begin from `start` on and before `end`.

    Their checksums are checked: a snapshot gets a new one, which must not hide damage.
    """

    __slots__ = ("_base", "_directory", "_end", "_limit", "data", "frames", "start")

    def __init__(self, directory: Disk, base: i64, start: i64, end: i64, limit: i64) -> None:
        self.start = start  # position of data[0]
        self.data = b""
        self.frames: list[Frame] = []  # their offsets are in data
        self._directory = directory
        self._base = base
        self._end = end
        self._limit = limit  # end of the segment

    def run(self) -> None:
        """May run in another thread."""
        file = self._directory.view(segment_name(self._base))
        try:
            self._read(file)
        finally:
            file.close()

    def _read(self, file: File) -> None:
        salt = self._read_salt(file)
        content = SegmentBytes(self._read_range(file, self.start, self._end), 0)
        offset: i64 = 0
        while self.start + offset < self._end:
            self._read_up_to(file, content, offset + FRAME_HEADER_BYTES)
            self._read_up_to(
                file, content, offset + FRAME_HEADER_BYTES + frame_length(content.data, offset)
            )
            frame = frame_at(content, offset, salt)
            if frame is None:
                at = self.start + offset - self._base
                name = segment_name(self._base)
                raise OSError(errno.EIO, f"no intact frame stands at byte {at} of {name}")
            self.frames.append(frame)
            offset = frame.end
        self.data = content.data

    def _read_salt(self, file: File) -> i64:
        try:
            return parse_header(
                SegmentBytes(file.read_at(0, SEGMENT_HEADER_BYTES), SEGMENT_HEADER_BYTES)
            ).salt
        except BadHeader as error:
            raise OSError(errno.EIO, f"{segment_name(self._base)}: {error}") from error

    def _read_up_to(self, file: File, content: SegmentBytes, size: i64) -> None:
        """The last frame may end behind what was read."""
        have: i64 = len(content.data)
        if size > have:
            content.data += self._read_range(file, self.start + have, self.start + size)
        content.size = len(content.data)

    def _read_range(self, file: File, start: i64, end: i64) -> bytes:
        return file.read_at(start - self._base, min(end, self._limit) - start)


class BlobRead:
    """Blobs of old segments in another place than the rest of their job."""

    __slots__ = ("_directory", "_wanted", "blobs")

    def __init__(self, directory: Disk, wanted: list[tuple[int, int, int]]) -> None:
        self.blobs: dict[int, bytes] = {}  # by position
        self._directory = directory
        self._wanted = wanted  # base of the segment, position, size

    def run(self) -> None:
        """May run in another thread."""
        for base, at, size in self._wanted:
            file = self._directory.view(segment_name(base))
            try:
                blob = file.read_at(at - base, size)
            finally:
                file.close()
            if len(blob) < size:
                raise OSError(errno.EIO, f"{segment_name(base)} is shorter than it was")
            self.blobs[at] = blob


IDLE: Final = 0
SCAN: Final = 1
SNAPSHOT_ENTITIES: Final = 2
AWAIT_CHECKPOINT: Final = 3

_MIN_SPACE_BYTES: Final = 65_536  # what must be free for a step, or a part of a small segment
_SNAPSHOT_OVERHEAD_BYTES: Final = 192  # and to write one, beside its blob
_EMPTY_FRACTION: Final = 16  # one of so many bytes may live in a segment that is as good as empty


class Compactor:
    def __init__(self, core: Core, journal: Journal, target_percent: i64) -> None:
        # that the bytes on disk are kept at, of the live bytes
        self.target_percent = target_percent
        self.phase: i64 = IDLE
        self.damage = ""  # why no more is compacted
        self.passes: i64 = 0
        self.next_replay_start: i64 = 0  # where a replay begins after this pass
        self._core = core
        self._journal = journal
        self._decoder = Decoder(blobs=False)
        self._scanned: i64 = 0  # frames that begin before it were scanned
        self._next_region: i64 = 0  # the next one to scan
        self._scan_read: SegmentScanRead | None = None  # frames that are being scanned
        self._frame: i64 = 0
        self._record: i64 = 0  # of that frame
        self._at: i64 = 0  # offset of that record
        self._jobs_with_remote_blobs: dict[int, None] = {}  # jobs with a blob elsewhere
        self._remote_blobs: dict[int, bytes] = {}  # such blobs
        self._remote_blobs_read = False  # they were read
        self._reading = False
        self._entities: EntitySnapshotter | None = None  # for the checkpoint
        self._min_space: i64 = min(i64(_MIN_SPACE_BYTES), journal.settings.segment_size // 16)
        self._checkpoint_end: i64 = 0  # what must be durable before segments are removed
        # the region that was written to when the first one was checked
        self._checked_region: i64 = -1

    # When

    def used_bytes(self) -> i64:
        """Bytes that a replay has to read."""
        return self._journal.end - self._journal.replay_start

    def limit_bytes(self) -> i64:
        """The bytes at which a pass begins: early enough to stay at about the ratio."""
        slack = self._journal.settings.segment_size // 2
        return self._core.state.compacted_size() * (self.target_percent - 25) // 100 + slack

    def is_due(self) -> bool:
        """Whether a pass should begin."""
        journal = self._journal
        if self.phase != IDLE or self.damage or not self.target_percent:
            return False
        after = journal.next_base(journal.replay_start)
        if not after:
            return False
        if journal.space.push_refusal:  # any segment that can be freed is worth it, if it can
            live = self._live_bytes_between(journal.replay_start, after)
            return 2 * live < after - journal.replay_start and self._ensure_space(live)
        if self.used_bytes() > self.limit_bytes():
            return True
        return journal.needs_next_segment() and self._check_first_segment_empty(after)

    def _check_first_segment_empty(self, after: i64) -> bool:
        """Whether almost nothing needs a snapshot before the first segment can be removed.

        However much lives behind it: its file will do for the next segment, and to write that full
        of zeros instead takes disk time from clients that wait for their records.
        """
        journal = self._journal
        zone = journal.end // REGION_BYTES
        if zone == self._checked_region:
            return False  # too little has happened since
        self._checked_region = zone
        state = self._core.state
        most = (after - journal.replay_start) // _EMPTY_FRACTION
        rest = state.live_bytes.unplaced + SCAN_COST_BYTES * (
            len(state.queues) + len(state.tombstones.by_uid)
        )
        return rest < most and self._live_bytes_between(journal.replay_start, after) < most - rest

    def _ensure_space(self, size: i64) -> bool:
        """Whether there is space for that many bytes of snapshots: on a full disk, finishing work
        goes before.
        """
        core = self._core
        room = core.journal_space
        if not room.push_refusal:
            return ensure_space(core, size)
        kept = self._journal.settings.segment_size // 4
        return core.records.size() + size + MAX_STEP_BYTES <= room.free_bytes - kept

    def pace_percent(self) -> i64:
        """Return how many bytes to write for 100 new ones: the more, the further it is behind."""
        live = max(self._core.state.compacted_size(), self._journal.settings.segment_size)
        over = max(i64(0), self.used_bytes() - self.limit_bytes())
        return 100 + min(i64(700), 600 * over // live)

    def begin_pass(self) -> None:
        journal = self._journal
        base = journal.replay_start
        target = journal.next_base(base)
        while True:
            after = journal.next_base(target)
            if not after or self._live_bytes_between(target, after):
                break
            target = after
        self.next_replay_start = target
        self.phase = SCAN
        self._scanned = base
        self._next_region = base // REGION_BYTES
        self._scan_read = None

    def _live_bytes_between(self, start: i64, end: i64) -> i64:
        """How many bytes live there at most."""
        weights = self._core.state.live_bytes
        live: i64 = 0
        zone = start // REGION_BYTES
        while zone <= end // REGION_BYTES:
            live += weights.bytes_in_region_of(zone * REGION_BYTES)
            zone += 1
        return live

    # Work off the loop

    def next_segment_read(self) -> SegmentScanRead | None:
        """Return a read that the pass needs to continue: run it, then call `on_segment_read`."""
        if (
            self.phase != SCAN
            or self._reading
            or self._scan_read is not None
            or self._jobs_with_remote_blobs
        ):
            return None
        if not self._ensure_space(self._min_space):
            return None
        read = self._next_scan_read()
        if read is not None:
            self._reading = True
        elif not self._remote_blobs_read:
            self._begin_entities()
        return read

    def on_segment_read(self, read: SegmentScanRead, error: str) -> None:
        self._reading = False
        if error:
            self._stop_compaction(error)
            return
        self._scan_read = read
        self._frame = 0
        self._record = 0
        if read.frames:
            self._at = read.frames[0].body
            self._scanned = read.start + read.frames[-1].end

    def next_blob_read(self) -> BlobRead | None:
        """The same for blobs in another place than the rest of their job."""
        if (
            self.phase != SCAN
            or self._reading
            or self._scan_read is not None
            or not self._jobs_with_remote_blobs
        ):
            return None
        if self._remote_blobs_read or not self._ensure_space(self._min_space):
            return None
        wanted: list[tuple[int, int, int]] = []
        for id in self._jobs_with_remote_blobs:
            job = self._core.state.live_job(id)
            if job is not None:
                for at, size in compaction.ranges_to_move(
                    job, compaction.blobs_to_move(job, self.next_replay_start)
                ):
                    wanted.append((self._journal.base_of(at), at, size))
        self._reading = True
        return BlobRead(self._journal.directory, wanted)

    def on_blobs_read(self, read: BlobRead, error: str) -> None:
        self._reading = False
        if error:
            self._stop_compaction(error)
        else:
            self._remote_blobs = read.blobs
            self._remote_blobs_read = True

    def _stop_compaction(self, error: str) -> None:
        self.phase = IDLE
        self.damage = error
        self._jobs_with_remote_blobs = {}
        self._remote_blobs = {}
        self._remote_blobs_read = False

    def _next_scan_read(self) -> SegmentScanRead | None:
        """The next part of the dying segments in which something lives."""
        journal = self._journal
        weights = self._core.state.live_bytes
        last = self.next_replay_start // REGION_BYTES
        while self._next_region <= last:
            zone = self._next_region
            start = max(journal.frames.first_frame_start(zone), self._scanned)
            if start < self.next_replay_start and weights.bytes_in_region_of(zone * REGION_BYTES):
                base = journal.base_of(start)
                if start < base + SEGMENT_HEADER_BYTES:
                    start = base + SEGMENT_HEADER_BYTES
                limit = journal.next_base(base)
                end = min((zone + 1) * REGION_BYTES, limit)
                if end < (zone + 1) * REGION_BYTES and limit < self.next_replay_start:
                    self._scanned = limit  # the region continues in the next segment
                else:
                    self._next_region += 1
                if start < end:
                    return SegmentScanRead(journal.directory, base, start, end, limit)
                if start < limit:  # a frame that only reaches into the region with its end
                    return SegmentScanRead(journal.directory, base, start, start + 1, limit)
            else:
                self._next_region += 1
        return None

    # Steps

    def can_step(self) -> bool:
        """Whether `step` would do something now."""
        if self.phase == SCAN:
            return self._scan_read is not None or self._remote_blobs_read
        return self.phase == SNAPSHOT_ENTITIES

    def run_step(self, now: i64, budget: i64) -> i64:
        """Work for about so many bytes; returns how many there were."""
        spent: i64 = 0
        core = self._core
        while spent < budget and not core.state.pending_dependents and not core.read_only_reason:
            if not self._ensure_space(self._min_space):
                break
            if self.phase == SCAN and self._scan_read is not None:
                spent += self._scan_frame(self._scan_read, now)
            elif self.phase == SCAN and self._remote_blobs_read:
                spent += self._snapshot_jobs_with_remote_blobs(now)
            elif self._entities is not None:
                closed = self._snapshot_entity_or_end(self._entities, now)
                if not closed:
                    break
                spent += closed
            else:
                break
        return spent

    def _scan_frame(self, chunk: SegmentScanRead, now: i64) -> i64:
        """Scan the records of one frame, or the remainder of them."""
        if self._frame >= len(chunk.frames):
            self._scan_read = None
            return 1
        frame = chunk.frames[self._frame]
        data = chunk.data
        spent: i64 = 0
        while self._record < frame.count:
            at = self._at
            kind = kind_at(data, at)
            self._at = at + record_size_at(data, at)
            self._record += 1
            spent += SCAN_COST_BYTES
            if kind in (PUSH, SNAPSHOT_JOB, FINISH, RETRY, FAIL):
                job = self._core.state.jobs.get(job_id_at(data, at))
                if job is not None and job.state != GONE:
                    spent += self._snapshot_job(job, chunk, now)
            elif kind in (VALUE, SNAPSHOT_VALUE):
                spent += self._snapshot_value(chunk, at, now)
            if spent > 65_536:
                return spent
        self._frame += 1
        self._record = 0
        if self._frame < len(chunk.frames):
            self._at = chunk.frames[self._frame].body
        return spent

    def _snapshot_job(self, job: Job, chunk: SegmentScanRead, now: i64) -> i64:
        moves = compaction.blobs_to_move(job, self.next_replay_start)
        if not moves:
            return 0
        if job.extras is None:  # as most are: nothing but a payload moves
            start = job.payload_at - chunk.start
            end = start + job.payload_size
            if start >= 0 and end <= len(chunk.data) and self._ensure_space(job.payload_size):
                compaction.snapshot_job(self._core, job, moves, chunk.data[start:end], now)
                return _SNAPSHOT_OVERHEAD_BYTES + job.payload_size
        parts: list[bytes] = []
        size: i64 = 0
        for at, length in compaction.ranges_to_move(job, moves):
            start = i64(at) - chunk.start
            if start >= 0 and start + length <= len(chunk.data):
                parts.append(chunk.data[start : start + length])
            else:
                found = self._journal.read_blob(at, length)
                if found is None:
                    self._jobs_with_remote_blobs[job.id] = None
                    return 0
                parts.append(found)
            size += length
        if not self._ensure_space(size):
            self._jobs_with_remote_blobs[job.id] = None
            return 0
        blob = parts[0] if len(parts) == 1 else b"".join(parts)
        compaction.snapshot_job(self._core, job, moves, blob, now)
        return _SNAPSHOT_OVERHEAD_BYTES + size

    def _snapshot_jobs_with_remote_blobs(self, now: i64) -> i64:
        """Write snapshots of the jobs whose blobs had to be read, if they still exist."""
        spent: i64 = SCAN_COST_BYTES
        blobs = self._remote_blobs
        again: dict[int, None] = {}
        for id in self._jobs_with_remote_blobs:
            job = self._core.state.live_job(id)
            if job is None:
                continue
            moves = compaction.blobs_to_move(job, self.next_replay_start)
            if not moves:
                continue
            parts = [blobs.get(at) for at, _ in compaction.ranges_to_move(job, moves)]
            whole = [part for part in parts if part is not None]
            if len(whole) < len(parts):
                again[id] = None  # it has got another result or error meanwhile
                continue
            blob = b"".join(whole)
            if not self._ensure_space(len(blob)):
                again[id] = None
                continue
            compaction.snapshot_job(self._core, job, moves, blob, now)
            spent += _SNAPSHOT_OVERHEAD_BYTES + len(blob)
        self._jobs_with_remote_blobs = again
        self._remote_blobs = {}
        self._remote_blobs_read = False
        return spent

    def _snapshot_value(self, chunk: SegmentScanRead, at: i64, now: i64) -> i64:
        record = self._decoder.read(chunk.data, at, chunk.start)
        assert isinstance(record, (ValueSet, ValueSnapshot))
        value = self._core.state.values.get(record.key)
        if (
            value is None
            or value.value_at != record.blob_at
            or value.value_at > self.next_replay_start
        ):
            return 0
        start = value.value_at - chunk.start
        compaction.snapshot_value(self._core, value, chunk.data[start : start + value.size], now)
        return _SNAPSHOT_OVERHEAD_BYTES + value.size

    # Checkpoint

    def _begin_entities(self) -> None:
        first_seq = self._journal.first_seq_of(self.next_replay_start)
        self._entities = EntitySnapshotter(
            self._core, self.next_replay_start, first_seq, self._ensure_space
        )
        self.phase = SNAPSHOT_ENTITIES

    def _snapshot_entity_or_end(self, remainder: EntitySnapshotter, now: i64) -> i64:
        """Write a snapshot of one more entity, or end; 0: there is no space for it."""
        spent = remainder.snapshot_next(now)
        if spent == OUT_OF_SPACE:
            return 0
        if not spent:
            compaction.write_checkpoint(self._core, self.next_replay_start, now)
            self._checkpoint_end = self._core.records.end_position()
            self._entities = None
            self.phase = AWAIT_CHECKPOINT
            return SCAN_COST_BYTES
        return spent

    # The end of a pass

    def is_checkpoint_durable(self) -> bool:
        """Whether the checkpoint is durable, so that what is before it can be removed."""
        return self.phase == AWAIT_CHECKPOINT and self._journal.durable >= self._checkpoint_end

    def finish_pass(self) -> None:
        """A replay of the journal begins at the checkpoint from now on."""
        self._journal.advance_replay_start(self.next_replay_start)
        self._core.state.live_bytes.forget_before(self.next_replay_start)
        self.passes += 1
        self.phase = IDLE
