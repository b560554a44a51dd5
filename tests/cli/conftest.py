"""What the tests of commands share: a server that runs, and the command that talks to it.

The queues of a test are its own, by name.
"""

from collections.abc import Iterator

import pytest
from support.process import WarmServer
from support.tool import Tool


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WarmServer]:
    with WarmServer(tmp_path_factory.mktemp("commands")) as process:
        yield process
        assert "Traceback" not in process.log_text()


@pytest.fixture(scope="session")
def tool(server: WarmServer) -> Tool:
    host, port = server.address("resp")
    return Tool(f"taskyard://{host}:{port}")


@pytest.fixture
def queue(request: pytest.FixtureRequest) -> str:
    """The name of a queue of this test alone."""
    return str(request.node.name).replace("[", "-").replace("]", "")[:200]
