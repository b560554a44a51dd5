"""Queues on the command line, what asks before it removes anything, and the server's page."""

import re

import pytest
from support.tool import Tool

from taskyard.cli.text import width

RATES = "a number and a time, such as 10/1s or 100/1m"


def fill(tool: Tool, queue: str, count: int = 3) -> None:
    tool.ok("push", queue, "--lines", given=b"x\n" * count)


# Queues


def test_queues_are_listed_in_plain_columns(tool: Tool, queue: str) -> None:
    fill(tool, queue)
    tool.ok("push", f"{queue}.漢", "y")
    out = tool.ok("queues", f"{queue}*")
    header, first, second = out.splitlines()
    assert header.split() == [
        *("QUEUE", "READY", "LEASED", "DELAYED", "BLOCKED", "DEAD", "WAITING", "PUSHED", "DONE")
    ]
    assert first.split() == [queue, "3", "0", "0", "0", "0", "0", "3", "0"]
    assert second.split() == [f"{queue}.漢", "1", "0", "0", "0", "0", "0", "1", "0"]
    assert "\t" not in out
    assert "\x1b" not in out
    number = second.index("1", len(queue))
    assert width(second[:number]) == header.index("READY") + len("READ")


def test_queues_for_scripts(tool: Tool, queue: str) -> None:
    fill(tool, queue)
    fill(tool, f"{queue}.more", 5)
    names = [each["name"] for each in tool("queues", f"{queue}*", "--json").objects]
    assert names == [queue, f"{queue}.more"]
    by_ready = tool.ok("queues", "list", f"{queue}*", "--sort", "ready", "--names")
    assert by_ready.splitlines() == [f"{queue}.more", queue]


def test_a_pattern_has_no_other_magic_than_the_star(tool: Tool, queue: str) -> None:
    name = f"{queue}[a]?"
    fill(tool, name)
    fill(tool, f"{queue}a.")
    assert tool.ok("queues", name, "--names").splitlines() == [name]


def test_a_table_fits_its_terminal(tool: Tool, queue: str) -> None:
    name = queue + "-" + "long" * 20
    fill(tool, name)
    with tool.in_terminal("queues", name, columns=80) as terminal:
        assert terminal.wait() == 0
        lines = terminal.text.splitlines()
        assert len(lines) == 2
        assert "…" in lines[1]
        assert lines[1].split()[1] == "3"
        assert b"\x1b[1m" in terminal.raw  # its head is bold
    with tool.in_terminal("queues", name, columns=200, NO_COLOR="1") as terminal:
        assert terminal.wait() == 0
        assert name in terminal.text
        assert b"\x1b" not in terminal.raw


def test_a_queue_is_set_shown_and_deleted(tool: Tool, queue: str) -> None:
    out = tool.ok("queues", "set", queue, "--retries", "5", "--dead-retention", "7d")
    assert out == f"{queue}: created, set retries 5, dead_retention 7d.\n"
    tool.ok("queues", "set", queue, "--backoff", "exponential", "--backoff-base", "2s")
    tool.ok("queues", "set", queue, "--max-bytes", "1MiB", "--retries", "default")
    [view] = tool("queues", "show", queue, "--json").objects
    wanted = {"retries": None, "dead_retention": 604800, "backoff_base": 2, "max_bytes": 1 << 20}
    assert {name: view["settings"][name] for name in wanted} == wanted
    for flag in ("backoff-base", "backoff-cap", "result-retention", "overflow", "max-jobs"):
        tool.ok("queues", "set", queue, f"--{flag}", "default")
    shown = tool.ok("queues", "show", queue)
    assert re.search(r"^  retries +default$", shown, re.MULTILINE)
    assert re.search(r"^  dead_retention +7d$", shown, re.MULTILINE)
    assert tool.ok("queues", "delete", queue, "--yes") == f"{queue}: deleted, with no jobs.\n"
    assert tool("queues", "show", queue).code == 1


def test_a_queue_with_jobs_is_deleted_only_if_that_is_said(tool: Tool, queue: str) -> None:
    fill(tool, queue)
    refused = tool("queues", "delete", queue, "--yes")
    assert refused.code == 1
    assert refused.err.startswith("taskyard queues: ")
    [done] = tool("queues", "delete", queue, "--yes", "--purge", "--json").objects
    assert done == {"queue": queue, "removed": 3}


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--retries", "many"], "--retries must be a whole number, not 'many'."),
        (["--max-bytes", "1XB"], "--max-bytes must be a size such as 64MiB, not '1XB'."),
        (["--rate", "10"], f"--rate must be {RATES}, not '10'."),
        (["--rate", "100/m"], f"--rate must be {RATES}, not '100/m'."),
        (["--rate", "x/1m"], f"--rate must be {RATES}, not 'x/1m'."),
        (["--ttr", "soon"], "--ttr must be a time such as 250ms, 30s, 5m, 2h, 1d or 1h30m, not"),
        (["--backoff", "linear"], "--backoff must be one of none, quartic, exponential, not 'lin"),
        (["--overflow", "deed"], "--overflow must be one of refuse, dead, not 'deed' (did you m"),
        (["--draining", "yes"], "--draining must be on or off, not 'yes'."),
        ([], "say what to set: one of --retries,"),
    ],
)
def test_a_bad_setting_is_refused(tool: Tool, arguments: list[str], sentence: str) -> None:
    ran = tool("queues", "set", "nowhere", *arguments)
    assert ran.code == 2
    assert ran.err.startswith(f"taskyard queues: {sentence}")


# Pausing


def test_pause_and_resume(tool: Tool, queue: str) -> None:
    fill(tool, queue)
    assert tool.ok("pause", queue) == f"{queue}: paused, with 3 jobs ready.\n"
    assert tool("fetch", queue).code == 5
    assert tool.ok("queues", queue).splitlines()[1].endswith("paused")
    assert tool.ok("resume", queue) == f"{queue}: resumed, with 3 jobs ready.\n"
    assert tool("fetch", queue).code == 0
    assert tool("pause", f"{queue}.none").code == 1


# Purging


def test_purge_needs_yes_where_nobody_can_be_asked(tool: Tool, queue: str) -> None:
    fill(tool, queue)
    ran = tool("purge", queue)
    assert ran.code == 2
    assert ran.err == (
        f"taskyard purge: Remove 3 jobs of {queue} (ready, limited, delayed)? Nothing was done: "
        "give --yes to do it without asking.\n"
    )
    assert tool("purge", queue, "--yes", "--json").objects == [{"queue": queue, "removed": 3}]


def test_purge_asks_on_a_terminal(tool: Tool, queue: str) -> None:
    fill(tool, queue)
    with tool.in_terminal("purge", queue) as terminal:
        terminal.wait_for("Remove 3 jobs of")
        terminal.type("n\n")
        assert terminal.wait() == 1
        assert "nothing was done." in terminal.text
    with tool.in_terminal("purge", queue, "--state", "ready", columns=120) as terminal:
        terminal.wait_for("(ready)? [y/N]")
        terminal.type("y\n")
        assert terminal.wait() == 0
        assert f"{queue}: 3 jobs removed." in terminal.text
    assert tool("purge", queue, "--state", "all", "--yes").out == f"{queue}: no jobs removed.\n"


# The server


def test_the_server_is_shown(tool: Tool) -> None:
    out = tool.ok("server")
    assert re.search(r"^server +taskyard \d", out, re.MULTILINE)
    assert re.search(r"^pushes +taken$", out, re.MULTILINE)
    assert re.search(r"^listeners +.*resp 127", out, re.MULTILINE)
    [view] = tool("server", "--json").objects
    assert view["accepting"] is True
