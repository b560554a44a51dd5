"""Makes a journal start again whose beginning was removed, and whose checkpoint is lost.

Compaction removes segments once a Checkpoint behind them says that everything alive in them has a
snapshot. If the journal is cut off before that record, a replay cannot know everything. Two things
help: the segments that are still kept for readers, if they reach back far enough; else a Checkpoint
of our own, which declares that what is known is everything.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable

from librt.strings import read_i64_le
from mypy_extensions import i64

from taskyard.engine.model.errors import CorruptRecord
from taskyard.engine.model.job import SYSTEM_ORIGIN
from taskyard.engine.model.state import EngineSettings, State
from taskyard.engine.records.carry_records import Checkpoint, JobSnapshot
from taskyard.engine.records.decode import Decoder
from taskyard.engine.records.job_changes import JobRecord, RemoveRecord
from taskyard.engine.records.job_lifecycle import (
    DELETED,
    BootRecord,
    FinishRecord,
    LeaseRecord,
    PushRecord,
    Record,
)
from taskyard.engine.records.log import RecordBuffer
from taskyard.engine.records.replay import apply_record
from taskyard.journal.disk import Disk
from taskyard.journal.errors import JournalCorrupt
from taskyard.journal.evidence import frames_behind, is_first_frame_intact
from taskyard.journal.frames import (
    FRAME_HEADER_BYTES,
    Frame,
    SegmentBytes,
    frame_header,
    salt_at,
    written_end,
)
from taskyard.journal.identity import Identity
from taskyard.journal.recovery import Recovery
from taskyard.journal.segment import (
    SEGMENT_HEADER_BYTES,
    BadHeader,
    SegmentHeader,
    base_of,
    parse_header,
    read_segment,
    segment_name,
    segment_names,
)
from taskyard.journal.spare import AT_ONCE, remove_if_exists


class CheckpointPlan:
    """Where a journal that was cut can begin, and what is known then."""

    def __init__(self, start: i64, partial: bool) -> None:
        self.start = start
        self.partial = partial  # something may have lived that is not known any more
        self.begins_in_retained = False  # it begins in what was retained for readers
        self.jobs: i64 = 0  # that are known
        # jobs that compaction has counted behind the cut; -1: unreadable
        self.counted_jobs: i64 = -1
        self.epoch: i64 = 0  # the last that any record speaks of
        self.next_id: i64 = 1  # higher than any id in any record
        self.last_kept: i64 = 0  # the last record before the cut


def plan_checkpoint(
    directory: Disk, identity: Identity, recovery: Recovery, end: i64, last_kept: i64
) -> CheckpointPlan:
    """Plan how to begin where `recovery` could not: all from its base up to `end` is intact."""
    for header in recovery.retained:
        tried = _replay(directory, identity, header.base)
        # Where the damage took the first header, nothing says which record was the next.
        if tried.end == end and (not recovery.segments or tried.next_seq == last_kept + 1):
            closing = _plan_from(directory, identity, tried)
            closing.begins_in_retained = True
            return closing
    closing = _plan_from(directory, identity, recovery)
    closing.last_kept = last_kept
    return closing


def _replay(directory: Disk, identity: Identity, start: i64) -> Recovery:
    recovery = Recovery(directory, identity, State(EngineSettings()))
    recovery.forced_start = start
    with contextlib.suppress(JournalCorrupt):  # it replays as far as it can
        recovery.run()
    return recovery


def _plan_from(directory: Disk, identity: Identity, recovery: Recovery) -> CheckpointPlan:
    state = recovery.state
    closing = CheckpointPlan(recovery.replay_start, state.is_partial_replay)
    closing.jobs = state.entity_counts()[0]
    closing.last_kept = recovery.next_seq - 1
    closing.epoch = state.epoch
    closing.next_id = state.next_id
    if state.is_partial_replay:
        # A repair that was stopped may have moved away the records with these numbers.
        closing.epoch = max(closing.epoch, identity.extent.epoch)
        closing.next_id = max(closing.next_id, identity.extent.next_id)
        for name in segment_names(directory):
            if base_of(name) >= recovery.replay_start:
                _raise_ids_and_epoch(directory, name, closing)
    return closing


def _raise_ids_and_epoch(directory: Disk, name: str, closing: CheckpointPlan) -> None:
    """Ids and epochs must not be given a second time, if only what is lost speaks of them."""
    content = read_segment(directory, name)
    salt = _salt_of(content)
    if not salt:
        return
    decoder = Decoder(blobs=False)
    end = written_end(content, 0)
    for frame in frames_behind(content, SEGMENT_HEADER_BYTES, end, salt):
        for record in _readable_records(decoder, content.data, frame):
            if isinstance(record, BootRecord):
                closing.epoch = max(closing.epoch, record.epoch)
                closing.next_id = max(closing.next_id, record.next_id)
            elif isinstance(record, Checkpoint):
                closing.epoch = max(closing.epoch, record.epoch)
                closing.next_id = max(closing.next_id, record.next_id)
                closing.counted_jobs = record.counts[0]
            elif isinstance(
                record, (PushRecord, LeaseRecord, FinishRecord, JobRecord, JobSnapshot)
            ):
                closing.next_id = max(closing.next_id, record.id + 1)


def _readable_records(decoder: Decoder, data: bytes, frame: Frame) -> list[Record]:
    """The records of a frame, up to one that makes no sense: it may be the damage itself."""
    found: list[Record] = []
    at = frame.body
    with contextlib.suppress(CorruptRecord):
        while at < frame.end:
            found.append(decoder.read(data, at, 0))
            at = decoder.next_at
    return found


def _salt_of(content: SegmentBytes) -> i64:
    """The salt of a segment's frames; 0: nothing intact says it."""
    try:
        return parse_header(content).salt
    except BadHeader:
        return salt_at(content, SEGMENT_HEADER_BYTES) if is_first_frame_intact(content) else i64(0)


