"""`taskyard top`: what it shows in a terminal, its keys, and its forms for scripts."""

import os
import re
import signal
import subprocess
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support.listeners import KeptPort
from support.process import WarmServer
from support.pty_session import PtySession
from support.tool import Tool

from taskyard.cli.top_model import HISTORY, ServerSample, TopModel, sparkline
from taskyard.cli.top_names import MAX_NAMES, MAX_OPEN_JOBS, NameStatistics

QUICK = ("--interval", "200ms")


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tool]:
    """A server of this module alone, with few queues."""
    with WarmServer(tmp_path_factory.mktemp("top")) as server:
        host, port = server.address("resp")
        tool = Tool(f"taskyard://{host}:{port}")
        tool.ok("push", "alpha", "--lines", given=b"x\n" * 7)
        tool.ok("push", "beta", "--lines", given=b"x\n" * 9)
        tool.ok("push", "be\u202eta", "x", "--name", "evil\u202e")
        tool.ok("fetch", "alpha", "--ttr", "1h")
        yield tool


def rows(text: str) -> list[str]:
    """The names of the queues, as they are listed."""
    lines = text.splitlines()
    start = next((at for at, line in enumerate(lines) if line.startswith("QUEUE")), len(lines))
    names = []
    for line in lines[start + 1 :]:
        if not line.strip():
            break
        names.append(line.split()[0])
    return names


def shows_queues(text: str) -> bool:
    return "alpha" in rows(text)


def is_drawn(terminal: PtySession) -> bool:
    """Whether nothing of what it began to draw is still to come."""
    return terminal.raw.count(b"\x1b[?2026h") == terminal.raw.count(b"\x1b[?2026l")


def test_it_shows_queues_leases_and_health(own: Tool) -> None:
    with own.in_terminal("top", *QUICK) as terminal:
        text = terminal.wait_for(lambda text: shows_queues(text) and is_drawn(terminal))
        lines = text.splitlines()
        assert len(terminal.screen.display) == 24
        assert re.search(r"^taskyard \d\S+  up \S+  17 jobs, 3 queues  in \S+/s  out ", lines[0])
        assert re.search(r"^journal .*, .* live  sync .*commits/s  mem .*  clients \d", lines[1])
        assert re.search(r"^alpha +6 +1 +· +· ", text, re.MULTILINE)
        assert re.search(r"^beta +9 ", text, re.MULTILINE)
        assert rows(text)[2] == "be\\u202eta"
        assert re.search(r"\d+m?s +1 alpha +alpha +1 127\.0\.0\.1", text)
        assert lines[-1].startswith("q quit  s sort: ready  / filter  p pause")
        terminal.type("q")
        assert terminal.wait() == 0
        assert b"\x1b[?1049h" in terminal.raw
        assert terminal.raw.endswith(b"\x1b[?7h\x1b[?25h\x1b[?1049l")  # all is as it was


def showing(pattern: str) -> Callable[[str], bool]:
    return lambda text: re.search(pattern, text, re.MULTILINE) is not None


def test_rates_and_names_of_what_is_done(own: Tool) -> None:
    # More than are done in this time: only what is done while it listens has a name.
    own.ok("push", "work", "--lines", "--name", "resize", "--retries", "9", given=b"x\n" * 6_000)
    with own.in_terminal("top", *QUICK, "--filter", "work") as terminal:
        terminal.wait_for(lambda text: rows(text) == ["work"])
        program = "sleep 0.01; test $(($TASKYARD_JOB_ID % 2)) -eq 0"
        worker = subprocess.Popen(
            own.argv("fetch", "work", "--exec", program, "--forever"),
            env=own.environment,
            stderr=subprocess.DEVNULL,
        )
        try:
            terminal.wait_for(showing(r"^work .*[▂▃▄▅▆▇█]"))
            terminal.wait_for(showing(r"^resize +\S+s +\S+s +\d+"))
            terminal.wait_for(showing(r"resize +\d+ +\d+%$"))
        finally:
            worker.terminate()
            worker.wait()
    own.ok("purge", "work", "--state", "all", "--yes")


def test_keys_sort_filter_pause_and_scroll(own: Tool) -> None:
    with own.in_terminal("top", *QUICK, rows=30) as terminal:
        terminal.wait_for(lambda text: rows(text)[:2] == ["beta", "alpha"] or "work" in rows(text))
        press_until(terminal, "s", "sort: name")
        terminal.wait_for(lambda text: rows(text)[:2] == ["alpha", "beta"])
        terminal.type("S")
        terminal.wait_for("sort: dead")
        terminal.type("/alx\x7f")
        terminal.wait_for(lambda text: rows(text) == ["alpha"] and "/al_" in text)
        terminal.type("\r")
        terminal.wait_for("filter (al)")
        terminal.type("\x1b")
        terminal.wait_for(lambda text: "beta" in rows(text))
        terminal.type("p")
        terminal.wait_for("PAUSED VIEW")
        terminal.type(" ")
        terminal.wait_for(lambda text: "PAUSED VIEW" not in text)
        terminal.type("q")
        assert terminal.wait() == 0


