"""Events on the command line: the last ones, and those to come, also over a lost connection."""

import json
import subprocess
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
from support.listeners import KeptPort
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
    with KeptPort() as resp, KeptPort() as http:
        ports = ("--resp-port", str(resp.number), "--http-port", str(http.number))
        follow_over_a_restart(WarmServer(tmp_path, *ports))


def follow_over_a_restart(started: WarmServer) -> None:
    with started as server:
        tool = Tool("taskyard://{}:{}".format(*server.address("resp")))
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


EVENT = b'id: t:1\nevent: push\ndata: {"seq":1,"event":"push","id":7,"queue":"q"}\n\n'
END = b'id: t:1\nevent: end\ndata: {"seq":1}\n\n'


@pytest.mark.parametrize(
    ("body", "code", "said"),
    [
        (EVENT + END, 0, ""),
        (EVENT, 3, "has ended before all was told."),
        (END, 0, ""),
    ],
)
def test_a_stream_that_was_cut_off_is_not_taken_for_all_there_is(
    tool: Tool, body: bytes, code: int, said: str
) -> None:
    class Told(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *args: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Told) as server:
        answering = threading.Thread(target=server.handle_request)
        answering.start()
        ran = tool(
            "events", "--json", "--after", "0", "--http", f"http://127.0.0.1:{server.server_port}"
        )
        answering.join()
    assert ran.code == code
    assert said in ran.err
    assert [event["id"] for event in ran.objects] == [7] * body.count(EVENT)
