"""Bringing to disk what was written, here or in another thread."""

from __future__ import annotations

import errno
import os

from mypy_extensions import i64, mypyc_attr

from taskyard.journal.disk import Disk
from taskyard.journal.errors import JournalFailed
from taskyard.journal.segment import Segment


@mypyc_attr(acyclic=True)
class WriteFailure:
    """Why nothing can be written any more; "": it can. Shared with the syncs in other threads."""

    __slots__ = ("reason",)

    def __init__(self) -> None:
        self.reason = ""

    def raise_if_failed(self) -> None:
        if self.reason:
            raise JournalFailed(errno.EIO, self.reason)


class SyncPoint:
    """What must be synced for all that is written now to be durable."""

    __slots__ = ("_directory", "_write_failure", "done", "position", "segments", "seq")

    def __init__(
        self,
        segments: list[Segment],
        directory: Disk | None,
        position: i64,
        seq: i64,
        health: WriteFailure,
    ) -> None:
        self.segments = segments
        self.position = position
        self.seq = seq
        self.done = False
        self._directory = directory
        self._write_failure = health

    def only_descriptor(self) -> int:
        """The one file that has to be flushed, if that is all and it has a descriptor; else -1."""
        if self._directory is not None or len(self.segments) != 1 or self._write_failure.reason:
            return -1
        return self.segments[0].file.fileno()

    def on_flushed(self, failure: int) -> None:
        """Another thread has flushed that file; `failure` is the errno of that, or 0."""
        if failure:
            error = OSError(failure, os.strerror(failure))
            self._write_failure.reason = f"a sync has failed: {error}"
            raise error
        self.done = True

    def run(self) -> None:
        """Do it. May run in another thread. What has failed is never tried again."""
        self._write_failure.raise_if_failed()
        try:
            for segment in self.segments:
                segment.file.sync()
            if self._directory is not None:
                self._directory.sync()
        except OSError as error:
            self._write_failure.reason = f"a sync has failed: {error}"
            raise
        self.done = True
