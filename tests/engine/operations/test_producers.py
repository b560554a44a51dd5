"""Whose a uid is: only a push to the same queue by the same user repeats another."""

from collections.abc import Callable

import pytest
from engine.compacting import Compaction
from engine.harness import NO_LIMIT, ORIGIN, SALT, Bench
from engine.scheduling import put, wish

from taskyard.engine.model.events import DuplicateJob, TransactionStepRefused, UidTaken
from taskyard.engine.model.job import (
    API,
    CLIENT,
    READY,
    SECOND,
    SYSTEM_ORIGIN,
    WORKQ,
    Job,
    JobExtras,
    NewJob,
    Origin,
    Policy,
)
from taskyard.engine.model.queue import QueueSettings
from taskyard.engine.model.state import (
    ANY_PRODUCER,
    PRODUCER_BYTES,
    EngineSettings,
    ProducerHashes,
    State,
    derive_uid,
    is_same_producer,
)
from taskyard.engine.operations.push import TransactionStep
from taskyard.engine.partial_replay import begin_partial_replay
from taskyard.engine.records.decode import Decoder
from taskyard.engine.records.job_changes import RemoveRecord
from taskyard.engine.records.job_lifecycle import (
    ACKED,
    RETENTION_OVER,
    FinishRecord,
    PushRecord,
    Record,
)
from taskyard.engine.records.log import RecordBuffer
from taskyard.engine.records.replay import apply_record
from taskyard.engine.records.snapshots import JobSnapshot, TombstonesSnapshot
from taskyard.engine.schedules.registry import tick_uid

UID = b"0123456789abcdef"
ADA = Origin(CLIENT, "ada", "a worker")
EVE = Origin(CLIENT, "eve", "a worker")
NOBODY = Origin(CLIENT, "", "a server without users")


def new(queue: str, uid: bytes | None = UID, policy: Policy = NO_LIMIT) -> NewJob:
    return NewJob(queue, "task", b"", policy, uid=uid)


def push(
    bench: Bench, queue: str = "s.pay", origin: Origin = ADA, policy: Policy = NO_LIMIT
) -> Job:
    return bench.engine.push(new(queue, policy=policy), origin, bench.now)


def complete(bench: Bench, job: Job) -> None:
    bench.engine.complete(job.id, b"", ORIGIN, bench.now)


def fail(bench: Bench, job: Job) -> None:
    bench.engine.fail(job.id, b"", ORIGIN, bench.now)


def compact(bench: Bench) -> int:
    """All there is so far is left behind."""
    bench.collect()
    compaction = Compaction(bench, bench.frames[-1].end)
    compaction.continue_scan(100_000, 0)
    assert compaction.closed
    bench.collect()
    return compaction.base


# What became of the job that has the uid.
FATES: dict[str, Callable[[Bench, Job], object]] = {
    "ready": lambda bench, job: None,
    "leased": lambda bench, job: bench.take("s.pay"),
    "kept": lambda bench, job: bench.engine.complete(job.id, b"r", ORIGIN, bench.now, 60 * SECOND),
    "dead": fail,
    "remembered": complete,
}
fates = pytest.mark.parametrize("fate", FATES)


def pushed(bench: Bench, fate: str) -> Job:
    job = push(bench, policy=Policy() if fate == "dead" else NO_LIMIT)
    FATES[fate](bench, job)
    return job


def check_rule(bench: Bench, job: Job) -> None:
    """No push of it changes anything."""
    bench.collect()
    for origin in (ADA, Origin(API, "ada", "elsewhere")):
        with pytest.raises(DuplicateJob) as repeated:
            push(bench, origin=origin)
        assert repeated.value.job_id == job.id
    for queue, origin in (("a.x", ADA), ("s.pay", EVE), ("a.x", EVE), ("s.pay", NOBODY)):
        with pytest.raises(UidTaken) as taken:
            push(bench, queue, origin)
        assert str(job.id) not in str(taken.value)
    assert bench.collect() == []


@fates
def test_only_the_same_user_in_the_same_queue_repeats_a_push(bench: Bench, fate: str) -> None:
    check_rule(bench, pushed(bench, fate))


