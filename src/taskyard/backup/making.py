"""Makes a backup: copies what a replay needs, replays the copy, and only then writes the manifest.

Segments that are full never change, so one that was copied need not be copied again when others are
removed before they were copied: then the journal begins later, and less of it is needed.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Final

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
from taskyard.backup.source import BackupExtent, BackupSource, SegmentRange
from taskyard.engine.model.state import EngineSettings, State
from taskyard.journal.collector import GarbageCollectionPaused
from taskyard.journal.disk import Disk, File
from taskyard.journal.errors import JournalIncomplete, SegmentRemoved
from taskyard.journal.identity import Identity
from taskyard.journal.recovery import Recovery

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
