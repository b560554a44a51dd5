"""Every command has help with an example, stands in docs/cli.md, and starts fast."""

import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from support.tool import Tool

from taskyard.cli.completion import SHELLS, build_full_parser
from taskyard.cli.main import COMMANDS
from taskyard.shared import exit_codes

PAGE = Path(__file__).resolve().parents[2] / "docs" / "cli.md"
THERE = [name for name, (module, _) in COMMANDS.items() if find_spec(module) is not None]


@pytest.fixture(scope="module")
def page() -> str:
    return PAGE.read_text(encoding="utf-8")


@pytest.mark.parametrize("name", THERE)
def test_every_command_has_help(name: str) -> None:
    ran = Tool("")(name, "--help")
    assert ran.code == 0
    assert ran.out.startswith(f"usage: taskyard {name}")
    assert re.search(rf"^  .*taskyard {name}", ran.out.partition("examples:\n")[2], re.MULTILINE)


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_is_in_the_page(name: str, page: str) -> None:
    assert re.search(rf"^\$? ?(.*\| )?taskyard {name}\b", page, re.MULTILINE)
    assert f"`{name}`" in page


def _subcommands(name: str) -> list[str]:
    text = Tool("")(name, "--help").out
    listed = re.search(r"^  COMMAND\n((?:    .*\n)+)", text, re.MULTILINE)
    return re.findall(r"^    (\w+)", listed[1], re.MULTILINE) if listed else []


@pytest.mark.parametrize("name", ["queues", "job", "dead", "schedules", "consumers", "server"])
def test_every_command_below_has_help_and_is_in_the_page(name: str, page: str) -> None:
    below = _subcommands(name)
    assert len(below) >= 3
    for each in below:
        ran = Tool("")(name, each, "--help")
        assert f"  taskyard {name} {each}" in ran.out.partition("examples:\n")[2]
        assert re.search(rf"taskyard {name} {each}\b", page), each


def test_all_exit_codes_are_in_the_page(page: str) -> None:
    codes = {value for value in vars(exit_codes).values() if isinstance(value, int)}
    table = page.partition("## Exit codes")[2].partition("\n## ")[0]
    assert {int(code) for code in re.findall(r"^\| (\d+) \|", table, re.MULTILINE)} == codes


def test_help_needs_neither_the_event_loop_nor_the_engine() -> None:
    names = [name for name in THERE if name not in {"journal", "work"}]
    script = (
        "import contextlib, sys\n"
        "from taskyard.cli.main import main\n"
        f"for name in {names}:\n"
        "    with contextlib.suppress(SystemExit):\n"
        "        main([name, '--help'])\n"
        "    print(name, *sys.modules, file=sys.stderr)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    slow = {"asyncio", "uvloop", "taskyard.engine", "http.client", "shtab", "hiredis"}
    for line in done.stderr.splitlines():
        name, *loaded = line.split()
        assert slow.isdisjoint(loaded), name


def test_a_command_loads_no_library_that_it_does_not_need(tool: Tool) -> None:
    script = (
        "import sys\n"
        "from taskyard.cli.main import main\n"
        "main(['queues'])\n"
        "print(*sys.modules, file=sys.stderr)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        env=tool.environment,
        capture_output=True,
        text=True,
        check=True,
    )
    slow = {"asyncio", "ssl", "logging", "random", "secrets", "shutil", "http.client", "tempfile"}
    assert slow.isdisjoint(done.stderr.split())


# Completion


@pytest.mark.parametrize("shell", SHELLS)
def test_completion_knows_all_commands(shell: str) -> None:
    script = Tool("").ok("completion", shell)
    for name in THERE:
        assert name in script
    assert "--priority" in script
    assert "taskyard queues list --names" in script


def test_the_whole_parser_has_all_commands() -> None:
    text = build_full_parser().format_help()
    for name in THERE:
        assert re.search(rf"^    {name}$|^    {name} ", text, re.MULTILINE)


def test_bash_completes_commands_flags_and_queues(tool: Tool, queue: str, tmp_path: Path) -> None:
    tool.ok("push", queue, "x")
    (tmp_path / "taskyard").write_text(f'#!/bin/sh\nexec "{sys.executable}" -m taskyard "$@"\n')
    (tmp_path / "taskyard").chmod(0o755)
    script = tool.ok("completion", "bash")

    def complete(*words: str) -> list[str]:
        line = " ".join(f"'{word}'" for word in words)
        code = (
            f"{script}\nCOMP_WORDS=({line}); COMP_CWORD={len(words) - 1}; "
            'COMP_LINE="${COMP_WORDS[*]}"; COMP_POINT=${#COMP_LINE}; '
            'function=$(complete -p taskyard | sed "s/.*-F \\([^ ]*\\).*/\\1/"); '
            '"$function" taskyard "${COMP_WORDS[COMP_CWORD]}" ""; '
            'printf "%s\\n" "${COMPREPLY[@]}"'
        )
        done = subprocess.run(
            ["bash", "-c", code],
            env={**tool.environment, "PATH": f"{tmp_path}:{tool.environment['PATH']}"},
            capture_output=True,
            text=True,
            check=True,
        )
        return done.stdout.split()

    assert complete("taskyard", "que") == ["queues"]
    assert set(complete("taskyard", "push", "--pri")) == {"--priority"}
    assert queue in complete("taskyard", "pause", queue[:20])
    # The name of a queue may be anything: a shell must not come to carry it out.
    for evil in (f"$(touch${{IFS}}{tmp_path}/evil)", f"`touch${{IFS}}{tmp_path}/evil`"):
        tool.ok("push", evil, "x")
        assert not [name for name in complete("taskyard", "pause", "") if "evil" in name]
        tool.ok("queues", "delete", evil, "--purge", "--yes")
    assert not (tmp_path / "evil").exists()
