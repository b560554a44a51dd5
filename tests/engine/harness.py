"""An engine with a fake clock and a journal in memory: what the tests of this folder work with."""

from dataclasses import dataclass
from random import Random

from hypothesis import settings
from support.effort import PLAIN, effort
from support.model_view import effect_view
from support.snapshot import lane_jobs

from taskyard.engine.model.events import FetchRequest, Waiter
from taskyard.engine.model.job import API, READY, SECOND, Job, NewJob, Notify, Origin, Policy
from taskyard.engine.model.queue import Queue, QueueSettings
from taskyard.engine.model.state import EngineSettings, State
from taskyard.engine.operations.facade import Engine
from taskyard.engine.partial_replay import begin_partial_replay
from taskyard.engine.records.decode import Decoder
from taskyard.engine.records.job_lifecycle import Record
from taskyard.engine.records.log import RecordBuffer
from taskyard.engine.records.replay import apply_record

START = 1_700_000_000 * SECOND
FRAME_HEAD = 40  # bytes between the records of one turn and those of the next
SALT = b"0123456789abcdef"
ORIGIN = Origin(API, "tester", "worker-1")
OWNER = 1

NO_LIMIT = Policy(max_fails=-1)


@dataclass(frozen=True)
class Frame:
    """The records of one turn, as the journal has them."""

    base: int  # where the first of them stands
    first: int  # its sequence number
    data: bytes

    @property
    def end(self) -> int:
        return self.base + len(self.data)


