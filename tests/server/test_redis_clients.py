"""Clients of Redis as they are, unchanged, with a real Taskyard in its place."""

import asyncio
import json
import re
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import redis
import redis.asyncio
from support.process import WarmServer
from support.redis_server import RedisServer
from support.sockets import HANG_GUARD

PROTOCOLS = [2, 3]
# By default the library gives a command up after five seconds, and then sends it once more.
PATIENT: dict[str, Any] = {"socket_timeout": HANG_GUARD, "socket_connect_timeout": HANG_GUARD}

# What toq programs say, setex above all, is what the library advises against by now.
pytestmark = pytest.mark.filterwarnings("ignore:Call to deprecated:DeprecationWarning")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WarmServer]:
    with WarmServer(tmp_path_factory.mktemp("server")) as server:
        yield server
        assert server.stop() == 0
        assert "Traceback" not in server.log_text()


@pytest.fixture
def queue(request: pytest.FixtureRequest) -> str:
    """A name of the test's own."""
    return "".join(letter if letter.isalnum() else "-" for letter in request.node.name)


@pytest.fixture(params=PROTOCOLS)
def client(server: WarmServer, request: pytest.FixtureRequest) -> Iterator[redis.Redis]:
    host, port = server.address("resp")
    with redis.Redis(host, port, protocol=request.param, **PATIENT) as client:
        yield client


# redis-py


def test_lists(client: redis.Redis, queue: str) -> None:
    assert client.ping()
    assert client.rpush(queue, "a", "b", "c") == 3
    assert client.lpush(queue, b"\x00\xff") == 4
    assert client.llen(queue) == 4
    assert client.lrange(queue, 0, -1) == [b"\x00\xff", b"a", b"b", b"c"]
    assert client.lindex(queue, -1) == b"c"
    assert client.lpop(queue) == b"\x00\xff"
    assert client.rpop(queue, 2) == [b"c", b"b"]
    assert client.lrem(queue, 0, "a") == 1
    assert client.lpop(queue) is None
    assert client.lpop(queue, 2) is None
    assert client.type(queue) == b"none"


def test_moves(client: redis.Redis, queue: str) -> None:
    other = queue + "-done"
    client.rpush(queue, 1, 2, 3)
    assert client.lmove(queue, other, "LEFT", "RIGHT") == b"1"
    assert client.blmove(queue, other, 1, "RIGHT", "LEFT") == b"3"
    assert client.rpoplpush(queue, other) == b"2"
    assert client.brpoplpush(queue, other, 0.01) is None
    assert client.lrange(other, 0, -1) == [b"2", b"3", b"1"]
    assert client.delete(queue, other) == 1


def test_values(client: redis.Redis, queue: str) -> None:
    began = time.monotonic()
    assert client.setex(queue, 500, "{}")
    assert client.get(queue) == b"{}"
    left = client.ttl(queue)
    assert 499 - (time.monotonic() - began) <= left <= 500
    assert client.set(queue, "x", nx=True) is None
    began = time.monotonic()
    assert client.set(queue, "x", xx=True, px=60_000, get=True) == b"{}"
    left = client.pttl(queue)
    assert 59_999 - 1000 * (time.monotonic() - began) <= left <= 60_000
    assert client.persist(queue)
    assert client.ttl(queue) == -1
    assert client.expire(queue, 100)
    assert client.exists(queue, queue, "nothing") == 2
    assert client.delete(queue) == 1
    assert client.get(queue) is None
    assert client.setnx(queue, "y")
    assert client.unlink(queue) == 1


def test_waiting_for_a_list(client: redis.Redis, server: WarmServer, queue: str) -> None:
    first, second = queue + "-1", queue + "-2"
    assert client.blpop([first, second], timeout=0.01) is None
    with redis.Redis(*server.address("resp"), **PATIENT) as other:
        pusher = threading.Thread(target=push_when_one_waits, args=(other, second))
        pusher.start()
        assert popped(client.blpop([first, second], timeout=0)) == [second.encode(), b"x"]
        pusher.join()
    client.rpush(first, "y")
    assert popped(client.brpop([second, first], timeout=5)) == [first.encode(), b"y"]


def push_when_one_waits(other: redis.Redis, queue: str) -> None:
    """It may be a little early: then the push comes first, and both are right."""
    other.ping()
    other.rpush(queue, "x")


def say(client: redis.Redis, *words: str | int) -> object:
    """A command for which the library has no method, or no such words."""
    return client.execute_command(*words)  # type: ignore[no-untyped-call]


def popped(reply: object) -> list[object]:
    """A pair or a list, by the version of the protocol."""
    assert isinstance(reply, list | tuple)
    return list(reply)


@pytest.mark.parametrize("count", [1_000, 10_000])
def test_a_pipeline_is_a_transaction_of_many(client: redis.Redis, queue: str, count: int) -> None:
    pipeline = client.pipeline(transaction=True)
    for number in range(count):
        pipeline.rpush(queue, number)
    assert pipeline.execute() == list(range(1, count + 1))


