"""Records out of a journal's files, without a server and without applying them.

For dumps, checks and readers of events. It may read beside a server that writes: then it gives
only what the files themselves say is durable.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from mypy_extensions import i64, mypyc_attr

from taskyard.engine.decode import Decoder
from taskyard.engine.errors import CorruptRecord
from taskyard.engine.records import Record
from taskyard.journal.disk import Disk
from taskyard.journal.errors import JournalCorrupt
from taskyard.journal.evidence import durable_behind, durable_later
from taskyard.journal.frames import Content, Frame, frame_at, written_end
from taskyard.journal.segment import (
    SEGMENT_HEADER,
    BadHeader,
    SegmentHeader,
    parse_header,
    read_segment,
    segment_name,
    segment_names,
)

_ALL: Final = 0x7FFF_FFFF_FFFF_FFFF
_LOOKS: Final = 3  # at a frame that may just be being written, until it counts as damaged


@mypyc_attr(acyclic=True)
class Entry:
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
        self._decoder = Decoder(blobs)

    def segments(self) -> list[SegmentHeader]:
        """The headers of all segments, in order; one that is being made is left out."""
        headers: list[SegmentHeader] = []
        names = segment_names(self.directory)
        for name in names:
            file = self.directory.view(name)
            try:
                headers.append(
                    parse_header(Content(file.read_at(0, SEGMENT_HEADER), SEGMENT_HEADER))
                )
            except BadHeader as error:
                if name != names[-1]:
                    seq = headers[-1].first_seq if headers else 0
                    raise JournalCorrupt(name, 0, seq, str(error)) from error
            finally:
                file.close()
        return headers

    def durable(self) -> i64:
        """The last sequence number that the files say is durable.

        They lag behind: what was synced last is only known from the frame after it.
        """
        highest: i64 = 0
        for header in reversed(self.segments()):
            highest = max(highest, header.durable)
            frames = self._intact(read_segment(self.directory, segment_name(header.base)), header)
            if frames:
                return max(highest, frames[-1].durable)
        return highest

    def read(self, from_seq: i64 = 1) -> Iterator[Entry]:
        """The records from `from_seq` on, in order, up to the end or the last durable one."""
        upto: i64 = self.durable() if self.live else _ALL
        headers = self.segments()
        for index, header in enumerate(headers):
            if header.first_seq > upto:
                return
            after = headers[index + 1] if index + 1 < len(headers) else None
            if after is not None and after.first_seq <= from_seq:
                continue
            content, frames = self._frames(header, after, upto)
            for frame in frames:
                if frame.last_seq() < from_seq:
                    continue
                for entry in self._entries(content, frame, header):
                    if from_seq <= entry.seq <= upto:
                        yield entry

    def _frames(
        self, header: SegmentHeader, after: SegmentHeader | None, upto: i64
    ) -> tuple[Content, list[Frame]]:
        """A segment's content and frames; JournalCorrupt if some are missing that were durable."""
        looks = _LOOKS if self.live else 1
        while True:
            content = read_segment(self.directory, segment_name(header.base))
            frames = self._intact(content, header)
            offset = frames[-1].end if frames else i64(SEGMENT_HEADER)
            seq = frames[-1].last_seq() + 1 if frames else header.first_seq
            if seq > upto or (after is not None and seq == after.first_seq):
                return content, frames
            if not self._was_durable(content, header, offset, seq):
                return content, frames
            looks -= 1
            if not looks:
                name = segment_name(header.base)
                raise JournalCorrupt(name, offset, seq, "no intact frame stands there")

    def _was_durable(self, content: Content, header: SegmentHeader, offset: i64, seq: i64) -> bool:
        later = [name for name in segment_names(self.directory) if name > segment_name(header.base)]
        return (
            durable_behind(content, offset, written_end(content, offset), header, seq) > 0
            or durable_later(self.directory, later, seq) > 0
        )

    def _intact(self, content: Content, header: SegmentHeader) -> list[Frame]:
        """The frames of a segment up to the first that is not intact or not the next one."""
        frames: list[Frame] = []
        offset: i64 = SEGMENT_HEADER
        seq = header.first_seq
        while True:
            frame = frame_at(content, offset, header.salt)
            if frame is None or frame.first_seq != seq:
                return frames
            frames.append(frame)
            offset = frame.end
            seq += frame.count

    def _entries(self, content: Content, frame: Frame, header: SegmentHeader) -> list[Entry]:
        decoder = self._decoder
        entries: list[Entry] = []
        at = frame.body
        seq = frame.first_seq
        try:
            while seq <= frame.last_seq():
                record = decoder.read(content.data, at, header.base)
                record.seq = seq
                entries.append(Entry(seq, header.base + at, record))
                at = decoder.next
                seq += 1
        except CorruptRecord as error:
            name = segment_name(header.base)
            raise JournalCorrupt(name, frame.offset, seq, str(error)) from error
        return entries
