"""A replay that begins at a base: what it must know, and what it refuses."""

import pytest
from engine.compacting import Compaction, places
from engine.harness import ORIGIN, Bench, decode
from engine.lived_in import make_used_engine
from support.batches import lease_all
from support.graves import remembered_uids
from support.model_invariants import check_invariants, check_weights
from support.snapshot import lasting

from taskyard.engine.compaction import TOMBSTONES_PER_RECORD, write_checkpoint
from taskyard.engine.model.events import CorruptRecord
from taskyard.engine.model.job import (
    API,
    BLOCKED,
    FAILED,
    LEASED,
    SECOND,
    SUCCEEDED,
    SYNCHRONOUS_CALL,
    Notify,
    Origin,
    Policy,
)
from taskyard.engine.model.queue import QueueSettings
from taskyard.engine.model.state import EngineSettings, State
from taskyard.engine.operations.batches import BatchRequest
from taskyard.engine.partial_replay import begin_partial_replay
from taskyard.engine.records.job_lifecycle import (
    FIRST_SNAPSHOT,
    BootRecord,
    FinishRecord,
    PushRecord,
    Record,
)
from taskyard.engine.records.replay import apply_record
from taskyard.engine.records.snapshots import Checkpoint, TombstonesSnapshot

UID = b"0123456789abcdef"


def compact(bench: Bench, base: int | None = None) -> int:
    """A whole pass at once; without a base, all there is so far is left behind."""
    bench.collect()
    compaction = Compaction(bench, bench.frames[-1].end if base is None else base)
    compaction.continue_scan(100_000, 0)
    assert compaction.closed
    bench.collect()
    return compaction.base


def end_of_journal(bench: Bench) -> int:
    bench.collect()
    return bench.frames[-1].end


def check_replay(bench: Bench, base: int) -> State:
    """From the base on, and from the very beginning: both give the state that is there."""
    live = lasting(bench.engine.state)
    state = bench.replay(base)
    assert not state.is_partial_replay
    assert lasting(state) == live
    assert lasting(bench.replay(0)) == live
    assert all(at > base for at in places(state))
    check_weights(state)
    return state


def test_a_server_with_something_of_everything_begins_at_its_base() -> None:
    bench = make_used_engine()
    base = compact(bench)
    check_replay(bench, base)
    check_invariants(bench.engine)
    bench.base = base
    bench.restart()
    check_invariants(bench.engine)
    assert len(bench.ids(state=LEASED)) == 4
    assert len(bench.ids("done", SUCCEEDED)) == 3
    assert len(bench.ids("dead", FAILED)) == 1


def test_the_base_may_be_anywhere() -> None:
    positions = [frame.base for frame in run_in_turns().frames]
    for number in range(len(positions)):
        bench = run_in_turns()
        base = bench.frames[number].base
        compact(bench, base)
        check_replay(bench, base)


def run_in_turns() -> Bench:
    """A frame for each of many different steps."""
    bench = Bench()
    engine = bench.engine
    engine.open_session(1, ORIGIN, bench.now)
    for number in range(4):
        bench.push(payload=b"x" * number, uid=bytes([number]) * 16, notify=Notify(1, number, 127))
        bench.collect()
    engine.set_value(b"v", b"value", 0, ORIGIN, bench.now)
    waiting = bench.push(blocked_by=[2, 3], key=b"k")
    bench.collect()
    for _ in range(3):
        job = bench.take(bound=True)
        bench.collect()
        if job.id == 2:
            engine.fail(job.id, b"error", ORIGIN, bench.now)
        else:
            bench.ack(job)
        bench.collect()
    lease_all(engine, "c", 1, [b"q"], 9, SECOND, ORIGIN, bench.now)
    bench.collect()
    bench.advance_clock(2 * SECOND)
    bench.collect()
    assert waiting.state == BLOCKED
    bench.configure(settings=QueueSettings(result_retention=SECOND))
    failing = bench.push("other", policy=Policy())
    engine.fail(failing.id, b"final", ORIGIN, bench.now)
    bench.collect()
    engine.set_value_expiry(b"v", bench.now + SECOND, ORIGIN, bench.now)
    bench.collect()
    return bench


def test_a_job_moves_with_payload_result_and_error(bench: Bench) -> None:
    job = bench.push(payload=b"payload", ttl_ms=60_000, policy=Policy(max_fails=2))
    bench.engine.fail(job.id, b"error", ORIGIN, bench.now)
    bench.engine.complete(job.id, b"the result", ORIGIN, bench.now)
    base = compact(bench)
    found = check_replay(bench, base).live_job(job.id)
    assert found is not None
    extra = found.ensure_extras()
    assert bench.read(found.payload_at, found.payload_size) == b"payload"
    assert bench.read(extra.result_at, extra.result_size) == b"the result"
    assert bench.read(extra.error_at, extra.error_size) == b"error"


