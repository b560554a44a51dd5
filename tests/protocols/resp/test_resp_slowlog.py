"""SLOWLOG: what took too long in any protocol, in the words of Redis and without anybody's data."""

from pathlib import Path
from typing import Any

import pytest
from support.api import ApiClient
from support.redis_server import RedisServer
from support.resp import ask as ask_socket
from support.resp import command, value
from support.simulated import SimulatedPeer, SimulatedServer

SECRET = "hunter2"
ERRORS = [
    ["SLOWLOG"],
    ["SLOWLOG", "FOO"],
    ["SLOWLOG", "GET", "-2"],
    ["SLOWLOG", "GET", "x"],
    ["SLOWLOG", "GET", "1", "2"],
    ["SLOWLOG", "get", "1", "2"],
    ["SLOWLOG", "LEN", "1"],
    ["SLOWLOG", "RESET", "1"],
]


@pytest.fixture
def yard() -> SimulatedServer:
    yard = SimulatedServer(inline_sync=False)
    yard.broker.slow_commands.threshold_us = 100_000
    return yard


def be_slow(yard: SimulatedServer, peer: SimulatedPeer, data: bytes) -> None:
    """The disk takes a second for this."""
    yard.scheduler.slow = True
    peer.arrive(data)
    yard.run_pending()
    yard.clock.time += 1_000_000
    yard.scheduler.slow = False
    while yard.scheduler.blocking:
        yard.scheduler.finish_blocking()
        yard.run_pending()


def ask(yard: SimulatedServer, *words: str | int) -> Any:
    peer = yard.connect("resp")
    peer.arrive(command(*words))
    yard.run_pending()
    return value(peer.take())


def test_an_entry_has_the_form_of_redis(yard: SimulatedServer, tmp_path: Path) -> None:
    with RedisServer(tmp_path) as redis:
        client = redis.connect()
        ask_socket(client, "CONFIG", "SET", "slowlog-log-slower-than", "0")
        ask_socket(client, "RPUSH", "mail", "x")
        like = value(ask_socket(client, "SLOWLOG", "GET", "1"))
        client.close()
    be_slow(yard, yard.connect("resp"), command("RPUSH", "mail", SECRET))
    found = ask(yard, "SLOWLOG", "GET", 1)
    assert shape(found) == shape(like)
    ((id, time, microseconds, words, peer, name),) = found
    assert (id, time, microseconds) == (0, yard.clock.now() // 1_000_000, 1_000_000)
    assert words == [b"rpush", b"dialect=resp", b"request=0-1"]
    assert (peer.startswith(b"peer:"), name) == (True, b"")


def shape(entries: Any) -> list[list[Any]]:
    """Of what kind the fields are, whatever their values."""
    return [[type(field) for field in entry] for entry in entries]


def test_errors_are_those_of_redis(yard: SimulatedServer, tmp_path: Path) -> None:
    with RedisServer(tmp_path) as redis:
        client = redis.connect()
        expected = [value(ask_socket(client, *words)) for words in ERRORS]
        client.close()
    assert [ask(yard, *words) for words in ERRORS] == expected


def test_the_newest_come_first_and_as_many_as_asked_for(yard: SimulatedServer) -> None:
    peer = yard.connect()
    for _ in range(12):
        be_slow(yard, peer, b'PUSH {"name":"a"}\nPUSH {"name":"b"}\n')
    assert ask(yard, "SLOWLOG", "LEN") == 12
    assert [entry[0] for entry in ask(yard, "SLOWLOG", "GET")] == list(range(11, 1, -1))
    assert [entry[0] for entry in ask(yard, "SLOWLOG", "GET", 2)] == [11, 10]
    assert len(ask(yard, "SLOWLOG", "GET", -1)) == 12
    assert ask(yard, "SLOWLOG", "GET", 0) == []
    newest = ask(yard, "SLOWLOG", "GET", 1)[0]
    assert newest[3] == [b"PUSH", b"dialect=masenko", b"request=0-23", b"commands=2"]
    assert ask(yard, "SLOWLOG", "RESET") == b"OK"
    assert (ask(yard, "SLOWLOG", "LEN"), ask(yard, "SLOWLOG", "GET")) == (0, [])


def test_help_is_lines(yard: SimulatedServer) -> None:
    lines = ask(yard, "SLOWLOG", "HELP")
    assert [line for line in lines if not line.startswith(b" ")][1:] == [
        b"GET [<count>]",
        b"LEN",
        b"RESET",
        b"HELP",
    ]


def test_the_api_shows_the_same(yard: SimulatedServer) -> None:
    api = ApiClient(yard)
    peer = yard.connect("workq")
    be_slow(yard, peer, b"add 6ba7b810-9dad-11d1-80b4-00c04fd430c8 q 1000 60000 1\r\nx\r\n")
    be_slow(yard, yard.connect(), b'PUSH {"name":"a"}\n')
    shown = api.get("/api/v1/slow").ok()
    assert (shown["threshold"], shown["total"], len(shown["commands"])) == (0.1, 2, 2)
    slow = shown["commands"][1]
    assert (slow["id"], slow["dialect"], slow["command"], slow["commands"]) == (
        0,
        "workq",
        "add",
        1,
    )
    assert (slow["seconds"], slow["disk_seconds"]) == (1, 1)
    assert (slow["line_seconds"], slow["work_seconds"], slow["queue"]) == (0, 0, None)
    assert api.get("/api/v1/slow", limit=1).ok()["commands"] == shown["commands"][:1]
    api.get("/api/v1/slow", limit=0).problem(400, "invalid-value", "limit")


def test_the_api_says_if_nobody_looks() -> None:
    assert ApiClient(SimulatedServer()).get("/api/v1/slow").ok() == {
        "threshold": None,
        "total": 0,
        "commands": [],
    }
