"""Celery: Kombu on lists of Redis, with everything off that tells others of the work."""

import importlib
import os
from typing import Any

from benchmarks.frameworks.programs.settings import redis_url
from benchmarks.frameworks.programs.tally import run

_celery: Any = importlib.import_module("celery")
app: Any = _celery.Celery("bench", broker=redis_url())
app.conf.update(
    task_ignore_result=True,
    task_store_errors_even_if_ignored=False,
    task_acks_late=False,
    task_send_sent_event=False,
    worker_send_task_events=False,
    worker_disable_rate_limits=True,
    worker_prefetch_multiplier=int(os.environ.get("CELERY_PREFETCH", "1000")),
    worker_enable_remote_control=False,
    task_publish_retry=False,
    broker_transport_options={"priority_steps": [0]},
)
noop: Any = app.task(name="noop")(run)


def push_each(count: int) -> None:
    # One producer for all: else each push looks for one in the pool.
    with app.producer_or_acquire() as producer:
        for _ in range(count):
            noop.apply_async(producer=producer)
