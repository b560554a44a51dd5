"""kill -9 of a real server under the load of Workq clients: what was acknowledged is there."""

from pathlib import Path
from random import Random

import pytest
from support.ledger_workq import Ledger
from support.process import WarmServer
from support.storm_workq import mixed_storm, take_everything, workq_storm

ROUNDS = 4
SMALL_SEGMENTS = ("--segment-size", "256KiB", "--payload-limit", "64KiB")


@pytest.mark.parametrize(
    "flags",
    [
        ("--sync-mode", "inline"),
        ("--sync-mode", "thread"),
        ("--durability", "write"),
    ],
)
def test_what_was_acknowledged_survives_a_kill_under_load(
    tmp_path: Path, flags: tuple[str, ...]
) -> None:
    chance = Random(str(flags))
    ledger = Ledger()
    server = WarmServer(tmp_path, *flags, *SMALL_SEGMENTS)
    with server:
        for number in range(ROUNDS):
            address = server.address("workq")
            storm = workq_storm(address, ledger, chance, f"round{number}", clients=6)
            storm.rage(chance.randint(1, 800), server.kill)
            ledger.crashed()
            server.restart()
        take_everything(server.address("workq"), ledger)
        ledger.check()
        assert server.stop() == 0


def test_jobs_survive_a_kill_under_workers_of_two_dialects(tmp_path: Path) -> None:
    chance = Random("mixed")
    ledger = Ledger()
    server = WarmServer(tmp_path, *SMALL_SEGMENTS)
    with server:
        for number in range(ROUNDS):
            storm = mixed_storm(server, ledger, chance, f"round{number}", clients=8)
            storm.rage(chance.randint(1, 800), server.kill)
            ledger.crashed()
            server.restart()
        take_everything(server.address("workq"), ledger)
        ledger.check()


def test_a_stop_under_load_is_clean_and_loses_nothing(tmp_path: Path) -> None:
    chance = Random("stop")
    ledger = Ledger()
    codes: list[int] = []
    server = WarmServer(tmp_path, *SMALL_SEGMENTS)
    with server:
        for number in range(ROUNDS // 2):
            address = server.address("workq")
            storm = workq_storm(address, ledger, chance, f"round{number}", clients=6)
            storm.rage(chance.randint(1, 800), lambda: codes.append(server.stop()))
            ledger.crashed()  # leases of some time go on, and nobody waits for them here
            assert "torn tail" not in server.log_text()
            server.restart()
        take_everything(server.address("workq"), ledger)
        ledger.check()
    assert codes == [0] * (ROUNDS // 2)
