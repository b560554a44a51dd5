"""What the operations share: state, log, effects, randomness, and who waits.

Each operation decides, emits records through here (into the log first, which gives them their
number and place, then applied), and leaves effects behind for the broker to carry out.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from random import Random
from typing import Final

from mypy_extensions import i64

from taskyard.engine.model.effects import Effect, Notice, Waiter, Watched, Watcher
from taskyard.engine.model.job import FOREVER, Job, Origin
from taskyard.engine.model.queue import Queue
from taskyard.engine.model.state import State
from taskyard.engine.operations.room import Room
from taskyard.engine.records.log import Log
from taskyard.engine.structures.measures import Measures


class Departure:
    """An owner who has gone, and the jobs whose leases still have to end for that."""

    __slots__ = ("jobs", "origin", "owner")

    def __init__(self, owner: i64, origin: Origin, jobs: list[Job]) -> None:
        self.owner = owner
        self.origin = origin
        self.jobs = jobs  # the next one last


PORTION: Final = 500  # jobs of a batch that are leased or ended in one turn


class Core:
    def __init__(self, state: State, log: Log, random: Random, salt: bytes) -> None:
        self.state = state
        self.log = log
        self.salt = salt  # of the data directory: derived uids depend on it
        self.random = random
        self.effects: list[Effect] = []
        self.waiting: dict[bytes, OrderedDict[int, Waiter]] = {}  # by queue, in order of arrival
        self.waiting_size: i64 = 0  # bytes of memory that these take
        self.waiting_limit: i64 = FOREVER  # beyond it, nobody else may wait at many queues
        self.unseen: dict[bytes, Queue] = {}  # with jobs that were not looked at yet: see gates.py
        self.draining = False  # no queue takes pushes
        # A payload, if it can be had at once; None: those of all jobs can.
        self.payload_of: Callable[[Job], bytes | None] | None = None
        self.at_hand: Job | None = None  # whose payload has just been read back
        self.at_hand_payload = b""
        self.watchers: dict[int, dict[int, Watcher]] = {}  # by job
        self.measures = Measures()
        self.numbered: i64 = 0  # waiters and watchers
        self.requests: i64 = 0  # for batches
        self.portion: i64 = PORTION
        self.revealed: i64 = 0  # see reveal
        self.read_only = ""  # why no record can be taken any more; "": they can
        self.room = Room()  # how many records can be taken now
        # Names of the last push that were found to be good: see check_names.
        self.good_queue: str | None = None
        self.good_name = ""
        self.good_utf8 = b""
        self.departures: list[Departure] = []  # of owners who still have leases
        self.detached: list[tuple[int, Origin]] = []  # sessions whose client went then


def reveal(core: Core) -> None:
    """Jobs can be handed out because of the last record: who gets one sees that it happened.

    So it must be durable by then, as a job's push must be. Losing a lease shows nothing new.
    """
    core.revealed = core.log.mark()


def measure_wait(core: Core, job: Job, now: i64) -> None:
    """A job is handed out: how long was it ready for that?"""
    ready_at = job.ready_at
    if ready_at:
        core.measures.of(job.queue).waits.add(now - ready_at)


def tell(core: Core, job: Job, stage: i64) -> None:
    """Leave a lifecycle notice for whoever asked for this stage of this job."""
    extra = job.extra
    if extra is None:
        return
    notify = extra.notify
    if notify is not None and notify.stages & stage:
        core.effects.append(Notice(notify.session, notify.label, stage, job.id, core.log.mark()))


def tell_watchers(core: Core, job: Job, event: i64, last: bool, queue: Queue) -> None:
    """Tell those who watch this job what happened to it in that queue; after the last event they
    are let go."""
    watchers = core.watchers.get(job.id)
    if watchers is None:
        return
    for watcher in watchers.values():
        core.effects.append(Watched(watcher, event, job, queue))
        if last:
            core.state.timers.cancel(watcher.timer)
    if last:
        del core.watchers[job.id]
