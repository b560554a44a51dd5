"""Taking jobs in: order, delay, ttl, transactions."""

import pytest
from engine.harness import NO_LIMIT, ORIGIN, OWNER, START, Bench

from taskyard.engine.model.events import (
    DuplicateJob,
    InvalidOption,
    NotLeaseholder,
    ReadOnly,
    TransactionStepRefused,
)
from taskyard.engine.model.job import (
    BACKOFF_QUARTIC,
    BLOCKED,
    DELAYED,
    FOREVER,
    READY,
    SECOND,
    NewJob,
    Policy,
)
from taskyard.engine.operations.push import TransactionStep


def step(
    queue: str = "q", *, blocked_by: list[int] | None = None, run_at: int = 0
) -> TransactionStep:
    return TransactionStep(
        NewJob(queue, "task", b"", NO_LIMIT, run_at=run_at, blocked_by=blocked_by)
    )


def transact(bench: Bench, *steps: TransactionStep, owner: int = OWNER) -> list[int]:
    return bench.engine.transact(list(steps), owner, ORIGIN, bench.now)


def test_ids_are_dense_over_all_queues(bench: Bench) -> None:
    assert [bench.push("a").id, bench.push("b").id, bench.push("a").id] == [1, 2, 3]


def test_a_refused_push_uses_up_no_id(bench: Bench) -> None:
    with pytest.raises(InvalidOption):
        bench.push(ttl_ms=-1)
    assert bench.push().id == 1


def test_a_queue_exists_from_its_first_push(bench: Bench) -> None:
    assert bench.engine.queue(b"q") is None
    bench.push("q")
    assert bench.queue("q").name == "q"


def test_reading_creates_no_queue(bench: Bench) -> None:
    assert bench.engine.fetch(bench.fetch_request("q"), bench.now) is None
    assert bench.engine.pop(b"q", False, ORIGIN, bench.now) is None
    assert bench.engine.peek(b"q") is None
    bench.wait("q")
    assert bench.engine.queue(b"q") is None


def test_jobs_are_delivered_in_order_of_arrival(bench: Bench) -> None:
    jobs = [bench.push() for _ in range(3)]
    assert [bench.take() for _ in range(3)] == jobs


def test_higher_priorities_are_delivered_first(bench: Bench) -> None:
    low, high, middle = (bench.push(priority=priority) for priority in (-1, 9, 0))
    assert [bench.take() for _ in range(3)] == [high, middle, low]


def test_a_push_to_the_front_comes_before_its_equals_only(bench: Bench) -> None:
    first = bench.push()
    urgent = bench.push(priority=1)
    front = bench.push(front=True)
    new_front = bench.push(front=True)
    assert bench.ids() == [urgent.id, new_front.id, front.id, first.id]


def test_the_payload_is_kept_byte_for_byte(bench: Bench) -> None:
    payload = bytes(range(256))
    job = bench.push(payload=payload)
    assert bench.read(job.payload_at, job.payload_size) == payload
    bench.collect()
    assert bench.read(job.payload_at, job.payload_size) == payload


def test_jobs_of_a_queue_share_equal_policies_and_names(bench: Bench) -> None:
    first = bench.push(policy=Policy(max_fails=3))
    second = bench.push(policy=Policy(max_fails=3))
    assert first.policy is second.policy
    assert first.name is second.name


# Delay and ttl


def test_a_job_waits_for_its_time(bench: Bench) -> None:
    job = bench.push(run_at=START + 10 * SECOND)
    assert job.state == DELAYED
    assert bench.engine.fetch(bench.fetch_request(), bench.now) is None
    bench.advance_clock(10 * SECOND - 1)
    assert job.state == DELAYED
    bench.advance_clock(1)
    assert job.state == READY


def test_a_time_in_the_past_is_no_delay(bench: Bench) -> None:
    assert bench.push(run_at=START - SECOND).state == READY
    assert bench.push(run_at=START).state == READY


def test_run_at_is_remembered_after_the_job_woke(bench: Bench) -> None:
    job = bench.push(run_at=START + SECOND)
    bench.advance_clock(2 * SECOND)
    assert job.run_at == START + SECOND


