"""Reads a journal without applying its records.

JournalReader needs no server, JournalChunk reads old records for the server's own listeners, and
SegmentRead reads the bytes of a segment for readers elsewhere.
"""

from __future__ import annotations

import errno
from collections.abc import Iterator
from typing import Final

from mypy_extensions import i64, mypyc_attr

from taskyard.engine.model.events import CorruptRecord, UnknownRecord
from taskyard.engine.records.decode import Decoder, kind_at, record_end
from taskyard.engine.records.job_lifecycle import FIRST_SNAPSHOT, Record
from taskyard.journal.disk import Disk, File
from taskyard.journal.errors import JournalCorrupt, JournalTooNew, RecordsRemoved, SegmentRemoved
from taskyard.journal.format import (
    FRAME_HEADER_BYTES,
    SEGMENT_HEADER_BYTES,
    BadHeader,
    Frame,
    SegmentBytes,
    SegmentHeader,
    frame_at,
    frame_length,
    parse_header,
    read_segment,
    salt_at,
    segment_name,
    segment_names,
    written_end,
)
from taskyard.journal.recovery import highest_durable_behind, highest_durable_in
from taskyard.journal.writer import Journal

# Records of the files

_NO_END: Final = 0x7FFF_FFFF_FFFF_FFFF
_MAX_ATTEMPTS: Final = 3  # at a frame that may just be being written, until it counts as damaged


