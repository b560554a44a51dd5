"""The journal as the broker uses it: write, sync, read.

Its three rates are apart: `write` puts all new records into the page cache as one frame, a
`SyncPoint` brings to disk what was written when it was taken, and blobs are read from memory or,
off the loop, from disk. Positions and marks are those of the log: see segment.py.
"""

from __future__ import annotations

import errno
import os
from bisect import bisect_right
from collections.abc import Callable
from typing import Final

from librt.strings import read_i64_le
from mypy_extensions import i64, mypyc_attr

from taskyard.engine.log import Log
from taskyard.engine.state import State
from taskyard.journal.cache import BLOCK, Cache, block_of
from taskyard.journal.disk import Disk, File
from taskyard.journal.errors import JournalFailed
from taskyard.journal.frames import FRAME_HEADER, MAX_BODY, frame_header
from taskyard.journal.identity import (
    JOURNAL,
    BadIdentity,
    Entropy,
    Identity,
    load_identity,
    new_identity,
    save_identity,
)
from taskyard.journal.recovery import Recovery, RecoveryReport
from taskyard.journal.segment import (
    SEGMENT_HEADER,
    Segment,
    SegmentHeader,
    create_segment,
    segment_name,
    segment_names,
)
from taskyard.journal.spare import SPARE, SpareWork, find_spare

_TIME_AT: Final = 6  # where in a record its time stands
_SMALL: Final = 4 * 1_048_576  # a segment that has to be made at once; the next is made in advance


@mypyc_attr(acyclic=True)
class JournalSettings:
    __slots__ = ("durability", "payload_memory", "segment_size", "spare")

    def __init__(
        self,
        segment_size: i64 = 64 * 1_048_576,
        payload_memory: i64 = 256 * 1_048_576,
        durability: str = "sync",
        spare: bool = False,
    ) -> None:
        self.segment_size = segment_size
        self.payload_memory = payload_memory
        self.durability = durability  # what replies wait for: the broker's business
        self.spare = spare  # make the next segment in advance


@mypyc_attr(acyclic=True)
class _Health:
    """Why nothing can be written any more; "": it can. Shared with the syncs in other threads."""

    __slots__ = ("failure",)

    def __init__(self) -> None:
        self.failure = ""

    def check(self) -> None:
        if self.failure:
            raise JournalFailed(errno.EIO, self.failure)


class SyncPoint:
    """What must be synced for all that is written now to be durable."""

    __slots__ = ("_directory", "_health", "done", "mark", "segments", "seq")

    def __init__(
        self,
        segments: list[Segment],
        directory: Disk | None,
        mark: i64,
        seq: i64,
        health: _Health,
    ) -> None:
        self.segments = segments
        self.mark = mark
        self.seq = seq
        self.done = False
        self._directory = directory
        self._health = health

    def run(self) -> None:
        """Do it. May run in another thread. What has failed is never tried again."""
        self._health.check()
        try:
            for segment in self.segments:
                segment.file.sync()
            if self._directory is not None:
                self._directory.sync()
        except OSError as error:
            self._health.failure = f"a sync has failed: {error}"
            raise
        self.done = True


class ColdRead:
    """Bytes that are on disk only. Reads whole blocks: their neighbours will be wanted too."""

    __slots__ = ("_base", "_directory", "_end", "at", "blocks", "parts", "size")

    def __init__(self, directory: Disk, base: i64, end: i64, at: i64, size: i64) -> None:
        self.at = at
        self.size = size
        self.parts: list[bytes | None] = []  # one for each block; None: it must be read
        self.blocks: dict[int, bytes] = {}  # those that were read, by position
        self._directory = directory
        self._base = base
        self._end = end  # of the segment

    def run(self) -> None:
        """Read what is missing. May run in another thread."""
        file = self._directory.view(segment_name(self._base))
        try:
            block_at = block_of(self._base, self.at)
            for part in self.parts:
                if part is None:
                    self._read(file, block_at)
                block_at += BLOCK
        finally:
            file.close()

    def _read(self, file: File, block_at: i64) -> None:
        size = min(BLOCK, self._end - block_at)
        block = file.read_at(block_at - self._base, size)
        if len(block) < size:
            raise OSError(errno.EIO, f"{segment_name(self._base)} is shorter than it was")
        self.blocks[block_at] = block


