"""Carries to test with: one example of each kind, and strategies that draw any of them."""

import inspect
from collections import deque

from hypothesis import strategies as st

from taskyard.engine.model.job import (
    LEASED,
    MAX_PRIORITY,
    MIN_PRIORITY,
    READY,
    SYSTEM_ORIGIN,
    JobExtras,
    Lease,
    NewJob,
    Notify,
    Origin,
    Policy,
)
from taskyard.engine.model.queue import QueueSettings
from taskyard.engine.model.state import BatchConsumer, DurableSession, SessionNotice
from taskyard.engine.records import job_lifecycle as r
from taskyard.engine.records import snapshots as c
from taskyard.engine.records.entities import ScheduleSnapshot
from taskyard.engine.schedules.schedule import Schedule

I64 = st.integers(-(2**63), 2**63 - 1)
POSITIVE = st.integers(0, 2**63 - 1)
U64 = st.integers(0, 2**64 - 1)
U32 = st.integers(0, 2**32 - 1)
U8 = st.integers(0, 255)
TEXT = st.text(max_size=20)
NAME = TEXT.map(str.encode)  # the UTF-8 of a text, as queue names are
BLOB = st.binary(max_size=60)
SHORT = st.binary(max_size=40)
UID = st.binary(min_size=16, max_size=16)
IDS = st.lists(POSITIVE, max_size=5)
ORIGIN = st.builds(Origin, st.integers(0, 6), TEXT, TEXT)
POLICY = st.builds(Policy, POSITIVE, U32, I64, U32, U8, I64, I64, TEXT, st.booleans())
NOTIFY = st.builds(Notify, POSITIVE, U64, U8)
SETTINGS = st.builds(
    QueueSettings,
    st.booleans(),
    st.booleans(),
    *[I64] * 8,
    st.integers(0, 1),
    st.booleans(),
    *[I64] * 8,
)
LEASE = st.builds(Lease, I64, st.booleans(), TEXT, U32, U32, I64, I64)
SESSION_NOTICE = st.builds(SessionNotice, POSITIVE, I64, POSITIVE, U64, U8)

_JOB: dict[str, st.SearchStrategy[object]] = {
    "state": st.integers(0, 5),
    "priority": st.integers(MIN_PRIORITY, MAX_PRIORITY),
    "position": I64,
    "dialect": U8,
    "content": st.integers(0, 1),
    "attempts": U32,
    "fails": U32,
    "losses": U32,
    "leases": U32,
    "payload_at": POSITIVE,
    "payload_size": U32,
    "record_bytes": U32,
    "pushed_at": I64,
    "run_at": I64,
    "finished_at": I64,
}
_EXTRA: dict[str, st.SearchStrategy[object]] = {
    "uid": st.none() | UID,
    "key": st.none() | SHORT,
    "limit_key": st.none() | SHORT,
    "ttl_ms": U64,
    "expires_at": I64,
    "blockers": st.none() | st.sets(POSITIVE, min_size=1, max_size=5),
    "notify": st.none() | NOTIFY,
    "has_result": st.booleans(),
    "result_at": POSITIVE,
    "result_size": U32,
    "error_at": POSITIVE,
    "error_size": U32,
    "reason": TEXT,
}


@st.composite
def extras(draw: st.DrawFn) -> JobExtras:
    extra = JobExtras()
    for name, drawn in _EXTRA.items():
        setattr(extra, name, draw(drawn))
    if extra.uid is not None:  # an old record of such a one has no producer
        extra.producer = draw(st.just(b"") | UID)
    return extra


@st.composite
def job_snapshots(draw: st.DrawFn) -> c.JobSnapshot:
    record = draw(
        st.builds(
            c.JobSnapshot,
            I64,
            ORIGIN,
            POSITIVE,
            NAME,
            TEXT,
            POLICY,
            moves=st.integers(0, 15),
            blob=BLOB,
        )
    )
    for name, drawn in _JOB.items():
        setattr(record, name, draw(drawn))
    record.lease = draw(st.none() | LEASE)
    record.extras = draw(st.none() | extras())
    return record


