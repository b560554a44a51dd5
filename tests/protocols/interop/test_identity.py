"""Identity: one number and one uid for each job, whoever pushed it and whoever asks."""

import uuid

import pytest
from protocols.interop.adapters.base import Adapter, Can, Duplicate, Options, UidTaken
from protocols.interop.cases import cases
from protocols.interop.world import TimedWorld, World, able

Dialect = type[Adapter]

A_LITTLE = 0.1
GIVEN = "6ba7b810-9dad-11d1-80b4-00c04fd430c4"


@cases("number")
def test_jobs_of_all_dialects_are_numbered_in_one_row(
    any_world: World, pusher: Dialect, taker: Dialect
) -> None:
    world = any_world
    here, there = world.open(pusher), world.open(taker)
    jobs = [world.push(here)]
    world.between()
    jobs += [world.push(there), world.push(here)]
    numbers = [world.take(there).number for _ in jobs]
    assert numbers == [job.number for job in jobs]


@cases("uid")
def test_every_job_has_a_uid_by_which_it_can_be_looked_at_and_finished(
    any_world: World, pusher: Dialect, observer: Dialect
) -> None:
    world = any_world
    here, there = world.open(pusher), world.open(observer)
    job, other = world.push(here), world.push(here)
    assert str(uuid.UUID(job.uid)) == job.uid != other.uid
    if Can.UID not in pusher.can:
        assert uuid.UUID(job.uid).version == 4
        assert uuid.UUID(job.uid).variant == uuid.RFC_4122
    world.between()
    assert there.look(job).state == there.look(other).state == "waiting"
    taken = world.take(there)
    assert taken.uid == job.uid
    there.fail(taken) if pusher.default_fails == 1 else there.finish(taken)
    world.between()
    there.finish_any(other)
    world.sees()


@cases("uid taken")
def test_the_uid_of_a_job_cannot_be_given_to_another(
    any_world: World, pusher: Dialect, other: Dialect
) -> None:
    world = any_world
    here, there = world.open(pusher), world.open(other)
    worker = world.open(able(Can.TAKE, Can.FINISH_ANY)[0])
    is_given = Can.UID in pusher.can
    job = world.push(here, Options(uid=str(uuid.uuid4()) if is_given else None))
    refusal = Duplicate if is_given else UidTaken  # no push has named a uid that was derived
    world.between()
    for uid in (job.uid, job.uid.upper()):
        with pytest.raises(refusal):
            world.push(there, Options(uid=uid))
        with pytest.raises(UidTaken):
            world.push(there, Options(uid=uid), f"{world.queue}.other")
    world.sees(ready=1)
    world.take_this(worker, job)
    with pytest.raises(refusal):
        world.push(there, Options(uid=job.uid))
    worker.finish_any(job)
    if pusher.result_outlives_job:
        with pytest.raises(refusal):
            world.push(there, Options(uid=job.uid))
    world.sees()


@cases("uid free after delete")
def test_the_uid_of_a_deleted_job_is_free_again(
    any_world: World, pusher: Dialect, other: Dialect
) -> None:
    world = any_world
    here, there = world.open(pusher), world.open(other)
    job = world.push(here, Options(uid=str(uuid.uuid4())))
    world.between()
    there.delete(job)
    world.between()
    again = world.push(here, Options(uid=job.uid))
    assert again.number == job.number + 1
    world.job_is(again, "waiting", attempts=0, fails=0)


@cases("uid free after ttl")
def test_the_uid_of_a_job_whose_ttl_is_over_is_free_again(
    world: TimedWorld, pusher: Dialect, taker: Dialect
) -> None:
    here, there = world.open(pusher), world.open(taker)
    job = world.push(here, Options(uid=GIVEN, ttl=10))
    there.finish(world.take_this(there, job))
    world.advance(10 - A_LITTLE)
    world.between()
    with pytest.raises(Duplicate):
        world.push(here, Options(uid=GIVEN))
    world.advance(2 * A_LITTLE)
    again = world.push(here, Options(uid=GIVEN))
    world.take_this(there, again)