class Journal:
    """Written by one thread. `durable` and `written` are comparable with `log.mark()`."""

    def __init__(
        self,
        directory: Disk,
        settings: JournalSettings,
        identity: Identity,
        entropy: Entropy,
        bases: list[int],
        end: i64,
        next_seq: i64,
        now: i64,
    ) -> None:
        """Go on at position `end` with record `next_seq`, in a new segment.

        All before that is durable; `bases` are the segments it is in.
        """
        self.settings = settings
        self.timeline = identity.timeline
        self.salt = identity.salt  # of derived uids
        self.durable_seq: i64 = next_seq - 1
        self.written_seq: i64 = next_seq - 1
        self._directory = directory
        self._entropy = entropy
        self._health = _Health()
        self._cache = Cache(settings.payload_memory)
        self._bases = bases  # of all segments, the current one last
        self._time = now  # of about the last record
        self._end = end
        self._closed: list[Segment] = []  # full ones that may not be on disk yet
        self._syncing: i64 = 0  # sync points that are out
        self._spare = find_spare(directory, settings.segment_size)  # it is there
        self._spare_work: SpareWork | None = None
        self._spare_failed = False  # while this segment is written, it is not tried again
        self._size: i64 = 0  # of the current segment
        self._segment = self._begin_segment()
        self.log = Log(next_seq, self._end + FRAME_HEADER)
        self.written: i64 = self.log.mark()
        self.durable: i64 = self.written

    # Writing

    def write(self) -> bool:
        """Write all records that were appended since the last time, as one frame.

        If a new segment is needed and cannot be made, OSError is raised and the records stay in
        the log. After any other failure nothing more can be written.
        """
        self._health.check()
        log = self.log
        count = log.count
        if not count:
            return False
        if self._is_full(self._end):
            self._rotate()
        size = log.size()
        if size > MAX_BODY:
            raise OSError(errno.EFBIG, f"{size} bytes of records are too many for one frame")
        start = self._end
        end = start + FRAME_HEADER + size
        # Where the next frame's records begin: after this one, or in the next segment.
        follows = end + FRAME_HEADER
        if self._is_full(end):
            follows += SEGMENT_HEADER
        first_seq = log.next_seq - count
        body = log.take(follows)
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
        self._time = read_i64_le(body, _TIME_AT)
        self._end = end
        self.written = end
        self.written_seq = first_seq + count - 1
        return True

    def _is_full(self, end: i64) -> bool:
        return end - self._segment.base >= min(self._size, self.settings.segment_size)

    def _rotate(self) -> None:
        """Begin the next segment.

        The current one is on disk by then with its header and its name, so that after a crash only
        the last segment can be without. It has outgrown its room, so nothing is to be cut off.
        """
        old = self._segment
        if not old.anchored:
            point = self.sync_point()
            point.run()
            self.synced(point)
        old.end = self._end
        self._segment = self._begin_segment()
        self._closed.append(old)
        self._let_go()

    def _begin_segment(self) -> Segment:
        base = self._end
        header = SegmentHeader(
            self.timeline,
            base,
            self.written_seq + 1,
            _new_salt(self._entropy),
            self._time,
            self.durable_seq,
        )
        size = self.settings.segment_size
        if self.settings.spare and not self._spare:
            size = min(size, _SMALL)
        segment = create_segment(self._directory, header, size, SPARE if self._spare else "")
        self._spare = False
        self._spare_failed = False
        self._size = size
        self._cache.begin(base)
        self._cache.append(header.encoded())
        self._bases.append(base)
        self._end = base + SEGMENT_HEADER
        return segment

    def spare(self) -> SpareWork | None:
        """Work to be run in a thread and then given to `spared`, if the next segment is near."""
        if self._spare or self._spare_work is not None or not self.settings.spare:
            return None
        if self._spare_failed or self._health.failure:
            return None
        if self._end - self._segment.base < self._size // 4:
            return None  # a server that has little to do needs no more room
        self._spare_work = SpareWork(self._directory, self.settings.segment_size)
        return self._spare_work

    def spared(self, work: SpareWork) -> None:
        self._spare_work = None
        self._spare = work.done
        self._spare_failed = not work.done

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

    # Reading

    def read(self, at: i64, size: i64) -> bytes | None:
        """The blob at `at`, or None if it must be read from disk."""
        if not size:
            return b""
        if at >= self.log.base:
            return self.log.blobs.get(at)
        return self._cache.read(self._base_of(at), at, size)

    def cold(self, at: i64, size: i64) -> ColdRead:
        """How to read the blob at `at` from disk: run it in a thread, then give it to `loaded`."""
        if at < 0 or at + size > self.written:
            raise OSError(errno.EIO, f"there is nothing at position {at} of the journal")
        base = self._base_of(at)
        cold = ColdRead(self._directory, base, self._end_of(base), at, size)
        block_at = block_of(base, at)
        start = at - block_at
        while size > 0:
            taken = min(size, BLOCK - start)
            cold.parts.append(self._cache.piece(block_at, start, start + taken))
            size -= taken
            block_at += BLOCK
            start = 0
        return cold

    def loaded(self, cold: ColdRead) -> bytes:
        """The blob that `cold` has read; its blocks go into the cache."""
        block_at = block_of(self._base_of(cold.at), cold.at)
        start = cold.at - block_at
        size = cold.size
        whole: list[bytes] = []
        for part in cold.parts:
            taken = min(size, BLOCK - start)
            if part is None:
                block = cold.blocks[block_at]
                self._cache.put(block_at, block)
                whole.append(block[start : start + taken])
            else:
                whole.append(part)
            size -= taken
            block_at += BLOCK
            start = 0
        return b"".join(whole)

    def _base_of(self, at: i64) -> i64:
        base = self._segment.base
        if at >= base:
            return base
        return self._bases[bisect_right(self._bases, at) - 1]

    def _end_of(self, base: i64) -> i64:
        if base == self._segment.base:
            return self._end
        return self._bases[bisect_right(self._bases, base)]

    # Ending

    @property
    def failure(self) -> str:
        """Why nothing can be written any more; "": it can."""
        return self._health.failure

    def close(self) -> None:
        """Write and sync what there is, and give back the room that was reserved."""
        try:
            if not self._health.failure:
                self.write()
                self._segment.file.truncate(self._end - self._segment.base)
                point = self.sync_point()
                point.run()
                self.synced(point)
        finally:
            self._health.failure = self._health.failure or "the journal is closed"
            for segment in [*self._closed, self._segment]:
                segment.file.close()
            self._closed = []


