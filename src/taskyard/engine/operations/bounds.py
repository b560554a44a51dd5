"""How much a queue may hold, and what happens to a push beyond that.

The bounds count jobs that have not ended (blocked, delayed, ready or leased) and the bytes of their
payloads; results and dead letters have bounds of their own. Only pushes are checked: a job that is
released, moved here or retried was accepted before.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mypy_extensions import i64

from taskyard.engine.model.errors import Draining, QueueFull, TransactionStepRefused
from taskyard.engine.model.queue import OVERFLOW_DEAD, Queue
from taskyard.engine.operations.core import Core

if TYPE_CHECKING:
    from taskyard.engine.operations.push import TransactionStep


class _PlannedGrowth:
    """What the earlier steps of a transaction change about a queue."""

    __slots__ = ("jobs", "size")

    def __init__(self) -> None:
        self.jobs: i64 = 0
        self.size: i64 = 0


def must_dead_letter(core: Core, name: bytes, size: i64, jobs: i64 = 0, more: i64 = 0) -> bool:
    """Whether a payload of `size` bytes must go to the dead letters, after so many other jobs and
    bytes more than there are now.

    A queue that refuses what is beyond its bounds raises QueueFull, one that is drained Draining.
    """
    queue = core.state.queues.get(name)
    _check_draining(core, queue)
    reason = _exceeded_bound(core, queue, jobs + 1, more + size)
    if not reason:
        return False
    if queue is not None and queue.settings.overflow == OVERFLOW_DEAD:
        core.statistics.overflowed_pushes += 1
        return True
    core.statistics.refused_pushes += 1
    raise QueueFull(f"queue is full: {reason}")


def steps_to_dead_letter(core: Core, steps: list[TransactionStep]) -> set[int]:
    """Return the steps of a transaction whose jobs must go to the dead letters."""
    growths: dict[bytes, _PlannedGrowth] = {}
    found: set[int] = set()
    for index, step in enumerate(steps):
        new = step.new
        if new is None:
            job = core.state.live_job(step.ack)
            if job is not None:
                _add_growth(growths, job.queue.utf8, -1, -job.payload_size)
            continue
        name = new.queue.encode()
        size: i64 = len(new.payload)
        growth = _add_growth(growths, name, 0, 0)
        try:
            dead = must_dead_letter(core, name, size, growth.jobs, growth.size)
        except (QueueFull, Draining) as error:
            raise TransactionStepRefused(index, error) from error
        if dead:
            found.add(index)
            if new.policy.dead_queue:
                _add_growth(growths, new.policy.dead_queue.encode(), 1, size)
        else:
            _add_growth(growths, name, 1, size)
    return found


def _check_draining(core: Core, queue: Queue | None) -> None:
    if core.draining:
        raise Draining("the server is being drained and takes no pushes")
    if queue is not None and queue.settings.draining:
        raise Draining(f"queue {queue.name} is being drained and takes no pushes")


def _add_growth(
    growths: dict[bytes, _PlannedGrowth], name: bytes, jobs: i64, size: i64
) -> _PlannedGrowth:
    growth = growths.get(name)
    if growth is None:
        growth = _PlannedGrowth()
        growths[name] = growth
    growth.jobs += jobs
    growth.size += size
    return growth


def _exceeded_bound(core: Core, queue: Queue | None, jobs: i64, size: i64) -> str:
    """What there would be too much of with so much more; "": it all has a place."""
    server = core.state.settings
    most = server.max_jobs
    largest = server.max_bytes
    if queue is not None:
        settings = queue.settings
        jobs += queue.unfinished_count()
        size += queue.unfinished_bytes
        if settings.max_jobs >= 0:
            most = settings.max_jobs
        if settings.max_bytes >= 0:
            largest = settings.max_bytes
    if 0 <= most < jobs:
        return f"it may have {most} jobs"
    if 0 <= largest < size:
        return f"its jobs may have {largest} bytes"
    return ""
