"""The journal as the broker uses it: write, sync, read.

Its three rates are apart: `write` puts all new records into the page cache as one frame, a
`SyncPoint` brings to disk what was written when it was taken, and blobs are read from memory or,
off the loop, from disk. Positions and marks are those of the log: see segment.py.
"""

from __future__ import annotations

import contextlib
import errno
from bisect import bisect_right
from typing import Final

from librt.strings import read_i64_le
from mypy_extensions import i64

from taskyard.engine.operations.room import Room
from taskyard.engine.records.log import Log
from taskyard.journal.cache import Cache
from taskyard.journal.cold import ColdReads
from taskyard.journal.disk import Disk
from taskyard.journal.drop import DropWork
from taskyard.journal.frames import FRAME_HEADER, MAX_BODY, frame_header
from taskyard.journal.identity import Entropy, Identity
from taskyard.journal.recent import Recent
from taskyard.journal.recovery import Recovery
from taskyard.journal.retention import Spans
from taskyard.journal.segment import (
    SEGMENT_HEADER,
    Segment,
    SegmentHeader,
    create_segment,
    new_salt,
)
from taskyard.journal.settings import JournalSettings
from taskyard.journal.spare import SpareWork, reason_of
from taskyard.journal.supply import Supply
from taskyard.journal.sync import Health, SyncPoint

_TIME_AT: Final = 6  # where in a record its time stands
_LEAST: Final = 16_384  # one that a server starts with where there is no room for more
_LEAST_MARGIN: Final = 8192  # a few small records fit
_NO_NEXT: Final = "no room for the next segment of the journal: "
_NO_MORE: Final = "no room in the journal: "


class JournalRoom(Room):
    """What the engine may still say: the room of the current segment."""

    def __init__(self, journal: Journal) -> None:
        super().__init__()
        self._journal = journal

    def extend(self, size: i64) -> bool:
        return self._journal.extend(size)


