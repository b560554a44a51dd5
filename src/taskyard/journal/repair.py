"""Makes a damaged journal usable again, and counts what is in its segments.

All before the damage stays, the remainder is moved aside. Nothing is deleted. The journal gets a
new timeline, because sequence numbers of lost records are used again. If a repair is stopped at any
point, it can be run again. See CheckpointPlan for a journal whose beginning compaction has removed
and whose checkpoint the damage took.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable

from librt.strings import read_i64_le
from mypy_extensions import i64

from taskyard.engine.model.events import CorruptRecord
from taskyard.engine.model.job import SYSTEM_ORIGIN
from taskyard.engine.model.state import EngineSettings, State
from taskyard.engine.records.decode import SIZE_PREFIX_BYTES, Decoder, kind_at, record_end
from taskyard.engine.records.job_changes import JobRecord, RemoveRecord
from taskyard.engine.records.job_lifecycle import (
    DELETED,
    FIRST_SNAPSHOT,
    BootRecord,
    FinishRecord,
    LeaseRecord,
    PushRecord,
    Record,
)
from taskyard.engine.records.log import RecordBuffer
from taskyard.engine.records.replay import apply_record
from taskyard.engine.records.snapshots import Checkpoint, JobSnapshot
from taskyard.journal.disk import Disk
from taskyard.journal.errors import JournalCorrupt, JournalIncomplete
from taskyard.journal.format import (
    FRAME_HEADER_BYTES,
    SEGMENT_HEADER_BYTES,
    TIMELINE_BYTES,
    BadHeader,
    Frame,
    SegmentBytes,
    SegmentHeader,
    base_of,
    frame_at,
    frame_header,
    parse_header,
    read_segment,
    salt_at,
    segment_name,
    segment_names,
    torn_end,
    written_end,
)
from taskyard.journal.identity import (
    JOURNAL,
    BadIdentity,
    EarlierTimeline,
    Entropy,
    Identity,
    JournalExtent,
    load_identity,
    new_identity,
    save_identity,
)
from taskyard.journal.recovery import (
    Recovery,
    SegmentReport,
    frames_behind,
    ignore_segment,
    is_first_frame_intact,
)
from taskyard.journal.segments import AT_ONCE, remove_if_exists

# Repair


def plan_repair(
    disk: Disk, on_segment: Callable[[SegmentReport], None] = ignore_segment
) -> RepairPlan:
    """Plan the repair of the journal; changes nothing. `on_segment` is called for each segment."""
    directory = disk.directory(JOURNAL)
    lost_identity = ""
    try:
        identity = load_identity(disk)
        if identity is None and segment_names(directory):
            lost_identity = "is missing"
    except BadIdentity as error:
        identity = None
        lost_identity = error.reason
    known = identity if identity is not None else _identity_of(directory)
    recovery = Recovery(directory, known, State(EngineSettings()), on_segment)
    damage = _run_recovery(recovery)
    repair = RepairPlan(damage, lost_identity)
    if damage is not None:
        later = Recovery(directory, known, State(EngineSettings()))
        later.forced_start = last_checkpoint_base(directory, base_of(damage.file))
        if later.forced_start > base_of(damage.file):
            # The newest header may be older than that. Then what is damaged is of no use to
            # anybody but readers, if all is known to who begins behind it.
            later_damage = _run_recovery(later)
            if not later.state.is_partial_replay:
                recovery = later
                repair.skippable_damage = damage
                repair.damage = damage = later_damage
    repair.end = recovery.end
    repair.last_kept = recovery.next_seq - 1
    if damage is not None and not isinstance(damage, JournalIncomplete):
        _assess_damage(directory, repair)
        repair.last_lost = max(repair.last_lost, known.extent.last_seq)
    elif recovery.segments and not recovery.segments[-1].frames:
        repair.empty = recovery.segments[-1].name
    if recovery.state.is_partial_replay:
        repair.checkpoint_plan = plan_checkpoint(
            directory, known, recovery, repair.end, repair.last_kept
        )
        repair.last_kept = repair.checkpoint_plan.last_kept
    elif repair.skippable_damage is not None or (
        recovery.retained and (repair.cut or repair.moved)
    ):
        # The headers that are left may say that a replay begins in what is only retained.
        repair.checkpoint_plan = CheckpointPlan(recovery.replay_start, partial=False)
    return repair


def execute_repair(disk: Disk, repair: RepairPlan, aside: str, entropy: Entropy, now: i64) -> None:
    """Do what `repair` says; what is taken out goes into journal/`aside`.

    The copy comes first and the new timeline second: a crash after that leaves a journal that is
    still refused, or one whose damage has become a torn tail behind which nothing is left.
    """
    directory = disk.directory(JOURNAL)
    if repair.cut or repair.moved:
        _copy_damaged_aside(directory, repair, aside)
    if repair.empty:
        directory.remove(repair.empty)
        directory.sync()
    kept = _identity_of(directory) if repair.lost_identity else load_identity(disk)
    assert kept is not None
    _sync_kept(directory, repair)
    if repair.lost_identity:
        kept.salt = new_identity(entropy, now).salt
    branch = kept.branch(entropy(TIMELINE_BYTES), _extent(repair), now)
    save_identity(disk, branch)
    if repair.cut or repair.moved:
        assert repair.damage is not None
        _move_damaged_aside(directory, repair, aside, repair.damage.offset)
    if repair.checkpoint_plan is not None:
        rebuild_checkpoint(directory, branch, repair.checkpoint_plan, entropy, now)


class RepairPlan:
    """What is damaged and what will be done about it."""

    def __init__(self, damage: JournalCorrupt | None, lost_identity: str) -> None:
        self.damage = damage
        self.lost_identity = lost_identity  # what is wrong with identity.json; "": nothing
        self.cut = ""  # the segment that is kept up to `damage.offset`
        self.moved: list[str] = []  # segments that go as a whole
        self.bytes: i64 = 0  # that are taken out of the journal
        self.first_lost: i64 = 0
        self.last_lost: i64 = 0  # as far as can be seen; 0: nothing behind the damage is readable
        self.readable: i64 = 0  # records behind the damage that are intact, yet cannot be kept
        self.end: i64 = 0  # position up to which the journal is kept
        self.last_kept: i64 = 0  # the last record before that
        self.skippable_damage: JournalCorrupt | None = None  # a damage that a replay need not meet
        self.checkpoint_plan: CheckpointPlan | None = None  # how it can begin, if not as it did
        self.empty = ""  # a last segment without records, which would be of the wrong timeline

    def is_needed(self) -> bool:
        return (
            self.damage is not None or self.skippable_damage is not None or bool(self.lost_identity)
        )


def _run_recovery(recovery: Recovery) -> JournalCorrupt | None:
    try:
        recovery.run()
    except JournalCorrupt as damage:
        return damage
    return None


def _assess_damage(directory: Disk, repair: RepairPlan) -> None:
    """Which files the damage concerns, and which records are lost with it."""
    damage = repair.damage
    assert damage is not None
    names = segment_names(directory)
    behind = names[names.index(damage.file) :]
    repair.first_lost = damage.seq
    repair.end = base_of(damage.file)
    if damage.offset > SEGMENT_HEADER_BYTES:
        repair.cut = damage.file
        repair.end += damage.offset
        repair.moved = behind[1:]
    else:
        repair.moved = behind
    for name in behind:
        content = read_segment(directory, name)
        start: i64 = damage.offset if name == repair.cut else 0
        repair.bytes += _used_end(content, start) - start
        _count_readable(repair, content, start)


def _used_end(content: SegmentBytes, start: i64) -> i64:
    """Where that ends which this segment has written."""
    try:
        header = parse_header(content)
    except BadHeader:
        return written_end(content, start)
    if header.recycled:
        return torn_end(content, start, header.salt)
    return written_end(content, start)


def _count_readable(repair: RepairPlan, content: SegmentBytes, start: i64) -> None:
    try:
        header = parse_header(content)
    except BadHeader:
        return
    repair.last_lost = max(repair.last_lost, header.first_seq - 1, header.durable)
    frames: list[Frame] = frames_behind(content, start, written_end(content, start), header.salt)
    for frame in frames:
        repair.readable += frame.count
        repair.last_lost = max(repair.last_lost, frame.last_seq(), frame.durable)


def _copy_damaged_aside(directory: Disk, repair: RepairPlan, aside: str) -> None:
    """Copy the segment that will be cut, as a whole: its end means little without its start."""
    place = directory.directory(aside)
    if repair.cut and repair.cut not in place.names():
        content = read_segment(directory, repair.cut)
        file = place.create(repair.cut, 0)
        try:
            file.write_at(0, [content.data])
            file.sync()
        finally:
            file.close()
    place.sync()
    directory.sync()


def _sync_kept(directory: Disk, repair: RepairPlan) -> None:
    """A killed server may have left in the page cache what we are about to promise."""
    for name in segment_names(directory):
        if name not in repair.moved:
            file = directory.open(name)
            try:
                file.sync()
            finally:
                file.close()


def _extent(repair: RepairPlan) -> JournalExtent:
    """Return the extent after the repair; if the repair is stopped, the next one knows it too."""
    closing = repair.checkpoint_plan
    if closing is None:
        return JournalExtent(repair.end, repair.last_kept)
    return JournalExtent(repair.end, repair.last_kept, closing.epoch, closing.next_id)


def _move_damaged_aside(directory: Disk, repair: RepairPlan, aside: str, offset: i64) -> None:
    for name in reversed(repair.moved):
        directory.rename(name, f"{aside}/{name}")
    directory.directory(aside).sync()
    directory.sync()
    if repair.cut:
        _truncate_segment(directory, repair.cut, offset)


def _truncate_segment(directory: Disk, name: str, offset: i64) -> None:
    file = directory.open(name)
    try:
        file.truncate(offset)
        file.sync()
    finally:
        file.close()


def _identity_of(directory: Disk) -> Identity:
    """What the segments themselves say of their timelines, where identity.json is lost."""
    headers: list[SegmentHeader] = []
    for name in segment_names(directory):
        try:
            headers.append(parse_header(read_segment(directory, name)))
        except BadHeader:
            continue
    earlier: list[EarlierTimeline] = []
    for index, header in enumerate(headers[:-1]):
        after = headers[index + 1]
        if after.timeline != header.timeline:
            earlier.append(
                EarlierTimeline(header.timeline, after.base, after.first_seq - 1, after.created)
            )
    if not headers:
        return Identity(bytes(TIMELINE_BYTES), b"", 0, [])
    return Identity(headers[-1].timeline, b"", headers[0].created, earlier)


# Checkpoint of a cut journal


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


class CheckpointPlan:
    """Where a journal that was cut can begin, and what is known then.

    Compaction removes segments once a Checkpoint behind them says that everything alive in them has
    a snapshot. If the journal is cut off before that record, a replay cannot know everything. Two
    things help: the segments that are still kept for readers, if they reach back far enough; else a
    Checkpoint of our own, which declares that what is known is everything.
    """

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


def _replay(directory: Disk, identity: Identity, start: i64) -> Recovery:
    recovery = Recovery(directory, identity, State(EngineSettings()))
    recovery.forced_start = start
    with contextlib.suppress(JournalCorrupt):  # it replays as far as it can
        recovery.run()
    return recovery


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


# Statistics of the segments


class JournalStats:
    """What is in a journal's segments, counted without applying anything: for `taskyard journal`.

    `collect` reads all segments once more after a recovery has run. Segments that are only kept for
    readers are checked too, and damage in them is reported.
    """

    def __init__(self, directory: Disk, recovery: Recovery, wanted: list[int]) -> None:
        """`wanted`: sequence numbers whose positions are to be found."""
        self.kinds: dict[int, int] = {}  # records of each kind
        self.snapshots: i64 = 0  # from the recovery base on
        self.snapshot_bytes: i64 = 0
        self.positions: dict[int, int] = {}  # of those that were wanted and exist
        self.first_seq: i64 = 0  # of the first record that is there
        self.first_time: i64 = 0
        self.retained: list[SegmentReport] = []
        self.damage: list[str] = []  # damage in segments that only readers want
        self._directory = directory
        self._recovery = recovery
        self._wanted = sorted(set(wanted))
        self._counts_retained = False

    def collect(self) -> None:
        """Count; OSError if a segment was removed by a server that runs beside."""
        recovery = self._recovery
        self._counts_retained = True
        for index, header in enumerate(recovery.retained):
            later = recovery.retained[index + 1 :]
            self._count_retained(header, later[0].base if later else recovery.replay_start)
        self._counts_retained = False
        for segment in recovery.segments:
            content = read_segment(self._directory, segment.name)
            self._count(content, parse_header(content), segment.end, None)

    def _count_retained(self, known: SegmentHeader, after: i64) -> None:
        name = segment_name(known.base)
        content = read_segment(self._directory, name)
        try:
            header = parse_header(content)
        except BadHeader as error:
            self.damage.append(f"{name} is damaged at byte 0: {error}")
            return
        report = SegmentReport(name, header)
        self.retained.append(report)
        end = self._count(content, header, after - known.base, report)
        if header.base + end != after:
            self.damage.append(f"{name} is damaged at byte {end}: no intact frame stands there")

    def _count(
        self, content: SegmentBytes, header: SegmentHeader, end: i64, report: SegmentReport | None
    ) -> i64:
        """Count the frames up to an offset; gives the one behind the last that is intact."""
        offset: i64 = SEGMENT_HEADER_BYTES
        seq = header.first_seq
        while offset < end:
            frame = frame_at(content, offset, header.salt)
            if frame is None or frame.first_seq != seq:
                break
            try:
                self._count_frame(content.data, frame, header.base)
            except CorruptRecord:
                break
            seq += frame.count
            offset = frame.end
            if report is not None:
                report.frames += 1
                report.records += frame.count
                report.end = offset
        return offset

    def _count_frame(self, data: bytes, frame: Frame, base: i64) -> None:
        if not self.first_seq:
            self.first_seq = frame.first_seq
            record_end(data, frame.body, frame.end)
            self.first_time = read_i64_le(
                data, frame.body + SIZE_PREFIX_BYTES + 2
            )  # behind kind and version
        wanted = self._wanted
        while wanted and wanted[0] < frame.first_seq:
            wanted.pop(0)  # it is not there any more
        next_wanted: i64 = wanted[0] if wanted else -1
        kinds = self.kinds
        at = frame.body
        seq = frame.first_seq
        while at < frame.end:
            size = record_end(data, at, frame.end) - at
            kind = kind_at(data, at)
            kinds[kind] = kinds.get(kind, 0) + 1
            if kind >= FIRST_SNAPSHOT and not self._counts_retained:
                self.snapshots += 1
                self.snapshot_bytes += size
            if seq == next_wanted:
                self.positions[seq] = base + at
                wanted.pop(0)
                next_wanted = wanted[0] if wanted else -1
            at += size
            seq += 1