def no_clock() -> float:
    return 0.0


def open_journal(
    disk: Disk,
    settings: JournalSettings,
    state: State,
    clock_now: i64,
    entropy: Entropy = os.urandom,
    stopwatch: Callable[[], float] = no_clock,
) -> tuple[Journal, RecoveryReport]:
    """Bring `state` to what the journal of this data directory says, and go on from there.

    JournalError if the directory cannot be used as it is; then nothing was changed.
    """
    started = stopwatch()
    directory = disk.directory(JOURNAL)
    identity = _identity(disk, directory, entropy, clock_now)
    recovery = Recovery(directory, identity, state)
    recovery.run()
    recovery.settle()
    bases: list[int] = [segment.base for segment in recovery.segments]
    now = max(clock_now, state.time)
    journal = Journal(
        directory, settings, identity, entropy, bases, recovery.end, recovery.next_seq, now
    )
    report = recovery.report()
    report.seconds = stopwatch() - started
    return journal, report


def _identity(disk: Disk, directory: Disk, entropy: Entropy, now: i64) -> Identity:
    identity = load_identity(disk)
    if identity is not None:
        return identity
    if segment_names(directory):
        raise BadIdentity("is missing")
    identity = new_identity(entropy, now)
    save_identity(disk, identity)
    return identity


def _new_salt(entropy: Entropy) -> i64:
    salt: i64 = 0
    while not salt:
        salt = read_i64_le(entropy(8), 0)
    return salt
