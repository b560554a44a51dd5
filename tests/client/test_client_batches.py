"""Numbered batches with a client of either kind."""

from __future__ import annotations

import json
import urllib.request
from concurrent.futures import ThreadPoolExecutor

import pytest
from support.process import WarmServer
from support.waiting import wait_for

import taskyard
from taskyard import Client


def test_a_batch_from_its_lease_to_its_end(client: Client, queue: str) -> None:
    client.push_many(queue, [b"%d" % number for number in range(1500)])
    assert client.lease_batch(queue, 1, 1200, [queue]) == (1, 1200)
    assert client.lease_batch(queue, 1, 5, [queue]) == (1, 1200)
    jobs = client.read_batch(queue, 1, 100, 2000)
    assert [job.payload for job in jobs] == [b"%d" % number for number in range(100, 1200)]
    assert (jobs[0].queue, jobs[0].attempt, jobs[0].lease) == (queue, 1, 0.0)
    client.ack(jobs[0], "result")
    client.nack(jobs[1], "oops")
    assert len(client.read_batch(queue, 1, 100, 3)) == 1
    client.ack_batch(queue, 1)
    client.ack_batch(queue, 1)
    assert client.lease_batch(queue, 2, 1000, [queue], ttr=60)[0] == 2
    [found] = [consumer for consumer in client.consumers() if consumer.name == queue]
    assert (found.batch, found.open, found.queues) == (2, True, [queue])
    assert found.deadline is not None
    client.drop_consumer(queue)
    assert queue not in [consumer.name for consumer in client.consumers()]
    with pytest.raises(taskyard.StaleBatch):
        client.read_batch(queue, 2, 0, 5)


def test_there_may_be_no_jobs(client: Client, queue: str) -> None:
    assert client.lease_batch(queue, 1, 10, [queue]) == (0, 0)
    assert client.read_batch(queue, 1, 0, 0) == []
    client.ack_batch(queue, 0)
    with pytest.raises(taskyard.StaleBatch):
        client.ack_batch(queue, 1)


def test_a_client_that_claims_a_consumer_has_it_alone(url: str, queue: str) -> None:
    with taskyard.Client(url) as plain, taskyard.Client(url, claims=["else", queue]) as holder:
        holder.push_many(queue, [b"x"] * 5)
        assert holder.lease_batch(queue, 1, 2, [queue]) == (1, 2)
        with pytest.raises(taskyard.Claimed, match=holder.holder):
            plain.lease_batch(queue, 1, 2, [queue])
        with (
            taskyard.Client(url, claims=[queue]) as second,
            pytest.raises(taskyard.Claimed, match="stop that one"),
        ):
            second.ping()
        with pytest.raises(taskyard.Claimed):
            plain.ack_batch(queue, 1)
        plain.ack_batch(queue, 1, holder.holder)
        holder.close()
        with taskyard.Client(url, claims=[queue]) as third:
            wait_for(lambda: can_call(third))
            assert third.lease_batch(queue, 2, 2, [queue]) == (2, 2)


def can_call(client: Client) -> bool:
    try:
        client.ping()
    except taskyard.Claimed:
        return False
    return True


def test_all_connections_of_a_client_share_its_claims(url: str, queue: str) -> None:
    """Of which some wait for jobs, and others do the rest."""
    with taskyard.Client(url, claims=[queue]) as holder, ThreadPoolExecutor() as pool:
        holder.push(queue)
        holder.ack_many(holder.fetch(queue))
        waiting = [pool.submit(holder.fetch, queue, wait=60) for _ in range(3)]
        wait_for(lambda: holder.queue(queue).waiting == 3)
        holder.push_many(queue, [b"x"] * 3)
        assert all(one.result() for one in waiting)


def test_what_makes_no_sense_is_not_sent(client: Client, queue: str) -> None:
    for queues in ("", queue):  # a text is a sequence of texts, but not of names
        with pytest.raises(ValueError, match="names of queues"):
            client.lease_batch(queue, 1, 10, queues)
    with pytest.raises(ValueError, match="names of queues"):
        client.lease_batch(queue, 1, 10, [])
    with pytest.raises(ValueError, match="limit"):
        client.lease_batch(queue, 1, 0, [queue])
    with pytest.raises(ValueError, match="negative"):
        client.read_batch(queue, 1, -1, 5)


def test_readers_are_listed(client: Client, queue: str, server: WarmServer) -> None:
    host, port = server.address("http")
    request = urllib.request.Request(
        f"http://{host}:{port}/api/v1/readers/{queue}",
        json.dumps({"next_seq": None, "lease": 60}).encode(),
        {"Content-Type": "application/json"},
        method="PUT",
    )
    with urllib.request.urlopen(request) as answer:
        assert answer.status == 201
        first = json.load(answer)["next_seq"]
    [reader] = [each for each in client.readers() if each.name == queue]
    assert (reader.next_seq, reader.missed) == (first, 0)
    assert reader.behind > 0
