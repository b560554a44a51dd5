"""`taskyard backup` and `taskyard restore`: what they say, and their exit codes."""

import json
from pathlib import Path

import pytest
from support.process import WarmServer
from support.tool import Tool


@pytest.fixture
def backup(tool: Tool, tmp_path: Path, queue: str) -> Path:
    for number in range(3):
        tool.ok("push", queue, f"job {number}")
    place = tmp_path / "backup"
    tool.ok("backup", str(place))
    return place


def test_a_backup_is_made_of_a_running_server(tool: Tool, tmp_path: Path, queue: str) -> None:
    tool.ok("push", queue, "payload")
    place = tmp_path / "backup"
    ran = tool("backup", str(place), "--json")
    assert ran.code == 0, ran.err
    [made] = ran.objects
    manifest = json.loads((place / "manifest.json").read_text())
    for name in ("records", "jobs", "bytes", "last_seq", "timeline", "version", "made"):
        assert made[name] == manifest[name], name
    assert made["jobs"] >= 1
    assert made["segments"] == len(list((place / "segments").iterdir()))
    assert made["bytes"] == sum(path.stat().st_size for path in (place / "segments").iterdir())
    assert sorted(path.name for path in place.iterdir()) == ["manifest.json", "segments"]


def test_it_says_what_it_has_made(tool: Tool, tmp_path: Path, queue: str) -> None:
    tool.ok("push", queue, "payload")
    said = tool.ok("backup", str(tmp_path / "backup"))
    assert said.startswith(f"{tmp_path / 'backup'}: ")
    assert " records up to number " in said
    assert "timeline " in said


def test_the_reader_that_kept_the_segments_is_dropped(tool: Tool, backup: Path) -> None:
    assert (backup / "manifest.json").exists()
    assert "backup" not in [reader["name"] for reader in tool("readers", "--json").objects]


def test_the_data_directory_of_a_running_server_can_be_copied(
    server: WarmServer, tool: Tool, tmp_path: Path, queue: str
) -> None:
    """With what was acknowledged last, though no later frame says that it is durable."""
    tool.ok("push", queue, "the last")
    place = tmp_path / "backup"
    tool.ok("backup", str(place), "--data", str(server.data))
    data = tmp_path / "data"
    tool.ok("restore", str(place), "--data", str(data))
    dump = tool.ok("journal", "dump", "--data", str(data), "--payloads")
    assert "the last" in dump


def test_what_is_there_is_not_replaced(tool: Tool, backup: Path) -> None:
    before = (backup / "manifest.json").read_bytes()
    ran = tool("backup", str(backup))
    assert (ran.code, ran.out) == (1, "")
    assert "exists already" in ran.err
    assert (backup / "manifest.json").read_bytes() == before


def test_a_server_that_is_not_there_is_said(tmp_path: Path) -> None:
    ran = Tool("taskyard://127.0.0.1:1")("backup", str(tmp_path / "backup"))
    assert ran.code == 3
    assert list(tmp_path.iterdir()) == []


def test_a_directory_without_a_journal_is_said(tool: Tool, tmp_path: Path) -> None:
    ran = tool("backup", str(tmp_path / "backup"), "--data", str(tmp_path))
    assert ran.code == 1
    assert "there is no journal in" in ran.err


# Restoring


def test_a_backup_is_checked(tool: Tool, backup: Path) -> None:
    assert ": intact, " in tool.ok("restore", str(backup), "--check")
    [found] = tool("restore", str(backup), "--check", "--json").objects
    assert found["intact"] is True


def test_it_goes_on_as_another_timeline(tool: Tool, backup: Path, tmp_path: Path) -> None:
    data = tmp_path / "data"
    [made] = tool("restore", str(backup), "--data", str(data), "--json").objects
    identity = json.loads((data / "identity.json").read_text())
    assert identity["timeline"] == made["timeline"] != made["was"]
    assert identity["earlier"][-1]["timeline"] == made["was"]
    assert "intact" in tool.ok("journal", "check", "--data", str(data))
    assert (data.stat().st_mode & 0o777, (data / "identity.json").stat().st_mode & 0o777) == (
        0o700,
        0o600,
    )


def test_an_empty_directory_is_filled(tool: Tool, backup: Path, tmp_path: Path) -> None:
    data = tmp_path / "data"
    (data / "lost+found").mkdir(parents=True)  # of a file system of its own
    tool.ok("restore", str(backup), "--data", str(data))
    assert "intact" in tool.ok("journal", "check", "--data", str(data))


@pytest.mark.parametrize("name", ["identity.json", "journal", "notes"])
def test_no_other_directory_is_touched(tool: Tool, backup: Path, tmp_path: Path, name: str) -> None:
    data = tmp_path / "data"
    (data / name).mkdir(parents=True)
    ran = tool("restore", str(backup), "--data", str(data))
    assert ran.code == 1
    assert f"is not empty (it has {name})" in ran.err
    assert [path.name for path in data.iterdir()] == [name]


def test_a_restore_that_was_cut_off_is_begun_anew(tool: Tool, backup: Path, tmp_path: Path) -> None:
    data = tmp_path / "data"
    (data / "journal").mkdir(parents=True)
    (data / "restoring").touch()
    (data / "journal" / "00000000000000000000.seg").write_bytes(b"half of it")
    ran = tool("serve", "--data", str(data), "--masenko-port", "0")
    assert ran.code == 1
    tool.ok("restore", str(backup), "--data", str(data))
    assert "intact" in tool.ok("journal", "check", "--data", str(data))


def damage_byte(segment: Path) -> None:
    data = bytearray(segment.read_bytes())
    data[len(data) // 2] ^= 4
    segment.write_bytes(data)


def cut_off(segment: Path) -> None:
    segment.write_bytes(segment.read_bytes()[:-10])


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (damage_byte, "is damaged: its checksum is wrong"),
        (cut_off, "bytes and should have"),
        (Path.unlink, "is missing"),
    ],
    ids=["changed", "cut", "missing"],
)
def test_a_damaged_backup_is_refused(
    tool: Tool, backup: Path, tmp_path: Path, damage: object, said: str
) -> None:
    assert callable(damage)
    segment = max((backup / "segments").iterdir())
    damage(segment)
    for flags in (["--check"], ["--data", str(tmp_path / "data")]):
        ran = tool("restore", str(backup), *flags)
        assert ran.code == 1
        assert f"cannot be restored: segments/{segment.name}" in ran.err
        assert said in ran.err
    assert not (tmp_path / "data" / "identity.json").exists()


def test_what_is_no_backup_is_refused(tool: Tool, tmp_path: Path) -> None:
    ran = tool("restore", str(tmp_path / "none"), "--check")
    assert ran.code == 1
    assert "there is no such directory" in ran.err
    ran = tool("restore", str(tmp_path), "--check")
    assert ran.code == 1
    assert "manifest.json is missing" in ran.err


def test_either_a_place_or_a_check_is_asked_for(tool: Tool, backup: Path, tmp_path: Path) -> None:
    assert tool("restore", str(backup)).code == 2
    assert tool("restore", str(backup), "--check", "--data", str(tmp_path / "data")).code == 2
