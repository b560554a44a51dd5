"""Taskyard: an app with the defaults, and a task that returns nothing."""

import os

from benchmarks.frameworks.programs.settings import taskyard_url
from benchmarks.frameworks.programs.tally import run, run_async
from taskyard.tasks import App

app = App(taskyard_url())
noop = app.task(name="noop")(run_async if os.environ.get("NOOP_ASYNC") else run)


def push_each(count: int) -> None:
    for _ in range(count):
        noop.push()


def push_many(count: int) -> None:
    noop.starmap([()] * count)
