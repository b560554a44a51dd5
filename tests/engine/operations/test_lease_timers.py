"""Leases of one moment share a timer: each still ends at its own time, and none twice."""

from random import Random

import pytest
from engine.harness import NO_LIMIT, ORIGIN, OWNER, START, Bench
from hypothesis import given, settings
from hypothesis import strategies as st
from support.effort import effort
from support.model_invariants import check_invariants
from support.snapshot import snapshot

from taskyard.engine.model.job import LEASED, READY, SECOND, Job, Policy
from taskyard.engine.records.job_changes import ReleaseRecord
from taskyard.engine.records.job_lifecycle import EXPIRED
from taskyard.engine.structures.timers import LeaseTimer

TTR = 5 * SECOND
TOGETHER = 1000  # leases of one timer at most
SPARSE = 4  # times as many jobs as leases: more are not kept


def lease(bench: Bench, count: int, ttr: int = TTR) -> list[Job]:
    """Leases of one moment, given in another order than that of the ids."""
    for number in range(count):
        bench.push(priority=number)
    return [bench.take(ttr=ttr) for _ in range(count)]


def ids(jobs: list[Job]) -> list[int]:
    return [job.id for job in jobs]


def expired(bench: Bench) -> list[tuple[int, int]]:
    """Which leases have ended by themselves since the last time, in order, and when."""
    return [
        (record.id, record.time)
        for record in bench.collect()
        if isinstance(record, ReleaseRecord) and record.reason == EXPIRED
    ]


def lease_timers(bench: Bench) -> list[LeaseTimer]:
    return [timer for timer in bench.engine.state.timers.heap if isinstance(timer, LeaseTimer)]


def check_lease_timers(bench: Bench) -> None:
    """One for each lease that ends, and no jobs of many others."""
    timers = lease_timers(bench)
    leases = [job.lease for job in bench.engine.state.jobs if job.lease is not None]
    for timer in timers:
        mine = [lease for lease in leases if lease.timer is timer]
        assert timer.active_count == len(mine) > 0
        assert {lease.deadline for lease in mine} == {timer.deadline}
        assert len({job.id for job in timer._jobs}) <= SPARSE * timer.active_count
        assert len(timer._jobs) <= TOGETHER
    assert sum(timer.active_count for timer in timers) == sum(
        lease.deadline > 0 for lease in leases
    )


def test_leases_of_one_moment_expire_in_the_order_they_were_given(bench: Bench) -> None:
    jobs = lease(bench, 5)
    assert ids(jobs) == [5, 4, 3, 2, 1]
    bench.advance_clock(TTR - 1)
    assert expired(bench) == []
    bench.advance_clock(1)
    assert expired(bench) == [(job.id, START + TTR) for job in jobs]
    assert {int(job.state) for job in jobs} == {READY}
    assert [int(job.losses) for job in jobs] == [1] * 5
    assert lease_timers(bench) == []


def test_they_have_one_timer(bench: Bench) -> None:
    before = len(bench.engine.state.timers.heap)
    lease(bench, 100)
    assert len(bench.engine.state.timers.heap) == before + 1
    assert lease_timers(bench)[0].active_count == 100
    check_invariants(bench.engine)


def test_a_tick_that_may_do_little_ends_them_one_by_one(bench: Bench) -> None:
    jobs = lease(bench, 4)
    bench.now += TTR
    for number in range(1, 5):
        bench.engine.tick(bench.now, 1)
        assert len(bench.ids(state=LEASED)) == 4 - number
        check_lease_timers(bench)
    assert [id for id, _ in expired(bench)] == ids(jobs)
    assert not bench.engine.tick(bench.now, 1)


@pytest.mark.parametrize("done", [[0], [4], [2], [0, 1, 2], [1, 3], [4, 3, 0], [0, 1, 2, 3]])
def test_the_others_expire_when_some_are_finished(bench: Bench, done: list[int]) -> None:
    jobs = lease(bench, 5)
    bench.advance_clock(SECOND)
    for number in done:
        bench.ack(jobs[number])
    check_lease_timers(bench)
    bench.advance_clock(TTR)
    left = [job.id for number, job in enumerate(jobs) if number not in done]
    assert expired(bench) == [(id, START + TTR) for id in left]


def test_no_timer_is_left_when_all_are_finished(bench: Bench) -> None:
    for job in lease(bench, 5):
        bench.ack(job)
    assert lease_timers(bench) == []
    assert bench.engine.next_deadline(bench.now) == 0
    again = lease(bench, 2)
    check_lease_timers(bench)
    bench.advance_clock(TTR)
    assert [id for id, _ in expired(bench)] == ids(again)


