"""Makes a backup: copies what a replay needs, replays the copy, and only then writes the manifest.

Segments that are full never change, so one that was copied need not be copied again when others are
removed before they were copied: then the journal begins later, and less of it is needed.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Final, Protocol

from taskyard import __version__
from taskyard.backup.errors import BadBackup, JournalCompactedTooFast
from taskyard.backup.manifest import (
    FORMAT,
    SEGMENTS,
    Manifest,
    SegmentEntry,
    identity_entry,
    write_manifest,
)
from taskyard.engine.model.state import EngineSettings, State
from taskyard.journal.disk import Disk, File
from taskyard.journal.errors import JournalCorrupt, JournalError, JournalIncomplete, SegmentRemoved
from taskyard.journal.format import (
    SEGMENT_HEADER_BYTES,
    BadHeader,
    Frame,
    SegmentBytes,
    SegmentHeader,
    frame_at,
    parse_header,
    read_segment,
    segment_name,
    segment_names,
    written_end,
)
from taskyard.journal.identity import JOURNAL, BadIdentity, Identity, load_identity
from taskyard.journal.recovery import (
    GarbageCollectionPaused,
    Recovery,
    highest_durable_behind,
    highest_durable_in,
)

# Where a backup is copied from: the extent of a journal at one moment, and its bytes

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


CHUNK_BYTES: Final = 1 << 20
_MAX_ATTEMPTS: Final = 20  # in which segments may be removed before they were copied


def ignore_progress(_: int) -> None:
    """Ignore the progress."""


def make_backup(
    source: BackupSource, disk: Disk, now: int, on_copied: Callable[[int], None] = ignore_progress
) -> Manifest:
    """Fill the empty directory `disk`; `on_copied` is called with the bytes of each chunk."""
    copy = _SegmentCopy(source, disk.directory(SEGMENTS), on_copied)
    for _ in range(_MAX_ATTEMPTS):
        look = source.read_extent()
        try:
            copy.copy_extent(look)
            recovery = replay_copy(copy.directory, look.identity, look.end, look.last_seq)
        except (SegmentRemoved, JournalIncomplete):
            continue  # a segment was removed meanwhile, or a later record replaces what was
        manifest = _make_manifest(look, recovery, copy, now)
        disk.sync()
        write_manifest(disk, manifest)
        return manifest
    raise JournalCompactedTooFast


def replay_copy(directory: Disk, identity: Identity, end: int, last_seq: int) -> Recovery:
    """Check every frame and apply all records; they must end exactly there."""
    recovery = Recovery(directory, identity, State(EngineSettings()))
    with GarbageCollectionPaused():
        recovery.run()
    if (recovery.end, recovery.next_seq - 1) != (end, last_seq) or recovery.torn_at:
        raise BadBackup(
            f"the copy ends with record {recovery.next_seq - 1} at byte {recovery.end}, and not "
            f"with record {last_seq} at byte {end}"
        )
    return recovery


class _SegmentCopy:
    """The segments that were copied, and their sizes and checksums."""

    def __init__(
        self, source: BackupSource, directory: Disk, on_copied: Callable[[int], None]
    ) -> None:
        self.directory = directory
        self.parts: dict[str, SegmentEntry] = {}
        self._source = source
        self._on_copied = on_copied

    def copy_extent(self, extent: BackupExtent) -> None:
        """Copy exactly the segments of `extent`, each synced to disk."""
        wanted = {segment.name: segment for segment in extent.segments}
        for name, part in list(self.parts.items()):
            if name not in wanted or wanted[name].size != part.bytes:
                self.directory.remove(name)
                del self.parts[name]
        self._source.retain_extent(extent)
        for name, segment in wanted.items():
            if name not in self.parts:
                self._copy_segment(extent, segment)
        self.directory.sync()

    def _copy_segment(self, extent: BackupExtent, segment: SegmentRange) -> None:
        file = self.directory.create(segment.name, 0)
        try:
            digest = self._copy_bytes(file, extent, segment)
            file.sync()
        except SegmentRemoved:
            self.directory.remove(segment.name)
            raise
        finally:
            file.close()
        self.parts[segment.name] = SegmentEntry(segment.name, segment.size, digest)

    def _copy_bytes(self, file: File, extent: BackupExtent, segment: SegmentRange) -> str:
        digest = hashlib.sha256()
        at = 0
        while at < segment.size:
            self._source.retain_extent(extent)
            data = self._source.read_bytes(segment, at, min(at + CHUNK_BYTES, segment.size))
            if not data:
                raise BadBackup(f"{segment.name} ends at byte {at}, and not at {segment.size}")
            file.write_at(at, [data])
            digest.update(data)
            at += len(data)
            self._on_copied(len(data))
        return digest.hexdigest()


def _make_manifest(
    extent: BackupExtent, recovery: Recovery, copy: _SegmentCopy, now: int
) -> Manifest:
    state = recovery.state
    parts = [copy.parts[segment.name] for segment in extent.segments]
    first_seq = extent.segments[0].first_seq
    return Manifest(
        format=FORMAT,
        version=__version__,
        made=now,
        timeline=extent.identity.timeline.hex(),
        first_seq=first_seq,
        last_seq=extent.last_seq,
        end=extent.end,
        records=extent.last_seq - first_seq + 1,
        jobs=int(state.jobs.size) - len(state.finished_ring),
        epoch=int(state.epoch),
        next_id=int(state.next_id),
        bytes=sum(part.bytes for part in parts),
        identity=identity_entry(extent.identity),
        segments=parts,
    )
