"""`taskyard lake job`: what a lake has of one job, for people and for programs."""

import json
from pathlib import Path

import pytest
from support.small_lake import BEGAN, SmallLake, closed_job

from taskyard.cli.lake import main
from taskyard.pipeline.lake import one_job
from taskyard.shared.exit_codes import NOTHING, USAGE

UID = "0123456789abcdef0123456789abcdef"


def event(seq: int, job: int, kind: str, **more: object) -> dict[str, object]:
    row = {"seq": seq, "part": 0, "time": BEGAN, "event": kind, "job_id": job, "queue": "mail"}
    return {**row, **more}


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    found = SmallLake(tmp_path / "lake")
    found.fill(
        jobs=[closed_job(1, uid=UID, error="\x1b[31mred"), closed_job(2)],
        attempts=[{"job_id": 1, "run": 1, "attempt": 1, "worker": "w-1", "seq": 2}],
        events=[event(1, 1, "push"), event(2, 1, "fail", error="\x1b[31mred"), event(3, 2, "push")],
    )
    found.fill(events=[event(4, 1, "replay"), event(5, 3, "push")])  # in another file
    return found.path


def told(lake: Path, capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert main(["job", "--lake", str(lake), *words]) == 0
    return capsys.readouterr().out


def test_a_job_is_one_object(lake: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for which in ("1", UID, UID.upper()):
        found = json.loads(told(lake, capsys, "--json", which))
        assert [row["event"] for row in found["events"]] == ["push", "fail", "replay"]
        assert {row["job_id"] for row in found["runs"] + found["attempts"]} == {1}
        assert found["runs"][0]["payload"] == {"size": 7, "cut": False, "text": '{"n":1}'}


def test_a_job_of_which_there_are_only_events_is_found(
    lake: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = json.loads(told(lake, capsys, "--json", "3"))
    assert (found["runs"], found["open"], len(found["events"])) == ([], None, 1)


def test_people_see_a_timeline_that_cannot_change_their_terminal(
    lake: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shown = told(lake, capsys, "1")
    assert "job 1, run 1: send in mail, failed" in shown
    assert "w-1" in shown
    lines = [line.split()[1] for line in shown.splitlines() if line.startswith("2030-")]
    assert lines == ["push", "fail", "replay"]
    assert "\x1b" not in shown


def test_what_is_not_there(lake: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for which in ("4", "0", "f" * 32, "99999999999999999999"[:19]):
        assert main(["job", which, "--lake", str(lake)]) == NOTHING
        assert f"the lake has no job {which}." in capsys.readouterr().err
    assert main(["job", "1", "--lake", str(tmp_path / "other")]) == NOTHING
    assert "there is no lake in" in capsys.readouterr().err
    for which in ("seven", "-", "1.5", "9" * 20):
        assert main(["job", "--lake", str(lake), "--", which]) == USAGE
        assert "named by its id" in capsys.readouterr().err


def test_only_the_last_rows_are_shown_where_there_are_many(
    lake: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(one_job, "MAX_ROWS", 2)
    monkeypatch.setattr(one_job, "MAX_SHOWN_BYTES", 3)
    found = json.loads(told(lake, capsys, "--json", "1"))
    assert ([row["seq"] for row in found["events"]], found["cut"]) == ([2, 4], True)
    assert found["runs"][0]["payload"] == {"size": 7, "cut": True, "text": '{"n'}


def test_files_that_cannot_have_the_job_are_not_opened(
    lake: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    SmallLake(lake).fill(events=[event(6, 900, "push")])
    for file in (lake / "events").rglob("*.parquet"):
        if file.name.startswith("0000000003-"):
            file.write_bytes(b"not a file of Parquet")
    assert len(json.loads(told(lake, capsys, "--json", "1"))["events"]) == 3
