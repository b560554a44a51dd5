"""The same job with many payloads: all of them or none, as a transaction of these pushes."""

import pytest
from engine.harness import NO_LIMIT, ORIGIN, OWNER, START, Bench
from hypothesis import given, settings
from hypothesis import strategies as st
from support.effort import effort
from support.model_invariants import check_invariants
from support.snapshot import snapshot

from taskyard.engine.model.events import (
    Draining,
    InvalidOption,
    NoSpace,
    QueueFull,
    ReadOnly,
    TaskyardError,
    TransactionStepRefused,
)
from taskyard.engine.model.job import FAILED, LEASED, SECOND, NewJob, Policy
from taskyard.engine.model.queue import OVERFLOW_DEAD, OVERFLOW_REFUSE, QueueSettings
from taskyard.engine.model.state import EngineSettings
from taskyard.engine.operations.push import TransactionStep
from taskyard.engine.operations.room import MAX_STEP_BYTES

LIMIT = 100  # bytes of a payload
PAYLOADS = [b"one", b"", b"three", b"x" * LIMIT]


@pytest.fixture
def bench() -> Bench:
    return Bench(EngineSettings(payload_limit=LIMIT))


def new(queue: str = "q") -> NewJob:
    return NewJob(queue, "task", b"", NO_LIMIT)


def copy(job: NewJob, payload: bytes = b"") -> NewJob:
    return NewJob(
        job.queue,
        job.name,
        payload,
        job.policy,
        job.priority,
        job.run_at,
        job.content,
        job.front,
        job.ttl_ms,
        limit_key=job.limit_key,
    )


def push_all(bench: Bench, job: NewJob, payloads: list[bytes]) -> None:
    bench.engine.push_all(job, payloads, OWNER, ORIGIN, bench.now)


def transact(bench: Bench, job: NewJob, payloads: list[bytes]) -> None:
    steps = [TransactionStep(copy(job, payload)) for payload in payloads]
    bench.engine.transact(steps, OWNER, ORIGIN, bench.now)


def payloads_of(bench: Bench, queue: str = "q") -> list[bytes]:
    jobs = [bench.engine.job(id) for id in bench.ids(queue)]
    return [bench.read(job.payload_at, job.payload_size) for job in jobs]


def refused(bench: Bench, job: NewJob, payloads: list[bytes]) -> TaskyardError:
    """None of it is done, and nothing is written of it."""
    bench.collect()
    before = snapshot(bench.engine.state)
    with pytest.raises(TaskyardError) as refusal:
        push_all(bench, job, payloads)
    assert bench.collect() == []
    assert snapshot(bench.engine.state) == before
    return refusal.value


# What is done


def test_the_jobs_are_there_in_the_order_of_their_payloads(bench: Bench) -> None:
    bench.push(payload=b"before")
    push_all(bench, new(), PAYLOADS)
    bench.push(payload=b"behind")
    assert bench.ids() == [1, 2, 3, 4, 5, 6]
    assert payloads_of(bench) == [b"before", *PAYLOADS, b"behind"]
    bench.collect()
    assert payloads_of(bench) == [b"before", *PAYLOADS, b"behind"]
    check_invariants(bench.engine)


def test_at_the_front_the_last_one_comes_first(bench: Bench) -> None:
    bench.push(payload=b"before")
    job = new()
    job.front = True
    push_all(bench, job, PAYLOADS)
    assert payloads_of(bench) == [*reversed(PAYLOADS), b"before"]


def test_they_are_there_after_a_restart(bench: Bench) -> None:
    push_all(bench, new(), PAYLOADS)
    bench.restart()
    assert payloads_of(bench) == PAYLOADS


def test_waiting_fetches_are_served_in_order(bench: Bench) -> None:
    waiters = [bench.wait(owner=number) for number in (2, 3)]
    push_all(bench, new(), [b"a", b"b", b"c"])
    assert bench.effects() == [
        ("assigned", waiters[0].number, 1),
        ("assigned", waiters[1].number, 2),
    ]
    assert (bench.ids(state=LEASED), bench.ids()) == ([1, 2], [3])


