"""Consumers in threads of the test, and in processes that can be killed; and a producer."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from support.child import Child
from support.sockets import HANG_GUARD

from taskyard.toq import Consumer, Countdown, Producer, Result, Task

QUICK = Countdown(first=0.01, factor=1.0, most=0.01)
PROGRAM = Path(__file__).with_name("consumer_program.py")


class PatientProducer(Producer):
    """Waits for a result for as long as a disk that stands still may take, again and again."""

    def result(self, task_id: str, timeout: float = HANG_GUARD) -> Result:
        return super().result(task_id, timeout)


class Consumers:
    def __init__(self) -> None:
        self._running: list[tuple[Consumer, threading.Thread]] = []
        self.returned: list[bool | BaseException] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for consumer, _ in self._running:
            consumer.stop()
        for _, thread in self._running:
            thread.join(HANG_GUARD)
            assert not thread.is_alive(), "the consumer goes on running"

    def start(
        self,
        url: str,
        queues: str | list[str],
        workers: dict[str, Callable[[Task], Any]],
        **options: Any,
    ) -> Consumer:
        consumer = Consumer(url, queues, **{"poll": 0.05, "countdown": QUICK, **options})
        for key, worker in workers.items():
            consumer.register(key, worker)
        thread = threading.Thread(target=self._run, args=(consumer,))
        thread.start()
        self._running.append((consumer, thread))
        return consumer

    def wait(self) -> None:
        """Until all of them have returned."""
        for _, thread in self._running:
            thread.join(HANG_GUARD)
            assert not thread.is_alive(), "the consumer goes on running"

    def _run(self, consumer: Consumer) -> None:
        try:
            self.returned.append(consumer.run())
        except Exception as error:
            self.returned.append(error)


class ConsumerProcess(Child):
    """consumer_program.py: its tasks leave files in a directory, and wait for others."""

    def __init__(self, directory: Path, url: str, queue: str, *options: str) -> None:
        command = [sys.executable, str(PROGRAM), url, queue, str(directory), *options]
        super().__init__(directory, command)

    def children(self) -> list[int]:
        path = Path(f"/proc/{self.pid}/task/{self.pid}/children")
        return [int(child) for child in path.read_text().split()]
