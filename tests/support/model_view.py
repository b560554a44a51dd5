"""What can be seen from outside, of the engine and of the model, as the same plain data."""

from collections.abc import Callable

from support.model import Model
from support.model_world import Job as ModelJob
from support.snapshot import LANES, lane_jobs
from taskyard.engine.effects import Assigned, Effect, GaveUp, Notice, Watched
from taskyard.engine.engine import Engine
from taskyard.engine.job import STATE_NAMES, Job, Lease, Notify, Policy
from taskyard.engine.queue import QueueSettings

Read = Callable[[int, int], bytes]  # bytes of the journal at a place
View = dict[str, object]

COUNTS = ("pushed", "leases", "finished", "failed", "retried", "released", "expired", "removed")


def engine_view(engine: Engine, read: Read) -> View:
    state = engine.state
    return {
        "epoch": state.epoch,
        "next_id": state.next_id,
        "evicted": state.evicted,
        "jobs": {job.id: _engine_job(job, read) for job in state.jobs},
        "queues": [
            {
                "name": queue.utf8,
                "settings": _settings(queue.settings),
                "counts": [getattr(queue, name) for name in COUNTS],
                "keys": {key: job.id for key, job in (queue.keys or {}).items()},
                "jobs": {
                    STATE_NAMES[lane]: [job.id for job in lane_jobs(queue, lane)] for lane in LANES
                },
            }
            for queue in state.queues.values()
        ],
        "tombstones": dict(state.tombstones),
        "values": {
            key: (read(value.at, value.size), value.expires_at)
            for key, value in state.values.items()
        },
        "sessions": {
            session.id: (
                session.attached,
                session.since,
                session.numbered,
                session.delivered,
                [(each.number, each.time, each.job, each.label, each.stage) for each in outbox],
            )
            for session in state.sessions.values()
            for outbox in [session.outbox]
        },
        "consumers": {
            name: (each.owner, each.number, each.open, each.expired, each.ids, each.deadline)
            for name, each in state.consumers.items()
        },
        "waiting": {
            name: [(waiter.number, waiter.timer.deadline) for waiter in line.values()]
            for name, line in engine.waiting.items()
        },
        "watching": sorted(
            (number, id) for id, watchers in engine.watchers.items() for number in watchers
        ),
    }


def model_view(model: Model) -> View:
    return {
        "epoch": model.epoch,
        "next_id": model.next_id,
        "evicted": model.evicted,
        "jobs": {job.id: _model_job(job) for job in model.jobs.values()},
        "queues": [
            {
                "name": name,
                "settings": _settings(queue.settings),
                "counts": [queue.counts[count] for count in COUNTS],
                "keys": _model_keys(model, name),
                "jobs": {
                    STATE_NAMES[lane]: [job.id for job in model.in_state(name, STATE_NAMES[lane])]
                    for lane in LANES
                },
            }
            for name, queue in model.queues.items()
        ],
        "tombstones": {uid: id for uid, (_, id) in model.tombstones.items()},
        "values": {key: (each.value, each.expires_at) for key, each in model.values.items()},
        "sessions": {
            id: (each.attached, each.since, each.numbered, each.delivered, each.outbox)
            for id, each in model.sessions.items()
        },
        "consumers": {
            name: (each.owner, each.number, each.open, each.expired, each.ids, each.deadline)
            for name, each in model.consumers.items()
        },
        "waiting": _model_waiting(model),
        "watching": sorted((watcher.number, watcher.job) for watcher in model.watchers),
    }


def effect_view(effects: list[Effect]) -> list[tuple[object, ...]]:
    return [_effect(effect) for effect in effects]


def _effect(effect: Effect) -> tuple[object, ...]:
    if isinstance(effect, Assigned):
        return "assigned", effect.waiter.number, effect.job.id
    if isinstance(effect, GaveUp):
        return "gave up", effect.waiter.number
    if isinstance(effect, Watched):
        return "watched", effect.watcher.number, effect.event, effect.watcher.job_id
    assert isinstance(effect, Notice)
    return "notice", effect.session, effect.label, effect.stage, effect.job_id


