"""A server for the tests of the clients, and a client of either kind."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest
from client.both import KINDS, open_client
from support.process import WarmServer

from taskyard import Client

_numbers = itertools.count(1)


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WarmServer]:
    """One process for all tests; they use queues of their own."""
    with WarmServer(tmp_path_factory.mktemp("server")) as running:
        yield running
        assert "Traceback" not in running.log_text()


@pytest.fixture
def url(server: WarmServer) -> str:
    return "taskyard://{}:{}".format(*server.address("resp"))


@pytest.fixture
def queue() -> str:
    return f"queue-{next(_numbers)}"


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def client(kind: str, url: str) -> Iterator[Client]:
    with open_client(kind, url) as found:
        yield found
