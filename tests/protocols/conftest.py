"""The servers that wire tests talk to: simulated with a fake clock, or real over sockets."""

from collections.abc import Iterator

import pytest
from support.effort import LONG, PLAIN
from support.simulated import SimulatedServer
from support.sockets import SocketWire
from support.wire import SimulatedWire, Wire

# Sockets are the same in both forms: with quick effort the compiled one alone is asked over them.
KINDS = ["simulated", "socket"] if LONG or not PLAIN else ["simulated"]


@pytest.fixture
def yard() -> SimulatedWire:
    """A fresh server whose clock the test moves."""
    return SimulatedServer()


@pytest.fixture(params=KINDS)
def wire(request: pytest.FixtureRequest) -> Wire:
    """A fresh server of either kind, for tests that need no clock; its first id is 1."""
    fixture = {"simulated": "yard", "socket": "socket_server"}[request.param]
    server: Wire = request.getfixturevalue(fixture)
    return server


@pytest.fixture(params=KINDS)
def shared_wire(request: pytest.FixtureRequest) -> Iterator[Wire]:
    """A server of either kind whose queues and ids other tests of the module may have used."""
    if request.param == "simulated":
        yield SimulatedServer()
        return
    server: SocketWire = request.getfixturevalue("module_socket_server")
    yield server
    server.hang_up()


@pytest.fixture
def socket_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SocketWire]:
    """A fresh server process."""
    with SocketWire(tmp_path_factory.mktemp("server")) as server:
        yield server


@pytest.fixture(scope="module")
def module_socket_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SocketWire]:
    """One server process for all tests of a module."""
    with SocketWire(tmp_path_factory.mktemp("server")) as server:
        yield server
