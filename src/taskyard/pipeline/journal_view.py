"""What a journal has at one moment, and how a stretch of it is shared out among readers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Final, Protocol

from taskyard.journal.errors import JournalCorrupt, JournalError, JournalPassed, LeftBehind
from taskyard.journal.frames import Content
from taskyard.journal.segment import SEGMENT_HEADER, BadHeader, parse_header, segment_name

_KEPT_MARKS: Final = 500
_LEAST_BYTES: Final = 4 << 20  # a range that is smaller is not worth a task of its own


class TimelineChanged(JournalError):
    """The journal was repaired or restored, and what a reader has read is not in it any more."""

    def __init__(self, old: str, next_seq: int, new: str, last_common: int) -> None:
        super().__init__(
            f"the journal has another timeline now ({new}, not {old}): it was repaired or "
            f"restored from a backup, and has records up to {last_common} in common with what was "
            f"read up to {next_seq - 1}; begin anew, with another checkpoint"
        )
        self.last_common = last_common


@dataclass(frozen=True)
class SegmentView:
    base: int
    first_seq: int
    last_seq: int
    bytes: int  # that can be read, header and all
    timeline: str = ""


@dataclass(frozen=True)
class Mark:
    """A record that begins a frame, and where that is."""

    seq: int
    base: int
    offset: int


def newest_marks(marks: list[Mark]) -> list[Mark]:
    """In order, each once, and no more than are of use."""
    return sorted(set(marks), key=lambda mark: mark.seq)[-_KEPT_MARKS:]


def salt_of(head: bytes, base: int) -> int:
    """The salt of the segment that begins with these bytes, if it is the one at `base`."""
    name = segment_name(base)
    try:
        header = parse_header(Content(head, len(head)))
    except BadHeader as error:
        raise JournalCorrupt(name, 0, 0, str(error)) from error
    if header.base != base:
        raise JournalPassed(name)
    return int(header.salt)


@dataclass(frozen=True)
class JournalView:
    timeline: str
    first_seq: int
    durable_seq: int
    segments: tuple[SegmentView, ...]  # from the one that has the first wanted record on
    earlier: tuple[tuple[str, int], ...] = ()  # timelines before, and the last record of each
    marks: tuple[Mark, ...] = ()  # some that are known, in order
    journal: Journal | None = field(default=None, repr=False, compare=False)  # it is a view of

    def with_durable(self, seq: int) -> JournalView:
        """The same, where somebody knows that more is durable than it says."""
        *before, newest = self.segments
        newest = replace(newest, last_seq=max(newest.last_seq, seq))
        return replace(self, durable_seq=seq, segments=(*before, newest))

    def check_timeline(self, timeline: str, next_seq: int) -> None:
        """Whether who has read all before `next_seq` on a timeline can go on here."""
        if timeline in ("", self.timeline):
            return
        names = [name for name, _ in self.earlier]
        common = 0
        if timeline in names:
            # Each later branch may have cut off more than the one before it.
            common = min(last for _, last in self.earlier[names.index(timeline) :])
        if next_seq - 1 > common:
            raise TimelineChanged(timeline, next_seq, self.timeline, common)


@dataclass(frozen=True)
class Piece:
    """A part of one segment, which begins with a frame."""

    base: int
    start: int
    end: int
    seq: int  # of its first record


@dataclass(frozen=True)
class Range:
    """Records one task reads: those from `first_seq` to `last_seq`, out of these pieces."""

    first_seq: int
    last_seq: int
    pieces: tuple[Piece, ...] = field(repr=False)
    journal: Journal | None = field(default=None, repr=False, compare=False)  # it is a part of

    @property
    def bytes(self) -> int:
        return _bytes(list(self.pieces))


class Journal(Protocol):
    """Where the bytes come from. It can be pickled: tasks elsewhere read by themselves."""

    def view(self, from_seq: int = 0) -> JournalView:
        """What there is now; of segments, those from the one with record `from_seq` on."""

    def fetch(self, base: int, start: int, end: int) -> bytes:
        """Bytes of a segment, fewer only where it ends; JournalPassed if it is gone."""

    def salt(self) -> bytes:
        """That of derived uids, and of the numbers that stand for sessions."""

    def marks(self, piece: Piece, every: int) -> list[Mark]:
        """Frames of a piece, one about every so many bytes; none if that is not cheap to tell."""


def plan(view: JournalView, start_seq: int, end_seq: int, parts: int) -> list[Range]:
    """Records `start_seq` to `end_seq`, both of them too, as up to `parts` ranges of like size."""
    end_seq = min(end_seq, view.durable_seq)
    if start_seq > end_seq:
        return []
    if start_seq < view.first_seq:
        raise LeftBehind(start_seq, view.first_seq)
    pieces = list(_pieces(view, start_seq, end_seq))
    every = max(_bytes(pieces) // parts, _LEAST_BYTES) // 4
    if view.journal is not None:
        pieces = _all_split(pieces, every, view.journal, start_seq)
        pieces = _needed(pieces, start_seq, end_seq)
    parts = max(1, min(parts, _bytes(pieces) // _LEAST_BYTES))
    ranges = _shared_out(pieces, parts, start_seq, end_seq)
    return [replace(each, journal=view.journal) for each in ranges]


def _pieces(view: JournalView, start_seq: int, end_seq: int) -> Iterator[Piece]:
    """The segments, cut where a mark says that nothing before or behind it is wanted."""
    for segment in view.segments:
        if segment.last_seq < start_seq or segment.first_seq > end_seq:
            continue
        begin = Mark(segment.first_seq, segment.base, SEGMENT_HEADER)
        end = segment.bytes
        inside = [mark for mark in view.marks if mark.base == segment.base]
        cuts: list[Mark] = []
        for mark in sorted(inside, key=lambda mark: mark.seq):
            if mark.seq <= start_seq:
                begin = mark
            elif mark.seq > end_seq:
                end = min(end, mark.offset)
            elif mark.offset < end:
                cuts.append(mark)
        stops = [*[mark.offset for mark in cuts], end]
        for mark, stop in zip([begin, *cuts], stops, strict=True):
            yield Piece(segment.base, mark.offset, stop, mark.seq)


def _all_split(pieces: list[Piece], every: int, journal: Journal, start_seq: int) -> list[Piece]:
    try:
        return [part for piece in pieces for part in _split(piece, every, journal)]
    except JournalPassed:
        first_seq = journal.view(start_seq).first_seq
        if first_seq <= start_seq:
            raise
        raise LeftBehind(start_seq, first_seq) from None


def _split(piece: Piece, every: int, journal: Journal) -> Iterator[Piece]:
    if piece.end - piece.start <= every:
        yield piece
        return
    begin = Mark(piece.seq, piece.base, piece.start)
    marks = [mark for mark in journal.marks(piece, every) if mark.offset < piece.end]
    places = [begin, *marks, Mark(0, piece.base, piece.end)]
    for mark, after in pairwise(places):
        if after.offset > mark.offset:
            yield Piece(piece.base, mark.offset, after.offset, mark.seq)


def _needed(pieces: list[Piece], start_seq: int, end_seq: int) -> list[Piece]:
    """Those with any of the records; the last one that begins before them has the first."""
    ends = [*[piece.seq for piece in pieces[1:]], end_seq + 1]
    return [
        piece
        for piece, after in zip(pieces, ends, strict=True)
        if piece.seq <= end_seq and after > start_seq
    ]


def _shared_out(pieces: list[Piece], parts: int, start_seq: int, end_seq: int) -> list[Range]:
    """Neighbours together, so that each group has about the same number of bytes."""
    total = _bytes(pieces)
    groups: list[list[Piece]] = [[] for _ in range(parts)]
    done = 0
    for piece in pieces:
        length = piece.end - piece.start
        place = (2 * done + length) * parts // (2 * total)  # of its middle
        _join(groups[min(place, parts - 1)], piece)
        done += length
    groups = [group for group in groups if group]
    firsts = [max(group[0].seq, start_seq) for group in groups]
    lasts = [*[seq - 1 for seq in firsts[1:]], end_seq]
    return [
        Range(first, last, tuple(group))
        for first, last, group in zip(firsts, lasts, groups, strict=True)
        if first <= last
    ]


def _bytes(pieces: list[Piece]) -> int:
    return sum(piece.end - piece.start for piece in pieces)


def _join(group: list[Piece], piece: Piece) -> None:
    if group and (group[-1].base, group[-1].end) == (piece.base, piece.start):
        group[-1] = replace(group[-1], end=piece.end)
    else:
        group.append(piece)
