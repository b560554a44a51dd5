"""The tour of the pipeline, docs/pipeline.md, runs as written, from top to bottom."""

import re
import shlex
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from support.doc_sessions import ROOT, matches, run_python, run_shell, sessions, with_ports
from support.process import ServerProcess
from support.waiting import SPARK_GUARD, wait_for

from taskyard.client.client import Client

TOUR = ROOT / "docs" / "pipeline.md"
SERVE = ["taskyard", "serve", "--data", "data"]
KEEP_ASIDES = "exec 3>&2 2>>asides; trap 'cat asides >&3' EXIT\n"
# All that the commands may say on standard error.
ASIDES = re.compile(
    r"Spark's UI is at http://\S+|[\d,]+ of [\d,]+ records, [\d,]+/s|wrote report\.html"
)


class Terminal:
    """The reader's first one, in which a server runs."""

    def __init__(self, directory: Path) -> None:
        self._server = ServerProcess(directory)

    def type_in(self, lines: str) -> None:
        for line in lines.splitlines():
            words = shlex.split(line.removeprefix("$ "))
            if words[: len(SERVE)] == SERVE:
                self._serve(words[len(SERVE) :])
            else:  # it is installed where tests run
                assert words == ["pip", "install", "taskyard[spark]"]

    def _serve(self, flags: list[str]) -> None:
        if self._server.is_running():
            assert self._server.stop(signal.SIGINT) == 0
        self._server.flags = flags
        self._server.restart()
        if "--lake" in flags:
            self._server.wait_for(lambda: bool(lake(self.url)["running"]))

    @property
    def url(self) -> str:
        return f"taskyard://127.0.0.1:{self.ports()['resp']}"

    def ports(self) -> dict[str, int]:
        return {name: self._server.address(name)[1] for name in ("resp", "http")}

    def close(self) -> None:
        if self._server.is_running():
            self._server.stop()


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty directory, in which the reader begins."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    yield tmp_path
    shop = sys.modules.pop("shop", None)
    if shop is not None:
        shop.app.close()


@pytest.fixture
def terminal(here: Path) -> Iterator[Terminal]:
    terminal = Terminal(here)
    yield terminal
    terminal.close()


def lake(url: str) -> Any:
    with Client(url) as client:
        return client.call_api("GET", "/api/v1/lake")


def has_caught_up(url: str) -> bool:
    """It has made a batch; its reader's own commits are records that it may not have yet."""
    told = lake(url)
    return told["events_per_second"] is not None and told["lag_records"] < 10


def test_the_tour_runs_as_written(here: Path, terminal: Terminal, spark: SparkSession) -> None:
    names: dict[str, Any] = {"__name__": "docs"}
    for line, language, written, expected in sessions(TOUR, ("console", "sh", "python")):
        where = f"docs/pipeline.md:{line}"
        if language == "console":
            terminal.type_in(written)
            continue
        code = with_ports(written, terminal.ports())
        if language == "sh":
            printed = run_shell(KEEP_ASIDES + code, here, terminal.url, SPARK_GUARD)
        else:
            printed = run_python(code, where, names)
        if expected is not None:
            assert matches(expected, printed), f"{where} printed\n{printed}not\n{expected}"
    assert "picture" in (here / "report.html").read_text(encoding="utf-8")
    asides = (here / "asides").read_text().splitlines()
    assert "wrote report.html" in asides
    assert all(ASIDES.fullmatch(line) for line in asides), asides
    wait_for(lambda: has_caught_up(terminal.url), SPARK_GUARD)


def test_what_the_readme_shows_of_the_lake_is_part_of_the_tour() -> None:
    tour = {line for _, _, code, _ in sessions(TOUR) for line in code.splitlines()}
    shown = [
        line.removeprefix("$ ")
        for _, _, code, _ in sessions(ROOT / "README.md", ("console",))
        for line in code.splitlines()
        if "taskyard lake" in line
    ]
    assert len(shown) == 2
    assert set(shown) <= tour