@fates
def test_that_is_so_after_a_restart(bench: Bench, fate: str) -> None:
    job = pushed(bench, fate)
    bench.restart()
    check_rule(bench, job)


@fates
def test_that_is_so_when_the_push_itself_was_compacted_away(bench: Bench, fate: str) -> None:
    job = pushed(bench, fate)
    for _ in range(2):
        bench.base = compact(bench)
        bench.restart()
        check_rule(bench, job)


def test_that_is_so_if_the_end_is_left_and_the_push_is_not(bench: Bench) -> None:
    """A replay which begins between the two only has what the end says."""
    bench.engine.create_queue("kept", QueueSettings(result_retention=SECOND), ORIGIN, bench.now)
    job = bench.engine.push(new("kept"), ADA, bench.now)
    other = bench.engine.push(new("q", b"o" * 16), ADA, bench.now)
    bench.collect()
    between = bench.frames[-1].end
    complete(bench, other)
    bench.engine.complete(job.id, b"", ORIGIN, bench.now)
    bench.advance_clock(2 * SECOND)
    full, partial = bench.replay(0), bench.replay(between)
    for uid in (UID, b"o" * 16):
        assert partial.tombstones.by_uid[uid].producer == full.tombstones.by_uid[uid].producer


def test_without_users_it_is_the_queue_that_counts(bench: Bench) -> None:
    job = push(bench, origin=NOBODY)
    with pytest.raises(DuplicateJob) as repeated:
        push(bench, origin=Origin(WORKQ, "", "another peer"))
    assert repeated.value.job_id == job.id
    with pytest.raises(UidTaken):
        push(bench, "a.x", NOBODY)


def test_a_job_may_have_been_moved_since(bench: Bench) -> None:
    job = push(bench)
    bench.engine.move_job(job.id, "a.x", False, ORIGIN, bench.now)
    check_rule(bench, job)
    complete(bench, job)
    check_rule(bench, job)


def test_a_job_may_be_in_its_dead_queue(bench: Bench) -> None:
    job = push(bench, policy=Policy(dead_queue="a.x"))
    fail(bench, job)
    assert job.queue.name == "a.x"
    check_rule(bench, job)


def test_a_derived_uid_is_repeated_by_no_push(bench: Bench) -> None:
    job = bench.push()
    bench.collect()
    with pytest.raises(UidTaken):
        bench.push(uid=derive_uid(SALT, job.id))
    assert bench.collect() == []


def test_the_uid_of_the_job_of_a_schedule_is_nobody_elses(bench: Bench) -> None:
    schedule = put(bench, wish(every=60 * SECOND))
    bench.advance_clock(60 * SECOND)
    uid = tick_uid(bench.engine, schedule.name, bench.engine.job(schedule.last_job).run_at)
    assert bench.engine.job_by_uid(uid) is not None
    for queue in (schedule.job.queue, "a.x"):
        with pytest.raises(UidTaken):
            bench.engine.push(new(queue, uid), EVE, bench.now)


def test_a_transaction_with_a_uid_of_another_is_refused_whole(bench: Bench) -> None:
    push(bench)
    bench.collect()
    steps = [TransactionStep(new("a.x", None)), TransactionStep(new("a.x"))]
    for attempt in (
        lambda: bench.engine.transact(steps, 1, EVE, bench.now),
        lambda: bench.engine.check_steps(steps, 1, EVE),
    ):
        with pytest.raises(TransactionStepRefused) as refused:
            attempt()
        assert refused.value.index == 1
        assert isinstance(refused.value.cause, UidTaken)
    assert bench.collect() == []


def test_a_uid_that_was_freed_is_for_anyone(bench: Bench) -> None:
    bench.delete(push(bench))
    taken = push(bench, "a.x", EVE)
    with pytest.raises(UidTaken):
        push(bench)
    bench.delete(taken)
    push(bench)


# What old journals do not say


def old(record: Record, version: int) -> Record:
    """As an older version has written it."""
    log = RecordBuffer(1, 0)
    log.append(record)
    data = bytearray(log.drain(0))
    data[5] = version
    return Decoder(False).read(bytes(data), 0, 0)


