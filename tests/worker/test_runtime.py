"""The worker runtime over a source in memory: what it takes, extends, reports and gives back."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
from support.sockets import HANG_GUARD
from support.waiting import wait_for
from worker.fake_source import FakeSource

from taskyard.client.retry import Backoff
from taskyard.client.source import Failed, Job, Released, Success, Verdict
from taskyard.worker.pools import Cancelled, RunFailure, ThreadPool
from taskyard.worker.runtime import Runtime

QUICK = Backoff(0.001, 0.01)


def settle(job: Job, outcome: bytes | RunFailure) -> Verdict:
    if isinstance(outcome, RunFailure):
        return Failed(outcome.reason.encode())
    return Success(outcome)


class Worker:
    """Runs what it is told; a payload `hold` waits until it is let go."""

    def __init__(self) -> None:
        self.begun: list[Job] = []
        self.go_on = threading.Event()

    def __call__(self, job: Job) -> bytes:
        self.begun.append(job)
        if job.payload == b"hold":
            assert self.go_on.wait(HANG_GUARD)
        if job.payload == b"fail":
            raise ValueError("why")
        return job.payload


class Rig:
    def __init__(self) -> None:
        self.source = FakeSource()
        self.worker = Worker()
        self.returned: list[bool] = []
        self.raised: list[BaseException] = []
        self._thread: threading.Thread | None = None

    def start(self, size: int = 2, **options: Any) -> Runtime[bytes]:
        settings = {"wait": 0.01, "backoff": QUICK, "decide_verdict": settle, **options}
        runtime = Runtime(self.source, ThreadPool(self.worker, size), **settings)
        self._thread = threading.Thread(target=self._run, args=(runtime,))
        self._thread.start()
        self.runtime = runtime
        return runtime

    def wait(self) -> None:
        assert self._thread is not None
        self._thread.join(HANG_GUARD)
        assert not self._thread.is_alive(), "it goes on running"

    def end(self) -> None:
        self.worker.go_on.set()
        if self._thread is not None:
            self.runtime.stop()
            self.wait()

    def _run(self, runtime: Runtime[bytes]) -> None:
        try:
            self.returned.append(runtime.run())
        except Exception as error:
            self.raised.append(error)


@pytest.fixture
def rig() -> Iterator[Rig]:
    found = Rig()
    yield found
    found.end()


def test_jobs_are_taken_run_and_reported(rig: Rig) -> None:
    rig.start()
    jobs = rig.source.push(b"a", b"b", b"fail")
    wait_for(lambda: len(rig.source.verdicts) == 3)
    verdicts = dict(rig.source.verdicts)
    assert verdicts[jobs[0]] == Success(b"a")
    assert verdicts[jobs[1]] == Success(b"b")
    failed = verdicts[jobs[2]]
    assert isinstance(failed, Failed)
    assert failed.error.endswith(b"ValueError: why\n")


def test_no_more_is_taken_than_can_run_and_be_prefetched(rig: Rig) -> None:
    rig.source.push(*[b"hold"] * 10)
    rig.start(size=2, prefetch=1)
    wait_for(lambda: len(rig.worker.begun) == 2)
    wait_for(lambda: len(rig.source.taken) == 3)
    rig.worker.go_on.set()
    wait_for(lambda: len(rig.source.verdicts) == 10)
    assert max(rig.source.asked_for) == 3


def test_a_job_that_was_run_makes_room_before_it_is_reported(rig: Rig) -> None:
    rig.start(size=1)
    rig.source.push(b"a")
    wait_for(lambda: rig.source.verdicts)
    finish, blocked = rig.source.finish_jobs, threading.Event()

    def finish_later(verdicts: Any) -> list[Job]:
        assert blocked.wait(HANG_GUARD)
        return finish(verdicts)

    rig.source.finish_jobs = finish_later  # type: ignore[method-assign]
    rig.source.push(b"b", b"c")
    wait_for(lambda: len(rig.worker.begun) == 3)
    blocked.set()
    wait_for(lambda: len(rig.source.verdicts) == 3)


def test_a_stop_finishes_what_runs_and_gives_back_what_waits(rig: Rig) -> None:
    jobs = rig.source.push(b"hold", b"a", b"b")
    runtime = rig.start(size=1, prefetch=2)
    wait_for(lambda: rig.worker.begun)  # and so the others are in line
    assert len(rig.source.taken) == 3
    runtime.stop()
    wait_for(lambda: len(rig.source.verdicts) == 2)
    assert rig.source.verdicts == [(jobs[2], Released()), (jobs[1], Released())]
    rig.source.push(b"late")
    rig.worker.go_on.set()
    rig.wait()
    assert rig.returned == [True]
    assert rig.source.verdicts[-1] == (jobs[0], Success(b"hold"))
    assert len(rig.source.taken) == 3
    assert rig.source.closed.wait(HANG_GUARD)


def test_a_stop_begins_with_nothing_while_the_source_does_not_answer(rig: Rig) -> None:
    jobs = rig.source.push(b"hold", b"a")
    take, asked, answer = rig.source.fetch_jobs, threading.Event(), threading.Event()

    def take_later(count: int, wait: float) -> list[Job]:
        if rig.source.taken:
            asked.set()
            assert answer.wait(HANG_GUARD)
        return take(count, wait)

    rig.source.fetch_jobs = take_later  # type: ignore[method-assign]
    runtime = rig.start(size=1, prefetch=2)
    wait_for(lambda: rig.worker.begun)
    assert asked.wait(HANG_GUARD)
    runtime.stop()
    wait_for(lambda: rig.source.verdicts == [(jobs[1], Released())])
    late = rig.source.push(b"b")
    answer.set()
    wait_for(lambda: rig.source.verdicts[1:] == [(late[0], Released())])


def test_a_kill_gives_back_what_runs(rig: Rig) -> None:
    jobs = rig.source.push(b"hold", b"a")
    runtime = rig.start(size=1, prefetch=1)
    wait_for(lambda: rig.worker.begun)  # and so the other is in line
    assert len(rig.source.taken) == 2
    runtime.kill()
    rig.wait()
    assert rig.returned == [False]
    # It does not wait for long until all is told.
    wait_for(lambda: rig.source.verdicts == [(jobs[1], Released()), (jobs[0], Released())])
    assert rig.source.closed.wait(HANG_GUARD)


def test_the_first_signal_stops_and_the_second_kills(rig: Rig) -> None:
    jobs = rig.source.push(b"hold")
    runtime = rig.start(size=1)
    wait_for(lambda: rig.worker.begun)
    runtime.stop_or_kill()
    runtime.stop_or_kill()
    rig.wait()
    assert rig.returned == [False]
    wait_for(lambda: rig.source.verdicts == [(jobs[0], Released())])


def test_a_lease_is_extended_while_its_job_runs(rig: Rig) -> None:
    jobs = rig.source.push(b"hold")
    rig.start(lease=0.03)
    wait_for(lambda: len(rig.source.kept) >= 3)
    assert set(rig.source.kept) == set(jobs)
    rig.worker.go_on.set()
    wait_for(lambda: rig.source.verdicts)

    def left_alone() -> bool:
        count = len(rig.source.kept)
        keeps = rig.source.keeps
        wait_for(lambda: rig.source.keeps > keeps + 2)
        return len(rig.source.kept) == count

    wait_for(left_alone)  # one more extension may have been on its way when the job ended


def test_a_short_lease_is_extended_before_the_others_are(rig: Rig) -> None:
    rig.start(lease=3600)
    wait_for(lambda: rig.source.keeps)
    jobs = rig.source.push(b"hold", lease=0.01)
    wait_for(lambda: rig.source.kept == jobs)


def test_a_lease_that_was_lost_is_left_alone(rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
    rig.source.lost = rig.source.push(b"hold")
    rig.start(lease=0.03)
    wait_for(lambda: rig.source.kept)
    keeps = rig.source.keeps
    wait_for(lambda: rig.source.keeps > keeps + 2)
    assert rig.source.kept == rig.source.lost
    assert "was lost: cancelling its run" in caplog.text


def test_a_source_that_is_away_is_asked_until_it_is_back(
    rig: Rig, caplog: pytest.LogCaptureFixture
) -> None:
    rig.source.push(b"hold", b"a")
    rig.start(size=1)
    wait_for(lambda: rig.worker.begun)
    rig.source.away.set()
    rig.worker.go_on.set()
    wait_for(lambda: rig.source.failures > 5)
    wait_for(lambda: "cannot report finished jobs" in caplog.text)  # it was not only taken from
    assert not rig.source.verdicts
    rig.source.away.clear()
    wait_for(lambda: len(rig.source.verdicts) == 2)
    assert caplog.text.count("cannot report finished jobs: it is away") == 1


def test_a_stop_waits_for_a_source_that_is_away(rig: Rig) -> None:
    rig.source.push(b"hold")
    runtime = rig.start()
    wait_for(lambda: rig.worker.begun)
    rig.source.away.set()
    runtime.stop()
    rig.worker.go_on.set()
    wait_for(lambda: rig.source.failures > 5)
    rig.source.away.clear()
    rig.wait()
    assert [verdict for _, verdict in rig.source.verdicts] == [Success(b"hold")]


def test_a_stop_gives_up_on_a_source_that_stays_away(
    rig: Rig, caplog: pytest.LogCaptureFixture
) -> None:
    rig.source.push(b"hold")
    runtime = rig.start(patience=0.05)
    wait_for(lambda: rig.worker.begun)
    rig.source.away.set()
    runtime.stop()
    rig.worker.go_on.set()
    rig.wait()
    assert "server unreachable until the stop timeout" in caplog.text


def test_an_error_of_the_source_ends_the_run_when_what_runs_is_done(rig: Rig) -> None:
    rig.source.push(b"hold")
    rig.start()
    wait_for(lambda: rig.worker.begun)
    rig.source.error = ValueError("never again")
    rig.worker.go_on.set()
    rig.wait()
    assert rig.raised == [rig.source.error]
    assert [verdict for _, verdict in rig.source.verdicts] == [Success(b"hold")]


def test_a_report_that_fails_harms_no_other(rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
    rig.source.finish_error = ValueError("not this one")
    rig.start(size=1)
    rig.source.push(b"a")
    wait_for(lambda: "these jobs will be run again" in caplog.text)
    rig.source.push(b"b")
    wait_for(lambda: [verdict for _, verdict in rig.source.verdicts] == [Success(b"b")])


def test_a_job_without_a_verdict_has_failed(rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
    def refuse(job: Job, outcome: object) -> Verdict:
        raise ValueError("no idea")

    rig.source.push(b"a")
    rig.start(decide_verdict=refuse)
    wait_for(lambda: rig.source.verdicts)
    assert rig.source.verdicts[0][1] == Failed(b"no idea")
    assert "has no verdict" in caplog.text


def test_a_burst_ends_when_there_is_nothing_to_do(rig: Rig) -> None:
    rig.source.push(*[b"a"] * 10)
    rig.start(size=2, burst=True, wait=0.0)
    rig.wait()
    assert rig.returned == [True]
    assert len(rig.source.verdicts) == 10


def test_a_burst_does_what_its_own_jobs_lead_to(rig: Rig) -> None:
    rig.source.push(b"hold")
    rig.start(size=2, burst=True, wait=0.0)
    wait_for(lambda: rig.worker.begun)
    wait_for(lambda: len(rig.source.asked_for) >= 2)
    finish = rig.source.finish_jobs

    def finish_and_push(verdicts: Any) -> list[Job]:
        if len(rig.source.verdicts) == 0:
            rig.source.push(b"after")
        return finish(verdicts)

    rig.source.finish_jobs = finish_and_push  # type: ignore[method-assign]
    rig.worker.go_on.set()
    rig.wait()
    assert [verdict for _, verdict in rig.source.verdicts] == [Success(b"hold"), Success(b"after")]


def test_many_short_jobs_are_held_ready_and_few_long_ones() -> None:
    for _ in range(5):  # again if it stood still just before the long ones came: so few were ready
        rig = Rig()
        try:
            if long_ones_given_back(rig) > 10:
                return
        finally:
            rig.end()
    pytest.fail("no long ones were held ready")


def long_ones_given_back(rig: Rig) -> int:
    # Without a pause between them, in which it would forget how fast the short ones were done.
    rig.source.push(*[b"a"] * 3000, *[b"hold"] * 3000)
    rig.start(size=2, prefetch=None)
    wait_for(lambda: len(rig.worker.begun) == 3002)
    assert max(rig.source.asked_for) > 50
    # Short ones were expected. When it turns out that they are long, the others get them back.
    wait_for(lambda: len(rig.source.taken) - len(rig.source.verdicts) == 2)
    assert len(rig.worker.begun) == 3002
    return sum(verdict == Released() for _, verdict in rig.source.verdicts)


def test_what_jobs_say_is_told_and_not_too_often(rig: Rig) -> None:
    told: list[tuple[Job, Any]] = []

    def tell(notes: Any) -> list[Job]:
        told.extend(notes)
        return []

    [job] = rig.source.push(b"hold")
    runtime = rig.start(send_progress=tell)
    wait_for(lambda: rig.worker.begun)
    began = time.monotonic()
    for number in range(1000):
        runtime.report_progress(job, number)
    wait_for(lambda: told and told[-1] == (job, 999))
    assert len(told) < 4 + 4 * (time.monotonic() - began)  # four times a second


def test_a_run_whose_lease_was_lost_is_ended(rig: Rig) -> None:
    ended = threading.Event()

    def run(job: Job) -> bytes:
        try:
            rig.source.lost = [job]  # not before it can be noticed here
            wait_for(lambda: False)
        except Cancelled:
            ended.set()
        return b""

    rig.source.push(b"a")
    rig.worker = run  # type: ignore[assignment]
    rig.start(lease=0.03)
    assert ended.wait(HANG_GUARD)
    rig.worker = Worker()


def test_a_note_about_a_job_whose_lease_is_over_ends_its_run(rig: Rig) -> None:
    ended = threading.Event()

    def run(job: Job) -> bytes:
        try:
            runtime.report_progress(job, "half")
            wait_for(lambda: False)
        except Cancelled:
            ended.set()
        return b""

    rig.worker = run  # type: ignore[assignment]
    runtime = rig.start(lease=3600.0, send_progress=lambda notes: [job for job, _ in notes])
    jobs = rig.source.push(b"a")
    assert ended.wait(HANG_GUARD)
    wait_for(lambda: rig.source.verdicts)
    assert jobs[0].lost
    rig.worker = Worker()


def test_what_a_job_said_last_before_it_ended_is_no_lost_lease(
    rig: Rig, caplog: pytest.LogCaptureFixture
) -> None:
    asked = threading.Event()

    def run(job: Job) -> bytes:
        runtime.report_progress(job, "all but done")
        return b""

    def tell(notes: Any) -> list[Job]:
        wait_for(lambda: rig.source.verdicts)
        asked.set()
        return [job for job, _ in notes]

    rig.worker = run  # type: ignore[assignment]
    runtime = rig.start(send_progress=tell)
    [job] = rig.source.push(b"a")
    assert asked.wait(HANG_GUARD)
    rig.worker = Worker()
    rig.end()
    assert "was lost" not in caplog.text
    assert not job.lost
