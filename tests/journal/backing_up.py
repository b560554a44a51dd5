"""Backups to test with: a yard that compacts, and sources that have it go on during a copy."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from support.retaining import SEGMENT, RetainingYard, without_ring

from taskyard.backup.making import make_backup
from taskyard.backup.manifest import MANIFEST, SEGMENTS, Manifest
from taskyard.backup.restoring import restore
from taskyard.backup.source import DirectorySource, Look, Wanted
from taskyard.journal.identity import Identity
from taskyard.journal.memory import MemoryDisk
from taskyard.journal.retention import Limits

NOW = 1_800_000_000_000_000


class Busy(DirectorySource):
    """Something happens before each read of a copy; it knows the state at each of its looks."""

    def __init__(self, yard: RetainingYard, between: Callable[[], None]) -> None:
        super().__init__(yard.disk)
        self._yard = yard
        self._between = between
        self.states: list[tuple[int, dict[str, object]]] = []

    def look(self) -> Look:
        self.states.append(state_of(self._yard))
        return super().look()

    def read(self, wanted: Wanted, start: int, end: int) -> bytes:
        self._between()
        return super().read(wanted, start, end)


def state_of(yard: RetainingYard) -> tuple[int, dict[str, object]]:
    """The last record, and all that lives then; it is on disk."""
    yard.broker.flush()  # what compaction has written forward
    yard.settle()
    assert yard.journal.durable_seq == yard.engine.log.next_seq - 1
    return int(yard.journal.durable_seq), without_ring(yard.engine.state)


def lived_in(
    kept: int = 30, limits: Limits | None = None, lake: bool = False, spare: bool = False
) -> RetainingYard:
    """Some passes of compaction, jobs that stay, and a journal that begins behind 0.

    `spare`: the files of segments that were dropped are used again.
    """
    yard = RetainingYard(limits or Limits(0), spare=spare)
    if lake:
        yard.register("lake", 1)
    for _ in range(kept):
        yard.push()
        yard.work(SEGMENT // 2)
    assert yard.journal.base > 0
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
