"""Workers of toq for the tests of workers on Spark."""

from __future__ import annotations

from taskyard.toq import Consumer, Task


def add(task: Task) -> int:
    a, b = task.arguments()
    return int(a + b)


def fail(task: Task) -> None:
    [value] = task.arguments()
    raise ValueError(value)


def consumer(url: str) -> Consumer:
    found = Consumer(url, "toq-crew")
    found.register("add", add)
    found.register("fail", fail)
    return found
