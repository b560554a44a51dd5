"""Ids of Glovebox sessions, which are secrets, are in no row: other numbers stand for them."""

import json
from pathlib import Path
from random import Random

from spark.histories import PUSHERS, History
from spark.lake_runs import fill

from taskyard.engine.state import FIRST_SESSION
from taskyard.journal.describe import stand_in
from taskyard.pipeline.journal import open_journal
from taskyard.pipeline.lake.snapshot import open_lake

SESSION = FIRST_SESSION | 0x1234_5678_9ABC_DEF1
OTHER = FIRST_SESSION | 0x0FED_CBA9_8765_4321


def test_a_lake_has_other_numbers_for_sessions(tmp_path: Path) -> None:
    data, lake = tmp_path / "data", tmp_path / "lake"
    history = History(data, Random(1))
    for session in (SESSION, OTHER):
        history.engine.open_session(session, PUSHERS[0], history.now)
    history.engine.detach_session(SESSION, PUSHERS[0], history.now)
    history.close()
    fill(data, lake)
    rows = open_lake(lake).arrow("events").to_pylist()
    found = {json.loads(row["details"])["id"] for row in rows if row["event"] == "session"}
    salt = open_journal(str(data)).salt()
    assert found == {stand_in(salt, SESSION), stand_in(salt, OTHER)}
    for secret in (SESSION, OTHER):
        assert str(secret) not in str(rows)
