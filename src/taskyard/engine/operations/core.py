"""What the operations share: state, records, effects, randomness, and waiters.

Each operation decides, emits records through here (they are appended to the buffer first, which
gives them their number and position, then applied), and leaves effects for the broker to deliver.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from random import Random
from typing import Final

from mypy_extensions import i64

from taskyard.engine.model.events import Effect, JobEvent, JobWatcher, LifecycleNotice, Waiter
from taskyard.engine.model.job import FOREVER, Job, Origin
from taskyard.engine.model.queue import Queue
from taskyard.engine.model.state import State
from taskyard.engine.operations.room import JournalSpace
from taskyard.engine.records.log import RecordBuffer
from taskyard.engine.structures.statistics import EngineStatistics


class DisconnectedOwner:
    """An owner that has disconnected, and its jobs whose leases still have to end."""

    __slots__ = ("jobs", "origin", "owner")

    def __init__(self, owner: i64, origin: Origin, jobs: list[Job]) -> None:
        self.owner = owner
        self.origin = origin
        self.jobs = jobs  # the next one last


BATCH_CHUNK_JOBS: Final = 500  # jobs of a batch that are leased or ended in one turn


class Core:
    def __init__(self, state: State, records: RecordBuffer, random: Random, salt: bytes) -> None:
        self.state = state
        self.records = records
        self.salt = salt  # of the data directory: derived uids depend on it
        self.random = random
        self.effects: list[Effect] = []
        self.waiters: dict[bytes, OrderedDict[int, Waiter]] = {}  # by queue, in order of arrival
        self.waiter_bytes: i64 = 0  # bytes of memory that these take
        self.waiter_bytes_limit: i64 = FOREVER  # beyond it, no other client may wait at many queues
        self.queues_to_rescan: dict[
            bytes, Queue
        ] = {}  # with jobs that were not checked yet: see gates.py
        self.draining = False  # no queue takes pushes
        # Returns a payload if it is in memory; None: those of all jobs are.
        self.read_payload_if_cached: Callable[[Job], bytes | None] | None = None
        self.loaded_job: Job | None = None  # the job whose payload has just been read
        self.loaded_payload = b""
        self.watchers: dict[int, dict[int, JobWatcher]] = {}  # by job
        self.statistics = EngineStatistics()
        self.last_wait_number: i64 = 0  # waiters and watchers
        self.last_fill_id: i64 = 0  # for batches
        self.batch_chunk_jobs: i64 = BATCH_CHUNK_JOBS
        self.visible_position: i64 = 0  # see reveal
        self.read_only_reason = ""  # why no record can be taken any more; "": they can
        self.journal_space = JournalSpace()  # how many records can be taken now
        # Names of the last push that were found to be good: see check_names.
        self.checked_queue: str | None = None
        self.checked_name = ""
        self.checked_utf8 = b""
        self.pending_disconnects: list[DisconnectedOwner] = []  # of owners who still have leases
        self.pending_detaches: list[
            tuple[int, Origin]
        ] = []  # sessions whose client disconnected then


def require_durable_before_delivery(core: Core) -> None:
    """Note that jobs can be delivered because of the last record.

    A client that gets one sees that it happened. So the record must be durable by then, as a job's
    push must be. Losing a lease shows nothing new.
    """
    core.visible_position = core.records.end_position()


def record_wait_time(core: Core, job: Job, now: i64) -> None:
    """Record how long a delivered job was ready."""
    ready_at = job.ready_at
    if ready_at:
        core.statistics.times_of(job.queue).waits.add(now - ready_at)


def notify_session(core: Core, job: Job, stage: i64) -> None:
    """Leave a lifecycle notice for the session that asked for this stage of the job."""
    extra = job.extras
    if extra is None:
        return
    notify = extra.notify
    if notify is not None and notify.stages & stage:
        core.effects.append(
            LifecycleNotice(
                notify.session, notify.label, stage, job.id, core.records.end_position()
            )
        )


def notify_watchers(core: Core, job: Job, event: i64, last: bool, queue: Queue) -> None:
    """Notify those that watch this job of what happened to it in that queue; after the last event
    they are dropped.
    """
    watchers = core.watchers.get(job.id)
    if watchers is None:
        return
    for watcher in watchers.values():
        core.effects.append(JobEvent(watcher, event, job, queue))
        if last:
            core.state.timers.cancel(watcher.timer)
    if last:
        del core.watchers[job.id]
