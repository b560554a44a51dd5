"""What can go wrong with a journal, in words for the operator."""

from __future__ import annotations

from mypy_extensions import i64, mypyc_attr


class JournalError(Exception):
    """Base of what keeps a data directory from being used."""


class DataDirectoryInUse(JournalError):
    """Another process has the data directory."""

    def __init__(self, path: str, pid: str) -> None:
        owner = f"process {pid}" if pid else "another process"
        super().__init__(f"the data directory {path} is in use by {owner}")
        self.path = path
        self.pid = pid


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


@mypyc_attr(native_class=False)  # mypyc cannot extend OSError
class JournalFailed(OSError):
    """A write or a sync has failed before, so nothing can be promised any more."""
