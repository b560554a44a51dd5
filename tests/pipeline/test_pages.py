"""The pages about the pipeline run as written, one after the other on the same server and lake.

The tour, docs/pipeline.md, has a test of its own.
"""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

import pytest
from pyspark.sql import SparkSession
from support.doc_reader import Reader
from support.doc_sessions import ROOT, run_shell
from support.doc_skips import not_run
from support.waiting import SPARK_GUARD

from taskyard.cli.main import main

PAGES = (
    "spark-events.md",
    "lake.md",
    "analytics.md",
    "report.md",
    "replay.md",
    "spark-queues.md",
    "spark-workers.md",
)

# An app, and jobs of it that have succeeded and failed.
GIVEN = """
cat > mail.py <<'END'
import taskyard

app = taskyard.App("URL")


@app.task(queue="mail", retry=0)
def send(number):
    if number % 3 == 0:
        raise TimeoutError("no answer")
    return number
END
python -c 'from mail import send; [send.push(number) for number in range(9)]'
taskyard work mail:app --burst --log-level error
"""


def no_browser() -> NoReturn:
    raise AssertionError("these pages have nothing for a browser")


def skips(command: str) -> bool:
    """Spark is here; what goes on for ever, or is on another machine, still is not."""
    if command.startswith("taskyard lake"):
        return "@host" in command or "//host" in command
    return not_run(command)


@pytest.fixture
def reader(
    tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Reader]:
    """Commands run in this process, on the session that is there: a Java each would take long."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(SparkSession, "stop", lambda session: None)
    reader = Reader(tmp_path, browser=no_browser, skips=skips, limit=SPARK_GUARD, taskyard=main)
    yield reader
    reader.leave()
    reader.names.clear()
    mail = sys.modules.pop("mail", None)
    if mail is not None:
        mail.app.close()


def test_the_pages_run_as_written(
    tmp_path: Path, reader: Reader, spark: SparkSession, capsys: pytest.CaptureFixture[str]
) -> None:
    run_shell(GIVEN.replace("URL", reader.url), tmp_path, reader.url, SPARK_GUARD)
    orders = spark.range(10).selectExpr("uuid() as order_id", "id as amount", "1 as priority")
    orders.write.parquet(str(tmp_path / "srv" / "orders"))
    for page in PAGES:
        reader.follow(ROOT / "docs" / page, f"docs/{page}")
    assert "TimeoutError" in (tmp_path / "failures.csv").read_text(encoding="utf-8")
    assert "mail" in (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "no jobs would be pushed." in capsys.readouterr().out
