"""Schedules on the command line."""

import re

from support.tool import Tool


def test_a_schedule_from_its_beginning_to_its_end(tool: Tool, queue: str) -> None:
    flags = ["--cron", "0 3 * * *", "--timezone", "Europe/Berlin", "--retries", "2", "--ttr", "90s"]
    flags += ["--limit-key", "ada"]
    out = tool.ok("schedules", "set", queue, f"{queue}.q", '{"all": true}', *flags)
    assert out.startswith(f"{queue}: 0 3 * * * Europe/Berlin, next ")
    [view] = tool("schedules", "show", queue, "--json").objects
    assert view["payload"]["json"] == {"all": True}
    assert (view["max_fails"], view["limit_key"]) == (3, "ada")
    line = next(line for line in tool.ok("schedules").splitlines() if line.startswith(queue))
    assert "0 3 * * * Europe/Berlin" in line
    id = tool.ok("schedules", "run", queue).strip()
    assert tool("fetch", f"{queue}.q", "--raw").data == b'{"all":true}'
    shown = tool.ok("schedules", "show", queue)
    for line in (
        r"retries +2 at most",
        r"runs +1",
        r"skipped +none",
        r"missed +no ticks; for all that the server was down for, one job is pushed",
        r"overlap +a job is pushed also while the last one runs",
        r"lease time +1m30s",
    ):
        assert re.search(rf"^{line}$", shown, re.MULTILINE), (line, shown)
    assert re.search(rf"^last .*, job {id}$", shown, re.MULTILINE)
    assert tool.ok("schedules", "pause", queue) == f"{queue}: paused.\n"
    assert [view["paused"] for view in tool("schedules", "show", queue, "--json").objects] == [True]
    assert tool.ok("schedules", "resume", queue).startswith(f"{queue}: resumed, next ")
    assert tool("schedules", "delete", queue).code == 2
    assert tool.ok("schedules", "delete", queue, "--yes") == f"{queue}: deleted.\n"
    assert tool("schedules", "show", queue).code == 1


def test_a_pause_between_runs_and_a_text(tool: Tool, queue: str) -> None:
    tool.ok("schedules", "set", queue, queue, "plain text", "--every", "1h", "--overlap", "skip")
    [view] = tool("schedules", "show", queue, "--json").objects
    assert (view["every"], view["overlap"], view["payload"]["text"]) == (3600, "skip", "plain text")
    assert "every 1h" in tool.ok("schedules", "list")
    tool.ok("schedules", "delete", queue, "--yes")


def test_one_must_say_when(tool: Tool) -> None:
    ran = tool("schedules", "set", "x", "q")
    assert ran.code == 2
    assert ran.err == "taskyard schedules: give --cron or --every: one of them says when.\n"
    ran = tool("schedules", "set", "x", "q", "--cron", "never")
    assert ran.code == 1
    assert "cron" in ran.err
