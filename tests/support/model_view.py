"""What can be seen from outside, of the engine and of the model, as the same plain data."""

from collections.abc import Callable

from support.graves import remembered_uids
from support.model import Model
from support.model_world import Job as ModelJob
from support.model_world import Lease as ModelLease
from support.snapshot import LANES, LEASE, POLICY, SETTINGS, fields, lane_jobs, sorted_queues

from taskyard.engine.model.events import (
    Effect,
    JobAssigned,
    JobEvent,
    LifecycleNotice,
    WaitTimedOut,
)
from taskyard.engine.model.job import LEASED, READY, STATE_NAMES, Job, JobExtras, Lease, Notify
from taskyard.engine.model.queue import Queue
from taskyard.engine.model.state import DurableSession
from taskyard.engine.operations.facade import Engine

Read = Callable[[int, int], bytes]  # bytes of the journal at a place
View = dict[str, object]

COUNTS = ("pushed", "leases", "finished", "failed", "retried", "released", "expired", "removed")
CONSUMER = ("owner", "number", "open", "expired", "deadline")
JOB = (
    "name",
    "priority",
    "dialect",
    "content",
    "pushed_at",
    "run_at",
    "attempts",
    "fails",
    "losses",
    "leases",
    "finished_at",
)
EXTRA = ("uid", "key", "ttl_ms", "expires_at", "reason")
SESSION = ("attached", "since", "numbered", "delivered")


def engine_view(engine: Engine, read: Read) -> View:
    state = engine.state
    return {
        "counts": (state.epoch, state.next_id, state.evicted),
        "jobs": {job.id: _engine_job(job, read) for job in state.jobs},
        "queues": [_engine_queue(queue) for queue in sorted_queues(state)],
        "tombstones": remembered_uids(state.tombstones),
        "values": {
            key: (read(value.value_at, value.size), value.expires_at)
            for key, value in state.values.items()
        },
        "sessions": {id: _engine_session(each) for id, each in state.sessions.items()},
        "consumers": {
            name: {**fields(each, CONSUMER), "ids": list(each.ids)}
            for name, each in state.consumers.items()
        },
        "waiting": {
            name: [(waiter.number, waiter.timer.deadline) for waiter in line.values()]
            for name, line in engine.waiters.items()
        },
        "watching": sorted(
            (number, id) for id, watchers in engine.watchers.items() for number in watchers
        ),
    }


def model_view(model: Model) -> View:
    return {
        "counts": (model.epoch, model.next_id, model.evicted),
        "jobs": {job.id: _model_job(job) for job in model.jobs.values()},
        "queues": [_model_queue(model, name) for name in model.queues],
        "tombstones": {uid: id for uid, (_, id, _) in model.tombstones.items()},
        "values": {key: (each.value, each.expires_at) for key, each in model.values.items()},
        "sessions": {
            id: {**fields(each, SESSION), "outbox": each.outbox}
            for id, each in model.sessions.items()
        },
        "consumers": {
            name: {**fields(each, CONSUMER), "ids": each.ids}
            for name, each in model.consumers.items()
        },
        "waiting": _model_waiting(model),
        "watching": sorted((watcher.number, watcher.job) for watcher in model.watchers),
    }


def effect_view(effect: Effect) -> tuple[object, ...]:
    if isinstance(effect, JobAssigned):
        return "assigned", effect.waiter.number, effect.job.id
    if isinstance(effect, WaitTimedOut):
        return "gave up", effect.waiter.number
    if isinstance(effect, JobEvent):
        return "watched", effect.watcher.number, effect.event, effect.watcher.job_id
    assert isinstance(effect, LifecycleNotice)
    return "notice", effect.session, effect.label, effect.stage, effect.job_id


def _engine_job(job: Job, read: Read) -> View:
    extra = job.extras or JobExtras()
    return {
        **fields(job, JOB),
        **fields(extra, EXTRA),
        "queue": job.queue.utf8,
        "state": STATE_NAMES[job.state],
        "policy": fields(job.policy, POLICY),
        "lease": _lease(job.lease),
        "payload": read(job.payload_at, job.payload_size),
        "result": read(extra.result_at, extra.result_size),
        "error": read(extra.error_at, extra.error_size),
        "blockers": sorted(extra.blockers or ()),
        "notify": _notify(extra.notify),
    }


def _model_job(job: ModelJob) -> View:
    return {
        **fields(job, JOB),
        **fields(job, EXTRA),
        "queue": job.queue,
        "state": job.state,
        "policy": fields(job.policy, POLICY),
        "lease": _lease(job.lease),
        "payload": job.payload,
        "result": job.result,
        "error": job.error,
        "blockers": sorted(job.blockers),
        "notify": _notify(job.notify),
    }


def _lease(lease: Lease | ModelLease | None) -> View | None:
    return None if lease is None else fields(lease, LEASE)


def _notify(notify: Notify | None) -> View | None:
    return None if notify is None else fields(notify, ("session", "label", "stages"))


def _engine_queue(queue: Queue) -> View:
    return {
        "name": queue.utf8,
        "settings": fields(queue.settings, SETTINGS),
        "counts": fields(queue, COUNTS),
        "keys": {key: job.id for key, job in (queue.keys or {}).items()},
        "line": _engine_line(queue),
        **{STATE_NAMES[lane]: [job.id for job in lane_jobs(queue, lane)] for lane in LANES},
    }


def _engine_line(queue: Queue) -> list[int]:
    """Ready and leased jobs, each in its place."""
    jobs = lane_jobs(queue, READY) + lane_jobs(queue, LEASED)
    return [job.id for job in sorted(jobs, key=lambda job: job.order_key)]


def _model_queue(model: Model, name: bytes) -> View:
    queue = model.queues[name]
    keyed = {job.key: job for job in model.jobs.values() if job.queue == name and job.key}
    found = {key: model.with_key(name, key) for key in keyed}
    return {
        "name": name,
        "settings": fields(queue.settings, SETTINGS),
        "counts": {count: queue.counts[count] for count in COUNTS},
        "keys": {key: job.id for key, job in found.items() if job is not None},
        "line": queue.line,
        **{
            STATE_NAMES[lane]: [job.id for job in model.in_state(name, STATE_NAMES[lane])]
            for lane in LANES
        },
    }


def _engine_session(session: DurableSession) -> View:
    letters = [
        (letter.number, letter.time, letter.job, letter.label, letter.stage)
        for letter in session.outbox
    ]
    return {**fields(session, SESSION), "outbox": letters}


def _model_waiting(model: Model) -> dict[bytes, list[tuple[int, int]]]:
    lines: dict[bytes, list[tuple[int, int]]] = {}
    for waiter in model.waiters:
        for name in dict.fromkeys(waiter.take.queues):
            lines.setdefault(name, []).append((waiter.number, waiter.deadline))
    return lines