class JournalReader:
    """Reads records out of a journal's files, without a server: for dumps, checks and readers of
    events.

    It reads the directory as it was when the reader was made, and what is written after that. It
    may read beside a server that writes: then it gives only what the files themselves say is
    durable.
    """

    def __init__(self, directory: Disk, blobs: bool = False, live: bool = False) -> None:
        """`blobs`: with the records' blobs. `live`: a server may be writing it now."""
        self.directory = directory
        self.live = live
        self.next_seq: i64 = 1  # where to continue: behind all that was returned or left out
        self._decoder = Decoder(blobs)

    def segments(self, from_seq: i64 = 0) -> list[SegmentHeader]:
        """Return the headers of the segments from the one with record `from_seq` on, in order.

        One that is being made is left out. Those before it are not read, so damage in them does not
        stop a reader that has passed them.
        """
        headers: list[SegmentHeader] = []
        names = segment_names(self.directory)
        for name in reversed(names):
            try:
                header = self._header(name)
            except FileNotFoundError:
                if not headers:
                    raise SegmentRemoved(name) from None
                break  # it was removed from the head, after those before it
            except BadHeader as error:
                if name == names[-1]:
                    continue
                if name not in self.directory.names():
                    break  # it was just being recycled
                raise JournalCorrupt(name, 0, 0, str(error)) from error
            headers.append(header)
            if header.first_seq <= from_seq:
                break
        headers.reverse()
        return headers

    def _header(self, name: str) -> SegmentHeader:
        file = self.directory.view(name)
        try:
            return parse_header(
                SegmentBytes(file.read_at(0, SEGMENT_HEADER_BYTES), SEGMENT_HEADER_BYTES)
            )
        finally:
            file.close()

    def durable(self) -> i64:
        """The last sequence number that the files say is durable.

        They lag behind: what was synced last is only known from the frame after it.
        """
        headers = self.segments(_NO_END)
        if not headers:
            return 0
        header = headers[-1]  # it knows all that those before it do
        frames = self._intact(self._content(header), header)
        return max(header.durable, frames[-1].durable) if frames else header.durable

    def read(self, from_seq: i64 = 0, snapshots: bool = False) -> Iterator[JournalEntry]:
        """Return the records from `from_seq` on, in order, up to the end or the last durable one.

        0: from the first one that is there. Snapshot records are no events, and left out unless
        requested. RecordsRemoved if the next one was removed.
        """
        upto: i64 = self.durable() if self.live else _NO_END
        headers = self.segments(from_seq)
        if not headers:
            return
        self.next_seq = from_seq if from_seq > 0 else headers[0].first_seq
        if self.next_seq < headers[0].first_seq:
            raise RecordsRemoved(self.next_seq, headers[0].first_seq)
        for index, header in enumerate(headers):
            if header.first_seq > upto:
                return
            after = headers[index + 1] if index + 1 < len(headers) else None
            content, frames = self._frames_unless_removed(header, after, upto)
            for frame in frames:
                if frame.last_seq() < from_seq:
                    continue
                for entry in self._entries(content, frame, header, snapshots):
                    if from_seq <= entry.seq <= upto:
                        self.next_seq = entry.seq + 1
                        yield entry
                self.next_seq = max(self.next_seq, min(frame.last_seq(), upto) + 1)

    def _frames_unless_removed(
        self, header: SegmentHeader, after: SegmentHeader | None, upto: i64
    ) -> tuple[SegmentBytes, list[Frame]]:
        """The same as _frames; RecordsRemoved if the segment was removed meanwhile."""
        try:
            return self._frames(header, after, upto)
        except SegmentRemoved:
            first = self.segments()[0].first_seq
            if first <= self.next_seq:
                raise
            raise RecordsRemoved(self.next_seq, first) from None

    def _frames(
        self, header: SegmentHeader, after: SegmentHeader | None, upto: i64
    ) -> tuple[SegmentBytes, list[Frame]]:
        """A segment's content and frames; JournalCorrupt if some are missing that were durable."""
        looks = _MAX_ATTEMPTS if self.live else 1
        while True:
            content = self._content(header)
            frames = self._intact(content, header)
            offset = frames[-1].end if frames else i64(SEGMENT_HEADER_BYTES)
            seq = frames[-1].last_seq() + 1 if frames else header.first_seq
            if seq > upto or (after is not None and seq == after.first_seq):
                return content, frames
            if not self._was_durable(content, header, offset, seq):
                return content, frames
            looks -= 1
            if not looks:
                self._content(header)
                name = segment_name(header.base)
                raise JournalCorrupt(name, offset, seq, "no intact frame stands there")

    def _content(self, header: SegmentHeader) -> SegmentBytes:
        """All of a segment, or SegmentRemoved if it was removed."""
        name = segment_name(header.base)
        try:
            content = read_segment(self.directory, name)
            found = parse_header(content)
        except FileNotFoundError as error:
            raise SegmentRemoved(name) from error
        except BadHeader:
            # Damaged, unless it was renamed to be used again after it had been opened.
            if name in self.directory.names():
                raise JournalCorrupt(name, 0, header.first_seq, "its header is damaged") from None
            raise SegmentRemoved(name) from None
        if found.salt != header.salt:
            raise SegmentRemoved(name)
        return content

    def _was_durable(
        self, content: SegmentBytes, header: SegmentHeader, offset: i64, seq: i64
    ) -> bool:
        later = [name for name in segment_names(self.directory) if name > segment_name(header.base)]
        if highest_durable_behind(content, offset, written_end(content, offset), header, seq):
            return True
        try:
            return highest_durable_in(self.directory, later, seq) > 0
        except FileNotFoundError as error:  # removed, and those before it too
            raise SegmentRemoved(segment_name(header.base)) from error

    def _intact(self, content: SegmentBytes, header: SegmentHeader) -> list[Frame]:
        """The frames of a segment up to the first that is not intact or not the next one."""
        frames: list[Frame] = []
        offset: i64 = SEGMENT_HEADER_BYTES
        seq = header.first_seq
        while True:
            frame = frame_at(content, offset, header.salt)
            if frame is None or frame.first_seq != seq:
                return frames
            frames.append(frame)
            offset = frame.end
            seq += frame.count

    def _entries(
        self, content: SegmentBytes, frame: Frame, header: SegmentHeader, snapshots: bool
    ) -> list[JournalEntry]:
        data = content.data
        decoder = self._decoder
        entries: list[JournalEntry] = []
        at = frame.body
        seq = frame.first_seq
        try:
            while seq <= frame.last_seq():
                after = record_end(data, at, frame.end)
                if snapshots or kind_at(data, at) < FIRST_SNAPSHOT:
                    record = decoder.read(data, at, header.base)
                    record.seq = seq
                    entries.append(JournalEntry(seq, header.base + at, record))
                at = after
                seq += 1
        except UnknownRecord as unknown:
            name = segment_name(header.base)
            raise JournalTooNew(name, f"record {seq} has an {unknown}") from unknown
        except CorruptRecord as error:
            name = segment_name(header.base)
            raise JournalCorrupt(name, frame.offset, seq, str(error)) from error
        return entries


@mypyc_attr(acyclic=True)
class JournalEntry:
    """A record and where it stands. `record.blob_at` is its blob's own position."""

    __slots__ = ("position", "record", "seq")

    def __init__(self, seq: i64, position: i64, record: Record) -> None:
        self.seq = seq
        self.position = position
        self.record = record


