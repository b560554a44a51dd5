"""Servers that go away in the middle of everything: nothing is lost, nothing is done twice."""

from __future__ import annotations

import random
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from client.both import open_client
from client.scripts import answering, hanging_up
from support.process import WarmServer
from support.proxy import Proxy
from support.sockets import HANG_GUARD
from support.waiting import wait_for

import taskyard
from taskyard import Client
from taskyard.client.retry import Backoff


@pytest.fixture
def proxy(server: WarmServer) -> Iterator[Proxy]:
    with Proxy(lambda: server.address("resp")) as between:
        yield between


@pytest.fixture
def shaky(kind: str, proxy: Proxy) -> Iterator[Client]:
    """A client behind the proxy."""
    with open_client(kind, proxy.url) as found:
        yield found


def cutting(generator: random.Random, most: int, times: int) -> Callable[[], int | None]:
    """Cuts at random places, so many times; then never again."""
    left = [times]

    def cut() -> int | None:
        left[0] -= 1
        return generator.randint(1, most) if left[0] >= 0 else None

    return cut


def payloads_of(client: Client, queue: str) -> dict[str, bytes]:
    """By uid; takes all jobs of the queue."""
    found: dict[str, bytes] = {}
    while jobs := client.fetch(queue, count=1000):
        for job in jobs:
            assert job.uid not in found
            found[job.uid] = job.payload
        client.ack_many(jobs)
    return found


@pytest.mark.parametrize("seed", range(3))
def test_every_push_exists_once_however_often_connections_are_cut(
    shaky: Client, url: str, proxy: Proxy, queue: str, seed: int
) -> None:
    generator = random.Random(seed)
    proxy.to_server = cutting(generator, 20_000, 15)
    proxy.to_client = cutting(generator, 2_000, 15)
    payloads = [b"%d" % number * generator.randint(1, 50) for number in range(1500)]
    pushed = shaky.push_many(queue, payloads)
    proxy.to_server = cutting(generator, 400, 10)
    proxy.to_client = cutting(generator, 40, 10)
    for number in range(30):
        payloads.append(b"single %d" % number)
        pushed.append(shaky.push(queue, payloads[-1]))
    assert proxy.cuts > 10
    assert all(one.new for one in pushed)
    with Client(url) as client:
        expected = {one.uid: payload for one, payload in zip(pushed, payloads, strict=True)}
        assert payloads_of(client, queue) == expected


def test_a_push_whose_answer_is_lost_is_pushed_once(
    shaky: Client, proxy: Proxy, queue: str
) -> None:
    proxy.to_client = cutting(random.Random(1), 1, 1)
    pushed = shaky.push(queue, 1)
    assert (proxy.cuts, pushed.new) == (1, True)
    [job] = shaky.fetch(queue, count=2)
    assert (job.id, job.uid) == (pushed.id, pushed.uid)


def test_jobs_pushed_together_are_pushed_once(shaky: Client, proxy: Proxy, queue: str) -> None:
    proxy.to_client = cutting(random.Random(1), 1, 1)
    pushed = shaky.push_all([taskyard.NewJob(queue, n) for n in range(3)])
    assert proxy.cuts == 1
    assert [job.id for job in shaky.fetch(queue, count=9)] == [one.id for one in pushed]


@pytest.mark.parametrize("end", ["ack", "nack", "fail", "give_back", "ack_many"])
def test_an_end_whose_answer_is_lost_is_no_lost_lease(
    kind: str, proxy: Proxy, queue: str, end: str
) -> None:
    with open_client(kind, proxy.url) as shaky:
        shaky.push(queue, retries=1)
        [job] = shaky.fetch(queue)
        _wait_for_heartbeat(shaky)
        shaky.extend(job, 60)
        _cut_all(proxy)
        given = getattr(shaky, end)([job] if end == "ack_many" else job)
        assert proxy.cuts == 1
        # Ready: the cut came when the server had greeted, and had not heard of the nack yet.
        assert given in (None, "unknown", []) or (end, given) == ("nack", "ready")
        assert not job.lost
        assert shaky.queue(queue).counts.leased == 0


def _wait_for_heartbeat(client: Client) -> None:
    """The first one, which comes at once: else it might be the one whose answer is cut. The next
    ones come when a third of a long lease is over.
    """
    keeper: Any = client._lease_keeper
    wait_for(lambda: keeper._leases._clock_offset is not None)


