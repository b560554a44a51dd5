"""Backups to test with: a simulated server that compacts, and sources that have it go on during a
copy.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from support.retaining import SEGMENT, RetainingYard, without_ring

from taskyard.backup.backup import BackupExtent, DirectorySource, SegmentRange, make_backup
from taskyard.backup.manifest import MANIFEST, SEGMENTS, Manifest
from taskyard.backup.restore import restore
from taskyard.journal.identity import Identity
from taskyard.journal.memory import MemoryDisk
from taskyard.journal.retention import RetentionLimits

NOW = 1_800_000_000_000_000


class BusySource(DirectorySource):
    """Something happens before each read of a copy; it knows the state at each of its looks."""

    def __init__(self, yard: RetainingYard, between: Callable[[], None]) -> None:
        super().__init__(yard.disk)
        self._yard = yard
        self._between = between
        self.states: list[tuple[int, dict[str, object]]] = []

    def read_extent(self) -> BackupExtent:
        self.states.append(state_of(self._yard))
        return super().read_extent()

    def read_bytes(self, segment: SegmentRange, start: int, end: int) -> bytes:
        self._between()
        return super().read_bytes(segment, start, end)


def state_of(yard: RetainingYard) -> tuple[int, dict[str, object]]:
    """The last record, and all that lives then; it is on disk."""
    yard.broker.flush_journal()  # what compaction has written forward
    yard.run_pending()
    assert yard.journal.durable_seq == yard.engine.records.next_seq - 1
    return int(yard.journal.durable_seq), without_ring(yard.engine.state)


def make_used_server(
    kept: int = 30, limits: RetentionLimits | None = None, lake: bool = False, spare: bool = False
) -> RetainingYard:
    """Some passes of compaction, jobs that stay, and a journal that begins behind 0.

    `spare`: the files of segments that were dropped are used again.
    """
    yard = RetainingYard(limits or RetentionLimits(0), spare=spare)
    if lake:
        yard.register("lake", 1)
    for _ in range(kept):
        yard.push()
        yard.work(SEGMENT // 2)
    assert yard.journal.replay_start > 0
    return yard


def back_up(disk: MemoryDisk) -> tuple[MemoryDisk, Manifest]:
    backup = MemoryDisk()
    return backup, make_backup(DirectorySource(disk), backup, NOW)


def restored(backup: MemoryDisk, seed: int = 3) -> tuple[MemoryDisk, Identity]:
    disk = MemoryDisk()
    return disk, restore(backup, disk, Random(seed).randbytes, NOW)[1]


def files(backup: MemoryDisk) -> dict[str, bytes]:
    segments = backup.directory(SEGMENTS)
    found = {f"{SEGMENTS}/{name}": segments.content(name) for name in segments.names()}
    return {MANIFEST: backup.content(MANIFEST), **found}


def with_files(files: dict[str, bytes]) -> MemoryDisk:
    disk = MemoryDisk()
    for name, data in files.items():
        disk.put(name, data)
    return disk
