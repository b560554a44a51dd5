"""`taskyard journal` on real directories, as a process of its own."""

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from journal.building import ORIGIN, START, Running

from taskyard.engine.records.entities import ValueSet
from taskyard.journal.disk import RealDisk
from taskyard.journal.identity import DirectoryLock


class Result:
    def __init__(self, done: subprocess.CompletedProcess[str]) -> None:
        self.code = done.returncode
        self.out = done.stdout
        self.err = done.stderr

    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.out.splitlines()]


def journal(command: str, data: Path, *arguments: str) -> Result:
    line: Sequence[str] = [sys.executable, "-m", "taskyard", "journal", command]
    done = subprocess.run(
        [*line, "--data", str(data), *arguments], capture_output=True, text=True, check=False
    )
    return Result(done)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """30 pushes, one of them taken and one done, in several segments."""
    path = tmp_path / "data"
    run = Running(RealDisk(str(path)), segment_size=1000)
    for number in range(30):
        run.push(b"payload %d" % number)
        run.commit()
    done = run.take()
    assert done is not None
    run.ack(done)
    run.take()
    run.journal.close()
    return path


def segment(data: Path, index: int) -> Path:
    return sorted((data / "journal").glob("*.seg"))[index]


def damage(data: Path, index: int, offset: int = 300) -> Path:
    path = segment(data, index)
    content = bytearray(path.read_bytes())
    content[offset] ^= 0xFF
    path.write_bytes(content)
    return path


def test_check_lists_every_segment(data: Path) -> None:
    result = journal("check", data)
    assert (result.code, result.err) == (0, "")
    lines = result.out.splitlines()
    paths = sorted((data / "journal").glob("*.seg"))
    bases = [int(path.stem) for path in paths]
    ends = [*bases[1:], bases[-1] + paths[-1].stat().st_size]
    for path, base, end, line in zip(paths, bases, ends, lines[:-1], strict=True):
        assert line.startswith(f"{path.name}  {end - base} bytes  ")
    assert "intact: " in lines[-1]
    assert "34 records" in lines[-1]


def test_check_reports_a_torn_tail(data: Path) -> None:
    path = segment(data, -1)
    size = path.stat().st_size
    path.write_bytes(path.read_bytes()[:-3])
    result = journal("check", data)
    assert result.code == 0
    assert "torn tail: " in result.out
    assert path.name in result.out
    assert path.stat().st_size == size - 3


def test_check_says_where_the_damage_is(data: Path) -> None:
    path = damage(data, 1)
    result = journal("check", data)
    assert result.code == 1
    assert f"{path.name} is damaged at byte " in result.err
    assert "record " in result.err
    assert segment(data, 0).name in result.out


def test_check_beside_a_server_leaves_the_open_end_alone(data: Path) -> None:
    lock = DirectoryLock(str(data))
    run = Running(RealDisk(str(data)), now=START)
    run.push()
    run.commit()
    try:
        result = journal("check", data)
    finally:
        lock.release()
        run.journal.close()
    assert result.code == 0
    assert "a server is writing it" in result.out


def test_stat_counts(data: Path) -> None:
    result = journal("stat", data, "--json")
    assert result.code == 0
    figures = json.loads(result.out)
    assert figures["records"] == 34
    assert figures["by_kind"] == {"boot": 1, "push": 30, "lease": 2, "finish": 1}
    assert figures["jobs"] == {
        "blocked": 0,
        "delayed": 0,
        "ready": 28,
        "leased": 1,
        "succeeded": 0,
        "failed": 0,
    }
    assert figures["first"] == {"seq": 1, "time": "2023-11-14T22:13:20.000000Z"}
    assert figures["last"]["seq"] == 34
    assert figures["segments"] == len(list((data / "journal").glob("*.seg")))
    assert figures["bytes"] == sum(path.stat().st_size for path in (data / "journal").glob("*.seg"))
    identity = json.loads((data / "identity.json").read_text())
    assert figures["timeline"] == identity["timeline"]
    assert figures["head_age_seconds"] > 0


def test_stat_for_people(data: Path) -> None:
    result = journal("stat", data)
    assert result.code == 0
    assert "records: 34\n" in result.out
    assert "  ready: 28\n" in result.out


def test_stat_of_an_empty_journal(tmp_path: Path) -> None:
    (tmp_path / "journal").mkdir()
    result = journal("stat", tmp_path)
    assert result.code == 1
    assert "identity.json is missing" in result.err