def _cut_all(proxy: Proxy) -> None:
    """End the connections that there are, and cut the first answer of the next one."""
    proxy.to_client = cutting(random.Random(1), 1, 1)
    proxy.hang_up()


def test_a_fetch_goes_on_waiting_when_its_connection_is_lost(
    shaky: Client, proxy: Proxy, url: str, queue: str
) -> None:
    with Client(url) as other:
        other.configure(queue, replace=True)
        found: list[taskyard.Job] = []
        fetching = threading.Thread(
            target=lambda: found.extend(shaky.fetch(queue, wait=HANG_GUARD))
        )
        fetching.start()
        wait_for(lambda: other.queue(queue).waiting == 1)
        before = proxy.connections
        proxy.hang_up()
        wait_for(lambda: proxy.connections > before)
        wait_for(lambda: other.queue(queue).waiting == 1)
        other.push(queue, b"at last")
        fetching.join(HANG_GUARD)
    assert [job.payload for job in found] == [b"at last"]


def test_a_server_that_is_killed_in_the_middle_of_pushes(kind: str, tmp_path: Path) -> None:
    with (
        WarmServer(tmp_path) as server,
        Proxy(lambda: server.address("resp")) as proxy,
        open_client(kind, proxy.url) as client,
        open_client(kind, proxy.url) as other,
    ):
        restarting = threading.Thread(target=server.restart)

        def payloads() -> Iterator[bytes]:
            for number in range(4000):
                if number == 2500:
                    server.kill()
                    restarting.start()
                yield b"%d" % number

        singles: list[taskyard.Pushed] = []
        done = threading.Event()

        def push_singles() -> None:
            while not done.is_set():
                singles.append(other.push("q", b"single %d" % len(singles)))

        pushing = threading.Thread(target=push_singles)
        pushing.start()
        try:
            wait_for(lambda: bool(singles))
            pushed = client.push_many("q", payloads())
        finally:
            done.set()
            pushing.join(HANG_GUARD)
            restarting.join(HANG_GUARD)
        expected = {one.uid: b"%d" % n for n, one in enumerate(pushed)}
        expected |= {one.uid: b"single %d" % n for n, one in enumerate(singles)}
        assert len(expected) == 4000 + len(singles)
        assert payloads_of(client, "q") == expected


def test_a_server_that_stops_cuts_no_fetch_short(kind: str, tmp_path: Path) -> None:
    with (
        WarmServer(tmp_path) as server,
        Proxy(lambda: server.address("resp")) as proxy,
        open_client(kind, proxy.url) as client,
        Client(proxy.url) as other,
    ):
        other.configure("q", replace=True)
        found: list[taskyard.Job] = []
        fetching = threading.Thread(target=lambda: found.extend(client.fetch("q", wait=HANG_GUARD)))
        fetching.start()
        wait_for(lambda: other.queue("q").waiting == 1)
        assert server.stop() == 0
        server.restart()
        other.push("q", b"after")
        fetching.join(HANG_GUARD)
        assert [job.payload for job in found] == [b"after"]


# Deadlines


