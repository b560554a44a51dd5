"""manifest.json: what a backup consists of. It is written last, so where it is, all else is.

It has a checksum of its own: a digit that is not what it was would make another journal of it.
"""

from __future__ import annotations

import hashlib
from typing import Any, Final

import msgspec

from taskyard.backup.errors import BadBackup
from taskyard.journal.disk import Disk, File
from taskyard.journal.identity import Identity, identity_fields, parse_identity

MANIFEST: Final = "manifest.json"
SEGMENTS: Final = "segments"
FORMAT: Final = 1
_CHECKSUM: Final = "checksum"


class SegmentEntry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One segment of the journal, as far as it is in the backup."""

    name: str
    bytes: int
    sha256: str


class Manifest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    format: int
    version: str  # of the Taskyard that made it
    made: int  # microseconds since 1970
    timeline: str
    first_seq: int
    last_seq: int  # all records up to this one are in it, and none behind it
    end: int  # position behind the last of them
    records: int
    jobs: int  # that had not ended
    epoch: int
    next_id: int
    bytes: int  # of all segments
    identity: dict[str, Any]  # identity.json of the journal
    segments: list[SegmentEntry]

    def journal_identity(self) -> Identity:
        """Which journal it is a backup of; BadBackup if that makes no sense."""
        try:
            return parse_identity(self.identity)
        except (KeyError, TypeError, ValueError) as error:
            raise BadBackup(f"{MANIFEST} is of no use: {error}") from error


def write_manifest(disk: Disk, manifest: Manifest) -> None:
    fields = {**msgspec.to_builtins(manifest), _CHECKSUM: _checksum(msgspec.to_builtins(manifest))}
    file = disk.create(MANIFEST, 0)
    try:
        file.write_at(0, [msgspec.json.format(msgspec.json.encode(fields), indent=2) + b"\n"])
        file.sync()
    finally:
        file.close()
    disk.sync()


def read_manifest(disk: Disk) -> Manifest:
    if MANIFEST not in disk.names():
        raise BadBackup(f"{MANIFEST} is missing: this is no backup, or one that was cut off")
    file = disk.view(MANIFEST)
    try:
        fields = _read_fields(file)
    finally:
        file.close()
    version = fields.get("format")
    if isinstance(version, int) and version > FORMAT:
        raise BadBackup(
            f"{MANIFEST} has format {version}, and this version of Taskyard reads up to {FORMAT}: "
            "restore it with the version that made it, or a newer one"
        )
    if fields.pop(_CHECKSUM, None) != _checksum(fields):
        raise BadBackup(f"{MANIFEST} is damaged: its checksum is wrong")
    try:
        return msgspec.convert(fields, Manifest)
    except msgspec.ValidationError as error:
        raise BadBackup(f"{MANIFEST} is of no use: {error}") from error


def _read_fields(file: File) -> dict[str, Any]:
    try:
        return msgspec.json.decode(file.read_at(0, file.size()), type=dict[str, Any])
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise BadBackup(f"{MANIFEST} is damaged: {error}") from error


def _checksum(fields: dict[str, Any]) -> str:
    return hashlib.sha256(msgspec.json.encode(fields, order="sorted")).hexdigest()


def identity_entry(identity: Identity) -> dict[str, Any]:
    return dict(identity_fields(identity))
