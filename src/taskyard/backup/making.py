"""Making a backup: copy what a replay needs, replay the copy, and only then say what it is.

Segments that are full never change, so one that was copied need not be copied again when others
are dropped before their turn comes: then the journal has a later base, and less is wanted of it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Final

from taskyard import __version__
from taskyard.backup.errors import BadBackup, JournalMoves
from taskyard.backup.manifest import (
    FORMAT,
    SEGMENTS,
    Manifest,
    Part,
    identity_part,
    write_manifest,
)
from taskyard.backup.source import Look, Source, Wanted
from taskyard.engine.model.state import EngineSettings, State
from taskyard.journal.collector import CollectorPaused
from taskyard.journal.disk import Disk, File
from taskyard.journal.errors import JournalIncomplete, JournalPassed
from taskyard.journal.identity import Identity
from taskyard.journal.recovery import Recovery

PORTION: Final = 1 << 20
_ROUNDS: Final = 20  # in which segments may be dropped before they were copied


def nobody(_: int) -> None:
    """Told of bytes when nobody wants to be."""


def make_backup(
    source: Source, disk: Disk, now: int, told: Callable[[int], None] = nobody
) -> Manifest:
    """Fill the empty directory `disk`; `told` hears how many more bytes were copied."""
    copy = _Copy(source, disk.directory(SEGMENTS), told)
    for _ in range(_ROUNDS):
        look = source.look()
        try:
            copy.bring_to(look)
            recovery = replay(copy.directory, look.identity, look.end, look.last_seq)
        except (JournalPassed, JournalIncomplete):
            continue  # a segment was dropped meanwhile, or a later record stands for what was
        manifest = _describe(look, recovery, copy, now)
        disk.sync()
        write_manifest(disk, manifest)
        return manifest
    raise JournalMoves


def replay(directory: Disk, identity: Identity, end: int, last_seq: int) -> Recovery:
    """Check every frame and apply all records; they must go exactly so far."""
    recovery = Recovery(directory, identity, State(EngineSettings()))
    with CollectorPaused():
        recovery.run()
    if (recovery.end, recovery.next_seq - 1) != (end, last_seq) or recovery.torn_at:
        raise BadBackup(
            f"the copy ends with record {recovery.next_seq - 1} at byte {recovery.end}, and not "
            f"with record {last_seq} at byte {end}"
        )
    return recovery


class _Copy:
    """The segments that were copied, and what is known of them."""

    def __init__(self, source: Source, directory: Disk, told: Callable[[int], None]) -> None:
        self.directory = directory
        self.parts: dict[str, Part] = {}
        self._source = source
        self._told = told

    def bring_to(self, look: Look) -> None:
        """Have exactly what `look` says, each file on disk for good."""
        wanted = {segment.name: segment for segment in look.segments}
        for name, part in list(self.parts.items()):
            if name not in wanted or wanted[name].size != part.bytes:
                self.directory.remove(name)
                del self.parts[name]
        self._source.keep(look)
        for name, segment in wanted.items():
            if name not in self.parts:
                self._copy(look, segment)
        self.directory.sync()

    def _copy(self, look: Look, wanted: Wanted) -> None:
        file = self.directory.create(wanted.name, 0)
        try:
            digest = self._fill(file, look, wanted)
            file.sync()
        except JournalPassed:
            self.directory.remove(wanted.name)
            raise
        finally:
            file.close()
        self.parts[wanted.name] = Part(wanted.name, wanted.size, digest)

    def _fill(self, file: File, look: Look, wanted: Wanted) -> str:
        digest = hashlib.sha256()
        at = 0
        while at < wanted.size:
            self._source.keep(look)
            data = self._source.read(wanted, at, min(at + PORTION, wanted.size))
            if not data:
                raise BadBackup(f"{wanted.name} ends at byte {at}, and not at {wanted.size}")
            file.write_at(at, [data])
            digest.update(data)
            at += len(data)
            self._told(len(data))
        return digest.hexdigest()


def _describe(look: Look, recovery: Recovery, copy: _Copy, now: int) -> Manifest:
    state = recovery.state
    parts = [copy.parts[segment.name] for segment in look.segments]
    first_seq = look.segments[0].first_seq
    return Manifest(
        format=FORMAT,
        version=__version__,
        made=now,
        timeline=look.identity.timeline.hex(),
        first_seq=first_seq,
        last_seq=look.last_seq,
        end=look.end,
        records=look.last_seq - first_seq + 1,
        jobs=int(state.jobs.size) - len(state.finished),
        epoch=int(state.epoch),
        next_id=int(state.next_id),
        bytes=sum(part.bytes for part in parts),
        identity=identity_part(look.identity),
        segments=parts,
    )
