"""All that the engine knows: what applying the records so far has given.

Only the apply functions of the records change it. What is not here is not persistent.
"""

from __future__ import annotations

from array import array
from collections import deque
from hashlib import blake2b
from typing import Final

from mypy_extensions import i64, mypyc_attr
from sortedcontainers import SortedDict

from taskyard.engine.limits import KeyLimit
from taskyard.engine.model.job import GONE, Job, Policy
from taskyard.engine.model.queue import (
    DEFAULT_QUEUE_SETTINGS,
    Queue,
    QueueRule,
    QueueSettings,
    find_rule,
    merge_settings,
)
from taskyard.engine.schedules.schedule import Schedule
from taskyard.engine.structures.index import (
    BATCH_JOB_RECORD_BYTES,
    CONSUMER_RECORD_BYTES,
    NOTICE_RECORD_BYTES,
    QUEUE_RECORD_BYTES,
    READER_RECORD_BYTES,
    SCHEDULE_RECORD_BYTES,
    SESSION_RECORD_BYTES,
    TOMBSTONE_RECORD_BYTES,
    VALUE_RECORD_BYTES,
    JobIndex,
    LiveBytes,
    Tombstones,
)
from taskyard.engine.structures.ordered import Fifo
from taskyard.engine.structures.timers import (
    CONSUMER_TIMER,
    IDLE_QUEUE_TIMER,
    SESSION_TIMER,
    TOMBSTONE_TIMER,
    VALUE_TIMER,
    LeaseTimer,
    Timer,
    Timers,
)

NO_POLICY: Final = Policy()

# Ids of Glovebox sessions begin here, so that none is the number of a connection.
FIRST_SESSION_ID: Final = 1 << 62
OUTBOX_NOTICE_BYTES: Final = 64  # what one counts for in the bound of an outbox