def test_woken_jobs_join_the_back_in_order_of_time(bench: Bench) -> None:
    late = bench.push(run_at=START + 3 * SECOND)
    early = bench.push(run_at=START + SECOND)
    same = bench.push(run_at=START + SECOND)
    waiting = bench.push()
    bench.now += 10 * SECOND
    bench.engine.tick(bench.now)
    assert bench.ids() == [waiting.id, early.id, same.id, late.id]


def test_a_front_push_that_was_delayed_joins_the_back(bench: Bench) -> None:
    delayed = bench.push(front=True, run_at=START + SECOND)
    other = bench.push()
    bench.advance_clock(SECOND)
    assert bench.ids() == [other.id, delayed.id]


def test_a_job_is_gone_when_its_ttl_is_over(bench: Bench) -> None:
    job = bench.push(ttl_ms=1500)
    bench.advance_clock(1_500_000 - 1)
    assert bench.ids() == [job.id]
    bench.advance_clock(1)
    assert bench.ids() == []
    assert bench.engine.recent(job.id) is job
    assert bench.queue().expired == 1
    assert bench.engine.state.evicted == 1


def test_the_ttl_of_a_scheduled_job_counts_from_its_time(bench: Bench) -> None:
    job = bench.push(run_at=START + 10 * SECOND, ttl_ms=1000)
    assert job.ensure_extras().expires_at == START + 11 * SECOND


def test_a_leased_job_is_gone_too_when_its_ttl_is_over(bench: Bench) -> None:
    job = bench.push(ttl_ms=1000)
    bench.take()
    bench.advance_clock(SECOND)
    with pytest.raises(NotLeaseholder):
        bench.ack(job)


def test_the_longest_ttl_never_ends(bench: Bench) -> None:
    job = bench.push(ttl_ms=2**64 - 1)
    extra = job.ensure_extras()
    assert extra.ttl_ms == 2**64 - 1
    assert extra.expires_at == FOREVER
    assert bench.engine.next_deadline(bench.now) == 0


# Transactions


def test_a_transaction_gives_the_ids_of_its_pushes(bench: Bench) -> None:
    assert transact(bench, step("a"), step("b"), step("a")) == [1, 2, 3]
    assert bench.ids("a") == [1, 3]


def test_an_empty_transaction_is_nothing(bench: Bench) -> None:
    bench.collect()
    assert transact(bench) == []
    assert bench.collect() == []


def test_pushes_and_acks_are_done_together(bench: Bench) -> None:
    done = bench.push()
    bench.take(bound=True)
    assert transact(bench, step("next"), TransactionStep(None, done.id)) == [2]
    assert bench.engine.recent(done.id) is done
    assert bench.ids("next") == [2]


@pytest.mark.parametrize(
    ("bad", "cause"),
    [
        (TransactionStep(NewJob("q", "two words", b"", NO_LIMIT)), InvalidOption),
        (TransactionStep(NewJob("q", "n", b"", NO_LIMIT, uid=b"1" * 16)), DuplicateJob),
        (TransactionStep(None, 99), NotLeaseholder),
        (TransactionStep(None, 1), NotLeaseholder),
        (TransactionStep(None, 0), NotLeaseholder),
        (step(blocked_by=[0]), InvalidOption),
        (step(blocked_by=[-2]), InvalidOption),
        (step(blocked_by=[-(2**70)]), InvalidOption),
    ],
)
def test_one_refused_step_refuses_them_all(
    bench: Bench, bad: TransactionStep, cause: type[Exception]
) -> None:
    bench.push(uid=b"1" * 16)
    bench.collect()
    with pytest.raises(TransactionStepRefused) as refused:
        transact(bench, step(), bad, step())
    assert refused.value.index == 1
    assert isinstance(refused.value.cause, cause)
    assert bench.collect() == []
    assert bench.ids() == [1]


def test_a_job_can_be_acked_once_in_a_transaction(bench: Bench) -> None:
    job = bench.push()
    bench.take()
    with pytest.raises(TransactionStepRefused) as refused:
        transact(bench, TransactionStep(None, job.id), TransactionStep(None, job.id))
    assert refused.value.index == 1
    assert bench.engine.job(job.id).lease is not None


def test_a_job_of_another_holder_cannot_be_acked(bench: Bench) -> None:
    job = bench.push()
    bench.take()
    with pytest.raises(TransactionStepRefused):
        transact(bench, TransactionStep(None, job.id), owner=OWNER + 1)


