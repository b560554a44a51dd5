"""What tests of several packages share."""

from collections.abc import Iterator

import pytest
from support.redis_server import RedisServer


@pytest.fixture(scope="session")
def redis_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    """A real Redis that keeps nothing; whoever uses it begins with FLUSHALL."""
    with RedisServer(tmp_path_factory.mktemp("redis")) as server:
        yield server
