"""Heartbeats: a lease lasts for as long as its holder lives, and one that is lost is known."""

from __future__ import annotations

import threading
from datetime import timedelta

import pytest
from client.both import open_client
from support.sockets import HANG_GUARD
from support.waiting import wait_for

import taskyard
from taskyard import Client, Job
from taskyard.client import leases as keeper
from taskyard.client.leases import LeaseTable

# Seconds. Who stands still for longer than a lease has rightly lost it: then a longer one is tried.
LEASES = (0.5, 3.0, 15.0)


def test_a_lease_is_extended_until_the_job_is_ended(client: Client, url: str, queue: str) -> None:
    with Client(url) as other:
        assert any(is_kept(client, other, queue, ttr) for ttr in LEASES)


def is_kept(client: Client, other: Client, queue: str, ttr: float) -> bool:
    """Whether a lease of this length is there until it has lasted for four times as long."""
    client.push(queue, ttr=ttr)
    [job] = client.fetch(queue)

    def outlived() -> bool:
        lease = other.inspect(job).lease
        if lease is None:
            return True
        assert lease.deadline is not None
        return lease.deadline.timestamp() > job.deadline + 3 * ttr

    wait_for(outlived)
    taken = other.fetch(queue)
    try:
        client.ack(job)
    except taskyard.StaleLease:
        other.cancel(job)
        return False
    assert taken == []
    assert not job.lost
    return True


def test_without_heartbeats_a_lease_ends(kind: str, url: str, queue: str) -> None:
    with open_client(kind, url, heartbeats=False) as client:
        client.push(queue)
        [job] = client.fetch(queue, ttr=timedelta(milliseconds=50))
        [again] = client.fetch(queue, wait=HANG_GUARD)
        assert (again.id, again.attempt) == (job.id, 2)
        with pytest.raises(taskyard.StaleLease):
            client.ack(job)
        client.ack(again)


def test_a_lease_that_somebody_ended_is_known_to_be_lost(kind: str, url: str, queue: str) -> None:
    assert any(is_lost_when_ended(kind, url, queue, ttr) for ttr in LEASES)


def is_lost_when_ended(kind: str, url: str, queue: str, ttr: float) -> bool:
    """False if its time was over before anybody could end it."""
    lost: list[Job] = []
    with open_client(kind, url, on_lost=lost.append) as client, Client(url) as other:
        client.push(queue)
        [job] = client.fetch(queue, ttr=ttr)
        was_lost = job.lost
        other.cancel(job)
        wait_for(lambda: bool(lost))
        assert lost == [job]
        assert job.lost
    return not was_lost


def test_the_end_of_a_job_is_no_lost_lease(kind: str, url: str, queue: str) -> None:
    lost: list[Job] = []
    with open_client(kind, url, on_lost=lost.append) as client:
        for _ in range(20):  # the first extension is on its way meanwhile
            client.push(queue)
            client.ack(client.fetch(queue)[0])
    assert lost == []


def test_what_on_lost_raises_harms_nobody(kind: str, url: str, queue: str) -> None:
    called = threading.Event()

    def fail(job: Job) -> None:
        called.set()
        raise LookupError

    with open_client(kind, url, on_lost=fail) as client:
        client.push_many(queue, [1, 2])
        first, second = client.fetch(queue, count=2, ttr=0.5)
        client.cancel(first)
        assert called.wait(HANG_GUARD)
        client.cancel(second)
        wait_for(lambda: second.lost)


def test_an_extension_that_was_asked_for_is_kept(client: Client, queue: str) -> None:
    client.push(queue)
    [job] = client.fetch(queue, ttr=60)
    deadline = client.extend(job, 3600)
    assert deadline > job.deadline + 3000

    def is_kept() -> bool:  # the first heartbeat may have been on its way
        lease = client.inspect(job).lease
        assert lease is not None
        assert lease.deadline is not None
        return lease.deadline.timestamp() >= deadline - 0.01

    wait_for(is_kept)


def test_there_is_a_thread_only_while_something_is_held(
    url: str, queue: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keeper, "_IDLE_THREAD_S", 0.01)

    def threads() -> int:
        return sum(thread.name == "taskyard-leases" for thread in threading.enumerate())

    wait_for(lambda: threads() == 0)
    with Client(url) as client:
        client.push_many(queue, [1, 2])
        assert threads() == 0
        jobs = client.fetch(queue, count=2)
        assert threads() == 1
        client.ack_many(jobs)
        wait_for(lambda: threads() == 0)
        client.push(queue)
        client.fetch(queue)
        assert threads() == 1
    wait_for(lambda: threads() == 0)


