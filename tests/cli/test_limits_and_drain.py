"""Limits of queues on the command line, jobs that they hold back, and what is drained."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.process import WarmServer
from support.tool import Tool

LIMITS = (
    *("--ttr", "5m", "--concurrency", "4", "--rate", "100/1m", "--key-concurrency", "1"),
    *("--key-rate", "10/500ms", "--draining", "on", "--idle-expiry", "1d"),
)


def settings(tool: Tool, queue: str) -> dict[str, object]:
    [view] = tool("queues", "show", queue, "--json").objects
    found: dict[str, object] = view["settings"]
    return found


def test_limits_are_set_and_taken_away(tool: Tool, queue: str) -> None:
    assert tool.ok("queues", "set", queue, *LIMITS) == (
        f"{queue}: created, set ttr 5m, concurrency 4, rate 100/1m, key_concurrency 1, "
        "key_rate 10/500ms, draining on, idle_expiry 1d.\n"
    )
    wanted = {
        "ttr": 300,
        "concurrency": 4,
        "rate": {"count": 100, "per": 60},
        "key_concurrency": 1,
        "key_rate": {"count": 10, "per": 0.5},
        "draining": True,
        "idle_expiry": 86400,
    }
    found = settings(tool, queue)
    assert {name: found[name] for name in wanted} == wanted
    shown = tool.ok("queues", "show", queue)
    assert re.search(r"^  key_rate +10/500ms$", shown, re.MULTILINE)
    assert re.search(r"^state +draining$", shown, re.MULTILINE)
    for name in wanted:
        tool.ok("queues", "set", queue, f"--{name.replace('_', '-')}", "default")
    found = settings(tool, queue)
    assert {found[name] for name in wanted} == {None, False}


def test_a_limit_holds_and_its_jobs_are_shown(tool: Tool, queue: str) -> None:
    tool.ok("queues", "set", queue, "--key-concurrency", "1")
    ids = [tool.ok("push", queue, "x", "--limit-key", key).strip() for key in ("a", "a", "b")]
    taken = tool("fetch", queue, "--count", "3", "--json").objects
    assert [str(job["id"]) for job in taken] == [ids[0], ids[2]]
    [held] = tool("jobs", queue, "--state", "limited", "--json").objects
    assert (str(held["id"]), held["state"], held["limit_key"]) == (ids[1], "limited", "a")
    lines = tool.ok("jobs", queue).splitlines()[1:]
    assert [line.split()[:2] for line in lines] == [
        [ids[1], "limited"],
        [ids[0], "leased"],
        [ids[2], "leased"],
    ]
    assert tool.ok("queues", queue).splitlines()[1].endswith("1 limited")
    assert re.search(r"^limited jobs +1$", tool.ok("queues", "show", queue), re.MULTILINE)
    assert re.search(r"^limit key +a$", tool.ok("job", ids[1]), re.MULTILINE)
    tool.ok("ack", taken[0]["ref"])
    assert [str(job["id"]) for job in tool("fetch", queue, "--json").objects] == [ids[1]]


def test_a_drained_queue_takes_no_pushes_and_hands_out_what_it_has(tool: Tool, queue: str) -> None:
    tool.ok("push", queue, "x")
    tool.ok("queues", "set", queue, "--draining", "on")
    assert tool.ok("queues", queue).splitlines()[1].endswith("draining")
    for push in (["push", queue, "y"], ["push", queue, "--lines"]):
        ran = tool(*push, given=b"y\n")
        assert ran.code == 1
        assert f"queue {queue} is being drained and takes no pushes" in ran.err
    assert tool("fetch", queue, "--raw", "--ack").data == b"x"
    tool.ok("queues", "set", queue, "--draining", "off")
    tool.ok("push", queue, "y")


# The whole server


@pytest.fixture
def alone(tmp_path: Path) -> Iterator[Tool]:
    """With a server of its own, since it is drained."""
    with WarmServer(tmp_path) as server:
        yield Tool("taskyard://{}:{}".format(*server.address("resp")))


def test_a_server_is_drained_until_workers_have_ended(alone: Tool) -> None:
    for payload in ("a", "b"):
        alone.ok("push", "mail", payload)
    [job] = alone("fetch", "mail", "--json").objects
    assert alone.ok("server", "drain") == (
        "No more pushes are taken. Left: 1 job with workers, 2 jobs not ended.\n"
    )
    refused = alone("push", "mail", "c")
    assert (refused.code, refused.err) == (
        1,
        "taskyard push: the server is being drained and takes no pushes.\n",
    )
    assert alone("server").code == 1
    assert "refused: the server is being drained" in alone("server").out
    with alone.in_terminal("server", "drain", "--wait", columns=120) as terminal:
        terminal.wait_for("waiting for workers")
        alone.ok("ack", job["ref"])
        assert terminal.wait() == 0
        assert "Left: no jobs with workers, 1 job not ended." in terminal.text
    assert alone.ok("server", "undrain") == "Pushes are taken.\n"
    assert alone("server", "--json").objects[0]["draining"] is False
    alone.ok("push", "mail", "c")