def test_a_pipeline_that_is_too_long_does_nothing(client: redis.Redis, queue: str) -> None:
    pipeline = client.pipeline(transaction=True)
    for number in range(10_001):
        pipeline.rpush(queue, number)
    with pytest.raises(redis.ResponseError, match="too much in one transaction: at most 10000"):
        pipeline.execute()
    assert client.llen(queue) == 0


def test_a_pipeline_without_a_transaction(client: redis.Redis, queue: str) -> None:
    pipeline = client.pipeline(transaction=False)
    for number in range(1000):
        pipeline.rpush(queue, number)
    pipeline.llen(queue)
    pipeline.lpop(queue, 1000)
    pipeline.llen(queue)
    replies = pipeline.execute()
    assert replies[:1000] == list(range(1, 1001))
    assert replies[1000] == 1000
    assert replies[1001] == [b"%d" % number for number in range(1000)]
    assert replies[1002] == 0


def test_errors(client: redis.Redis, queue: str) -> None:
    client.set(queue, "value")
    with pytest.raises(redis.ResponseError, match="WRONGTYPE"):
        client.rpush(queue, "x")
    with pytest.raises(redis.ResponseError, match="unknown command 'ZADD'"):
        client.zadd(queue, {"x": 1})
    with pytest.raises(redis.ResponseError, match="not an integer"):
        say(client, "LRANGE", queue, "x", "y")
    assert client.get(queue) == b"value"


def test_connections_say_who_they_are(server: WarmServer) -> None:
    host, port = server.address("resp")
    name = "worker-7"
    with redis.Redis(
        host, port, db=3, client_name=name, health_check_interval=1, **PATIENT
    ) as client:
        assert client.client_getname() in {"worker-7", b"worker-7"}
        assert client.client_id() > 0
        info = client.client_info()
        assert str(info["db"]) == "3"
        assert client.echo("hello") == b"hello"
        assert client.info("server")["redis_mode"] == "standalone"


def test_a_database_is_a_name_space(server: WarmServer, queue: str) -> None:
    host, port = server.address("resp")
    with (
        redis.Redis(host, port, **PATIENT) as plain,
        redis.Redis(host, port, db=5, **PATIENT) as other,
    ):
        plain.rpush(queue, "x")
        assert other.llen(queue) == 0
        other.rpush(queue, "y")
        assert plain.lrange(queue, 0, -1) == [b"x"]


