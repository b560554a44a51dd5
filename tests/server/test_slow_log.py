"""Lines about slow commands: what they say, and that they stay few."""

import json
from contextlib import closing
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import pytest
from support.fake_loop import FakeClock, FakeScheduler
from support.process import WarmServer
from support.resp import SocketClient, command, value
from support.sockets import HANG_GUARD
from support.tool import Tool

from taskyard.broker.metrics import CommandStats, SlowCommandLog
from taskyard.broker.turns import ClientConnection
from taskyard.server.logs import SlowCommandReporter

MANY = 5000  # commands in a transaction, which are executed in one go


class World:
    def __init__(self) -> None:
        self.clock = FakeClock()
        self.scheduler = FakeScheduler(self.clock)
        self.log = SlowCommandReporter(self.clock, self.scheduler)
        self.slow = SlowCommandLog()
        self.slow.on_slow(self.log.report)
        self.receiver = ClientConnection(1, "masenko")
        self.receiver.connection_number = 7

    def be_slow(self, times: int) -> None:
        for _ in range(times):
            now = self.clock.now()
            self.slow.record(
                self.receiver, CommandStats("PUSH"), 3, 2, now - 250_040, 20_000, 200_000, now
            )


@pytest.fixture(autouse=True)
def all_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    """Whatever level an earlier test has set."""
    caplog.set_level("DEBUG", "taskyard")


def told(caplog: pytest.LogCaptureFixture) -> list[tuple[str, dict[str, Any]]]:
    return [(record.getMessage(), record.__dict__["fields"]) for record in caplog.records]


def test_a_line_says_where_the_time_went(caplog: pytest.LogCaptureFixture) -> None:
    world = World()
    world.be_slow(1)
    assert told(caplog) == [
        (
            "slow command",
            {
                "connection": 7,
                "request": "7-3",
                "dialect": "masenko",
                "peer": "",
                "command": "PUSH",
                "commands": 2,
                "milliseconds": 250.0,
                "line_milliseconds": 20.0,
                "work_milliseconds": 30.0,
                "disk_milliseconds": 200.0,
            },
        )
    ]
    assert caplog.records[0].levelname == "WARNING"


def test_ten_lines_a_second_and_one_for_the_rest(caplog: pytest.LogCaptureFixture) -> None:
    world = World()
    world.be_slow(100_000)
    assert [message for message, _ in told(caplog)] == ["slow command"] * 10
    caplog.clear()
    world.scheduler.advance(1_000_000)
    assert told(caplog) == [("slow command log suppressed", {"count": 99_990})]
    caplog.clear()
    world.be_slow(1)
    world.scheduler.advance(5_000_000)
    assert [message for message, _ in told(caplog)] == ["slow command"]


def test_what_was_left_out_is_told_at_a_stop(caplog: pytest.LogCaptureFixture) -> None:
    world = World()
    world.be_slow(11)
    world.log.stop()
    assert told(caplog)[-1] == ("slow command log suppressed", {"count": 1})
    caplog.clear()
    world.log.stop()
    world.scheduler.advance(5_000_000)
    assert told(caplog) == []


def get(server: WarmServer, path: str) -> bytes:
    with closing(HTTPConnection(*server.address("http"), timeout=HANG_GUARD)) as connection:
        connection.request("GET", path)
        return connection.getresponse().read()


def run_long(server: WarmServer) -> None:
    client = SocketClient(server.address("resp"))
    sets = b"".join(command("SET", f"key{number}", "hunter2") for number in range(MANY))
    client.send(command("MULTI") + sets + command("EXEC"))
    for _ in range(MANY + 1):
        client.reply()
    assert len(value(client.reply())) == MANY
    client.close()


def test_a_slow_command_is_in_the_log_the_api_the_metrics_and_the_tool(tmp_path: Path) -> None:
    flags = ("--slow-command", "1ms", "--log-format", "json")
    with WarmServer(tmp_path, *flags) as server:
        run_long(server)
        shown = json.loads(get(server, "/api/v1/slow"))
        number = MANY + 2  # of the EXEC: the first command in it is what has waited
        execs = [slow for slow in shown["commands"] if slow["request"].endswith(f"-{number}")]
        assert shown["threshold"] == 0.001
        assert len(execs) == 1
        assert execs[0]["request"] == f"{execs[0]['connection']}-{number}"
        page = get(server, "/metrics").decode()
        assert 'taskyard_slow_commands_total{dialect="resp"} 0' not in page
        assert 'taskyard_slow_commands_total{dialect="resp"} ' in page
        resp = server.address("resp")
        tool = Tool(f"taskyard://{resp[0]}:{resp[1]}")
        assert execs[0]["request"] in tool.ok("server", "slow")
        # Before the tool looks again: a command of its own may be slow too.
        lines = [line for line in server.log_entries() if line["message"] == "slow command"]
        assert lines
        (told,) = tool("server", "slow", "--json").objects
        assert execs[0] in told["commands"]
        for line in lines:
            assert line["level"] == "warning"
            assert line["request"] in [slow["request"] for slow in told["commands"]]
        assert "hunter2" not in server.log_text()


def test_off_is_off(tmp_path: Path) -> None:
    with WarmServer(tmp_path, "--slow-command", "off") as server:
        run_long(server)
        shown = json.loads(get(server, "/api/v1/slow"))
        assert shown == {"threshold": None, "total": 0, "commands": []}
        host, port = server.address("resp")
        assert "slow" not in Tool(f"taskyard://{host}:{port}").ok("server", "slow")
