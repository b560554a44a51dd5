"""The reference model: what the engine must do, said as simply as possible.

model_world.py has what it knows, model_jobs.py and model_pushing.py the life of a job; here is the
rest: looking after jobs and queues, batches, values, sessions, restarts, and the passing of time.
"""

from collections.abc import Iterator, Mapping

from support.model_checks import check_settings, require, valid_name
from support.model_pushing import Pushing
from support.model_world import (
    ENDED,
    FOREVER,
    OPEN,
    UID_STRETCH,
    UID_STRETCHES,
    Consumer,
    Job,
    Queue,
    Session,
    Value,
    Watcher,
)

from taskyard.engine.model.events import (
    WATCH_TIMEOUT,
    JobNotFound,
    QueueExists,
    QueueNotFound,
    SessionNotFound,
    StaleBatch,
    WrongState,
)
from taskyard.engine.model.job import STATE_NAMES, SYNCHRONOUS_CALL, NewJob, Origin, Policy
from taskyard.engine.model.queue import QueueSettings

Event = tuple[int, str, object]  # deadline, kind, whose
Hints = Mapping[tuple[str, object], int]  # the order in which things happened, as far as known


def _likely(event: Event, hints: Hints) -> int:
    """What leaves no trace of its place among the others is tried at once."""
    if event[1] in ("waiter", "watcher", "value", "session", "tombstones"):
        return -1
    return hints.get(event[1:], len(hints))