class State:
    """The engine's memory. See docs/internals for how its parts hang together."""

    def __init__(self, settings: EngineSettings) -> None:
        self.settings = settings
        self.time: i64 = 0  # of the last record
        self.epoch: i64 = 0  # counts starts of the server
        self.next_id: i64 = 1
        self.jobs = JobIndex()
        self.queues: dict[bytes, Queue] = {}  # by name in UTF-8
        self.last_queue: Queue | None = None  # that was pushed to, if it is still there
        self.queues_version: i64 = 0  # how often one was created or deleted
        # What is in effect for those without settings of their own, by the pattern that fits them.
        self.shared_effective_settings: dict[str, QueueSettings] = {}
        # Whether any queue has, or had, a bound, or is drained: else no push needs to check.
        self.any_queue_bounded = settings.max_jobs >= 0 or settings.max_bytes >= 0
        self.timers = Timers()  # all but those of keys
        self.lease_timer: LeaseTimer | None = None  # that of the last lease which has an end
        self.key_timers = Timers()  # due before any other: see ticking.tick
        self.uids: dict[bytes, Job] = {}
        self.producer_hashes = ProducerHashes()
        self.tombstones = Tombstones(settings.uid_window)
        self.tombstone_timer = Timer(TOMBSTONE_TIMER, None)
        # jobs that a client of this or the last run waits for
        self.synchronous_jobs: set[int] = set()
        self.dependents: dict[int, dict[int, None]] = {}  # blocker -> jobs that wait for it
        self.pending_dependents: dict[
            int, PendingDependents
        ] = {}  # ended blocker -> its dependents that are still to be resolved
        # By owner, its leased jobs that are bound to it: most have one, and no dict for that.
        self.bound_jobs_by_owner: dict[int, Job | dict[int, Job]] = {}
        self.leased_count: i64 = 0  # jobs, of all queues
        self.finished_ring: Fifo[Job] = Fifo()  # the ring of recently finished jobs
        self.finished_ring_bytes: i64 = 0
        # Queues and keys that may start jobs since a lease has ended: not persistent, see
        # gates.reopen_keys.
        self.limits_changed = False
        self.queues_to_serve: dict[bytes, Queue] = {}
        self.keys_to_open: list[KeyLimit] = []
        self.values: dict[bytes, Value] = {}
        self.sessions: dict[int, DurableSession] = {}
        self.consumers: dict[str, BatchConsumer] = {}
        self.readers: dict[str, NamedReader] = {}
        self.readers_changed_seq: i64 = 0  # the last record that was about one of them
        self.schedules: SortedDict[str, Schedule] = SortedDict()
        self.schedule_bytes: i64 = 0  # what all of them take
        self.evicted: i64 = 0  # unfinished jobs that their ttl ended, since the start
        self.live_bytes = LiveBytes()
        self.replay_start: i64 = 0  # the last position that compaction says a replay may begin at
        # While records are applied that do not begin at the beginning: see partial_replay.py.
        self.is_partial_replay = False
        self.partial_start: i64 = 0  # the position where they begin
        self.first_pushed_id: i64 = 0  # the first id that was pushed after it

    def first_timer(self) -> Timer | None:
        """The one that is due first, of all."""
        first = self.timers.first()
        if not self.key_timers.heap:
            return first
        key = self.key_timers.heap[0]
        return key if first is None or key.deadline < first.deadline else first

    def live_job(self, id: i64) -> Job | None:
        """The job, unless it is gone."""
        job = self.jobs.get(id)
        return None if job is None or job.state == GONE else job

    def compacted_size(self) -> i64:
        """About how many bytes the journal would have if it were written anew."""
        tombstones: i64 = len(self.tombstones.by_uid)
        return (
            self.live_bytes.total + self.live_bytes.unplaced + tombstones * TOMBSTONE_RECORD_BYTES
        )

    def entity_counts(self) -> list[int]:
        """Return the numbers of everything that lives until it is ended."""
        return [
            self.jobs.size - len(self.finished_ring),
            len(self.queues),
            len(self.values),
            len(self.sessions),
            len(self.consumers),
            len(self.readers),
            len(self.schedules),
        ]

    def get_or_create_queue(self, utf8: bytes, seq: i64, at: i64) -> Queue:
        """The queue of that name, made if need be by the record of this number and place."""
        last = self.last_queue
        if last is not None and utf8 is last.utf8:
            return last
        queue = self.queues.get(utf8)
        if queue is None:
            queue = Queue(seq, utf8.decode(), utf8, NO_POLICY)
            self.queues[utf8] = queue
            self.queues_version += 1
            queue.record_at = at
            self.live_bytes.add(at, queue_record_bytes(queue))
            settings = self.settings
            if settings.queue_rules or settings.idle_expiry:
                queue.effective_settings = self.effective_settings_of(
                    queue.name, DEFAULT_QUEUE_SETTINGS
                )
                queue.update_restrictions()
                self.arm_idle_timer(queue)
        self.last_queue = queue
        return queue

    def effective_settings_of(self, name: str, own: QueueSettings) -> QueueSettings:
        """What is in effect for a queue that has these settings of its own."""
        settings = self.settings
        if own is DEFAULT_QUEUE_SETTINGS and not settings.queue_rules and not settings.idle_expiry:
            return DEFAULT_QUEUE_SETTINGS
        rule = find_rule(settings.queue_rules, name)
        if own is not DEFAULT_QUEUE_SETTINGS:
            return merge_settings(own, rule, settings.idle_expiry)
        pattern = rule.pattern if rule is not None else ""
        shared = self.shared_effective_settings.get(pattern)
        if shared is None:
            shared = merge_settings(own, rule, settings.idle_expiry)
            self.shared_effective_settings[pattern] = shared
        return shared

    def arm_idle_timer(self, queue: Queue) -> None:
        """Check the queue regularly, if it is to be deleted when it is idle."""
        expiry = queue.effective_settings.idle_expiry
        timer = queue.idle_timer
        if expiry > 0:
            if timer is None:
                timer = Timer(IDLE_QUEUE_TIMER, queue)
                queue.idle_timer = timer
            queue.idle_activity_count = -1  # its time begins with the first check
            self.timers.set(timer, self.time + idle_check_interval(expiry))
        elif timer is not None:
            self.timers.cancel(timer)


