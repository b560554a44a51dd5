"""The engine's persistent state as plain data, to compare a live engine with a rebuilt one.

Deadlines are taken from the state itself, not from the heap of timers: the timers of a queue may
be early, since they are not moved when the job they were set for leaves.
"""

from support.graves import uid_pairs

from taskyard.engine.limits import key_limit_record_bytes, rate_expires_at_us
from taskyard.engine.model.job import (
    BLOCKED,
    DELAYED,
    FAILED,
    GONE,
    LEASED,
    LIMITED,
    READY,
    STATE_NAMES,
    SUCCEEDED,
    Job,
    JobExtras,
    Lease,
    Notify,
    Policy,
)
from taskyard.engine.model.queue import Queue
from taskyard.engine.model.state import BatchConsumer, DurableSession, NamedReader, State, Value
from taskyard.engine.schedules.schedule import Schedule
from taskyard.engine.transitions import dead_letter_expiry, jobs_bound_to

LANES = (BLOCKED, DELAYED, READY, LEASED, SUCCEEDED, FAILED)

_JOB = (
    "id",
    "name",
    "priority",
    "order_key",
    "dialect",
    "content",
    "attempts",
    "fails",
    "losses",
    "leases",
    "payload_at",
    "payload_size",
    "pushed_at",
    "run_at",
    "finished_at",
)
_EXTRA = (
    "uid",
    "producer",
    "key",
    "limit_key",
    "ttl_ms",
    "expires_at",
    "has_result",
    "result_at",
    "result_size",
    "error_at",
    "error_size",
    "reason",
)
_SCHEDULE = (
    "name",
    "cron",
    "every",
    "zone",
    "missed_rule",
    "overlap",
    "paused",
    "user",
    "since",
    "next_at",
    "last_at",
    "last_job",
    "runs",
    "skipped",
    "missed",
)
_TEMPLATE = ("queue", "name", "payload", "priority", "content", "ttl_ms", "key", "limit_key")
LEASE = ("owner", "bound", "holder", "epoch", "attempt", "since", "deadline")
POLICY = (
    "ttr",
    "max_attempts",
    "max_fails",
    "max_losses",
    "backoff",
    "backoff_base",
    "backoff_cap",
    "dead_queue",
    "lost_is_failed",
)
SETTINGS = (
    "created",
    "paused",
    "retries",
    "result_retention",
    "dead_retention",
    "backoff",
    "backoff_base",
    "backoff_cap",
    "max_jobs",
    "max_bytes",
    "overflow",
    "draining",
    "ttr",
    "concurrency",
    "rate_count",
    "rate_period",
    "key_concurrency",
    "key_rate_count",
    "key_rate_period",
    "idle_expiry",
)
_COUNTERS = (
    "pushed",
    "leases",
    "finished",
    "failed",
    "retried",
    "released",
    "expired",
    "removed",
    "dead_bytes",
)

_OF_GONE = ("jobs", "ring", "ring_bytes", "evicted")
_LETTER = ("number", "time", "job", "label", "stage")

Plain = dict[str, object]


def snapshot(state: State, now: int = 0) -> Plain:
    """All that is persistent, as dicts, lists and plain values, and matters at that time."""
    now = max(now, state.time)
    return {
        **fields(state, ("time", "epoch", "next_id", "evicted")),
        "jobs": {job.id: job_snapshot(job) for job in sorted(state.jobs, key=_id)},
        "queues": [queue_snapshot(queue, now) for queue in sorted_queues(state)],
        "uids": {uid: job.id for uid, job in state.uids.items()},
        "tombstones": {
            uid: (stone.id, stone.producer) for uid, stone in state.tombstones.by_uid.items()
        },
        "graves": {
            since: sorted(uid_pairs(grave)) for since, grave in state.tombstones.buckets.items()
        },
        "dependents": {blocker: sorted(jobs) for blocker, jobs in state.dependents.items()},
        "followups": pending_followups(state),
        "held": {
            owner: sorted(job.id for job in jobs_bound_to(state, owner))
            for owner in state.bound_jobs_by_owner
        },
        "ring": [job.id for job in state.finished_ring],
        "ring_bytes": state.finished_ring_bytes,
        "values": {key: _value(value) for key, value in state.values.items()},
        "sessions": {id: _session(session) for id, session in state.sessions.items()},
        "consumers": {name: _consumer(each) for name, each in state.consumers.items()},
        "readers": {name: _reader(reader) for name, reader in state.readers.items()},
        "schedules": {name: _schedule(each) for name, each in state.schedules.items()},
        "deadlines": deadlines(state),
    }