def test_a_result_that_is_the_error_moves_once(bench: Bench) -> None:
    job = bench.push(policy=Policy())
    bench.engine.fail(job.id, b"error" * 1000, ORIGIN, bench.now)
    base = compact(bench)
    found = check_replay(bench, base).live_job(job.id)
    assert found is not None
    extra = found.ensure_extras()
    assert extra.result_at == extra.error_at > base
    assert bench.read(extra.error_at, extra.error_size) == b"error" * 1000
    assert bench.engine.records.drained_end - base < 6000


def test_only_what_stands_before_the_base_moves(bench: Bench) -> None:
    job = bench.push(payload=b"payload", policy=Policy(max_fails=9))
    first = end_of_journal(bench)
    bench.engine.fail(job.id, b"error", ORIGIN, bench.now)
    second = end_of_journal(bench)
    compact(bench, first)
    extra = job.ensure_extras()
    assert job.payload_at > second > extra.error_at > first
    payload_at = job.payload_at
    compact(bench, second)
    assert job.payload_at == payload_at < extra.error_at
    check_replay(bench, second)
    check_replay(bench, first)


def test_a_carried_job_weighs_what_its_carry_takes(bench: Bench) -> None:
    """Without the result, which weighs by itself."""
    job = bench.push(payload=b"payload", ttl_ms=60_000)
    bench.engine.complete(job.id, b"the result", ORIGIN, bench.now)
    base = compact(bench)
    carry = records_from(bench, base)[0]
    assert job.record_bytes == carry.size - len(b"the result")


def test_what_is_told_behind_the_base_is_not_carried(bench: Bench) -> None:
    base = end_of_journal(bench)
    bench.engine.open_session(1, ORIGIN, bench.now)
    bench.engine.set_value(b"v", b"value", 0, ORIGIN, bench.now)
    bench.engine.register_reader("r", 1, SECOND, ORIGIN, bench.now)
    bench.engine.complete(bench.push(uid=UID).id, b"", ORIGIN, bench.now)
    bench.push(payload=b"payload")
    lease_all(bench.engine, "c", 1, [b"q"], 1, 0, ORIGIN, bench.now)
    bench.collect()
    compact(bench, base)
    (last,) = [record for record in records_from(bench, base) if record.kind() >= FIRST_SNAPSHOT]
    assert isinstance(last, Checkpoint)
    check_replay(bench, base)


def test_an_empty_payload_right_before_the_base_counts_as_before_it(bench: Bench) -> None:
    job = bench.push()
    base = end_of_journal(bench)
    assert job.payload_at == base
    compact(bench, base)
    assert job.payload_at > base
    check_replay(bench, base)


def test_jobs_keep_their_places_and_their_keys(bench: Bench) -> None:
    for number in range(6):
        bench.push(front=number % 2 == 1, key=b"%d" % number)
    bench.take()
    before = bench.ids()
    bench.base = compact(bench)
    bench.restart()
    assert bench.ids() == before
    bench.push()
    bench.push(front=True)
    assert bench.ids() == [8, *before, 7]
    keyed = before[2]
    bench.engine.update_keyed("q", b"%d" % (keyed - 1), 0, Policy(), ORIGIN, bench.now)
    before.remove(keyed)
    assert bench.ids() == [8, *before, 7, keyed]


def test_dependents_of_jobs_from_before_the_base_are_told(bench: Bench) -> None:
    blockers = [bench.push().id for _ in range(3)]
    base = end_of_journal(bench)
    waiting = [bench.push("w", blocked_by=[id], policy=Policy()).id for id in blockers]
    bench.engine.complete(blockers[0], b"", ORIGIN, bench.now)
    bench.delete(bench.engine.job(blockers[1]))
    compact(bench, base)
    check_replay(bench, base)
    assert bench.ids("w") == waiting[:1]
    assert bench.ids("w", FAILED) == waiting[1:2]
    assert bench.ids("w", BLOCKED) == waiting[2:]


@pytest.mark.parametrize("succeeds", [True, False])
def test_nothing_is_carried_while_dependents_are_still_to_be_told(
    bench: Bench, succeeds: bool
) -> None:
    blocker = bench.push()
    for _ in range(300):
        bench.push("w", blocked_by=[blocker.id], policy=Policy(dead_queue="failed"))
    early = end_of_journal(bench)
    if succeeds:
        bench.engine.complete(blocker.id, b"", ORIGIN, bench.now)
    else:
        bench.delete(blocker)
    middle = end_of_journal(bench)
    assert bench.engine.state.pending_dependents
    waiting = Compaction(bench, middle)
    waiting.continue_scan(1000, 0)
    assert bench.collect() == []
    while bench.engine.tick(bench.now, 100):
        bench.collect()
    late = end_of_journal(bench)
    for base in (early, middle, late):
        compact(bench, base)
        check_replay(bench, base)
    assert len(bench.ids("w" if succeeds else "failed")) == 300