def test_those_beside_one_that_is_refused_are_not_extended_for_ever(
    url: str, queue: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def threads() -> int:
        return sum(thread.name == "taskyard-leases" for thread in threading.enumerate())

    monkeypatch.setattr(keeper, "_IDLE_THREAD_S", 0.05)
    wait_for(lambda: threads() == 0)
    with Client(url) as client:
        client.push_many(queue, [b"a", b"b"])
        first, second = client.fetch(queue, count=2)
        with pytest.raises(taskyard.Refused, match="invalid ref"):
            client.ack_many([first, Job("no ref", queue, b""), second])
        wait_for(lambda: threads() == 0)
        assert client.queue(queue).counts.leased == 0


# Clocks: the server's is `skew` seconds before ours


def taken(skew: float, now: float, ttr: float, ref: str = "1-1-1") -> Job:
    """A job that was leased at this moment; our clock says 1,000,000 at 0."""
    deadline = 1_000_000 + skew + now + ttr
    lease = max(deadline - (1_000_000 + now), 0.001)
    return Job(ref, "q", b"", lease=lease, deadline=deadline)


@pytest.mark.parametrize("skew", [-3600.0, -1.0, 0.0, 1.0, 3600.0])
def test_a_clock_that_is_wrong_ends_no_lease(skew: float) -> None:
    book = LeaseTable()
    book.add([taken(skew, 0.0, 10.0)], None, 0.0)
    now, ends = 0.0, 10.0  # the lease, as the server has it
    for _ in range(20):
        due = book.next_due()
        assert due is not None
        now = max(now, due) + 0.01  # it takes its time to get there
        assert now < ends
        for held, seconds in book.collect_due(now):
            ends = now + seconds
            assert book.on_extended(held, seconds, 1_000_000 + skew + ends, now) is None
    assert now > 40
    assert 8 <= ends - now <= 12


def test_once_the_clock_is_known_nothing_is_extended_too_early() -> None:
    book = LeaseTable()
    book.on_duration_set(taken(500.0, 0.0, 9.0), 9.0, 1_000_000 + 500 + 9, 0.0)
    book.add([taken(500.0, 0.0, 9.0)], None, 0.0)
    assert book.next_due() == pytest.approx(3.0)
    assert book.collect_due(2.9) == []
    assert book.start_finish(taken(500.0, 0.0, 9.0)) == pytest.approx(9.0)


def test_a_lease_that_is_being_ended_is_not_lost() -> None:
    book = LeaseTable()
    job = taken(0.0, 0.0, 9.0)
    book.add([job], None, 0.0)
    [(held, seconds)] = book.collect_due(0.0)
    book.start_finish(job)
    assert book.on_extended(held, seconds, taskyard.StaleLease("STALE"), 0.1) is None
    book.abort_finish(job)  # the server could not be told, so it goes on
    assert not job.lost
    assert book.on_extended(held, seconds, taskyard.StaleLease("STALE"), 0.2) is job
    assert job.lost


def test_a_server_that_cannot_be_reached_is_tried_again_soon() -> None:
    book = LeaseTable()
    book.add([taken(0.0, 0.0, 60.0)], None, 0.0)
    [(held, _)] = book.collect_due(0.0)
    book.on_unreachable(held, 0.0)
    assert book.next_due() == pytest.approx(1.0)


@pytest.mark.parametrize("first", ["ours", "the holder's"])
def test_an_extension_that_crosses_one_of_the_holder_is_put_right(first: str) -> None:
    """In whatever order the answers come: the server may have had the other one last."""
    book = LeaseTable()
    job = taken(0.0, 0.0, 2.0)
    book.add([job], None, 0.0)
    [(held, seconds)] = book.collect_due(0.0)
    book.set_duration(job, 3600.0)
    if first == "ours":
        book.on_extended(held, seconds, 1_000_000 + 0.2 + seconds, 0.2)
    book.on_duration_set(job, 3600.0, 1_000_000 + 3600 + 0.2, 0.2)
    if first != "ours":
        book.on_extended(held, seconds, 1_000_000 + 0.2 + seconds, 0.2)
    assert (held, 3600.0) in book.collect_due(0.2)


def test_a_lease_without_end_is_left_alone() -> None:
    book = LeaseTable()
    book.add([Job("1-1-1", "q", b"")], None, 0.0)
    assert book.next_due() is None
