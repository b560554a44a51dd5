"""The engine's vocabulary: every operation there is, in one place.

Each method is a line or two. The decisions are in the modules named after their subjects (push,
lease, finish, timers, admin, batches, keeping, reading, and schedules/registry.py), the changes of
state in records/apply.py and records/replay.py.
"""

from __future__ import annotations

from random import Random
from typing import Final

from mypy_extensions import i64

from taskyard.engine.model.events import (
    DuplicateJob,
    Effect,
    FetchRequest,
    JobNotFound,
    JobWatcher,
    PayloadNeeded,
    Waiter,
)
from taskyard.engine.model.job import FOREVER, GONE, SYSTEM_ORIGIN, Job, NewJob, Origin, Policy
from taskyard.engine.model.queue import DEFAULT_QUEUE_SETTINGS, Queue, QueueRule, QueueSettings
from taskyard.engine.model.state import (
    BatchConsumer,
    DurableSession,
    NamedReader,
    State,
    Value,
    derive_uid,
    job_id_of,
)
from taskyard.engine.operations import batches, finish, lease, manage, push, timers
from taskyard.engine.operations.batches import BatchRequest
from taskyard.engine.operations.checks import check_not_read_only
from taskyard.engine.operations.core import Core
from taskyard.engine.operations.push import TransactionStep
from taskyard.engine.records.entities import apply_boot
from taskyard.engine.records.job_lifecycle import DELETED, BootRecord
from taskyard.engine.records.log import RecordBuffer
from taskyard.engine.schedules import registry as schedules
from taskyard.engine.schedules.schedule import Schedule
from taskyard.engine.transitions import jobs_bound_to

# dependents resolved in the operation that ended their blocker
MAX_DEPENDENTS_RESOLVED_AT_ONCE: Final = 256
# queues and keys checked in the operation that ended a lease
MAX_LIMITS_SERVED_AT_ONCE: Final = 256
OWNERS_PER_EPOCH: Final = 1 << 40


