"""Consumers of batches and readers of the journal on the command line."""

import json
import urllib.request

from support.process import WarmServer
from support.tool import Tool

import taskyard


def test_a_consumer_is_listed_shown_and_dropped(tool: Tool, server: WarmServer, queue: str) -> None:
    host, port = server.address("resp")
    with taskyard.Client(f"taskyard://{host}:{port}") as client:
        client.push_many(queue, [b"x"] * 3)
        client.lease_batch(queue, 1, 2, [queue])
    line = next(line for line in tool.ok("consumers").splitlines() if line.startswith(queue[:20]))
    assert line.split()[1:] == ["1", "out", "2", "-", queue]
    [view] = tool("consumers", "show", queue, "--json").objects
    assert (view["batch"], view["jobs"]) == (1, 2)
    shown = tool.ok("consumers", "show", queue)
    assert "never" in shown
    assert tool("consumers", "drop", queue).code == 2
    assert tool.ok("consumers", "drop", queue, "--yes") == f"{queue}: dropped.\n"
    ran = tool("consumers", "show", queue)
    assert ran.code == 1
    assert "There is no consumer" in ran.err


def test_a_reader_is_listed_and_dropped(tool: Tool, server: WarmServer, queue: str) -> None:
    host, port = server.address("http")
    request = urllib.request.Request(
        f"http://{host}:{port}/api/v1/readers/{queue}",
        json.dumps({"lease": 3600}).encode(),
        {"Content-Type": "application/json"},
        method="PUT",
    )
    urllib.request.urlopen(request).close()
    line = next(line for line in tool.ok("readers").splitlines() if line.startswith(queue))
    assert line.split()[1] == "1"
    assert line.split()[3:5] == ["0", "in"]
    [view] = [each for each in tool("readers", "list", "--json").objects if each["name"] == queue]
    assert view["next_seq"] == 1
    assert tool("readers", "drop", queue).code == 2
    assert tool.ok("readers", "drop", queue, "--yes") == f"{queue}: dropped.\n"
    ran = tool("readers", "drop", queue, "--yes")
    assert ran.code == 1
    assert "There is no reader" in ran.err