def test_letters_of_jobs_from_before_the_base_are_not_missed(bench: Bench) -> None:
    """The session is younger than the base, what it is told of is older."""
    job = bench.push(notify=Notify(1, 7, 127))
    base = end_of_journal(bench)
    bench.engine.open_session(1, ORIGIN, bench.now)
    bench.take()
    bench.ack(job)
    compact(bench, base)
    state = check_replay(bench, base)
    assert len(state.sessions[1].outbox) == 2
    assert not bench.engine.state.sessions[1].changed_since_snapshot


def test_a_great_many_uids_of_one_time_are_carried_in_portions(bench: Bench) -> None:
    for number in range(TOMBSTONES_PER_RECORD + 1):
        job = bench.push(uid=number.to_bytes(16, "big"))
        bench.engine.complete(job.id, b"", ORIGIN, bench.now)
    base = end_of_journal(bench)
    compact(bench, base)
    carried = [
        record for record in records_from(bench, base) if isinstance(record, TombstonesSnapshot)
    ]
    assert [len(record.uids) for record in carried] == [TOMBSTONES_PER_RECORD, 1]
    check_replay(bench, base)


def records_from(bench: Bench, base: int) -> list[Record]:
    return [
        record
        for frame in bench.frames
        if frame.base >= base
        for record in decode(frame.data, frame.base, frame.first)
    ]


def test_passes_may_follow_each_other(bench: Bench) -> None:
    bases: list[int] = []
    for number in range(5):
        bench.push(payload=b"p" * number, uid=bytes([number]) * 16)
        bench.ack(bench.take())
        bench.push("other", payload=b"o" * number)
        bases.append(compact(bench))
    for base in bases:
        check_replay(bench, base)


def test_a_pass_that_was_cut_off_does_no_harm() -> None:
    bench = make_used_engine()
    base = end_of_journal(bench)
    cut_off = Compaction(bench, base)
    cut_off.continue_scan(10, 3)
    assert not cut_off.closed
    bench.restart()
    check_invariants(bench.engine)
    assert lasting(bench.replay(0)) == lasting(bench.engine.state)
    assert bench.replay(base).is_partial_replay
    bench.push()
    bench.base = compact(bench, base)
    check_replay(bench, base)
    bench.restart()
    check_invariants(bench.engine)


def test_uids_are_remembered_under_other_settings_too(bench: Bench) -> None:
    """A run that remembers none lets a uid be used again; the last job that had it counts."""
    bench.engine.complete(bench.push(uid=UID).id, b"", ORIGIN, bench.now)
    base = end_of_journal(bench)
    bench.restart(EngineSettings(uid_window=0))
    bench.now += SECOND
    second = bench.push(uid=UID)
    bench.engine.complete(second.id, b"", ORIGIN, bench.now)
    bench.restart(EngineSettings())
    assert remembered_uids(bench.engine.state.tombstones) == {UID: second.id}
    compact(bench, base)
    assert remembered_uids(bench.engine.state.tombstones) == {UID: second.id}
    for begun in (base, 0):
        assert remembered_uids(bench.replay(begun).tombstones) == {UID: second.id}


# What does not fit


def partial_state() -> State:
    state = State(EngineSettings())
    begin_partial_replay(state, 1000)
    return state


def test_without_its_base_a_replay_stays_partial(bench: Bench) -> None:
    bench.push()
    base = compact(bench)
    assert not bench.replay(base).is_partial_replay
    assert bench.replay(base + 1).is_partial_replay


def test_a_base_of_another_journal_is_refused(bench: Bench) -> None:
    bench.push()
    counts = bench.engine.state.entity_counts()
    for index in range(len(counts)):
        wrong = [*counts]
        wrong[index] += 1
        with pytest.raises(CorruptRecord, match="other numbers"):
            apply_record(partial_state(), Checkpoint(1, 1000, 1, 1, wrong))
        with pytest.raises(CorruptRecord, match="other numbers"):
            apply_record(bench.rebuild(), Checkpoint(1, 1000, 1, 2, wrong))
    for epoch, next_id in ((2, 2), (1, 3)):
        with pytest.raises(CorruptRecord, match="next id or the epoch"):
            apply_record(bench.rebuild(), Checkpoint(1, 1000, epoch, next_id, counts))


