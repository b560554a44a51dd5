"""Segments stay for the readers of the journal that want them, and no longer."""

import random

import pytest
from support.effort import effort
from support.retaining import HOUR, ORIGIN, SEGMENT, RetainingYard, without_ring

from taskyard.engine.model.job import SECOND
from taskyard.engine.model.state import State
from taskyard.journal.format import segment_names
from taskyard.journal.identity import JOURNAL, load_identity
from taskyard.journal.memory import MemoryDisk
from taskyard.journal.recovery import Recovery
from taskyard.journal.retention import RetentionLimits


def test_without_readers_nothing_is_kept() -> None:
    yard = RetainingYard()
    yard.work(20 * SEGMENT)
    assert yard.journal.replay_start > 0
    assert yard.retained() == 0


def test_a_reader_keeps_all_from_its_position_on() -> None:
    yard = RetainingYard()
    yard.register("lake", 1)
    yard.work(20 * SEGMENT)
    assert yard.journal.replay_start > 10 * SEGMENT
    assert yard.journal.first_base == 0
    assert yard.read(1)[:3] == [1, 2, 3]


def test_what_a_reader_has_committed_goes() -> None:
    yard = RetainingYard()
    yard.register("lake", 1)
    yard.work(20 * SEGMENT)
    first_of_base = int(yard.journal.first_seq_of(yard.journal.replay_start))
    wanted = first_of_base - 20
    yard.commit("lake", wanted)
    assert yard.first_seq() <= wanted
    after = yard.journal.next_base(yard.journal.first_base)
    assert yard.journal.first_seq_of(after) > wanted
    assert yard.read(wanted)[0] == wanted
    yard.commit("lake", first_of_base)
    assert yard.retained() == 0


def test_the_slowest_reader_decides() -> None:
    yard = RetainingYard()
    yard.register("fast", 1)
    yard.register("slow", 1)
    yard.work(10 * SEGMENT)
    yard.commit("fast", yard.journal.records.next_seq)
    assert yard.journal.first_base == 0
    yard.engine.drop_reader("slow", ORIGIN, yard.turn())
    yard.end()
    assert yard.retained() == 0


def test_a_lapsed_lease_keeps_nothing() -> None:
    yard = RetainingYard()
    yard.register("lake", 1, 60 * SECOND)
    yard.work(10 * SEGMENT)
    began = yard.clock.now()
    lease = yard.engine.state.readers["lake"].lease_until
    yard.advance((lease - began - 1) / 1_000_000)
    assert yard.journal.first_base == 0
    yard.advance(0.000_001)
    assert yard.clock.now() == lease
    assert yard.retained() == 0


def test_a_renewed_lease_lasts() -> None:
    yard = RetainingYard()
    yard.register("lake", 1, 60 * SECOND)
    yard.work(10 * SEGMENT)
    yard.advance(50)
    yard.commit("lake", 1, 60 * SECOND)
    yard.advance(50)
    assert yard.journal.first_base == 0
    yard.advance(11)
    assert yard.retained() == 0


def test_the_limit_of_bytes_holds() -> None:
    yard = RetainingYard(RetentionLimits(5 * SEGMENT))
    left: list[tuple[str, int]] = []
    yard.broker.retention.on_reader_lost_records(lambda name, missed: left.append((name, missed)))
    yard.register("lake", 1)
    yard.work(20 * SEGMENT)
    assert 3 * SEGMENT < yard.retained() <= 5 * SEGMENT
    missed = yard.journal.missed_records(1)
    assert missed == yard.first_seq() - 1
    assert left[-1] == ("lake", missed)


def test_no_bytes_are_kept_where_none_may_be() -> None:
    yard = RetainingYard(RetentionLimits(0))
    yard.register("lake", 1)
    yard.work(10 * SEGMENT)
    assert yard.journal.replay_start > 0
    assert yard.retained() == 0


def test_the_limit_of_age_holds_to_the_second() -> None:
    yard = RetainingYard(RetentionLimits(1 << 40, HOUR))
    yard.register("lake", 1, 100 * HOUR)
    yard.work(10 * SEGMENT)
    spans = yard.journal.retained_segments()
    assert len(spans.bases) > 5
    for index in range(1, len(spans.bases)):
        yard.scheduler.advance(spans.created[index] + HOUR - 1 - yard.clock.now())
        assert yard.journal.first_base == spans.bases[index - 1]
        yard.scheduler.advance(1)
        assert yard.journal.first_base == spans.bases[index]