@mypyc_attr(acyclic=True)
class EngineSettings:
    """The server's settings that decide what the engine does."""

    __slots__ = (
        "dead_bytes",
        "dead_retention",
        "default_ttr",
        "finished_bytes",
        "idle_expiry",
        "max_bytes",
        "max_jobs",
        "max_schedules",
        "outbox_age",
        "outbox_bytes",
        "payload_limit",
        "queue_rules",
        "schedule_bytes",
        "uid_window",
    )

    def __init__(
        self,
        payload_limit: i64 = 1_048_576,
        finished_bytes: i64 = 4 * 1_048_576,
        uid_window: i64 = 600_000_000,
        dead_retention: i64 = 7 * 86_400_000_000,
        dead_bytes: i64 = 64 * 1_048_576,
        default_ttr: i64 = 60_000_000,
        outbox_age: i64 = 3_600_000_000,
        outbox_bytes: i64 = 1_048_576,
        max_jobs: i64 = -1,
        max_bytes: i64 = -1,
        max_schedules: i64 = 10_000,
        schedule_bytes: i64 = 64 * 1_048_576,
        idle_expiry: i64 = 0,
        queue_rules: list[QueueRule] | None = None,
    ) -> None:
        self.payload_limit = payload_limit
        self.finished_bytes = finished_bytes  # bound of the ring of recently finished jobs
        self.uid_window = uid_window  # how long a uid is remembered after its job is gone
        self.dead_retention = dead_retention
        self.dead_bytes = dead_bytes  # of the dead letters of one queue
        self.default_ttr = default_ttr
        self.outbox_age = outbox_age  # how long a durable session may be away
        self.outbox_bytes = outbox_bytes
        self.max_jobs = max_jobs  # of a queue that has no bound of its own; -1: none
        self.max_bytes = max_bytes
        self.max_schedules = max_schedules
        self.schedule_bytes = schedule_bytes  # of all of them: they are in memory
        self.idle_expiry = idle_expiry  # of a queue that has none of its own; 0: none
        # Settings for queues by their names, as the configuration has them; the first that fits.
        self.queue_rules: list[QueueRule] = queue_rules or []


# Entities beside jobs and queues


@mypyc_attr(acyclic=True)
class PendingDependents:
    """The dependents of a job that has ended, which are still to be resolved."""

    __slots__ = ("failed", "succeeded")

    def __init__(self) -> None:
        # The next one is last. Both are set if a dead letter was replayed and then succeeded.
        self.failed: list[int] = []
        self.succeeded: list[int] = []


@mypyc_attr(acyclic=True)
class Value:
    """An expiring keyed value."""

    __slots__ = ("expires_at", "key", "size", "timer", "value_at")

    def __init__(self, key: bytes) -> None:
        self.key = key
        self.value_at: i64 = 0
        self.size: i64 = 0
        self.expires_at: i64 = 0
        self.timer = Timer(VALUE_TIMER, self.key)


@mypyc_attr(acyclic=True)
class SessionNotice:
    """One notice in a session's outbox."""

    __slots__ = ("job", "label", "number", "stage", "time")

    def __init__(self, number: i64, time: i64, job: i64, label: int, stage: i64) -> None:
        self.number = number
        self.time = time
        self.job = job
        self.label = label
        self.stage = stage


