"""Journals that compaction has dropped the beginning of, and ways to damage and repair them."""

import random

from support.retaining import SEGMENT, RetainingYard

from taskyard.journal.format import segment_names
from taskyard.journal.identity import JOURNAL
from taskyard.journal.memory import MemoryDisk
from taskyard.journal.repair import execute_repair, plan_repair
from taskyard.journal.retention import RetentionLimits

NOW = 1_800_000_000_000_000

# Of jobs that are kept. Each number puts segments, snapshots and checkpoints elsewhere: what is
# true of a repair must not depend on what happens to stand in the middle of a segment.
LAYOUTS = range(28, 35)


def compacted(kept: int, readers: bool = False, seed: int = 1) -> RetainingYard:
    """Some passes, jobs that stay, and a journal that begins behind 0."""
    yard = RetainingYard(RetentionLimits(4 * SEGMENT), seed)
    if readers:
        yard.register("lake", 1)
    for _ in range(kept):
        yard.push()
        yard.work(SEGMENT // 2)
    assert yard.journal.first_base > 0
    yard.stop()
    return yard


def names(disk: MemoryDisk) -> list[str]:
    return segment_names(disk.directory(JOURNAL))


def flip(disk: MemoryDisk, name: str, offset: int) -> None:
    directory = disk.directory(JOURNAL)
    data = bytearray(directory.content(name))
    data[offset % len(data)] ^= 0xFF
    directory.put(name, bytes(data))


def fix(disk: MemoryDisk, seed: int = 5) -> None:
    execute_repair(disk, plan_repair(disk), "damaged-now", random.Random(seed).randbytes, NOW)


def starts_again(yard: RetainingYard) -> None:
    """A repaired journal starts, works, and starts once more."""
    assert not plan_repair(yard.disk).is_needed()
    yard._start()
    yard.run_pending()
    yard.work(8 * SEGMENT)
    known = sorted(job.id for job in yard.engine.state.jobs if job.queue.name == "kept")
    yard.restart()
    assert known == sorted(job.id for job in yard.engine.state.jobs if job.queue.name == "kept")
