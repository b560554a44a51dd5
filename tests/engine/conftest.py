"""The bench that the engine's tests work at."""

import pytest
from engine.harness import Bench


@pytest.fixture
def bench() -> Bench:
    """An engine with no queues yet, just started."""
    return Bench()
