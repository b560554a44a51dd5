"""What tests of several packages share."""

from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings
from support.effort import EFFORT, LONG, effort
from support.redis_server import RedisServer

# What depends on how busy the machine is fails by chance: no deadlines, and no judging of how long
# the drawing of examples takes.
settings.register_profile(
    EFFORT,
    max_examples=effort(100, 40),
    derandomize=not LONG,
    deadline=None,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
settings.load_profile(EFFORT)


@pytest.fixture(scope="session")
def redis_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    """A real Redis that keeps nothing; whoever uses it begins with FLUSHALL."""
    with RedisServer(tmp_path_factory.mktemp("redis")) as server:
        yield server