@pytest.fixture
def nobody() -> Iterator[str]:
    """Nobody listens there, and nobody else can."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield f"taskyard://127.0.0.1:{taken.getsockname()[1]}"


@pytest.fixture
def silent() -> Iterator[str]:
    """Somebody who takes connections, and says nothing."""
    with socket.create_server(("127.0.0.1", 0), backlog=50) as listener:
        yield f"taskyard://127.0.0.1:{listener.getsockname()[1]}"


def test_a_server_that_stays_away_is_waited_for_no_longer_than_told(
    kind: str, nobody: str, queue: str
) -> None:
    # It does not begin with a pause that is longer than its patience: so pauses are short.
    with open_client(kind, nobody, patience=0.05, backoff=Backoff(0.001, 0.01)) as client:
        began = time.monotonic()
        with pytest.raises(taskyard.Unavailable, match="cannot be reached"):
            client.push(queue)
        assert time.monotonic() - began >= 0.02
        with pytest.raises(taskyard.Incomplete, match="only 0 jobs") as caught:
            client.push_many(queue, [1, 2])
        assert isinstance(caught.value.__cause__, taskyard.Unavailable)
        assert caught.value.outcomes == []


@pytest.mark.parametrize("how", ["push", "fetch", "result", "queues", "push_many"])
def test_an_answer_is_waited_for_no_longer_than_told(
    kind: str, silent: str, queue: str, how: str
) -> None:
    with open_client(kind, silent, timeout=0.2, patience=0.3) as client:
        calls: dict[str, Callable[[], object]] = {
            "push": lambda: client.push(queue),
            "fetch": lambda: client.fetch(queue, wait=0.02),
            "result": lambda: client.result(1, wait=0.02),
            "queues": client.queues,
            "push_many": lambda: client.push_many(queue, [1, 2]),
        }
        while True:
            with pytest.raises(taskyard.ClientError) as caught:
                calls[how]()
            # An event loop that stands still while it connects takes that for too slow.
            if "cannot be reached" not in str(caught.value):
                break
        assert "went away" in str(caught.value)
        if how == "push_many":
            assert isinstance(caught.value, taskyard.Incomplete)
            assert caught.value.outcomes == [None, None]


def test_the_patience_and_timeout_of_a_url(kind: str, nobody: str, silent: str) -> None:
    with (
        open_client(kind, f"{nobody}?patience=0", patience=None) as client,
        pytest.raises(taskyard.Unavailable),
    ):
        client.ping()
    with (
        open_client(kind, f"{silent}?timeout=0.01&patience=0", patience=None) as client,
        pytest.raises(taskyard.Unavailable),
    ):
        client.ping()


def test_a_client_that_is_closed(kind: str, url: str, queue: str) -> None:
    client = open_client(kind, url)
    client.push(queue)
    client.close()
    if kind == "blocking":  # the loop of the other is gone
        for call in (client.ping, client.queues, lambda: client.push_many(queue, [1])):
            with pytest.raises((taskyard.Closed, taskyard.Incomplete)):
                call()
        client.close()


def test_a_server_that_cannot_do_it_now_is_asked_again(kind: str) -> None:
    oom = b"-OOM there is no room on the disk\r\n"
    answers = [oom, b":7\r\n", oom, b":8\r\n", b":9\r\n"]
    with answering(answers) as script, open_client(kind, script.url) as client:
        assert client.push("q").id == 7
        assert [one.id for one in client.push_many("q", [1, 2])] == [9, 8]
    with (
        answering([oom]) as script,
        open_client(kind, script.url, patience=0) as client,
        pytest.raises(taskyard.Unavailable, match="no room on the disk"),
    ):
        client.push("q")


def test_a_take_is_not_asked_for_again_while_the_first_may_still_be_answered(kind: str) -> None:
    with hanging_up(None) as script:
        with (
            open_client(kind, script.url, timeout=0.3) as client,
            pytest.raises(taskyard.Unavailable, match="went away"),
        ):
            client.fetch("q")
        assert script.asked() == [b"JOB.TAKE"]


def test_what_nobody_knows_to_be_harmless_is_not_repeated(kind: str) -> None:
    with hanging_up(b"API") as script:
        with (
            open_client(kind, script.url) as client,
            pytest.raises(taskyard.Unavailable, match="went away"),
        ):
            client.replay("q")
        assert script.connections == 1
        assert script.asked() == [b"API"]


def test_an_answer_that_nobody_understands(kind: str) -> None:
    answers = [b"+what\r\n", b"+what\r\n", b":1\r\n", b"+what\r\n"]
    with answering(answers) as script, open_client(kind, script.url) as client:
        calls: list[Callable[[], object]] = [
            lambda: client.push("q"),
            lambda: client.fetch("q"),
            client.server,
            lambda: client.push_many("q", [1]),
        ]
        for call in calls:
            with pytest.raises(taskyard.ClientError, match="unknown form"):
                call()


def test_a_lease_that_several_could_not_be_ended_with_is_known_to_be_lost(
    kind: str, url: str, proxy: Proxy, queue: str
) -> None:
    lost: list[taskyard.Job] = []
    with (
        open_client(kind, proxy.url, patience=0.0, on_lost=lost.append) as shaky,
        Client(url) as other,
    ):
        shaky.push(queue)
        [job] = shaky.fetch(queue, ttr=1.0)
        proxy.to_server = lambda: 1
        proxy.hang_up()
        with pytest.raises(taskyard.Unavailable):
            shaky.ack_many([job])
        other.cancel(job)
        proxy.to_server = lambda: None
        wait_for(lambda: lost == [job])
        assert job.lost
