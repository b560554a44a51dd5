"""Making a journal start again whose beginning was dropped, when what was to replace it is lost.

Compaction drops segments once a Base record behind them says that all that lived there has been
carried. Is the journal cut off before that record, a replay cannot know all. Two things help: the
segments that are still kept for readers, if they go back far enough; else a Base record of our own,
which says that what is known is all there is.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable

from librt.strings import read_i64_le
from mypy_extensions import i64

from taskyard.engine.model.errors import CorruptRecord
from taskyard.engine.model.job import SYSTEM_ORIGIN
from taskyard.engine.model.state import EngineSettings, State
from taskyard.engine.records.carry_records import Base, CarryJob
from taskyard.engine.records.decode import Decoder
from taskyard.engine.records.job_changes import JobRecord, Remove
from taskyard.engine.records.job_lifecycle import DELETED, Boot, Finish, Lease, Push, Record
from taskyard.engine.records.log import Log
from taskyard.engine.records.replay import apply_record
from taskyard.journal.disk import Disk
from taskyard.journal.errors import JournalCorrupt
from taskyard.journal.evidence import first_frame_survives, frames_behind
from taskyard.journal.frames import (
    FRAME_HEADER,
    Content,
    Frame,
    frame_header,
    salt_at,
    written_end,
)
from taskyard.journal.identity import Identity
from taskyard.journal.recovery import Recovery
from taskyard.journal.segment import (
    SEGMENT_HEADER,
    BadHeader,
    SegmentHeader,
    base_of,
    parse_header,
    read_segment,
    segment_name,
    segment_names,
)
from taskyard.journal.spare import AT_ONCE, remove_if_there


class Closing:
    """Where a journal that was cut can begin, and what is known then."""

    def __init__(self, start: i64, partial: bool) -> None:
        self.start = start
        self.partial = partial  # something may have lived that is not known any more
        self.earlier = False  # it begins in what was retained for readers
        self.jobs: i64 = 0  # that are known
        self.counted: i64 = -1  # jobs that compaction has counted behind the cut; -1: unreadable
        self.epoch: i64 = 0  # the last that any record speaks of
        self.next_id: i64 = 1  # higher than any id in any record
        self.last_kept: i64 = 0  # the last record before the cut


def plan_closing(
    directory: Disk, identity: Identity, recovery: Recovery, end: i64, last_kept: i64
) -> Closing:
    """How to begin where `recovery` could not: all from its base up to `end` is intact."""
    for header in recovery.retained:
        tried = _replay(directory, identity, header.base)
        # Where the damage took the first header, nothing says which record was the next.
        if tried.end == end and (not recovery.segments or tried.next_seq == last_kept + 1):
            closing = _weigh(directory, identity, tried)
            closing.earlier = True
            return closing
    closing = _weigh(directory, identity, recovery)
    closing.last_kept = last_kept
    return closing


def _replay(directory: Disk, identity: Identity, start: i64) -> Recovery:
    recovery = Recovery(directory, identity, State(EngineSettings()))
    recovery.start = start
    with contextlib.suppress(JournalCorrupt):  # it goes as far as it can
        recovery.run()
    return recovery


def _weigh(directory: Disk, identity: Identity, recovery: Recovery) -> Closing:
    state = recovery.state
    closing = Closing(recovery.base, state.partial)
    closing.jobs = state.counts()[0]
    closing.last_kept = recovery.next_seq - 1
    closing.epoch = state.epoch
    closing.next_id = state.next_id
    if state.partial:
        # A repair that was stopped may have moved away what told it these numbers.
        closing.epoch = max(closing.epoch, identity.reach.epoch)
        closing.next_id = max(closing.next_id, identity.reach.next_id)
        for name in segment_names(directory):
            if base_of(name) >= recovery.base:
                _look_for_numbers(directory, name, closing)
    return closing


def _look_for_numbers(directory: Disk, name: str, closing: Closing) -> None:
    """Ids and epochs must not be given a second time, if only what is lost speaks of them."""
    content = read_segment(directory, name)
    salt = _salt_of(content)
    if not salt:
        return
    decoder = Decoder(blobs=False)
    end = written_end(content, 0)
    for frame in frames_behind(content, SEGMENT_HEADER, end, salt):
        for record in _readable(decoder, content.data, frame):
            if isinstance(record, Boot):
                closing.epoch = max(closing.epoch, record.epoch)
                closing.next_id = max(closing.next_id, record.next_id)
            elif isinstance(record, Base):
                closing.epoch = max(closing.epoch, record.epoch)
                closing.next_id = max(closing.next_id, record.next_id)
                closing.counted = record.counts[0]
            elif isinstance(record, (Push, Lease, Finish, JobRecord, CarryJob)):
                closing.next_id = max(closing.next_id, record.id + 1)


def _readable(decoder: Decoder, data: bytes, frame: Frame) -> list[Record]:
    """The records of a frame, up to one that makes no sense: it may be the damage itself."""
    found: list[Record] = []
    at = frame.body
    with contextlib.suppress(CorruptRecord):
        while at < frame.end:
            found.append(decoder.read(data, at, 0))
            at = decoder.next
    return found


def _salt_of(content: Content) -> i64:
    """The salt of a segment's frames; 0: nothing intact says it."""
    try:
        return parse_header(content).salt
    except BadHeader:
        return salt_at(content, SEGMENT_HEADER) if first_frame_survives(content) else i64(0)


