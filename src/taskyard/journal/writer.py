"""The journal as the broker uses it: write, sync, read.

Its three operations are independent: `write` puts all new records into the page cache as one frame,
a `SyncPoint` brings to disk what was written when it was taken, and blobs are read from memory or,
off the loop, from disk. Positions are those of the RecordBuffer: see format.py.

Read segments.py next for where the file of the next segment comes from, cache.py for the reads.
"""

from __future__ import annotations

import contextlib
import errno
from bisect import bisect_right
from mmap import mmap
from typing import Final

from librt.strings import read_i64_le
from mypy_extensions import i64

from taskyard.engine.operations.room import JournalSpace
from taskyard.engine.records.log import RecordBuffer
from taskyard.journal.cache import BlockCache, DiskReads, RecentFrames
from taskyard.journal.disk import Disk, File
from taskyard.journal.flush import SyncPoint, WriteFailure
from taskyard.journal.format import (
    FRAME_HEADER_BYTES,
    MAX_BODY_BYTES,
    SEGMENT_HEADER_BYTES,
    Segment,
    SegmentHeader,
    create_segment,
    frame_header,
    new_salt,
    segment_name,
)
from taskyard.journal.identity import Entropy, Identity, JournalSettings
from taskyard.journal.recovery import Recovery
from taskyard.journal.retention import RetainedSegments
from taskyard.journal.segments import (
    DRAFT,
    PAGE_BYTES,
    RECYCLED_MARK,
    SPARE,
    PrepareSegment,
    SegmentAllocator,
    reason_of,
    remove_if_exists,
)

_TIME_AT: Final = 6  # where in a record its time stands
_MIN_SEGMENT_BYTES: Final = 16_384  # one that a server starts with where there is no space for more
_MIN_MARGIN_BYTES: Final = 8192  # a few small records fit
_NO_NEXT_SEGMENT: Final = "no room for the next segment of the journal: "
_NO_SPACE: Final = "no room in the journal: "