class Bench:
    """One engine; `now` only moves when the test says so."""

    def __init__(self, settings: EngineSettings | None = None, seed: int = 0) -> None:
        self.settings = settings or EngineSettings()
        self.seed = seed
        self.now = START
        self.frames: list[Frame] = []
        self.next_seq = 1
        self.gap = FRAME_HEAD  # between the end of one frame's records and those of the next
        self.base = 0  # where the journal begins: what stands before it may be gone
        self.portion = 500  # jobs of a batch that are dealt with in one go
        self.engine = self._start(State(self.settings))

    def in_portions(self, portion: int) -> None:
        """From now on, also after a restart."""
        self.portion = portion
        self.engine.batch_chunk_jobs = portion

    # The journal

    def collect(self) -> list[Record]:
        """Take out what the engine has logged, as the journal does after each turn."""
        log = self.engine.records
        if not log.count:
            return []
        base = log.start_position
        end = base + log.size()
        first = self.next_seq
        self.next_seq = log.next_seq
        data = log.drain(end + self.gap)
        self.frames.append(Frame(base, first, data))
        return decode(data, base, first)

    def rebuild(self, settings: EngineSettings | None = None) -> State:
        """What a server would start from that has nothing but the journal."""
        return self.replay(self.base, settings)

    def replay(self, start: int, settings: EngineSettings | None = None) -> State:
        """What the records give that stand at this position or behind it."""
        self.collect()
        state = State(settings or self.settings)
        if start:
            begin_partial_replay(state, start)
        for frame in self.frames:
            if frame.base >= start:
                for record in decode(frame.data, frame.base, frame.first, blobs=False):
                    apply_record(state, record)
        return state

    def restart(self, settings: EngineSettings | None = None) -> None:
        state = self.rebuild(settings)
        self.settings = settings or self.settings
        self.engine = self._start(state)

    def _start(self, state: State) -> Engine:
        last = self.frames[-1] if self.frames else Frame(0, 1, b"")
        log = RecordBuffer(self.next_seq, last.end + self.gap)
        engine = Engine(state, log, SALT, Random(self.seed))
        engine.batch_chunk_jobs = self.portion
        engine.boot("0", self.now)
        return engine

    def read(self, at: int, size: int) -> bytes:
        """Bytes of the journal, written or not."""
        if not size:
            return b""
        blob = self.engine.records.unwritten_blob(at)
        if blob is not None:
            return blob[:size]
        for frame in reversed(self.frames):
            if frame.base <= at:
                assert at + size <= frame.end
                return frame.data[at - frame.base :][:size]
        raise KeyError(at)

    # Shorthands

    def push(
        self,
        queue: str = "q",
        payload: bytes = b"",
        policy: Policy = NO_LIMIT,
        *,
        name: str = "task",
        priority: int = 0,
        run_at: int = 0,
        front: bool = False,
        ttl_ms: int = 0,
        uid: bytes | None = None,
        key: bytes | None = None,
        blocked_by: list[int] | None = None,
        notify: Notify | None = None,
        limit_key: bytes | None = None,
    ) -> Job:
        new = NewJob(
            queue,
            name,
            payload,
            policy,
            priority,
            run_at,
            front=front,
            ttl_ms=ttl_ms,
            uid=uid,
            key=key,
            blocked_by=blocked_by,
            notify=notify,
            limit_key=limit_key,
        )
        return self.engine.push(new, ORIGIN, self.now)

    def fetch_request(
        self,
        *queues: str,
        owner: int = OWNER,
        bound: bool = False,
        uniform: bool = False,
        pop: bool = False,
        ttr: int = 0,
    ) -> FetchRequest:
        names = [name.encode() for name in queues or ("q",)]
        return FetchRequest(names, owner, ORIGIN, bound, uniform, pop, ttr)

    def try_to_take(self, *queues: str, owner: int = OWNER, bound: bool = False) -> Job | None:
        """Lease the next job, if there is one to be had."""
        return self.engine.fetch(self.fetch_request(*queues, owner=owner, bound=bound), self.now)

    def take(self, *queues: str, owner: int = OWNER, bound: bool = False, ttr: int = 0) -> Job:
        """Lease the next job; there must be one."""
        wish = self.fetch_request(*queues, owner=owner, bound=bound, ttr=ttr)
        job = self.engine.fetch(wish, self.now)
        assert job is not None
        return job

    def wait(
        self,
        *queues: str,
        owner: int = OWNER,
        bound: bool = False,
        pop: bool = False,
        seconds: int = 30,
    ) -> Waiter:
        wish = self.fetch_request(*queues, owner=owner, bound=bound, pop=pop)
        return self.engine.wait_for_job(wish, self.now + seconds * SECOND)

    def ack(self, job: Job, owner: int = OWNER) -> None:
        self.engine.ack(job.id, owner, ORIGIN, self.now)

    def nack(self, job: Job, owner: int = OWNER, error: bytes = b"") -> None:
        self.engine.nack(job.id, owner, error, ORIGIN, self.now)

    def delete(self, job: Job) -> None:
        self.engine.delete_job(job.id, ORIGIN, self.now)

    def configure(self, queue: str = "q", settings: QueueSettings | None = None) -> Queue:
        return self.engine.configure_queue(
            queue.encode(), settings or QueueSettings(), ORIGIN, self.now
        )

    def queue(self, name: str = "q") -> Queue:
        queue = self.engine.queue(name.encode())
        assert queue is not None
        return queue

    def ids(self, queue: str = "q", state: int = READY) -> list[int]:
        """The jobs of one state in their order."""
        found = self.engine.queue(queue.encode())
        return [] if found is None else [job.id for job in lane_jobs(found, state)]

    def effects(self) -> list[tuple[object, ...]]:
        """What came out since the last time."""
        return [effect_view(effect) for effect in self.engine.drain_effects()]

    def advance_clock(self, duration: int) -> None:
        """Let time pass, each timer being met when it is due."""
        target = self.now + duration
        while 0 < self.engine.next_deadline(self.now) <= target:
            self.now = max(self.now, self.engine.next_deadline(self.now))
            while self.engine.tick(self.now):
                pass
        self.now = target


def decode(data: bytes, base: int, first: int = 0, blobs: bool = True) -> list[Record]:
    """The records, numbered from `first` on."""
    decoder = Decoder(blobs)
    records: list[Record] = []
    at = 0
    while at < len(data):
        record = decoder.read(data, at, base)
        record.seq = first + len(records)
        records.append(record)
        at = decoder.next_at
    return records


def machine_settings(examples: int, steps: int) -> settings:
    """Fewer runs on plain Python, where they take four times as long."""
    wanted = effort(examples, 12 + examples // 16)
    return settings(max_examples=wanted // 4 if PLAIN else wanted, stateful_step_count=steps)


property_settings = settings(max_examples=effort(60, 25))
