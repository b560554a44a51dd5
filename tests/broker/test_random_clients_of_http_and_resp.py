"""Clients of RESP, the API and Glovebox whose connections break at any byte, over crashes.

Unlike in the storms of all dialects, bytes stay unread for a while, and are lost with a connection.
"""

from __future__ import annotations

import pytest
from support.drill.api import ApiPeople
from support.drill.glovebox import GloveboxPeople
from support.drill.rehearsal import Kind, Rehearsal
from support.drill.resp import RespPeople
from support.drill.resp_alone import AlonePeople
from support.effort import effort

SEEDS = effort(8, 4)


@pytest.mark.parametrize("disk_fails", [False, True])
@pytest.mark.parametrize("seed", range(SEEDS))
def test_what_was_told_over_broken_connections_is_true(seed: int, disk_fails: bool) -> None:
    run = Rehearsal(seed, disk_fails=disk_fails)
    run.kinds = [
        Kind("resp", RespPeople(run.book, run.chance, run.habits)),
        Kind("resp", AlonePeople(run.chance, run.habits)),
        Kind("api", ApiPeople(run.book, run.chance, run.habits, narrows=True)),
        Kind("glovebox", GloveboxPeople(run.book, run.chance, run.habits)),
    ]
    told = run.run()
    assert told.crashes == 4