class Journal:
    """Written by one thread. `durable` and `written` are comparable with
    `RecordBuffer.end_position()`.
    """

    def __init__(
        self,
        directory: Disk,
        settings: JournalSettings,
        identity: Identity,
        entropy: Entropy,
        recovery: Recovery,
        now: i64,
    ) -> None:
        """Continue behind what was recovered, in a new segment; all before it is durable."""
        end = recovery.end
        next_seq = recovery.next_seq
        self.settings = settings
        self.identity = identity
        self.timeline = identity.timeline
        self.salt = identity.salt  # of derived uids
        self.durable_seq: i64 = next_seq - 1
        self.written_seq: i64 = next_seq - 1
        self._directory = directory
        self._entropy = entropy
        self._write_failure = WriteFailure()
        self._cache = BlockCache(settings.payload_memory)
        self.frames = recovery.frames  # of all segments from the replay start on
        self._bases: list[int] = []  # of all segments, the current one last
        self._segment_info: dict[int, tuple[int, int]] = {}  # first record of each, and its time
        for header in recovery.retained:
            self._register_segment(header.base, header.first_seq, header.created)
        for segment in recovery.segments:
            self._register_segment(segment.base, segment.first_seq, segment.created)
        # a replay may begin there: it is durable that it may
        self.replay_start: i64 = recovery.replay_start
        state = recovery.state
        if state.replay_start > self.replay_start and state.replay_start in self._segment_info:
            self.advance_replay_start(
                state.replay_start
            )  # the headers know of it only after the next one is made
            state.live_bytes.forget_before(state.replay_start)
        self.disk_reads = DiskReads(directory, self._bases, self._cache)
        self._recent_frames = RecentFrames(settings.payload_memory)
        self._time = now  # of about the last record
        self._end = end
        self._full_segments: list[Segment] = []  # full ones that may not be on disk yet
        self._sync_points_out: i64 = 0  # sync points that are out
        self._allocator = SegmentAllocator(
            directory, settings.segment_size, settings.preallocate, settings.prepare_ahead
        )
        self._removal: RemoveSegments | None = None
        self._segment_size: i64 = 0  # of the current segment, as it was made
        self._space_end: i64 = 0  # position up to which the disk has space for it
        self._segment = self._begin_segment(_MIN_SEGMENT_BYTES)
        self.records = RecordBuffer(next_seq, self._end + FRAME_HEADER_BYTES)
        self.written: i64 = self.records.end_position()
        self.durable: i64 = self.written
        self.space = SegmentSpace(self)
        self._update_space()

    # Writing

    def write(self) -> bool:
        """Write all records that were appended since the last time, as one frame.

        OSError if the disk has no room for them, which the engine sees to: see `room`. After any
        other failure nothing more can be written.
        """
        if not self._write_frame():
            return False
        # Here, not before the next frame: the log must know where that will stand.
        if self._is_full() and (self._allocator.ready or not self.space.push_refusal):
            self._rotate()
        self._update_space()
        return True

    def _write_frame(self) -> bool:
        self._write_failure.raise_if_failed()
        log = self.records
        count = log.count
        if not count:
            return False
        size = log.size()
        if size > MAX_BODY_BYTES:
            raise OSError(errno.EFBIG, f"{size} bytes of records are too many for one frame")
        start = self._end
        end = start + FRAME_HEADER_BYTES + size
        if end > self._space_end:
            self._reserve(end)
        first_seq = log.next_seq - count
        body = log.drain(end + FRAME_HEADER_BYTES)
        segment = self._segment
        header = frame_header(body, first_seq, count, segment.salt, self.durable_seq)
        # Into the cache first: after a failure these bytes may be nowhere else.
        self._cache.append(header)
        self._cache.append(body)
        try:
            segment.file.write_at(start - segment.base, [header, body])
        except OSError as error:
            self._write_failure.reason = f"a write has failed: {error}"
            raise
        self._recent_frames.add(start + FRAME_HEADER_BYTES, body)
        self.frames.add(start, end)
        self._time = read_i64_le(body, _TIME_AT)
        self._end = end
        self.written = end
        self.written_seq = first_seq + count - 1
        return True

    # Segments

    def _is_full(self) -> bool:
        return self._segment.base + self._segment_size - self._end < self._margin()

    def _margin(self) -> i64:
        """How much is left over at the end of a segment, and by how much one is extended.

        The size of a frame is not known before its records are made; if it does not fit, the
        segment is extended. The larger this is, the more seldom that happens.
        """
        return min(max(self._segment_size >> 5, _MIN_MARGIN_BYTES), self._segment_size >> 2)

    def _rotate(self) -> None:
        """Begin the next segment; if it cannot be made, this one is used to its end.

        The current one is on disk by then with its header and its name, so that after a crash only
        the last segment can be without.
        """
        old = self._segment
        if not old.header_is_durable:
            point = self.sync_point()
            point.run()
            self.on_synced(point)
        end, room_end, size = self._end, self._space_end, self._segment_size
        try:
            self._segment = self._begin_segment(0)
        except OSError as error:
            self.space.push_refusal = _NO_NEXT_SEGMENT + reason_of(error)
            return
        if room_end > old.base + size:
            with contextlib.suppress(OSError):  # no harm if it stays
                old.file.truncate(max(end - old.base, size))
        old.end = end
        self._full_segments.append(old)
        self._close_synced_segments()
        self.records.start_position = self._end + FRAME_HEADER_BYTES

    def _begin_segment(self, least: i64) -> Segment:
        """Make the next segment, of at least that size if it cannot be of the usual one."""
        supply = self._allocator
        size = supply.allocate(least)
        base = self._end
        header = SegmentHeader(
            self.timeline,
            base,
            self.written_seq + 1,
            new_salt(self._entropy),
            self._time,
            self.durable_seq,
            self.replay_start,
            self._bases[0] if self._bases else base,
            recycled=supply.is_recycled(),
        )
        try:
            segment = create_segment(self._directory, header, supply.source)
        finally:
            supply.discard_source()
        self._segment_size = size
        self._space_end = base + size
        self._cache.begin_segment(base)
        self._cache.append(header.encode())
        self._register_segment(base, header.first_seq, header.created)
        self._end = base + SEGMENT_HEADER_BYTES
        return segment

    def _register_segment(self, base: i64, first_seq: i64, created: i64) -> None:
        self._bases.append(base)
        self._segment_info[base] = (first_seq, created)

    # Space

    def _update_space(self) -> None:
        """Set the space that there is, and what of it is reserved for finishing work.

        Once the next segment is prepared, that one will do; until then it is a part of this one.
        """
        self.space.free_bytes = self._space_end - self.records.start_position
        wanting = self.settings.prepare_ahead and not self._allocator.ready
        self.space.reserved_bytes = self._segment_size >> 2 if wanting else i64(0)

    def try_extend(self, size: i64) -> bool:
        """Make space for that many bytes of records that are not written yet, if possible."""
        room = self.space
        if self._write_failure.reason or size > MAX_BODY_BYTES:
            room.extend_failure = self._write_failure.reason or "too much is waiting to be written"
            return False
        try:
            self._reserve(self.records.start_position + size)
        except OSError as error:
            room.extend_failure = _NO_SPACE + reason_of(error)
            return self._rotate_early(size)
        self._update_space()
        return True

    def _reserve(self, end: i64) -> None:
        """Reserve space in the current segment up to position `end`, or raise OSError."""
        segment = self._segment
        step = self._space_end + self._margin()
        if step > end:
            try:
                segment.file.allocate(step - segment.base)
            except OSError:
                segment.file.allocate(end - segment.base)
                step = end
            end = step
        else:
            segment.file.allocate(end - segment.base)
        self._space_end = end

    def _rotate_early(self, size: i64) -> bool:
        """Go to the next segment for the sake of records that do not fit this one."""
        supply = self._allocator
        if self.records.count or self._end == self._segment.base + SEGMENT_HEADER_BYTES:
            return False
        if self.space.push_refusal and not supply.ready:
            return False
        if size > (supply.next_size() >> 2) * 3:
            return False
        try:
            self._rotate()
        except OSError:
            return False  # a sync has failed: the next write says so
        self._update_space()
        return size <= self.space.free_bytes

    def needs_next_segment(self) -> bool:
        """Whether no next segment is prepared or being prepared."""
        return self.settings.prepare_ahead and self._allocator.needs_preparation()

    def prepare_next_segment(self) -> PrepareSegment | None:
        """Return work for a thread, to be passed to `on_segment_prepared`, if the next segment is
        near.
        """
        if self._allocator.ready or self._write_failure.reason or self._removal is not None:
            return None
        if not self.space.push_refusal and (
            not self.settings.prepare_ahead
            or self._end - self._segment.base < self._segment_size // 4
        ):
            return None  # a server that has little to do needs no more space
        return self._allocator.start_preparation()

    def on_segment_prepared(self, work: PrepareSegment) -> None:
        """The work has run. OSError if the journal has failed with what follows from that."""
        self._allocator.on_done(work)
        if work.done:
            self._on_next_segment_ready()
        else:
            self.space.push_refusal = _NO_NEXT_SEGMENT + work.reason

    def _on_next_segment_ready(self) -> None:
        self.space.push_refusal = ""
        if self._is_full() and not self.records.count and not self._write_failure.reason:
            self._rotate()
        self._update_space()

    def retry_preparation(self) -> None:
        """Let `spare` try again what has failed."""
        self._allocator.failed = False

    # Dropping

    @property
    def first_base(self) -> i64:
        """The base of the first segment."""
        return self._bases[0]

    def remove_segments_before(self, base: i64) -> RemoveSegments | None:
        """Return work that removes the segments wholly before `base`, or None if there is none.

        To be run in a thread and then passed to `on_segments_removed`. From now on nothing can be
        read there; segments that are being read or are not on disk yet stay, with all behind them.
        So does the last of them until no segment is prepared: to write a new one full of zeros then
        would take disk and processor time from clients that wait.
        """
        if self._removal is not None or self._write_failure.reason:
            return None
        limit = min(base, self.durable)
        reading = self.disk_reads.lowest_needed_position()
        if reading >= 0:
            limit = min(limit, self.base_of(reading))
        if self._full_segments:
            limit = min(limit, self._full_segments[0].base)
        count: i64 = 0
        while count + 1 < len(self._bases) and self._bases[count + 1] <= limit:
            count += 1
        recycle = self.needs_next_segment()
        if count and not recycle and self._waits_to_be_reused(count - 1):
            count -= 1
        if not count:
            return None
        work = RemoveSegments(
            self._directory, self._bases[:count], recycle, self.settings.segment_size
        )
        del self._bases[:count]
        self._cache.forget_before(self._bases[0])
        self._removal = work
        return work

    def _waits_to_be_reused(self, index: i64) -> bool:
        """Whether this segment, a whole one, will do for the one after the prepared segment."""
        if not self.settings.prepare_ahead or self.space.push_refusal:
            return False
        return self._bases[index + 1] - self._bases[index] >= self.settings.segment_size >> 1

    def on_segments_removed(self, work: RemoveSegments) -> None:
        """The work has run. What it could not remove is listed again, to be removed later.

        OSError if the journal has failed with what follows from that.
        """
        self._removal = None
        for base in work.bases[: work.removed_count]:
            del self._segment_info[base]
        self._bases[:0] = work.bases[work.removed_count :]
        self._allocator.failed = False  # there is more space than there was
        if work.recycled:
            self._allocator.ready = True
            self._on_next_segment_ready()

    # Syncing

    def sync_point(self) -> SyncPoint:
        """Return what to sync now: run it, here or in a thread, then pass it to `on_synced`."""
        self._write_failure.raise_if_failed()
        segments = self._full_segments.copy()
        directory: Disk | None = None
        if self.durable < self.written or not self._segment.header_is_durable:
            segments.append(self._segment)
        if not self._segment.header_is_durable:
            directory = self._directory
        self._sync_points_out += 1
        return SyncPoint(segments, directory, self.written, self.written_seq, self._write_failure)

    def on_synced(self, point: SyncPoint) -> None:
        """`point` has run without an error."""
        if not point.done:
            raise ValueError("this sync has not been done")
        self._sync_points_out -= 1
        for segment in point.segments:
            segment.header_is_durable = True
        if point.position > self.durable:
            self.durable = point.position
            self.durable_seq = point.seq
        if self._full_segments:
            self._close_synced_segments()

    def _close_synced_segments(self) -> None:
        """Close full segments that need no more syncing, unless a thread may have them in hand."""
        if self._sync_points_out:
            return
        waiting: list[Segment] = []
        for segment in self._full_segments:
            if segment.end <= self.durable:
                segment.file.close()
            else:
                waiting.append(segment)
        self._full_segments = waiting

    # Segments

    @property
    def directory(self) -> Disk:
        return self._directory

    @property
    def end(self) -> i64:
        """Position behind the last frame."""
        return self._end

    @property
    def segments(self) -> i64:
        return len(self._bases)

    def next_base(self, base: i64) -> i64:
        """Where the segment ends that begins there; 0 if that is the current one."""
        index = bisect_right(self._bases, base)
        return self._bases[index] if index < len(self._bases) else 0

    def base_of(self, at: i64) -> i64:
        """Where the segment begins that a position is in."""
        return self._bases[bisect_right(self._bases, at) - 1]

    def first_seq_of(self, base: i64) -> i64:
        """The number of the first record of the segment that begins there."""
        return self._segment_info[base][0]

    def created_of(self, base: i64) -> i64:
        """About when that segment was made."""
        return self._segment_info[base][1]

    def missed_records(self, next_seq: i64) -> i64:
        """Return how many records were removed that a reader wants from `next_seq` on."""
        return max(i64(0), self.first_seq_of(self._bases[0]) - next_seq)

    def retained_segments(self) -> RetainedSegments:
        """Return the segments before the replay start, which only readers want, and that one."""
        bases = self._bases[: bisect_right(self._bases, self.replay_start)]
        facts = [self._segment_info[base] for base in bases]
        return RetainedSegments(bases, [fact[0] for fact in facts], [fact[1] for fact in facts])

    def advance_replay_start(self, base: i64) -> None:
        """It is durable that a replay may begin at this segment."""
        self.replay_start = base
        self.frames.forget_before(base)

    # Reading

    def read_blob(self, at: i64, size: i64) -> bytes | None:
        """Return the blob at `at`, or None if it must be read from disk: see `disk_reads`."""
        if not size:
            return b""
        if at >= self.records.start_position:
            return self.records.unwritten_blob(at)
        recent = self._recent_frames.read(at, size)
        return recent if recent is not None else self.disk_reads.read(at, size)

    # Ending

    @property
    def failure(self) -> str:
        """Why nothing can be written any more; "": it can."""
        return self._write_failure.reason

    def close(self) -> None:
        """Write and sync what there is, and free the space that was reserved."""
        try:
            if not self._write_failure.reason:
                self._write_frame()
                self._segment.file.truncate(self._end - self._segment.base)
                point = self.sync_point()
                point.run()
                self.on_synced(point)
        finally:
            self._write_failure.reason = self._write_failure.reason or "the journal is closed"
            for segment in [*self._full_segments, self._segment]:
                segment.file.close()
            self._full_segments = []


