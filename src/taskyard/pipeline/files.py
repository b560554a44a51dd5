"""A journal in a data directory, read beside the server that writes it or without one."""

from __future__ import annotations

import contextlib
import os
from collections import deque
from dataclasses import dataclass, field
from struct import Struct
from typing import Final

from taskyard.journal.disk import RealDisk, RealFile
from taskyard.journal.errors import JournalCorrupt, JournalError, JournalPassed
from taskyard.journal.evidence import durable_behind
from taskyard.journal.frames import FRAME_HEADER, Content, frame_at, written_end
from taskyard.journal.identity import JOURNAL, BadIdentity, Identity, is_locked, load_identity
from taskyard.journal.reader import JournalReader
from taskyard.journal.segment import (
    SEGMENT_HEADER,
    BadHeader,
    SegmentHeader,
    parse_header,
    segment_name,
    segment_names,
)
from taskyard.pipeline.journal_view import JournalView, Mark, Piece, SegmentView, newest_marks

_PIECE: Final = 1 << 20
HEAD: Final = Struct("<IIqIIqq")  # length, checksum, first number, count, reserved, salt, durable


class NoJournal(JournalError):
    """There is nothing to read at a path."""

    def __init__(self, path: str) -> None:
        super().__init__(f"there is no journal in {path}: is it a server's data directory?")


@dataclass
class _Tail:
    """How far the newest segment has been read and checked."""

    base: int
    salt: int
    durable: int
    offset: int = SEGMENT_HEADER  # behind the last intact frame
    next_seq: int = 0
    ends: deque[tuple[int, int]] = field(default_factory=deque)  # last record and end of each frame
    safe: int = SEGMENT_HEADER  # behind the last frame that is durable as a whole


class FileJournal:
    """Keeps what it has seen of the newest segment, so that looking again is cheap."""

    def __init__(self, path: str) -> None:
        self.path = os.path.abspath(path)
        self._tail: _Tail | None = None
        self._marks: list[Mark] = []
        if not os.path.isdir(os.path.join(self.path, JOURNAL)):
            raise NoJournal(self.path)
        self._disk = RealDisk(os.path.join(self.path, JOURNAL))

    def __reduce__(self) -> tuple[type[FileJournal], tuple[str]]:
        return FileJournal, (self.path,)

    def view(self, from_seq: int = 0) -> JournalView:
        identity = self._identity()
        live = is_locked(self.path)
        reader = JournalReader(self._disk, live=live)
        headers = reader.segments(from_seq)
        if not headers:
            return JournalView(identity.timeline.hex(), 1, 0, (), _earlier(identity), (), self)
        tail = self._read_tail(headers[-1], live)
        durable = max(0, int(tail.durable))
        first = self._first_seq(headers[0])
        segments = tuple(_segments(headers, tail, durable))
        return JournalView(
            identity.timeline.hex(),
            first,
            durable,
            segments,
            _earlier(identity),
            tuple(self._marks),
            self,
        )

    def fetch(self, base: int, start: int, end: int) -> bytes:
        """The bytes of a segment there; JournalPassed if it is not there any more."""
        file = self._open(base)
        try:
            return file.read_at(start, end - start)
        finally:
            file.close()

    def _open(self, base: int) -> RealFile:
        try:
            return self._disk.view(segment_name(base))
        except FileNotFoundError as error:
            raise JournalPassed(segment_name(base)) from error

    def salt(self) -> bytes:
        return bytes(self._identity().salt)

    def marks(self, piece: Piece, every: int) -> list[Mark]:
        """Hop from one frame's header to the next: what is in them is checked when it is read."""
        file = self._open(piece.base)
        try:
            found = _hop(file, piece, every)
        finally:
            file.close()
        self._marks = newest_marks([*self._marks, *found])
        return found

    # What is there

    def _identity(self) -> Identity:
        identity = load_identity(RealDisk(self.path))
        if identity is None:
            raise BadIdentity("is missing")
        return identity

    def _first_seq(self, known: SegmentHeader) -> int:
        """The first record that is left; segments may go from the head meanwhile."""
        for name in segment_names(self._disk):
            with contextlib.suppress(FileNotFoundError, BadHeader):
                file = self._disk.view(name)
                try:
                    head = file.read_at(0, SEGMENT_HEADER)
                finally:
                    file.close()
                return int(parse_header(Content(head, SEGMENT_HEADER)).first_seq)
        return int(known.first_seq)

    def _read_tail(self, header: SegmentHeader, live: bool) -> _Tail:
        tail = self._tail
        if tail is None or tail.base != header.base or tail.salt != header.salt:
            tail = _Tail(int(header.base), int(header.salt), int(header.durable))
            tail.next_seq = int(header.first_seq)
        file = self._open(tail.base)
        try:
            _walk_tail(file, tail)
            if not live:
                _settle(file, tail, header)
        finally:
            file.close()
        self._tail = tail
        self._note_durable(tail)
        return tail

    def _note_durable(self, tail: _Tail) -> None:
        before = tail.safe
        last = 0
        while tail.ends and tail.ends[0][0] <= tail.durable:
            last, tail.safe = tail.ends.popleft()
        if tail.safe > before:
            mark = Mark(last + 1, tail.base, tail.safe)
            self._marks = newest_marks([*self._marks, mark])