class Engine(Core):
    def __init__(self, state: State, records: RecordBuffer, salt: bytes, random: Random) -> None:
        super().__init__(state, records, random, salt)
        self._owners: i64 = 0

    def boot(self, version: str, now: i64) -> None:
        """Start a new run of the server: leases bound to connections of the last one end, and calls
        that clients of it were waiting for are not wanted any more.
        """
        record = BootRecord(now, SYSTEM_ORIGIN, self.state.epoch + 1, version)
        self.records.append(record)
        apply_boot(self.state, record)
        self.state.queues_to_serve.clear()  # there are no waiters yet
        self.state.limits_changed = False
        for queue in self.state.queues.values():
            queue.counters_at_start = queue.counters()
        for owner in list(self.state.bound_jobs_by_owner):
            for job in jobs_bound_to(self.state, owner):
                finish.reclaim_after_restart(self, job, now)
        schedules.load_zones(self)
        for id in sorted(self.state.synchronous_jobs):
            finish.cancel_abandoned(self, id, SYSTEM_ORIGIN, now)
        self._run_followups(now)

    def new_owner(self) -> i64:
        """A number for a connection, session or consumer that no other run has used."""
        self._owners += 1
        return self.state.epoch * OWNERS_PER_EPOCH + self._owners

    # Pushing

    def push(self, new: NewJob, origin: Origin, now: i64) -> Job:
        return push.push(self, new, origin, now)

    def transact(
        self, steps: list[TransactionStep], owner: i64, origin: Origin, now: i64
    ) -> list[int]:
        ids = push.transact(self, steps, owner, origin, now)
        self._run_followups(now)
        return ids

    def push_all(
        self, new: NewJob, payloads: list[bytes], owner: i64, origin: Origin, now: i64
    ) -> None:
        """The same job with one payload after the other."""
        push.push_all(self, new, payloads, owner, origin, now)
        self._run_followups(now)

    def check_steps(self, steps: list[TransactionStep], owner: i64, origin: Origin) -> None:
        """What transact would refuse, without doing anything."""
        push.check_steps(self, steps, owner, origin)

    def check_key(self, queue: str, key: bytes) -> None:
        """Refuse a key that a job of the queue has while it waits: a push would drop it."""
        push.check_key(self, queue.encode(), key)

    # Taking

    def next_job(self, request: FetchRequest, now: i64) -> Job | None:
        """Return the job that `fetch` would deliver, if the queue is not drawn at random."""
        return lease.next_job(self, request, now)

    def next_pop(self, queue: bytes, last: bool, now: i64) -> Job | None:
        """The job that `pop` would take."""
        return lease.next_pop(self, queue, last, now)

    def fetch(self, request: FetchRequest, now: i64) -> Job | None:
        job = lease.fetch(self, request, now)
        if request.pop or request.move_to:  # one that waits at the other end may pop
            self._run_followups(now)
        return job

    def fetch_more(
        self, request: FetchRequest, jobs: list[Job], most: i64, size: i64, now: i64
    ) -> None:
        """Leases beside those of `jobs`, to which they are added: `most` in all, and no more once
        their payloads have `size` bytes."""
        lease.fetch_more(self, request, jobs, most, size, now)

    def pop(self, queue: bytes, last: bool, origin: Origin, now: i64) -> Job | None:
        job = lease.pop(self, queue, last, origin, now)
        self._run_followups(now)
        return job

    def wait_for_job(self, request: FetchRequest, deadline: i64, others: i64 = 0) -> Waiter:
        return lease.wait_for_job(self, request, deadline, others)

    def stop_waiting(self, waiter: Waiter) -> None:
        lease.stop_waiting(self, waiter)

    def on_payload_read(self, needed: PayloadNeeded, payload: bytes | None, now: i64) -> None:
        """Continue with the payload that a PayloadNeeded asked for; None: it cannot be read."""
        lease.on_payload_read(self, needed, payload, now)
        self._run_followups(now)

    def extend_lease(self, id: i64, owner: i64, ttr: i64, origin: Origin, now: i64) -> None:
        lease.extend_lease(self, self.job(id), owner, ttr, origin, now)

    def report_progress(
        self, id: i64, owner: i64, permille: i64, message: str, origin: Origin, now: i64
    ) -> None:
        lease.report_progress(self, self.job(id), owner, permille, message, origin, now)

    def release_lease(self, id: i64, owner: i64, origin: Origin, now: i64) -> None:
        lease.release_lease(self, self.job(id), owner, origin, now)
        self._run_followups(now)

    # Finishing

    def ack(self, id: i64, owner: i64, origin: Origin, now: i64) -> Job:
        job = finish.ack(self, id, owner, origin, now)
        self._run_followups(now)
        return job

    def nack(
        self,
        id: i64,
        owner: i64,
        error: bytes,
        origin: Origin,
        now: i64,
        delay: i64 = finish.BY_POLICY,
    ) -> Job:
        job = finish.nack(self, id, owner, error, origin, now, delay)
        self._run_followups(now)
        return job

    def complete(self, id: i64, result: bytes, origin: Origin, now: i64, keep: i64 = 0) -> None:
        """`keep`: for how long the result is kept; 0: as the job and its queue say."""
        finish.complete(self, self.job(id), result, origin, now, keep)
        self._run_followups(now)

    def fail(self, id: i64, error: bytes, origin: Origin, now: i64) -> None:
        finish.fail(self, self.job(id), error, origin, now)
        self._run_followups(now)

    def owner_by_token(self, id: int, epoch: int, number: int) -> i64:
        """Return the owner of the lease with this token; it must be the current one."""
        return finish.owner_by_token(self, id, epoch, number)

    def finish_with_token(
        self, id: i64, epoch: i64, number: i64, result: bytes, origin: Origin, now: i64
    ) -> Job:
        job = finish.finish_with_token(self, id, epoch, number, result, origin, now)
        self._run_followups(now)
        return job

    def disconnect(self, owner: i64, origin: Origin, now: i64) -> None:
        finish.disconnect(self, owner, origin, now)
        self._run_followups(now)

    # Batches

    def lease_batch(self, request: BatchRequest, now: i64) -> bool:
        """Lease a chunk of it; True when the request is complete."""
        done = batches.lease_batch(self, request, self.new_owner(), now)
        self._run_followups(now)
        return done

    def read_batch(
        self, consumer: str, number: i64, start: i64, count: i64, now: i64
    ) -> list[Job | None]:
        return batches.read_batch(self, consumer, number, start, count, now)

    def ack_batch(self, consumer: str, upto: i64, origin: Origin, now: i64) -> bool:
        """Finish a chunk of it; True when it was the last."""
        done = batches.ack_batch(self, consumer, upto, origin, now)
        self._run_followups(now)
        return done

    def drop_consumer(self, consumer: str, origin: Origin, now: i64) -> bool:
        """Drop a chunk of it; True when it was the last."""
        done = batches.drop_consumer(self, consumer, origin, now)
        self._run_followups(now)
        return done

    def consumer(self, name: str) -> BatchConsumer | None:
        return self.state.consumers.get(name)

    # Time

    def tick(self, now: i64, budget: i64 = 1000) -> bool:
        return timers.tick(self, now, budget)

    def resume_postponed(self, now: i64) -> None:
        """Run what was postponed for lack of space: there may be space again."""
        timers.resume_postponed(self, now)
        self._run_followups(now)

    def has_pending_work(self) -> bool:
        """Whether a tick has something to do whatever the time."""
        return timers.has_pending_work(self)

    def next_deadline(self, now: i64) -> i64:
        return timers.next_deadline(self, now)

    # Watching

    def watch_job(self, id: i64, owner: i64, deadline: i64 = 0) -> JobWatcher:
        """Watch for a job's end; `deadline` 0: however long it takes."""
        self.job(id)
        self.last_wait_number += 1
        watcher = JobWatcher(self.last_wait_number, owner, id)
        self.watchers.setdefault(id, {})[watcher.number] = watcher
        if deadline and deadline < FOREVER:
            self.state.timers.set(watcher.timer, deadline)
        return watcher

    def watch_without_deadline(self, watcher: JobWatcher) -> None:
        """From now on, however long it takes."""
        self.state.timers.cancel(watcher.timer)

    def stop_watching(self, watcher: JobWatcher) -> None:
        timers.stop_watching(self, watcher)

    # Looking after jobs

    def job(self, id: i64) -> Job:
        """The live job with this id."""
        job = self.state.live_job(id)
        if job is None:
            raise JobNotFound
        return job

    def job_by_uid(self, uid: bytes) -> Job | None:
        job = self.state.uids.get(uid)
        if job is not None:
            return job
        derived = self.state.live_job(job_id_of(self.salt, uid, self.state.next_id))
        if derived is None:
            return None
        extra = derived.extras
        return derived if extra is None or extra.uid is None else None

    def uid_of(self, job: Job) -> bytes:
        extra = job.extras
        if extra is not None and extra.uid is not None:
            return extra.uid
        return derive_uid(self.salt, job.id)

    def recent(self, id: i64) -> Job | None:
        """Return a job that is gone, if it is still in the ring of recently finished jobs."""
        job = self.state.jobs.get(id)
        return job if job is not None and job.state == GONE else None

    def recent_by_uid(self, uid: bytes) -> Job | None:
        """The same by uid, as long as that is remembered."""
        id: int = self.state.tombstones.id_of(uid)
        if not id:
            id = job_id_of(self.salt, uid)
        next_id: int = self.state.next_id
        job = self.recent(id) if 0 < id < next_id else None  # a client may send any number
        return job if job is not None and self.uid_of(job) == uid else None

    def repeated_push_id(self, new: NewJob, origin: Origin) -> int:
        """The job of which this push is a repetition; 0: of none. Refuses another's uid."""
        uid = new.uid
        if uid is None:
            return 0
        try:
            push.check_uid(self, uid, new.queue.encode(), origin)
        except DuplicateJob as error:
            return error.job_id
        return 0

    def job_id_of_uid(self, uid: bytes) -> int:
        """The job that has this uid, or had it; 0: none, or it is forgotten."""
        job = self.job_by_uid(uid)
        if job is not None:
            return job.id
        buried: int = self.state.tombstones.id_of(uid)
        if buried:
            return buried
        derived = job_id_of(self.salt, uid, self.state.next_id)
        return derived if self.state.live_job(derived) is None else 0

    def delete_job(self, id: i64, origin: Origin, now: i64, cause: i64 = DELETED) -> None:
        manage.delete_job(self, self.job(id), cause, origin, now)
        self._run_followups(now)

    def cancel_abandoned(self, id: i64, origin: Origin, now: i64) -> None:
        """Remove a job whose caller has disconnected, unless a worker has leased it."""
        check_not_read_only(self)
        finish.cancel_abandoned(self, id, origin, now)
        self._run_followups(now)

    def move_job(self, id: i64, to: str, front: bool, origin: Origin, now: i64) -> None:
        manage.move_job(self, self.job(id), to, front, origin, now)
        self._run_followups(now)

    def rescore(self, id: i64, priority: int, origin: Origin, now: i64) -> None:
        manage.rescore(self, self.job(id), priority, origin, now)

    def update_keyed(
        self, queue: str, key: bytes, delta: int, policy: Policy, origin: Origin, now: i64
    ) -> int:
        return manage.update_keyed(self, queue, key, delta, policy, origin, now)

    def wake_job(self, id: i64, origin: Origin, now: i64) -> None:
        manage.wake_job(self, self.job(id), origin, now)

    def replay_dead_letter(self, id: i64, origin: Origin, now: i64) -> None:
        manage.replay_dead_letter(self, self.job(id), origin, now)

    def remove_from_list(self, id: i64, origin: Origin, now: i64) -> None:
        manage.remove_from_list(self, self.job(id), origin, now)
        self._run_followups(now)

    # Looking after queues

    def queue(self, name: bytes) -> Queue | None:
        return self.state.queues.get(name)

    def effective_settings(self, name: bytes) -> QueueSettings:
        """The settings in effect for a queue, whether or not it is there."""
        queue = self.state.queues.get(name)
        if queue is not None:
            return queue.effective_settings
        return self.state.effective_settings_of(
            name.decode(errors="replace"), DEFAULT_QUEUE_SETTINGS
        )

    def set_queue_rules(self, rules: list[QueueRule], now: i64) -> None:
        """The configuration has other settings for queues by their names."""
        manage.set_queue_rules(self, rules)
        if not self.read_only_reason:
            self._run_followups(now)

    def set_draining(self, draining: bool) -> None:
        """Take no pushes from now on, or take them again."""
        manage.set_draining(self, draining)

    def create_queue(self, name: str, settings: QueueSettings, origin: Origin, now: i64) -> Queue:
        return manage.create_queue(self, name, settings, origin, now)

    def configure_queue(
        self, name: bytes, settings: QueueSettings, origin: Origin, now: i64
    ) -> Queue:
        return manage.configure_queue(self, name, settings, origin, now)

    def purge_queue(self, name: bytes, state: i64, count: i64, origin: Origin, now: i64) -> i64:
        removed = manage.purge_queue(self, name, state, count, origin, now)
        self._run_followups(now)
        return removed

    def delete_queue(self, name: bytes, origin: Origin, now: i64) -> None:
        manage.delete_queue(self, name, origin, now)

    def peek(self, queue: bytes) -> Job | None:
        found = self.state.queues.get(queue)
        return found.ready.first() if found is not None else None

    def jobs_from(self, queue: Queue, state: i64, start: i64, limit: i64) -> list[Job]:
        """Up to `limit` jobs of one state from the `start`-th on."""
        order = queue.priority_queue(state)
        if order is not None:
            return order.slice(start, limit)
        return queue.ordered_jobs(state).slice(start, limit)

    def jobs_after(
        self, queue: Queue, state: i64, priority: i64, position: i64, id: i64, limit: i64
    ) -> list[Job]:
        """Return up to `limit` jobs of one state behind the place that a cursor names."""
        order = queue.priority_queue(state)
        if order is not None:
            return order.jobs_after(priority, position, id, limit)
        return queue.ordered_jobs(state).jobs_after(position, id, limit)

    # Values and sessions

    def set_value(
        self, key: bytes, value: bytes, expires_at: i64, origin: Origin, now: i64
    ) -> None:
        manage.set_value(self, key, value, expires_at, origin, now)

    def set_value_expiry(self, key: bytes, expires_at: i64, origin: Origin, now: i64) -> bool:
        return manage.set_value_expiry(self, key, expires_at, origin, now)

    def delete_value(self, key: bytes, origin: Origin, now: i64) -> bool:
        return manage.delete_value(self, key, origin, now)

    def value(self, key: bytes) -> Value | None:
        return self.state.values.get(key)

    def open_session(self, id: i64, origin: Origin, now: i64) -> DurableSession:
        return manage.open_session(self, id, origin, now)

    def attach_session(self, id: i64, origin: Origin, now: i64) -> DurableSession:
        return manage.attach_session(self, id, origin, now)

    def detach_session(self, id: i64, origin: Origin, now: i64) -> None:
        manage.detach_session(self, id, origin, now)

    def close_session(self, id: i64, origin: Origin, now: i64) -> None:
        manage.close_session(self, id, origin, now)

    def acknowledge_notices(self, id: i64, upto: i64, origin: Origin, now: i64) -> None:
        manage.acknowledge_notices(self, id, upto, origin, now)

    # Readers of the journal

    def register_reader(
        self, name: str, next_seq: i64, lease: i64, origin: Origin, now: i64
    ) -> NamedReader:
        return manage.register_reader(self, name, next_seq, lease, origin, now)

    def commit_reader(
        self, name: str, next_seq: i64, lease: i64, origin: Origin, now: i64
    ) -> NamedReader:
        return manage.commit_reader(self, name, next_seq, lease, origin, now)

    def drop_reader(self, name: str, origin: Origin, now: i64) -> None:
        manage.drop_reader(self, name, origin, now)

    def reader(self, name: str) -> NamedReader | None:
        return self.state.readers.get(name)

    # Schedules

    def set_schedule(self, wanted: Schedule, origin: Origin, now: i64) -> Schedule:
        return schedules.set_schedule(self, wanted, origin, now)

    def pause_schedule(self, name: str, paused: bool, origin: Origin, now: i64) -> Schedule:
        return schedules.pause_schedule(self, name, paused, origin, now)

    def delete_schedule(self, name: str, origin: Origin, now: i64) -> None:
        schedules.delete_schedule(self, name, origin, now)

    def run_schedule(self, name: str, origin: Origin, now: i64) -> Job:
        job = schedules.run_schedule(self, name, origin, now)
        self._run_followups(now)
        return job

    def schedule(self, name: str) -> Schedule | None:
        return self.state.schedules.get(name)

    # Results

    def drain_effects(self) -> list[Effect]:
        effects = self.effects
        if effects:
            self.effects = []
        return effects

    def check_not_read_only(self) -> None:
        check_not_read_only(self)

    def _run_followups(self, now: i64) -> None:
        if self.state.pending_dependents:
            finish.resolve_dependents(self, now, MAX_DEPENDENTS_RESOLVED_AT_ONCE)
        if self.state.limits_changed:
            timers.serve_after_limit_change(self, now, MAX_LIMITS_SERVED_AT_ONCE)