class SegmentSpace(JournalSpace):
    """The space of the current segment, as the engine sees it."""

    def __init__(self, journal: Journal) -> None:
        super().__init__()
        self._journal = journal

    def try_extend(self, size: i64) -> bool:
        return self._journal.try_extend(size)


# Removal of segments

_FIRST_PAGE: Final = RECYCLED_MARK + bytes(PAGE_BYTES - len(RECYCLED_MARK))
# Each is a moment of the interpreter that the loop has to do without.
_CHUNK_BYTES: Final = 1_048_576


class RemoveSegments:
    """Removes segments that are not needed any more from the head of the journal, the oldest first.

    One of them may become the next segment: its blocks are on disk already, so only its first page
    has to be written. Run it in a thread, then give it to `Journal.on_segments_removed`.
    """

    __slots__ = ("_directory", "_recycle", "_size", "bases", "reason", "recycled", "removed_count")

    def __init__(self, directory: Disk, bases: list[int], recycle: bool, size: i64) -> None:
        self.bases = bases  # of the segments that are to go, in order
        self.removed_count: i64 = 0  # how many of them are not there any more
        self.recycled = False  # one of them is the prepared segment now
        self.reason = ""  # why not all of them could be removed
        self._directory = directory
        self._recycle = recycle
        self._size = size

    def run(self) -> None:
        """Remove each for good before the next one: a crash must not leave a gap."""
        try:
            self._directory.sync()  # an earlier removal may have failed before that
            for base in self.bases:
                self._remove_segment(segment_name(base))
        except OSError as error:
            self.reason = reason_of(error)
            if self._recycle:
                remove_if_exists(self._directory, DRAFT)

    def _remove_segment(self, name: str) -> None:
        directory = self._directory
        if self._recycle and not self.recycled and self._is_large_enough(name):
            remove_if_exists(directory, DRAFT)
            directory.rename(name, DRAFT)
            self.removed_count += 1
            directory.sync()
            self._make_next_segment()
            return
        directory.remove(name)
        self.removed_count += 1
        directory.sync()

    def _is_large_enough(self, name: str) -> bool:
        """A segment that was cut, or was a small one, is shorter than a segment must be."""
        file = self._directory.view(name)
        try:
            return file.size() >= self._size
        finally:
            file.close()

    def _make_next_segment(self) -> None:
        """Only now, under a name that recovery ignores, its header may be destroyed."""
        file: File = self._directory.open(DRAFT)
        try:
            file.write_at(0, [_FIRST_PAGE])
            if file.size() > self._size:
                file.truncate(self._size)
            file.sync()
            self._load_into_page_cache(file)
        finally:
            file.close()
        self._directory.rename(DRAFT, SPARE)
        self.recycled = True

    def _load_into_page_cache(self, file: File) -> None:
        """Read the file into the page cache: to write part of a page that is not there waits for a
        read.

        That would be the loop, and an old segment has only such pages. They are read into memory
        whose own pages are made by that: clearing it first would hold the interpreter's lock for as
        long.
        """
        with mmap(-1, _CHUNK_BYTES) as memory, memoryview(memory) as portion:
            at: i64 = 0
            while at < self._size:
                file.read_into(at, portion)
                at += _CHUNK_BYTES