def test_a_pool_of_connections(server: WarmServer, queue: str) -> None:
    host, port = server.address("resp")
    pool = redis.ConnectionPool(host=host, port=port, max_connections=4, **PATIENT)
    client = redis.Redis(connection_pool=pool)

    def push(number: int) -> None:
        for _ in range(50):
            client.rpush(queue, number)

    threads = [threading.Thread(target=push, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    found = client.lrange(queue, 0, -1)
    assert sorted(found) == sorted(b"%d" % number for number in range(4) for _ in range(50))
    pool.disconnect()


def test_items_with_scores(client: redis.Redis, queue: str) -> None:
    assert say(client, "UPDATE", queue, 123) == 123
    assert say(client, "update", queue, -12) == 111
    assert say(client, "SCORE", queue) == 111
    assert say(client, "PEEK", queue) == queue.encode()
    assert say(client, "NEXT") == queue.encode()
    assert say(client, "NEXT") is None


# redis-py with asyncio


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_the_client_for_asyncio(server: WarmServer, protocol: int, queue: str) -> None:
    asyncio.run(work_with_asyncio(server.address("resp"), protocol, queue))


async def work_with_asyncio(address: tuple[str, int], protocol: int, queue: str) -> None:
    host, port = address
    async with redis.asyncio.Redis(host=host, port=port, protocol=protocol, **PATIENT) as client:
        waiting = [asyncio.ensure_future(client.blpop([queue], timeout=0)) for _ in range(5)]
        async with client.pipeline(transaction=False) as pipeline:
            for number in range(5):
                pipeline.rpush(queue, number)
            await pipeline.execute()
        found = {popped(await task)[1] for task in waiting}
        assert found == {b"0", b"1", b"2", b"3", b"4"}
        await client.setex(queue + "-result", 500, "{}")
        assert await client.get(queue + "-result") == b"{}"
        assert await client.blpop([queue], timeout=0.01) is None


# redis-cli


def cli(server: WarmServer, *arguments: str, typed: str = "") -> str:
    host, port = server.address("resp")
    run = subprocess.run(
        ["redis-cli", "-h", host, "-p", str(port), *arguments],
        input=typed,
        capture_output=True,
        text=True,
        timeout=HANG_GUARD,
        check=True,
    )
    assert run.stderr == ""
    return run.stdout


@pytest.mark.parametrize("flags", [[], ["-2"], ["-3"]])
def test_redis_cli_with_one_command(server: WarmServer, queue: str, flags: list[str]) -> None:
    assert cli(server, *flags, "PING") == "PONG\n"
    assert cli(server, *flags, "RPUSH", queue, "a b", "c") == "2\n"
    assert cli(server, *flags, "LRANGE", queue, "0", "-1") == "a b\nc\n"
    assert cli(server, *flags, "BLPOP", queue, "1") == f"{queue}\na b\n"
    assert cli(server, *flags, "LPOP", queue) == "c\n"
    assert cli(server, *flags, "LPOP", queue) == "\n"
    assert cli(server, *flags, "-x", "SET", queue + ":v", typed="from a file") == "OK\n"
    assert cli(server, *flags, "GET", queue + ":v") == "from a file\n"
    assert "ERR unknown command 'ZADD'" in cli(server, *flags, "ZADD", queue, "1", "x")


@pytest.mark.parametrize("flags", [["--no-raw"], ["--no-raw", "-3"], ["--no-raw", "-n", "4"]])
def test_redis_cli_reads_commands_from_a_pipe(
    server: WarmServer, redis_server: RedisServer, queue: str, flags: list[str]
) -> None:
    """And prints the same as with Redis."""
    redis_server.empty()
    typed = f"""
        RPUSH {queue} a "b c" ""
        lrange {queue} 0 -1
        LPOP {queue} 2
        BRPOP {queue} 1
        LLEN {queue}
        LPOP {queue}
        SETEX {queue}:v 500 value
        LLEN {queue}:v
        TYPE {queue}:v
        DEL {queue}:v
        NOSUCH x
    """
    host, port = redis_server.address
    wanted = subprocess.run(
        ["redis-cli", "-h", host, "-p", str(port), *flags],
        input=typed,
        capture_output=True,
        text=True,
        timeout=HANG_GUARD,
        check=True,
    ).stdout
    assert without_times(cli(server, *flags, typed=typed)) == without_times(wanted)
    assert "b c" in wanted


def without_times(printed: str) -> str:
    """It says of each command that has taken half a second how long that was."""
    return re.sub(r"^\(\d+\.\d\ds\)\n", "", printed, flags=re.MULTILINE)


def test_redis_cli_takes_a_stream_of_requests(server: WarmServer, queue: str) -> None:
    typed = "".join(f"RPUSH {queue} {number}\r\n" for number in range(1000))
    assert "errors: 0, replies: 1000" in cli(server, "--pipe", typed=typed)
    assert cli(server, "LLEN", queue) == "1000\n"


# toq


def test_the_bytes_of_a_toq_program(server: WarmServer, queue: str) -> None:
    task = {
        "id": "6ba7b810-9dad-11d1-80b4-00c04fd430c8",
        "retry": False,
        "max_retries": 0,
        "tried": 0,
        "road": [],
        "state": 0,
        "key": "add",
        "args": "[1,2]",
    }
    body = json.dumps(task).encode()
    name, idle = queue.encode(), queue.encode() + b"-idle"
    result = json.dumps({"task_id": task["id"], "wanna_retry": False, "state": 1}).encode()
    key = b"toq:rst:" + str(task["id"]).encode()
    producer, consumer = server.connect("resp"), server.connect("resp")
    consumer.send(
        b"*4\r\n$5\r\nBLPOP\r\n$%d\r\n%b\r\n$%d\r\n%b\r\n$2\r\n60\r\n"
        % (len(idle), idle, len(name), name)
    )
    producer.send(
        b"*3\r\n$5\r\nRPUSH\r\n$%d\r\n%b\r\n$%d\r\n%b\r\n" % (len(name), name, len(body), body)
    )
    producer.expect(b":1\r\n")
    consumer.expect(b"*2\r\n$%d\r\n%b\r\n$%d\r\n%b\r\n" % (len(name), name, len(body), body))
    consumer.send(
        b"*4\r\n$5\r\nSETEX\r\n$%d\r\n%b\r\n$3\r\n500\r\n$%d\r\n%b\r\n"
        % (len(key), key, len(result), result)
    )
    consumer.expect(b"+OK\r\n")
    producer.send(b"*2\r\n$3\r\nGET\r\n$%d\r\n%b\r\n" % (len(key), key))
    producer.expect(b"$%d\r\n%b\r\n" % (len(result), result))
    producer.send(b"*2\r\n$3\r\nTTL\r\n$%d\r\n%b\r\n" % (len(key), key))
    assert 0 < int(producer.read_line().removeprefix(b":")) <= 500


def test_results_and_tasks_outlive_a_kill(tmp_path: Path) -> None:
    with WarmServer(tmp_path) as server:
        with redis.Redis(*server.address("resp"), **PATIENT) as client:
            client.rpush("tasks", "one", "two")
            client.lpop("tasks")
            client.setex("toq:rst:1", 500, "{}")
        server.kill()
        server.restart()
        with redis.Redis(*server.address("resp"), **PATIENT) as client:
            assert client.lrange("tasks", 0, -1) == [b"two"]
            assert client.get("toq:rst:1") == b"{}"
            assert 0 < client.ttl("toq:rst:1") <= 500
