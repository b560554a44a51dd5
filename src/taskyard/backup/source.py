"""Where a backup is copied from: what there is of a journal at one moment, and the bytes of it.

The server that writes it goes on meanwhile, and may drop a segment at any time; JournalPassed then.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from itertools import pairwise
from typing import Final, Protocol

from taskyard.journal.disk import Disk, File
from taskyard.journal.errors import JournalCorrupt, JournalError, JournalPassed
from taskyard.journal.evidence import durable_behind, durable_later
from taskyard.journal.frames import Content, Frame, frame_at, written_end
from taskyard.journal.identity import JOURNAL, BadIdentity, Identity, load_identity
from taskyard.journal.segment import (
    SEGMENT_HEADER,
    BadHeader,
    SegmentHeader,
    parse_header,
    read_segment,
    segment_name,
    segment_names,
)

_LOOKS: Final = 3  # at a frame that may just be being written, until it counts as damaged


@dataclass(frozen=True, slots=True)
class Wanted:
    """A segment, or the first bytes of it, in whole frames."""

    base: int
    first_seq: int
    size: int

    @property
    def name(self) -> str:
        return str(segment_name(self.base))


@dataclass(frozen=True, slots=True)
class Look:
    """All that a replay needs to come to the state after record `last_seq`."""

    identity: Identity
    segments: list[Wanted]  # in order; those that only readers want are left out
    last_seq: int

    @property
    def end(self) -> int:
        last = self.segments[-1]
        return last.base + last.size


class Source(Protocol):
    def look(self) -> Look:
        """What there is now."""

    def keep(self, look: Look) -> None:
        """Called again and again during a copy: what was looked at should stay where it is."""

    def read(self, wanted: Wanted, start: int, end: int) -> bytes:
        """Bytes of a segment, fewer only where it ends; JournalPassed if it is gone."""


def from_base(segments: list[Wanted], newest: SegmentHeader) -> list[Wanted]:
    """Those of a journal's segments that a replay reads, by what the newest header says."""
    first = 0
    for index, segment in enumerate(segments):
        if segment.base <= newest.recovery_base:
            first = index
    return segments[first:]


class DirectorySource:
    """A data directory on this machine, whether a server has it or not."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self._directory = disk.directory(JOURNAL)

    def look(self) -> Look:
        identity = load_identity(self._disk)
        if identity is None:
            raise BadIdentity("is missing")
        headers, headless = self._headers()
        if not headers:
            raise JournalError("the journal has no records yet, so there is nothing to back up")
        newest = headers[-1]
        frame = self._last_frame(newest, headless)
        segments = [
            Wanted(int(header.base), int(header.first_seq), int(after.base - header.base))
            for header, after in pairwise(headers)
        ]
        if frame is None:
            return Look(identity, segments, int(newest.first_seq) - 1)
        segments.append(Wanted(int(newest.base), int(newest.first_seq), int(frame.end)))
        return Look(identity, segments, int(frame.last_seq()))

    def _headers(self) -> tuple[list[SegmentHeader], list[str]]:
        """Those of the segments that a replay reads; and a last segment that has none."""
        names = segment_names(self._directory)
        found: list[SegmentHeader] = []
        headless: list[str] = []
        for name in reversed(names):
            try:
                header = parse_header(read_head(self._directory, name))
            except FileNotFoundError as error:
                if not found:
                    raise JournalPassed(name) from error
                break  # it went from the head, and those before it went first
            except BadHeader as error:
                if name != names[-1]:
                    raise JournalCorrupt(name, 0, 0, str(error)) from error
                headless.append(name)  # a crash kept it from being made, or it is damaged
                continue
            found.insert(0, header)
            if header.base <= found[-1].recovery_base:
                break
        return found, headless

    def _last_frame(self, header: SegmentHeader, headless: list[str]) -> Frame | None:
        """The last of the newest segment that is intact; all before it are, too.

        What a server is just writing can look damaged, so it is looked at again.
        """
        name = segment_name(header.base)
        looks = _LOOKS
        while True:
            content = self._content(header)
            frame = _last_intact(content, header)
            offset = frame.end if frame is not None else SEGMENT_HEADER
            seq = frame.last_seq() + 1 if frame is not None else header.first_seq
            durable = max(
                durable_behind(content, offset, written_end(content, offset), header, seq),
                durable_later(self._directory, headless, seq),
            )
            if not durable:
                self._sync(name)
                return frame
            looks -= 1
            if not looks:
                reason = f"no intact frame stands there, though record {durable} was durable later"
                raise JournalCorrupt(name, offset, seq, reason)

    def _content(self, header: SegmentHeader) -> Content:
        name = segment_name(header.base)
        try:
            content = read_segment(self._directory, name)
            found = parse_header(content)
        except (FileNotFoundError, BadHeader) as error:
            raise JournalPassed(name) from error
        if found.salt != header.salt:
            raise JournalPassed(name)
        return content

    def _sync(self, name: str) -> None:
        """What was read may have been on its way to the disk: now it is durable there, too.

        Where that cannot be done, it does not matter to the copy.
        """
        with contextlib.suppress(OSError):
            file = self._directory.view(name)
            try:
                file.sync()
            finally:
                file.close()

    def keep(self, look: Look) -> None:
        """Nobody is asked: the copy is quick, and begins anew where it comes too late."""

    def read(self, wanted: Wanted, start: int, end: int) -> bytes:
        try:
            file = self._directory.view(wanted.name)
        except FileNotFoundError as error:
            raise JournalPassed(wanted.name) from error
        try:
            return _bytes_of(file, wanted, start, end)
        finally:
            file.close()


def _last_intact(content: Content, header: SegmentHeader) -> Frame | None:
    last: Frame | None = None
    offset, seq = SEGMENT_HEADER, int(header.first_seq)
    while (frame := frame_at(content, offset, header.salt)) is not None and frame.first_seq == seq:
        last = frame
        offset = int(frame.end)
        seq += int(frame.count)
    return last


def read_head(directory: Disk, name: str) -> Content:
    file = directory.view(name)
    try:
        return Content(file.read_at(0, SEGMENT_HEADER), SEGMENT_HEADER)
    finally:
        file.close()


def _bytes_of(file: File, wanted: Wanted, start: int, end: int) -> bytes:
    """The header is looked at after the read: a file that is used again loses it first."""
    data = file.read_at(start, end - start)
    head = file.read_at(0, SEGMENT_HEADER)
    try:
        header = parse_header(Content(head, len(head)))
    except BadHeader as error:
        raise JournalPassed(wanted.name) from error
    if (header.base, header.first_seq) != (wanted.base, wanted.first_seq):
        raise JournalPassed(wanted.name)
    return data