@pytest.mark.parametrize("which", [0, 2, 4])
@pytest.mark.parametrize("ttr", [SECOND, 30 * SECOND])
def test_an_extended_lease_gets_its_own_time_and_the_others_keep_theirs(
    bench: Bench, which: int, ttr: int
) -> None:
    jobs = lease(bench, 5)
    chosen = jobs.pop(which)
    bench.advance_clock(SECOND)
    bench.engine.extend_lease(chosen.id, OWNER, ttr, ORIGIN, bench.now)
    check_lease_timers(bench)
    assert sorted(timer.active_count for timer in lease_timers(bench)) == [1, 4]
    bench.advance_clock(60 * SECOND)
    found = expired(bench)
    assert found.pop(0 if ttr < TTR else -1) == (chosen.id, START + SECOND + ttr)
    assert found == [(job.id, START + TTR) for job in jobs]


def test_a_lease_that_is_extended_for_the_time_it_had_anyway_ends_then(bench: Bench) -> None:
    first, second = lease(bench, 2)
    for job in (first, second, second):
        bench.engine.extend_lease(job.id, OWNER, TTR, ORIGIN, bench.now)
        check_lease_timers(bench)
    bench.advance_clock(TTR)
    assert sorted(expired(bench)) == sorted((job.id, START + TTR) for job in (first, second))


def test_the_only_lease_of_its_moment_may_be_extended_again_and_again(bench: Bench) -> None:
    (job,) = lease(bench, 1)
    for _ in range(10):
        bench.advance_clock(TTR - 1)
        bench.engine.extend_lease(job.id, OWNER, TTR, ORIGIN, bench.now)
        assert len(lease_timers(bench)) == 1
    assert expired(bench) == []
    bench.advance_clock(TTR)
    assert expired(bench) == [(job.id, bench.now)]


@pytest.mark.parametrize("count", [1, 2, 5])
def test_a_job_given_back_and_leased_again_at_the_same_moment_expires_once(
    bench: Bench, count: int
) -> None:
    jobs = lease(bench, count)
    for _ in range(3):
        bench.engine.release_lease(jobs[0].id, OWNER, ORIGIN, bench.now)
        assert bench.take(ttr=TTR) is jobs[0]
        check_lease_timers(bench)
    bench.advance_clock(TTR)
    assert sorted(expired(bench)) == sorted((job.id, START + TTR) for job in jobs)
    assert jobs[0].losses == 1


def test_a_job_given_back_and_leased_for_longer_outlasts_the_others(bench: Bench) -> None:
    first, second = lease(bench, 2)
    bench.engine.release_lease(first.id, OWNER, ORIGIN, bench.now)
    assert bench.take(ttr=2 * TTR) is first
    bench.advance_clock(TTR)
    assert expired(bench) == [(second.id, START + TTR)]
    bench.advance_clock(TTR)
    assert expired(bench) == [(first.id, START + 2 * TTR)]