# Chunks of records beside the writer

_READ_BYTES: Final = 262_144  # read at once; a frame that is longer is read whole
_MAX_BYTES_READ: Final = 4 * 1_048_576


class JournalChunk:
    """Reads a chunk of old records of a journal that is being written, off the loop.

    The server itself reads here, for listeners that want past events: it knows what is durable. A
    chunk is bounded in records and in bytes read, and says where the next one continues, so that
    nothing has to stay open or in memory between two of them. To be run in a thread; then `records`
    and `next_seq` say what was found.
    """

    def __init__(
        self,
        directory: Disk,
        from_seq: i64,
        upto: i64,
        limit: i64,
        position: ChunkPosition | None,
        job: i64 = 0,
    ) -> None:
        """`upto`: the last durable record. `place`: where the previous chunk ended. `job`: only
        records that may be about this one, with their blobs; a few others that have the same bytes
        somewhere are among them.
        """
        self.records: list[Record] = []
        self.next_seq = from_seq  # all before it was given, or is no event
        self.position = position
        self.segment_removed = False  # a segment was removed meanwhile: try again
        self.damage = ""
        self._directory = directory
        self._upto = upto
        self._limit = limit
        self._bytes_left: i64 = _MAX_BYTES_READ
        self._decoder = Decoder(job > 0)
        # Its id as encoded in records: most frames are passed over because they lack these bytes.
        self._needle = int(job).to_bytes(8, "little") if job > 0 else b""

    def run(self) -> None:
        try:
            headers = JournalReader(self._directory, live=True).segments(self.next_seq)
            if headers and headers[0].first_seq > self.next_seq:
                self.segment_removed = True
                return
            for header in headers:
                if self._must_stop() or header.first_seq > self._upto:
                    return
                self._read(header)
        except (SegmentRemoved, FileNotFoundError):
            self.segment_removed = True
        except (JournalCorrupt, CorruptRecord) as error:
            self.damage = str(error)

    def _must_stop(self) -> bool:
        return self._is_full() or self._bytes_left <= 0

    def _is_full(self) -> bool:
        return self.next_seq > self._upto or len(self.records) >= self._limit

    def _read(self, header: SegmentHeader) -> None:
        file = self._directory.view(segment_name(header.base))
        try:
            self._read_frames(file, header)
        finally:
            file.close()

    def _read_frames(self, file: File, header: SegmentHeader) -> None:
        offset: i64 = SEGMENT_HEADER_BYTES
        seq = header.first_seq
        place = self.position
        if place is not None and place.is_for(header, self.next_seq):
            offset = place.offset
            seq = place.seq
        while not self._must_stop():
            data = file.read_at(offset, _READ_BYTES)
            if salt_at(SegmentBytes(data, len(data)), 0) == header.salt:
                length = frame_length(data, 0) + FRAME_HEADER_BYTES
                if length > len(data):
                    data = file.read_at(offset, length)
            self._bytes_left -= len(data)
            content = SegmentBytes(data, len(data))
            at: i64 = 0
            while not self._is_full():
                frame = frame_at(content, at, header.salt)
                if frame is None or frame.first_seq != seq:
                    break
                if not self._read_frame(data, frame, header.base + offset):
                    break  # the next chunk continues in this frame
                at = frame.end
                seq += frame.count
            self.position = ChunkPosition(header.base, header.salt, offset + at, seq)
            if not at and not self._is_full():
                self._check_end(header, offset, seq)
                return
            offset += at

    def _read_frame(self, data: bytes, frame: Frame, position: i64) -> bool:
        """Read the events of a frame; False if there was no room for all of them."""
        at = frame.body
        seq = frame.first_seq
        needle = self._needle
        if needle and data.find(needle, at, frame.end) < 0:
            self.next_seq = max(self.next_seq, min(frame.last_seq(), self._upto) + 1)
            return frame.last_seq() <= self._upto
        while seq <= frame.last_seq() and seq <= self._upto:
            after = record_end(data, at, frame.end)
            if seq >= self.next_seq:
                if len(self.records) >= self._limit:
                    return False
                if kind_at(data, at) < FIRST_SNAPSHOT and self._may_be_wanted(data, at, after):
                    record = self._decoder.read(data, at, position)
                    record.seq = seq
                    self.records.append(record)
                self.next_seq = seq + 1
            at = after
            seq += 1
        return seq > frame.last_seq()

    def _may_be_wanted(self, data: bytes, at: i64, after: i64) -> bool:
        needle = self._needle
        return not needle or data.find(needle, at, after) >= 0

    def _check_end(self, header: SegmentHeader, offset: i64, seq: i64) -> None:
        """There is no frame here: the segment ends, and the next one begins with that record."""
        headers = JournalReader(self._directory, live=True).segments(header.first_seq)
        if not headers or headers[0].salt != header.salt:
            raise SegmentRemoved(segment_name(header.base))
        if len(headers) < 2 or headers[1].first_seq != seq:
            name = segment_name(header.base)
            raise JournalCorrupt(name, offset, seq, "no intact frame stands there")