def test_dump_prints_every_record(data: Path) -> None:
    result = journal("dump", data)
    assert result.code == 0
    lines = result.lines()
    assert [line["seq"] for line in lines] == list(range(1, 35))
    assert lines[0]["event"] == "boot"
    assert lines[1] == {
        "seq": 2,
        "time": "2023-11-14T22:13:20.000001Z",
        "event": "push",
        "dialect": "masenko",
        "user": "ann",
        "holder": "127.0.0.1:4000",
        "id": 1,
        "queue": "work",
        "name": "task",
        "priority": 0,
        "content": "opaque",
        "ttr": 0,
        "max_attempts": 0,
        "max_fails": 3,
        "payload_size": 9,
    }
    assert lines[-2]["way"] == "ack"
    assert lines[-1]["attempt"] == 1
    assert lines[-1]["bound"] is True


def test_dump_of_a_part_with_payloads(data: Path) -> None:
    result = journal("dump", data, "--from", "5", "--to", "7", "--payloads")
    assert [line["payload"] for line in result.lines()] == ["payload 3", "payload 4", "payload 5"]


def test_dump_of_bytes_that_are_no_text(tmp_path: Path) -> None:
    run = Running(RealDisk(str(tmp_path)))
    run.push(b"\xff\xfe")
    run.journal.records.append(ValueSet(run.now, ORIGIN, b"\xffkey", 0, False, b"v"))
    run.journal.close()
    lines = journal("dump", tmp_path, "--payloads").lines()
    assert lines[1]["payload_base64"] == "//4="
    assert lines[2]["key"] == "\\xffkey"
    assert lines[2]["value"] == "v"


def test_dump_into_a_pipe_that_is_closed(data: Path) -> None:
    command = f"{sys.executable} -m taskyard journal dump --data {data} | head -n 1"
    done = subprocess.run(command, shell=True, capture_output=True, text=True, check=False)
    assert done.stderr == ""
    assert json.loads(done.stdout)["seq"] == 1


def test_repair_of_an_intact_journal_does_nothing(data: Path) -> None:
    result = journal("repair", data, "--yes")
    assert (result.code, result.out) == (0, "the journal is intact, there is nothing to repair\n")


def test_repair_first_says_what_it_would_do(data: Path) -> None:
    path = damage(data, 1)
    before = {p.name: p.read_bytes() for p in (data / "journal").iterdir()}
    result = journal("repair", data)
    assert result.code == 1
    assert f"damage: {path.name}, byte " in result.out
    assert "lost: records " in result.out
    assert "to at least 34" in result.out
    assert "add --yes" in result.out
    assert {p.name: p.read_bytes() for p in (data / "journal").iterdir()} == before


def test_repair_keeps_what_is_before_the_damage(data: Path) -> None:
    path = damage(data, 1)
    old = json.loads((data / "identity.json").read_text())["timeline"]
    count = len(list((data / "journal").glob("*.seg")))
    result = journal("repair", data, "--yes")
    assert result.code == 0
    assert journal("check", data).code == 0
    assert json.loads((data / "identity.json").read_text())["timeline"] != old
    aside = list((data / "journal").glob("damaged-*"))
    assert len(aside) == 1
    assert len(list(aside[0].glob("*.seg"))) == count - 1
    assert (aside[0] / path.name).exists()
    run = Running(RealDisk(str(data)), now=START)
    run.push()
    run.journal.close()
    assert journal("check", data).code == 0


def test_repair_of_a_lost_identity(data: Path) -> None:
    (data / "identity.json").unlink()
    assert "identity.json is missing" in journal("check", data).err
    result = journal("repair", data, "--yes")
    assert result.code == 0
    assert "a new one is made" in result.out
    assert "34 records" in journal("check", data).out


def test_repair_is_refused_while_a_server_runs(data: Path) -> None:
    damage(data, 1)
    lock = DirectoryLock(str(data))
    try:
        result = journal("repair", data, "--yes")
    finally:
        lock.release()
    assert result.code == 1
    assert "is in use by process" in result.err


@pytest.mark.parametrize("command", ["check", "stat", "dump", "repair"])
def test_a_directory_without_a_journal_is_refused(tmp_path: Path, command: str) -> None:
    result = journal(command, tmp_path / "nowhere")
    assert result.code == 1
    assert "there is no journal in" in result.err
    assert not (tmp_path / "nowhere").exists()


def test_a_bad_command_line_is_refused_in_one_sentence(tmp_path: Path) -> None:
    for arguments in (["shrink"], [], ["dump", "--from", "x"]):
        done = subprocess.run(
            [sys.executable, "-m", "taskyard", "journal", *arguments],
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 2
        assert done.stderr.count("\n") == 1
