"""Records out of a journal's files, without a server and without applying them.

For dumps, checks and readers of events. It may read beside a server that writes: then it gives
only what the files themselves say is durable.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from mypy_extensions import i64, mypyc_attr

from taskyard.engine.model.errors import CorruptRecord, UnknownRecord
from taskyard.engine.records.decode import Decoder, kind_at, record_end
from taskyard.engine.records.job_lifecycle import FIRST_SNAPSHOT, Record
from taskyard.journal.disk import Disk
from taskyard.journal.errors import JournalCorrupt, JournalTooNew, RecordsRemoved, SegmentRemoved
from taskyard.journal.evidence import highest_durable_behind, highest_durable_in
from taskyard.journal.frames import Frame, SegmentBytes, frame_at, written_end
from taskyard.journal.segment import (
    SEGMENT_HEADER_BYTES,
    BadHeader,
    SegmentHeader,
    parse_header,
    read_segment,
    segment_name,
    segment_names,
)

_NO_END: Final = 0x7FFF_FFFF_FFFF_FFFF
_MAX_ATTEMPTS: Final = 3  # at a frame that may just be being written, until it counts as damaged


@mypyc_attr(acyclic=True)
class JournalEntry:
    """A record and where it stands. `record.blob_at` is its blob's own position."""

    __slots__ = ("position", "record", "seq")

    def __init__(self, seq: i64, position: i64, record: Record) -> None:
        self.seq = seq
        self.position = position
        self.record = record


class JournalReader:
    """Reads the directory as it was when the reader was made, and what is written after that."""

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
