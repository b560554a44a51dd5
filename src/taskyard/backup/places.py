"""Directories of the file system that become a backup or a data directory, wholly or not at all.

A backup is made under another name and renamed when it is complete. A data directory may be one
that others have made, such as a mount point, so it is filled where it is.
"""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from taskyard.backup.errors import BadBackup, TargetExists
from taskyard.journal.disk import RealDisk
from taskyard.journal.identity import JOURNAL, RESTORING, DirectoryLock

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
