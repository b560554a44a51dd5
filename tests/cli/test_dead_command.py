"""Dead letters on the command line: chosen by id, reason, error or name, or all of them."""

import pytest
from support.tool import Tool


@pytest.fixture
def ids(tool: Tool, queue: str) -> list[str]:
    """Three dead letters: two timeouts of `send`, and a refusal of `call`."""
    made = []
    for name, error in (("send", "timeout 1"), ("send", "timeout 2"), ("call", "refused")):
        made.append(tool.ok("push", queue, error, "--name", name).strip())
        [job] = tool("fetch", queue, "--json").objects
        tool.ok("nack", job["ref"], "--final", "--error", error)
    return made


def dead(tool: Tool, queue: str) -> list[str]:
    return [str(job["id"]) for job in tool("dead", "list", queue, "--json").objects]


def test_dead_letters_are_listed(tool: Tool, queue: str, ids: list[str]) -> None:
    lines = tool.ok("dead", "list", queue).splitlines()
    assert lines[0].split() == ["ID", "NAME", "DIED", "ATTEMPTS", "REASON", "ERROR"]
    assert [line.split()[0] for line in lines[1:]] == ids
    assert lines[1].endswith("timeout 1")
    assert [queue, "3"] in [line.split()[:2] for line in tool.ok("dead").splitlines()]


@pytest.mark.parametrize(
    ("selection", "wanted"),
    [
        (["--name", "call"], [2]),
        (["--error", "timeout"], [0, 1]),
        (["--error", "timeout 2", "--name", "send"], [1]),
        (["--reason", "no such reason"], []),
    ],
)
def test_they_can_be_chosen(
    tool: Tool, queue: str, ids: list[str], selection: list[str], wanted: list[int]
) -> None:
    found = [str(job["id"]) for job in tool("dead", "list", queue, "--json", *selection).objects]
    assert found == [ids[index] for index in wanted]


def test_nothing_is_told_in_a_sentence(tool: Tool, queue: str) -> None:
    tool.ok("queues", "set", queue, "--retries", "1")
    for line, told in (
        (("dead", "list", queue), f"{queue} has no dead letters."),
        (("dead", "list", queue, "--name", "x"), f"{queue} has no such dead letters."),
        (("dead", "show", queue), f"{queue} has no dead letters."),
        (("jobs", queue), f"{queue} has no jobs."),
        (("jobs", queue, "--state", "ready"), f"{queue} has no such jobs."),
        (("leases", queue), "Nothing is leased."),
        (("queues", "list", f"{queue}?"), f"There is no queue whose name fits '{queue}?'."),
        (("consumers",), "There are no consumers."),
    ):
        ran = tool(*line)
        assert (ran.code, ran.out, ran.err) == (0, "", f"{told}\n")
        assert tool(*line, "--json").err == ""


def test_reasons_are_shown_and_one_in_full(tool: Tool, queue: str, ids: list[str]) -> None:
    out = tool.ok("dead", "show", queue)
    assert out.splitlines()[0].split()[:2] == ["COUNT", "REASON"]
    assert out.splitlines()[1].split()[0] == "3"
    assert "last error\n  refused\n" in tool.ok("dead", "show", queue, ids[2])
    alive = tool.ok("push", queue, "x").strip()
    ran = tool("dead", "show", queue, alive)
    assert ran.code == 1
    assert f"{alive} is no dead letter of {queue}: it is ready in {queue}." in ran.err


def test_replay_by_id(tool: Tool, queue: str, ids: list[str]) -> None:
    [done] = tool("dead", "replay", queue, ids[0], "999999999", "--json").objects
    assert done == {"queue": queue, "replayed": 1, "skipped": [999999999]}
    assert dead(tool, queue) == ids[1:]
    assert tool("dead", "replay", queue, "999999999").code == 1


def test_replay_by_error_asks(tool: Tool, queue: str, ids: list[str]) -> None:
    assert tool("dead", "replay", queue, "--error", "timeout").code == 2
    with tool.in_terminal("dead", "replay", queue, "--error", "timeout", columns=120) as terminal:
        terminal.wait_for("Replay 2 dead letters of")
        terminal.type("yes\n")
        assert terminal.wait() == 0
        assert f"{queue}: 2 dead letters replayed." in terminal.text
    assert dead(tool, queue) == ids[2:]


def test_replay_of_all(tool: Tool, queue: str, ids: list[str]) -> None:
    out = tool.ok("dead", "replay", queue, "--all", "--yes")
    assert out == f"{queue}: 3 dead letters replayed.\n"
    assert dead(tool, queue) == []


def test_purge_by_id_leaves_what_is_no_dead_letter(tool: Tool, queue: str, ids: list[str]) -> None:
    alive = tool.ok("push", queue, "x").strip()
    [done] = tool("dead", "purge", queue, ids[1], alive, "--yes", "--json").objects
    assert done == {"queue": queue, "removed": 1, "skipped": [int(alive)]}
    assert dead(tool, queue) == [ids[0], ids[2]]
    assert "ready" in tool.ok("job", alive)


def test_purge_by_reason_and_by_name(tool: Tool, queue: str, ids: list[str]) -> None:
    assert tool("dead", "purge", queue, "--name", "call").code == 2
    assert tool.ok("dead", "purge", queue, "--name", "call", "--yes") == (
        f"{queue}: 1 dead letter removed.\n"
    )
    reason = tool("dead", "list", queue, "--json").objects[0]["reason"]
    tool.ok("dead", "purge", queue, "--reason", reason, "--yes")
    assert dead(tool, queue) == []
    ran = tool("dead", "purge", queue, "--name", "call", "--yes")
    assert (ran.code, ran.err) == (1, f"taskyard dead: {queue} has no such dead letters.\n")


def test_one_must_say_which(tool: Tool, queue: str) -> None:
    for command in ("replay", "purge"):
        ran = tool("dead", command, queue, "--yes")
        assert ran.code == 2
        assert ran.err.startswith("taskyard dead: say which: ids, or --all")
        assert tool("dead", command, queue, "1", "--all", "--yes").code == 2