def without_the_push(record: Record) -> State:
    state = State(EngineSettings())
    begin_partial_replay(state, 1)
    state.time = record.time
    apply_record(state, record)
    return state


def accepts(state: State, queue: str, origin: Origin) -> bool:
    """Whether a push is taken for a repetition."""
    bench = Bench()
    bench.engine.state = state
    state.is_partial_replay = False
    with pytest.raises((DuplicateJob, UidTaken)) as error:
        bench.engine.push(new(queue), origin, bench.now)
    return error.type is DuplicateJob


@pytest.mark.parametrize(
    "record",
    [
        FinishRecord(1, ADA, 7, b"s.pay", 1, ACKED, 0, UID),
        RemoveRecord(1, ADA, 7, b"s.pay", RETENTION_OVER, True, UID),
    ],
    ids=["finish", "remove"],
)
def test_an_old_end_tells_the_queue(record: Record) -> None:
    state = without_the_push(old(record, 1))
    assert accepts(state, "s.pay", ADA)
    assert accepts(state, "s.pay", EVE)
    assert not accepts(state, "a.x", ADA)


def test_an_old_end_behind_its_push_needs_to_tell_nothing() -> None:
    state = State(EngineSettings())
    apply_record(state, PushRecord(1, ADA, 1, b"s.pay", new("s.pay")))
    apply_record(state, old(FinishRecord(1, ORIGIN, 1, b"s.pay", 1, ACKED, 0, UID), 1))
    assert accepts(state, "s.pay", ADA)
    assert not accepts(state, "s.pay", EVE)


@pytest.mark.parametrize("leases", [0, 1])
def test_an_old_job_that_was_carried_tells_the_queue_where_it_is(leases: int) -> None:
    record = JobSnapshot(1, SYSTEM_ORIGIN, 7, b"s.pay", "task", Policy(), 0)
    record.state = READY
    record.leases = leases
    record.extras = JobExtras()
    record.extras.uid = UID
    state = without_the_push(old(record, 3 if leases else 1))
    assert accepts(state, "s.pay", EVE)
    assert not accepts(state, "a.x", EVE)
    producer = state.uids[UID].ensure_extras().producer
    assert len(producer) == PRODUCER_BYTES


def test_what_is_carried_of_old_uids_tells_nothing() -> None:
    state = without_the_push(old(TombstonesSnapshot(1, SYSTEM_ORIGIN, 0, True, [UID], [7], []), 1))
    assert accepts(state, "s.pay", ADA)
    assert accepts(state, "a.x", EVE)


# Producers


def test_a_producer_is_a_queue_and_a_user() -> None:
    producers = ProducerHashes()
    ours = producers.hash_of(b"s.pay", "ada")
    assert len(ours) == PRODUCER_BYTES
    assert ours == ProducerHashes().hash_of(b"s.pay", "ada")
    others = [
        producers.hash_of(b"s.pay", ""),
        producers.hash_of(b"", "ada"),
        producers.hash_of(b"ada", "s.pay"),
    ]
    for other in others:
        assert not is_same_producer(ours, other)
    assert is_same_producer(ours, producers.hash_of_queue(b"s.pay"))
    assert is_same_producer(producers.hash_of_queue(b"s.pay"), ours)
    assert not is_same_producer(ours, producers.hash_of_queue(b"a.x"))
    assert is_same_producer(ours, ANY_PRODUCER)


def test_jobs_of_one_producer_share_it() -> None:
    producers = ProducerHashes()
    ours = producers.hash_of(b"s.pay", "ada")
    producers.hash_of(b"a.x", "eve")
    assert producers.hash_of(b"s." + b"pay", "a" + "da") is ours
    assert producers.intern(bytes(bytearray(ours))) is ours


def test_there_may_be_any_number_of_producers() -> None:
    producers = ProducerHashes()
    for number in range(10_000):
        assert producers.hash_of(b"%d" % number, "ada") == producers.hash_of(b"%d" % number, "ada")
    assert len(producers._by_queue_and_user) <= 4096