def test_nothing_is_worked_out_while_nothing_changes() -> None:
    yard = RetainingYard()
    yard.register("lake", 1)
    yard.work(10 * SEGMENT)
    retention = yard.broker.retention
    judged = retention.plan_count
    assert judged > 0
    base = yard.journal.replay_start
    passes = yard.broker.compaction_scheduler.compactor.passes
    yard.work(4000)
    yard.advance(60)
    assert yard.broker.compaction_scheduler.compactor.passes == passes
    assert yard.journal.replay_start == base
    assert retention.plan_count == judged


def test_retained_segments_are_there_after_a_restart_and_not_replayed() -> None:
    yard = RetainingYard()
    yard.register("lake", 1)
    yard.work(20 * SEGMENT)
    base, files = yard.journal.replay_start, yard.files()
    records = yard.journal.records.next_seq - 1
    yard.restart()
    assert yard.journal.first_base == 0
    assert yard.journal.replay_start == base
    assert yard.files() == files + 1
    assert yard.report.records < records // 3
    assert yard.read(1)[: records // 2] == yard.read(1)[: records // 2]
    assert yard.read(1)[0] == 1
    yard.work(10 * SEGMENT)
    assert yard.journal.first_base == 0
    yard.commit("lake", yard.journal.records.next_seq)
    assert yard.retained() == 0


def test_a_lease_that_lapses_while_the_server_is_down_keeps_nothing() -> None:
    yard = RetainingYard()
    yard.register("lake", 1, 60 * SECOND)
    yard.work(10 * SEGMENT)
    yard.stop()
    yard.clock.time += 61 * SECOND
    yard._start()
    yard.run_pending()
    assert yard.retained() == 0


def test_damage_in_a_retained_segment_does_not_keep_the_server_from_starting() -> None:
    yard = RetainingYard()
    yard.register("lake", 1)
    yard.work(20 * SEGMENT)
    yard.stop()
    directory = yard.disk.directory(JOURNAL)
    names = segment_names(directory)
    for index, at in ((1, 60), (2, 5000)):
        data = bytearray(directory.content(names[index]))
        data[at] ^= 0xFF
        directory.put(names[index], bytes(data))
    yard._start()
    yard.run_pending()
    assert yard.journal.first_base == 0
    wanted = int(yard.journal.first_seq_of(yard.journal.retained_segments().bases[4]))
    assert yard.read(wanted, carries=True)[0] == wanted
    yard.commit("lake", yard.journal.records.next_seq)
    assert yard.retained() == 0


def test_a_full_disk_takes_from_the_readers_first() -> None:
    disk = MemoryDisk()
    yard = RetainingYard(disk=disk, spare=True)
    left: list[str] = []
    yard.broker.retention.on_reader_lost_records(lambda name, missed: left.append(name))
    yard.register("lake", 1)
    yard.work(10 * SEGMENT)
    assert yard.journal.first_base == 0
    disk.set_capacity(disk.used())
    yard.work(5 * SEGMENT)
    assert not yard.journal.space.push_refusal
    assert yard.journal.first_base > 0
    assert left
    assert set(left) == {"lake"}


def replayed(yard: RetainingYard) -> State:
    """What a server would start from now."""
    state = State(yard.engine.state.settings)
    identity = load_identity(yard.disk)
    assert identity is not None
    Recovery(yard.disk.directory(JOURNAL), identity, state).run()
    return state


@pytest.mark.parametrize("seed", range(effort(12, 6)))
def test_a_crash_at_any_point_leaves_state_and_retention_right(seed: int) -> None:
    chance = random.Random(seed)
    yard = RetainingYard(RetentionLimits(6 * SEGMENT), seed)
    position = 1
    kept = 0
    yard.register("lake", position)
    for _ in range(12):
        yard.work(chance.randrange(1, 6) * SEGMENT // 2)
        for _ in range(chance.randrange(3)):
            yard.push()
            kept += 1
        if chance.random() < 0.5:
            position = chance.randrange(position, yard.journal.records.next_seq + 1)
            yard.commit("lake", position)
        for _ in range(chance.randrange(40)):
            yard.advance(0.001)
        yard.crash(chance)
        state = yard.engine.state
        assert state.readers["lake"].next_seq == position
        assert sum(job.queue.name == "kept" for job in state.jobs) == kept
        assert yard.journal.first_base <= yard.journal.replay_start
        yard.run_pending()
        assert yard.retained() <= 6 * SEGMENT
        missed = yard.journal.missed_records(position)
        wanted = position + missed
        assert missed == 0 or yard.retained() > 4 * SEGMENT
        if wanted < yard.journal.durable_seq:
            assert yard.read(wanted, carries=True)[0] == wanted
        yard.broker.flush_journal()
        assert without_ring(replayed(yard)) == without_ring(state)
