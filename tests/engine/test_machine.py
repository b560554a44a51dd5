"""Engine and reference model, driven side by side through every operation with a fake clock.

After each step both must show the same, the records so far must give the same state again, and
the engine's invariants must hold.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from itertools import islice

from engine.draws import (
    NAMES,
    OWNERS,
    PAYLOAD_LIMIT,
    DrawnStep,
    Settings,
    Wish,
    bad_queue_settings,
    blobs,
    blocked_wishes,
    budgets,
    durations,
    faults,
    keys,
    make_settings,
    name_lists,
    names,
    origins,
    owners,
    picks,
    plain_wishes,
    policies,
    queue_settings,
    scores,
    steps,
    wishes,
)
from engine.harness import ORIGIN, SALT, START, Bench, machine_settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule
from support.model import Model
from support.model_invariants import check_invariants
from support.model_view import effect_view, engine_view, model_view
from support.model_world import OPEN
from support.snapshot import snapshot

from taskyard.engine.effects import Notice, Take, Waiter, Watcher
from taskyard.engine.engine import Engine
from taskyard.engine.errors import DuplicateJob, StepRefused, TaskyardError
from taskyard.engine.job import FOREVER, SECOND, Job, Origin, Policy
from taskyard.engine.pushing import Step
from taskyard.engine.queue import Queue
from taskyard.engine.records import Fail, Record, Release, Remove, Retry, Wake
from taskyard.engine.replay import apply_record
from taskyard.engine.side_records import BatchDone
from taskyard.engine.state import EngineSettings, Session, State
from taskyard.engine.uid import derive_uid


@dataclass
class Refusal:
    """How an operation was refused, as far as both sides must agree on it."""

    error: type[BaseException]
    details: tuple[object, ...] = ()


@dataclass
class Waiting:
    """Objects of the engine that the test must hand back to it."""

    waiters: dict[int, Waiter] = field(default_factory=dict)
    watchers: dict[int, Watcher] = field(default_factory=dict)


def outcome(call: Callable[[], object]) -> object:
    """What came back, or how it was refused, in terms that both sides have."""
    try:
        return plain(call())
    except StepRefused as error:
        return Refusal(StepRefused, (error.index, type(error.cause)))
    except DuplicateJob as error:
        return Refusal(DuplicateJob, (error.job_id,))
    except TaskyardError as error:
        return Refusal(type(error))


def plain(value: object) -> object:
    if isinstance(value, Job):
        return value.id
    if isinstance(value, Waiter | Watcher):
        return value.number
    if isinstance(value, list):
        return [plain(each) for each in value]
    return None if isinstance(value, Queue | Session) else value


def order_of(records: list[Record]) -> dict[tuple[str, object], int]:
    """Which timers seem to have been met in which order."""
    met: list[tuple[str, object]] = []
    for record in records:
        if isinstance(record, Release | Fail):
            met.append(("lease", record.id))
        elif isinstance(record, Wake):
            met.append(("wake", record.queue))
        elif isinstance(record, Remove):
            met += [("ttl", record.id), ("dead", record.queue)]
        elif isinstance(record, BatchDone):
            met.append(("consumer", record.consumer))
    return {each: place for place, each in enumerate(dict.fromkeys(met))}


def with_job(*states: str) -> Callable[["EngineAndModel"], bool]:
    """A rule is of use while there is a job in one of these states."""

    def has_one(machine: "EngineAndModel") -> bool:
        return any(job.state in states for job in machine.model.jobs.values())

    return has_one


class EngineAndModel(RuleBasedStateMachine):
    bench: Bench
    model: Model

    @initialize(
        seed=st.integers(0, 3),
        window=st.sampled_from((0, 20 * SECOND, 20 * SECOND)),
        letters=st.integers(0, 5),
        jobs=st.lists(plain_wishes | wishes, min_size=2, max_size=10),
        sessions=st.sets(st.sampled_from((1, 2))),
    )
    def start(
        self, seed: int, window: int, letters: int, jobs: list[Wish], sessions: set[int]
    ) -> None:
        settings = EngineSettings(
            payload_limit=PAYLOAD_LIMIT,
            finished_bytes=1 << 40,
            uid_window=window,
            dead_retention=30 * SECOND,
            dead_bytes=2 * 512 + 20,
            default_ttr=4 * SECOND,
            outbox_age=15 * SECOND,
            outbox_bytes=letters * 64,
        )
        self.bench = Bench(settings, seed)
        self.model = Model(settings, SALT)
        self.model.boot(self.bench.now)
        self.shadow = State(settings)
        self.waiting = Waiting()
        self.follow()
        self.compare()
        for id in sessions:
            self.session(id, "open", 0)
        for wish in jobs:
            self.push_wish(wish, ORIGIN)
        self.fetch_anything(1, True, False, 3)

    @property
    def now(self) -> int:
        return self.bench.now

    @property
    def engine(self) -> Engine:
        return self.bench.engine

    # Both sides, step by step

    def do(
        self, engine: Callable[[Engine], object], model: Callable[[Model, object], object]
    ) -> object:
        """The same on both sides; what comes back must be the same."""
        before = len(self.bench.frames)
        got = outcome(lambda: engine(self.engine))
        records = self.follow()
        self.model.retries = {each.id: each.run_at for each in records if isinstance(each, Retry)}
        wanted = outcome(lambda: model(self.model, got))
        assert got == wanted
        assert not isinstance(got, Refusal) or len(self.bench.frames) == before
        if self.engine.state.followups:
            self.tick(1000)
        else:
            self.compare()
        return got

    def follow(self) -> list[Record]:
        """Apply what was logged since the last time to a second state."""
        records = self.bench.collect()
        for record in records:
            apply_record(self.shadow, record)
        assert snapshot(self.shadow) == snapshot(self.engine.state)
        return records

    def tick(self, budget: int) -> None:
        """Ties may go either way: the model takes the way that the engine took."""
        records: list[Record] = []
        while self.engine.tick(self.now, budget):
            records += self.follow()
        records += self.follow()
        hints = order_of(records)
        before = self.model.copy()
        seen = self.visible()
        for world in islice(self.model.ticks(self.now, hints), 300):
            if seen == (model_view(world), sorted(world.effects)):
                self.model = world
                break
        else:
            assert isinstance(before, Model)
            self.model = next(before.ticks(self.now, hints))
        self.compare()

    def visible(self) -> tuple[dict[str, object], list[tuple[object, ...]]]:
        effects = sorted(effect_view(effect) for effect in self.engine.effects)
        return engine_view(self.engine, self.bench.read), effects

    def compare(self) -> None:
        view, effects = self.visible()
        assert view == model_view(self.model)
        assert effects == sorted(self.model.effects)
        for effect in self.engine.effects:
            assert not isinstance(effect, Notice) or 0 < effect.mark <= self.engine.log.mark()
        self.engine.take_effects()
        self.model.take_effects()
        check_invariants(self.engine)
        planned = [when for when, _, _ in self.model.planned() if 0 < when < FOREVER]
        if planned:
            assert 0 < self.engine.next_deadline(self.now) <= max(self.now, min(planned))

    def teardown(self) -> None:
        if hasattr(self, "bench"):
            assert snapshot(self.bench.rebuild()) == snapshot(self.engine.state)

    # Choosing among what is there

    def some_job(self, pick: int, *states: str) -> int:
        """The id of a job: mostly a live one, now and then one that is gone or never was."""
        if pick >= 18:
            return max(1, self.model.next_id - 19 + pick)
        jobs = [job for job in self.model.jobs.values() if job.state != "gone"]
        jobs = [job for job in jobs if job.state in states] or jobs
        return jobs[pick % len(jobs)].id if jobs else self.model.next_id

    def holder_of(self, id: int, right: bool) -> int:
        job = self.model.jobs.get(id)
        owner = job.lease.owner if job is not None and job.lease is not None else 1
        return owner if right else owner + 1

    # Time

    @rule(duration=durations, budget=budgets)
    def time_passes(self, duration: int, budget: int) -> None:
        """Each timer is met when it is due."""
        target = self.now + duration
        self.meet_due(budget)
        while 0 < self.engine.next_deadline(self.now) <= target:
            self.bench.now = max(self.now, self.engine.next_deadline(self.now))
            self.meet_due(budget)
        self.bench.now = target

    @rule(budget=budgets)
    def next_timer(self, budget: int) -> None:
        when = self.engine.next_deadline(self.now)
        if 0 < when < FOREVER:
            self.bench.now = max(self.now, when)
            self.meet_due(budget)

    def meet_due(self, budget: int) -> None:
        # Woken jobs are handed out after each portion, so that its size shows to those who wait.
        self.tick(1000 if self.engine.waiting else budget)

    @rule(duration=durations)
    def clock_runs_ahead(self, duration: int) -> None:
        """Commands may be met before the timers that are due."""
        self.bench.now += duration

    @rule(downtime=st.just(0) | durations)
    def restart(self, downtime: int) -> None:
        self.bench.now += downtime
        self.bench.restart()
        self.waiting = Waiting()
        self.follow()
        self.model.boot(self.now)
        self.compare()

    # Pushing

    def push_wish(self, wish: Wish, origin: Origin) -> None:
        ids = [self.some_job(pick) for pick in wish.blockers]
        self.do(
            lambda engine: engine.push(wish.new(self.now, ids), origin, self.now),
            lambda model, _: model.push(wish.new(self.now, ids), origin, self.now),
        )

    @rule(many=st.lists(plain_wishes, min_size=1, max_size=4))
    def push_plain(self, many: list[Wish]) -> None:
        for wish in many:
            self.push_wish(wish, ORIGIN)

    @rule(wish=wishes, origin=origins)
    def push(self, wish: Wish, origin: Origin) -> None:
        self.push_wish(wish, origin)

    @rule(wish=blocked_wishes)
    def push_blocked(self, wish: Wish) -> None:
        self.push_wish(wish, ORIGIN)

    @rule(drawn=steps, owner=owners)
    def transact(self, drawn: list[DrawnStep], owner: int) -> None:
        acks = [each for each in drawn if isinstance(each, int)]
        if acks:
            owner = self.holder_of(self.some_job(acks[0], "leased"), True)
        both = self.make_steps(drawn), self.make_steps(drawn)
        self.do(
            lambda engine: engine.transact(both[0], owner, ORIGIN, self.now),
            lambda model, _: model.transact(both[1], owner, ORIGIN, self.now),
        )

    def make_steps(self, drawn: list[DrawnStep]) -> list[Step]:
        made = []
        for each in drawn:
            if isinstance(each, int):
                made.append(Step(None, self.some_job(each, "leased")))
            elif isinstance(each, Wish):
                ids = [self.some_job(pick) for pick in each.blockers]
                made.append(Step(each.new(self.now, ids)))
            else:
                made.append(Step(each[0].new(self.now, [each[1]])))
        return made

    # Taking

    def fetch_or_wait(self, take: Take, patience: int | None) -> None:
        got = self.do(
            lambda engine: engine.fetch(take, self.now),
            lambda model, got: model.fetch(take, self.now, self.queue_of(got)),
        )
        if got is None and patience is not None:
            self.wait(take, self.now + patience)

    def queue_of(self, id: object) -> bytes | None:
        job = self.engine.state.jobs.get(id) if isinstance(id, int) else None
        return None if job is None else job.queue.utf8

    def wait(self, take: Take, deadline: int) -> None:
        def start(engine: Engine) -> Waiter:
            waiter = engine.wait(take, deadline)
            self.waiting.waiters[waiter.number] = waiter
            return waiter

        self.do(start, lambda model, _: model.wait(take, deadline))

    @rule(owner=owners, bound=st.booleans(), uniform=st.booleans(), count=st.integers(1, 3))
    def fetch_anything(self, owner: int, bound: bool, uniform: bool, count: int) -> None:
        for _ in range(count):
            take = Take([b"a", b"b", b"dead"], owner, ORIGIN, bound, uniform)
            self.fetch_or_wait(take, None)

    @rule(
        queues=name_lists,
        owner=owners,
        origin=origins,
        bound=st.booleans(),
        uniform=st.booleans(),
        pop=st.booleans(),
        ttr=st.sampled_from((0, 0, 3 * SECOND, FOREVER)),
        patience=durations | st.just(0),
    )
    def fetch_with_patience(
        self,
        queues: list[str],
        owner: int,
        origin: Origin,
        bound: bool,
        uniform: bool,
        pop: bool,
        ttr: int,
        patience: int,
    ) -> None:
        encoded = [name.encode() for name in queues]
        self.fetch_or_wait(Take(encoded, owner, origin, bound, uniform, pop, ttr), patience)

    @precondition(lambda machine: machine.waiting.waiters)
    @rule(pick=picks)
    def stop_waiting(self, pick: int) -> None:
        waiters = list(self.waiting.waiters.values())
        waiter = waiters[pick % len(waiters)]
        self.do(
            lambda engine: engine.stop_waiting(waiter),
            lambda model, _: model.stop_waiting(waiter.number),
        )

    @rule(name=names, last=st.booleans())
    def pop(self, name: str, last: bool) -> None:
        self.do(
            lambda engine: engine.pop(name.encode(), last, ORIGIN, self.now),
            lambda model, _: model.pop(name.encode(), last, self.now),
        )

    @precondition(with_job("leased"))
    @rule(pick=picks, ttr=st.sampled_from((1, 6 * SECOND, FOREVER - 1)))
    def extend(self, pick: int, ttr: int, right: bool = True) -> None:
        id = self.some_job(pick, "leased")
        owner = self.holder_of(id, right)
        self.do(
            lambda engine: engine.extend(id, owner, ttr, ORIGIN, self.now),
            lambda model, _: model.extend(id, owner, ttr, self.now),
        )

    @precondition(with_job("leased"))
    @rule(pick=picks)
    def give_back(self, pick: int, right: bool = True) -> None:
        id = self.some_job(pick, "leased")
        owner = self.holder_of(id, right)
        self.do(
            lambda engine: engine.give_back(id, owner, ORIGIN, self.now),
            lambda model, _: model.give_back(id, owner, self.now),
        )

    # Finishing

    @precondition(with_job("leased"))
    @rule(pick=picks)
    def ack(self, pick: int, right: bool = True) -> None:
        id = self.some_job(pick, "leased")
        owner = self.holder_of(id, right)
        self.do(
            lambda engine: engine.ack(id, owner, ORIGIN, self.now),
            lambda model, _: model.ack(id, owner, self.now),
        )

    @precondition(with_job("leased"))
    @rule(pick=picks, error=blobs)
    def nack(self, pick: int, error: bytes, right: bool = True) -> None:
        id = self.some_job(pick, "leased")
        owner = self.holder_of(id, right)
        self.do(
            lambda engine: engine.nack(id, owner, error, ORIGIN, self.now),
            lambda model, _: model.nack(id, owner, error, self.now),
        )

    @precondition(with_job("leased"))
    @rule(pick=picks, result=blobs)
    def finish_with_token(self, pick: int, result: bytes, later: tuple[int, int] = (0, 0)) -> None:
        id = self.some_job(pick, "leased")
        job = self.model.jobs.get(id)
        lease = job.lease if job is not None else None
        epoch = (lease.epoch if lease is not None else 1) + later[0]
        attempt = (lease.attempt if lease is not None else 1) + later[1]
        self.do(
            lambda engine: engine.finish_with_token(id, epoch, attempt, result, ORIGIN, self.now),
            lambda model, _: model.finish_with_token(id, epoch, attempt, result, self.now),
        )

    @precondition(with_job("leased"))
    @rule(owner=owners)
    def disconnect(self, owner: int) -> None:
        self.do(
            lambda engine: engine.disconnect(owner, ORIGIN, self.now),
            lambda model, _: model.disconnect(owner, self.now),
        )

    @precondition(with_job(*OPEN))
    @rule(pick=picks, result=blobs)
    def complete(self, pick: int, result: bytes) -> None:
        id = self.some_job(pick)
        self.do(
            lambda engine: engine.complete(id, result, ORIGIN, self.now),
            lambda model, _: model.complete(id, result, self.now),
        )

    @precondition(with_job(*OPEN))
    @rule(pick=picks, error=blobs)
    def fail(self, pick: int, error: bytes) -> None:
        id = self.some_job(pick)
        self.do(
            lambda engine: engine.fail(id, error, ORIGIN, self.now),
            lambda model, _: model.fail(id, error, self.now),
        )

    # Watching

    @precondition(with_job(*OPEN))
    @rule(pick=picks, patience=st.none() | durations)
    def watch(self, pick: int, patience: int | None) -> None:
        id = self.some_job(pick)
        deadline = 0 if patience is None else self.now + patience

        def start(engine: Engine) -> Watcher:
            watcher = engine.watch(id, 1, deadline)
            self.waiting.watchers[watcher.number] = watcher
            return watcher

        self.do(start, lambda model, _: model.watch(id, deadline))

    @precondition(lambda machine: machine.waiting.watchers)
    @rule(pick=picks)
    def stop_watching(self, pick: int) -> None:
        watchers = list(self.waiting.watchers.values())
        watcher = watchers[pick % len(watchers)]
        self.do(
            lambda engine: engine.stop_watching(watcher),
            lambda model, _: model.stop_watching(watcher.number),
        )

    # Looking after jobs

    @precondition(with_job("ready", "blocked"))
    @rule(pick=picks)
    def delete(self, pick: int) -> None:
        id = self.some_job(pick)
        self.do(
            lambda engine: engine.delete(id, ORIGIN, self.now),
            lambda model, _: model.delete(id, self.now),
        )

    @precondition(with_job("ready", "delayed", "failed"))
    @rule(pick=picks, to=st.sampled_from((*NAMES, "dead")), front=st.booleans())
    def move(self, pick: int, to: str, front: bool) -> None:
        id = self.some_job(pick)
        self.do(
            lambda engine: engine.move(id, to, front, ORIGIN, self.now),
            lambda model, _: model.move(id, to, front, self.now),
        )

    @precondition(with_job(*OPEN))
    @rule(pick=picks, priority=scores)
    def rescore(self, pick: int, priority: int) -> None:
        id = self.some_job(pick)
        self.do(
            lambda engine: engine.rescore(id, priority, ORIGIN, self.now),
            lambda model, _: model.rescore(id, priority),
        )

    @rule(name=names, key=keys, delta=scores, policy=policies)
    def update_keyed(self, name: str, key: bytes, delta: int, policy: Policy) -> None:
        self.do(
            lambda engine: engine.update_keyed(name, key, delta, policy, ORIGIN, self.now),
            lambda model, _: model.update_keyed(name, key, delta, policy, ORIGIN, self.now),
        )

    @precondition(with_job("delayed"))
    @rule(pick=picks, state=st.sampled_from(("delayed", "delayed", "ready")))
    def wake_now(self, pick: int, state: str) -> None:
        id = self.some_job(pick, state)
        self.do(
            lambda engine: engine.wake_now(id, ORIGIN, self.now),
            lambda model, _: model.wake_now(id, self.now),
        )

    @precondition(with_job("failed"))
    @rule(pick=picks, state=st.sampled_from(("failed", "failed", "ready")))
    def replay(self, pick: int, state: str) -> None:
        id = self.some_job(pick, state)
        self.do(
            lambda engine: engine.replay(id, ORIGIN, self.now),
            lambda model, _: model.replay(id, self.now),
        )

    @precondition(with_job("ready"))
    @rule(name=names, payload=blobs, count=st.integers(-2, 2))
    def remove_by_payload(self, name: str, payload: bytes, count: int) -> None:
        self.do(
            lambda engine: engine.remove_by_payload(
                name.encode(), payload, count, self.bench.read, ORIGIN, self.now
            ),
            lambda model, _: model.remove_by_payload(name.encode(), payload, count, self.now),
        )

    # Looking after queues

    @rule(
        name=names,
        drawn=queue_settings,
        state=st.integers(0, 5),
        what=st.sampled_from(("configure",) * 4 + ("purge", "create", "delete")),
    )
    def look_after_queue(self, name: str, drawn: Settings, state: int, what: str) -> None:
        if what == "configure":
            self.configure_queue(name, drawn)
        elif what == "purge":
            self.purge(name, state, 2)
        elif what == "create":
            self.create_queue(name, drawn)
        else:
            self.delete_queue(name, state == 5)

    def create_queue(self, name: str, drawn: Settings) -> None:
        both = make_settings(drawn), make_settings(drawn)
        self.do(
            lambda engine: engine.create_queue(name, both[0], ORIGIN, self.now),
            lambda model, _: model.create_queue(name, both[1]),
        )

    def configure_queue(self, name: str, drawn: Settings) -> None:
        both = make_settings(drawn), make_settings(drawn)
        self.do(
            lambda engine: engine.configure_queue(name.encode(), both[0], ORIGIN, self.now),
            lambda model, _: model.configure_queue(name.encode(), both[1], self.now),
        )

    def purge(self, name: str, state: int, count: int) -> None:
        self.do(
            lambda engine: engine.purge(name.encode(), state, count, ORIGIN, self.now),
            lambda model, _: model.purge(name.encode(), state, count, self.now),
        )

    def delete_queue(self, name: str, emptied: bool) -> None:
        if emptied and name.encode() in self.model.queues:
            for state in range(6):
                self.purge(name, state, 1000)
        self.do(
            lambda engine: engine.delete_queue(name.encode(), ORIGIN, self.now),
            lambda model, _: model.delete_queue(name.encode()),
        )

    # Batches

    @rule(
        consumer=st.sampled_from(("c1", "c1", "c2")),
        what=st.sampled_from(("next", "next", "same", "ack", "drop")),
        limit=st.integers(1, 3),
        ttr=st.sampled_from((0, 5 * SECOND)),
    )
    def batch(self, consumer: str, what: str, limit: int, ttr: int) -> None:
        if what == "ack":
            self.ack_batch(consumer, 0)
        elif what == "drop":
            self.drop_consumer(consumer)
        else:
            self.lease_batch(consumer, what == "next", limit, ttr)

    def lease_batch(self, consumer: str, step: int, limit: int, ttr: int) -> None:
        known = self.model.consumers.get(consumer)
        number = (known.number if known is not None else 0) + step
        queues = [b"a", b"b", b"a", b"unknown"]
        self.do(
            lambda engine: engine.lease_batch(
                consumer, number, queues, limit, ttr, ORIGIN, self.now
            ),
            lambda model, _: model.lease_batch(
                consumer, number, queues, limit, ttr, self.owner_of(consumer), ORIGIN, self.now
            ),
        )

    def owner_of(self, consumer: str) -> int:
        """The engine chooses it; nobody else may have it."""
        found = self.engine.state.consumers.get(consumer)
        if found is None:
            return 0
        others = [each.owner for each in self.engine.state.consumers.values() if each is not found]
        assert found.owner not in (*others, *OWNERS)
        return found.owner

    def ack_batch(self, consumer: str, step: int) -> None:
        known = self.model.consumers.get(consumer)
        number = (known.number if known is not None else 1) + step
        self.do(
            lambda engine: engine.ack_batch(consumer, number, ORIGIN, self.now),
            lambda model, _: model.ack_batch(consumer, number, self.now),
        )

    def drop_consumer(self, consumer: str) -> None:
        self.do(
            lambda engine: engine.drop_consumer(consumer, ORIGIN, self.now),
            lambda model, _: model.drop_consumer(consumer, self.now),
        )

    # Values and sessions

    @rule(
        key=st.sampled_from((b"v1", b"v2")),
        what=st.sampled_from(("set", "set", "expire", "delete")),
        value=blobs,
        lasts=st.none() | durations,
    )
    def value(self, key: bytes, what: str, value: bytes, lasts: int | None) -> None:
        if what == "set":
            self.set_value(key, value, lasts)
        elif what == "expire":
            self.expire_value(key, lasts)
        else:
            self.do(
                lambda engine: engine.delete_value(key, ORIGIN, self.now),
                lambda model, _: model.delete_value(key),
            )

    def set_value(self, key: bytes, value: bytes, lasts: int | None) -> None:
        expires_at = 0 if lasts is None else self.now + lasts
        self.do(
            lambda engine: engine.set_value(key, value, expires_at, ORIGIN, self.now),
            lambda model, _: model.set_value(key, value, expires_at, self.now),
        )

    def expire_value(self, key: bytes, lasts: int | None) -> None:
        expires_at = 0 if lasts is None else self.now + lasts
        self.do(
            lambda engine: engine.expire_value(key, expires_at, ORIGIN, self.now),
            lambda model, _: model.expire_value(key, expires_at, self.now),
        )

    @rule(
        id=st.sampled_from((1, 2)),
        event=st.sampled_from(("open", "attach", "detach", "close", "delivered")),
        back=st.integers(0, 3),
    )
    def session(self, id: int, event: str, back: int) -> None:
        if event == "delivered":
            self.letters_delivered(id, back)
            return
        self.do(
            lambda engine: getattr(engine, f"{event}_session")(id, ORIGIN, self.now),
            lambda model, _: getattr(model, f"{event}_session")(id, self.now),
        )

    def letters_delivered(self, id: int, back: int) -> None:
        known = self.model.sessions.get(id)
        upto = (known.numbered if known is not None else 0) - back
        self.do(
            lambda engine: engine.letters_delivered(id, upto, ORIGIN, self.now),
            lambda model, _: model.letters_delivered(id, upto),
        )

    # What must be refused, or must change nothing

    @rule(wish=wishes, fault=faults, before=st.lists(plain_wishes, max_size=2))
    def push_badly(self, wish: Wish, fault: Mapping[str, object], before: list[Wish]) -> None:
        bad = replace(wish, **fault)  # type: ignore[arg-type]
        self.push_wish(bad, ORIGIN)
        self.transact([*before, bad, Wish("a", Policy())], 1)

    @rule(wish=wishes, pick=picks)
    def push_twice(self, wish: Wish, pick: int) -> None:
        """A uid that is taken: given to another job, or derived for one that was given none."""
        self.push_wish(replace(wish, uid=b"1" * 16), ORIGIN)
        self.push_wish(replace(wish, uid=b"1" * 16), ORIGIN)
        twice = [Wish("a", Policy(), uid=b"9" * 16)] * 2
        self.transact([*twice], 1)
        self.push_wish(replace(wish, uid=derive_uid(SALT, self.some_job(pick))), ORIGIN)

    @precondition(with_job("leased"))
    @rule(pick=picks, which=st.integers(0, 9))
    def misuse_leases(self, pick: int, which: int) -> None:
        too_large = b"x" * (PAYLOAD_LIMIT + 1)
        misuses: tuple[Callable[[], object], ...] = (
            lambda: self.extend(pick, 0),
            lambda: self.extend(pick, SECOND, right=False),
            lambda: self.give_back(pick, right=False),
            lambda: self.ack(pick, right=False),
            lambda: self.nack(pick, b"", right=False),
            lambda: self.nack(pick, too_large),
            lambda: self.finish_with_token(pick, b"", (1, 0)),
            lambda: self.finish_with_token(pick, b"", (0, 1)),
            lambda: self.finish_with_token(pick, too_large),
            lambda: self.complete(pick, too_large),
        )
        misuses[which]()

    @rule(pick=picks, which=st.integers(0, 25), bad=bad_queue_settings)
    def misuse_the_rest(self, pick: int, which: int, bad: Settings) -> None:
        too_large = b"x" * (PAYLOAD_LIMIT + 1)
        misuses: tuple[Callable[[], object], ...] = (
            lambda: self.fetch_or_wait(Take([b"a"], 1, ORIGIN, ttr=-1), None),
            lambda: self.wait(Take([b"a"], 1, ORIGIN, ttr=-1), self.now + SECOND),
            lambda: self.fail(pick, too_large),
            lambda: self.move(pick, "two words", False),
            lambda: self.move(pick, "", False),
            lambda: self.create_queue("two words", {}),
            lambda: self.create_queue("new", bad),
            lambda: self.configure_queue("a", bad),
            lambda: self.configure_queue("unknown", {}),
            lambda: self.purge("a", 6, 1),
            lambda: self.purge("a", 2, -1),
            lambda: self.purge("unknown", 2, 1),
            lambda: self.delete_queue("unknown", False),
            lambda: self.lease_batch("two words", 1, 1, 0),
            lambda: self.lease_batch("c1", -1, 1, 0),
            lambda: self.lease_batch("c1", 2, 1, 0),
            lambda: self.lease_batch("c1", 1, 0, 0),
            lambda: self.lease_batch("c1", 1, 1, -1),
            lambda: self.lease_batch("c1", 1, 1, FOREVER - START),
            lambda: self.ack_batch("c1", 1),
            lambda: self.set_value(b"", b"", None),
            lambda: self.set_value(b"v" * 65536, b"", None),
            lambda: self.set_value(b"v1", too_large, None),
            lambda: self.set_value(b"v1", b"", 0),
            lambda: self.expire_value(b"v1", -1),
            lambda: self.letters_delivered(1, -1),
        )
        misuses[which]()


TestEngineAndModel = EngineAndModel.TestCase
TestEngineAndModel.settings = machine_settings(examples=100, steps=50)
