"""Reading a journal back when the server starts: what is intact, what is torn, what is damaged.

The first place where no intact frame stands is the end. It is the torn tail of a crash, and cut
off, unless something behind it says that the records which should be there had been durable. Then
they are lost by other means than a crash, and nothing may be cut: see docs/internals/journal.md.
"""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Callable
from threading import Thread
from types import TracebackType

from librt.strings import read_i32_le, read_i64_le
from mypy_extensions import i64, mypyc_attr

from taskyard.engine.model.events import CorruptRecord, UnknownRecord
from taskyard.engine.model.state import State
from taskyard.engine.partial_replay import begin_partial_replay
from taskyard.engine.records.decode import Decoder
from taskyard.engine.records.replay import apply_record
from taskyard.journal.disk import Disk
from taskyard.journal.errors import JournalCorrupt, JournalIncomplete, JournalTooNew
from taskyard.journal.format import (
    FRAME_HEADER_BYTES,
    SEGMENT_HEADER_BYTES,
    BadHeader,
    Frame,
    FrameIndex,
    SegmentBytes,
    SegmentHeader,
    base_of,
    frame_at,
    next_frame,
    parse_header,
    read_segment,
    salt_at,
    segment_name,
    segment_names,
    torn_end,
    written_end,
)
from taskyard.journal.identity import Identity
from taskyard.journal.segments import is_recycled_file

# What lies behind the first place where no intact frame stands, and what it gives away


def frames_behind(content: SegmentBytes, start: i64, end: i64, salt: i64) -> list[Frame]:
    """All intact frames of a salt that begin anywhere in the bytes from `start` to `end`."""
    found: list[Frame] = []
    while True:
        frame = next_frame(content, start, end, salt)
        if frame is None:
            return found
        found.append(frame)
        start = frame.end


def highest_durable_behind(
    content: SegmentBytes, start: i64, end: i64, header: SegmentHeader | None, next_seq: i64
) -> i64:
    """The highest sequence number that a frame in the bytes from `start` to `end` says was durable.

    0 if none says it of `next_seq` or a later one.
    """
    if header is None:
        return _highest_durable_of_any_salt(content, start, end, next_seq)
    highest: i64 = 0
    for frame in frames_behind(content, start, end, header.salt):
        if frame.durable >= next_seq:
            highest = max(highest, frame.durable)
    return highest


def highest_durable_in(directory: Disk, later: list[str], next_seq: i64) -> i64:
    """The same of whole segments that begin behind that place."""
    highest: i64 = 0
    for name in later:
        content = read_segment(directory, name)
        header = _header(content)
        if header is not None and header.durable >= next_seq:
            highest = max(highest, header.durable)
        end = written_end(content, 0)
        highest = max(
            highest, highest_durable_behind(content, SEGMENT_HEADER_BYTES, end, header, next_seq)
        )
    return highest


def _header(content: SegmentBytes) -> SegmentHeader | None:
    try:
        return parse_header(content)
    except BadHeader:
        return None


def is_first_frame_intact(content: SegmentBytes) -> bool:
    """Whether a segment's first frame is intact, whatever became of the segment's header.

    Both begin in the same sector of the disk, so a crash cannot keep the one without the other.
    """
    return (
        frame_at(content, SEGMENT_HEADER_BYTES, salt_at(content, SEGMENT_HEADER_BYTES)) is not None
    )


def _highest_durable_of_any_salt(content: SegmentBytes, start: i64, end: i64, next_seq: i64) -> i64:
    """The same where the header is lost, and with it the salt: every byte may begin a frame.

    Few pass the cheap tests, so this takes some tenths of a second for a segment, compiled.
    """
    highest: i64 = 0
    offset = start
    last = min(end, content.size - FRAME_HEADER_BYTES)
    content.extend_to(last + FRAME_HEADER_BYTES)
    data = content.data
    while offset <= last:
        durable = read_i64_le(data, offset + 32)
        if (
            durable >= next_seq
            and durable > highest
            and durable < read_i64_le(data, offset + 8)
            and not read_i32_le(data, offset + 20)
            and frame_at(content, offset, salt_at(content, offset)) is not None
        ):
            highest = durable
        offset += 1
    return highest


@mypyc_attr(acyclic=True)
class SegmentReport:
    """What was found intact in one segment."""

    __slots__ = ("base", "created", "durable", "end", "first_seq", "frames", "name", "records")

    def __init__(self, name: str, header: SegmentHeader) -> None:
        self.name = name
        self.base = header.base
        self.created = header.created
        self.first_seq = header.first_seq
        self.durable = header.durable  # highest sequence number that it says was durable
        self.frames: i64 = 0
        self.records: i64 = 0
        self.end: i64 = SEGMENT_HEADER_BYTES  # offset behind the last intact frame

    def last_seq(self) -> i64:
        return self.first_seq + self.records - 1


