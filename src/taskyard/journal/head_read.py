"""Reading parts of old segments off the loop, for compaction."""

from __future__ import annotations

import errno

from mypy_extensions import i64

from taskyard.journal.disk import Disk, File
from taskyard.journal.frames import FRAME_HEADER_BYTES, Frame, SegmentBytes, frame_at, frame_length
from taskyard.journal.segment import SEGMENT_HEADER_BYTES, BadHeader, parse_header, segment_name


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