def test_who_waits_longer_than_there_are_jobs_goes_on_waiting(bench: Bench) -> None:
    waiters = [bench.wait(owner=number, pop=number == 2) for number in (2, 3, 4)]
    push_all(bench, new(), [b"a", b"b"])
    assert [waiter.waiting for waiter in waiters] == [False, False, True]
    check_invariants(bench.engine)


def test_a_waiting_fetch_of_another_queue_is_not_served(bench: Bench) -> None:
    waiter = bench.wait("other")
    push_all(bench, new(), PAYLOADS)
    assert waiter.waiting
    assert bench.effects() == []


# What is refused


@pytest.mark.parametrize("index", [0, 1, 3])
def test_one_payload_that_is_too_large_spoils_them_all(bench: Bench, index: int) -> None:
    payloads = [b"a", b"b", b"c"]
    payloads.insert(index, b"x" * (LIMIT + 1))
    error = refused(bench, new(), payloads)
    assert isinstance(error, TransactionStepRefused)
    assert error.index == index
    assert isinstance(error.cause, InvalidOption)
    assert bench.engine.queue(b"q") is None
    assert bench.push().id == 1


@pytest.mark.parametrize("name", ["", "two words", "x" * 256, "nul\0", "\ud800"])
def test_a_queue_or_a_task_must_have_a_good_name(bench: Bench, name: str) -> None:
    for job in (new(name), NewJob("q", name, b"", NO_LIMIT)):
        assert isinstance(refused(bench, job, [b"a", b"b"]), InvalidOption)
    assert bench.engine.queue(b"q") is None


def test_a_job_that_cannot_be_is_refused(bench: Bench) -> None:
    bad = [
        NewJob("q", "task", b"", Policy(ttr=-1)),
        NewJob("q", "task", b"", NO_LIMIT, run_at=-1),
        NewJob("q", "task", b"", NO_LIMIT, ttl_ms=-1),
        NewJob("q", "task", b"", NO_LIMIT, limit_key=b""),
    ]
    for job in bad:
        assert isinstance(refused(bench, job, [b"a", b"b"]), InvalidOption)


def test_nothing_is_done_without_room_for_all_of_it(bench: Bench) -> None:
    room = bench.engine.journal_space
    payloads = [b"x" * LIMIT] * 10
    bench.collect()
    room.free_bytes = 11 * MAX_STEP_BYTES + 10 * LIMIT - 1
    assert isinstance(refused(bench, new(), payloads), NoSpace)
    push_all(bench, new(), [*payloads[1:], payloads[0][1:]])
    assert len(bench.ids()) == 10
    assert bench.engine.records.size() <= room.free_bytes


def test_the_room_that_is_kept_for_finishing_is_not_used(bench: Bench) -> None:
    bench.collect()
    bench.engine.journal_space.free_bytes = 5 * MAX_STEP_BYTES
    bench.engine.journal_space.reserved_bytes = 3 * MAX_STEP_BYTES
    assert isinstance(refused(bench, new(), [b"", b""]), NoSpace)
    push_all(bench, new(), [b""])


def test_nothing_is_added_when_additions_are_refused(bench: Bench) -> None:
    bench.engine.journal_space.push_refusal = "full"
    assert isinstance(refused(bench, new(), [b"a", b"b"]), NoSpace)


@pytest.mark.parametrize("bounded", [False, True])
def test_a_server_that_only_reads_takes_nothing(bench: Bench, bounded: bool) -> None:
    bench.engine.state.any_queue_bounded = bounded
    bench.engine.read_only_reason = "the disk is gone"
    assert isinstance(refused(bench, new(), [b"a", b"b"]), ReadOnly)


def test_a_drained_server_takes_nothing(bench: Bench) -> None:
    bench.engine.set_draining(True)
    error = refused(bench, new(), [b"a", b"b"])
    assert isinstance(error, TransactionStepRefused)
    assert isinstance(error.cause, Draining)
    bench.engine.set_draining(False)
    push_all(bench, new(), PAYLOADS)
    assert payloads_of(bench) == PAYLOADS


def test_nor_does_a_drained_queue(bench: Bench) -> None:
    bench.push()
    bench.configure(settings=QueueSettings(draining=True))
    error = refused(bench, new(), [b"a", b"b"])
    assert isinstance(error, TransactionStepRefused)
    assert isinstance(error.cause, Draining)
    push_all(bench, new("other"), PAYLOADS)
    assert payloads_of(bench, "other") == PAYLOADS


