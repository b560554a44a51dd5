"""What toq needs of a broker, and which one a URL means."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol
from urllib.parse import urlsplit

from taskyard.client.source import Source
from taskyard.toq.messages import Countdown, Task

RESULT_KEY = "toq:rst:"  # and the id of the task


class Backend(Protocol):
    """A broker as producers see it. All methods may raise Unavailable and Refused."""

    def push(self, queue: str, tasks: Sequence[Task], countdown: Countdown) -> None:
        """Put them at the end of a queue."""

    def result(self, task_id: str) -> bytes | None:
        """The stored JSON, if it is there."""

    def close(self) -> None: ...


def open_backend(url: str, patience: float) -> Backend:
    """For a producer. `patience`: seconds in which a server that is away is waited for."""
    if _is_redis(url):
        from taskyard.toq.backends.redis import RedisBackend

        return RedisBackend(url, patience)
    from taskyard.toq.backends.taskyard import TaskyardBackend

    return TaskyardBackend(url, patience)


def open_source(url: str, queues: Sequence[str], lease: float, result_ttl: float) -> Source:
    """For a consumer of these queues."""
    if _is_redis(url):
        from taskyard.toq.backends.redis import RedisSource

        return RedisSource(url, queues, lease, result_ttl)
    from taskyard.toq.backends.taskyard import TaskyardSource

    return TaskyardSource(url, queues, lease, result_ttl)


def _is_redis(url: str) -> bool:
    scheme = urlsplit(url).scheme
    if scheme not in {"taskyard", "redis", "rediss", "unix"}:
        raise ValueError("the URL must begin with taskyard://, redis://, rediss:// or unix://")
    return scheme != "taskyard"
