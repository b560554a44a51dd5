"""The units for systemd: with commands, settings and exit codes that there are."""

import re
import shlex
from configparser import RawConfigParser
from pathlib import Path

import pytest
from support.manifests import PACKAGING

from taskyard.cli import work
from taskyard.shared import exit_codes

UNITS = sorted(PACKAGING.glob("*.service"))
WORKER = PACKAGING / "taskyard-worker@.service"
SERVER = PACKAGING / "taskyard.service"
# What a unit of a worker must not do without, as that of the server has it.
HARDENING = re.compile(r"^(?:NoNew|Capability|Protect|Private|Restrict(?!Prevent)|Lock)\w+$")


def read(path: Path) -> dict[str, dict[str, str]]:
    parser = RawConfigParser(strict=True, interpolation=None, delimiters=("=",))
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    parser.read_string(path.read_text(encoding="utf-8"))
    return {name: dict(parser[name]) for name in parser.sections()}


def environment() -> dict[str, str]:
    """That which the head of the unit shows."""
    line = re.search(r"^# \S+ has (.*), and TASKYARD_URL", WORKER.read_text(), re.MULTILINE)
    assert line
    return dict(pair.split("=", 1) for pair in line[1].split(", "))


@pytest.mark.parametrize("path", UNITS, ids=lambda path: path.name)
def test_a_unit_has_its_sections(path: Path) -> None:
    unit = read(path)
    assert list(unit) == ["Unit", "Service", "Install"]
    assert unit["Service"]["User"] == "taskyard"
    assert unit["Service"]["Restart"] == "on-failure"


def test_workers_run_an_app_with_options_that_exist() -> None:
    command = read(WORKER)["Service"]["ExecStart"]
    values = environment()
    # As systemd does it: $NAME is split at blanks, ${NAME} is one word.
    words = shlex.split(command.replace("$OPTIONS", values["OPTIONS"]))
    words = [word.replace("${APP}", values["APP"]) for word in words]
    assert words[:2] == ["/opt/taskyard/bin/taskyard", "work"]
    options = work.parser().parse_args(words[2:])
    assert (options.app, options.concurrency) == ("mail:app", 8)


def test_workers_without_options_are_run_too() -> None:
    command = read(WORKER)["Service"]["ExecStart"]
    words = shlex.split(command.replace("$OPTIONS", "").replace("${APP}", "mail:app"))
    assert work.parser().parse_args(words[2:]).app == "mail:app"


def test_workers_stay_down_where_a_person_should_look() -> None:
    codes = read(WORKER)["Service"]["RestartPreventExitStatus"].split()
    assert [int(code) for code in codes] == [exit_codes.USAGE, exit_codes.DENIED]


def test_only_the_worker_itself_is_told_to_stop() -> None:
    """Its processes finish their tasks, and it waits for them."""
    service = read(WORKER)["Service"]
    assert service["KillMode"] == "mixed"
    assert int(service["TimeoutStopSec"]) > int(read(SERVER)["Service"]["TimeoutStopSec"])


def test_workers_are_confined_as_the_server_is() -> None:
    kept = [
        {name: it for name, it in read(path)["Service"].items() if HARDENING.match(name)}
        for path in (SERVER, WORKER)
    ]
    assert len(kept[0]) > 10
    assert kept[0] == kept[1]
