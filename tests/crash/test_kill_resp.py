"""kill -9 of a real server under the load of RESP clients: what they were told is so."""

from pathlib import Path
from random import Random

from support.load_resp import Crowd, Loners
from support.load_storm import Door, SocketStorm
from support.process import WarmServer

ROUNDS = 3
LARGEST = 2000
SMALL_SEGMENTS = ("--segment-size", "256KiB", "--payload-limit", "64KiB")


def test_what_lone_clients_were_told_survives_a_kill(tmp_path: Path) -> None:
    """RPUSH and LPOP, UPDATE and NEXT, SETEX and GET, each against the model of its client."""
    chance = Random("lone")
    loners = Loners(chance, LARGEST)
    server = WarmServer(tmp_path, "--sync-mode", "thread", *SMALL_SEGMENTS)
    with server:
        for number in range(ROUNDS):
            door = Door(server.address("resp"), loners.meet)
            storm = SocketStorm([door], chance, f"round{number}", clients=6)
            storm.rage(chance.randint(1, 800), server.kill)
            server.restart()
            loners.look(server.connect("resp"))
        loners.empty(server.connect("resp"))
        assert server.stop() == 0


def test_what_clients_were_told_of_shared_jobs_survives_a_kill(tmp_path: Path) -> None:
    """RPUSH and BLPOP, JOB.PUSH, JOB.TAKE and what ends a lease, all on the same queues."""
    chance = Random("shared")
    crowd = Crowd(chance, LARGEST)
    server = WarmServer(tmp_path, "--sync-mode", "inline", *SMALL_SEGMENTS)
    with server:
        for number in range(ROUNDS):
            door = Door(server.address("resp"), crowd.meet)
            storm = SocketStorm([door], chance, f"round{number}", clients=8)
            storm.rage(chance.randint(1, 800), server.kill)
            crowd.crashed(leases_end=False)
            server.restart()
        crowd.take_everything(server.connect("resp"))
        assert server.stop() == 0
