"""A journal by path or by URL: what there is, shared out into ranges, and their rows.

    journal = open_journal("/var/lib/taskyard")
    view = journal.view()
    for range in plan(view, view.first_seq, view.durable_seq, 4):
        for batch in read(range, columns): ...

Journals and ranges can be pickled: tasks elsewhere read theirs by themselves.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any, Final

from taskyard.engine.errors import CorruptRecord
from taskyard.journal.errors import JournalCorrupt, JournalPassed, LeftBehind
from taskyard.journal.frames import FRAME_HEADER, Content, frame_at
from taskyard.journal.segment import SEGMENT_HEADER, segment_name
from taskyard.pipeline.files import HEAD, FileJournal
from taskyard.pipeline.journal_view import (
    Journal,
    JournalView,
    Mark,
    Piece,
    Range,
    SegmentView,
    TimelineChanged,
    plan,
    salt_of,
)
from taskyard.pipeline.records.rows import DEFAULT_COLUMNS, decode_frames

__all__ = [
    "Journal",
    "JournalView",
    "Mark",
    "Piece",
    "Range",
    "SegmentView",
    "TimelineChanged",
    "open_journal",
    "plan",
    "read",
]

BATCH_ROWS: Final = 50_000
_PORTION: Final = 8 << 20  # bytes in memory at a time, unless one frame is larger


def open_journal(path_or_url: str, token: str | None = None) -> Journal:
    """The journal of a data directory, or of the server at http(s)://[user:password@]host:port."""
    if path_or_url.startswith(("http://", "https://")):
        from taskyard.pipeline.web import WebJournal

        return WebJournal(path_or_url, token)
    return FileJournal(path_or_url.removeprefix("file://"))


def read(
    wanted: Range,
    columns: Sequence[str] = DEFAULT_COLUMNS,
    batch_rows: int = BATCH_ROWS,
) -> Iterator[Any]:
    """The rows of a range, in Arrow batches of about so many.

    LeftBehind if they are not there any more, JournalCorrupt if they are damaged.
    """
    journal = wanted.journal
    if journal is None:
        raise ValueError("a range that was not planned for a journal cannot be read")
    reading = _Reading(journal, wanted, columns, batch_rows)
    try:
        for piece in wanted.pieces:
            yield from reading.piece(piece)
    except JournalPassed:
        raise _left_behind(journal, reading.next_seq) from None
    if reading.next_seq <= wanted.last_seq:
        last = wanted.pieces[-1]
        reason = f"it ends before record {wanted.last_seq}"
        raise JournalCorrupt(segment_name(last.base), last.end, reading.next_seq, reason)


def _left_behind(journal: Journal, wanted: int) -> Exception:
    view = journal.view(wanted)
    if wanted < view.first_seq:
        return LeftBehind(wanted, view.first_seq)
    return JournalPassed(f"the segment with record {wanted}")


class _Reading:
    """One range on its way from bytes to batches."""

    def __init__(
        self, journal: Journal, wanted: Range, columns: Sequence[str], batch_rows: int
    ) -> None:
        self._journal = journal
        self._range = wanted
        self._columns = columns
        self._batch_rows = batch_rows
        self._salt = cache(journal.salt)  # asked for where it is needed, which is seldom
        self.next_seq = wanted.first_seq  # all before it has been given

    def piece(self, piece: Piece) -> Iterator[Any]:
        salt = salt_of(self._journal.fetch(piece.base, 0, SEGMENT_HEADER), piece.base)
        at = piece.start
        seq = piece.seq
        size = _PORTION
        while at < piece.end and seq <= self._range.last_seq:
            data = self._journal.fetch(piece.base, at, min(at + size, piece.end))
            frames, taken, next_seq = self._frames(data, salt, seq)
            if not taken:
                size = self._needed(data, piece, at, seq, size)
                continue
            for group in self._groups(frames):
                yield self._decoded(data, group, piece.base, at)
            at += taken
            seq = next_seq
            size = _PORTION
            self.next_seq = max(self.next_seq, min(seq, self._range.last_seq + 1))

    def _frames(
        self, data: bytes, salt: int, seq: int
    ) -> tuple[list[tuple[int, int, int]], int, int]:
        """The wanted frames at the start of the data, how many bytes were looked through, and the
        record that follows."""
        content = Content(data, len(data))
        frames: list[tuple[int, int, int]] = []
        at = 0
        while at + FRAME_HEADER <= len(data) and seq <= self._range.last_seq:
            length, _, first, count, _, its_salt, _ = HEAD.unpack_from(data, at)
            end = at + FRAME_HEADER + length
            if not length or its_salt != salt or first != seq or end > len(data):
                break
            if seq + count > self._range.first_seq:  # else it is left out, and not looked at
                if frame_at(content, at, salt) is None:
                    break
                frames.append((at + FRAME_HEADER, end, seq))
            at = end
            seq += count
        return frames, at, seq

    def _needed(self, data: bytes, piece: Piece, at: int, seq: int, size: int) -> int:
        """How many bytes the frame takes of which only the beginning was read."""
        if len(data) >= FRAME_HEADER:
            needed = FRAME_HEADER + HEAD.unpack_from(data)[0]
            if len(data) < needed <= piece.end - at and needed > size:
                return int(needed)
        # It may have been recycled while it was read; then there is another name to its bytes.
        self._journal.fetch(piece.base, 0, SEGMENT_HEADER)
        reason = "no intact frame stands there"
        raise JournalCorrupt(segment_name(piece.base), at, seq, reason)

    def _groups(self, frames: list[tuple[int, int, int]]) -> Iterator[list[tuple[int, int, int]]]:
        """Frames together until they have enough records for a batch."""
        group: list[tuple[int, int, int]] = []
        for frame in frames:
            if group and frame[2] - group[0][2] >= self._batch_rows:
                yield group
                group = []
            group.append(frame)
        if group:
            yield group

    def _decoded(self, data: bytes, frames: list[tuple[int, int, int]], base: int, at: int) -> Any:
        first, last = self._range.first_seq, self._range.last_seq
        try:
            batch = decode_frames(data, frames, self._columns, first, last, self._salt)
        except CorruptRecord as error:
            name = segment_name(base)
            raise JournalCorrupt(name, at + frames[0][0], frames[0][2], str(error)) from error
        return batch
