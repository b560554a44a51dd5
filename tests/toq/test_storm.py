"""Consumers that are killed again and again while they work: no task is lost."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

from support.sockets import HANG_GUARD
from support.waiting import wait_for
from toq.brokers import Running
from toq.consumers import ConsumerProcess

from taskyard.toq import Producer, Task

TASKS = 400
KILLS = 6


def test_every_task_is_run_though_its_consumers_are_killed(
    running: Running, queue: str, producer: Producer, tmp_path: Path
) -> None:
    tasks = [Task.of("note", str(tmp_path)) for _ in range(TASKS)]
    noted = tmp_path / "noted"

    def count() -> int:
        return noted.read_text().count("\n") if noted.exists() else 0

    with ExitStack() as stack:

        def start() -> ConsumerProcess:
            options = ("--lease", "0.5", "--prefetch", "10")
            return stack.enter_context(ConsumerProcess(tmp_path, running.url, queue, *options))

        consumers = [start(), start()]
        for number in range(KILLS):
            share = tasks[number * TASKS // KILLS : (number + 1) * TASKS // KILLS]
            before = count()
            producer.enqueue_many(queue, share)
            wait_for(lambda before=before, share=share: count() >= before + len(share) // 4)  # type: ignore[misc]
            consumers[number % 2].kill()
            consumers[number % 2] = start()
        assert all(producer.result(task.id, timeout=HANG_GUARD).succeeded for task in tasks)
        # Whose lease was over when its result was stored is there once more, and is run again.
        wait_for(lambda: running.ask("LLEN", queue) == 0)
    assert set(noted.read_text().split()) == {task.id for task in tasks}
