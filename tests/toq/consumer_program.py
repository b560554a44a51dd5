"""A consumer that a test starts, signals and kills: see consumers.ConsumerProcess."""

from __future__ import annotations

import argparse
import logging
import os
import signal
import sys
import time
from pathlib import Path

from taskyard.toq import Consumer, Countdown, Task


def touch(task: Task, mark: str) -> None:
    directory = Path(task.arguments()[0])
    with (directory / mark).open("a") as file:
        file.write(f"{task.id}\n")


def note(task: Task) -> str:
    """Leave a mark."""
    touch(task, "noted")
    return "noted"


def hold(task: Task) -> str:
    """Say that it runs, and end when told so."""
    directory, name = task.arguments()
    touch(task, f"{name}-runs")
    while not (Path(directory) / f"{name}-may-end").exists():
        time.sleep(0.005)
    touch(task, f"{name}-ended")
    return f"ended by {os.getpid()}"


def die(task: Task) -> None:
    """Kill the process that runs it."""
    touch(task, "died")
    os.kill(os.getpid(), signal.SIGKILL)


def main() -> None:
    parser = argparse.ArgumentParser()
    for name in ("url", "queue", "directory"):
        parser.add_argument(name)
    parser.add_argument("--pool", default="threads")
    parser.add_argument("--lease", type=float, default=30.0)
    parser.add_argument("--concurrency", type=int, default=2)
    parser.add_argument("--prefetch", type=int, default=0)
    options = parser.parse_args()
    logging.basicConfig(level=logging.INFO)
    consumer = Consumer(
        options.url,
        options.queue,
        pool=options.pool,
        lease=options.lease,
        concurrency=options.concurrency,
        prefetch=options.prefetch,
        poll=0.05,
        countdown=Countdown(first=0.01, factor=1.0, most=0.01),
    )
    for worker in (note, hold, die):
        consumer.register(worker.__name__, worker)
    sys.exit(0 if consumer.run() else 3)


if __name__ == "__main__":
    main()
