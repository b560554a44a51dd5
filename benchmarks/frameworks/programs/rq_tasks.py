"""RQ: a hash for each job and a list of their ids; results and failures are not kept."""

import importlib
from typing import Any

from benchmarks.frameworks.programs.settings import redis_url
from benchmarks.frameworks.programs.tally import run

_rq: Any = importlib.import_module("rq")
_redis: Any = importlib.import_module("redis")
queue: Any = _rq.Queue(connection=_redis.Redis.from_url(redis_url()), default_timeout=-1)

TOGETHER = 1000


def push_each(count: int) -> None:
    for _ in range(count):
        queue.enqueue(run, result_ttl=0)


def push_many(count: int) -> None:
    for first in range(0, count, TOGETHER):
        some = range(first, min(first + TOGETHER, count))
        queue.enqueue_many([queue.prepare_data(run, result_ttl=0) for _ in some])
