"""One suite for both back ends: `running` is a broker of either kind."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest
from toq.brokers import BROKERS, Running
from toq.consumers import Consumers, PatientProducer

from taskyard.toq import Producer

_numbers = itertools.count(1)


@pytest.fixture(scope="session", params=list(BROKERS))
def running(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Running]:
    """One process of each kind for all tests; they use queues of their own."""
    broker = BROKERS[request.param](tmp_path_factory.mktemp(request.param))
    with Running(broker) as server:
        yield server


@pytest.fixture
def queue() -> str:
    return f"queue-{next(_numbers)}"


@pytest.fixture
def producer(running: Running) -> Iterator[Producer]:
    with PatientProducer(running.url) as found:
        yield found


@pytest.fixture
def consumers() -> Iterator[Consumers]:
    """Starts consumers in threads, and stops them."""
    with Consumers() as found:
        yield found
