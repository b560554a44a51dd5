"""One server process for the tests of this folder; those that kill it have one of their own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tasks import yard
from toq.brokers import Running, TaskyardBroker


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with Running(TaskyardBroker(tmp_path_factory.mktemp("tasks-server"))) as running:
        yield running


@pytest.fixture
def own_server(tmp_path: Path) -> Iterator[Running]:
    (tmp_path / "server").mkdir()
    with Running(TaskyardBroker(tmp_path / "server")) as running:
        yield running


@pytest.fixture
def app(server: Running) -> Iterator[None]:
    """The app of yard.py pushes to the server."""
    yard.app.url = server.url
    yield
    yard.app.close()
