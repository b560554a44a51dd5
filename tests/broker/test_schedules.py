"""Schedules of a whole server that fails at any moment: each tick has come to something, once."""

from collections import Counter
from random import Random

import pytest
from support.api import ApiClient
from support.crashing import break_disk, make_yard
from support.effort import effort
from support.simulated import SimulatedServer

from taskyard.engine.model.job import SECOND
from taskyard.engine.records.entities import ScheduleTick
from taskyard.engine.records.job_lifecycle import PushRecord
from taskyard.journal.identity import JOURNAL
from taskyard.journal.reader import JournalReader

SEEDS = effort(60, 20)
EVERY = {"a": 3, "b": 7, "c": 60}  # seconds


def set_up(yard: SimulatedServer) -> dict[str, int]:
    """Schedules, and from when on their ticks are counted."""
    api = ApiClient(yard)
    since = {}
    for name, every in EVERY.items():
        body = {"queue": "q", "every": every, "payload": "x" * 200, "overlap": "allow"}
        api.call("PUT", f"/api/v1/schedules/{name}", body).ok()
        since[name] = yard.engine.state.schedules[name].since
    return since


def live(yard: SimulatedServer, chance: Random) -> None:
    """Time passes, jobs are done, and the disk takes its time."""
    for _ in range(chance.randint(1, 30)):
        what = chance.random()
        if what < 0.6:
            yard.advance(chance.choice([0.01, 0.5, 2.0, 11.0]))
        elif what < 0.75:
            worker = yard.connect("resp")
            worker.arrive(b"LPOP q 9\r\n")
            yard.scheduler.step()
        elif yard.scheduler.blocking:
            yard.scheduler.finish_blocking()
        else:
            yard.scheduler.step()


def check(yard: SimulatedServer, since: dict[str, int]) -> None:
    """Each tick up to now has run, or was missed and counted; and no two jobs are of one tick."""
    yard.scheduler.slow = False
    yard.run_pending()
    yard.advance(0.001)
    for name, start in since.items():
        schedule = yard.engine.state.schedules[name]
        ticks = (yard.clock.now() - start) // (EVERY[name] * SECOND)
        assert schedule.runs + schedule.missed == ticks, name
        assert schedule.skipped == 0


@pytest.mark.parametrize("seed", range(SEEDS))
def test_no_tick_is_lost_or_doubled_by_power_cuts(seed: int) -> None:
    chance = Random(seed)
    yard = make_yard(chance, seed)
    since = set_up(yard)
    for _ in range(4):
        yard.scheduler.slow = chance.random() < 0.7
        if seed % 3 == 0:
            break_disk(yard, chance)
        live(yard, chance)
        if chance.random() < 0.3:
            yard.clock.time += chance.choice([5, 100, 4000]) * SECOND  # it stays down for a while
        yard.crash(chance)
        check(yard, since)
    check_journal(yard)


def check_journal(yard: SimulatedServer) -> None:
    """As far as the journal still goes back: each run has its push, each push its run."""
    yard.stop()
    entries = JournalReader(yard.disk.directory(JOURNAL)).read()
    records = [entry.record for entry in entries]
    pushed = [record.id for record in records if isinstance(record, PushRecord)]
    ran = [record.job for record in records if isinstance(record, ScheduleTick)]
    assert ran == pushed
    due = Counter((r.name, r.due) for r in records if isinstance(r, ScheduleTick))
    assert set(due.values()) <= {1}