def _engine_job(job: Job, read: Read) -> View:
    seen = {
        "queue": job.queue.utf8,
        "state": STATE_NAMES[job.state],
        "name": job.name,
        "payload": read(job.payload_at, job.payload_size),
        "policy": _policy(job.policy),
        "numbers": (job.priority, job.dialect, job.content, job.pushed_at, job.run_at),
        "counts": (job.attempts, job.fails, job.losses, job.finished_at),
        "lease": _lease(job.lease),
    }
    extra = job.extra
    if extra is None:
        return seen | _extra(None, None, 0, 0, set(), None, b"", b"", "")
    result = read(extra.result_at, extra.result_size)
    error = read(extra.error_at, extra.error_size)
    return seen | _extra(
        extra.uid,
        extra.key,
        extra.ttl_ms,
        extra.expires_at,
        extra.blockers or set(),
        extra.notify,
        result,
        error,
        extra.reason,
    )


def _model_job(job: ModelJob) -> View:
    seen: View = {
        "queue": job.queue,
        "state": job.state,
        "name": job.name,
        "payload": job.payload,
        "policy": _policy(job.policy),
        "numbers": (job.priority, job.dialect, job.content, job.pushed_at, job.run_at),
        "counts": (job.attempts, job.fails, job.losses, job.finished_at),
        "lease": None
        if job.lease is None
        else (
            job.lease.owner,
            job.lease.bound,
            job.lease.holder,
            job.lease.epoch,
            job.lease.attempt,
            job.lease.since,
            job.lease.deadline,
        ),
    }
    return seen | _extra(
        job.uid,
        job.key,
        job.ttl_ms,
        job.expires_at,
        job.blockers,
        job.notify,
        job.result,
        job.error,
        job.reason,
    )


def _extra(
    uid: bytes | None,
    key: bytes | None,
    ttl_ms: int,
    expires_at: int,
    blockers: set[int],
    notify: Notify | None,
    result: bytes,
    error: bytes,
    reason: str,
) -> View:
    return {
        "uid": uid,
        "key": key,
        "ttl": (ttl_ms, expires_at),
        "blockers": sorted(blockers),
        "notify": None if notify is None else (notify.session, notify.label, notify.stages),
        "result": result,
        "error": error,
        "reason": reason,
    }


def _lease(lease: Lease | None) -> tuple[object, ...] | None:
    if lease is None:
        return None
    return (
        lease.owner,
        lease.bound,
        lease.holder,
        lease.epoch,
        lease.attempt,
        lease.since,
        lease.deadline,
    )


def _policy(policy: Policy) -> tuple[object, ...]:
    return (
        policy.ttr,
        policy.max_attempts,
        policy.max_fails,
        policy.max_losses,
        policy.backoff,
        policy.backoff_base,
        policy.backoff_cap,
        policy.dead_queue,
        policy.lost_is_failed,
    )


def _settings(settings: QueueSettings) -> tuple[object, ...]:
    return (
        settings.created,
        settings.paused,
        settings.retries,
        settings.result_retention,
        settings.dead_retention,
        settings.backoff,
        settings.backoff_base,
        settings.backoff_cap,
        settings.max_jobs,
        settings.max_bytes,
    )


def _model_keys(model: Model, name: bytes) -> dict[bytes, int]:
    found = {}
    for job in model.jobs.values():
        if job.key is not None and model.with_key(name, job.key) is job:
            found[job.key] = job.id
    return found


def _model_waiting(model: Model) -> dict[bytes, list[tuple[int, int]]]:
    lines: dict[bytes, list[tuple[int, int]]] = {}
    for waiter in model.waiters:
        for name in dict.fromkeys(waiter.take.queues):
            lines.setdefault(name, []).append((waiter.number, waiter.deadline))
    return lines