def lasting(state: State, now: int = 0) -> Plain:
    """The same as far as a replay from a base knows it, and what compaction goes by.

    Of jobs that are gone such a replay has seen only some; all else it must know exactly.
    """
    live = {job.id: job_snapshot(job) for job in state.jobs if job.state != GONE}
    anchors: dict[object, object] = {
        **{
            id: (each.record_seq, each.changed_since_snapshot)
            for id, each in state.sessions.items()
        },
        **{("consumer", name): each.record_seq for name, each in state.consumers.items()},
        **{("reader", name): each.record_seq for name, each in state.readers.items()},
        **{("schedule", name): each.record_seq for name, each in state.schedules.items()},
        **{("grave", since): each.record_seq for since, each in state.tombstones.buckets.items()},
    }
    return {
        **{name: each for name, each in snapshot(state, now).items() if name not in _OF_GONE},
        "jobs": dict(sorted(live.items())),
        "weights": {job.id: job.record_bytes for job in state.jobs if job.state != GONE},
        "weight": state.compacted_size() - _weight_of_stale_keys(state, max(now, state.time)),
        "queues in order": [(queue.name, queue.record_at) for queue in state.queues.values()],
        "anchors": anchors,
    }


def sorted_queues(state: State) -> list[Queue]:
    """In order of creation."""
    return sorted(state.queues.values(), key=_number)


def lane_jobs(queue: Queue, state: int) -> list[Job]:
    """The jobs of one state in their order."""
    order = queue.priority_queue(state)
    if order is not None:
        return order.slice(0, order.size)
    lane = queue.ordered_jobs(state)
    return lane.slice(0, lane.size)


def waiting_jobs(queue: Queue) -> list[Job]:
    """Ready jobs and those that limits parked, which is not persistent, in delivery order."""
    found = [*lane_jobs(queue, READY), *lane_jobs(queue, LIMITED)]
    return sorted(found, key=lambda job: (-job.priority, job.order_key, job.id))


def rates(queue: Queue, now: int) -> dict[object, object]:
    """What was started, as far as it still matters, and how much is out."""
    found: dict[object, object] = (
        {"": queue.theoretical_arrival_ns}
        if rate_expires_at_us(queue.theoretical_arrival_ns) > now
        else {}
    )
    for key, gate in (queue.key_limits or {}).items():
        tat = (
            gate.theoretical_arrival_ns
            if rate_expires_at_us(gate.theoretical_arrival_ns) > now
            else 0
        )
        if tat or gate.leased_count:
            found[key] = tat, gate.leased_count
    return found


def _weight_of_stale_keys(state: State, now: int) -> int:
    """Keys whose rates do not matter any more are forgotten some time, not by a record."""
    return sum(
        key_limit_record_bytes(gate)
        for queue in state.queues.values()
        for gate in (queue.key_limits or {}).values()
        if gate.theoretical_arrival_ns and rate_expires_at_us(gate.theoretical_arrival_ns) <= now
    )


def job_snapshot(job: Job) -> Plain:
    extra = job.extras
    return {
        **fields(job, _JOB),
        "queue": job.queue.utf8,
        "state": STATE_NAMES[READY if job.state == LIMITED else job.state],
        "policy": _policy(job.policy),
        "lease": None if job.lease is None else _lease(job.lease),
        **_extra(JobExtras() if extra is None else extra),
    }


