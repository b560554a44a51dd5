"""What is measured: each framework with its broker and settings.

The settings are the fastest that were found among those in ALL, which `--only` can name.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal

from benchmarks import rig

PROGRAMS: Final = "benchmarks.frameworks.programs"
QUIET_CELERY: Final = ("--without-gossip", "--without-mingle", "--without-heartbeat", "-l", "ERROR")
STREAM: Final = ("XPENDING", "taskiq", "taskiq")
EARLY: Final = ("--ack-type", "when_received")

Broker = Literal["redis", "taskyard"]
Words = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Subject:
    name: str
    framework: str
    program: str
    command: Words
    """Of the worker: for Taskyard what follows `taskyard`, else a script of the environment."""
    settings: str
    """As the table shows them."""
    left: tuple[Words, ...]
    """Commands to the broker, whose replies add up to the tasks that are not done with."""
    broker: Broker = "redis"
    durability: rig.Durability = "memory"
    share: float = 1.0
    """Of the tasks that others get, where all of them would take too long."""
    environment: Mapping[str, str] = field(default_factory=dict)

    def tasks(self, asked: int) -> int:
        return max(round(asked * self.share), 1)


def huey(name: str, settings: str, *words: str, durability: rig.Durability = "memory") -> Subject:
    return Subject(
        name,
        "Huey",
        "huey_tasks",
        ("huey_consumer", f"{PROGRAMS}.huey_tasks.huey", "-n", "-q", "-C", *words),
        f"{settings}, results off",
        (("LLEN", "huey.redis.bench"),),
        durability=durability,
    )


def dramatiq(
    name: str,
    threads: int,
    prefetch: int,
    durability: rig.Durability = "memory",
    share: float = 1.0,
) -> Subject:
    return Subject(
        name,
        "Dramatiq",
        "dramatiq_tasks",
        ("dramatiq", f"{PROGRAMS}.dramatiq_tasks", "-p", "1", "-t", str(threads), "--skip-logging"),
        f"{threads} threads, prefetch {prefetch}, no middleware",
        (("HLEN", "dramatiq:default.msgs"),),
        durability=durability,
        share=share,
        environment={"dramatiq_queue_prefetch": str(prefetch)},
    )


def taskiq(name: str, settings: str, left: Words, stream: str, *words: str) -> Subject:
    return Subject(
        name,
        "taskiq",
        "taskiq_tasks",
        (
            *("taskiq", "worker", f"{PROGRAMS}.taskiq_tasks:broker", "--workers", "1"),
            *("--no-parse", "--log-level", "WARNING", *words),
        ),
        f"{settings}, coroutines, orjson, uvloop, results off",
        (left,),
        environment={"TASKIQ_STREAM": stream},
    )


def celery(name: str, pool: str, size: int) -> Subject:
    return Subject(
        name,
        "Celery",
        "celery_tasks",
        (
            *("celery", "-A", f"{PROGRAMS}.celery_tasks", "worker"),
            *("-P", pool, "-c", str(size), *QUIET_CELERY),
        ),
        f"{pool} pool of {size}, prefetch 1000, results, events, gossip and mingle off",
        (("LLEN", "celery"), ("HLEN", "unacked")),
        environment={"CELERY_PREFETCH": str(1000 // size)},
    )


def rq() -> Subject:
    command = ("rq", "worker", "--url", "redis://127.0.0.1:{port}/0", "-w", "rq.SimpleWorker", "-q")
    return Subject(
        "rq",
        "RQ",
        "rq_tasks",
        command,
        "SimpleWorker (no fork), no timeouts, results off",
        (("LLEN", "rq:queue:default"), ("ZCARD", "rq:wip:default")),
        share=0.1,
    )


def arq() -> Subject:
    return Subject(
        "arq",
        "arq",
        "arq_tasks",
        ("arq", f"{PROGRAMS}.arq_tasks.WorkerSettings"),
        "max_jobs 1000, poll_delay 1 ms, coroutines, results off",
        (("ZCARD", "arq:queue"),),
        share=0.05,
        environment={"ARQ_JOBS": "1000"},
    )


def taskyard(name: str, settings: str, *words: str, durability: rig.Durability = "sync") -> Subject:
    return Subject(
        name,
        "Taskyard",
        "taskyard_tasks",
        ("work", f"{PROGRAMS}.taskyard_tasks:app", "--log-level", "warning", *words),
        settings,
        (("API", "GET", "/api/v1/queues/default"),),
        broker="taskyard",
        durability=durability,
        environment={"NOOP_ASYNC": "1" if "async" in words else ""},
    )


OURS: Final = "taskyard"
"""Whose ratio to the others is the bar."""

DEFAULT: Final = (
    taskyard(OURS, "threads pool, defaults", "--pool", "threads"),
    taskyard("taskyard-memory", "threads pool, defaults", durability="memory"),
    dramatiq("dramatiq", 8, 4000),
    huey("huey", "8 threads", "-w", "8"),
    taskiq("taskiq", "stream", STREAM, "1"),
    celery("celery", "threads", 4),
    rq(),
    arq(),
    dramatiq("dramatiq-always", 8, 4000, durability="sync", share=0.25),
)
"""In the order in which they take turns."""

OTHERS: Final = (
    taskyard("taskyard-1", "threads pool, 1 thread", "--concurrency", "1"),
    taskyard("taskyard-async", "async pool, coroutines", "--pool", "async"),
    dramatiq("dramatiq-1", 1, 4000),
    dramatiq("dramatiq-4", 4, 4000),
    dramatiq("dramatiq-16", 16, 4000),
    dramatiq("dramatiq-500", 8, 500),
    dramatiq("dramatiq-plain", 8, 16),
    huey("huey-1", "1 thread", "-w", "1"),
    huey("huey-greenlets", "10 greenlets", "-k", "greenlet", "-w", "10"),
    huey("huey-4", "4 threads", "-w", "4"),
    huey("huey-always", "8 threads", "-w", "8", durability="sync"),
    taskiq("taskiq-list", "list", ("LLEN", "taskiq"), ""),
    taskiq("taskiq-early", "stream, acknowledged at once", STREAM, "1", *EARLY),
    celery("celery-solo", "solo", 1),
    celery("celery-1", "threads", 1),
    celery("celery-gevent", "gevent", 100),
)
"""Settings that were tried, and other rows that `--only` can ask for."""

ALL: Final = (*DEFAULT, *OTHERS)
