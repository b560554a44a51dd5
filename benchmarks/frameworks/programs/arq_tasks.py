"""arq: a sorted set of Redis that is polled, coroutines, no results."""

import asyncio
import importlib
import os
from typing import Any

from benchmarks.frameworks.programs.settings import PORT
from benchmarks.frameworks.programs.tally import run_async

_arq: Any = importlib.import_module("arq")
_connections: Any = importlib.import_module("arq.connections")

TOGETHER = 100


async def noop(context: dict[str, Any]) -> None:
    await run_async()


class WorkerSettings:
    redis_settings = _connections.RedisSettings(port=int(os.environ.get(PORT, "6379")))
    functions = (_arq.func(noop, keep_result=0),)
    max_jobs = int(os.environ.get("ARQ_JOBS", "1000"))
    poll_delay = 0.001
    queue_read_limit = 1000


def push_each(count: int) -> None:
    asyncio.run(_push(count, 1))


def push_many(count: int) -> None:
    asyncio.run(_push(count, TOGETHER))


async def _push(count: int, together: int) -> None:
    pool = await _arq.create_pool(WorkerSettings.redis_settings)
    for first in range(0, count, together):
        pushes = [pool.enqueue_job("noop") for _ in range(min(together, count - first))]
        if together == 1:
            await pushes[0]
        else:
            await asyncio.gather(*pushes)
    await pool.aclose()
