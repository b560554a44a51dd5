"""`taskyard lake report`: what it takes, what it refuses, and that the page is there at the end."""

from datetime import UTC, datetime
from pathlib import Path
from random import Random

import pytest
from pipeline.histories import WORKERS, History
from pipeline.lake_runs import fill

from taskyard.cli.failure import CommandFailed
from taskyard.cli.lake import main
from taskyard.cli.lake_read import read_target, read_time
from taskyard.engine.model.job import SECOND, Policy
from taskyard.shared.exit_codes import REFUSED, USAGE

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
    with pytest.raises(CommandFailed, match="not a time"):
        read_time("--since", value, END)


def test_targets() -> None:
    assert read_target("mail=30") == ("mail", 30.0)
    assert read_target("mail=1m30s") == ("mail", 90.0)
    assert read_target("a=b=500ms") == ("a=b", 0.5)


@pytest.mark.parametrize(
    "value", ["mail", "mail=", "=3", "mail=-1", "mail=0", "mail=soon", "m=inf"]
)
def test_what_is_no_target(value: str) -> None:
    with pytest.raises(CommandFailed, match="write QUEUE=TIME"):
        read_target(value)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """With a lake of one job."""
    history = History(tmp_path / "data", Random(1))
    history.push("only", "one", Policy())
    job = history.lease("only", WORKERS[0], 1)
    assert job is not None
    history.pass_time(2 * SECOND)
    history.ack(job, WORKERS[0])
    history.close()
    fill(tmp_path / "data", tmp_path / "lake")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_what_is_refused(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for given, code, reason in (
        (("--lake", "nothing"), REFUSED, "there is no lake in"),
        (("--out", "lake"), USAGE, "is a directory"),
        (("--out", "no/r.html"), USAGE, "there is no directory"),
        (("--since", "2100-01-01"), USAGE, "--since must be before"),
        (("--target", "only"), USAGE, "write QUEUE=TIME"),
        (("--lake", "s3://bucket/lake"), USAGE, "--out FILE must be given"),
    ):
        assert main(["report", *given]) == code
        assert reason in capsys.readouterr().err
    assert not (folder / "lake" / "report.html").exists()


def test_the_page_is_written(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", "--out", "report.html", "--target", "only=1s"]) == 0
    assert tuple(capsys.readouterr()) == ("", "wrote report.html\n")
    html = (folder / "report.html").read_text(encoding="utf-8")
    assert "1 succeeded" in html
    assert "only" in html
    assert main(["report", "--queues", "nothing"]) == 0
    assert "0 queues of" in (folder / "lake" / "report.html").read_text(encoding="utf-8")