def press_until(terminal: PtySession, key: str, wanted: str) -> None:
    for _ in range(10):
        before = terminal.text.splitlines()[-1]
        if wanted in before:
            return
        terminal.type(key)

        def has_changed(text: str, before: str = before) -> bool:
            return text.splitlines()[-1] != before and is_drawn(terminal)

        terminal.wait_for(has_changed)
    raise AssertionError(f"{wanted} never came")


def test_it_fits_a_terminal_of_another_size(own: Tool) -> None:
    with own.in_terminal("top", *QUICK, "--sort", "name") as terminal:
        terminal.wait_for(shows_queues)
        terminal.resize(12, 60)
        text = terminal.wait_for(
            lambda text: shows_queues(text) and text.splitlines()[-1].startswith("q quit")
        )
        assert len(text.splitlines()) == 12
        terminal.resize(40, 132)
        terminal.wait_for(lambda text: len(text.splitlines()) == 40 and shows_queues(text))
        terminal.resize(5, 20)
        terminal.wait_for("40 columns and")
        terminal.resize(24, 80)
        terminal.wait_for(shows_queues)
        terminal.type("\x03")
        assert terminal.wait() == 130


def test_a_screen_that_does_not_change_is_not_drawn_again(own: Tool) -> None:
    with own.in_terminal("top", *QUICK) as terminal:
        terminal.wait_for(shows_queues)
        drawn = terminal.raw.count(b"\x1b[2J")
        looks = terminal.raw.count(b"\x1b[?2026h")
        terminal.wait_for(lambda _: terminal.raw.count(b"\x1b[?2026h") >= looks + 3)
        assert terminal.raw.count(b"\x1b[2J") == drawn
        assert terminal.raw.count(b"PUSH/S") == 1


def test_ctrl_z_gives_the_terminal_back_for_a_while(own: Tool) -> None:
    with own.in_terminal("top", *QUICK) as terminal:
        terminal.wait_for(shows_queues)
        terminal.type("\x1a")
        terminal.wait_for(lambda _: terminal.raw.endswith(b"\x1b[?1049l"))
        _, status = os.waitpid(terminal.pid, os.WUNTRACED)
        assert os.WIFSTOPPED(status)
        os.kill(terminal.pid, signal.SIGCONT)
        terminal.wait_for(
            lambda text: terminal.raw.count(b"\x1b[?1049h") == 2 and shows_queues(text)
        )
        terminal.type("q")
        assert terminal.wait() == 0


def test_many_queues_are_scrolled(own: Tool) -> None:
    for number in range(30):
        own.ok("queues", "set", f"many.{number:02}", "--retries", "1")
    with own.in_terminal("top", *QUICK, "--filter", "many", "--sort", "name") as terminal:
        terminal.wait_for(lambda text: rows(text)[:1] == ["many.00"] and " more" in text)
        terminal.type("\x1b[B\x1b[B")
        terminal.wait_for(lambda text: rows(text)[:1] == ["many.02"])
        terminal.type("\x1b[F")
        terminal.wait_for(lambda text: "many.29" in rows(text))
        terminal.type("\x1b[H")
        terminal.wait_for(lambda text: rows(text)[:1] == ["many.00"])


def test_a_server_that_goes_away_and_comes_back(tmp_path: Path) -> None:
    with KeptPort() as port, WarmServer(tmp_path, "--resp-port", str(port.number)) as server:
        tool = Tool(f"taskyard://127.0.0.1:{port.number}")
        tool.ok("push", "alpha", "x")
        with tool.in_terminal("top", *QUICK) as terminal:
            terminal.wait_for(shows_queues)
            server.kill()
            terminal.wait_for("cannot be reached")
            server.restart()
            terminal.wait_for(lambda text: "cannot be reached" not in text and shows_queues(text))
            terminal.type("q")
            assert terminal.wait() == 0


def test_once_is_plain_text(own: Tool) -> None:
    ran = own("top", "--once", "--interval", "100ms")
    assert ran.code == 0
    assert {"alpha", "beta"} <= set(ran.out.split())
    assert "\x1b" not in ran.out
    assert "\u202e" not in ran.out
    assert "q quit" not in ran.out


