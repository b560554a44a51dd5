"""Checks a backup, and makes a data directory of it that a server can start from.

The journal gets a new timeline, since the numbers of records after the backup are used again.
Numbers of jobs and starts continue further up, so that those after the backup, which are lost, are
not taken for others.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from taskyard import __version__
from taskyard.backup.backup import CHUNK_BYTES, ignore_progress, replay_copy
from taskyard.backup.errors import BadBackup, TargetExists
from taskyard.backup.manifest import SEGMENTS, Manifest, SegmentEntry, read_manifest
from taskyard.engine.model.job import SYSTEM_ORIGIN
from taskyard.engine.records.job_lifecycle import BootRecord
from taskyard.engine.records.log import RecordBuffer
from taskyard.journal.disk import Disk, File, RealDisk
from taskyard.journal.errors import JournalCorrupt
from taskyard.journal.format import (
    FRAME_HEADER_BYTES,
    SEGMENT_HEADER_BYTES,
    TIMELINE_BYTES,
    SegmentHeader,
    base_of,
    frame_header,
    segment_name,
)
from taskyard.journal.identity import (
    JOURNAL,
    RESTORING,
    DirectoryLock,
    Entropy,
    Identity,
    JournalExtent,
    save_identity,
)
from taskyard.journal.recovery import Recovery
from taskyard.journal.segments import AT_ONCE, remove_if_exists

# The server of which the backup is has gone on for an unknown time, and a backup may be restored
# more than once: each restore has a range of its own, by chance. A start has 23 bits in the number
# of an owner, and an id should be a number that JavaScript knows.
_EPOCH_GAP: Final = 1000
_ID_GAP: Final = 1_000_000_000
_RANGE_COUNT: Final = 1000


def check_backup(
    disk: Disk, on_checked: Callable[[int], None] = ignore_progress
) -> tuple[Manifest, Recovery]:
    """Every byte, frame and record; BadBackup if it is not what was backed up."""
    manifest = read_manifest(disk)
    identity = manifest.journal_identity()
    directory = disk.directory(SEGMENTS)
    for part in manifest.segments:
        _check_segment(directory, part, on_checked)
    try:
        return manifest, replay_copy(directory, identity, manifest.end, manifest.last_seq)
    except JournalCorrupt as error:
        raise BadBackup(
            f"{error.file} is damaged at byte {error.offset}: {error.reason}"
        ) from error


def _check_segment(directory: Disk, part: SegmentEntry, on_checked: Callable[[int], None]) -> None:
    if base_of(part.name) < 0:
        raise BadBackup(f"{part.name!r} is not the name of a segment")
    if part.name not in directory.names():
        raise BadBackup(f"{SEGMENTS}/{part.name} is missing")
    file = directory.view(part.name)
    try:
        size = file.size()
        if size != part.bytes:
            raise BadBackup(f"{SEGMENTS}/{part.name} has {size} bytes and should have {part.bytes}")
        if _hash_file(file, size, on_checked) != part.sha256:
            raise BadBackup(f"{SEGMENTS}/{part.name} is damaged: its checksum is wrong")
    finally:
        file.close()


def _hash_file(file: File, size: int, on_checked: Callable[[int], None]) -> str:
    digest = hashlib.sha256()
    for start in range(0, size, CHUNK_BYTES):
        data = file.read_at(start, min(CHUNK_BYTES, size - start))
        digest.update(data)
        on_checked(len(data))
    return digest.hexdigest()


def restore(
    backup: Disk,
    disk: Disk,
    entropy: Entropy,
    now: int,
    on_copied: Callable[[int], None] = ignore_progress,
) -> tuple[Manifest, Identity]:
    """Make the empty directory `disk` a data directory.

    Until that is done it has a file that keeps a server from taking it for one.
    """
    manifest, recovery = check_backup(backup, on_copied)
    _mark_restoring(disk)
    _remove_leftovers(disk)
    journal = disk.directory(JOURNAL)
    for part in manifest.segments:
        _copy_segment(backup.directory(SEGMENTS), journal, part, on_copied)
    state = recovery.state
    reach = JournalExtent(manifest.end, manifest.last_seq, state.epoch, state.next_id)
    time = max(now, int(state.time))
    identity = manifest.journal_identity().branch(entropy(TIMELINE_BYTES), reach, time)
    _write_first_segment(journal, identity, recovery, entropy, time)
    save_identity(disk, identity)
    disk.remove(RESTORING)
    disk.sync()
    return manifest, identity


def _mark_restoring(disk: Disk) -> None:
    if RESTORING not in disk.names():
        disk.create(RESTORING, 0).close()
    disk.sync()


def _remove_leftovers(disk: Disk) -> None:
    """Remove what an interrupted restore has left."""
    remove_if_exists(disk, "identity.json")
    journal = disk.directory(JOURNAL)
    for name in journal.names():
        journal.remove(name)
    journal.sync()
    disk.sync()


def _copy_segment(
    backup: Disk, journal: Disk, part: SegmentEntry, on_copied: Callable[[int], None]
) -> None:
    """It was checked; should the disk give other bytes now, that is noticed."""
    source = backup.view(part.name)
    try:
        file = journal.create(part.name, 0)
        try:
            digest = hashlib.sha256()
            for start in range(0, part.bytes, CHUNK_BYTES):
                data = source.read_at(start, min(CHUNK_BYTES, part.bytes - start))
                file.write_at(start, [data])
                digest.update(data)
                on_copied(len(data))
            if digest.hexdigest() != part.sha256:
                raise BadBackup(f"{SEGMENTS}/{part.name} has changed while it was read")
            file.sync()
        finally:
            file.close()
    finally:
        source.close()


def _write_first_segment(
    journal: Disk, identity: Identity, recovery: Recovery, entropy: Entropy, time: int
) -> None:
    """Write a segment of the new timeline, whose only record says where numbers continue."""
    end, seq = int(recovery.end), int(recovery.next_seq)
    chance = int.from_bytes(entropy(4), "little") % _RANGE_COUNT
    epoch = int(recovery.state.epoch) + _EPOCH_GAP + chance
    next_id = int(recovery.state.next_id) + (1 + chance) * _ID_GAP
    log = RecordBuffer(seq, end + SEGMENT_HEADER_BYTES + FRAME_HEADER_BYTES)
    log.append(BootRecord(time, SYSTEM_ORIGIN, epoch, f"{__version__}, restored", next_id))
    body = log.drain(0)
    salt = int.from_bytes(entropy(8), "little") >> 1 | 1  # never 0
    base = int(recovery.replay_start)
    header = SegmentHeader(identity.timeline, end, seq, salt, time, seq - 1, base, base)
    remove_if_exists(journal, AT_ONCE)
    file = journal.create(AT_ONCE, 0)
    try:
        file.write_at(0, [header.encode(), frame_header(body, seq, 1, salt, seq - 1), body])
        file.sync()
    finally:
        file.close()
    journal.rename(AT_ONCE, segment_name(end))
    journal.sync()


# Directories of the file system that become a backup or a data directory, wholly or not at all

PARTIAL: Final = ".partial"
_LOCK_FILE: Final = "lock"
_NAMES_OF_EMPTY: Final = {_LOCK_FILE, "lost+found"}  # what an empty data directory may have


@contextmanager
def create_directory(path: Path) -> Iterator[RealDisk]:
    """Make a directory that gets its name at the end, when everything in it is synced.

    If that fails, nothing is left; a process that was killed leaves one whose name ends in
    .partial, which the next backup to that path removes.
    """
    if os.path.lexists(path):
        raise TargetExists(f"{path} exists already; a backup never replaces anything")
    if not path.parent.is_dir():
        raise TargetExists(f"there is no directory {path.parent} to make it in")
    partial = path.with_name(path.name + PARTIAL)
    lock = _lock_directory(partial)
    try:
        try:
            yield RealDisk(str(partial))
            os.rename(partial, path)
        except BaseException:
            shutil.rmtree(partial, ignore_errors=True)
            raise
        RealDisk(str(path.parent)).sync()
    finally:
        os.close(lock)


def _lock_directory(partial: Path) -> int:
    """Lock an empty directory that only this process fills; the lock ends with it."""
    while True:
        partial.mkdir(mode=0o700, exist_ok=True)
        lock = os.open(partial, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(lock)
            raise TargetExists(f"another process is making {partial} now") from None
        if _is_same_directory(lock, partial):
            break
        os.close(lock)  # it was of another process, which has just ended
    for left in partial.iterdir():
        if left.is_dir() and not left.is_symlink():
            shutil.rmtree(left)
        else:
            left.unlink()
    return lock


def _is_same_directory(lock: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(lock), path.stat())
    except FileNotFoundError:
        return False


def open_backup(path: Path) -> RealDisk:
    if not path.is_dir():
        raise BadBackup("there is no such directory")
    return RealDisk(str(path))


@contextmanager
def open_empty_data(path: Path) -> Iterator[RealDisk]:
    """Open an empty data directory, or one with what an interrupted restore has left. No server can
    open it meanwhile.
    """
    _check_empty(path)
    disk = RealDisk(str(path))
    lock = DirectoryLock(str(path))
    try:
        _check_empty(path)  # of those that were quicker
        yield disk
    finally:
        lock.release()


def _check_empty(path: Path) -> None:
    if not path.exists():
        return
    if not path.is_dir():
        raise TargetExists(f"{path} is not a directory")
    found = {each.name for each in path.iterdir()} - _NAMES_OF_EMPTY
    if RESTORING in found:
        found -= {RESTORING, JOURNAL, "identity.json", "identity.json.new"}
    if found:
        shown = ", ".join(sorted(found)[:3])
        raise TargetExists(
            f"{path} is not empty (it has {shown}); a restore never replaces anything"
        )
