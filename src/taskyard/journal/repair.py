"""Makes a damaged journal usable again: all before the damage stays, the remainder is moved aside.

Nothing is deleted. The journal gets a new timeline, because sequence numbers of lost records are
used again. If a repair is stopped at any point, it can be run again. See closing.py for a journal
whose beginning compaction has removed and whose checkpoint the damage took.
"""

from __future__ import annotations

from collections.abc import Callable

from mypy_extensions import i64

from taskyard.engine.model.state import EngineSettings, State
from taskyard.journal.closing import (
    CheckpointPlan,
    last_checkpoint_base,
    plan_checkpoint,
    rebuild_checkpoint,
)
from taskyard.journal.disk import Disk
from taskyard.journal.errors import JournalCorrupt, JournalIncomplete
from taskyard.journal.evidence import frames_behind
from taskyard.journal.frames import Frame, SegmentBytes, torn_end, written_end
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
from taskyard.journal.recovery import Recovery, SegmentReport, ignore_segment
from taskyard.journal.segment import (
    SEGMENT_HEADER_BYTES,
    TIMELINE_BYTES,
    BadHeader,
    SegmentHeader,
    base_of,
    parse_header,
    read_segment,
    segment_names,
)


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


def _run_recovery(recovery: Recovery) -> JournalCorrupt | None:
    try:
        recovery.run()
    except JournalCorrupt as damage:
        return damage
    return None


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