def _walk_tail(file: RealFile, tail: _Tail) -> None:
    """Read the frames that have come since."""
    size = file.data_size()
    while tail.offset + FRAME_HEADER <= size:
        data = file.read_at(tail.offset, min(_PIECE, size - tail.offset))
        length = HEAD.unpack_from(data)[0] if len(data) >= FRAME_HEADER else 0
        if length and FRAME_HEADER + length > len(data):
            data = file.read_at(tail.offset, FRAME_HEADER + length)
        if not _take_frames(data, tail):
            return


def _take_frames(data: bytes, tail: _Tail) -> bool:
    """Take in the frames at the start of the data; whether there were any."""
    content = Content(data, len(data))
    at = 0
    while (frame := frame_at(content, at, tail.salt)) is not None:
        if frame.first_seq != tail.next_seq:
            break
        at = int(frame.end)
        tail.next_seq += int(frame.count)
        tail.durable = max(tail.durable, int(frame.durable))
        tail.ends.append((tail.next_seq - 1, tail.offset + at))
    tail.offset += at
    return at > 0


def _settle(file: RealFile, tail: _Tail, header: SegmentHeader) -> None:
    """Nobody writes it: all that is intact counts, and is brought to the disk to be sure of it."""
    data = file.read_at(tail.offset, max(file.data_size() - tail.offset, 0))
    content = Content(data, len(data))
    if durable_behind(content, 0, written_end(content, 0), header, tail.next_seq):
        name = segment_name(tail.base)
        reason = "no intact frame stands there"
        raise JournalCorrupt(name, tail.offset, tail.next_seq, reason)
    with contextlib.suppress(OSError):  # on a disk that cannot be written nothing is on its way
        file.sync()
    tail.durable = max(tail.durable, tail.next_seq - 1)


def _segments(headers: list[SegmentHeader], tail: _Tail, durable: int) -> list[SegmentView]:
    found: list[SegmentView] = []
    for index, header in enumerate(headers):
        if index + 1 < len(headers):
            after = headers[index + 1]
            last, size = int(after.first_seq) - 1, int(after.base - header.base)
        else:
            last, size = durable, tail.offset
        first = int(header.first_seq)
        found.append(SegmentView(int(header.base), first, last, size, header.timeline.hex()))
    return found


def _earlier(identity: Identity) -> tuple[tuple[str, int], ...]:
    return tuple((past.timeline.hex(), int(past.last_seq)) for past in identity.earlier)


def _hop(file: RealFile, piece: Piece, every: int) -> list[Mark]:
    found: list[Mark] = []
    at = piece.start
    wanted = at + every
    data, begin = b"", at
    seq = piece.seq
    while at + FRAME_HEADER <= piece.end:
        if at + FRAME_HEADER > begin + len(data):
            begin = at
            data = file.read_at(at, min(_PIECE // 16, piece.end - at))
            if len(data) < FRAME_HEADER:
                return found
        length, _, first, count, _, _, _ = HEAD.unpack_from(data, at - begin)
        if not length or first != seq:
            return found  # who reads it will say what is wrong
        if at >= wanted:
            found.append(Mark(first, piece.base, at))
            wanted = at + every
        at += FRAME_HEADER + length
        seq += count
    return found
