"""Engine and reference model, driven side by side through every operation with a fake clock.

After each step both must show the same, the records so far must give the same state again, and
the engine's invariants must hold.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from itertools import islice

from engine.harness import ORIGIN, SALT, START, Bench, machine_settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule
from support.model import Model
from support.model_invariants import check_invariants
from support.model_view import effect_view, engine_view, model_view
from support.snapshot import snapshot

from taskyard.engine.effects import Notice, Take, Waiter, Watcher
from taskyard.engine.engine import Engine
from taskyard.engine.errors import DuplicateJob, StepRefused, TaskyardError
from taskyard.engine.job import FOREVER, SECOND, Job, NewJob, Notify, Origin, Policy
from taskyard.engine.pushing import Step
from taskyard.engine.queue import Queue, QueueSettings
from taskyard.engine.records import Record, Retry
from taskyard.engine.replay import apply_record
from taskyard.engine.state import EngineSettings, Session, State
from taskyard.engine.uid import derive_uid

NAMES = ("a", "b", "c")
OWNERS = (1, 2, 3)
ORIGINS = (ORIGIN, Origin(1, "", "h" * 300))

picks = st.integers(0, 9)
names = st.sampled_from(NAMES)
owners = st.sampled_from(OWNERS)
origins = st.sampled_from(ORIGINS)
durations = st.sampled_from((1, 1000, SECOND, 3 * SECOND, 10 * SECOND, 40 * SECOND))
blobs = st.sampled_from((b"", b"x", b"yy", b"x" * 16))
blobs_of_any_size = blobs | st.just(b"x" * 17)  # the last one is too large
name_lists = st.lists(st.sampled_from((*NAMES, "unknown")), min_size=1, max_size=3)
keys = st.sampled_from((b"k1", b"k2"))
uids = st.sampled_from((b"1" * 16, b"2" * 16, b"3" * 16))
priorities = st.sampled_from((0, 0, 1, -1, 2**63 - 1, -(2**63)))
scores = priorities | st.sampled_from((2**63, -(2**63) - 1, 2**80))

policies = st.builds(
    Policy,
    ttr=st.sampled_from((0, 0, 2 * SECOND, 5 * SECOND)),
    max_attempts=st.sampled_from((0, 0, 1, 2)),
    max_fails=st.sampled_from((-1, -1, 0, 1, 2)),
    max_losses=st.sampled_from((0, 0, 1, 2)),
    backoff=st.sampled_from((0, 0, 1, 2)),
    backoff_base=st.sampled_from((0, SECOND, 3 * SECOND)),
    backoff_cap=st.sampled_from((0, 5 * SECOND)),
    dead_queue=st.sampled_from(("", "", "b", "dead")),
    lost_is_failed=st.booleans(),
)

bad_policies = st.sampled_from(
    (
        Policy(ttr=-1),
        Policy(ttr=86_400 * SECOND + 1),
        Policy(max_attempts=-1),
        Policy(max_attempts=2**32),
        Policy(max_fails=-2),
        Policy(max_losses=-1),
        Policy(backoff=3),
        Policy(backoff_base=-1),
        Policy(dead_queue="two words"),
    )
)

notifies = st.builds(
    Notify, session=st.sampled_from((1, 2)), label=st.integers(0, 3), stages=st.integers(0, 127)
)

queue_settings = st.fixed_dictionaries(
    {},
    optional={
        "paused": st.booleans(),
        "retries": st.sampled_from((-1, 3)),
        "result_retention": st.sampled_from((0, 6 * SECOND)),
        "dead_retention": st.sampled_from((-1, 0, 5 * SECOND)),
        "backoff": st.sampled_from((-1, 0, 1, 2)),
        "backoff_base": st.just(2 * SECOND),
    },
)
bad_queue_settings = st.sampled_from(
    ({"retries": -2}, {"dead_retention": -2}, {"result_retention": -1}, {"backoff": 3})
)


@dataclass(frozen=True)
class Wish:
    """A push, as it was drawn; times and other jobs are relative to the moment of the push."""

    queue: str
    policy: Policy
    name: str = "task"
    payload: bytes = b""
    content: int = 0
    priority: int = 0
    delay: int | None = None
    front: bool = False
    ttl_ms: int = 0
    uid: bytes | None = None
    key: bytes | None = None
    blockers: tuple[int, ...] = ()  # which of the open jobs
    raw_blockers: tuple[int, ...] = ()
    notify: Notify | None = None

    def new(self, now: int, blocked_by: list[int]) -> NewJob:
        """A new one each time: the engine may change what it was given."""
        return NewJob(
            self.queue,
            self.name,
            self.payload,
            self.policy,
            self.priority,
            0 if self.delay is None else now + self.delay,
            self.content,
            self.front,
            self.ttl_ms,
            self.uid,
            self.key,
            [*blocked_by, *self.raw_blockers] or None,
            self.notify,
        )


rarely_bad = st.fixed_dictionaries(
    {},
    optional={
        "name": st.sampled_from(("", "two words", "x" * 256, "nul\0", "\ud800")),
        "payload": st.just(b"x" * 17),
        "content": st.sampled_from((-1, 2)),
        "delay": st.just(-START - 1),
        "ttl_ms": st.sampled_from((-1, 2**64)),
        "uid": st.just(b"short"),
        "key": st.just(b""),
        "raw_blockers": st.sampled_from(((0,), (-1,), (-9,), (1,) * 256)),
        "notify": st.sampled_from((Notify(1, -1, 0), Notify(1, 2**64, 0), Notify(1, 0, 128))),
        "policy": bad_policies,
    },
)

wishes = st.builds(
    Wish,
    queue=names,
    policy=policies,
    payload=blobs,
    content=st.sampled_from((0, 1)),
    priority=priorities,
    delay=st.sampled_from((None, None, None, -SECOND, SECOND, 4 * SECOND, 50 * SECOND)),
    front=st.booleans(),
    ttl_ms=st.sampled_from((0, 0, 500, 7000, 2**64 - 1)),
    uid=st.none() | uids,
    key=st.none() | keys,
    blockers=st.lists(picks, max_size=2).map(tuple),
    raw_blockers=st.sampled_from(((), (), (2**70,))),
    notify=st.none() | notifies,
)
plain_wishes = st.builds(Wish, queue=names, policy=policies, priority=st.sampled_from((0, 1)))


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


class EngineAndModel(RuleBasedStateMachine):
    @initialize(
        seed=st.integers(0, 3), window=st.sampled_from((0, 20 * SECOND)), letters=st.integers(0, 5)
    )
    def start(self, seed: int, window: int, letters: int) -> None:
        settings = EngineSettings(
            payload_limit=16,
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
        while self.engine.tick(self.now, budget):
            self.follow()
        self.follow()
        before = self.model.copy()
        seen = self.visible()
        for world in islice(self.model.ticks(self.now), 300):
            if seen == (model_view(world), sorted(world.effects)):
                self.model = world
                break
        else:
            assert isinstance(before, Model)
            self.model = next(before.ticks(self.now))
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

    def some_job(self, pick: int) -> int:
        """The id of a job: mostly a live one, or one that is gone or never was."""
        live = [job.id for job in self.model.jobs.values() if job.state != "gone"]
        known = [*live[-8:], max(1, self.model.next_id - 1), self.model.next_id]
        return known[pick % len(known)]

    def some_leased(self, pick: int) -> int:
        leased = [job.id for job in self.model.jobs.values() if job.lease is not None]
        return leased[pick % len(leased)] if leased else self.some_job(pick)

    def holder_of(self, id: int, right: bool) -> int:
        job = self.model.jobs.get(id)
        owner = job.lease.owner if job is not None and job.lease is not None else 1
        return owner if right else owner + 1

    # Time

    @rule(duration=durations, budget=st.sampled_from((1, 2, 1000)))
    def time_passes(self, duration: int, budget: int) -> None:
        """Each timer is met when it is due."""
        target = self.now + duration
        self.meet_due(budget)
        while 0 < self.engine.next_deadline(self.now) <= target:
            self.bench.now = max(self.now, self.engine.next_deadline(self.now))
            self.meet_due(budget)
        self.bench.now = target

    @rule(budget=st.sampled_from((1, 2, 1000)))
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

    @rule()
    def restart(self) -> None:
        self.bench.restart()
        self.waiting = Waiting()
        self.follow()
        self.model.boot(self.now)
        self.compare()

    @rule()
    def rebuild_from_the_journal(self) -> None:
        assert snapshot(self.bench.rebuild()) == snapshot(self.engine.state)

    # Pushing

    def blocked_by(self, wish: Wish) -> list[int]:
        return [self.some_job(pick) for pick in wish.blockers]

    def push_wish(self, wish: Wish, origin: Origin) -> None:
        ids = self.blocked_by(wish)
        self.do(
            lambda engine: engine.push(wish.new(self.now, ids), origin, self.now),
            lambda model, _: model.push(wish.new(self.now, ids), origin, self.now),
        )

    @rule(wish=plain_wishes, origin=origins)
    def push_plain(self, wish: Wish, origin: Origin) -> None:
        self.push_wish(wish, origin)

    @rule(wish=wishes, origin=origins)
    def push(self, wish: Wish, origin: Origin) -> None:
        self.push_wish(wish, origin)

    @rule(wish=wishes, bad=rarely_bad)
    def push_bad(self, wish: Wish, bad: dict[str, object]) -> None:
        self.push_wish(replace(wish, **bad), ORIGIN)  # type: ignore[arg-type]

    @rule(wish=wishes, pick=picks)
    def push_derived_uid(self, wish: Wish, pick: int) -> None:
        """The uid of a job that was pushed without one is taken too."""
        uid = derive_uid(SALT, self.some_job(pick))
        self.push_wish(replace(wish, uid=uid), ORIGIN)

    @rule(
        steps=st.lists(
            picks | plain_wishes | st.tuples(wishes, st.sampled_from((-1, -2))), max_size=4
        ),
        owner=owners,
    )
    def transact(self, steps: list[int | Wish | tuple[Wish, int]], owner: int) -> None:
        self.run_steps(steps, owner)

    @rule(wishes=st.lists(plain_wishes, max_size=2), wish=wishes, bad=rarely_bad)
    def transact_bad(self, wishes: list[Wish], wish: Wish, bad: dict[str, object]) -> None:
        last = replace(wish, **bad)  # type: ignore[arg-type]
        self.run_steps([*wishes, last, Wish("a", Policy())], 1)

    def run_steps(self, drawn: list[int | Wish | tuple[Wish, int]], owner: int) -> None:
        """Numbers are acks; a wish with a number waits for a push before it."""
        if drawn and isinstance(drawn[0], int):
            owner = self.holder_of(self.some_leased(drawn[0]), True)

        def steps() -> list[Step]:
            found = []
            for each in drawn:
                if isinstance(each, int):
                    found.append(Step(None, self.some_leased(each)))
                elif isinstance(each, Wish):
                    found.append(Step(each.new(self.now, self.blocked_by(each))))
                else:
                    found.append(Step(each[0].new(self.now, [each[1]])))
            return found

        both = steps(), steps()
        self.do(
            lambda engine: engine.transact(both[0], owner, ORIGIN, self.now),
            lambda model, _: model.transact(both[1], owner, ORIGIN, self.now),
        )

    # Taking

    @rule(
        queues=name_lists,
        owner=owners,
        origin=origins,
        bound=st.booleans(),
        uniform=st.booleans(),
        pop=st.sampled_from((False, False, True)),
        ttr=st.sampled_from((0, 0, 3 * SECOND, FOREVER, -1)),
        patience=st.none() | durations | st.just(0),
    )
    def fetch(
        self,
        queues: list[str],
        owner: int,
        origin: Origin,
        bound: bool,
        uniform: bool,
        pop: bool,
        ttr: int,
        patience: int | None,
    ) -> None:
        encoded = [name.encode() for name in queues]
        take = Take(encoded, owner, origin, bound, uniform, pop, ttr)
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

    @rule(queues=name_lists)
    def wait_badly(self, queues: list[str]) -> None:
        take = Take([name.encode() for name in queues], 1, ORIGIN, ttr=-1)
        self.wait(take, self.now + SECOND)

    @rule(pick=picks)
    def stop_waiting(self, pick: int) -> None:
        waiters = list(self.waiting.waiters.values())
        if not waiters:
            return
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

    @rule(pick=picks, right=st.booleans(), ttr=st.sampled_from((0, 1, 6 * SECOND, FOREVER - 1)))
    def extend(self, pick: int, right: bool, ttr: int) -> None:
        id = self.some_leased(pick)
        owner = self.holder_of(id, right)
        self.do(
            lambda engine: engine.extend(id, owner, ttr, ORIGIN, self.now),
            lambda model, _: model.extend(id, owner, ttr, self.now),
        )

    @rule(pick=picks, right=st.booleans())
    def give_back(self, pick: int, right: bool) -> None:
        id = self.some_leased(pick)
        owner = self.holder_of(id, right)
        self.do(
            lambda engine: engine.give_back(id, owner, ORIGIN, self.now),
            lambda model, _: model.give_back(id, owner, self.now),
        )

    # Finishing

    @rule(pick=picks, right=st.booleans())
    def ack(self, pick: int, right: bool) -> None:
        id = self.some_leased(pick)
        owner = self.holder_of(id, right)
        self.do(
            lambda engine: engine.ack(id, owner, ORIGIN, self.now),
            lambda model, _: model.ack(id, owner, self.now),
        )

    @rule(pick=picks, right=st.sampled_from((True, True, False)), error=blobs_of_any_size)
    def nack(self, pick: int, right: bool, error: bytes) -> None:
        id = self.some_leased(pick)
        owner = self.holder_of(id, right)
        self.do(
            lambda engine: engine.nack(id, owner, error, ORIGIN, self.now),
            lambda model, _: model.nack(id, owner, error, self.now),
        )

    @rule(pick=picks, result=blobs_of_any_size)
    def complete(self, pick: int, result: bytes) -> None:
        id = self.some_job(pick)
        self.do(
            lambda engine: engine.complete(id, result, ORIGIN, self.now),
            lambda model, _: model.complete(id, result, self.now),
        )

    @rule(pick=picks, error=blobs_of_any_size)
    def fail(self, pick: int, error: bytes) -> None:
        id = self.some_job(pick)
        self.do(
            lambda engine: engine.fail(id, error, ORIGIN, self.now),
            lambda model, _: model.fail(id, error, self.now),
        )

    @rule(
        pick=picks,
        epochs=st.sampled_from((0, 0, 1)),
        attempts=st.sampled_from((0, 0, 1)),
        result=blobs_of_any_size,
    )
    def finish_with_token(self, pick: int, epochs: int, attempts: int, result: bytes) -> None:
        id = self.some_leased(pick)
        job = self.model.jobs.get(id)
        lease = job.lease if job is not None else None
        epoch = (lease.epoch if lease is not None else 1) + epochs
        attempt = (lease.attempt if lease is not None else 1) + attempts
        self.do(
            lambda engine: engine.finish_with_token(id, epoch, attempt, result, ORIGIN, self.now),
            lambda model, _: model.finish_with_token(id, epoch, attempt, result, self.now),
        )

    @rule(owner=owners)
    def disconnect(self, owner: int) -> None:
        self.do(
            lambda engine: engine.disconnect(owner, ORIGIN, self.now),
            lambda model, _: model.disconnect(owner, self.now),
        )

    # Watching

    @rule(pick=picks, patience=st.none() | durations)
    def watch(self, pick: int, patience: int | None) -> None:
        id = self.some_job(pick)
        deadline = 0 if patience is None else self.now + patience

        def start(engine: Engine) -> Watcher:
            watcher = engine.watch(id, 1, deadline)
            self.waiting.watchers[watcher.number] = watcher
            return watcher

        self.do(start, lambda model, _: model.watch(id, deadline))

    @rule(pick=picks)
    def stop_watching(self, pick: int) -> None:
        watchers = list(self.waiting.watchers.values())
        if not watchers:
            return
        watcher = watchers[pick % len(watchers)]
        self.do(
            lambda engine: engine.stop_watching(watcher),
            lambda model, _: model.stop_watching(watcher.number),
        )

    # Looking after jobs

    @rule(pick=picks)
    def delete(self, pick: int) -> None:
        id = self.some_job(pick)
        self.do(
            lambda engine: engine.delete(id, ORIGIN, self.now),
            lambda model, _: model.delete(id, self.now),
        )

    @rule(pick=picks, to=st.sampled_from((*NAMES, "dead", "", "two words")), front=st.booleans())
    def move(self, pick: int, to: str, front: bool) -> None:
        id = self.some_job(pick)
        self.do(
            lambda engine: engine.move(id, to, front, ORIGIN, self.now),
            lambda model, _: model.move(id, to, front, self.now),
        )

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

    @rule(pick=picks)
    def wake_now(self, pick: int) -> None:
        delayed = [job.id for job in self.model.jobs.values() if job.state == "delayed"]
        id = delayed[pick % len(delayed)] if delayed else self.some_job(pick)
        self.do(
            lambda engine: engine.wake_now(id, ORIGIN, self.now),
            lambda model, _: model.wake_now(id, self.now),
        )

    @rule(pick=picks)
    def replay(self, pick: int) -> None:
        dead = [job.id for job in self.model.jobs.values() if job.state == "failed"]
        id = dead[pick % len(dead)] if dead else self.some_job(pick)
        self.do(
            lambda engine: engine.replay(id, ORIGIN, self.now),
            lambda model, _: model.replay(id, self.now),
        )

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
        name=st.sampled_from((*NAMES, "new", "", "two words")),
        settings=queue_settings | bad_queue_settings,
    )
    def create_queue(self, name: str, settings: dict[str, int]) -> None:
        self.do(
            lambda engine: engine.create_queue(name, QueueSettings(**settings), ORIGIN, self.now),  # type: ignore[arg-type]
            lambda model, _: model.create_queue(name, QueueSettings(**settings)),  # type: ignore[arg-type]
        )

    @rule(name=st.sampled_from((*NAMES, "unknown")), settings=queue_settings | bad_queue_settings)
    def configure_queue(self, name: str, settings: dict[str, int]) -> None:
        both = QueueSettings(**settings), QueueSettings(**settings)  # type: ignore[arg-type]
        self.do(
            lambda engine: engine.configure_queue(name.encode(), both[0], ORIGIN, self.now),
            lambda model, _: model.configure_queue(name.encode(), both[1], self.now),
        )

    @rule(
        name=st.sampled_from((*NAMES, "unknown")),
        state=st.integers(-1, 6),
        count=st.integers(-1, 3),
    )
    def purge(self, name: str, state: int, count: int) -> None:
        self.do(
            lambda engine: engine.purge(name.encode(), state, count, ORIGIN, self.now),
            lambda model, _: model.purge(name.encode(), state, count, self.now),
        )

    @rule(name=st.sampled_from((*NAMES, "new", "dead", "unknown")), emptied=st.booleans())
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
        consumer=st.sampled_from(("c1", "c2", "two words")),
        step=st.sampled_from((0, 1, 1, -1, 2)),
        queues=name_lists,
        limit=st.integers(0, 3),
        ttr=st.sampled_from((0, 0, 5 * SECOND, -1, FOREVER - START)),
    )
    def lease_batch(
        self, consumer: str, step: int, queues: list[str], limit: int, ttr: int
    ) -> None:
        known = self.model.consumers.get(consumer)
        number = (known.number if known is not None else 0) + step
        encoded = [name.encode() for name in queues]
        self.do(
            lambda engine: engine.lease_batch(
                consumer, number, encoded, limit, ttr, ORIGIN, self.now
            ),
            lambda model, _: model.lease_batch(
                consumer, number, encoded, limit, ttr, self.owner_of(consumer), ORIGIN, self.now
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

    @rule(consumer=st.sampled_from(("c1", "c2")), step=st.sampled_from((0, 0, 1, -1)))
    def ack_batch(self, consumer: str, step: int) -> None:
        known = self.model.consumers.get(consumer)
        number = (known.number if known is not None else 1) + step
        self.do(
            lambda engine: engine.ack_batch(consumer, number, ORIGIN, self.now),
            lambda model, _: model.ack_batch(consumer, number, self.now),
        )

    @rule(consumer=st.sampled_from(("c1", "c2")))
    def drop_consumer(self, consumer: str) -> None:
        self.do(
            lambda engine: engine.drop_consumer(consumer, ORIGIN, self.now),
            lambda model, _: model.drop_consumer(consumer, self.now),
        )

    # Values and sessions

    @rule(
        key=st.sampled_from((b"v1", b"v2", b"", b"v" * 65536)),
        value=blobs_of_any_size,
        lasts=st.none() | durations | st.sampled_from((0, -1)),
    )
    def set_value(self, key: bytes, value: bytes, lasts: int | None) -> None:
        expires_at = 0 if lasts is None else self.now + lasts
        self.do(
            lambda engine: engine.set_value(key, value, expires_at, ORIGIN, self.now),
            lambda model, _: model.set_value(key, value, expires_at, self.now),
        )

    @rule(key=st.sampled_from((b"v1", b"v2")), lasts=st.none() | durations | st.just(-1))
    def expire_value(self, key: bytes, lasts: int | None) -> None:
        expires_at = 0 if lasts is None else self.now + lasts
        self.do(
            lambda engine: engine.expire_value(key, expires_at, ORIGIN, self.now),
            lambda model, _: model.expire_value(key, expires_at, self.now),
        )

    @rule(key=st.sampled_from((b"v1", b"v2")))
    def delete_value(self, key: bytes) -> None:
        self.do(
            lambda engine: engine.delete_value(key, ORIGIN, self.now),
            lambda model, _: model.delete_value(key),
        )

    @rule(id=st.sampled_from((1, 2)))
    def open_session(self, id: int) -> None:
        self.do(
            lambda engine: engine.open_session(id, ORIGIN, self.now),
            lambda model, _: model.open_session(id, self.now),
        )

    @rule(id=st.sampled_from((1, 2)))
    def attach_session(self, id: int) -> None:
        self.do(
            lambda engine: engine.attach_session(id, ORIGIN, self.now),
            lambda model, _: model.attach_session(id, self.now),
        )

    @rule(id=st.sampled_from((1, 2)))
    def detach_session(self, id: int) -> None:
        self.do(
            lambda engine: engine.detach_session(id, ORIGIN, self.now),
            lambda model, _: model.detach_session(id, self.now),
        )

    @rule(id=st.sampled_from((1, 2)))
    def close_session(self, id: int) -> None:
        self.do(
            lambda engine: engine.close_session(id, ORIGIN, self.now),
            lambda model, _: model.close_session(id),
        )

    @rule(id=st.sampled_from((1, 2)), back=st.integers(-1, 3))
    def letters_delivered(self, id: int, back: int) -> None:
        known = self.model.sessions.get(id)
        upto = (known.numbered if known is not None else 0) - back
        self.do(
            lambda engine: engine.letters_delivered(id, upto, ORIGIN, self.now),
            lambda model, _: model.letters_delivered(id, upto),
        )


TestEngineAndModel = EngineAndModel.TestCase
TestEngineAndModel.settings = machine_settings(examples=100, steps=50)
