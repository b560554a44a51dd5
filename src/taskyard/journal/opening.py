"""From a data directory to a journal that can be written: the way in for the server."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable

from mypy_extensions import i64

from taskyard.engine.model.state import State
from taskyard.journal.disk import Disk
from taskyard.journal.errors import JournalError
from taskyard.journal.format import segment_names
from taskyard.journal.identity import (
    JOURNAL,
    RESTORING,
    BadIdentity,
    Entropy,
    Identity,
    JournalExtent,
    JournalSettings,
    load_identity,
    new_identity,
    save_identity,
)
from taskyard.journal.recovery import Recovery, RecoveryReport
from taskyard.journal.writer import Journal


def no_stopwatch() -> float:
    return 0.0


def open_journal(
    disk: Disk,
    settings: JournalSettings,
    state: State,
    clock_now: i64,
    entropy: Entropy = os.urandom,
    stopwatch: Callable[[], float] = no_stopwatch,
) -> tuple[Journal, RecoveryReport]:
    """Bring `state` to what the journal of this data directory says, and continue from there.

    JournalError if the directory cannot be used as it is; then nothing was changed.
    """
    started = stopwatch()
    directory = disk.directory(JOURNAL)
    identity = _load_or_create_identity(disk, directory, entropy, clock_now)
    recovery = Recovery(directory, identity, state)
    recovery.run()
    recovery.truncate_and_sync()
    _save_extent(disk, identity, recovery)
    now = max(clock_now, state.time)
    journal = Journal(directory, settings, identity, entropy, recovery, now)
    report = recovery.report()
    report.seconds = stopwatch() - started
    return journal, report


def _load_or_create_identity(disk: Disk, directory: Disk, entropy: Entropy, now: i64) -> Identity:
    if RESTORING in disk.names():
        raise JournalError(
            "a restore into this data directory was not finished; run `taskyard restore` again"
        )
    identity = load_identity(disk)
    if identity is not None:
        return identity
    if segment_names(directory):
        raise BadIdentity("is missing")
    identity = new_identity(entropy, now)
    save_identity(disk, identity)
    return identity


def _save_extent(disk: Disk, identity: Identity, recovery: Recovery) -> None:
    """Save how far the journal reaches, all of which is on disk by now."""
    if recovery.end <= identity.extent.end:
        return
    state = recovery.state
    identity.extent = JournalExtent(recovery.end, recovery.next_seq - 1, state.epoch, state.next_id)
    # On a full disk the older extent stays, which is true as well; whether one can start there is
    # not for this to say.
    with contextlib.suppress(OSError):
        save_identity(disk, identity)