@st.composite
def sessions(draw: st.DrawFn) -> DurableSession:
    session = DurableSession(draw(POSITIVE), draw(I64), 0)
    session.attached = draw(st.booleans())
    session.numbered = draw(POSITIVE)
    session.delivered = draw(POSITIVE)
    session.outbox = deque(draw(st.lists(SESSION_NOTICE, max_size=4)))
    return session


@st.composite
def consumers(draw: st.DrawFn) -> BatchConsumer:
    consumer = BatchConsumer(draw(TEXT), draw(I64))
    consumer.number = draw(I64)
    consumer.open = draw(st.booleans())
    consumer.expired = draw(st.booleans())
    consumer.deadline = draw(I64)
    consumer.ids.extend(draw(IDS))
    consumer.attempts.extend([draw(st.integers(0, 2**32 - 1)) for _ in consumer.ids])
    consumer.queues = dict.fromkeys(draw(st.lists(SHORT, max_size=3)))
    consumer.user = draw(TEXT)
    return consumer


_TEMPLATE = st.builds(
    NewJob,
    TEXT,
    TEXT,
    BLOB,
    POLICY,
    st.integers(MIN_PRIORITY, MAX_PRIORITY),
    content=st.integers(0, 1),
    ttl_ms=U64,
    key=st.none() | SHORT,
)


@st.composite
def schedules(draw: st.DrawFn) -> Schedule:
    rule = st.integers(0, 1)
    wanted = st.builds(Schedule, TEXT, _TEMPLATE, TEXT, POSITIVE, TEXT, rule, rule, st.booleans())
    schedule = draw(wanted)
    schedule.user = draw(TEXT)
    for name in ("since", "next_at", "last_at", "last_job", "runs", "skipped", "missed"):
        setattr(schedule, name, draw(POSITIVE))
    return schedule


SCHEDULE = schedules()


@st.composite
def tombstone_snapshots(draw: st.DrawFn) -> c.TombstonesSnapshot:
    buried = draw(st.lists(st.tuples(UID, POSITIVE), max_size=5))
    uids = [uid for uid, _ in buried]
    ids = [id for _, id in buried]
    producers = [draw(UID) for _ in uids]
    first = draw(st.booleans())
    return c.TombstonesSnapshot(draw(I64), draw(ORIGIN), draw(I64), first, uids, ids, producers)


@st.composite
def limit_key_snapshots(draw: st.DrawFn) -> c.KeyLimitsSnapshot:
    known = draw(st.lists(st.tuples(SHORT, POSITIVE), max_size=5))
    keys = [key for key, _ in known]
    return c.KeyLimitsSnapshot(draw(I64), draw(ORIGIN), draw(NAME), keys, [tat for _, tat in known])


SNAPSHOT_STRATEGY: st.SearchStrategy[r.Record] = st.one_of(
    job_snapshots(),
    st.builds(
        c.QueueSnapshot,
        I64,
        ORIGIN,
        NAME,
        I64,
        SETTINGS,
        st.lists(POSITIVE, min_size=8, max_size=8),
        POSITIVE,
    ),
    limit_key_snapshots(),
    st.builds(c.ValueSnapshot, I64, ORIGIN, SHORT, I64, BLOB),
    st.builds(c.SessionSnapshot, I64, ORIGIN, sessions()),
    st.builds(c.ConsumerSnapshot, I64, ORIGIN, consumers()),
    tombstone_snapshots(),
    st.builds(ScheduleSnapshot, I64, ORIGIN, SCHEDULE),
    st.builds(c.ReaderSnapshot, I64, ORIGIN, TEXT, I64, I64),
    st.builds(c.Checkpoint, I64, POSITIVE, POSITIVE, POSITIVE, IDS),
)


def a_job(full: bool = False) -> c.JobSnapshot:
    """A plain ready job, or a leased one that has everything."""
    moves = c.MOVES_PAYLOAD | c.MOVES_RESULT | c.MOVES_ERROR if full else c.MOVES_PAYLOAD
    blob = b"payloadresulterror" if full else b"payload"
    policy = Policy(1, 2, -1, 4, 2, 6, 7, "dead", True) if full else Policy()
    record = c.JobSnapshot(1, SYSTEM_ORIGIN, 7, b"q", "name", policy, moves, blob)
    for number, name in enumerate(_JOB):
        setattr(record, name, number)
    record.state = LEASED if full else READY
    record.content = 1
    record.payload_size = 7
    record.record_bytes = 100
    if full:
        record.position = -(2**63)
        record.lease = Lease(9, True, "holder", 2**32 - 1, 2**32 - 2, 3, 2**63 - 1)
        record.extras = _full_extra()
    return record


