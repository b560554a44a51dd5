"""Dramatiq: Lua scripts on Redis that fetch many and acknowledge one; no middleware."""

import importlib
from typing import Any

from benchmarks.frameworks.programs.settings import redis_url
from benchmarks.frameworks.programs.tally import run

_dramatiq: Any = importlib.import_module("dramatiq")
_redis: Any = importlib.import_module("dramatiq.brokers.redis")
broker: Any = _redis.RedisBroker(url=redis_url(), middleware=[])
_dramatiq.set_broker(broker)
noop: Any = _dramatiq.actor(run, actor_name="noop")


def push_each(count: int) -> None:
    for _ in range(count):
        noop.send()