@pytest.mark.parametrize("count", [TOGETHER - 1, TOGETHER, TOGETHER + 1, 2 * TOGETHER + 500])
def test_any_number_of_leases_expires_at_once(bench: Bench, count: int) -> None:
    jobs = lease(bench, count)
    assert len(lease_timers(bench)) == -(-count // TOGETHER)
    check_lease_timers(bench)
    bench.advance_clock(TTR)
    assert sorted(expired(bench)) == sorted((job.id, START + TTR) for job in jobs)


@pytest.mark.parametrize("long", [0, 50, 99])
def test_one_long_lease_does_not_keep_the_jobs_of_its_moment(bench: Bench, long: int) -> None:
    jobs = lease(bench, 100)
    held = jobs.pop(long)
    Random(1).shuffle(jobs)
    (timer,) = lease_timers(bench)
    for number, job in enumerate(jobs, 1):
        bench.ack(job)
        assert len(timer._jobs) <= SPARSE * (100 - number)
    assert held in timer._jobs
    assert len(timer._jobs) <= SPARSE
    bench.advance_clock(TTR)
    assert expired(bench) == [(held.id, START + TTR)]


def test_those_whose_time_is_over_are_not_kept_either(bench: Bench) -> None:
    lease(bench, 100)
    bench.now += TTR
    for _ in range(97):
        bench.engine.tick(bench.now, 1)
    (timer,) = lease_timers(bench)
    assert timer.active_count == 3
    assert len(timer._jobs) <= SPARSE * 3


def test_leases_of_one_moment_with_other_ends_have_other_timers(bench: Bench) -> None:
    short, long = Policy(ttr=SECOND), Policy(ttr=2 * SECOND)
    jobs = [bench.push(policy=policy) for policy in (short, long, short, short, long)]
    for _ in jobs:
        bench.take()
    check_lease_timers(bench)
    bench.advance_clock(SECOND)
    assert sorted(expired(bench)) == [(id, START + SECOND) for id in (1, 3, 4)]
    bench.advance_clock(SECOND)
    assert sorted(expired(bench)) == [(id, START + 2 * SECOND) for id in (2, 5)]


def test_leases_without_an_end_have_no_timer(bench: Bench) -> None:
    timed, endless = bench.push(policy=Policy(ttr=TTR)), bench.push()
    assert [bench.take(bound=True) for _ in range(2)] == [timed, endless]
    assert [timer.active_count for timer in lease_timers(bench)] == [1]
    bench.ack(timed)
    assert lease_timers(bench) == []
    assert endless.lease is not None


def test_those_who_wait_get_the_jobs_and_leases_of_a_later_moment(bench: Bench) -> None:
    jobs = lease(bench, 3)
    waiters = [bench.wait(owner=number) for number in (2, 3)]
    bench.advance_clock(TTR)
    assigned = [("assigned", each.number, job.id) for each, job in zip(waiters, jobs, strict=False)]
    assert bench.effects() == assigned
    check_lease_timers(bench)
    assert len(bench.ids(state=LEASED)) == 2


def test_after_a_restart_they_expire_as_they_would_have() -> None:
    benches = [Bench(), Bench()]
    for bench in benches:
        jobs = lease(bench, 12)
        for number in (0, 3, 4, 5, 8):
            bench.ack(jobs[number])
        bench.engine.extend_lease(jobs[1].id, OWNER, 9 * SECOND, ORIGIN, bench.now)
        bench.engine.release_lease(jobs[2].id, OWNER, ORIGIN, bench.now)
        bench.take(ttr=TTR)
        expired(bench)
    staying, restarted = benches
    restarted.restart()
    check_lease_timers(restarted)
    check_invariants(restarted.engine)
    for bench in benches:
        bench.advance_clock(20 * SECOND)
    ended = expired(staying)
    assert len(ended) == 7
    assert expired(restarted) == ended


STEPS = ("push", "take", "take", "take long", "ack", "nack", "give back", "extend", "pass")


class Plain:
    """The same with a dict: who is leased, and until when."""

    def __init__(self) -> None:
        self.bench = Bench()
        self.until: dict[int, int] = {}
        self.ended: list[tuple[int, int]] = []  # leases that should have
        self.found: list[tuple[int, int]] = []  # and those that have

    def step(self, name: str, pick: int) -> None:
        bench = self.bench
        job = self._leased(pick)
        if name == "push":
            bench.push(priority=pick % 3)
        elif name.startswith("take"):
            self._take(2 * TTR if name == "take long" else TTR)
        elif name == "pass":
            self.pass_time(pick % 4 * SECOND)
        elif job is None:
            bench.push(policy=NO_LIMIT)
        elif name == "extend":
            bench.engine.extend_lease(job.id, OWNER, TTR + pick % 2 * SECOND, ORIGIN, bench.now)
            self.until[job.id] = bench.now + TTR + pick % 2 * SECOND
        else:
            del self.until[job.id]
            if name == "give back":
                bench.engine.release_lease(job.id, OWNER, ORIGIN, bench.now)
            elif name == "ack":
                bench.ack(job)
            else:
                bench.nack(job)

    def _leased(self, pick: int) -> Job | None:
        known = sorted(self.until)
        return self.bench.engine.job(known[pick % len(known)]) if known else None

    def _take(self, ttr: int) -> None:
        job = self.bench.engine.fetch(self.bench.fetch_request(ttr=ttr), self.bench.now)
        if job is not None:
            self.until[job.id] = self.bench.now + ttr

    def pass_time(self, duration: int) -> None:
        self.bench.advance_clock(duration)
        due = [(id, end) for id, end in self.until.items() if end <= self.bench.now]
        for id, _ in due:
            del self.until[id]
        self.ended += due
        self.found += expired(self.bench)

    def check(self) -> None:
        leased = {job.id: job.lease for job in self.bench.engine.state.jobs if job.lease}
        assert {id: lease.deadline for id, lease in leased.items()} == self.until
        check_lease_timers(self.bench)


def run(steps: list[tuple[str, int]]) -> None:
    plain = Plain()
    bench = plain.bench
    for name, pick in steps:
        plain.step(name, pick)
        plain.check()
    check_invariants(bench.engine)
    assert snapshot(bench.rebuild()) == snapshot(bench.engine.state)
    plain.pass_time(60 * SECOND)
    plain.check()
    assert sorted(plain.found) == sorted(plain.ended)
    assert lease_timers(bench) == []


@given(st.lists(st.tuples(st.sampled_from(STEPS), st.integers(0, 30)), max_size=60))
@settings(max_examples=effort(400, 150))
def test_each_lease_ends_when_a_plain_dict_says(steps: list[tuple[str, int]]) -> None:
    run([("push", 0)] * 6 + steps)


@pytest.mark.parametrize("seed", range(effort(30, 5)))
def test_so_do_hundreds(seed: int) -> None:
    dice = Random(seed)
    steps = [("push", number) for number in range(60)] + [("take", 0)] * 60
    steps += [(dice.choice(STEPS), dice.randrange(1000)) for _ in range(250)]
    run(steps)