class Model(Pushing):
    def boot(self, now: int, order: list[int]) -> None:
        """Connections are gone: leases bound to them end, with the attempt but no fail counted;
        where no further attempt is allowed, that is the end of the job.

        `order` is the one in which the engine ended them; any will do.
        """
        self.epoch += 1
        self.evicted = 0
        self.numbered = 0
        self.waiters = []
        self.watchers = []
        for session in self.sessions.values():
            if session.attached:
                session.attached = False
                session.since = now
        bound = [job.id for job in self.jobs.values() if job.lease and job.lease.bound]
        assert sorted(order) == bound
        for id in order:
            self.take_back(self.jobs[id], now)
        for job in list(self.jobs.values()):
            called = job.notify is not None and job.notify.stages & SYNCHRONOUS_CALL
            if called and job.state not in ("leased", "gone"):
                self._delete(job, now)  # nobody waits for it any more
        self.settle(now)

    # Watching

    def watch(self, id: int, deadline: int) -> int:
        self._found(id)
        self.numbered += 1
        self.watchers.append(Watcher(self.numbered, id, deadline))
        return self.numbered

    def stop_watching(self, number: int) -> None:
        self.watchers = [watcher for watcher in self.watchers if watcher.number != number]

    # Looking after jobs

    def delete(self, id: int, now: int) -> None:
        self._delete(self._found(id), now)
        self.settle(now)

    def _delete(self, job: Job, now: int) -> None:
        self.queues[job.queue].counts["removed"] += job.state in OPEN
        self.remove(job, now)

    def move(self, id: int, to: str, front: bool, now: int) -> None:
        job = self._found(id)
        if job.state not in ("ready", "delayed", "failed"):
            raise WrongState
        require(valid_name(to), "queue")
        if job.state == "failed":
            self._revive(job)
        self.put_ready(job, to, front)
        self.serve(job.queue, now)
        self.settle(now)

    def rescore(self, id: int, priority: int) -> None:
        job = self._found(id)
        require(-(2**63) <= priority < 2**63, "priority")
        if job.state in ENDED:
            raise WrongState
        job.priority = priority
        if job.state == "ready":
            self._leave(job)
            self._join_back(job)

    def update_keyed(
        self, queue: str, key: bytes, delta: int, policy: Policy, origin: Origin, now: int
    ) -> int:
        job = self.with_key(queue.encode(), key)
        if job is not None:
            self.rescore(job.id, job.priority + delta)
            return job.priority
        require(-(2**63) <= delta < 2**63, "score")
        self.push(NewJob(queue, queue, key, policy, priority=delta, key=key), origin, now)
        return delta

    def wake_now(self, id: int, now: int) -> None:
        job = self._found(id)
        if job.state != "delayed":
            raise WrongState
        self._join_back(job)
        self.serve(job.queue, now)
        self.settle(now)

    def replay(self, id: int, now: int) -> None:
        """A dead letter lives again in its queue, with its counts at zero."""
        job = self._found(id)
        if job.state != "failed":
            raise WrongState
        self._leave(job)
        self._revive(job)
        self._join_back(job)
        self.serve(job.queue, now)
        self.settle(now)

    def _revive(self, job: Job) -> None:
        job.attempts = job.fails = job.losses = 0
        job.finished_at = 0
        job.result = b""
        job.reason = ""

    def take_out(self, id: int, now: int) -> None:
        job = self.live(id)
        if job is None:
            raise JobNotFound
        if job.state != "ready":
            raise WrongState
        self._finish(job, b"", now)
        self.settle(now)

    # Looking after queues

    def create_queue(self, name: str, settings: QueueSettings) -> None:
        require(valid_name(name), "queue")
        check_settings(settings)
        if name.encode() in self.queues:
            raise QueueExists
        settings.created = True
        self.queue(name.encode()).settings = settings

    def configure_queue(self, name: bytes, settings: QueueSettings, now: int) -> None:
        queue = self._queue(name)
        check_settings(settings)
        queue.settings = settings
        self.serve(name, now)
        self.settle(now)

    def purge(self, name: bytes, state: int, count: int, now: int) -> int:
        self._queue(name)
        require(0 <= state <= 5, "state")
        require(count >= 0, "count")
        jobs = self.in_state(name, STATE_NAMES[state])[:count]
        for job in jobs:
            self._delete(job, now)
        self.settle(now)
        return len(jobs)

    def delete_queue(self, name: bytes) -> None:
        self._queue(name)
        if any(job.queue == name and job.state != "gone" for job in self.jobs.values()):
            raise WrongState
        del self.queues[name]

    def _queue(self, name: bytes) -> Queue:
        if name not in self.queues:
            raise QueueNotFound
        return self.queues[name]

    # Batches

    def lease_batch(
        self,
        name: str,
        number: int,
        queues: list[bytes],
        limit: int,
        ttr: int,
        owner: int,
        origin: Origin,
        now: int,
    ) -> list[int]:
        """The same jobs for the same number; the next number says that this one is done."""
        require(valid_name(name), "consumer")
        require(1 <= limit <= 1_000_000, "limit")
        require(0 <= ttr < FOREVER - now, "ttr")
        consumer = self.consumers.get(name)
        require(number >= 1, "batch")
        if consumer is None:
            consumer = Consumer(owner, number, False, False, [], 0)
        elif consumer.open and 0 < consumer.deadline <= now:
            raise StaleBatch  # also while its jobs are still being given back
        elif number == consumer.number and consumer.open:
            return [job.id for job in self._batch(consumer)]
        elif consumer.expired or number != consumer.number + 1:
            raise StaleBatch
        else:
            self._finish_batch(consumer, now)
            self.settle(now)
        jobs: list[Job] = []
        for queue in dict.fromkeys(queues):
            if self.first_ready(queue) is not None:
                jobs += self.in_state(queue, "ready")
        del jobs[limit:]
        if not jobs:
            return []
        self.consumers[name] = consumer
        for job in jobs:
            self.lease(job, consumer.owner, False, origin.holder, now, 0)
        consumer.number = number
        consumer.open = True
        consumer.ids = [job.id for job in jobs]
        consumer.deadline = now + ttr if ttr else 0
        self.settle(now)
        return consumer.ids

    def ack_batch(self, name: str, upto: int, now: int) -> None:
        require(upto >= 0, "batch")
        consumer = self.consumers.get(name)
        if upto > (consumer.number if consumer else 0):
            raise StaleBatch
        if consumer is None or upto < consumer.number:
            return
        if consumer.expired or (consumer.open and 0 < consumer.deadline <= now):
            raise StaleBatch
        self._finish_batch(consumer, now)
        self.settle(now)

    def drop_consumer(self, name: str, now: int) -> None:
        if name not in self.consumers:
            raise StaleBatch
        for job in self._batch(self.consumers[name]):
            self.release(job, now)
        del self.consumers[name]
        self.settle(now)

    def _batch(self, consumer: Consumer) -> list[Job]:
        """What the consumer still holds of its batch."""
        jobs = [self.live(id) for id in consumer.ids]
        return [job for job in jobs if job and job.lease and job.lease.owner == consumer.owner]

    def _finish_batch(self, consumer: Consumer, now: int) -> None:
        for job in self._batch(consumer):
            self._finish(job, b"", now)
        self._close_batch(consumer)

    def _close_batch(self, consumer: Consumer) -> None:
        consumer.open = False
        consumer.ids = []
        consumer.deadline = 0

    # Values and sessions

    def set_value(self, key: bytes, value: bytes, expires_at: int, now: int) -> None:
        require(1 <= len(key) <= 65535, "key")
        require(not expires_at or now < expires_at <= FOREVER, "expires_at")
        require(len(value) <= self.settings.payload_limit, "value")
        self.values[key] = Value(value, expires_at)

    def expire_value(self, key: bytes, expires_at: int, now: int) -> bool:
        require(not expires_at or now < expires_at <= FOREVER, "expires_at")
        if key not in self.values:
            return False
        self.values[key].expires_at = expires_at
        return True

    def delete_value(self, key: bytes) -> bool:
        return self.values.pop(key, None) is not None

    def open_session(self, id: int, now: int) -> None:
        require(id not in self.sessions, "session")
        self.sessions[id] = Session(True, now)

    def attach_session(self, id: int, now: int) -> None:
        session = self._session(id)
        session.attached, session.since = True, now

    def detach_session(self, id: int, now: int) -> None:
        if id in self.sessions:
            session = self.sessions[id]
            session.attached, session.since = False, now

    def close_session(self, id: int, _now: int) -> None:
        self._session(id)
        del self.sessions[id]

    def letters_delivered(self, id: int, upto: int) -> None:
        session = self.sessions.get(id)
        if session is None:
            return
        require(upto <= session.numbered, "upto")
        session.delivered = max(session.delivered, upto)
        session.outbox = [letter for letter in session.outbox if letter[0] > session.delivered]

    def _session(self, id: int) -> Session:
        if id not in self.sessions:
            raise SessionNotFound
        return self.sessions[id]

    # Time

    def ticks(self, now: int, hints: Hints) -> Iterator["Model"]:
        """Every world that doing what is due can lead to, the likeliest first.

        What is due earlier is done earlier; what is due at the same time goes in any order. A
        queue's delayed jobs wake together and its dead letters go together, and both may do so
        as soon as one of them is due; or, if the work is done in small chunks, one by one.
        """
        due = sorted(self.due(now), key=lambda event: event[0])
        if not due:
            yield self
            return
        first = [event for event in due if event[0] == due[0][0]]
        first += [event for event in due[len(first) :] if event[1].startswith(("wake", "dead"))]
        for event in sorted(first, key=lambda event: _likely(event, hints)):
            world = self if len(first) == 1 else self.copy()
            assert isinstance(world, Model)
            world._happen(event, now)
            world.settle(now)
            yield from world.ticks(now, hints)

    def due(self, now: int) -> list[Event]:
        return [event for event in self.planned() if 0 < event[0] <= now]

    def planned(self) -> Iterator[Event]:
        """All that will happen by itself; a time of 0 means never."""
        yield from self._planned_for_jobs()
        for waiter in self.waiters:
            yield waiter.deadline, "waiter", waiter.number
        for watcher in self.watchers:
            yield watcher.deadline, "watcher", watcher.number
        for key, value in self.values.items():
            yield value.expires_at, "value", key
        for id, session in self.sessions.items():
            if not session.attached:
                yield session.since + self.settings.outbox_age, "session", id
        for name, consumer in self.consumers.items():
            yield consumer.deadline, "consumer", name
        if self.tombstones:
            first = min(when for when, _, _ in self.tombstones.values())
            yield self._forgotten_at(first), "tombstones", None

    def _planned_for_jobs(self) -> Iterator[Event]:
        for job in self.jobs.values():
            if job.lease is not None:
                yield job.lease.deadline, "lease", job.id
            if job.state != "gone":
                yield job.expires_at, "ttl", job.id
        for name in self.queues:
            for job in self.in_state(name, "delayed")[:1]:
                yield job.wake_at, *(("wake one", job.id) if self.portions else ("wake", name))
            for job in self.in_state(name, "failed")[:1]:
                until = self._dead_until(job)
                yield until, *(("dead one", job.id) if self.portions else ("dead", name))

    def _dead_until(self, job: Job) -> int:
        kept = self.queues[job.queue].settings.dead_retention
        return job.finished_at + (kept if kept >= 0 else self.settings.dead_retention)

    def _happen(self, event: Event, now: int) -> None:
        _, kind, whose = event
        if kind == "value":
            assert isinstance(whose, bytes)
            del self.values[whose]
        elif kind == "tombstones":
            self.tombstones = {
                uid: buried
                for uid, buried in self.tombstones.items()
                if self._forgotten_at(buried[0]) > now
            }
        elif kind == "consumer":
            assert isinstance(whose, str)
            self._expire_batch(self.consumers[whose], now)
        elif kind in ("wake", "dead"):
            assert isinstance(whose, bytes)
            self._queue_event(kind, whose, now)
        else:
            assert isinstance(whose, int)
            self._numbered_event(kind, whose, now)

    def _forgotten_at(self, when: int) -> int:
        """Uids are forgotten together, a stretch of time at once: a little late, never early."""
        window = self.settings.uid_window
        stretch = max(UID_STRETCH, window // UID_STRETCHES)
        return when - when % stretch + stretch + window

    def _expire_batch(self, consumer: Consumer, now: int) -> None:
        for job in self._batch(consumer):
            self.lose(job, now)
        self._close_batch(consumer)
        consumer.expired = True

    def _queue_event(self, kind: str, name: bytes, now: int) -> None:
        if kind == "wake":
            for job in self.in_state(name, "delayed"):
                if job.wake_at <= now:
                    self._join_back(job)
            self.serve(name, now)
            return
        for job in self.in_state(name, "failed"):
            if self._dead_until(job) <= now:
                self.remove(job, now, remember=True)

    def _numbered_event(self, kind: str, number: int, now: int) -> None:
        if kind == "waiter":
            self.stop_waiting(number)
            self.effects.append(("gave up", number))
        elif kind == "watcher":
            job = next(watcher.job for watcher in self.watchers if watcher.number == number)
            self.stop_watching(number)
            self.effects.append(("watched", number, WATCH_TIMEOUT, job))
        elif kind == "session":
            del self.sessions[number]
        elif kind == "wake one":
            self._join_back(self.jobs[number])
        elif kind == "dead one":
            self.remove(self.jobs[number], now, remember=True)
        elif kind == "lease":
            self.lose(self.jobs[number], now)
        else:
            self._expire_job(self.jobs[number], now)

    def _expire_job(self, job: Job, now: int) -> None:
        """Its ttl is over, or the retention of its result: only the latter remembers its uid."""
        if job.state in OPEN:
            self.queues[job.queue].counts["expired"] += 1
            self.evicted += 1
        self.remove(job, now, remember=not job.ttl_ms)
