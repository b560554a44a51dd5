"""The journal's files for readers elsewhere: which segments there are, and bytes of one.

Only what is durable, in whole frames, whatever replies wait for. A segment may be removed, and its
file used again for another one, while it is read: then nothing of it is returned.
"""

from __future__ import annotations

import errno

from mypy_extensions import i64, mypyc_attr

from taskyard.journal.disk import Disk, File
from taskyard.journal.frames import SegmentBytes
from taskyard.journal.journal import Journal
from taskyard.journal.segment import SEGMENT_HEADER_BYTES, BadHeader, parse_header, segment_name


@mypyc_attr(acyclic=True)
class DurableSegment:
    """What is durable of one segment."""

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

    Without data `segment_removed` is set, or the disk could not be read.
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
