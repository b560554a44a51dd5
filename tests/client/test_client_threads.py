"""Clients that are shared: by threads, by tasks, by the child of a fork."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import threading
import warnings
from concurrent.futures import ThreadPoolExecutor

import pytest
import uvloop
from client.both import open_client
from client.scripts import answering
from support.process import WarmServer
from support.proxy import Proxy
from support.sockets import HANG_GUARD
from support.waiting import wait_for

import taskyard
from taskyard import AsyncClient, Client
from taskyard.client import aio
from taskyard.client.sync import ConnectionPool
from taskyard.client.url import Address


def wait_until_awaited(client: Client, queue: str) -> None:
    wait_for(lambda: client.queue(queue).waiting)


def test_threads_share_connections(server: WarmServer, kind: str, queue: str) -> None:
    with (
        Proxy(lambda: server.address("resp")) as proxy,
        open_client(kind, proxy.url, connections=2) as client,
        ThreadPoolExecutor(8) as threads,
    ):
        pushed = list(threads.map(lambda n: client.push(queue, n), range(200)))
        assert proxy.connections <= 2
        assert len({one.id for one in pushed}) == 200
        jobs = client.fetch(queue, count=1000)
        assert sorted(job.json() for job in jobs) == list(range(200))
        list(threads.map(client.ack, jobs))
        assert client.queue(queue).counts.leased == 0


def test_a_fetch_that_waits_holds_up_nobody(kind: str, url: str, queue: str) -> None:
    with open_client(kind, url, connections=1) as client, ThreadPoolExecutor(2) as threads:
        client.configure(queue, replace=True)
        waiting = threads.submit(client.fetch, queue, wait=HANG_GUARD)
        wait_until_awaited(client, queue)
        pushed = client.push(queue)
        assert [job.id for job in waiting.result(HANG_GUARD)] == [pushed.id]


def test_a_close_ends_a_fetch_that_waits(url: str, queue: str) -> None:
    with ThreadPoolExecutor(1) as threads, Client(url) as other:
        other.configure(queue, replace=True)
        client = Client(url)
        waiting = threads.submit(client.fetch, queue, wait=HANG_GUARD)
        wait_until_awaited(other, queue)
        client.close()
        with pytest.raises(taskyard.Closed):
            waiting.result(HANG_GUARD)


def test_who_waits_for_the_server_waits_for_no_other_thread(url: str) -> None:
    pool = ConnectionPool(Address.parse(url), HANG_GUARD, 1)
    with ThreadPoolExecutor(2) as threads, pool.connection():

        def borrow(extra: bool) -> object:
            with pool.connection(extra) as connection:
                return connection.call("PING")

        assert threads.submit(borrow, True).result(HANG_GUARD) == b"PONG"
        counted = threads.submit(borrow, False)
        assert threads.submit(borrow, True).result(HANG_GUARD) == b"PONG"
        assert not counted.done()
        pool.close()
        with pytest.raises(taskyard.Closed):
            counted.result(HANG_GUARD)


def test_a_client_needs_a_connection(url: str) -> None:
    with pytest.raises(ValueError, match="at least one"):
        Client(url, connections=0)


# Forks


def fork() -> int:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if child == 0:
        signal.alarm(int(HANG_GUARD))
    return child


def test_the_child_of_a_fork_has_connections_and_uids_of_its_own(url: str, queue: str) -> None:
    with Client(url) as client:
        client.push(queue, 0)
        child = fork()
        if child == 0:
            try:
                pushed = [client.push(queue, n) for n in (1, 2)]
                os._exit(0 if all(one.new for one in pushed) else 1)
            finally:
                os._exit(2)
        client.push(queue, 3)
        assert os.waitpid(child, 0)[1] == 0
        client.push(queue, 4)
        jobs = client.fetch(queue, count=10)
    assert sorted(job.json() for job in jobs) == [0, 1, 2, 3, 4]
    assert len({job.uid for job in jobs}) == 5


def test_a_fork_beside_busy_threads(url: str, queue: str) -> None:
    with Client(url, connections=1) as client:
        done = threading.Event()

        def work() -> None:
            while not done.is_set():
                client.push(queue, "thread")
                for job in client.fetch(queue):
                    client.ack(job)

        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        try:
            for _ in range(5):
                child = fork()
                if child == 0:
                    try:
                        client.push(f"{queue}-child")
                        os._exit(0)
                    finally:
                        os._exit(2)
                assert os.waitpid(child, 0)[1] == 0
        finally:
            done.set()
            for thread in threads:
                thread.join(HANG_GUARD)
        assert client.queue(f"{queue}-child").counts.ready == 5


def test_the_child_does_not_keep_the_leases_of_its_parent(url: str, queue: str) -> None:
    with Client(url) as client:
        client.push(queue)
        [job] = client.fetch(queue)
        child = fork()
        if child == 0:
            try:
                names = [thread.name for thread in threading.enumerate()]
                client.ping()
                client.close()
                os._exit("taskyard-leases" in names)
            finally:
                os._exit(2)
        assert os.waitpid(child, 0)[1] == 0
        client.ack(job)


# Tasks


def test_the_pushes_of_many_tasks_go_over_one_connection(server: WarmServer, queue: str) -> None:
    async def push(url: str) -> list[taskyard.Pushed]:
        async with AsyncClient(url) as client:
            return await asyncio.gather(*(client.push(queue, n) for n in range(300)))

    with Proxy(lambda: server.address("resp")) as proxy:
        pushed = asyncio.run(push(proxy.url))
        assert proxy.connections == 1
    assert [one.id for one in pushed] == list(range(pushed[0].id, pushed[0].id + 300))


@pytest.fixture
def patient_rescue(monkeypatch: pytest.MonkeyPatch) -> None:
    """A disk may stand still for longer than a client waits to give back what it does not want."""
    monkeypatch.setattr(aio, "_RELEASE_TIMEOUT_S", HANG_GUARD)


@pytest.mark.usefixtures("patient_rescue")
def test_a_fetch_that_is_cancelled_takes_no_job_with_it(url: str, queue: str) -> None:
    async def run() -> None:
        async with AsyncClient(url) as client, AsyncClient(url) as other:
            for number in range(30):
                fetching = asyncio.create_task(client.fetch(queue, wait=HANG_GUARD))
                if number % 3:
                    await other.push(queue, number)
                else:
                    await asyncio.sleep(0)
                    await asyncio.gather(other.push(queue, number), cancel(fetching))
                await cancel(fetching)
                [job] = (
                    fetching.result()
                    if not fetching.cancelled()
                    else await client.fetch(queue, wait=HANG_GUARD, ttr=3600)
                )
                assert job.json() == number
                await client.ack(job)

    async def cancel(task: asyncio.Task[list[taskyard.Job]]) -> None:
        task.cancel()
        await asyncio.wait([task])

    asyncio.run(run())


@pytest.mark.usefixtures("patient_rescue")
def test_a_fetch_that_does_not_wait_can_be_cancelled_as_well(url: str, queue: str) -> None:
    async def run() -> None:
        async with AsyncClient(url) as client:
            await client.push_many(queue, range(5))
            for _ in range(5):
                fetching = asyncio.create_task(client.fetch(queue, count=5, ttr=3600))
                await asyncio.sleep(0)
                fetching.cancel()
                await asyncio.wait([fetching])
            found: list[int] = []
            while len(found) < 5:
                found += [job.json() for job in await client.fetch(queue, wait=HANG_GUARD)]
            assert sorted(found) == list(range(5))

    asyncio.run(run())


def test_a_call_that_is_cancelled_leaves_others_their_answers(
    server: WarmServer, queue: str
) -> None:
    async def run(url: str) -> None:
        async with AsyncClient(url) as client:
            await client.ping()
            pushes = [asyncio.create_task(client.push(queue, n)) for n in range(50)]
            await asyncio.sleep(0)
            for push in pushes[::2]:
                push.cancel()
            kept = await asyncio.gather(*pushes[1::2])
            by_uid = {job.uid: job.json() for job in await client.fetch(queue, count=100)}
            assert [by_uid[one.uid] for one in kept] == list(range(1, 50, 2))

    with Proxy(lambda: server.address("resp")) as proxy:
        asyncio.run(run(proxy.url))
        assert proxy.connections == 1


def test_a_client_in_the_loop_of_uvloop(url: str, queue: str) -> None:
    async def run() -> None:
        async with AsyncClient(url) as client:
            waiting = asyncio.create_task(client.fetch(queue, wait=HANG_GUARD))
            pushed = await client.push(queue, 0, ttl=60)
            [job] = await waiting
            await client.ack(job, "done")
            outcome = await client.result(pushed, wait=HANG_GUARD)
            assert outcome is not None
            assert outcome.json() == "done"
            assert len(await client.push_many(queue, range(2000))) == 2000
            fetching = asyncio.create_task(client.fetch(f"{queue}-empty", wait=HANG_GUARD))
            await client.ping()
            fetching.cancel()
            await asyncio.wait([fetching])

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(run())


def test_payloads_may_come_asynchronously(url: str, queue: str) -> None:
    async def numbers() -> object:
        for number in range(5000):
            yield number
        await asyncio.sleep(0)

    async def run() -> list[int]:
        async with AsyncClient(url) as client:
            assert len(await client.push_many(queue, numbers())) == 5000  # type: ignore[arg-type]
            return [job.json() for job in await client.fetch(queue, count=10)]

    assert asyncio.run(run()) == list(range(10))


def test_one_client_in_one_event_loop_after_the_other(url: str, queue: str) -> None:
    client = AsyncClient(url)

    async def push(last: bool) -> taskyard.Pushed:
        pushed = await client.push(queue)
        if last:
            await client.close()
            with pytest.raises(taskyard.Closed):
                await client.push(queue)
        return pushed

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)  # the first loop was closed over it
        first = asyncio.run(push(False))
        assert asyncio.run(push(True)).id == first.id + 1
        gc.collect()


def test_tasks_wait_together_for_a_server_that_does_not_answer() -> None:
    async def main(url: str) -> list[object]:
        async with AsyncClient(url, timeout=0.3, patience=0.0) as client:
            return await asyncio.gather(
                *(client.push("q", n) for n in range(50)), return_exceptions=True
            )

    with answering([]) as script:
        outcomes = asyncio.run(main(script.url.replace("//", "//:token@")))
        assert script.connections == 1
    assert all(isinstance(one, taskyard.Unavailable) for one in outcomes)


def test_the_child_of_a_fork_does_not_wait_for_one_that_rests_in_its_parent() -> None:
    client = Client("taskyard://127.0.0.1:1", patience=HANG_GUARD)
    held = client._closed._cond  # type: ignore[attr-defined]
    with held:
        child = fork()
        if child == 0:
            try:
                client.close()
            finally:
                os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
