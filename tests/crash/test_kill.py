"""kill -9 of a real server under load, again and again: what was acknowledged is there."""

from functools import partial
from pathlib import Path
from random import Random

import pytest
from support.ledger import Ledger
from support.load_storm import drain, masenko_storm
from support.process import WarmServer

ROUNDS = 8
SMALL_SEGMENTS = ("--segment-size", "256KiB", "--payload-limit", "64KiB")


@pytest.mark.parametrize("mode", ["inline", "thread"])
def test_what_was_acknowledged_survives_a_kill_under_load(tmp_path: Path, mode: str) -> None:
    chance = Random(mode)
    ledger = Ledger()
    server = WarmServer(tmp_path, "--sync-mode", mode, *SMALL_SEGMENTS)
    with server:
        for number in range(ROUNDS):
            storm = masenko_storm(server.address(), ledger, chance, f"round{number}", clients=6)
            storm.rage(chance.randint(1, 1000), server.kill)
            ledger.crashed()
            server.restart()
        drain(server.address(), ledger)
        ledger.check()
        assert server.stop() == 0


def test_what_was_acknowledged_survives_a_kill_in_write_mode(tmp_path: Path) -> None:
    chance = Random("write")
    ledger = Ledger()
    server = WarmServer(tmp_path, "--durability", "write", *SMALL_SEGMENTS)
    with server:
        for number in range(ROUNDS // 2):
            storm = masenko_storm(server.address(), ledger, chance, f"round{number}", clients=6)
            storm.rage(chance.randint(1, 1000), server.kill)
            ledger.crashed()
            server.restart()
        drain(server.address(), ledger)
        ledger.check()


def test_a_stop_under_load_is_clean_and_loses_nothing(tmp_path: Path) -> None:
    chance = Random("stop")
    ledger = Ledger()
    codes: list[int] = []
    server = WarmServer(tmp_path, *SMALL_SEGMENTS)
    with server:
        for number in range(ROUNDS // 2):
            storm = masenko_storm(server.address(), ledger, chance, f"round{number}", clients=6)
            storm.rage(chance.randint(1, 1000), lambda: codes.append(server.stop()))
            ledger.crashed()  # what was held goes back without a failure, as after a crash
            assert "torn tail" not in server.log_text()
            server.restart()
        drain(server.address(), ledger)
        ledger.check()
    assert codes == [0] * (ROUNDS // 2)


def has_lock(server: WarmServer) -> bool:
    """Whether the server is about to read its journal."""
    lock = server.data / "lock"
    return lock.read_text().strip() == str(server.pid)


def has_new_segment(server: WarmServer, before: int) -> bool:
    """Or is past that: one that was killed too late to be reading its journal has left a segment
    with nothing in it, and that of the next takes its place."""
    return segments(server) > before or "listening" in server.log_text()


def segments(server: WarmServer) -> int:
    return len(list((server.data / "journal").glob("*.seg")))


def test_a_kill_during_recovery_and_right_after_it_changes_nothing(tmp_path: Path) -> None:
    chance = Random("recovery")
    ledger = Ledger()
    server = WarmServer(tmp_path, *SMALL_SEGMENTS)
    with server:
        storm = masenko_storm(server.address(), ledger, chance, "first", clients=6)
        storm.rage(2500, server.kill)
        ledger.crashed()
        for number in range(4):
            server.start()
            server.wait_for(partial(has_lock, server))
            server.kill()
            before = segments(server)
            server.start()
            server.wait_for(partial(has_new_segment, server, before))
            server.kill()
            server.start()
            server.wait_for(lambda: "listening" in server.log_text())
            server.kill()
            server.restart()
            storm = masenko_storm(server.address(), ledger, chance, f"again{number}", clients=2)
            storm.rage(1, server.kill)
            ledger.crashed()
        server.restart()
        drain(server.address(), ledger)
        ledger.check()
