"""The servers of the conformance suite: simulated and interrupted in three ways, or a real one."""

from collections.abc import Iterator

import pytest
from protocols.interop.cases import spread
from protocols.interop.world import TimedWorld, World, socket_world
from support.simulated import SimulatedServer
from support.sockets import SocketWire

INTERRUPTIONS = ("steady", "restart", "crash")
WORLDS = {"world": INTERRUPTIONS, "any_world": (*INTERRUPTIONS, "socket")}


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "cases(property): the dialects of interop/cases.py")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    spread(metafunc, WORLDS)


@pytest.fixture
def world(request: pytest.FixtureRequest) -> TimedWorld:
    """A fresh server with a clock to move, that runs on, is restarted or crashes in between."""
    return TimedWorld(SimulatedServer(), request.param)


@pytest.fixture
def steady_world() -> TimedWorld:
    """A fresh server with a clock to move, that runs on unless a test interrupts it."""
    return TimedWorld(SimulatedServer())


@pytest.fixture
def any_world(request: pytest.FixtureRequest) -> Iterator[World]:
    """The same for tests that need no clock, and a real server that others of the module use."""
    if request.param != "socket":
        yield TimedWorld(SimulatedServer(), request.param)
        return
    server: SocketWire = request.getfixturevalue("socket_server")
    yield socket_world(server)
    server.hang_up()


@pytest.fixture(scope="module")
def socket_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SocketWire]:
    """One server process for all tests of a module."""
    with SocketWire(tmp_path_factory.mktemp("server")) as server:
        yield server
