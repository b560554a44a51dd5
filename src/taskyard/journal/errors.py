"""What can go wrong with a journal, in words for the operator."""

from __future__ import annotations

from mypy_extensions import i64, mypyc_attr


class JournalError(Exception):
    """Base of errors that prevent the use of a data directory."""


class DataDirectoryInUse(JournalError):
    """Another process has the data directory."""

    def __init__(self, path: str, pid: str) -> None:
        owner = f"process {pid}" if pid else "another process"
        super().__init__(f"the data directory {path} is in use by {owner}")
        self.path = path
        self.pid = pid


class SegmentRemoved(JournalError):
    """Compaction removed a segment while it was being read."""

    def __init__(self, file: str) -> None:
        super().__init__(
            f"{file} is gone: compaction has dropped it while it was read; read again from a "
            "record that is still there"
        )
        self.file = file


class RecordsRemoved(JournalError):
    """A reader wants records that were removed."""

    def __init__(self, wanted: i64, first: i64) -> None:
        missed = first - wanted
        gone = f"records {wanted} to {first - 1} are" if missed > 1 else f"record {wanted} is"
        were = f"{missed:,} records were" if missed > 1 else "1 record was"
        super().__init__(f"{gone} not there any more: {were} missed; the first one left is {first}")
        self.wanted = wanted  # the record that it wanted next
        self.first = first  # the first one that is there
        self.missed = missed


class JournalCorrupt(JournalError):
    """Something that was durable is damaged or missing. Nothing is changed on disk.

    All before `offset` of `file` is intact, and all of it is kept by a repair.
    """

    def __init__(self, file: str, offset: i64, seq: i64, reason: str) -> None:
        record = f", record {seq}" if seq else ""
        super().__init__(
            f"{file} is damaged at byte {offset}{record}: {reason} (look at it with "
            "`taskyard journal check`, keep all before it with `taskyard journal repair`)"
        )
        self.file = file
        self.offset = offset
        self.seq = seq  # of the first record that is lost
        self.reason = reason


class JournalIncomplete(JournalCorrupt):
    """Everything that is left is intact, but the beginning was removed and no checkpoint replaces
    it.
    """


class JournalTooNew(JournalError):
    """A newer Taskyard has written it. That is no damage, and nothing may be taken out for it."""

    def __init__(self, file: str, reason: str) -> None:
        super().__init__(
            f"{file} was written by a newer version of Taskyard ({reason}); use that version, or "
            "restore a backup that this one has made"
        )
        self.file = file


@mypyc_attr(native_class=False)  # mypyc cannot extend OSError
class JournalFailed(OSError):
    """A write or a sync has failed before, so nothing can be promised any more."""