class DurableSession:
    """A durable session: what its client is owed while its socket is away."""

    __slots__ = (
        "attached",
        "changed_since_snapshot",
        "delivered",
        "id",
        "numbered",
        "outbox",
        "record_seq",
        "since",
        "timer",
    )

    def __init__(self, id: i64, since: i64, seq: i64) -> None:
        self.id = id
        self.record_seq = seq  # the record that says all of it
        self.changed_since_snapshot = False  # a notice was added since then
        self.attached = True
        self.since = since  # of the last attach or detach
        self.outbox: deque[SessionNotice] = deque()
        self.numbered: i64 = 0
        self.delivered: i64 = 0
        self.timer = Timer(SESSION_TIMER, id)


class BatchConsumer:
    """A reader in batches: the one batch it holds, and its number."""

    __slots__ = (
        "attempts",
        "cleared_count",
        "deadline",
        "expired",
        "fill_id",
        "ids",
        "name",
        "number",
        "open",
        "owner",
        "queues",
        "record_seq",
        "timer",
        "user",
    )

    def __init__(self, name: str, owner: i64) -> None:
        self.name = name
        self.owner = owner
        self.user = ""  # the user it belongs to; "": none, until a user leases a batch as it
        self.record_seq: i64 = 0  # the record that says all of it
        self.number: i64 = 0
        self.open = False  # the batch of that number is out and not done
        self.expired = False  # it was out for too long: its jobs are with others now
        # Arrays, not lists: to snapshot or free a million numbers must not take long.
        self.ids: array[int] = array("q")
        self.attempts: array[int] = array("I")  # it has them for; 0: an older server did not say
        self.queues: dict[bytes, None] = {}  # that those of its last batch were taken from
        self.deadline: i64 = 0
        self.timer = Timer(CONSUMER_TIMER, name)
        # Not persistent: the request that makes the batch longer, and how many places at its
        # beginning have been seen to since it is being ended.
        self.fill_id: i64 = 0
        self.cleared_count: i64 = 0


@mypyc_attr(acyclic=True)
class NamedReader:
    """A reader of the journal, for which segments are kept: how far it is, and its lease."""

    __slots__ = ("lease_until", "name", "next_seq", "record_seq")

    def __init__(self, name: str) -> None:
        self.name = name
        self.record_seq: i64 = 0  # the record that says all of it
        self.next_seq: i64 = 0  # it has all records before this one
        self.lease_until: i64 = 0  # from then on nothing is kept for it


def idle_check_interval(idle_expiry: i64) -> i64:
    """How often to check whether a queue is idle: using a queue costs nothing more."""
    return idle_expiry // 8 + 1


# Sizes of records


def queue_record_bytes(queue: Queue) -> i64:
    return QUEUE_RECORD_BYTES + len(queue.utf8)


def value_record_bytes(value: Value) -> i64:
    return VALUE_RECORD_BYTES + len(value.key) + value.size


def session_record_bytes(session: DurableSession) -> i64:
    return SESSION_RECORD_BYTES + NOTICE_RECORD_BYTES * len(session.outbox)


def consumer_record_bytes(consumer: BatchConsumer) -> i64:
    size = (
        CONSUMER_RECORD_BYTES
        + len(consumer.name)
        + len(consumer.user)
        + BATCH_JOB_RECORD_BYTES * len(consumer.ids)
    )
    for queue in consumer.queues:
        size += len(queue) + 2
    return size


def reader_record_bytes(reader: NamedReader) -> i64:
    return READER_RECORD_BYTES + len(reader.name)


def schedule_record_bytes(schedule: Schedule) -> i64:
    job = schedule.job
    key = job.key
    limit_key = job.limit_key
    names = schedule.name + schedule.cron + schedule.zone + schedule.user
    names += job.queue + job.name + job.policy.dead_queue
    size = len(names.encode()) + len(job.payload)
    size += len(key) if key is not None else 0
    size += len(limit_key) if limit_key is not None else 0
    return SCHEDULE_RECORD_BYTES + size


# Public ids of jobs that were pushed without one

MAX_ID: Final = (1 << 62) - 1
_VARIANT: Final = 2 << 62