def test_json_for_scripts(own: Tool) -> None:
    [shown] = own("top", "--once", "--json", "--interval", "100ms").objects
    alpha = next(queue for queue in shown["queues"] if queue["name"] == "alpha")
    assert (alpha["ready"], alpha["leased"], alpha["pushed_rate"]) == (6, 1, 0)
    assert [held["queue"] for held in shown["leases"]] == ["alpha"]
    assert {"server", "commit_rate", "flush_seconds", "slowest", "failing"} <= set(shown)
    stream = subprocess.Popen(
        own.argv("top", "--json", "--interval", "100ms"),
        env=own.environment,
        stdout=subprocess.PIPE,
    )
    assert stream.stdout is not None
    assert stream.stdout.readline().startswith(b"{")
    assert stream.stdout.readline().startswith(b"{")
    stream.stdout.close()
    assert stream.wait() == 141


def test_it_needs_a_terminal(own: Tool) -> None:
    ran = own("top")
    assert (ran.code, ran.err) == (
        2,
        "taskyard top: this needs a terminal; use --once or --json without one.\n",
    )
    assert own("top", "--interval", "1ms").code == 2


# What it reckons


def look(at: float, **counters: int) -> ServerSample:
    zero = dict.fromkeys(
        ("pushed", "leases", "finished", "failed", "retried", "released", "expired", "removed"), 0
    )
    states = dict.fromkeys(("blocked", "delayed", "ready", "leased", "succeeded", "failed"), 0)
    queue = {
        "name": "q",
        "paused": False,
        "waiting": 0,
        "counts": states,
        "counters": {**zero, **counters},
    }
    server = {"journal": {"commits": int(at * 10), "records": int(at * 100)}}
    return ServerSample(at=at, server=server, queues=[queue], leases=[])


def test_rates_are_what_came_since_the_last_look() -> None:
    model = TopModel()
    model.update(look(10.0, pushed=100, finished=50))
    [line] = model.queues("name")
    assert (line.pushed_rate, line.done_rate) == (0, 0)
    model.update(look(12.0, pushed=110, finished=56, failed=1, retried=3))
    [line] = model.queues("name")
    assert (line.pushed_rate, line.done_rate, line.failed_rate) == (5, 3, 2)
    assert (model.commit_rate, model.record_rate) == (10, 100)
    gone = look(14.0)
    gone.queues = []
    model.update(gone)
    assert model.queues("name") == []


def test_a_history_is_bounded() -> None:
    model = TopModel()
    for second in range(HISTORY * 2):
        model.update(look(float(second), finished=second))
    assert len(model.queues("name")[0].history) == HISTORY


def test_sparklines() -> None:
    assert sparkline(deque([0.0, 4.0, 7.0]), 5) == "  ▁▅█"
    assert sparkline(deque([0.0, 0.0]), 3) == " ▁▁"
    assert sparkline(deque([1.0] * 9), 4) == "████"


def event(kind: str, id: int, second: float) -> tuple[str, dict[str, object]]:
    return kind, {"id": id, "time": f"2030-01-01T00:00:{second:09.6f}Z"}


def test_names_get_their_times_from_events() -> None:
    names = NameStatistics()
    for id, seconds, end in ((1, 2.0, "finish"), (2, 4.0, "finish"), (3, 1.0, "fail")):
        names.add_event(*event("lease", id, 0.0))
        names.add_event(*event(end, id, seconds))
    assert names.slowest(5) == []  # nobody knows their names yet
    assert names.unnamed() == [1, 2, 3]
    for id, name in ((1, "slow"), (2, "slow"), (3, "bad")):
        names.set_name(id, name)
    names.count_named()
    assert [(each.name, each.mean, each.slowest) for each in names.slowest(5)] == [
        ("slow", 3.0, 4.0),
        ("bad", 1.0, 1.0),
    ]
    assert [(each.name, each.failed, each.failure_rate) for each in names.most_failing(5)] == [
        ("bad", 1, 1.0)
    ]


def test_names_take_no_more_memory_than_they_may() -> None:
    names = NameStatistics()
    for id in range(MAX_OPEN_JOBS + 100):
        names.add_event(*event("lease", id, 0.0))
        names.set_name(id, f"name {id % (MAX_NAMES * 2)}")
        names.add_event(*event("retry", id, 1.0))
        names.add_event(*event("lease", id, 0.0))
    assert len(names.most_failing(MAX_OPEN_JOBS)) == MAX_NAMES
    assert len(names._since) == MAX_OPEN_JOBS
    assert len(names._names) == MAX_OPEN_JOBS
