"""A journal by path or by URL: what there is, shared out into ranges, and their rows.

    journal = open_journal("/var/lib/taskyard")
    view = journal.view()
    for range in plan(view, view.first_seq, view.durable_seq, 4):
        for batch in read(range, columns): ...

Journals and ranges can be pickled: tasks elsewhere read theirs by themselves.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import pairwise
from struct import Struct
from typing import Any, Final, Protocol

from taskyard.engine.model.events import CorruptRecord
from taskyard.journal.disk import RealDisk, RealFile
from taskyard.journal.errors import JournalCorrupt, JournalError, RecordsRemoved, SegmentRemoved
from taskyard.journal.format import (
    FRAME_HEADER_BYTES,
    SEGMENT_HEADER_BYTES,
    BadHeader,
    SegmentBytes,
    SegmentHeader,
    base_of,
    frame_at,
    parse_header,
    segment_name,
    segment_names,
    written_end,
)
from taskyard.journal.identity import JOURNAL, BadIdentity, Identity, is_locked, load_identity
from taskyard.journal.reader import JournalReader
from taskyard.journal.recovery import highest_durable_behind
from taskyard.pipeline.records.decode import Frame, decode_frames
from taskyard.pipeline.records.fields import DEFAULT_COLUMNS

BATCH_ROWS: Final = 50_000
PATIENCE: Final = 15.0  # seconds: a server that is started again takes less
_CHUNK_BYTES: Final = 8 << 20  # bytes in memory at a time, unless one frame is larger
_MIN_RANGE_BYTES: Final = 4 << 20  # a range that is smaller is not worth a task of its own
_MAX_MARKS: Final = 500
_READ_BYTES: Final = 1 << 20
_HEADERS: Final = 64 << 10  # bytes that are read to search headers of frames
_HEAD: Final = Struct("<IIqIIqq")  # length, checksum, first number, count, reserved, salt, durable


class NoJournal(JournalError):
    """There is nothing to read at a path."""

    def __init__(self, path: str) -> None:
        super().__init__(f"there is no journal in {path}: is it a server's data directory?")


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
class SegmentInfo:
    base: int
    first_seq: int
    last_seq: int
    bytes: int  # that can be read, header and all


@dataclass(frozen=True, order=True)
class FrameMark:
    """A record that begins a frame, and where that is."""

    seq: int
    base: int
    offset: int


@dataclass(frozen=True)
class Piece:
    """A part of one segment, which begins with a frame."""

    base: int
    start: int
    end: int
    seq: int  # of its first record

    @property
    def bytes(self) -> int:
        return self.end - self.start


class JournalSource(Protocol):
    """Where the bytes come from. It can be pickled: tasks elsewhere read on their own."""

    def contents(self, from_seq: int = 0) -> JournalContents:
        """Return what there is now; of segments, those from the one with record `from_seq` on."""

    def fetch(self, base: int, start: int, end: int) -> bytes:
        """Bytes of a segment, fewer only where it ends; SegmentRemoved if it is gone."""

    def salt(self) -> bytes:
        """That of derived uids, and of the numbers that stand for sessions."""

    def marks(self, piece: Piece, every: int) -> list[FrameMark]:
        """Return frames of a piece, one about every so many bytes; none if that is not cheap to
        find.
        """


@dataclass(frozen=True)
class JournalContents:
    """What a journal has at one moment."""

    journal: JournalSource = field(repr=False, compare=False)  # it is a view of
    timeline: str
    first_seq: int
    durable_seq: int
    segments: tuple[SegmentInfo, ...]  # from the one that has the first wanted record on
    earlier: tuple[tuple[str, int], ...] = ()  # timelines before, and the last record of each
    marks: tuple[FrameMark, ...] = ()  # some that are known, in order
    is_behind: bool = False  # the server may have made more durable than its files say

    def with_durable_seq(self, seq: int) -> JournalContents:
        """The same, if more is known to be durable than it says."""
        *before, newest = self.segments
        newest = replace(newest, last_seq=max(newest.last_seq, seq))
        return replace(self, durable_seq=seq, segments=(*before, newest))

    def check_timeline(self, timeline: str, next_seq: int) -> None:
        """Check that a reader of all before `next_seq` on a timeline can continue here."""
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
class Range:
    """Records one task reads: those from `first_seq` to `last_seq`, out of these pieces."""

    first_seq: int
    last_seq: int
    pieces: tuple[Piece, ...] = field(repr=False)
    timeline: str = field(repr=False)
    journal: JournalSource = field(repr=False, compare=False)  # it is a part of

    @property
    def bytes(self) -> int:
        return sum(piece.bytes for piece in self.pieces)


def open_journal(
    path_or_url: str, token: str | None = None, patience: float = PATIENCE
) -> JournalSource:
    """The journal of a data directory, or of the server at http(s)://[user:password@]host:port.

    `patience`: seconds for which a server that cannot be reached is asked again.
    """
    if path_or_url.startswith(("http://", "https://")):
        from taskyard.pipeline.journal_http import HttpJournal

        return HttpJournal(path_or_url, token, patience)
    return FileJournal(path_or_url.removeprefix("file://"))


def newest_marks(marks: list[FrameMark]) -> list[FrameMark]:
    """In order, each once, and no more than are of use."""
    return sorted(set(marks))[-_MAX_MARKS:]


def salt_of(journal: JournalSource, base: int) -> int:
    """Return the salt of the frames of a segment; SegmentRemoved if it is no longer at its base."""
    name = segment_name(base)
    head = journal.fetch(base, 0, SEGMENT_HEADER_BYTES)
    try:
        header = parse_header(SegmentBytes(head, len(head)))
    except BadHeader as error:
        raise JournalCorrupt(name, 0, 0, str(error)) from error
    if header.base != base:
        raise SegmentRemoved(name)
    return int(header.salt)


def _gone_error(journal: JournalSource, wanted: int) -> JournalError:
    """What to say of a segment that is gone."""
    first = journal.contents(wanted).first_seq
    if wanted < first:
        return RecordsRemoved(wanted, first)
    return SegmentRemoved(f"the segment with record {wanted}")


# Ranges


def plan_ranges(view: JournalContents, start_seq: int, end_seq: int, parts: int) -> list[Range]:
    """Records `start_seq` to `end_seq`, both of them too, as up to `parts` ranges of like size."""
    end_seq = min(end_seq, view.durable_seq)
    if start_seq > end_seq:
        return []
    if start_seq < view.first_seq:
        raise RecordsRemoved(start_seq, view.first_seq)
    known = sum(piece.bytes for piece in _known_pieces(view, start_seq, end_seq))
    every = max(known // parts, _MIN_RANGE_BYTES) // 4
    pieces = list(_pieces(view, start_seq, end_seq, every))
    groups = _groups(pieces, parts)
    firsts = [max(group[0].seq, start_seq) for group in groups]
    lasts = [*[seq - 1 for seq in firsts[1:]], end_seq]
    return [
        Range(first, last, tuple(group), view.timeline, view.journal)
        for first, last, group in zip(firsts, lasts, groups, strict=True)
        if first <= last
    ]


def last_seq_within(view: JournalContents, start_seq: int, end_seq: int, most_bytes: int) -> int:
    """The last record, up to `end_seq`, of those from `start_seq` on that are of so many bytes.

    It is one before a mark, so that there may be some more bytes, or much fewer.
    """
    found = 0
    for piece in _pieces(view, start_seq, end_seq, max(most_bytes, _MIN_RANGE_BYTES) // 4):
        found += piece.bytes
        if found > most_bytes and piece.seq > start_seq:
            return piece.seq - 1
    return end_seq


def _pieces(view: JournalContents, start_seq: int, end_seq: int, every: int) -> Iterator[Piece]:
    """The pieces that have any of the records, of about so many bytes."""
    before: Piece | None = None
    try:
        for known in _known_pieces(view, start_seq, end_seq):
            for piece in _split(known, every, view.journal):
                if before is not None and piece.seq > start_seq:
                    yield before
                if piece.seq > end_seq:
                    return
                before = piece
    except SegmentRemoved:
        raise _gone_error(view.journal, start_seq) from None
    if before is not None:
        yield before


def _known_pieces(view: JournalContents, start_seq: int, end_seq: int) -> Iterator[Piece]:
    """The segments, cut where a mark says that nothing before or behind it is wanted."""
    for segment in view.segments:
        if segment.last_seq < start_seq or segment.first_seq > end_seq:
            continue
        begin = FrameMark(segment.first_seq, segment.base, SEGMENT_HEADER_BYTES)
        end = segment.bytes
        cuts: list[FrameMark] = []
        for mark in view.marks:
            if mark.base != segment.base:
                continue
            if mark.seq <= start_seq:
                begin = mark
            elif mark.seq > end_seq:
                end = min(end, mark.offset)
            elif mark.offset < end:
                cuts.append(mark)
        yield from _between(begin, cuts, end)


def _split(piece: Piece, every: int, journal: JournalSource) -> Iterator[Piece]:
    if piece.bytes <= every:
        yield piece
        return
    begin = FrameMark(piece.seq, piece.base, piece.start)
    yield from _between(begin, journal.marks(piece, every), piece.end)


def _between(begin: FrameMark, cuts: list[FrameMark], end: int) -> Iterator[Piece]:
    places = [begin, *[mark for mark in cuts if mark.offset < end], FrameMark(0, begin.base, end)]
    for mark, after in pairwise(places):
        if after.offset > mark.offset:
            yield Piece(mark.base, mark.offset, after.offset, mark.seq)


def _groups(pieces: list[Piece], parts: int) -> list[list[Piece]]:
    """Neighbours together, so that each group has about the same number of bytes."""
    total = sum(piece.bytes for piece in pieces)
    parts = max(1, min(parts, total // _MIN_RANGE_BYTES))
    groups: list[list[Piece]] = [[] for _ in range(parts)]
    done = 0
    for piece in pieces:
        place = (2 * done + piece.bytes) * parts // (2 * total)  # of its middle
        group = groups[min(place, parts - 1)]
        if group and (group[-1].base, group[-1].end) == (piece.base, piece.start):
            group[-1] = replace(group[-1], end=piece.end)
        else:
            group.append(piece)
        done += piece.bytes
    return [group for group in groups if group]


# Rows


def read_range(
    wanted: Range,
    columns: Sequence[str] = DEFAULT_COLUMNS,
    batch_rows: int = BATCH_ROWS,
) -> Iterator[Any]:
    """The rows of a range, in Arrow batches of about so many.

    RecordsRemoved if they were removed, JournalCorrupt if they are damaged.
    """
    journal = wanted.journal
    salt = cache(journal.salt)  # called where it is needed, which is seldom
    next_seq = wanted.first_seq  # all before it has been given
    try:
        for piece in wanted.pieces:
            for data, at, frames, after in _read_chunks(journal, wanted, piece):
                for some in _group_frames(frames, batch_rows):
                    try:
                        batch = decode_frames(
                            data, some, columns, wanted.first_seq, wanted.last_seq, salt
                        )
                    except CorruptRecord as error:
                        name, (begin, _, seq) = segment_name(piece.base), some[0]
                        raise JournalCorrupt(name, at + begin, seq, str(error)) from error
                    yield batch
                next_seq = max(next_seq, min(after, wanted.last_seq + 1))
    except SegmentRemoved:
        raise _gone_error(journal, next_seq) from None
    if next_seq <= wanted.last_seq:
        last = wanted.pieces[-1]
        reason = f"it ends before record {wanted.last_seq}"
        raise JournalCorrupt(segment_name(last.base), last.end, next_seq, reason)


def _read_chunks(
    journal: JournalSource, wanted: Range, piece: Piece
) -> Iterator[tuple[bytes, int, list[Frame], int]]:
    """Some megabytes of a piece, where they begin, their frames, and the record that follows."""
    salt = salt_of(journal, piece.base)
    at, seq, size = piece.start, piece.seq, _CHUNK_BYTES
    while at < piece.end and seq <= wanted.last_seq:
        data = journal.fetch(piece.base, at, min(at + size, piece.end))
        frames, taken, after = _find_frames(data, salt, seq, wanted)
        if taken:
            yield data, at, frames, after
            at, seq, size = at + taken, after, _CHUNK_BYTES
            continue
        length = (
            FRAME_HEADER_BYTES + _HEAD.unpack_from(data)[0]
            if len(data) >= FRAME_HEADER_BYTES
            else 0
        )
        if not size < length <= piece.end - at:
            # It may have been recycled while it was read; then there is another name to its bytes.
            journal.fetch(piece.base, 0, SEGMENT_HEADER_BYTES)
            reason = "no intact frame stands there"
            raise JournalCorrupt(segment_name(piece.base), at, seq, reason)
        size = length


def _find_frames(data: bytes, salt: int, seq: int, wanted: Range) -> tuple[list[Frame], int, int]:
    """The wanted frames at the start of the data, how many bytes were looked through, and the
    record that follows."""
    content = SegmentBytes(data, len(data))
    frames: list[Frame] = []
    at = 0
    while at + FRAME_HEADER_BYTES <= len(data) and seq <= wanted.last_seq:
        length, _, first, count, _, its_salt, _ = _HEAD.unpack_from(data, at)
        end = at + FRAME_HEADER_BYTES + length
        if not length or its_salt != salt or first != seq or end > len(data):
            break
        if seq + count > wanted.first_seq:  # else it is left out, and not decoded
            if frame_at(content, at, salt) is None:
                break
            frames.append((at + FRAME_HEADER_BYTES, end, seq))
        at = end
        seq += count
    return frames, at, seq


def _group_frames(frames: list[Frame], batch_rows: int) -> Iterator[list[Frame]]:
    """Frames together until they have enough records for a batch."""
    group: list[Frame] = []
    for frame in frames:
        if group and frame[2] - group[0][2] >= batch_rows:
            yield group
            group = []
        group.append(frame)
    if group:
        yield group


# Files


class FileJournal:
    """A journal in a data directory, read beside the server that writes it or without one.

    Keeps what it has seen of the newest segment, so that looking again is cheap.
    """

    def __init__(self, path: str) -> None:
        self.path = os.path.abspath(path)
        self._tail: _TailReader | None = None
        self._marks: list[FrameMark] = []
        if not os.path.isdir(os.path.join(self.path, JOURNAL)):
            raise NoJournal(self.path)
        self._disk = RealDisk(os.path.join(self.path, JOURNAL))

    def __reduce__(self) -> tuple[type[FileJournal], tuple[str]]:
        return FileJournal, (self.path,)

    def contents(self, from_seq: int = 0) -> JournalContents:
        identity = self._identity()
        timeline = identity.timeline.hex()
        earlier = tuple((past.timeline.hex(), int(past.last_seq)) for past in identity.earlier)
        live = is_locked(self.path)
        headers = JournalReader(self._disk, live=live).segments(from_seq)
        if not headers:
            return JournalContents(self, timeline, 1, 0, (), earlier, is_behind=live)
        tail = self._read_tail(headers[-1], live)
        durable = max(0, tail.durable)
        lasts = [*[int(after.first_seq) - 1 for after in headers[1:]], durable]
        sizes = [*[int(after.base - one.base) for one, after in pairwise(headers)], tail.offset]
        segments = tuple(
            SegmentInfo(int(header.base), int(header.first_seq), last, size)
            for header, last, size in zip(headers, lasts, sizes, strict=True)
        )
        first = self._first_seq(headers[0])
        marks = tuple(self._marks)
        return JournalContents(self, timeline, first, durable, segments, earlier, marks, live)

    def fetch(self, base: int, start: int, end: int) -> bytes:
        with closing(self._open(base)) as file:
            return file.read_at(start, end - start)

    def _open(self, base: int) -> RealFile:
        try:
            return self._disk.view(segment_name(base))
        except FileNotFoundError as error:
            raise SegmentRemoved(segment_name(base)) from error

    def salt(self) -> bytes:
        return bytes(self._identity().salt)

    def _identity(self) -> Identity:
        identity = load_identity(RealDisk(self.path))
        if identity is None:
            raise BadIdentity("is missing")
        return identity

    def marks(self, piece: Piece, every: int) -> list[FrameMark]:
        """Hop from one frame's header to the next: what is in them is checked when it is read."""
        with closing(self._open(piece.base)) as file:
            found = _find_marks(file, piece, every)
        self._marks = newest_marks([*self._marks, *found])
        return found

    def _first_seq(self, known: SegmentHeader) -> int:
        """The first record that is left; segments may go from the head meanwhile."""
        for name in segment_names(self._disk):
            with suppress(SegmentRemoved, BadHeader):
                head = self.fetch(int(base_of(name)), 0, SEGMENT_HEADER_BYTES)
                return int(parse_header(SegmentBytes(head, SEGMENT_HEADER_BYTES)).first_seq)
        return int(known.first_seq)

    def _read_tail(self, header: SegmentHeader, live: bool) -> _TailReader:
        tail = self._tail
        if tail is None or tail.base != header.base or tail.salt != header.salt:
            tail = self._tail = _TailReader(header)
        with closing(self._open(tail.base)) as file:
            tail.read_new_frames(file)
            if not live:
                tail.accept_all(file, header)
        mark = tail.durable_end()
        if mark is not None:
            self._marks = newest_marks([*self._marks, mark])
        return tail


