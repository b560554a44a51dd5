"""Which journal this is: its timeline and salt, in DIR/identity.json; and the lock of its writer.

The timeline id is in every segment's header. It changes when the journal is repaired or restored
from a backup, so that no reader takes reused sequence numbers for those it has seen; how far each
earlier timeline reaches is kept, since its segments stay.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable
from typing import Final

import msgspec
from mypy_extensions import i64, mypyc_attr

from taskyard.journal.disk import Disk
from taskyard.journal.errors import DataDirectoryInUse, JournalError
from taskyard.journal.format import TIMELINE_BYTES
from taskyard.journal.segments import PREALLOCATE_ZERO

Entropy = Callable[[int], bytes]

IDENTITY: Final = "identity.json"
JOURNAL: Final = "journal"
RESTORING: Final = "restoring"  # a file that is there until a restore is done
_NEW: Final = "identity.json.new"
_LOCK: Final = "lock"
_FORMAT: Final = 1
_SALT_SIZE: Final = 16


class BadIdentity(JournalError):
    """identity.json is missing or cannot be read, so the journal cannot be told from another."""

    def __init__(self, reason: str) -> None:
        super().__init__(
            f"{IDENTITY} {reason}; put the one from a backup back, "
            "or make a new one with `taskyard journal repair`"
        )
        self.reason = reason


class EarlierTimeline:
    """A timeline that ended at position `end`, when the journal was repaired or restored."""

    def __init__(self, timeline: bytes, end: i64, last_seq: i64, ended: i64) -> None:
        self.timeline = timeline
        self.end = end
        self.last_seq = last_seq
        self.ended = ended


class JournalExtent:
    """The extent of the journal when this was written; it is never less after that.

    Segments that are missing at the end leave no other trace.
    """

    def __init__(self, end: i64 = 0, last_seq: i64 = 0, epoch: i64 = 0, next_id: i64 = 1) -> None:
        self.end = end  # position up to which all was on disk for good
        self.last_seq = last_seq  # the last record before that
        self.epoch = epoch
        self.next_id = next_id


class Identity:
    def __init__(
        self,
        timeline: bytes,
        salt: bytes,
        created: i64,
        earlier: list[EarlierTimeline],
        extent: JournalExtent | None = None,
    ) -> None:
        self.timeline = timeline
        self.salt = salt  # of derived uids
        self.created = created
        self.earlier = earlier  # oldest first
        self.extent = extent if extent is not None else JournalExtent()

    def timeline_at(self, position: i64) -> bytes:
        """The timeline of a segment that begins at `position`."""
        for past in self.earlier:
            if position < past.end:
                return past.timeline
        return self.timeline

    def branch(self, timeline: bytes, extent: JournalExtent, now: i64) -> Identity:
        """Return the same journal up to `reach`, with another timeline from there on."""
        end = extent.end
        kept = [past for past in self.earlier if past.end < end]
        past = EarlierTimeline(self.timeline_at(end - 1), end, extent.last_seq, now)
        return Identity(timeline, self.salt, self.created, [*kept, past] if end else kept, extent)


def new_identity(entropy: Entropy, now: i64) -> Identity:
    return Identity(entropy(TIMELINE_BYTES), entropy(_SALT_SIZE), now, [])


def load_identity(disk: Disk) -> Identity | None:
    """The identity of a data directory, or None if it has none yet."""
    if IDENTITY not in disk.names():
        return None
    file = disk.view(IDENTITY)
    try:
        data = file.read_at(0, file.size())
    finally:
        file.close()
    try:
        return parse_identity(msgspec.json.decode(data, type=dict))
    except (msgspec.DecodeError, KeyError, TypeError, ValueError, RecursionError) as error:
        raise BadIdentity(f"cannot be read ({error})") from error


def save_identity(disk: Disk, identity: Identity) -> None:
    """Written aside and renamed: it is there as a whole or not at all."""
    if _NEW in disk.names():
        disk.remove(_NEW)
    file = disk.create(_NEW, 0)
    try:
        file.write_at(0, [_format(identity)])
        file.sync()
    finally:
        file.close()
    disk.rename(_NEW, IDENTITY)
    disk.sync()


def parse_identity(fields: dict[str, object]) -> Identity:
    """KeyError, TypeError or ValueError if they are none."""
    if fields["format"] != _FORMAT:
        raise ValueError(f"its format is {fields['format']}, this version reads {_FORMAT}")
    earlier = fields["earlier"]
    if not isinstance(earlier, list):
        raise TypeError("earlier is not a list")
    return Identity(
        _fixed_bytes(fields["timeline"], TIMELINE_BYTES),
        _fixed_bytes(fields["salt"], _SALT_SIZE),
        _number(fields["created"]),
        [
            EarlierTimeline(
                _fixed_bytes(past["timeline"], TIMELINE_BYTES),
                _number(past["end"]),
                _number(past["last_seq"]),
                _number(past["ended"]),
            )
            for past in earlier
        ],
        _parse_extent(fields.get("reach")),
    )


def _parse_extent(fields: object) -> JournalExtent | None:
    """None: it was written by a version that does not keep it."""
    if fields is None:
        return None
    if not isinstance(fields, dict):
        raise TypeError("reach is not an object")
    return JournalExtent(
        _number(fields["end"]),
        _number(fields["last_seq"]),
        _number(fields["epoch"]),
        _number(fields["next_id"]),
    )


def _fixed_bytes(field: object, size: int) -> bytes:
    octets = bytes.fromhex(str(field))
    if len(octets) != size:
        raise ValueError(f"{field!r} is not {size} bytes in hexadecimal digits")
    return octets


def _number(field: object) -> int:
    if not isinstance(field, int) or not 0 <= field < 1 << 63:
        raise ValueError(f"{field!r} is not a number that could be there")
    return field


def identity_fields(identity: Identity) -> dict[str, object]:
    """What stands in identity.json."""
    return {
        "format": _FORMAT,
        "timeline": identity.timeline.hex(),
        "salt": identity.salt.hex(),
        "created": int(identity.created),
        "earlier": [
            {
                "timeline": past.timeline.hex(),
                "end": int(past.end),
                "last_seq": int(past.last_seq),
                "ended": int(past.ended),
            }
            for past in identity.earlier
        ],
        "reach": {
            "end": int(identity.extent.end),
            "last_seq": int(identity.extent.last_seq),
            "epoch": int(identity.extent.epoch),
            "next_id": int(identity.extent.next_id),
        },
    }


def _format(identity: Identity) -> bytes:
    fields = identity_fields(identity)
    return msgspec.json.format(msgspec.json.encode(fields), indent=2) + b"\n"


class DirectoryLock:
    """Keeps every other server away from a data directory, as long as this process lives."""

    def __init__(self, path: str) -> None:
        """Take the lock of the directory at `path`, which exists, or raise DataDirectoryInUse."""
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
        self._fd = os.open(os.path.join(path, _LOCK), flags, 0o600)
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            pid = os.pread(self._fd, 32, 0).decode(errors="replace").strip()
            self.release()
            raise DataDirectoryInUse(path, pid) from error
        os.ftruncate(self._fd, 0)
        os.pwrite(self._fd, b"%d\n" % os.getpid(), 0)

    def release(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def is_locked(path: str) -> bool:
    """Whether a server has the data directory at `path` now."""
    try:
        fd = os.open(os.path.join(path, _LOCK), os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(fd)
    return False


# What the operator may choose of a journal


@mypyc_attr(acyclic=True)
class JournalSettings:
    __slots__ = ("durability", "payload_memory", "preallocate", "prepare_ahead", "segment_size")

    def __init__(
        self,
        segment_size: i64 = 64 * 1_048_576,
        payload_memory: i64 = 256 * 1_048_576,
        durability: str = "sync",
        prepare_ahead: bool = False,
        preallocate: str = PREALLOCATE_ZERO,
    ) -> None:
        self.segment_size = segment_size
        self.payload_memory = payload_memory
        self.durability = durability  # what replies wait for: the broker's business
        self.prepare_ahead = prepare_ahead  # make the next segment in advance
        self.preallocate = preallocate  # how the space of a segment is reserved
