"""Progress: what a holder tells of a job belongs to its lease."""

import pytest
from engine.harness import ORIGIN, OWNER, Bench

from taskyard.engine.model.events import InvalidOption, NotLeaseholder
from taskyard.engine.model.job import SECOND, Job, Policy


def tell(bench: Bench, job: Job, permille: int, message: str = "", owner: int = OWNER) -> None:
    bench.engine.report_progress(job.id, owner, permille, message, ORIGIN, bench.now)


def told(job: Job) -> tuple[int, str, int] | None:
    assert job.lease is not None
    progress = job.lease.progress
    return None if progress is None else (progress.permille, progress.message, progress.at)


def test_the_last_word_counts(bench: Bench) -> None:
    job = bench.push()
    bench.take()
    assert told(job) is None
    tell(bench, job, 0, "begun")
    bench.advance_clock(SECOND)
    tell(bench, job, 1000, "näher")
    assert told(job) == (1000, "näher", bench.now)


def test_the_next_lease_knows_nothing_of_it(bench: Bench) -> None:
    job = bench.push(policy=Policy(ttr=SECOND))
    bench.take()
    tell(bench, job, 500)
    bench.advance_clock(SECOND)
    bench.take()
    assert told(job) is None


def test_it_is_there_after_a_restart(bench: Bench) -> None:
    job = bench.push(policy=Policy(ttr=60 * SECOND))
    bench.take()
    tell(bench, job, 500, "half")
    at = bench.now
    bench.restart()
    assert told(bench.engine.job(job.id)) == (500, "half", at)


def test_only_the_holder_can_tell(bench: Bench) -> None:
    job, other = bench.push(), bench.push()
    bench.take()
    for one, owner in ((job, OWNER + 1), (other, OWNER)):
        with pytest.raises(NotLeaseholder):
            tell(bench, one, 500, owner=owner)


@pytest.mark.parametrize(
    ("permille", "message"), [(-1, ""), (1001, ""), (5, "x" * 1025), (5, "é" * 513)]
)
def test_what_is_out_of_range_is_refused(bench: Bench, permille: int, message: str) -> None:
    job = bench.push()
    bench.take()
    with pytest.raises(InvalidOption):
        tell(bench, job, permille, message)
    tell(bench, job, 5, "é" * 512)
    assert told(job) == (5, "é" * 512, bench.now)