def queue_snapshot(queue: Queue, now: int) -> Plain:
    return {
        **fields(queue, ("created_seq", "name", "utf8")),
        **fields(queue, _COUNTERS),
        "settings": fields(queue.settings, SETTINGS),
        "keys": {} if queue.keys is None else {key: job.id for key, job in queue.keys.items()},
        "rates": rates(queue, now),
        "lanes": {
            STATE_NAMES[lane]: [
                job.id for job in (waiting_jobs(queue) if lane == READY else lane_jobs(queue, lane))
            ]
            for lane in LANES
        },
    }


def pending_followups(state: State) -> dict[int, tuple[list[int], list[int]]]:
    """Who must still hear of an ended job; those told by now, or removed, are left out."""
    found = {}
    for blocker, followup in state.pending_dependents.items():
        failed = [id for id in followup.failed if waits_for(state, id, blocker)]
        succeeded = [id for id in followup.succeeded if waits_for(state, id, blocker)]
        if failed or succeeded:
            found[blocker] = failed, succeeded
    return found


def waits_for(state: State, id: int, blocker: int) -> bool:
    job = state.live_job(id)
    if job is None or job.state != BLOCKED or job.extras is None:
        return False
    return job.extras.blockers is not None and blocker in job.extras.blockers


def deadlines(state: State) -> dict[tuple[object, ...], int]:
    """When each thing that ends by itself does so; what never does is left out."""
    found = _job_deadlines(state)
    for queue in state.queues.values():
        if queue.delayed.size:
            found["wake", queue.utf8] = queue.delayed.first().order_key
        if queue.dead.size:
            found["dead", queue.utf8] = dead_letter_expiry(state, queue, queue.dead.first())
    for value in state.values.values():
        if value.expires_at:
            found["value", value.key] = value.expires_at
    for session in state.sessions.values():
        if not session.attached:
            found["session", session.id] = session.since + state.settings.outbox_age
    for consumer in state.consumers.values():
        if consumer.deadline:
            found["consumer", consumer.name] = consumer.deadline
    found |= {("schedule", s.name): s.next_at for s in state.schedules.values() if s.next_at}
    if state.tombstones.buckets:
        found["tombstones",] = state.tombstones.first_expiry()
    return found


def _job_deadlines(state: State) -> dict[tuple[object, ...], int]:
    found: dict[tuple[object, ...], int] = {}
    for job in state.jobs:
        if job.lease is not None and job.lease.deadline:
            found["lease", job.id] = job.lease.deadline
        if job.extras is not None and job.extras.expires_at and job.state != GONE:
            found["ttl", job.id] = job.extras.expires_at
    return found


def fields(thing: object, names: tuple[str, ...]) -> Plain:
    return {name: getattr(thing, name) for name in names}


def _number(queue: Queue) -> int:
    return queue.created_seq


def _id(job: Job) -> int:
    return job.id


def _policy(policy: Policy) -> Plain:
    return fields(policy, POLICY)


def _lease(lease: Lease) -> Plain:
    return fields(lease, LEASE)


def _extra(extra: JobExtras) -> Plain:
    return {
        **fields(extra, _EXTRA),
        "blockers": sorted(extra.blockers or ()),
        "notify": None if extra.notify is None else _notify(extra.notify),
    }


def _notify(notify: Notify) -> Plain:
    return fields(notify, ("session", "label", "stages"))


def _value(value: Value) -> Plain:
    return fields(value, ("key", "value_at", "size", "expires_at"))


def _session(session: DurableSession) -> Plain:
    letters = [fields(letter, _LETTER) for letter in session.outbox]
    names = ("id", "attached", "since", "numbered", "delivered")
    return {**fields(session, names), "outbox": letters}


def _consumer(consumer: BatchConsumer) -> Plain:
    names = ("name", "owner", "number", "open", "expired", "deadline", "user")
    lists = {name: list(getattr(consumer, name)) for name in ("ids", "attempts", "queues")}
    return {**fields(consumer, names), **lists}


def _reader(reader: NamedReader) -> Plain:
    return fields(reader, ("name", "next_seq", "lease_until"))


def _schedule(schedule: Schedule) -> Plain:
    job = schedule.job
    template = {**fields(job, _TEMPLATE), "policy": _policy(job.policy)}
    return {**fields(schedule, _SCHEDULE), "job": template}
