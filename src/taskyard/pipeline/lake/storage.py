"""Where a lake is: a directory, or a URI of an object store with the options to reach it.

Data files and Delta logs go through the same object store. On a local disk everything that a
commit refers to is brought to the disk before the commit is, and only the owner can read it: Spark
and delta-rs do neither.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

import pyarrow.fs as pafs
from deltalake import DeltaTable
from deltalake.fs import DeltaStorageHandler

from taskyard.pipeline.lake.errors import LakeError

_DIRECTORY: Final = 0o700
_OTHERS: Final = 0o077
_URI: Final = re.compile(r"[a-z][a-z0-9+.-]+://", re.IGNORECASE)


class Storage:
    """The place of a lake. It can be pickled: tasks elsewhere read and write by themselves."""

    def __init__(self, where: str | Path, options: Mapping[str, str] | None = None) -> None:
        """`options` are those of delta-rs; without them it looks at the environment."""
        text = str(where)
        self.options = dict(options or {})
        self.path: Path | None = None  # None: not on a disk of this machine
        if _URI.match(text) and not text.startswith("file://"):
            self.uri = text.rstrip("/")
        else:
            self.path = Path(text.removeprefix("file://")).resolve()
            self.uri = str(self.path)

    def __repr__(self) -> str:
        """Leave out the options: they can be credentials."""
        return f"Storage({self.uri!r})"

    def table_uri(self, name: str) -> str:
        return f"{self.uri}/{name}"

    def table(self, name: str, version: int | None = None) -> DeltaTable:
        return DeltaTable(self.table_uri(name), version, storage_options=self.options or None)

    def files(self, name: str) -> pafs.FileSystem:
        """The file system of a table: paths in it are those that the Delta log has."""
        if self.path is not None:
            return pafs.SubTreeFileSystem(str(self.path / name), pafs.LocalFileSystem())
        handler = DeltaStorageHandler(self.table_uri(name), self.options or None)
        return pafs.PyFileSystem(handler)

    # On a local disk

    def make_directory(self, known: frozenset[str]) -> None:
        """Make the lake's directory, and let nobody else read what it has under the known names.

        A directory that has other files too keeps its own mode.
        """
        if self.path is None:
            return
        if self.path.exists() and not self.path.is_dir():
            raise LakeError(f"{self.path} is a file; a lake is a directory")
        if re.search("%[0-9A-Fa-f]{2}", self.uri):
            raise LakeError(
                f"{self.path} has a % in its name, which readers of Delta tables decode wrongly"
            )
        made = [each for each in (self.path, *self.path.parents) if not each.exists()]
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.path.mkdir(_DIRECTORY, exist_ok=True)
        for each in made:
            sync(each.parent)
        found = {entry.name for entry in os.scandir(self.path)}
        for name in found & known:
            _restrict(self.path / name)
        if found <= known:
            _restrict(self.path)

    def make_parent(self, name: str, path: str) -> None:
        """Make the directory of a data file; object stores need none."""
        if self.path is not None:
            (self.path / name / path).parent.mkdir(_DIRECTORY, exist_ok=True)

    def sync_file(self, name: str, path: str) -> None:
        """Bring a data file, and its entry in its directory, to the disk."""
        if self.path is None:
            return
        file = self.path / name / path
        sync(file)
        sync(file.parent)
        sync(self.path / name)  # which may have got that directory just now

    @contextlib.contextmanager
    def private(self) -> Iterator[None]:
        """Make the files of the block readable by their owner only.

        The umask is of the whole process, so keep the block short.
        """
        before = os.umask(_OTHERS)
        try:
            yield
        finally:
            os.umask(before)


def sync(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _restrict(path: Path) -> None:
    """Take the permissions of others away from a file, or from a directory and all in it.

    Where the file system has no permissions, or the file is another user's, it stays as it is.
    """
    with contextlib.suppress(FileNotFoundError, PermissionError):
        if path.is_symlink():
            return
        mode = path.lstat().st_mode
        if mode & _OTHERS:
            path.chmod(mode & _DIRECTORY)
        if path.is_dir():
            for entry in os.scandir(path):
                _restrict(Path(entry.path))