class _TailReader:
    """How far the newest segment has been read and checked."""

    def __init__(self, header: SegmentHeader) -> None:
        self.base = int(header.base)
        self.salt = int(header.salt)
        self.durable = int(header.durable)
        self.offset: int = SEGMENT_HEADER_BYTES  # behind the last intact frame
        self._next_seq = int(header.first_seq)
        # Behind frames with records that may not be durable.
        self._frame_ends: deque[FrameMark] = deque()

    def read_new_frames(self, file: RealFile) -> None:
        """Read the frames that were written since."""
        size = file.data_size()
        while self.offset + FRAME_HEADER_BYTES <= size:
            data = file.read_at(self.offset, min(_READ_BYTES, size - self.offset))
            length = _HEAD.unpack_from(data)[0] if len(data) >= FRAME_HEADER_BYTES else 0
            if length and FRAME_HEADER_BYTES + length > len(data):
                data = file.read_at(self.offset, FRAME_HEADER_BYTES + length)
            if not self._add_frames(SegmentBytes(data, len(data))):
                return

    def _add_frames(self, content: SegmentBytes) -> bool:
        """Take in the frames at the start of the content; whether there were any."""
        at = 0
        while (frame := frame_at(content, at, self.salt)) is not None:
            if frame.first_seq != self._next_seq:
                break
            at = int(frame.end)
            self._next_seq += int(frame.count)
            self.durable = max(self.durable, int(frame.durable))
            self._frame_ends.append(FrameMark(self._next_seq, self.base, self.offset + at))
        self.offset += at
        return at > 0

    def accept_all(self, file: RealFile, header: SegmentHeader) -> None:
        """Nobody writes it: all that is intact counts, and is brought to the disk to be sure."""
        data = file.read_at(self.offset, max(file.data_size() - self.offset, 0))
        content = SegmentBytes(data, len(data))
        if highest_durable_behind(content, 0, written_end(content, 0), header, self._next_seq):
            name = segment_name(self.base)
            reason = "no intact frame stands there"
            raise JournalCorrupt(name, self.offset, self._next_seq, reason)
        with suppress(OSError):  # on a disk that cannot be written nothing is being written
            file.sync()
        self.durable = max(self.durable, self._next_seq - 1)

    def durable_end(self) -> FrameMark | None:
        """Behind the last frame all of which is durable, if there is another such now."""
        found = None
        while self._frame_ends and self._frame_ends[0].seq <= self.durable + 1:
            found = self._frame_ends.popleft()
        return found


def _find_marks(file: RealFile, piece: Piece, every: int) -> list[FrameMark]:
    found: list[FrameMark] = []
    at, seq = piece.start, piece.seq
    wanted = at + every
    data, begin = b"", at
    while at + FRAME_HEADER_BYTES <= piece.end:
        if at + FRAME_HEADER_BYTES > begin + len(data):
            begin = at
            data = file.read_at(at, min(_HEADERS, piece.end - at))
            if len(data) < FRAME_HEADER_BYTES:
                return found
        length, _, first, count, _, _, _ = _HEAD.unpack_from(data, at - begin)
        if not length or first != seq:
            return found  # its reader will report what is wrong
        if at >= wanted:
            found.append(FrameMark(first, piece.base, at))
            wanted = at + every
        at += FRAME_HEADER_BYTES + length
        seq += count
    return found
