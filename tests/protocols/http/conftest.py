"""A server for the clients of a module, who speak Glovebox to it in both encodings."""

from collections.abc import Callable, Iterator

import pytest
from support.glovebox_socket import Talker, new_queue
from support.process import WarmServer

Connect = Callable[..., Talker]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WarmServer]:
    with WarmServer(tmp_path_factory.mktemp("server")) as running:
        yield running
        assert running.stop() == 0
        assert "Traceback" not in running.log_text()


@pytest.fixture(params=[False, True], ids=["json", "bincode"])
def binary(request: pytest.FixtureRequest) -> bool:
    encoding: bool = request.param
    return encoding


@pytest.fixture
def join(server: WarmServer, binary: bool) -> Iterator[Connect]:
    """Connects further clients."""
    clients: list[Talker] = []

    def connect(**headers: str) -> Talker:
        clients.append(Talker(server.address("http"), binary, **headers))
        return clients[-1]

    yield connect
    for client in clients:
        client.vanish()


@pytest.fixture
def client(join: Connect) -> Talker:
    return join()


@pytest.fixture
def queue(client: Talker) -> str:
    """One that nobody else uses."""
    name = new_queue()
    client.create(name, retries=1)
    return name
