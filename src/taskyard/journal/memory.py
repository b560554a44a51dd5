"""A disk in memory for tests and the simulator: it crashes, tears and fails on demand.

Deterministic. What was not synced is kept as a list of changes, so that a crash can drop it, or,
with a Random, keep any part of it, as real disks do: sector by sector and in any order.
"""

from __future__ import annotations

import errno
import hashlib
from collections.abc import Callable
from random import Random
from typing import Final

SECTOR: Final = 512
NO_SPACE: Final = "No space left on device"
# Operations that change what is on the disk: before and after each of them there may be a crash.
POINTS: Final = (
    "write",
    "sync",
    "sync_directory",
    "create",
    "rename",
    "remove",
    "truncate",
    "allocate",
)
Watch = Callable[[str, str, bool], None]
"""Hears of each of these before it takes effect, and when it has: operation, path, done."""
LOST_WRITE: Final = -1
_GARBAGE: Final = 0.02  # how often a sector that was being written holds neither old nor new


class _Change:
    """Bytes that were written at an offset, or, without bytes, a new length."""

    def __init__(self, offset: int, data: bytes | None) -> None:
        self.offset = offset
        self.data = data

    def __len__(self) -> int:
        return len(self.data) if self.data is not None else 0


class _FileNode:
    """The contents of a file: as it is now, as it is on disk, and what lies between."""

    def __init__(self, path: str) -> None:
        self.path = path  # the last that it had
        self.now = bytearray()
        self.stable = bytearray()
        self.changes: list[_Change] = []

    def change(self, change: _Change) -> None:
        _apply(self.now, change)
        self.changes.append(change)

    def sync(self) -> None:
        for change in self.changes:
            _apply(self.stable, change)
        self.changes = []

    def crash(self, random: Random | None) -> None:
        if random is not None:
            self._keep_some(random)
        self.now = bytearray(self.stable)
        self.changes = []

    def _keep_some(self, random: Random) -> None:
        """All up to some change of the length, then of each sector what it was at some time.

        A sector never holds a later write without the earlier ones: both were in one page.
        """
        fate = random.random()
        if fate < 0.15:
            return
        if fate < 0.3:
            self.sync()
            return
        lengths = [at for at, change in enumerate(self.changes) if change.data is None]
        start = random.choice([0, *(at + 1 for at in lengths)])
        for change in self.changes[:start]:
            _apply(self.stable, change)
        writes: dict[int, list[_Change]] = {}
        for change in self.changes[start:]:
            if change.data is None:
                break
            for piece in _sectors(change.offset, change.data):
                writes.setdefault(piece.offset // SECTOR, []).append(piece)
        for number in sorted(writes):
            pieces = writes[number]
            for piece in pieces[: random.randrange(len(pieces) + 1)]:
                _apply(self.stable, piece)
            if random.random() < _GARBAGE:
                low = min(piece.offset for piece in pieces)
                high = max(piece.offset + len(piece) for piece in pieces)
                _apply(self.stable, _Change(low, random.randbytes(high - low)))


def _apply(content: bytearray, change: _Change) -> None:
    data = change.data
    if data is None:
        if change.offset < len(content):
            del content[change.offset :]
        else:
            content.extend(bytes(change.offset - len(content)))
        return
    end = change.offset + len(data)
    if end > len(content):
        content.extend(bytes(end - len(content)))
    content[change.offset : end] = data


def _sectors(offset: int, data: bytes) -> list[_Change]:
    """A write as one for each sector that it touches."""
    pieces: list[_Change] = []
    at = 0
    while at < len(data):
        size = min(len(data) - at, SECTOR - (offset + at) % SECTOR)
        pieces.append(_Change(offset + at, data[at : at + size]))
        at += size
    return pieces


class Fault:
    """The `nth` call of an operation from now on fails; a write may leave `keep` bytes behind.

    With no error, a write is short and the caller writes the rest: two operations. With `LOST`, it
    says that it is done, and nothing was written.
    """

    def __init__(self, operation: str, nth: int, error: int, keep: int) -> None:
        self.operation = operation
        self.left = nth
        self.error = error
        self.keep = keep


class _SharedState:
    """What all directories and files of one disk share."""

    def __init__(self) -> None:
        self.names: dict[str, _FileNode] = {}  # by path
        self.stable: dict[str, _FileNode] = {}  # those whose names are on disk
        self.faults: list[Fault] = []
        self.broken: dict[str, int] = {}  # operations that always fail, and how
        self.age = 0  # crashes so far; files opened before one are of no use after it
        self.calls: dict[str, int] = {}
        self.capacity = -1  # bytes that all files may have together; -1: any number
        self.watch: Watch | None = None
        self.ignores_syncs = False  # a sync of a file says that it is done, and does nothing

    def grant(self, more: int) -> int:
        """Return for how many of these bytes there is space."""
        if self.capacity < 0 or more <= 0:
            return more
        return min(more, max(0, self.capacity - self.used()))

    def used(self) -> int:
        return sum(len(node.now) for node in self.names.values())

    def before_call(self, operation: str, path: str) -> Fault | None:
        """Count the call, and raise or return the fault that is due, if one is."""
        if self.watch is not None and operation in POINTS:
            self.watch(operation, path, False)
        self.calls[operation] = self.calls.get(operation, 0) + 1
        if operation in self.broken:
            raise OSError(self.broken[operation], f"injected into {operation}")
        due: Fault | None = None
        for fault in self.faults:
            if fault.operation == operation:
                fault.left -= 1
                if not fault.left:
                    due = fault
        if due is not None:
            self.faults.remove(due)
            if due.operation != "write":
                raise OSError(due.error, f"injected into {operation}")
        return due

    def after_call(self, operation: str, path: str) -> None:
        """The call has taken effect."""
        if self.watch is not None:
            self.watch(operation, path, True)


class MemoryFile:
    def __init__(self, world: _SharedState, node: _FileNode) -> None:
        self._world = world
        self._node = node
        self._age = world.age
        self._open = True

    def _check(self) -> None:
        if not self._open or self._age != self._world.age:
            raise OSError(errno.EBADF, "this file is closed")

    def write_at(self, offset: int, parts: list[bytes]) -> None:
        self._check()
        data = b"".join(parts)
        fault = self._world.before_call("write", self._node.path)
        if fault is not None and not fault.error:
            keep = min(fault.keep, len(data))
            self._put(offset, data[:keep])
            fault = self._world.before_call("write", self._node.path)
            offset += keep
            data = data[keep:]
        if fault is None:
            self._put(offset, data)
            return
        if fault.error == LOST_WRITE:
            return
        if fault.keep:
            self._node.change(_Change(offset, data[: fault.keep]))
        raise OSError(fault.error, "injected into write")

    def _put(self, offset: int, data: bytes) -> None:
        beyond = offset + len(data) - len(self._node.now)
        granted = self._world.grant(beyond)
        if beyond > granted:
            self._node.change(_Change(offset, data[: len(data) - beyond + granted]))
            raise OSError(errno.ENOSPC, NO_SPACE)
        self._node.change(_Change(offset, data))
        self._world.after_call("write", self._node.path)

    def read_at(self, offset: int, size: int) -> bytes:
        self._check()
        self._world.before_call("read", self._node.path)
        return bytes(self._node.now[offset : offset + size])

    def read_into(self, offset: int, buffer: memoryview) -> int:
        data = self.read_at(offset, len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def sync(self) -> None:
        self._check()
        self._world.before_call("sync", self._node.path)
        if not self._world.ignores_syncs:
            self._node.sync()
        self._world.after_call("sync", self._node.path)

    def fileno(self) -> int:
        return -1

    def truncate(self, size: int) -> None:
        self._check()
        self._world.before_call("truncate", self._node.path)
        self._node.change(_Change(size, None))
        self._world.after_call("truncate", self._node.path)

    def allocate(self, size: int) -> None:
        self._check()
        self._world.before_call("allocate", self._node.path)
        more = size - len(self._node.now)
        if self._world.grant(more) < more:
            raise OSError(errno.ENOSPC, NO_SPACE)
        if more > 0:
            self._node.change(_Change(size, None))
        self._world.after_call("allocate", self._node.path)

    def size(self) -> int:
        self._check()
        return len(self._node.now)

    def data_size(self) -> int:
        return len(self._node.now.rstrip(b"\0"))

    def close(self) -> None:
        self._open = False


class MemoryDisk:
    """One directory of a disk in memory; `directory` gives others of the same disk."""

    def __init__(self, world: _SharedState | None = None, path: str = "") -> None:
        self._world = world if world is not None else _SharedState()
        self._path = path

    def directory(self, name: str) -> MemoryDisk:
        return MemoryDisk(self._world, f"{self._path}{name}/")

    def names(self) -> list[str]:
        own = [path[len(self._path) :] for path in self._world.names if self._is_here(path)]
        return sorted(own)

    def create(self, name: str, size: int) -> MemoryFile:
        path = self._path + name
        self._world.before_call("create", path)
        if path in self._world.names:
            raise FileExistsError(errno.EEXIST, "the file is there already", path)
        if self._world.grant(size) < size:
            raise OSError(errno.ENOSPC, NO_SPACE)
        node = _FileNode(path)
        if size:
            node.change(_Change(size, None))
        self._world.names[path] = node
        self._world.after_call("create", path)
        return MemoryFile(self._world, node)

    def open(self, name: str) -> MemoryFile:
        self._world.before_call("open", self._path + name)
        node = self._world.names.get(self._path + name)
        if node is None:
            raise FileNotFoundError(errno.ENOENT, "there is no such file", self._path + name)
        return MemoryFile(self._world, node)

    def view(self, name: str) -> MemoryFile:
        return self.open(name)

    def remove(self, name: str) -> None:
        path = self._path + name
        self._world.before_call("remove", path)
        del self._world.names[path]
        self._world.after_call("remove", path)

    def rename(self, name: str, to: str) -> None:
        path = self._path + to
        self._world.before_call("rename", path)
        node = self._world.names.pop(self._path + name)
        node.path = path
        self._world.names[path] = node
        self._world.after_call("rename", path)

    def sync(self) -> None:
        world = self._world
        world.before_call("sync_directory", self._path)
        for path in [path for path in world.stable if self._is_here(path)]:
            if path not in world.names:
                del world.stable[path]
        for path, node in world.names.items():
            if self._is_here(path):
                world.stable[path] = node
        world.after_call("sync_directory", self._path)

    def _is_here(self, path: str) -> bool:
        return path.startswith(self._path) and "/" not in path[len(self._path) :]

    # What only such a disk can do

    def crash(self, random: Random | None = None) -> None:
        """The power fails. Without `random` all that was not synced is gone, else parts of it."""
        world = self._world
        world.age += 1
        world.faults = []
        world.broken = {}
        if random is not None:
            _keep_some_names(world, random)
        for node in [*world.stable.values(), *world.names.values()]:
            node.crash(random)
        world.names = dict(world.stable)

    def fail_call(
        self, operation: str, nth: int = 1, error: int = errno.EIO, keep: int = 0
    ) -> None:
        """Let the nth call from now on fail: write, sync, sync_directory, create, read, ...

        A write that fails with `keep` has put that many of its bytes into the file: a short write.
        """
        self._world.faults.append(Fault(operation, nth, error, keep))

    def shorten_write(self, nth: int, keep: int) -> None:
        """Let the nth write from now on take only so many bytes at first, and the rest then."""
        self._world.faults.append(Fault("write", nth, 0, keep))

    def lose_write(self, nth: int) -> None:
        """Let the nth write from now on go nowhere, and say that it is done."""
        self._world.faults.append(Fault("write", nth, LOST_WRITE, 0))

    def watch(self, watch: Watch | None) -> None:
        """Call this before and after every operation that changes something; what it raises is
        raised.
        """
        self._world.watch = watch

    def ignore_syncs(self) -> None:
        """From now on a sync of a file does nothing."""
        self._world.ignores_syncs = True

    def digest(self) -> bytes:
        """Stands for all there is: the files as they are now, and as they are on disk."""
        found = hashlib.blake2b(digest_size=16)
        world = self._world
        for names in (world.names, world.stable):
            for path in sorted(names):
                node = names[path]
                found.update(path.encode() + b"\0%d\0" % len(node.now))
                found.update(node.now)
                found.update(node.stable)
        return found.digest()

    def set_capacity(self, capacity: int) -> None:
        """Let the disk have so many bytes, however many are used; -1: any number."""
        self._world.capacity = capacity

    def used(self) -> int:
        """Bytes of all files, with those that are only reserved."""
        return self._world.used()

    def fail_always(self, operation: str, error: int = errno.EIO) -> None:
        """Let every call fail from now on, until `heal`."""
        self._world.broken[operation] = error

    def heal(self) -> None:
        """Forget the faults that did not happen, and those that stay."""
        self._world.faults = []
        self._world.broken = {}

    def calls(self, operation: str) -> int:
        """How often an operation was called so far."""
        return self._world.calls.get(operation, 0)

    def content(self, name: str) -> bytes:
        """All bytes of a file, as they are now."""
        return bytes(self._world.names[self._path + name].now)

    def put(self, name: str, data: bytes) -> None:
        """Make a file be just this, on disk, whatever was there."""
        node = _FileNode(self._path + name)
        node.now = bytearray(data)
        node.stable = bytearray(data)
        self._world.names[self._path + name] = node
        self._world.stable[self._path + name] = node


def _keep_some_names(world: _SharedState, random: Random) -> None:
    """Names that changed without a sync of their directory may have made it to disk."""
    for path in sorted(world.names.keys() | world.stable.keys()):
        node = world.names.get(path)
        if node is world.stable.get(path) or random.random() < 0.5:
            continue
        if node is None:
            del world.stable[path]
        else:
            world.stable[path] = node