def test_a_pass_that_has_left_something_out_is_noticed(bench: Bench) -> None:
    bench.push()
    base = end_of_journal(bench)
    bench.push()
    write_checkpoint(bench.engine, base, bench.now)
    with pytest.raises(CorruptRecord, match="other numbers"):
        bench.replay(base)


def test_a_job_that_was_never_pushed_is_refused_after_the_base_too(bench: Bench) -> None:
    bench.push()
    bench.take()
    push, lease = bench.collect()[1:]
    assert isinstance(push, PushRecord)
    state = partial_state()
    apply_record(state, BootRecord(1, ORIGIN, 1, ""))
    apply_record(state, push)
    apply_record(state, lease)
    with pytest.raises(CorruptRecord):
        apply_record(state, FinishRecord(1, ORIGIN, 2, b"q", 1, 0))
    apply_record(partial_state(), FinishRecord(1, ORIGIN, 2, b"q", 1, 0))  # it may be an older one


def test_a_batch_that_was_leased_on_both_sides_of_the_base_is_whole(bench: Bench) -> None:
    bench.in_portions(2)
    for _ in range(5):
        bench.push()
    request = BatchRequest("c", 1, [b"q"], 9, 0, ORIGIN)
    assert not bench.engine.lease_batch(request, bench.now)
    base = end_of_journal(bench)
    while not bench.engine.lease_batch(request, bench.now):
        bench.collect()
    compact(bench, base)
    consumer = check_replay(bench, base).consumers["c"]
    assert [*consumer.ids] == [1, 2, 3, 4, 5]
    assert [*consumer.attempts] == [1] * 5


def test_a_consumer_that_is_carried_is_still_its_users(bench: Bench) -> None:
    for _ in range(3):
        bench.push()
    lease_all(bench.engine, "c", 1, [b"q"], 1, 0, Origin(API, "ada", ""), bench.now)
    lease_all(bench.engine, "c", 2, [b"q"], 1, 0, Origin(API, "root", ""), bench.now)
    base = end_of_journal(bench)
    compact(bench, base)
    assert check_replay(bench, base).consumers["c"].user == "ada"
    bench.restart()
    assert bench.engine.state.consumers["c"].user == "ada"


def test_a_call_of_before_the_base_is_withdrawn_at_the_start(bench: Bench) -> None:
    """Nobody waits for its result any more."""
    called = bench.push(notify=Notify(1, 2, SYNCHRONOUS_CALL))
    kept = bench.push(notify=Notify(1, 2, 1))
    bench.base = compact(bench)
    assert bench.rebuild().synchronous_jobs == {called.id}
    bench.restart()
    assert bench.ids() == [kept.id]


def test_a_queue_that_is_deleted_behind_the_base_need_not_be_known(bench: Bench) -> None:
    bench.engine.create_queue("gone", QueueSettings(), ORIGIN, bench.now)
    bench.push()
    base = end_of_journal(bench)
    bench.engine.delete_queue(b"gone", ORIGIN, bench.now)
    compact(bench, base)
    assert b"gone" not in check_replay(bench, base).queues


def test_a_job_that_was_carried_has_waited_since_it_was_pushed(bench: Bench) -> None:
    bench.push()
    bench.push("later", run_at=bench.now + 10 * SECOND)
    bench.advance_clock(20 * SECOND)
    bench.base = compact(bench)
    bench.restart()
    bench.advance_clock(5 * SECOND)
    for name, waited in (("q", 25 * SECOND), ("later", 15 * SECOND)):
        job = bench.take(name)
        assert bench.engine.statistics.times_of(job.queue).waits.total == waited


def test_each_counter_of_a_queue_goes_on_behind_the_base(bench: Bench) -> None:
    counters = list(range(11, 19))
    bench.push()
    bench.queue().set_counters(counters)
    bench.base = compact(bench)
    bench.restart()
    assert bench.queue().counters() == counters
    names = ("pushed", "leases", "finished", "failed", "retried", "released", "expired", "removed")
    assert [getattr(bench.queue(), name) for name in names] == counters


def test_a_session_is_kept_as_long_after_its_client_has_left_as_before_the_base(
    bench: Bench,
) -> None:
    bench.engine.open_session(7, ORIGIN, bench.now)
    bench.advance_clock(100 * SECOND)
    bench.engine.detach_session(7, ORIGIN, bench.now)
    bench.base = compact(bench)
    bench.restart()
    bench.advance_clock(bench.settings.outbox_age - 1)
    assert 7 in bench.engine.state.sessions
    bench.advance_clock(1)
    assert 7 not in bench.engine.state.sessions
