"""kill -9 of a server under the load of all protocols at once, again and again."""

from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from random import Random

import pytest
from support.effort import effort
from support.faults.crowds import FLAGS
from support.faults.run import under_load
from support.process import WarmServer

KILLS = effort(20, 4)
REPLIES = 600  # between two kills, at most
SMALL_SEGMENTS = ("--segment-size", "64KiB", "--payload-limit", "16KiB")
MODES = {
    "inline": ("--sync-mode", "inline"),
    "thread": ("--sync-mode", "thread"),
    "write": ("--durability", "write"),
}


@pytest.mark.parametrize("mode", list(MODES))
def test_nothing_is_lost_by_kills_under_the_load_of_all_dialects(
    tmp_path: Path, chance: Random, tally: Counter[str], mode: str
) -> None:
    with (
        WarmServer(tmp_path, *MODES[mode], *FLAGS, *SMALL_SEGMENTS) as server,
        under_load(server, chance, tally) as run,
    ):
        for _ in range(KILLS):
            run.wait(chance.randint(1, REPLIES))
            run.kill()
            for _ in range(chance.choice([0, 0, 1, 2])):
                kill_while_it_starts(server, chance)
                tally["kills during recovery"] += 1
            run.again()
            tally[f"kills ({mode})"] += 1


def kill_while_it_starts(server: WarmServer, chance: Random) -> None:
    """When the lock is its, when it has read its journal, or when it listens."""
    server.start()
    moments: list[Callable[[], bool]] = [
        partial(has_lock, server),
        lambda: "journal recovered" in server.log_text(),
        lambda: "listening" in server.log_text(),
    ]
    server.wait_for(chance.choice(moments))
    server.kill()


def has_lock(server: WarmServer) -> bool:
    return (server.data / "lock").read_text().strip() == str(server.pid)