class ChunkPosition:
    """Where the frame begins that record `seq` is in or behind."""

    __slots__ = ("base", "offset", "salt", "seq")

    def __init__(self, base: i64, salt: i64, offset: i64, seq: i64) -> None:
        self.base = base
        self.salt = salt
        self.offset = offset
        self.seq = seq  # the first record of that frame

    def is_for(self, header: SegmentHeader, seq: i64) -> bool:
        return self.base == header.base and self.salt == header.salt and self.seq <= seq


# Bytes of durable segments


@mypyc_attr(acyclic=True)
class DurableSegment:
    """What is durable of one segment: only whole frames, whatever replies wait for."""

    __slots__ = ("base", "created", "first_seq", "last_seq", "size", "timeline")

    def __init__(
        self, base: i64, first_seq: i64, last_seq: i64, size: i64, timeline: bytes, created: i64
    ) -> None:
        self.base = base
        self.first_seq = first_seq
        self.last_seq = last_seq
        self.size = size  # bytes from its beginning on, with the header
        self.timeline = timeline
        self.created = created


def durable_segments_from(journal: Journal, seq: i64) -> list[DurableSegment]:
    """The segments from that on which has record `seq`, as far as they are durable."""
    found: list[DurableSegment] = []
    base = journal.first_base
    while True:
        span = durable_segment(journal, base)
        if span is None:
            return found
        if span.last_seq >= seq:
            found.append(span)
        base = journal.next_base(base)
        if not base:
            return found


def durable_segment(journal: Journal, base: i64) -> DurableSegment | None:
    """None: nothing of it is durable yet. The segment must be there."""
    first_seq = journal.first_seq_of(base)
    last_seq = journal.durable_seq
    if last_seq < first_seq:
        return None
    size = journal.durable - base
    after = journal.next_base(base)
    if after:
        size = min(size, after - base)
        last_seq = min(last_seq, journal.first_seq_of(after) - 1)
    timeline = journal.identity.timeline_at(base)
    return DurableSegment(base, first_seq, last_seq, size, timeline, journal.created_of(base))


class SegmentRead:
    """Bytes of a segment: `run` may run in another thread, then `data` has them.

    Without data `segment_removed` is set, or the disk could not be read. A segment may be removed,
    and its file used again for another one, while it is read: then nothing of it is returned.
    """

    __slots__ = ("_directory", "_end", "_segment", "_start", "data", "segment_removed")

    def __init__(self, directory: Disk, span: DurableSegment, start: i64, end: i64) -> None:
        self.data: bytes | None = None
        self.segment_removed = False
        self._directory = directory
        self._segment = span
        self._start = start  # in the segment
        self._end = end

    def run(self) -> None:
        try:
            file = self._directory.view(segment_name(self._segment.base))
        except FileNotFoundError:
            self.segment_removed = True
            return
        try:
            self._read(file)
        finally:
            file.close()

    def _read(self, file: File) -> None:
        """Check the header on both sides of the read: a file that is used again loses it before
        anything else in it is overwritten.
        """
        before = file.read_at(0, SEGMENT_HEADER_BYTES)
        data = file.read_at(self._start, self._end - self._start)
        if not self._is_header(before) or file.read_at(0, SEGMENT_HEADER_BYTES) != before:
            self.segment_removed = True
        elif len(data) < self._end - self._start:
            name = segment_name(self._segment.base)
            raise OSError(errno.EIO, f"{name} is shorter than it was")
        else:
            self.data = data

    def _is_header(self, data: bytes) -> bool:
        try:
            header = parse_header(SegmentBytes(data, len(data)))
        except BadHeader:
            return False
        span = self._segment
        return (
            header.base == span.base
            and header.first_seq == span.first_seq
            and header.timeline == span.timeline
        )
