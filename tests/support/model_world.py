"""What the reference model knows: plain dicts and lists, nothing clever.

Written from the documents, to be obviously right rather than quick. A queue is a line of the jobs
that are ready or leased: a leased job keeps its place in it until it leaves.
"""

import copy
from collections import Counter
from dataclasses import dataclass, field

from taskyard.engine.model.events import FetchRequest
from taskyard.engine.model.job import Notify, Policy
from taskyard.engine.model.queue import QueueSettings
from taskyard.engine.model.state import EngineSettings

QUEUED = ("ready", "delayed", "blocked")  # in these a job's key is its own
OPEN = ("ready", "delayed", "blocked", "leased")
ENDED = ("succeeded", "failed")

LETTER_BYTES = 64
DEAD_LETTER_BYTES = 512  # besides payload and error
UID_STRETCH = 100_000  # microseconds, or
Producer = tuple[bytes, str]  # the queue that a push named, and its user

UID_STRETCHES = 4096  # so many in the window of uids, if that makes them longer
FOREVER = 2**63 - 1


@dataclass
class Lease:
    number: int  # counts leases
    owner: int
    bound: bool
    holder: str
    epoch: int
    attempt: int
    since: int
    deadline: int  # 0: no end by time


@dataclass
class Job:
    id: int
    queue: bytes
    name: str
    payload: bytes
    policy: Policy
    priority: int
    dialect: int
    content: int
    pushed_at: int
    run_at: int
    state: str = "ready"
    wake_at: int = 0  # while it is delayed
    attempts: int = 0
    fails: int = 0
    losses: int = 0
    leases: int = 0  # all there ever were
    finished_at: int = 0
    lease: Lease | None = None
    uid: bytes | None = None
    producer: Producer = (b"", "")
    key: bytes | None = None
    ttl_ms: int = 0
    expires_at: int = 0
    blockers: set[int] = field(default_factory=set)
    notify: Notify | None = None
    result: bytes = b""
    error: bytes = b""
    reason: str = ""


@dataclass
class Queue:
    name: bytes
    settings: QueueSettings
    line: list[int] = field(default_factory=list)  # ready and leased jobs, each in its place
    dead: list[int] = field(default_factory=list)  # oldest first
    counts: Counter[str] = field(default_factory=Counter)


@dataclass
class Waiter:
    number: int
    take: FetchRequest
    deadline: int


@dataclass
class Watcher:
    number: int
    job: int
    deadline: int  # 0: none


@dataclass
class Value:
    value: bytes
    expires_at: int  # 0: never


@dataclass
class Session:
    attached: bool
    since: int
    numbered: int = 0
    delivered: int = 0
    outbox: list[tuple[int, int, int, int, int]] = field(default_factory=list)


@dataclass
class Consumer:
    owner: int
    number: int
    open: bool
    expired: bool
    ids: list[int]
    deadline: int  # 0: none


@dataclass
class Ended:
    """A job that has ended, and those who waited for it and must hear of it."""

    id: int
    succeeded: bool
    waiting: list[int]


class World:
    """All of it, and how to look things up."""

    def __init__(self, settings: EngineSettings, salt: bytes) -> None:
        self.settings = settings
        self.salt = salt
        self.epoch = 0
        self.next_id = 1
        self.evicted = 0
        self.numbered = 0  # waiters and watchers
        self.leases = 0
        self.jobs: dict[int, Job] = {}  # also those that are gone
        self.queues: dict[bytes, Queue] = {}  # in order of creation
        # uid -> (when, id, producer)
        self.tombstones: dict[bytes, tuple[int, int, Producer]] = {}
        self.ended: list[Ended] = []
        self.values: dict[bytes, Value] = {}
        self.sessions: dict[int, Session] = {}
        self.consumers: dict[str, Consumer] = {}
        self.waiters: list[Waiter] = []  # in order of arrival
        self.watchers: list[Watcher] = []
        self.effects: list[tuple[object, ...]] = []
        self.retries: dict[int, int] = {}  # job -> when it is tried again, where chance decided
        self.portions = False  # what is due is done in small chunks

    def copy(self) -> "World":
        """A world of its own: what follows in one is not seen in the other."""
        constant: list[object] = [self.settings]
        constant += [job.policy for job in self.jobs.values()]
        constant += [job.notify for job in self.jobs.values()]
        constant += [queue.settings for queue in self.queues.values()]
        constant += [waiter.take for waiter in self.waiters]
        shared = {id(thing): thing for thing in constant}
        return copy.deepcopy(self, shared)

    def live(self, id: int) -> Job | None:
        job = self.jobs.get(id)
        return None if job is None or job.state == "gone" else job

    def queue(self, name: bytes) -> Queue:
        """A queue exists from the first time that a job is put into it."""
        return self.queues.setdefault(name, Queue(name, QueueSettings()))

    def in_state(self, name: bytes, state: str) -> list[Job]:
        """The jobs of a queue that are in one state, in their order."""
        mine = [job for job in self.jobs.values() if job.queue == name and job.state == state]
        queue = self.queues.get(name)
        if queue is None:
            return []
        if state in ("ready", "leased"):
            mine.sort(key=lambda job: queue.line.index(job.id))
        if state == "ready":
            mine.sort(key=lambda job: -job.priority)
        if state == "delayed":
            mine.sort(key=lambda job: (job.wake_at, job.id))
        if state == "succeeded":
            mine.sort(key=lambda job: (job.finished_at, job.id))
        if state == "failed":
            mine.sort(key=lambda job: queue.dead.index(job.id))
        return mine

    def first_ready(self, name: bytes) -> Job | None:
        """The next job that this queue hands out."""
        queue = self.queues.get(name)
        if queue is None or queue.settings.paused:
            return None
        ready = self.in_state(name, "ready")
        return ready[0] if ready else None

    def with_key(self, name: bytes, key: bytes) -> Job | None:
        """The queued job of that key."""
        for job in self.jobs.values():
            if job.queue == name and job.key == key and job.state in QUEUED:
                return job
        return None

    def with_uid(self, uid: bytes) -> Job | None:
        for job in self.jobs.values():
            if job.uid == uid and job.state != "gone":
                return job
        return None

    def held_by(self, owner: int) -> list[Job]:
        """The jobs whose lease ends with this owner's connection, first leased first."""
        held = [
            (job.lease.number, job)
            for job in self.jobs.values()
            if job.lease is not None and job.lease.bound and job.lease.owner == owner
        ]
        return [job for _, job in sorted(held)]

    def take_effects(self) -> list[tuple[object, ...]]:
        effects, self.effects = self.effects, []
        return effects