_HALF: Final = 8
PRODUCER_BYTES: Final = 2 * _HALF
# Instead of what an old journal does not say of a producer: it may be any.
_ANY: Final = bytes(_HALF)
ANY_PRODUCER: Final = bytes(PRODUCER_BYTES)
_CACHED: Final = 4096


def derive_uid(salt: bytes, job_id: int) -> bytes:
    """Return the uid of `job_id`: 16 bytes that look like a UUID of version 4.

    Eight bytes are a keyed hash of the job's id, the other eight are the id under a mask that
    depends on them. So it can be turned back into the id without an index, and one hash shows that
    a uid was made up by a client. Without the data directory's salt nobody can guess a uid, or see
    that two are neighbours.
    """
    tag = _tag(salt, job_id)
    return tag + (job_id ^ _mask(salt, tag) | _VARIANT).to_bytes(8, "big")


def job_id_of(salt: bytes, uid: bytes, below: int = MAX_ID + 1) -> int:
    """The id behind a derived uid, or 0 if `uid` is not one of an id below that limit."""
    if uid[6] >> 4 != 4 or uid[8] >> 6 != 2:
        return 0
    tag = uid[:8]
    job_id = (int.from_bytes(uid[8:], "big") & MAX_ID) ^ _mask(salt, tag)
    return job_id if job_id < below and tag == _tag(salt, job_id) else 0


def format_uid(uid: bytes) -> str:
    text = uid.hex()
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


def _tag(salt: bytes, job_id: int) -> bytes:
    tag = blake2b(job_id.to_bytes(8, "big"), key=salt, person=b"tag", digest_size=8).digest()
    return tag[:6] + bytes([0x40 | tag[6] & 0x0F]) + tag[7:]


def _mask(salt: bytes, tag: bytes) -> int:
    digest = blake2b(tag, key=salt, person=b"mask", digest_size=8).digest()
    return int.from_bytes(digest, "big") & MAX_ID


@mypyc_attr(acyclic=True)
class ProducerHashes:
    """Makes producers, and has all jobs of one share its bytes. It remembers the last thousands.

    A given uid belongs to its producer: the queue that the push named, and the user who sent it.
    Only a push of the same producer repeats it. A producer is kept as a hash of each, so that it
    has the same few bytes whatever the names are.
    """

    __slots__ = ("_by_queue_and_user", "_interned", "_last", "_queue", "_user")

    def __init__(self) -> None:
        self._by_queue_and_user: dict[tuple[bytes, str], bytes] = {}
        self._interned: dict[bytes, bytes] = {}
        self._queue = b""
        self._user = ""
        self._last = b""  # that of the two

    def hash_of(self, queue: bytes, user: str) -> bytes:
        if queue is self._queue and user is self._user and self._last:
            return self._last
        key = (queue, user)
        found = self._by_queue_and_user.get(key)
        if found is None:
            found = _digest(queue, b"queue") + _digest(user.encode(), b"user")
            if len(self._by_queue_and_user) >= _CACHED:
                self._by_queue_and_user.clear()
            self._by_queue_and_user[key] = self.intern(found)
        self._queue = queue
        self._user = user
        self._last = found
        return found

    def hash_of_queue(self, queue: bytes) -> bytes:
        """That of a push whose user an old journal does not say."""
        return self.intern(_digest(queue, b"queue") + _ANY)

    def intern(self, producer: bytes) -> bytes:
        """The same bytes, in the object that others have already."""
        found = self._interned.get(producer)
        if found is None:
            if len(self._interned) >= _CACHED:
                self._interned.clear()
            self._interned[producer] = producer
            found = producer
        return found


def is_same_producer(one: bytes, other: bytes) -> bool:
    if one == other:
        return True
    return _is_same(one[:_HALF], other[:_HALF]) and _is_same(one[_HALF:], other[_HALF:])


def _is_same(one: bytes, other: bytes) -> bool:
    return one == other or _ANY in (one, other)


def _digest(name: bytes, what: bytes) -> bytes:
    return blake2b(name, person=what, digest_size=_HALF).digest()
