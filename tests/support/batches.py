"""Batches from the first chunk to the last, for tests that do not care about what is between."""

from __future__ import annotations

from taskyard.engine.model.job import Job, Origin
from taskyard.engine.operations.batches import MAX_BATCH_JOBS, BatchRequest
from taskyard.engine.operations.facade import Engine


def lease_all(
    engine: Engine,
    consumer: str,
    number: int,
    queues: list[bytes],
    limit: int,
    ttr: int,
    origin: Origin,
    now: int,
) -> list[Job]:
    """The jobs of the batch that the consumer holds now."""
    request = BatchRequest(consumer, number, queues, limit, ttr, origin)
    while not engine.lease_batch(request, now):
        pass
    if not request.count:
        return []
    held = engine.read_batch(consumer, request.result_number, 0, MAX_BATCH_JOBS, now)
    assert len(held) == request.count
    return [job for job in held if job is not None]


def ack_all(engine: Engine, consumer: str, upto: int, origin: Origin, now: int) -> None:
    while not engine.ack_batch(consumer, upto, origin, now):
        pass


def drop_all(engine: Engine, consumer: str, origin: Origin, now: int) -> None:
    while not engine.drop_consumer(consumer, origin, now):
        pass
