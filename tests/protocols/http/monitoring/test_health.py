"""/healthz says that the process is up, /readyz whether it takes writes and else why not."""

import json
from typing import Any

import pytest
from support.exchanges import get
from support.simulated import SimulatedServer
from support.wire import exchange

from taskyard.journal.memory import MemoryDisk
from taskyard.protocols.http.monitoring.metrics import Health

SIZE = 1 << 16
PUSH = b'PUSH {"name":"a","payload":"%b"}\n' % (b"x" * 1000)


def ask(health: Health, path: str) -> tuple[int, dict[str, Any]]:
    response = get(health.routes(), path).answer()
    kind = "application/json" if response.status == 200 else "application/problem+json"
    assert response.content_type == kind
    return response.status, json.loads(response.body)


@pytest.fixture
def small() -> SimulatedServer:
    """One whose disk has room for three segments."""
    disk = MemoryDisk()
    disk.set_capacity(3 * SIZE + 1000)
    return SimulatedServer(1000.0, spare=True, disk=disk, segment_size=SIZE)


def fill(yard: SimulatedServer) -> None:
    peer = yard.connect()
    while True:
        peer.send(PUSH)
        if not peer.read_line().startswith(b"OK"):
            return


def test_a_server_that_takes_writes_is_up_and_ready() -> None:
    health = Health(SimulatedServer().broker)
    assert ask(health, "/healthz") == (200, {"status": "up"})
    assert ask(health, "/readyz") == (200, {"status": "ready"})


def test_a_server_that_cannot_write_is_up_and_not_ready() -> None:
    yard = SimulatedServer()
    health = Health(yard.broker)
    yard.disk.fail_call("sync")
    yard.connect().send(b'PUSH {"name":"a"}\n')
    status, problem = ask(health, "/readyz")
    assert status == 503
    assert problem["status"] == 503
    assert problem["reason"] == "read-only"
    assert "injected into sync" in problem["detail"]
    assert ask(health, "/healthz")[0] == 200
    yard.restart()
    assert ask(Health(yard.broker), "/readyz")[0] == 200


def test_a_full_disk_makes_it_unready_until_there_is_room(small: SimulatedServer) -> None:
    health = Health(small.broker)
    fill(small)
    status, problem = ask(health, "/readyz")
    assert status == 503
    assert problem["reason"] == "no-space"
    assert problem["detail"].endswith("No space left on device")
    assert ask(health, "/healthz")[0] == 200
    small.disk.set_capacity(100 * SIZE)
    small.advance(2)
    assert ask(health, "/readyz") == (200, {"status": "ready"})
    peer = small.connect()
    exchange(peer, b"PING\n", b"PONG {}\n")


def test_a_server_that_stops_is_not_ready() -> None:
    health = Health(SimulatedServer().broker)
    health.stopping = True
    status, problem = ask(health, "/readyz")
    assert (status, problem["reason"]) == (503, "shutting-down")
    assert ask(health, "/healthz")[0] == 200
