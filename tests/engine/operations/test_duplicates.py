"""uids: given or derived, unique, and remembered for a while after success."""

import pytest
from engine.harness import NO_LIMIT, ORIGIN, SALT, Bench
from support.graves import remembered_uids as uids_of

from taskyard.engine.model.events import DuplicateJob
from taskyard.engine.model.job import FAILED, READY, SECOND, SUCCEEDED, Job, NewJob, Policy
from taskyard.engine.model.queue import QueueSettings
from taskyard.engine.model.state import EngineSettings, derive_uid

UID = b"0123456789abcdef"
WINDOW = 600 * SECOND
LATE = WINDOW // 4096  # uids are forgotten together, a stretch of time at once


def push_again(bench: Bench) -> Job:
    return bench.push("q", name="another", uid=UID)


def refused(bench: Bench) -> int:
    """The id of the job that is in the way."""
    bench.collect()
    with pytest.raises(DuplicateJob) as error:
        push_again(bench)
    assert bench.collect() == []
    return error.value.job_id


def remembered(bench: Bench) -> dict[bytes, int]:
    return uids_of(bench.engine.state.tombstones)


def complete(bench: Bench, job: Job) -> None:
    bench.engine.complete(job.id, b"", ORIGIN, bench.now)


# Finding jobs


def test_a_job_is_found_by_the_uid_it_was_given(bench: Bench) -> None:
    job = bench.push(uid=UID)
    assert bench.engine.uid_of(job) == UID
    assert bench.engine.job_by_uid(UID) is job


def test_a_job_that_was_given_none_is_found_by_a_derived_one(bench: Bench) -> None:
    job = bench.push()
    uid = bench.engine.uid_of(job)
    assert uid == derive_uid(SALT, job.id)
    assert bench.engine.job_by_uid(uid) is job


def test_nobody_is_found_by_an_unknown_uid(bench: Bench) -> None:
    given = bench.push(uid=UID)
    assert bench.engine.job_by_uid(b"x" * 16) is None
    assert bench.engine.job_by_uid(derive_uid(SALT, given.id)) is None
    assert bench.engine.job_by_uid(derive_uid(SALT, 99)) is None


def test_a_job_that_is_done_is_found_by_either_uid_while_the_ring_has_it(bench: Bench) -> None:
    given, derived = bench.push(uid=UID), bench.push()
    uid = bench.engine.uid_of(derived)
    assert bench.engine.recent_by_uid(UID) is None
    assert bench.engine.recent_by_uid(uid) is None
    complete(bench, given)
    complete(bench, derived)
    assert bench.engine.recent_by_uid(UID) is given
    assert bench.engine.recent_by_uid(uid) is derived
    for stranger in (b"x" * 16, derive_uid(SALT, given.id), derive_uid(SALT, 2**63)):
        assert bench.engine.recent_by_uid(stranger) is None


def test_a_uid_names_the_job_whose_push_would_be_repeated(bench: Bench) -> None:
    def repeated() -> int:
        return bench.engine.repeated_push_id(NewJob("q", "n", b"", NO_LIMIT, uid=UID), ORIGIN)

    assert bench.engine.repeated_push_id(NewJob("q", "n", b"", NO_LIMIT), ORIGIN) == 0
    assert repeated() == 0
    job = bench.push(uid=UID)
    assert repeated() == job.id
    complete(bench, job)
    assert repeated() == job.id
    bench.advance_clock(WINDOW + 2 * LATE)
    assert repeated() == 0


def test_a_finished_job_is_not_found(bench: Bench) -> None:
    job = bench.push(uid=UID)
    complete(bench, job)
    assert bench.engine.job_by_uid(UID) is None


# Duplicates


@pytest.mark.parametrize("state", ["ready", "leased", "succeeded", "failed", "in dead queue"])
def test_a_uid_is_taken_in_any_state_under_any_name(bench: Bench, state: str) -> None:
    dead_queue = "dead" if state == "in dead queue" else ""
    job = bench.push(uid=UID, ttl_ms=60_000, policy=Policy(dead_queue=dead_queue))
    if state == "leased":
        bench.take()
    elif state == "succeeded":
        complete(bench, job)
    elif state != "ready":
        bench.engine.fail(job.id, b"", ORIGIN, bench.now)
    assert refused(bench) == job.id


def test_a_uid_is_free_again_after_a_delete(bench: Bench) -> None:
    bench.delete(bench.push(uid=UID))
    push_again(bench)


