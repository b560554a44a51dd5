"""`taskyard lake report`: what it takes, what it refuses, and that the page is there at the end."""

from datetime import UTC, datetime
from pathlib import Path
from random import Random

import pytest
from pyspark.sql import SparkSession
from spark.histories import WORKERS, History
from spark.kept import give_kept
from spark.lakes import write_lake
from spark.oracle import Tables, compute, read_records

from taskyard.cli.failure import REFUSED, USAGE, Failure
from taskyard.cli.lake import main
from taskyard.cli.lake_report import read_target, read_time
from taskyard.engine.job import SECOND, Policy

END = datetime(2026, 3, 8, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("value", "time"),
    [
        ("2026-03-01", datetime(2026, 3, 1, tzinfo=UTC)),
        ("2026-03-01T12:30", datetime(2026, 3, 1, 12, 30, tzinfo=UTC)),
        ("2026-03-01T12:30Z", datetime(2026, 3, 1, 12, 30, tzinfo=UTC)),
        ("2026-03-01T12:30+02:00", datetime(2026, 3, 1, 10, 30, tzinfo=UTC)),
        ("24h", datetime(2026, 3, 7, 12, tzinfo=UTC)),
        ("1h30m", datetime(2026, 3, 8, 10, 30, tzinfo=UTC)),
        ("7d", datetime(2026, 3, 1, 12, tzinfo=UTC)),
        (None, None),
    ],
)
def test_times(value: str | None, time: datetime | None) -> None:
    assert read_time("--since", value, END) == time


@pytest.mark.parametrize("value", ["", "soon", "12", "2026-13-01", "99999999d", "9999999999h"])
def test_what_is_no_time(value: str) -> None:
    with pytest.raises(Failure, match="not a time"):
        read_time("--since", value, END)


def test_targets() -> None:
    assert read_target("mail=30") == ("mail", 30.0)
    assert read_target("mail=1m30s") == ("mail", 90.0)
    assert read_target("a=b=500ms") == ("a=b", 0.5)


@pytest.mark.parametrize(
    "value", ["mail", "mail=", "=3", "mail=-1", "mail=0", "mail=soon", "m=inf"]
)
def test_what_is_no_target(value: str) -> None:
    with pytest.raises(Failure, match="write QUEUE=TIME"):
        read_target(value)


def test_what_is_refused_before_spark_is_started(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lake, out = str(tmp_path / "lake"), str(tmp_path / "report.html")
    assert main(["report", "--lake", lake, "--out", out]) == REFUSED
    assert "there is no lake in" in capsys.readouterr().err
    assert main(["report", "--lake", lake, "--out", str(tmp_path)]) == USAGE
    assert "is a directory" in capsys.readouterr().err
    assert main(["report", "--lake", lake, "--out", str(tmp_path / "no" / "r.html")]) == USAGE
    assert "there is no directory" in capsys.readouterr().err
    write_lake(tmp_path / "lake", Tables([], [], [], [], []), END)
    since = ["--since", "2026-03-09"]
    assert main(["report", "--lake", lake, "--out", out, *since]) == USAGE
    assert "--since must be before" in capsys.readouterr().err


def test_the_page_is_written(
    tmp_path: Path,
    spark: SparkSession,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    history = History(tmp_path / "data", Random(1))
    history.push("only", "one", Policy())
    job = history.lease("only", WORKERS[0], 1)
    assert job is not None
    history.pass_time(2 * SECOND)
    history.ack(job, WORKERS[0])
    history.close()
    write_lake(tmp_path / "lake", compute(read_records(history.data)), None)
    monkeypatch.chdir(tmp_path)
    give_kept(monkeypatch, spark)
    out = tmp_path / "report.html"
    assert main(["report", "--lake", "lake", "--out", out.name, "--target", "only=1s"]) == 0
    assert tuple(capsys.readouterr()) == ("", "wrote report.html\n")
    html = out.read_text(encoding="utf-8")
    assert "1 succeeded" in html
    assert list(tmp_path.glob(".report*")) == []
