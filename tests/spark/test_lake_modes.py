"""A lake is for its user only, whatever the umask says, and stays so."""

import os
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest
from spark.histories import write_history
from spark.lake_runs import HereTasks, read_in

from taskyard.pipeline.lake import erase, log
from taskyard.pipeline.lake.maintain import Maintenance
from taskyard.pipeline.lake.store import Store


@pytest.fixture(autouse=True)
def open_to_all() -> Iterator[None]:
    before = os.umask(0)
    yield
    os.umask(before)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    data = tmp_path / "data"
    data.mkdir()
    write_history(data, Random(3), 200)
    return data


def modes(lake: Path) -> dict[str, int]:
    """Of everything there is in it that others may do something with."""
    found = {str(path): path.lstat().st_mode & 0o777 for path in (lake, *lake.rglob("*"))}
    return {
        path: mode
        for path, mode in found.items()
        if mode != (0o700 if Path(path).is_dir() else 0o600)
    }


def test_all_that_is_written_is_for_its_user_only(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log, "INTERVAL", 2)  # checkpoints too
    lake = tmp_path / "lake"
    read_in(data, lake, batch=150, payloads=True)
    assert any(lake.rglob("*.checkpoint*.parquet"))
    assert modes(lake) == {}
    erase.request(lake, 1)
    assert modes(lake) == {}
    store = Store(lake)
    try:
        Maintenance(HereTasks(), store).look()
    finally:
        store.close()
    assert modes(lake) == {}


def test_a_lake_that_was_open_is_closed_when_it_is_written_again(
    data: Path, tmp_path: Path
) -> None:
    lake = tmp_path / "lake"
    read_in(data, lake)
    (lake / "report.html").write_text("made")
    outside = tmp_path / "outside"
    outside.write_text("another's")
    outside.chmod(0o644)
    (lake / "events" / "link").symlink_to(outside)
    for path in (lake, *lake.rglob("*")):
        if not path.is_symlink():
            path.chmod(0o777 if path.is_dir() else 0o666)
    Store(lake).close()
    (lake / "events" / "link").unlink()
    assert modes(lake) == {}
    assert outside.stat().st_mode & 0o777 == 0o644


def test_what_is_not_of_the_lake_stays_as_it_is(data: Path, tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    lake.mkdir(0o755)
    (lake / "script").touch(0o755)
    read_in(data, lake)
    assert modes(lake) == {str(lake): 0o755, str(lake / "script"): 0o755}