# Bounds


@pytest.mark.parametrize(
    "bounds", [QueueSettings(max_jobs=3), QueueSettings(max_bytes=5)], ids=["jobs", "bytes"]
)
def test_a_queue_that_refuses_takes_all_that_have_a_place_or_none(
    bench: Bench, bounds: QueueSettings
) -> None:
    bench.engine.create_queue("q", bounds, ORIGIN, bench.now)
    bench.push(payload=b"a")
    error = refused(bench, new(), [b"bb", b"cc", b"dd"])
    assert isinstance(error, TransactionStepRefused)
    assert (error.index, type(error.cause)) == (2, QueueFull)
    push_all(bench, new(), [b"bb", b"cc"])
    assert payloads_of(bench) == [b"a", b"bb", b"cc"]


def test_what_has_no_place_goes_to_the_dead_letters_if_the_queue_says_so(bench: Bench) -> None:
    rules = QueueSettings(max_jobs=2, overflow=OVERFLOW_DEAD)
    bench.engine.create_queue("q", rules, ORIGIN, bench.now)
    push_all(bench, new(), [b"a", b"b", b"c", b"d"])
    assert (bench.ids(), bench.ids(state=FAILED)) == ([1, 2], [3, 4])
    check_invariants(bench.engine)


def test_a_queue_is_bounded_for_all_that_is_pushed_at_once() -> None:
    bench = Bench(EngineSettings(max_jobs=3))
    assert isinstance(refused(bench, new(), [b"a"] * 4), TransactionStepRefused)
    push_all(bench, new(), [b"a"] * 3)
    assert isinstance(refused(bench, new(), [b"a"]), TransactionStepRefused)


# As a transaction

jobs = st.builds(
    NewJob,
    queue=st.sampled_from(("q", "other")),
    name=st.sampled_from(("task", "work")),
    payload=st.just(b""),
    policy=st.sampled_from((NO_LIMIT, Policy(max_fails=2, dead_queue="dead"))),
    priority=st.sampled_from((0, 0, 5)),
    run_at=st.sampled_from((0, 0, START - 1, START + SECOND)),
    content=st.sampled_from((0, 1)),
    front=st.booleans(),
    ttl_ms=st.sampled_from((0, 0, 5000)),
    limit_key=st.sampled_from((None, None, b"key")),
)
lists = st.lists(
    st.sampled_from((b"", b"a", b"bb", b"x" * LIMIT, b"x" * (LIMIT + 1))), min_size=1, max_size=8
)
rules = st.builds(
    QueueSettings,
    paused=st.sampled_from((False, False, True)),
    max_jobs=st.sampled_from((-1, -1, 2, 5)),
    overflow=st.sampled_from((OVERFLOW_REFUSE, OVERFLOW_DEAD)),
    draining=st.sampled_from((False, False, False, True)),
    concurrency=st.sampled_from((-1, -1, 1)),
    key_concurrency=st.sampled_from((-1, 1)),
)


@given(st.lists(st.tuples(jobs, lists), max_size=4), st.none() | rules, st.integers(0, 4))
@settings(max_examples=effort(300, 60))
def test_it_is_just_what_a_transaction_of_these_pushes_is(
    pushes: list[tuple[NewJob, list[bytes]]], settings: QueueSettings | None, waiting: int
) -> None:
    found = []
    for push in (push_all, transact):
        bench = Bench(EngineSettings(payload_limit=LIMIT))
        if settings is not None:
            bench.engine.create_queue("q", settings, ORIGIN, bench.now)
        for number in range(waiting):
            bench.wait("q", "other", owner=number, pop=number % 2 == 1)
        outcomes: list[object] = []
        for job, payloads in pushes:
            try:
                push(bench, copy(job), payloads)
            except TransactionStepRefused as refusal:
                outcomes.append((refusal.index, type(refusal.cause)))
        check_invariants(bench.engine)
        state = snapshot(bench.engine.state)
        bench.collect()
        assert snapshot(bench.rebuild()) == state
        found.append((outcomes, bench.frames, state, bench.effects()))
    assert found[0] == found[1]