def last_checkpoint_base(directory: Disk, after: i64) -> i64:
    """Return the highest base in any record that can be read behind a position; 0: none."""
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
        for frame in frames_behind(content, SEGMENT_HEADER_BYTES, end, header.salt):
            for record in _readable_records(decoder, content.data, frame):
                if isinstance(record, Checkpoint) and segment_name(record.base) in names:
                    found = max(found, record.base)
    return found


def rebuild_checkpoint(
    directory: Disk,
    identity: Identity,
    closing: CheckpointPlan,
    entropy: Callable[[int], bytes],
    now: i64,
) -> None:
    """Put a segment behind the cut whose one frame says that a replay may begin at the start."""
    recovery = _replay(directory, identity, closing.start)
    recovery.truncate_and_sync()
    state = recovery.state
    end = identity.extent.end
    first_seq = identity.extent.last_seq + 1
    if recovery.segments:
        end = recovery.end
        first_seq = recovery.next_seq
    time = max(now, state.time)
    log = RecordBuffer(first_seq, end + SEGMENT_HEADER_BYTES + FRAME_HEADER_BYTES)
    if state.is_partial_replay:
        _remove_lost_blockers(state, log, time)
        record = Checkpoint(
            time, closing.start, closing.epoch, closing.next_id, state.entity_counts()
        )
    else:
        record = Checkpoint(time, closing.start, state.epoch, state.next_id, state.entity_counts())
    log.append(record)
    count = log.count
    body = log.drain(0)
    salt = read_i64_le(entropy(8), 0) | 1  # never 0
    header = SegmentHeader(
        identity.timeline, end, first_seq, salt, time, first_seq - 1, closing.start, closing.start
    )
    frame = frame_header(body, first_seq, count, salt, first_seq - 1)
    _write_segment(directory, segment_name(end), [header.encode(), frame, body])


def _remove_lost_blockers(state: State, log: RecordBuffer, time: i64) -> None:
    """Remove blockers that are not known: the jobs that wait for them would wait for ever."""
    for blocker in list(state.dependents):
        if state.live_job(blocker) is None:
            waiting = state.jobs.get(next(iter(state.dependents[blocker])))
            assert waiting is not None
            record = RemoveRecord(
                time, SYSTEM_ORIGIN, blocker, waiting.queue.utf8, DELETED, False, None
            )
            log.append(record)
            apply_record(state, record)


def _write_segment(directory: Disk, name: str, parts: list[bytes]) -> None:
    """It gets its name last, so that it is there as a whole or not at all."""
    remove_if_exists(directory, AT_ONCE)
    file = directory.create(AT_ONCE, 0)
    try:
        file.write_at(0, parts)
        file.sync()
    finally:
        file.close()
    directory.rename(AT_ONCE, name)
    directory.sync()
