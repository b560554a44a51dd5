"""Events on the command line: the last ones, and those to come, also over a lost connection."""

import json
import subprocess
from pathlib import Path

from support.process import WarmServer
from support.tool import Tool


def test_the_last_events(tool: Tool, queue: str) -> None:
    id = tool.ok("push", queue, "x").strip()
    tool.ok("fetch", queue, "--ack")
    found = tool("events", "--json", "--queue", queue, "--last", "50").objects
    assert [event["event"] for event in found] == ["push", "lease", "finish"]
    assert {event["id"] for event in found} == {int(id)}
    only = tool("events", "--json", "--queue", queue, "--event", "lease,fail").objects
    assert [event["event"] for event in only] == ["lease"]
    out = tool.ok("events", "--job", id, "--last", "50")
    assert [line.split()[1:4] for line in out.splitlines()] == [
        ["push", id, queue],
        ["lease", id, queue],
        ["finish", id, queue],
    ]


def test_events_that_are_followed_and_counted(tool: Tool, queue: str) -> None:
    follower = subprocess.Popen(
        tool.argv("events", "-f", "--queue", queue, "--count", "2", "--json", "--after", "0"),
        env=tool.environment,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert follower.stdout is not None
    first = tool.ok("push", queue, "x").strip()
    assert json.loads(follower.stdout.readline())["id"] == int(first)
    second = tool.ok("push", queue, "y").strip()
    rest, _ = follower.communicate()
    assert json.loads(rest)["id"] == int(second)
    assert follower.returncode == 0


def test_a_lost_connection_is_made_again_and_nothing_is_left_out(tmp_path: Path) -> None:
    with WarmServer(tmp_path) as server:
        host, port = server.address("resp")
        _, http = server.address("http")
        server.flags = ["--resp-port", str(port), "--http-port", str(http)]
        tool = Tool(f"taskyard://{host}:{port}")
        follower = subprocess.Popen(
            tool.argv("events", "-f", "--event", "push", "--count", "3", "--json", "--after", "0"),
            env=tool.environment,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert follower.stdout is not None
        tool.ok("push", "q", "1")
        assert json.loads(follower.stdout.readline())["id"] == 1
        server.kill()
        server.restart()
        tool.ok("push", "q", "--lines", given=b"2\n3\n")
        rest, _ = follower.communicate()
        assert [json.loads(line)["id"] for line in rest.splitlines()] == [2, 3]


def test_a_bad_event_is_refused(tool: Tool) -> None:
    ran = tool("events", "-f", "--event", "nonsense")
    assert ran.code == 1
    assert "there is no event 'nonsense'" in ran.err
    assert tool("events", "--last", "3", "--after", "0").code == 2
    assert tool("events", "--http", "ftp://x").code == 2
    assert tool("events", "-f", "--http", "http://127.0.0.1:1", "--count", "1").code == 3