def test_a_uid_can_be_pushed_once_in_a_transaction(bench: Bench) -> None:
    twice = [TransactionStep(NewJob("q", "n", b"", NO_LIMIT, uid=b"1" * 16)) for _ in range(2)]
    with pytest.raises(TransactionStepRefused) as refused:
        transact(bench, *twice)
    assert refused.value.index == 1
    assert isinstance(refused.value.cause, DuplicateJob)


def test_a_push_can_wait_for_one_before_it(bench: Bench) -> None:
    first, second, third = transact(bench, step(), step(blocked_by=[-1]), step(blocked_by=[-1, -2]))
    assert bench.ids(state=BLOCKED) == [second, third]
    assert bench.engine.job(third).ensure_extras().blockers == {first, second}


def test_a_job_that_is_acked_before_does_not_block(bench: Bench) -> None:
    done = bench.push()
    bench.take()
    ids = transact(bench, TransactionStep(None, done.id), step(blocked_by=[done.id]))
    assert bench.ids() == ids


def test_a_job_that_is_acked_after_releases(bench: Bench) -> None:
    done = bench.push()
    bench.take()
    ids = transact(bench, step(blocked_by=[done.id]), TransactionStep(None, done.id))
    assert bench.ids() == ids


def test_those_who_wait_are_served_after_the_whole_transaction(bench: Bench) -> None:
    waiter = bench.wait("q")
    high = TransactionStep(NewJob("q", "task", b"", NO_LIMIT, priority=5))
    transact(bench, step(), high)
    assert bench.effects() == [("assigned", waiter.number, 2)]


def test_nothing_is_pushed_when_no_record_can_be_written(bench: Bench) -> None:
    bench.engine.read_only_reason = "disk failed"
    with pytest.raises(ReadOnly, match="disk failed"):
        bench.push()
    with pytest.raises(ReadOnly):
        transact(bench, step())


@pytest.mark.parametrize(
    "policy",
    [
        Policy(ttr=5),
        Policy(max_attempts=5),
        Policy(max_fails=5),
        Policy(max_losses=5),
        Policy(backoff=BACKOFF_QUARTIC),
        Policy(backoff_base=5),
        Policy(backoff_cap=5),
        Policy(dead_queue="dead"),
        Policy(lost_is_failed=True),
    ],
)
def test_jobs_share_a_policy_only_if_it_is_the_same_in_everything(
    bench: Bench, policy: Policy
) -> None:
    first, second, third = (bench.push(policy=each) for each in (Policy(), policy, Policy()))
    names = (
        "ttr",
        "max_attempts",
        "max_fails",
        "max_losses",
        "backoff",
        "backoff_base",
        "backoff_cap",
        "dead_queue",
        "lost_is_failed",
    )
    for job, pushed in ((first, Policy()), (second, policy), (third, Policy())):
        for name in names:
            assert getattr(job.policy, name) == getattr(pushed, name)


def test_each_push_of_a_transaction_goes_to_its_own_queue(bench: Bench) -> None:
    ids = transact(bench, step("a"), step("a"), step("b"), step("a"))
    assert [bench.engine.job(id).queue.name for id in ids] == ["a", "a", "b", "a"]


def test_a_job_of_the_same_queue_has_its_own_name(bench: Bench) -> None:
    queue = "".join(["q", "ueue"])  # the same object twice, as a list of values has it
    names = ["a", "b", ""]
    steps = [TransactionStep(NewJob(queue, name, b"", NO_LIMIT)) for name in names]
    ids = transact(bench, *steps[:2])
    assert [bench.engine.job(id).name for id in ids] == ["a", "b"]
    with pytest.raises(TransactionStepRefused) as refused:
        transact(bench, *steps)
    assert refused.value.index == 2


@pytest.mark.parametrize("place", [0, 1, 2])
def test_a_name_that_cannot_be_is_found_wherever_it_stands(bench: Bench, place: int) -> None:
    steps = [step("a"), step("a"), step("a")]
    steps[place] = step("")
    with pytest.raises(TransactionStepRefused) as refused:
        transact(bench, *steps)
    assert refused.value.index == place
    assert bench.engine.state.jobs.size == 0
