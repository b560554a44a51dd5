"""The tour of the pipeline, docs/pipeline.md, runs as written, from top to bottom."""

import re
import sys
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from support.doc_reader import Reader
from support.doc_sessions import ROOT, sessions
from support.waiting import SPARK_GUARD, wait_for

from taskyard.client.sync import Client

TOUR = ROOT / "docs" / "pipeline.md"
KEEP_ASIDES = "exec 3>&2 2>>asides; trap 'cat asides >&3' EXIT\n"
# All that the commands may say on standard error.
ASIDES = re.compile(
    r"Spark's UI is at http://\S+|[\d,]+ of [\d,]+ records, [\d,]+/s|wrote report\.html"
)


class TourReader(Reader):
    def _serve(self, flags: list[str]) -> None:
        super()._serve(flags)
        if "--lake" in flags:
            wait_for(lambda: self.lake()["running"], SPARK_GUARD)

    def _shell(self, code: str, typed: str | None = None) -> str:
        return super()._shell(KEEP_ASIDES + code, typed)

    def lake(self) -> Any:
        with Client(self.url) as client:
            return client.call_api("GET", "/api/v1/lake")

    def has_caught_up(self) -> bool:
        """It has made a batch; its reader's own commits are records that it may not have yet."""
        told = self.lake()
        return told["events_per_second"] is not None and told["lag_records"] < 10


def test_the_tour_runs_as_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spark: SparkSession
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    # What it installs is installed where tests run, and it has nothing for a browser.
    reader = TourReader(
        tmp_path,
        browser=lambda: pytest.fail("a browser"),
        skips=lambda command: command == "pip install 'taskyard[spark]'",
        limit=SPARK_GUARD,
    )
    try:
        reader.follow(TOUR, "docs/pipeline.md")
        assert "picture" in (tmp_path / "report.html").read_text(encoding="utf-8")
        asides = (tmp_path / "asides").read_text().splitlines()
        assert "wrote report.html" in asides
        assert all(ASIDES.fullmatch(line) for line in asides), asides
        wait_for(reader.has_caught_up, SPARK_GUARD)
    finally:
        reader.leave()
        if "shop" in sys.modules:
            sys.modules.pop("shop").app.close()


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