def last_base(directory: Disk, after: i64) -> i64:
    """The highest base that any record names which can be read behind a position; 0: none."""
    found: i64 = 0
    names = segment_names(directory)
    decoder = Decoder(blobs=False)
    for name in names:
        if base_of(name) < after:
            continue
        content = read_segment(directory, name)
        try:
            header = parse_header(content)
        except BadHeader:
            continue
        end = written_end(content, 0)
        for frame in frames_behind(content, SEGMENT_HEADER, end, header.salt):
            for record in _readable(decoder, content.data, frame):
                if isinstance(record, Base) and segment_name(record.base) in names:
                    found = max(found, record.base)
    return found


def close_journal(
    directory: Disk,
    identity: Identity,
    closing: Closing,
    entropy: Callable[[int], bytes],
    now: i64,
) -> None:
    """Put a segment behind the cut whose one frame says that a replay may begin at the start."""
    recovery = _replay(directory, identity, closing.start)
    recovery.settle()
    state = recovery.state
    end = identity.reach.end
    first_seq = identity.reach.last_seq + 1
    if recovery.segments:
        end = recovery.end
        first_seq = recovery.next_seq
    time = max(now, state.time)
    log = Log(first_seq, end + SEGMENT_HEADER + FRAME_HEADER)
    if state.partial:
        _end_lost_blockers(state, log, time)
        record = Base(time, closing.start, closing.epoch, closing.next_id, state.counts())
    else:
        record = Base(time, closing.start, state.epoch, state.next_id, state.counts())
    log.append(record)
    count = log.count
    body = log.take(0)
    salt = read_i64_le(entropy(8), 0) | 1  # never 0
    header = SegmentHeader(
        identity.timeline, end, first_seq, salt, time, first_seq - 1, closing.start, closing.start
    )
    frame = frame_header(body, first_seq, count, salt, first_seq - 1)
    _write(directory, segment_name(end), [header.encoded(), frame, body])


def _end_lost_blockers(state: State, log: Log, time: i64) -> None:
    """Jobs that wait for one that is not known would wait for ever; they hear that it is gone."""
    for blocker in list(state.dependents):
        if state.live(blocker) is None:
            waiting = state.jobs.get(next(iter(state.dependents[blocker])))
            assert waiting is not None
            record = Remove(time, SYSTEM_ORIGIN, blocker, waiting.queue.utf8, DELETED, False, None)
            log.append(record)
            apply_record(state, record)


def _write(directory: Disk, name: str, parts: list[bytes]) -> None:
    """It gets its name last, so that it is there as a whole or not at all."""
    remove_if_there(directory, AT_ONCE)
    file = directory.create(AT_ONCE, 0)
    try:
        file.write_at(0, parts)
        file.sync()
    finally:
        file.close()
    directory.rename(AT_ONCE, name)
    directory.sync()
