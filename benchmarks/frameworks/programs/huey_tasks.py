"""Huey: a list of Redis, taken from with BRPOP; a task is gone when it is taken."""

import importlib
from typing import Any

from benchmarks.frameworks.programs.settings import redis_url
from benchmarks.frameworks.programs.tally import run

_huey: Any = importlib.import_module("huey")
huey: Any = _huey.RedisHuey("bench", url=redis_url(), results=False)
noop: Any = huey.task()(run)


def push_each(count: int) -> None:
    for _ in range(count):
        noop()
