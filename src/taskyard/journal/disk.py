"""The interface to the disk, and the real disk behind it.

A `Disk` is one directory. What is written is durable only after `File.sync`; that a file was
created, removed or renamed is durable after `Disk.sync`.
"""

from __future__ import annotations

import contextlib
import errno
import os
from typing import Final, Protocol

_FILE_MODE: Final = 0o600
_DIRECTORY_MODE: Final = 0o700
_TAIL_PROBE_BYTES: Final = 65_536
_CHUNK_BYTES: Final = 1_048_576
# Where the file system cannot reserve space for a file; then it is written full of zeros.
_CANNOT_RESERVE: Final = (errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS)


class File(Protocol):
    def write_at(self, offset: int, parts: list[bytes]) -> None:
        """Write the parts one after the other, all of them or raise."""

    def read_at(self, offset: int, size: int) -> bytes:
        """The bytes there; fewer only at the end of the file. Other threads may read too."""

    def read_into(self, offset: int, buffer: memoryview) -> int:
        """The same into a buffer; gives how many bytes there were."""

    def sync(self) -> None:
        """Make all that was written durable. After a failure the state is unknown."""

    def fileno(self) -> int:
        """Return its descriptor, to flush it without this object; -1: it has none."""

    def truncate(self, size: int) -> None: ...

    def allocate(self, size: int) -> None:
        """Make it this long, with zeros, and reserve the space for that; or leave it and raise."""

    def size(self) -> int: ...

    def data_size(self) -> int:
        """Return how much of it must be read: behind that there are only zeros, up to its size."""

    def close(self) -> None: ...


class Disk(Protocol):
    def directory(self, name: str) -> Disk:
        """A directory in this one, made if need be."""

    def names(self) -> list[str]: ...

    def create(self, name: str, size: int) -> File:
        """A new file with `size` bytes of zeros, written out so that they are quick to replace."""

    def open(self, name: str) -> File:
        """For reading and writing."""

    def view(self, name: str) -> File:
        """For reading only."""

    def remove(self, name: str) -> None: ...

    def rename(self, name: str, to: str) -> None: ...

    def sync(self) -> None:
        """Make the present set of files durable."""


class RealFile:
    __slots__ = ("_fd",)

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def write_at(self, offset: int, parts: list[bytes]) -> None:
        size = 0
        for part in parts:
            size += len(part)
        done = os.pwritev(self._fd, parts, offset)
        if done < size:
            self._write_rest(offset, b"".join(parts), done)

    def _write_rest(self, offset: int, data: bytes, done: int) -> None:
        """A short write is not an error yet: what stopped it shows when the rest is written."""
        while done < len(data):
            more = os.pwrite(self._fd, data[done:], offset + done)
            if not more:
                raise OSError(errno.EIO, "the disk takes no more bytes")
            done += more

    def read_at(self, offset: int, size: int) -> bytes:
        data = os.pread(self._fd, size, offset)
        if len(data) == size or not data:
            return data
        parts = [data]
        missing = size - len(data)
        while missing:
            data = os.pread(self._fd, missing, offset + size - missing)
            if not data:
                break
            parts.append(data)
            missing -= len(data)
        return b"".join(parts)

    def read_into(self, offset: int, buffer: memoryview) -> int:
        done = os.preadv(self._fd, [buffer], offset)
        while 0 < done < len(buffer):
            more = os.preadv(self._fd, [buffer[done:]], offset + done)
            if not more:
                break
            done += more
        return done

    def sync(self) -> None:
        os.fdatasync(self._fd)

    def fileno(self) -> int:
        return self._fd

    def truncate(self, size: int) -> None:
        os.ftruncate(self._fd, size)

    def allocate(self, size: int) -> None:
        before = self.size()
        if size <= before:
            return
        try:
            self._allocate(before, size)
        except OSError:
            with contextlib.suppress(OSError):
                os.ftruncate(self._fd, before)  # a part of it may have been found
            raise

    def _allocate(self, start: int, end: int) -> None:
        try:
            os.posix_fallocate(self._fd, start, end - start)
            return
        except OSError as error:
            if error.errno not in _CANNOT_RESERVE:
                raise
        while start < end:
            portion = min(_CHUNK_BYTES, end - start)
            self.write_at(start, [bytes(portion)])
            start += portion

    def size(self) -> int:
        return os.fstat(self._fd).st_size

    def data_size(self) -> int:
        end = 0
        try:
            while True:
                start = os.lseek(self._fd, end, os.SEEK_DATA)
                end = os.lseek(self._fd, start, os.SEEK_HOLE)
        except OSError as error:
            if error.errno != errno.ENXIO:
                return self.size()
        # File systems have been wrong about holes in what was written a moment ago.
        probe = os.pread(self._fd, _TAIL_PROBE_BYTES, end)
        return end if probe.count(0) == len(probe) else self.size()

    def close(self) -> None:
        if self._fd >= 0:
            fd = self._fd
            self._fd = -1
            os.close(fd)


class RealDisk:
    """A directory of the file system. Only its owner can read what is made in it."""

    __slots__ = ("path",)

    def __init__(self, path: str) -> None:
        self.path = path
        if not os.path.isdir(path):
            os.makedirs(path, _DIRECTORY_MODE, exist_ok=True)
            _sync_directory(os.path.dirname(os.path.abspath(path)))

    def directory(self, name: str) -> RealDisk:
        return RealDisk(os.path.join(self.path, name))

    def names(self) -> list[str]:
        return sorted(os.listdir(self.path))

    def create(self, name: str, size: int) -> RealFile:
        path = os.path.join(self.path, name)
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        file = RealFile(os.open(path, flags, _FILE_MODE))
        try:
            if size:
                file.allocate(size)
                file.write_at(0, [bytes(size)])
        except OSError:
            file.close()
            os.unlink(path)
            raise
        return file

    def open(self, name: str) -> RealFile:
        return RealFile(os.open(os.path.join(self.path, name), os.O_RDWR | os.O_CLOEXEC))

    def view(self, name: str) -> RealFile:
        return RealFile(os.open(os.path.join(self.path, name), os.O_RDONLY | os.O_CLOEXEC))

    def remove(self, name: str) -> None:
        os.unlink(os.path.join(self.path, name))

    def rename(self, name: str, to: str) -> None:
        os.rename(os.path.join(self.path, name), os.path.join(self.path, to))

    def sync(self) -> None:
        _sync_directory(self.path)


def _sync_directory(path: str) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
