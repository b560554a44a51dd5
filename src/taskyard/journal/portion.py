"""Old records of a journal that is being written, read a chunk at a time, off the loop.

The server itself reads here, for listeners that want past events: it knows what is durable. A chunk
is bounded in records and in bytes read, and says where the next one continues, so that nothing has
to stay open or in memory between two of them.
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64

from taskyard.engine.model.errors import CorruptRecord
from taskyard.engine.records.decode import Decoder, kind_at, record_end
from taskyard.engine.records.job_lifecycle import FIRST_SNAPSHOT, Record
from taskyard.journal.disk import Disk, File
from taskyard.journal.errors import JournalCorrupt, SegmentRemoved
from taskyard.journal.frames import (
    FRAME_HEADER_BYTES,
    Frame,
    SegmentBytes,
    frame_at,
    frame_length,
    salt_at,
)
from taskyard.journal.reader import JournalReader
from taskyard.journal.segment import SEGMENT_HEADER_BYTES, SegmentHeader, segment_name

_READ_BYTES: Final = 262_144  # read at once; a frame that is longer is read whole
_MAX_BYTES_READ: Final = 4 * 1_048_576


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


class JournalChunk:
    """To be run in a thread; then `records` and `next_seq` say what was found."""

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
