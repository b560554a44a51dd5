"""Files that are on disk for good when they are said to be, and that only their user can read."""

import contextlib
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

DIRECTORY: Final = 0o700
FILE: Final = 0o600
_OTHERS: Final = 0o077


def sync_file(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


@contextlib.contextmanager
def private() -> Iterator[None]:
    """For files that others write in this process: it is of the whole process, so keep it short."""
    before = os.umask(_OTHERS)
    try:
        yield
    finally:
        os.umask(before)


def make_file(path: Path) -> None:
    """An empty one, for who opens it by its name."""
    os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, FILE))


def narrow(path: Path) -> None:
    """Take from others what they may do with this file, or with this directory and all in it.

    Where the file system has no permissions, or the file is another user's, it stays as it is.
    """
    with contextlib.suppress(FileNotFoundError, PermissionError):
        mode = path.lstat().st_mode
        if path.is_symlink():
            return
        if mode & _OTHERS:
            path.chmod(mode & 0o700)
        if path.is_dir():
            for entry in os.scandir(path):
                narrow(Path(entry.path))


def save_json(path: Path, value: Any, durable: bool = True) -> None:
    """There as a whole or not at all."""
    aside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        make_file(aside)
        aside.write_text(json.dumps(value))
        if durable:
            sync_file(aside)
        aside.replace(path)
    except BaseException:  # no space, say
        aside.unlink(missing_ok=True)
        raise
    if durable:
        sync_file(path.parent)


def load_json(path: Path) -> Any:
    """None: it is not there."""
    try:
        return json.loads(path.read_text())
    except FileNotFoundError:
        return None
