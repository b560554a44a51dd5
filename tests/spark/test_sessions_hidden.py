"""Ids of Glovebox sessions, which are secrets, are in no row: other numbers stand for them."""

import json
from pathlib import Path
from random import Random

import pytest
from spark.histories import PUSHERS, History
from spark.lake_runs import read_in

from taskyard.engine.state import FIRST_SESSION
from taskyard.journal.describe import stand_in
from taskyard.pipeline.lake.snapshot import open_lake
from taskyard.pipeline.ranges import open_journal

SESSION = FIRST_SESSION | 0x1234_5678_9ABC_DEF1
OTHER = FIRST_SESSION | 0x0FED_CBA9_8765_4321


@pytest.fixture
def history(tmp_path: Path) -> History:
    (tmp_path / "data").mkdir()
    history = History(tmp_path / "data", Random(1))
    for session in (SESSION, OTHER):
        history.engine.open_session(session, PUSHERS[0], history.now)
    history.engine.detach_session(SESSION, PUSHERS[0], history.now)
    history.write()
    history.close()
    return history


def test_a_lake_has_other_numbers_for_sessions(history: History, tmp_path: Path) -> None:
    read_in(tmp_path / "data", tmp_path / "lake")
    rows = open_lake(tmp_path / "lake").arrow("events").to_pylist()
    found = [json.loads(row["details"])["id"] for row in rows if row["event"] == "session"]
    salt = open_journal(str(tmp_path / "data")).salt()
    assert found
    assert set(found) == {stand_in(salt, SESSION), stand_in(salt, OTHER)}
    for secret in (SESSION, OTHER):
        assert str(secret) not in str(rows)
