"""What can be wrong with a backup, in words for the operator."""

from taskyard.journal.errors import JournalError


class BadBackup(JournalError):
    """It is not what was backed up, so nothing is made of it."""


class TargetExists(JournalError):
    """Something stands where a backup or a data directory was to be made."""


class JournalCompactedTooFast(JournalError):
    """Compaction was always faster than the copy."""

    def __init__(self) -> None:
        super().__init__(
            "the journal is compacted faster than it can be copied; try again when the server has "
            "less to do, or with more room for readers (--retain-bytes)"
        )