class Journal:
    """Written by one thread. `durable` and `written` are comparable with `log.mark()`."""

    def __init__(
        self,
        directory: Disk,
        settings: JournalSettings,
        identity: Identity,
        entropy: Entropy,
        recovery: Recovery,
        now: i64,
    ) -> None:
        """Go on behind what was recovered, in a new segment; all before it is durable."""
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
        self._health = Health()
        self._cache = Cache(settings.payload_memory)
        self.frames = recovery.frames  # of all segments from the base on
        self._bases: list[int] = []  # of all segments, the current one last
        self._facts: dict[int, tuple[int, int]] = {}  # first record of each, and its time
        for header in recovery.retained:
            self._know_segment(header.base, header.first_seq, header.created)
        for segment in recovery.segments:
            self._know_segment(segment.base, segment.first_seq, segment.created)
        self.base: i64 = recovery.base  # a replay may begin there: it is durable that it may
        state = recovery.state
        if state.base > self.base and state.base in self._facts:
            self.move_base(state.base)  # the headers know of it only after the next one is made
            state.weights.forget_before(state.base)
        self.reads = ColdReads(directory, self._bases, self._cache)
        self._recent = Recent(settings.payload_memory)
        self._time = now  # of about the last record
        self._end = end
        self._closed: list[Segment] = []  # full ones that may not be on disk yet
        self._syncing: i64 = 0  # sync points that are out
        self._supply = Supply(
            directory, settings.segment_size, settings.preallocate, settings.spare
        )
        self._drop_work: DropWork | None = None
        self._size: i64 = 0  # of the current segment, as it was made
        self._room_end: i64 = 0  # position up to which the disk has room for it
        self._segment = self._begin_segment(_LEAST)
        self.log = Log(next_seq, self._end + FRAME_HEADER)
        self.written: i64 = self.log.mark()
        self.durable: i64 = self.written
        self.room = JournalRoom(self)
        self._count_room()

    # Writing

    def write(self) -> bool:
        """Write all records that were appended since the last time, as one frame.

        OSError if the disk has no room for them, which the engine sees to: see `room`. After any
        other failure nothing more can be written.
        """
        if not self._write_frame():
            return False
        # Here, not before the next frame: the log must know where that will stand.
        if self._is_full() and (self._supply.ready or not self.room.refusing):
            self._rotate()
        self._count_room()
        return True

    def _write_frame(self) -> bool:
        self._health.check()
        log = self.log
        count = log.count
        if not count:
            return False
        size = log.size()
        if size > MAX_BODY:
            raise OSError(errno.EFBIG, f"{size} bytes of records are too many for one frame")
        start = self._end
        end = start + FRAME_HEADER + size
        if end > self._room_end:
            self._reserve(end)
        first_seq = log.next_seq - count
        body = log.take(end + FRAME_HEADER)
        segment = self._segment
        header = frame_header(body, first_seq, count, segment.salt, self.durable_seq)
        # Into the cache first: after a failure these bytes may be nowhere else.
        self._cache.append(header)
        self._cache.append(body)
        try:
            segment.file.write_at(start - segment.base, [header, body])
        except OSError as error:
            self._health.failure = f"a write has failed: {error}"
            raise
        self._recent.add(start + FRAME_HEADER, body)
        self.frames.add(start, end)
        self._time = read_i64_le(body, _TIME_AT)
        self._end = end
        self.written = end
        self.written_seq = first_seq + count - 1
        return True

    # Segments

    def _is_full(self) -> bool:
        return self._segment.base + self._size - self._end < self._margin()

    def _margin(self) -> i64:
        """What is left over at the end of a segment, and by how much one is made longer.

        A frame that would not fit is not known of before its records come; then the segment is
        made longer. The larger this is, the seldomer that happens.
        """
        return min(max(self._size >> 5, _LEAST_MARGIN), self._size >> 2)

    def _rotate(self) -> None:
        """Begin the next segment; if it cannot be made, this one is used to its end.

        The current one is on disk by then with its header and its name, so that after a crash only
        the last segment can be without.
        """
        old = self._segment
        if not old.anchored:
            point = self.sync_point()
            point.run()
            self.synced(point)
        end, room_end, size = self._end, self._room_end, self._size
        try:
            self._segment = self._begin_segment(0)
        except OSError as error:
            self.room.refusing = _NO_NEXT + reason_of(error)
            return
        if room_end > old.base + size:
            with contextlib.suppress(OSError):  # no harm if it stays
                old.file.truncate(max(end - old.base, size))
        old.end = end
        self._closed.append(old)
        self._let_go()
        self.log.base = self._end + FRAME_HEADER

    def _begin_segment(self, least: i64) -> Segment:
        """Make the next segment, of at least that size if it cannot be of the usual one."""
        supply = self._supply
        size = supply.prepare(least)
        base = self._end
        header = SegmentHeader(
            self.timeline,
            base,
            self.written_seq + 1,
            new_salt(self._entropy),
            self._time,
            self.durable_seq,
            self.base,
            self._bases[0] if self._bases else base,
            recycled=supply.is_used(),
        )
        try:
            segment = create_segment(self._directory, header, supply.source)
        finally:
            supply.taken()
        self._size = size
        self._room_end = base + size
        self._cache.begin(base)
        self._cache.append(header.encoded())
        self._know_segment(base, header.first_seq, header.created)
        self._end = base + SEGMENT_HEADER
        return segment

    def _know_segment(self, base: i64, first_seq: i64, created: i64) -> None:
        self._bases.append(base)
        self._facts[base] = (first_seq, created)

    # Room

    def _count_room(self) -> None:
        """What there is, and what of it finishing work must be able to rely on.

        Once the next segment is there, that will do; until then it is a part of this one.
        """
        self.room.free = self._room_end - self.log.base
        wanting = self.settings.spare and not self._supply.ready
        self.room.kept = self._size >> 2 if wanting else i64(0)

    def extend(self, size: i64) -> bool:
        """Make room for that many bytes of records that are not written yet, if that can be."""
        room = self.room
        if self._health.failure or size > MAX_BODY:
            room.reason = self._health.failure or "too much is waiting to be written"
            return False
        try:
            self._reserve(self.log.base + size)
        except OSError as error:
            room.reason = _NO_MORE + reason_of(error)
            return self._move_on(size)
        self._count_room()
        return True

    def _reserve(self, end: i64) -> None:
        """Have room in the current segment up to position `end`, or raise OSError."""
        segment = self._segment
        step = self._room_end + self._margin()
        if step > end:
            try:
                segment.file.allocate(step - segment.base)
            except OSError:
                segment.file.allocate(end - segment.base)
                step = end
            end = step
        else:
            segment.file.allocate(end - segment.base)
        self._room_end = end

    def _move_on(self, size: i64) -> bool:
        """Go to the next segment for the sake of records that do not fit this one."""
        supply = self._supply
        if self.log.count or self._end == self._segment.base + SEGMENT_HEADER:
            return False
        if self.room.refusing and not supply.ready:
            return False
        if size > (supply.next_size() >> 2) * 3:
            return False
        try:
            self._rotate()
        except OSError:
            return False  # a sync has failed: the next write says so
        self._count_room()
        return size <= self.room.free

    def wants_spare(self) -> bool:
        """Whether there is no file for the next segment, and none is being made."""
        return self.settings.spare and self._supply.is_wanting()

    def spare(self) -> SpareWork | None:
        """Work to be run in a thread and then given to `spared`, if the next segment is near."""
        if self._supply.ready or self._health.failure or self._drop_work is not None:
            return None
        if not self.room.refusing and (
            not self.settings.spare or self._end - self._segment.base < self._size // 4
        ):
            return None  # a server that has little to do needs no more room
        return self._supply.work()

    def spared(self, work: SpareWork) -> None:
        """The work has run. OSError if the journal has failed with what follows from that."""
        self._supply.worked(work)
        if work.done:
            self._has_next()
        else:
            self.room.refusing = _NO_NEXT + work.reason

    def _has_next(self) -> None:
        self.room.refusing = ""
        if self._is_full() and not self.log.count and not self._health.failure:
            self._rotate()
        self._count_room()

    def retry(self) -> None:
        """Let `spare` try again what has failed."""
        self._supply.failed = False

    # Dropping

    @property
    def first(self) -> i64:
        """The base of the first segment."""
        return self._bases[0]

    def drop_before(self, base: i64) -> DropWork | None:
        """Work that removes the segments that lie wholly before `base`, or None if there is none.

        To be run in a thread and then given to `dropped`. From now on nothing can be read there;
        segments that are being read or are not on disk yet stay, with all behind them. So does the
        last of them until there is no spare: to write a new one full of zeros then would take the
        disk and the processor from those who wait.
        """
        if self._drop_work is not None or self._health.failure:
            return None
        limit = min(base, self.durable)
        reading = self.reads.lowest()
        if reading >= 0:
            limit = min(limit, self.base_of(reading))
        if self._closed:
            limit = min(limit, self._closed[0].base)
        count: i64 = 0
        while count + 1 < len(self._bases) and self._bases[count + 1] <= limit:
            count += 1
        recycle = self.wants_spare()
        if count and not recycle and self._is_to_wait(count - 1):
            count -= 1
        if not count:
            return None
        work = DropWork(self._directory, self._bases[:count], recycle, self.settings.segment_size)
        del self._bases[:count]
        self._cache.forget(self._bases[0])
        self._drop_work = work
        return work

    def _is_to_wait(self, index: i64) -> bool:
        """Whether this segment, a whole one, will do for the spare after the one that there is."""
        if not self.settings.spare or self.room.refusing:
            return False
        return self._bases[index + 1] - self._bases[index] >= self.settings.segment_size >> 1

    def dropped(self, work: DropWork) -> None:
        """The work has run. What it could not remove is there again, to be dropped once more.

        OSError if the journal has failed with what follows from that.
        """
        self._drop_work = None
        for base in work.bases[: work.gone]:
            del self._facts[base]
        self._bases[:0] = work.bases[work.gone :]
        self._supply.failed = False  # there is more room than there was
        if work.recycled:
            self._supply.ready = True
            self._has_next()

    # Syncing

    def sync_point(self) -> SyncPoint:
        """What to sync now: run it, here or in a thread, then hand it to `synced`."""
        self._health.check()
        segments = self._closed.copy()
        directory: Disk | None = None
        if self.durable < self.written or not self._segment.anchored:
            segments.append(self._segment)
        if not self._segment.anchored:
            directory = self._directory
        self._syncing += 1
        return SyncPoint(segments, directory, self.written, self.written_seq, self._health)

    def synced(self, point: SyncPoint) -> None:
        """`point` has run without an error."""
        if not point.done:
            raise ValueError("this sync has not been done")
        self._syncing -= 1
        for segment in point.segments:
            segment.anchored = True
        if point.mark > self.durable:
            self.durable = point.mark
            self.durable_seq = point.seq
        if self._closed:
            self._let_go()

    def _let_go(self) -> None:
        """Close full segments that need no more syncing, unless a thread may have them in hand."""
        if self._syncing:
            return
        waiting: list[Segment] = []
        for segment in self._closed:
            if segment.end <= self.durable:
                segment.file.close()
            else:
                waiting.append(segment)
        self._closed = waiting

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
        return self._facts[base][0]

    def created_of(self, base: i64) -> i64:
        """About when that segment was made."""
        return self._facts[base][1]

    def missed(self, next_seq: i64) -> i64:
        """How many records are gone that a reader wants which goes on with `next_seq`."""
        return max(i64(0), self.first_seq_of(self._bases[0]) - next_seq)

    def retained(self) -> Spans:
        """The segments before the base, which only readers want, and the one at the base."""
        bases = self._bases[: bisect_right(self._bases, self.base)]
        facts = [self._facts[base] for base in bases]
        return Spans(bases, [fact[0] for fact in facts], [fact[1] for fact in facts])

    def move_base(self, base: i64) -> None:
        """It is durable that a replay may begin at this segment."""
        self.base = base
        self.frames.forget_before(base)

    # Reading

    def read(self, at: i64, size: i64) -> bytes | None:
        """The blob at `at`, or None if it must be read from disk: see `reads`."""
        if not size:
            return b""
        if at >= self.log.base:
            return self.log.blob(at)
        recent = self._recent.read(at, size)
        return recent if recent is not None else self.reads.read(at, size)

    # Ending

    @property
    def failure(self) -> str:
        """Why nothing can be written any more; "": it can."""
        return self._health.failure

    def close(self) -> None:
        """Write and sync what there is, and give back the room that was reserved."""
        try:
            if not self._health.failure:
                self._write_frame()
                self._segment.file.truncate(self._end - self._segment.base)
                point = self.sync_point()
                point.run()
                self.synced(point)
        finally:
            self._health.failure = self._health.failure or "the journal is closed"
            for segment in [*self._closed, self._segment]:
                segment.file.close()
            self._closed = []