@mypyc_attr(acyclic=True)
class RecoveryReport:
    """What recovery did, for the log line at the start."""

    __slots__ = ("bytes", "last_time", "records", "seconds", "segments", "torn_at", "torn_bytes")

    def __init__(self) -> None:
        self.segments: i64 = 0
        self.records: i64 = 0
        self.bytes: i64 = 0
        self.seconds: float = 0.0
        self.torn_bytes: i64 = 0  # that were cut off: no client was answered about them
        self.torn_at = ""  # file and offset where that was
        self.last_time: i64 = 0  # of the last record


def ignore_segment(_: SegmentReport) -> None:
    """Ignore the progress."""


class _SegmentPrefetch:
    """A segment that is read in a thread, while the records of the one before it are applied."""

    def __init__(self, directory: Disk, name: str) -> None:
        self._directory = directory
        self._name = name
        self._content: SegmentBytes | None = None
        self._failure: Exception | None = None
        self._worker = Thread(target=self._read)
        self._worker.start()

    def _read(self) -> None:
        try:
            self._content = read_segment(self._directory, self._name)
        except Exception as error:
            self._failure = error

    def content(self) -> SegmentBytes:
        self._worker.join()
        if self._failure is not None:
            raise self._failure
        assert self._content is not None
        return self._content

    def wait(self) -> None:
        """Wait for a read that is not wanted: nothing may run on in the background."""
        self._worker.join()


