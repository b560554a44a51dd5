"""Clients of RESP, the API and Glovebox whose connections break at any byte, over crashes.

Unlike in the storms of all protocols, bytes stay unread for a while, and are lost with a
connection.
"""

from __future__ import annotations

import pytest
from support.drill.api import ApiClients
from support.drill.glovebox import GloveboxClients
from support.drill.rehearsal import Kind, SimulatedRun
from support.drill.resp import RespClients
from support.drill.resp_alone import LoneRespClients
from support.effort import effort

SEEDS = effort(8, 4)


@pytest.mark.parametrize("disk_fails", [False, True])
@pytest.mark.parametrize("seed", range(SEEDS))
def test_what_was_told_over_broken_connections_is_true(seed: int, disk_fails: bool) -> None:
    run = SimulatedRun(seed, disk_fails=disk_fails)
    run.kinds = [
        Kind("resp", RespClients(run.book, run.chance, run.habits)),
        Kind("resp", LoneRespClients(run.chance, run.habits)),
        Kind("api", ApiClients(run.book, run.chance, run.habits, narrows=True)),
        Kind("glovebox", GloveboxClients(run.book, run.chance, run.habits)),
    ]
    told = run.run()
    assert told.crashes == 4
