"""What is in a journal's segments, counted without applying anything: for `taskyard journal`.

Segments that are only kept for readers are checked too, and damage in them is reported.
"""

from __future__ import annotations

from librt.strings import read_i64_le
from mypy_extensions import i64

from taskyard.engine.model.errors import CorruptRecord
from taskyard.engine.records.decode import SIZE_PREFIX_BYTES, kind_at, record_end
from taskyard.engine.records.job_lifecycle import FIRST_SNAPSHOT
from taskyard.journal.disk import Disk
from taskyard.journal.frames import Frame, SegmentBytes, frame_at
from taskyard.journal.recovery import Recovery, SegmentReport
from taskyard.journal.segment import (
    SEGMENT_HEADER_BYTES,
    BadHeader,
    SegmentHeader,
    parse_header,
    read_segment,
    segment_name,
)


class JournalStats:
    """`collect` reads all segments once more after a recovery has run."""

    def __init__(self, directory: Disk, recovery: Recovery, wanted: list[int]) -> None:
        """`wanted`: sequence numbers whose positions are to be found."""
        self.kinds: dict[int, int] = {}  # records of each kind
        self.snapshots: i64 = 0  # from the recovery base on
        self.snapshot_bytes: i64 = 0
        self.positions: dict[int, int] = {}  # of those that were wanted and exist
        self.first_seq: i64 = 0  # of the first record that is there
        self.first_time: i64 = 0
        self.retained: list[SegmentReport] = []
        self.damage: list[str] = []  # damage in segments that only readers want
        self._directory = directory
        self._recovery = recovery
        self._wanted = sorted(set(wanted))
        self._counts_retained = False

    def collect(self) -> None:
        """Count; OSError if a segment was removed by a server that runs beside."""
        recovery = self._recovery
        self._counts_retained = True
        for index, header in enumerate(recovery.retained):
            later = recovery.retained[index + 1 :]
            self._count_retained(header, later[0].base if later else recovery.replay_start)
        self._counts_retained = False
        for segment in recovery.segments:
            content = read_segment(self._directory, segment.name)
            self._count(content, parse_header(content), segment.end, None)

    def _count_retained(self, known: SegmentHeader, after: i64) -> None:
        name = segment_name(known.base)
        content = read_segment(self._directory, name)
        try:
            header = parse_header(content)
        except BadHeader as error:
            self.damage.append(f"{name} is damaged at byte 0: {error}")
            return
        report = SegmentReport(name, header)
        self.retained.append(report)
        end = self._count(content, header, after - known.base, report)
        if header.base + end != after:
            self.damage.append(f"{name} is damaged at byte {end}: no intact frame stands there")

    def _count(
        self, content: SegmentBytes, header: SegmentHeader, end: i64, report: SegmentReport | None
    ) -> i64:
        """Count the frames up to an offset; gives the one behind the last that is intact."""
        offset: i64 = SEGMENT_HEADER_BYTES
        seq = header.first_seq
        while offset < end:
            frame = frame_at(content, offset, header.salt)
            if frame is None or frame.first_seq != seq:
                break
            try:
                self._count_frame(content.data, frame, header.base)
            except CorruptRecord:
                break
            seq += frame.count
            offset = frame.end
            if report is not None:
                report.frames += 1
                report.records += frame.count
                report.end = offset
        return offset

    def _count_frame(self, data: bytes, frame: Frame, base: i64) -> None:
        if not self.first_seq:
            self.first_seq = frame.first_seq
            record_end(data, frame.body, frame.end)
            self.first_time = read_i64_le(
                data, frame.body + SIZE_PREFIX_BYTES + 2
            )  # behind kind and version
        wanted = self._wanted
        while wanted and wanted[0] < frame.first_seq:
            wanted.pop(0)  # it is not there any more
        next_wanted: i64 = wanted[0] if wanted else -1
        kinds = self.kinds
        at = frame.body
        seq = frame.first_seq
        while at < frame.end:
            size = record_end(data, at, frame.end) - at
            kind = kind_at(data, at)
            kinds[kind] = kinds.get(kind, 0) + 1
            if kind >= FIRST_SNAPSHOT and not self._counts_retained:
                self.snapshots += 1
                self.snapshot_bytes += size
            if seq == next_wanted:
                self.positions[seq] = base + at
                wanted.pop(0)
                next_wanted = wanted[0] if wanted else -1
            at += size
            seq += 1
