"""Limits, drains and schedules through a client of either kind, on a real server."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from client.both import open_client
from support.process import WarmServer

import taskyard
from taskyard import Client, NewJob, Rate


def test_limits_are_settings_of_a_queue(client: Client, queue: str) -> None:
    made = client.configure(
        queue,
        replace=True,
        ttr=2.5,
        concurrency=4,
        rate=Rate(100, 60),
        key_concurrency=1,
        key_rate=Rate(3),
        idle_expiry=3600,
    ).settings
    assert (made.ttr, made.concurrency, made.rate) == (2.5, 4, Rate(100, 60.0))
    assert (made.key_concurrency, made.key_rate) == (1, Rate(3, 1.0))
    assert (made.idle_expiry, made.draining) == (3600, False)
    changed = client.configure(queue, rate=None, concurrency=None)
    assert (changed.settings.rate, changed.settings.concurrency) == (None, None)
    assert changed.effective.ttr == 2.5


def test_a_queue_hands_out_as_many_as_its_concurrency_allows(client: Client, queue: str) -> None:
    client.configure(queue, replace=True, concurrency=2)
    client.push_many(queue, [1, 2, 3])
    first, second = client.fetch(queue, count=3)
    assert client.fetch(queue) == []
    client.ack(first)
    assert [job.json() for job in client.fetch(queue, count=3)] == [3]
    client.ack(second)


def test_a_rate_lets_so_many_start(client: Client, queue: str) -> None:
    client.configure(queue, replace=True, rate=Rate(2, 3600))
    client.push_many(queue, [1, 2, 3])
    assert len(client.fetch(queue, count=3)) == 2
    opens_at = client.queue(queue).opens_at
    assert opens_at is not None
    assert opens_at > datetime.now(UTC) + timedelta(minutes=25)


def test_a_limit_key_holds_back_its_own_jobs_only(client: Client, queue: str) -> None:
    client.configure(queue, replace=True, key_concurrency=1)
    pushed = [
        client.push(queue, 1, limit_key="ada"),
        *client.push_many(queue, [2], limit_key="ada"),
        *client.push_all([NewJob(queue, 3, limit_key="bob")]),
    ]
    assert client.inspect(pushed[0]).limit_key == "ada"
    taken = client.fetch(queue, count=3)
    assert [job.json() for job in taken] == [1, 3]
    [held] = client.jobs(queue, "limited")
    assert (held.id, held.state, held.limit_key) == (pushed[1].id, "limited", "ada")
    assert client.queue(queue).counts.limited == 1
    client.ack(taken[0])
    [job] = client.fetch(queue)
    assert job.id == pushed[1].id
    client.push(queue, 4, limit_key="ada")
    assert client.fetch(queue) == []
    assert client.purge(queue) == 1


def test_a_drained_queue_refuses_pushes(client: Client, queue: str) -> None:
    client.push(queue, 1)
    client.configure(queue, draining=True)
    with pytest.raises(taskyard.Draining, match=f"queue {queue} is being drained"):
        client.push(queue, 2)
    with pytest.raises(taskyard.Draining):
        client.push_all([NewJob(queue, 2)])
    with pytest.raises(taskyard.Incomplete) as caught:
        client.push_many(queue, [2, 3])
    assert isinstance(caught.value.__cause__, taskyard.Draining)
    with pytest.raises(taskyard.Draining) as told:
        client.call_api("POST", f"/api/v1/queues/{queue}/jobs", {"payload": 2})
    assert told.value.code == "draining"
    assert [job.json() for job in client.fetch(queue, count=5)] == [1]
    client.configure(queue, draining=False)
    assert client.push(queue, 2).new


@pytest.fixture
def alone(tmp_path: Path, kind: str) -> Iterator[Client]:
    """With a server of its own, since it is drained."""
    with (
        WarmServer(tmp_path) as server,
        open_client(kind, "taskyard://{}:{}".format(*server.address("resp"))) as client,
    ):
        yield client


def test_a_drained_server_refuses_pushes(alone: Client) -> None:
    alone.push("mail", 1)
    alone.fetch("mail")
    alone.call_api("POST", "/api/v1/server/drain")
    with pytest.raises(taskyard.Draining, match="the server is being drained"):
        alone.push("mail", 2)
    info = alone.server()
    assert (info.accepting, info.draining, info.unfinished, info.leased) == (False, True, 1, 1)
    alone.call_api("POST", "/api/v1/server/undrain")
    assert alone.push("mail", 2).new
    assert alone.server().accepting


# Schedules


def test_a_schedule_from_its_beginning_to_its_end(client: Client, queue: str) -> None:
    name = f"{queue}/nightly\u00e4"
    with pytest.raises(taskyard.ScheduleNotFound):
        client.schedule(name)
    made = client.set_schedule(
        name,
        queue,
        cron="0 3 * * *",
        timezone="Europe/Berlin",
        missed="skip",
        overlap="skip",
        payload={"all": True},
        job_name="tidy",
        priority=3,
        ttr=timedelta(minutes=1),
        ttl=3600,
        retries=2,
        attempts=5,
        dead_queue=f"{queue}-dead",
        unique="tidy",
        limit_key="ada",
    )
    assert (made.name, made.queue, made.job_name, made.priority) == (name, queue, "tidy", 3)
    assert (made.cron, made.every, made.timezone) == ("0 3 * * *", None, "Europe/Berlin")
    assert (made.missed, made.overlap, made.paused) == ("skip", "skip", False)
    assert (made.ttr, made.ttl, made.max_fails, made.max_attempts) == (60, 3600, 3, 5)
    assert (made.dead_queue, made.key, made.limit_key) == (f"{queue}-dead", "tidy", "ada")
    assert made.payload is not None
    assert made.payload.json() == {"all": True}
    assert made.next_at is not None
    assert made.next_at > datetime.now(UTC)
    run = client.run_schedule(name)
    [job] = client.fetch(queue)
    assert (job.id, job.name, job.json()) == (run.id, "tidy", {"all": True})
    assert client.inspect(run).limit_key == "ada"
    after = client.schedule(name)
    assert (after.runs, after.last_job) == (1, run.id)
    paused = client.pause_schedule(name)
    assert (paused.paused, paused.next_at) == (True, None)
    assert not client.resume_schedule(name).paused
    assert [one.name for one in client.schedules() if one.queue == queue] == [name]
    client.delete_schedule(name)
    assert name not in [one.name for one in client.schedules()]


def test_a_schedule_pushes_by_itself(client: Client, queue: str) -> None:
    client.set_schedule(queue, queue, every=1, payload=b"\xff")
    [job] = client.fetch(queue, wait=60)
    assert job.payload == b"\xff"
    client.delete_schedule(queue)


def test_a_schedule_that_cannot_be(client: Client, queue: str) -> None:
    with pytest.raises(taskyard.Refused, match="cron"):
        client.set_schedule(queue, queue, cron="never")
    with pytest.raises(taskyard.Refused, match="cron"):
        client.set_schedule(queue, queue)
    for act in (client.run_schedule, client.pause_schedule, client.delete_schedule):
        with pytest.raises(taskyard.ScheduleNotFound):
            act(queue)
