"""What a consumer refuses before it has connected."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from taskyard.toq import Consumer, Producer, Task

URL = "taskyard://127.0.0.1:1"


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"concurrency": 0}, "concurrency must be at least 1"),
        ({"prefetch": -1}, "prefetch not negative"),
        ({"pool": "fibers"}, "threads, processes or async, not 'fibers'"),
        ({"lease": 0}, "lease needs"),
        ({"result_ttl": 0.5}, "result_ttl 1"),
        ({"queues": []}, "at least one queue"),
    ],
)
def test_options_that_make_no_sense_are_refused(options: dict[str, Any], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        Consumer(URL, **{"queues": "a", **options})


@pytest.mark.parametrize("url", ["http://127.0.0.1", "127.0.0.1:8002", ""])
def test_a_url_of_something_else_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match="must begin with taskyard://"):
        Producer(url)
    with pytest.raises(ValueError, match="must begin with taskyard://"):
        Consumer(url, "a").run()


async def coroutine(task: Task) -> None:
    pass


def test_a_coroutine_function_needs_the_pool_for_it() -> None:
    with pytest.raises(TypeError, match="the worker of 'a' is a coroutine function"):
        Consumer(URL, "a").register("a", coroutine)
    assert Consumer(URL, "a", pool="async").register("a", coroutine) is coroutine


def test_a_worker_that_another_process_cannot_import_is_refused() -> None:
    consumer = Consumer(URL, "a", pool="processes")
    consumer.register("a", lambda task: None)
    with pytest.raises(TypeError, match=r"cannot be run in another process: .*lambda"):
        consumer.run()


def test_register_is_a_decorator_too() -> None:
    consumer = Consumer(URL, "a")

    @consumer.register("a")
    def work(task: Task) -> int:
        return 1

    assert work(Task(key="a")) == 1


def test_redis_without_its_package_is_refused_with_the_remedy(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "redis", None)
    monkeypatch.delitem(sys.modules, "taskyard.toq.backends.redis", raising=False)
    with pytest.raises(ImportError, match=r"pip install 'taskyard\[redis\]'"):
        Producer("redis://127.0.0.1:1")
