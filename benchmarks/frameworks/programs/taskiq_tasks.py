"""taskiq: a list or a stream of Redis, coroutines, no results."""

import asyncio
import importlib
import os
from typing import Any

from benchmarks.frameworks.programs.settings import redis_url
from benchmarks.frameworks.programs.tally import run_async

_redis: Any = importlib.import_module("taskiq_redis")
_serializers: Any = importlib.import_module("taskiq.serializers.orjson_serializer")

TOGETHER = 100
"""Pushes that are under way at once: there is no call for many."""


def make_broker() -> Any:
    if os.environ.get("TASKIQ_STREAM"):
        made = _redis.RedisStreamBroker(redis_url(), consumer_id="0", max_connection_pool_size=200)
    else:
        made = _redis.ListQueueBroker(redis_url(), max_connection_pool_size=200)
    return made.with_serializer(_serializers.ORJSONSerializer())


broker: Any = make_broker()
noop: Any = broker.task(task_name="noop")(run_async)


def push_each(count: int) -> None:
    asyncio.run(_push(count, 1))


def push_many(count: int) -> None:
    asyncio.run(_push(count, TOGETHER))


async def _push(count: int, together: int) -> None:
    await broker.startup()
    for first in range(0, count, together):
        pushes = [noop.kiq() for _ in range(min(together, count - first))]
        if together == 1:
            await pushes[0]
        else:
            await asyncio.gather(*pushes)
    await broker.shutdown()