class Recovery:
    """One pass over the journal. `run` only reads; `truncate_and_sync` makes the disk what was
    read.
    """

    def __init__(
        self,
        directory: Disk,
        identity: Identity,
        state: State,
        on_segment: Callable[[SegmentReport], None] = ignore_segment,
    ) -> None:
        self.directory = directory
        self.identity = identity
        self.state = state
        self.on_segment = on_segment  # called after each segment
        self.segments: list[SegmentReport] = []
        self.end: i64 = 0  # position behind the last intact frame
        self.next_seq: i64 = 1
        self.durable: i64 = 0  # highest sequence number that anything says was durable
        self.torn_bytes: i64 = 0
        self.torn_at = ""
        self.segments_behind: list[str] = []  # segments that begin behind the torn end
        self.has_excess_bytes = False  # the last segment is longer than what is intact in it
        self.forced_start: i64 = -1  # where to begin, if not where the journal says: for a repair
        self.replay_start: i64 = 0  # where the replay began
        self.retained: list[SegmentHeader] = []  # segments before that, kept for readers
        self.frames = FrameIndex()
        self._decoder = Decoder(blobs=False)

    def run(self) -> None:
        """Apply all that is intact to the state, or raise JournalCorrupt."""
        names = self._select_segments(segment_names(self.directory))
        reading = _SegmentPrefetch(self.directory, names[0]) if names else None
        try:
            for index, name in enumerate(names):
                assert reading is not None
                content = reading.content()
                later = names[index + 1 :]
                reading = _SegmentPrefetch(self.directory, later[0]) if later else None
                if not self._apply_segment(name, content, later):
                    break
        finally:
            if reading is not None:
                reading.wait()
        self._check_extent(names)
        if self.state.is_partial_replay:
            first = self.segments[0].first_seq if self.segments else self.next_seq
            name = names[0] if names else segment_name(self.replay_start)
            reason = f"{self.replay_start} bytes before it are missing"
            if not names:
                reason = f"no segment is there, but there were {self.replay_start} bytes of them"
            raise JournalIncomplete(name, 0, first, reason)

    def _check_extent(self, names: list[str]) -> None:
        """What an earlier start has seen, or a repair has left, must be there."""
        reach = self.identity.extent
        if self.end >= reach.end or not names:
            return
        reason = f"the journal ends there, but went on up to byte {reach.end} of all segments"
        if self.segments:
            last = self.segments[-1]
            raise JournalCorrupt(last.name, last.end, self.next_seq, reason)
        raise JournalCorrupt(names[0], 0, self.next_seq, reason)

    def _select_segments(self, names: list[str]) -> list[str]:
        """Return the segments to be replayed: those from the recovery base on.

        The newest segment has the base of when it was made. Segments may have been removed since;
        then a replay can start at the first that is left, and a checkpoint further on says so.
        """
        if not names:
            self._begin_without_segments()
            return names
        recorded = self._recorded_base(names)
        base = base_of(names[0])
        if self.forced_start >= 0:
            base = self.forced_start
        elif base <= recorded:
            for name in names:
                if base_of(name) <= recorded:
                    base = base_of(name)
        if not base:
            return names
        kept = [name for name in names if base_of(name) < base]
        if kept:
            self._retain(kept, names[len(kept)] if len(kept) < len(names) else kept[-1])
        self.replay_start = base
        begin_partial_replay(self.state, base)
        return names[len(kept) :]

    def _begin_without_segments(self) -> None:
        """A journal without segments: a new one, unless it is known to have had some."""
        reach = self.identity.extent
        if not reach.end:
            return
        self.replay_start = self.end = reach.end
        self.next_seq = reach.last_seq + 1
        begin_partial_replay(self.state, reach.end)

    def _retain(self, names: list[str], after: str) -> None:
        """Keep segments that only readers want: damage in them is for the readers to find.

        One whose header is damaged counts as if it were empty.
        """
        first_seq: i64 = 0
        created: i64 = 0
        retained: list[SegmentHeader] = []
        for name in [after, *reversed(names)]:
            header = SegmentHeader(self.identity.timeline, base_of(name), first_seq, 0, created, 0)
            with contextlib.suppress(BadHeader):
                header = self._header(name)
            first_seq = header.first_seq
            created = header.created
            retained.append(header)
        self.retained = retained[:0:-1]

    def _recorded_base(self, names: list[str]) -> i64:
        for name in reversed(names):
            try:
                return self._header(name).recovery_base
            except BadHeader:
                continue  # of a segment that a crash kept from being made, or damaged
        return 0

    def _header(self, name: str) -> SegmentHeader:
        file = self.directory.view(name)
        try:
            return parse_header(
                SegmentBytes(file.read_at(0, SEGMENT_HEADER_BYTES), SEGMENT_HEADER_BYTES)
            )
        finally:
            file.close()

    def report(self) -> RecoveryReport:
        report = RecoveryReport()
        report.segments = len(self.segments)
        for segment in self.segments:
            report.records += segment.records
            report.bytes += segment.end
        report.torn_bytes = self.torn_bytes
        report.torn_at = self.torn_at
        report.last_time = self.state.time
        return report

    def truncate_and_sync(self) -> None:
        """Cut off what is torn, and sync everything that was read.

        Segments behind it are removed first: if the cut were made before, a crash in between would
        leave a gap that looks like a missing segment.
        """
        for name in reversed(self.segments_behind):
            self.directory.remove(name)
        if self.segments_behind:
            self.directory.sync()
        for segment in self.segments:
            last = segment is self.segments[-1]
            if segment.last_seq() > self.durable or (last and self.has_excess_bytes):
                self._sync(segment, last)
        if self.segments and not self.segments[-1].frames:
            self.directory.remove(self.segments.pop().name)
        self.directory.sync()

    def _sync(self, segment: SegmentReport, last: bool) -> None:
        """A killed server may have written what it never synced, and we are about to rely on."""
        file = self.directory.open(segment.name)
        try:
            if last and self.has_excess_bytes:
                file.truncate(segment.end)
            file.sync()
        finally:
            file.close()

    def _apply_segment(self, name: str, content: SegmentBytes, later: list[str]) -> bool:
        """Apply one segment; false if the journal ends in it."""
        try:
            header = parse_header(content)
        except BadHeader as error:
            self._end_at_bad_header(name, content, later, str(error))
            return False
        self._check_header(name, header)
        segment = SegmentReport(name, header)
        self.segments.append(segment)
        self.durable = max(self.durable, header.durable)
        self._apply_frames(content, header, segment)
        self.end = segment.base + (segment.end if segment.frames else 0)
        complete = self._is_complete(content, header, segment, later)
        self.on_segment(segment)
        return complete

    def _check_header(self, name: str, header: SegmentHeader) -> None:
        """This segment continues where the one before it ended."""
        if header.base != base_of(name):
            raise JournalCorrupt(
                name, 0, header.first_seq, f"its header is that of position {header.base}"
            )
        if not self.segments:
            self.next_seq = header.first_seq
        if header.first_seq != self.next_seq:
            raise JournalCorrupt(
                name, 0, self.next_seq, f"it begins with record {header.first_seq} instead"
            )
        if header.timeline != self.identity.timeline_at(header.base):
            raise JournalCorrupt(
                name,
                0,
                header.first_seq,
                f"it is of timeline {header.timeline.hex()}, so it belongs to another journal",
            )

    def _apply_frames(
        self, content: SegmentBytes, header: SegmentHeader, segment: SegmentReport
    ) -> None:
        """Check and apply the intact frames, one after the other."""
        salt = header.salt
        while True:
            frame = frame_at(content, segment.end, salt)
            if frame is None:
                return
            if frame.first_seq != self.next_seq:
                raise JournalCorrupt(
                    segment.name,
                    segment.end,
                    self.next_seq,
                    f"record {frame.first_seq} stands there instead",
                )
            self.frames.add(segment.base + frame.offset, segment.base + frame.end)
            self._apply_frame(content, frame, segment)
            self.next_seq += frame.count
            self.durable = max(self.durable, frame.durable)
            segment.durable = max(segment.durable, frame.durable)
            segment.frames += 1
            segment.records += frame.count
            segment.end = frame.end

    def _apply_frame(self, content: SegmentBytes, frame: Frame, segment: SegmentReport) -> None:
        decoder = self._decoder
        data = content.data
        state = self.state
        base = segment.base
        at = frame.body
        seq = frame.first_seq
        end = seq + frame.count
        try:
            while seq < end:
                record = decoder.read(data, at, base)
                record.seq = seq
                apply_record(state, record)
                at = decoder.next_at
                seq += 1
            if at != frame.end:
                raise CorruptRecord("its frame has another length than its records")
        except UnknownRecord as unknown:
            raise JournalTooNew(segment.name, f"record {seq} has an {unknown}") from unknown
        except CorruptRecord as error:
            raise JournalCorrupt(
                segment.name,
                frame.offset,
                frame.first_seq,
                f"record {seq} of that frame makes no sense: {error}",
            ) from error

    def _is_complete(
        self, content: SegmentBytes, header: SegmentHeader, segment: SegmentReport, later: list[str]
    ) -> bool:
        """Whether the segment ends where its frames end; if not, that is the torn end."""
        size = content.size
        end = segment.end
        if later:
            wanted = base_of(later[0]) - segment.base
            if end == wanted:
                return True
            if end > wanted:
                raise JournalCorrupt(
                    later[0], 0, self.next_seq, f"it overlaps {segment.name}, the one before it"
                )
            if end == size:
                raise JournalCorrupt(
                    segment.name, end, self.next_seq, "the segment that follows it is missing"
                )
        self.has_excess_bytes = size > end
        if header.recycled:
            written = torn_end(content, end, header.salt)
        else:
            written = written_end(content, end)
        if written > end or later:
            self._check_not_durable(segment.name, content, end, written, header, later)
            self._note_torn_end(segment.name, end, written - end, later)
        return False

    def _end_at_bad_header(
        self, name: str, content: SegmentBytes, later: list[str], reason: str
    ) -> None:
        """A segment without a header: one that a crash kept from being made, or a damaged one.

        The next one is only begun when the header of this one is on disk.
        """
        if not later and is_recycled_file(content.data):
            self.segments_behind = [name]  # a recycled file that got its name and nothing else
            return
        if later or is_first_frame_intact(content):
            raise JournalCorrupt(name, 0, self.next_seq, reason)
        written = written_end(content, 0)
        self._check_not_durable(name, content, 0, written, None, later)
        self._note_torn_end(name, 0, written, [name])

    def _check_not_durable(
        self,
        name: str,
        content: SegmentBytes,
        end: i64,
        written: i64,
        header: SegmentHeader | None,
        later: list[str],
    ) -> None:
        """Raise JournalCorrupt if the records that should stand at `end` had been durable."""
        durable = max(
            highest_durable_behind(content, end, written, header, self.next_seq),
            highest_durable_in(self.directory, later, self.next_seq),
        )
        if not durable:
            return
        reason = f"no intact frame stands there, though record {durable} was durable later"
        if later and written == end:
            reason = f"the segment that follows it is missing, or its own end: {reason}"
        raise JournalCorrupt(name, end, self.next_seq, reason)

    def _note_torn_end(self, name: str, end: i64, torn: i64, behind: list[str]) -> None:
        self.torn_at = f"{name}, byte {end}"
        self.torn_bytes = torn
        self.segments_behind = behind


# The garbage collector while a journal is replayed: out of the way


class GarbageCollectionPaused:
    """Nothing is collected in its block; objects that exist at its end are never checked again."""

    def __enter__(self) -> None:
        gc.disable()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is None:
            gc.freeze()
        gc.enable()