def test_a_uid_is_free_again_after_a_purge(bench: Bench) -> None:
    bench.push(uid=UID)
    bench.engine.purge_queue(b"q", READY, 1, ORIGIN, bench.now)
    push_again(bench)


@pytest.mark.parametrize("end", [None, SUCCEEDED, FAILED])
def test_a_uid_is_free_again_after_the_ttl(bench: Bench, end: int | None) -> None:
    job = bench.push(uid=UID, ttl_ms=1000, policy=Policy())
    if end == SUCCEEDED:
        complete(bench, job)
    elif end == FAILED:
        bench.engine.fail(job.id, b"", ORIGIN, bench.now)
    bench.advance_clock(SECOND)
    push_again(bench)


# Tombstones


@pytest.mark.parametrize("way", ["ack", "complete", "pop"])
def test_a_uid_is_remembered_for_a_while_after_success(bench: Bench, way: str) -> None:
    job = bench.push(uid=UID)
    if way == "pop":
        bench.engine.pop(b"q", False, ORIGIN, bench.now)
    elif way == "ack":
        bench.take()
        bench.ack(job)
    else:
        complete(bench, job)
    assert refused(bench) == job.id
    bench.advance_clock(WINDOW - 1)
    assert refused(bench) == job.id
    bench.advance_clock(1 + LATE)
    push_again(bench)


def test_a_uid_is_remembered_after_the_retention_of_its_result(bench: Bench) -> None:
    bench.engine.create_queue("q", QueueSettings(result_retention=SECOND), ORIGIN, bench.now)
    job = bench.push(uid=UID)
    complete(bench, job)
    bench.advance_clock(SECOND)
    assert refused(bench) == job.id
    bench.advance_clock(WINDOW - 1)
    assert refused(bench) == job.id
    bench.advance_clock(1 + LATE)
    push_again(bench)


def test_a_uid_is_remembered_after_its_dead_letter_had_to_go() -> None:
    """Making room for others is no reason to push a job twice."""
    bench = Bench(EngineSettings(dead_bytes=0))
    job = bench.push(uid=UID, policy=Policy())
    bench.engine.fail(job.id, b"", ORIGIN, bench.now)
    assert refused(bench) == job.id


def test_tombstones_survive_a_restart(bench: Bench) -> None:
    job = bench.push(uid=UID)
    complete(bench, job)
    bench.advance_clock(WINDOW // 2)
    bench.restart()
    assert refused(bench) == job.id
    bench.advance_clock(WINDOW // 2 - 1)
    assert refused(bench) == job.id
    bench.advance_clock(1 + LATE)
    push_again(bench)


def test_each_is_forgotten_in_its_own_time(bench: Bench) -> None:
    uids = [bytes([number]) * 16 for number in range(3)]
    for uid in uids:
        complete(bench, bench.push(uid=uid))
        bench.advance_clock(WINDOW // 4)
    bench.advance_clock(WINDOW // 2 - WINDOW // 4 - 1)
    assert list(remembered(bench)) == uids
    bench.advance_clock(1 + LATE)
    assert list(remembered(bench)) == uids[1:]


def test_with_no_window_nothing_is_remembered() -> None:
    bench = Bench(EngineSettings(uid_window=0))
    complete(bench, bench.push(uid=UID))
    assert remembered(bench) == {}
    push_again(bench)


def test_the_window_may_be_another_after_a_restart(bench: Bench) -> None:
    """The journal says when uids were forgotten; how long they are kept is a setting."""
    complete(bench, bench.push(uid=b"a" * 16))
    bench.advance_clock(WINDOW + LATE)
    complete(bench, bench.push(uid=UID))
    bench.restart(EngineSettings(uid_window=0))
    assert remembered(bench) == {}
    bench.restart(EngineSettings(uid_window=WINDOW // 2))
    assert list(remembered(bench)) == [UID]
    bench.advance_clock(WINDOW // 2 - 1)
    assert list(remembered(bench)) == [UID]
    bench.advance_clock(1 + LATE)
    assert remembered(bench) == {}


def test_a_great_many_are_forgotten_in_portions(bench: Bench) -> None:
    """A record for each stretch of time, however many uids there are in it."""
    for number in range(10_001):
        complete(bench, bench.push(uid=number.to_bytes(16, "big")))
        if number == 5000:
            bench.now += LATE
    bench.collect()
    bench.advance_clock(WINDOW + LATE)
    assert remembered(bench) == {}
    assert len(bench.collect()) == 2
