"""How commands end: the exit codes of docs/cli.md, one sentence for each error, and quietly."""

import re
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.listeners import KeptPort
from support.process import WarmServer
from support.tool import Tool


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str, str]]:
    """A server with a user who may look at `mail.*` only: its address, the token, and its HTTP."""
    directory = tmp_path_factory.mktemp("guarded")
    users = directory / "users.toml"
    add = ["user", "add", "--users", str(users), "--token"]
    admin = Tool("")(*add, "root", "--admin")
    made = Tool("")(*add, "ada", "--queues", "mail.*", "--allow", "inspect")
    assert (admin.code, made.code) == (0, 0), made.err
    with WarmServer(directory, "--users", str(users)) as server:
        host, port = server.address("resp")
        root = Tool(f"taskyard://:{admin.out.strip()}@{host}:{port}")
        root.ok("push", "mail.a", "x")
        root.ok("push", "secret", "x")
        _, http = server.address("http")
        yield f"{host}:{port}", made.out.strip(), f"http://{host}:{http}"


def test_an_unreachable_server_is_code_3() -> None:
    with KeptPort() as nobody:
        port = nobody.number
        ran = Tool(f"taskyard://127.0.0.1:{port}")("queues")
        assert ran.code == 3
        assert re.fullmatch(
            rf"taskyard queues: taskyard://127\.0\.0\.1:{port} cannot be reached: .* Is it "
            r"running\? If not, start it with `taskyard serve`, or name another with --url or "
            r"TASKYARD_URL\.\n",
            ran.err,
        )
        commands = ["push", "q", "x"], ["push", "q", "--lines"], ["top", "--once"], ["events"]
        for command in (*commands, ["fetch", "q"]):
            assert Tool(f"taskyard://127.0.0.1:{port}")(*command, given=b"x\n").code == 3


def test_a_url_that_is_none_is_code_2(tool: Tool) -> None:
    ran = tool("queues", "--url", "http://x")
    assert ran.code == 2
    assert ran.err == ("taskyard queues: http://x is not a URL like taskyard://localhost:8002.\n")
    assert tool("queues", "--timeout", "soon").code == 2


@pytest.mark.parametrize(
    "command",
    [
        ["push", "mail.a", "x"],
        ["push", "mail.a", "--lines"],
        ["fetch", "mail.a"],
        ["purge", "mail.a", "--yes"],
        ["pause", "mail.a"],
        ["jobs", "secret"],
    ],
)
def test_what_is_not_allowed_is_code_4(guarded: tuple[str, str, str], command: list[str]) -> None:
    address, token, _ = guarded
    ran = Tool(f"taskyard://:{token}@{address}")(*command, given=b"x\n")
    assert ran.code == 4, ran.err
    assert ran.err.startswith(f"taskyard {command[0]}: ")
    assert ran.err.count("\n") == 1
    assert token not in ran.err


def test_events_of_all_need_the_right_to_all(guarded: tuple[str, str, str]) -> None:
    address, token, http = guarded
    ran = Tool(f"taskyard://:{token}@{address}")("events", "--follow", "--http", http)
    assert ran.code == 4, ran.err


def test_who_has_not_logged_in_is_code_4(guarded: tuple[str, str, str]) -> None:
    address, token, _ = guarded
    for url in (f"taskyard://{address}", f"taskyard://:wrong@{address}"):
        ran = Tool(url)("server")
        assert ran.code == 4
        assert "taskyard://USER:PASSWORD@HOST" in ran.err
    assert "mail.a" in Tool(f"taskyard://:{token}@{address}").ok("jobs", "mail.a")


def test_a_backup_is_for_those_who_may_read_the_journal(
    guarded: tuple[str, str, str], tmp_path: Path
) -> None:
    address, token, _ = guarded
    ran = Tool(f"taskyard://:{token}@{address}")("backup", str(tmp_path / "backup"))
    assert ran.code == 4, ran.err
    assert list(tmp_path.iterdir()) == []


def test_events_of_what_one_may_see(guarded: tuple[str, str, str]) -> None:
    address, token, http = guarded
    tool = Tool(f"taskyard://:{token}@{address}")
    for where in ([], ["--http", http]):
        [pushed] = tool("events", "--queue", "mail.a", "--json", *where).objects
        assert (pushed["event"], pushed["queue"]) == ("push", "mail.a")


def test_top_without_the_right_to_all_events(guarded: tuple[str, str, str]) -> None:
    address, token, _ = guarded
    with Tool(f"taskyard://:{token}@{address}").in_terminal("top") as terminal:
        terminal.wait_for(lambda text: "mail.a" in text and "no figures by name" in text)
        assert "secret" not in terminal.text


@pytest.mark.parametrize("count", [1, 3_000])  # less and more than what is kept back
def test_a_reader_that_goes_away_is_no_error(tool: Tool, queue: str, count: int) -> None:
    tool.ok("push", queue, "--lines", given=b"x\n" * count)
    command = subprocess.Popen(
        tool.argv("jobs", queue, "--all", "--json"),
        env=tool.environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert command.stdout is not None
    if count > 1:
        command.stdout.readline()
    command.stdout.close()
    assert command.stderr is not None
    assert command.stderr.read() == b""
    assert command.wait() == 141
    command.stderr.close()


def test_a_disk_that_is_full_is_told(tool: Tool) -> None:
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            tool.argv("server"),
            env=tool.environment,
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert (done.returncode, done.stderr) == (
        1,
        "taskyard server: [Errno 28] No space left on device.\n",
    )


def test_databases_of_the_url_have_queues_of_their_own(tool: Tool, queue: str) -> None:
    url = tool.environment["TASKYARD_URL"] + "/3"
    Tool(url).ok("push", queue, "x")
    assert Tool(url)("jobs", queue, "--json").objects[0]["queue"] == f"db3:{queue}"
    assert tool("jobs", f"db3:{queue}", "--json").objects[0]["queue"] == f"db3:{queue}"
    assert tool("jobs", queue).code == 1


def test_a_terminal_that_knows_few_characters(tool: Tool, queue: str) -> None:
    id = tool.ok("push", queue, "漢字").strip()
    ran = tool.process("job", id, PYTHONIOENCODING="ascii")
    assert (ran.code, ran.err) == (0, "")
    assert "  ??" in ran.out


def test_a_slow_answer_is_not_waited_for(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        ran = Tool(f"taskyard://127.0.0.1:{port}")("queues", "--timeout", "100ms")
    assert ran.code == 3
