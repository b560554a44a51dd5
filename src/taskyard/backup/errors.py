"""Errors of backups, in words for the operator."""

from taskyard.journal.errors import JournalError


class BadBackup(JournalError):
    """The backup is damaged or incomplete, so it is not restored."""


class TargetExists(JournalError):
    """The target of a backup or restore exists already."""


class JournalCompactedTooFast(JournalError):
    """Compaction was always faster than the copy."""

    def __init__(self) -> None:
        super().__init__(
            "the journal is compacted faster than it can be copied; try again when the server has "
            "less to do, or with more room for readers (--retain-bytes)"
        )
