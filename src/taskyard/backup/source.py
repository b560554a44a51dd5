"""Where a backup is copied from: the extent of a journal at one moment, and its bytes.

The server may write on meanwhile, and may remove a segment at any time; SegmentRemoved then.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from itertools import pairwise
from typing import Final, Protocol

from taskyard.journal.disk import Disk, File
from taskyard.journal.errors import JournalCorrupt, JournalError, SegmentRemoved
from taskyard.journal.evidence import highest_durable_behind, highest_durable_in
from taskyard.journal.frames import Frame, SegmentBytes, frame_at, written_end
from taskyard.journal.identity import JOURNAL, BadIdentity, Identity, load_identity
from taskyard.journal.segment import (
    SEGMENT_HEADER_BYTES,
    BadHeader,
    SegmentHeader,
    parse_header,
    read_segment,
    segment_name,
    segment_names,
)

_MAX_READS: Final = 3  # at a frame that may just be being written, until it counts as damaged


@dataclass(frozen=True, slots=True)
class SegmentRange:
    """A segment, or the first bytes of it, in whole frames."""

    base: int
    first_seq: int
    size: int

    @property
    def name(self) -> str:
        return str(segment_name(self.base))


@dataclass(frozen=True, slots=True)
class BackupExtent:
    """What a replay needs to reach the state after record `last_seq`."""

    identity: Identity
    segments: list[SegmentRange]  # in order; those that only readers want are left out
    last_seq: int

    @property
    def end(self) -> int:
        last = self.segments[-1]
        return last.base + last.size


class BackupSource(Protocol):
    def read_extent(self) -> BackupExtent:
        """Return the present extent."""

    def retain_extent(self, extent: BackupExtent) -> None:
        """Ask for this extent to be retained; called repeatedly during a copy."""

    def read_bytes(self, segment: SegmentRange, start: int, end: int) -> bytes:
        """Bytes of a segment, fewer only where it ends; SegmentRemoved if it is gone."""


def segments_for_replay(segments: list[SegmentRange], newest: SegmentHeader) -> list[SegmentRange]:
    """Those of a journal's segments that a replay reads, by what the newest header says."""
    first = 0
    for index, segment in enumerate(segments):
        if segment.base <= newest.recovery_base:
            first = index
    return segments[first:]


class DirectorySource:
    """A data directory on this machine, whether a server has it or not."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self._directory = disk.directory(JOURNAL)

    def read_extent(self) -> BackupExtent:
        identity = load_identity(self._disk)
        if identity is None:
            raise BadIdentity("is missing")
        headers, headless = self._replay_headers()
        if not headers:
            raise JournalError("the journal has no records yet, so there is nothing to back up")
        newest = headers[-1]
        frame = self._last_frame(newest, headless)
        segments = [
            SegmentRange(int(header.base), int(header.first_seq), int(after.base - header.base))
            for header, after in pairwise(headers)
        ]
        if frame is None:
            return BackupExtent(identity, segments, int(newest.first_seq) - 1)
        segments.append(SegmentRange(int(newest.base), int(newest.first_seq), int(frame.end)))
        return BackupExtent(identity, segments, int(frame.last_seq()))

    def _replay_headers(self) -> tuple[list[SegmentHeader], list[str]]:
        """Those of the segments that a replay reads; and a last segment that has none."""
        names = segment_names(self._directory)
        found: list[SegmentHeader] = []
        headless: list[str] = []
        for name in reversed(names):
            try:
                header = parse_header(read_header_bytes(self._directory, name))
            except FileNotFoundError as error:
                if not found:
                    raise SegmentRemoved(name) from error
                break  # it was removed from the head, after those before it
            except BadHeader as error:
                if name != names[-1]:
                    raise JournalCorrupt(name, 0, 0, str(error)) from error
                headless.append(name)  # a crash kept it from being made, or it is damaged
                continue
            found.insert(0, header)
            if header.base <= found[-1].recovery_base:
                break
        return found, headless

    def _last_frame(self, header: SegmentHeader, headless: list[str]) -> Frame | None:
        """Return the last intact frame of the newest segment; all before it are intact, too.

        What a server is just writing can look damaged, so it is checked again.
        """
        name = segment_name(header.base)
        looks = _MAX_READS
        while True:
            content = self._read_content(header)
            frame = _last_intact_frame(content, header)
            offset = frame.end if frame is not None else SEGMENT_HEADER_BYTES
            seq = frame.last_seq() + 1 if frame is not None else header.first_seq
            durable = max(
                highest_durable_behind(content, offset, written_end(content, offset), header, seq),
                highest_durable_in(self._directory, headless, seq),
            )
            if not durable:
                self._sync_segment(name)
                return frame
            looks -= 1
            if not looks:
                reason = f"no intact frame stands there, though record {durable} was durable later"
                raise JournalCorrupt(name, offset, seq, reason)

    def _read_content(self, header: SegmentHeader) -> SegmentBytes:
        name = segment_name(header.base)
        try:
            content = read_segment(self._directory, name)
            found = parse_header(content)
        except (FileNotFoundError, BadHeader) as error:
            raise SegmentRemoved(name) from error
        if found.salt != header.salt:
            raise SegmentRemoved(name)
        return content

    def _sync_segment(self, name: str) -> None:
        """Sync a segment that was read before it was durable. Where that cannot be done, it does
        not matter to the copy.
        """
        with contextlib.suppress(OSError):
            file = self._directory.view(name)
            try:
                file.sync()
            finally:
                file.close()

    def retain_extent(self, extent: BackupExtent) -> None:
        """Nothing retains it: the copy is quick, and starts again if a segment was dropped."""

    def read_bytes(self, segment: SegmentRange, start: int, end: int) -> bytes:
        try:
            file = self._directory.view(segment.name)
        except FileNotFoundError as error:
            raise SegmentRemoved(segment.name) from error
        try:
            return _read_checked(file, segment, start, end)
        finally:
            file.close()


def _last_intact_frame(content: SegmentBytes, header: SegmentHeader) -> Frame | None:
    last: Frame | None = None
    offset, seq = SEGMENT_HEADER_BYTES, int(header.first_seq)
    while (frame := frame_at(content, offset, header.salt)) is not None and frame.first_seq == seq:
        last = frame
        offset = int(frame.end)
        seq += int(frame.count)
    return last


def read_header_bytes(directory: Disk, name: str) -> SegmentBytes:
    file = directory.view(name)
    try:
        return SegmentBytes(file.read_at(0, SEGMENT_HEADER_BYTES), SEGMENT_HEADER_BYTES)
    finally:
        file.close()


def _read_checked(file: File, segment: SegmentRange, start: int, end: int) -> bytes:
    """Check the header after the read: a file that is used again loses it first."""
    data = file.read_at(start, end - start)
    head = file.read_at(0, SEGMENT_HEADER_BYTES)
    try:
        header = parse_header(SegmentBytes(head, len(head)))
    except BadHeader as error:
        raise SegmentRemoved(segment.name) from error
    if (header.base, header.first_seq) != (segment.base, segment.first_seq):
        raise SegmentRemoved(segment.name)
    return data