def _full_extra() -> JobExtras:
    extra = JobExtras()
    extra.uid = b"u" * 16
    extra.producer = b"p" * 16
    extra.key = b"key"
    extra.limit_key = b"limit"
    extra.ttl_ms = 2**64 - 1
    extra.expires_at = 2**63 - 1
    extra.blockers = {1, 2}
    extra.notify = Notify(3, 2**64 - 1, 127)
    extra.has_result = True
    extra.result_at, extra.result_size = 500, 6
    extra.error_at, extra.error_size = 600, 5
    extra.reason = "reason"
    return extra


def _a_session() -> DurableSession:
    session = DurableSession(5, 6, 0)
    session.attached = False
    session.numbered, session.delivered = 9, 7
    session.outbox = deque([SessionNotice(8, 1, 2, 2**64 - 1, 4), SessionNotice(9, 1, 3, 0, 64)])
    return session


def _a_consumer() -> BatchConsumer:
    consumer = BatchConsumer("consumer", 9)
    consumer.number = 4
    consumer.open = True
    consumer.deadline = 99
    consumer.ids.extend([7, 8])
    consumer.attempts.extend([1, 2])
    consumer.queues = {b"q": None}
    consumer.user = "ada"
    return consumer


def a_schedule() -> Schedule:
    job = NewJob(
        "q", "task", b"payload", Policy(5, 6, 7), -3, content=1, ttl_ms=2**64 - 1, key=b"key"
    )
    job.limit_key = b"limit"
    schedule = Schedule("nightly", job, "0 3 * * *", 0, "Europe/Berlin", 1, 1)
    schedule.user = "ada"
    schedule.since, schedule.next_at, schedule.last_at, schedule.last_job = 1, 2, 3, 4
    schedule.runs, schedule.skipped, schedule.missed = 5, 6, 7
    return schedule


SNAPSHOT_EXAMPLES: list[r.Record] = [
    a_job(),
    a_job(full=True),
    c.QueueSnapshot(
        1,
        SYSTEM_ORIGIN,
        b"q",
        3,
        QueueSettings(True, True, 1, 2, 3, 2, 5, 6, 7, 8, 1, True, *range(9, 17)),
        [*range(8)],
        2**62,
    ),
    c.KeyLimitsSnapshot(1, SYSTEM_ORIGIN, b"q", [b"k" * 255, b"l"], [2**62, 5]),
    c.ValueSnapshot(1, SYSTEM_ORIGIN, b"key", 99, b"value"),
    c.SessionSnapshot(1, SYSTEM_ORIGIN, _a_session()),
    c.ConsumerSnapshot(1, SYSTEM_ORIGIN, _a_consumer()),
    c.ReaderSnapshot(1, SYSTEM_ORIGIN, "reader", 7, 99),
    ScheduleSnapshot(1, SYSTEM_ORIGIN, a_schedule()),
    c.TombstonesSnapshot(
        1, SYSTEM_ORIGIN, 5, True, [b"u" * 16, b"v" * 16], [1, 2], [b"p" * 16] * 2
    ),
    c.Checkpoint(1, 4096, 2, 9, [1, 2, 3, 4, 5, 6, 7]),
]


def flat(thing: object) -> object:
    """All attributes, down to plain values, so that two records can be compared."""
    if isinstance(thing, list | deque):
        return [flat(each) for each in thing]
    kind = type(thing)
    if not kind.__module__.startswith("taskyard."):
        return thing
    names = [name for name in dir(kind) if inspect.isdatadescriptor(getattr(kind, name))]
    wanted = [name for name in names if not name.startswith("_") and name != "encoded"]
    return {name: flat(getattr(thing, name)) for name in wanted}
