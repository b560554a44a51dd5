"""Every kind of record is read back from the log's bytes as it was appended."""

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from taskyard.engine import records as r
from taskyard.engine import side_records as s
from taskyard.engine.decode import Decoder
from taskyard.engine.job import MAX_PRIORITY, MIN_PRIORITY, NewJob, Notify, Origin, Policy
from taskyard.engine.log import Log
from taskyard.engine.queue import QueueSettings
from taskyard.journal.describe import describe

I64 = st.integers(-(2**63), 2**63 - 1)
POSITIVE = st.integers(0, 2**63 - 1)
U64 = st.integers(0, 2**64 - 1)
U32 = st.integers(0, 2**32 - 1)
U8 = st.integers(0, 255)
TEXT = st.text(max_size=20)
# The utf-8 of a text, as queue names are.
NAME = TEXT.map(str.encode)
BLOB = st.binary(max_size=60)
SHORT = st.binary(max_size=40)
IDS = st.lists(POSITIVE, max_size=5)
ORIGIN = st.builds(Origin, st.integers(0, 6), TEXT, TEXT)
POLICY = st.builds(Policy, POSITIVE, U32, I64, U32, U8, I64, I64, TEXT, st.booleans())
NOTIFY = st.builds(Notify, POSITIVE, U64, U8)
NEW_JOB = st.builds(
    NewJob,
    TEXT,
    TEXT,
    BLOB,
    POLICY,
    st.integers(MIN_PRIORITY, MAX_PRIORITY),
    POSITIVE,
    st.integers(0, 1),
    st.booleans(),
    U64,
    st.none() | st.binary(min_size=16, max_size=16),
    st.none() | SHORT,
    st.none(),
    st.none() | NOTIFY,
)
SETTINGS = st.builds(
    QueueSettings, st.booleans(), st.booleans(), I64, I64, I64, I64, I64, I64, I64, I64
)

# The arguments after time and origin, in the order of the constructors; and their attributes.
KINDS: dict[Any, tuple[list[Any], tuple[str, ...]]] = {
    r.Boot: ([I64, TEXT], ("epoch", "version")),
    r.Push: ([POSITIVE, NAME, NEW_JOB, st.none() | IDS], ("id", "queue")),
    r.Lease: (
        [POSITIVE, NAME, I64, st.booleans(), U32, I64],
        ("id", "queue", "owner", "bound", "attempt", "deadline"),
    ),
    r.Finish: ([POSITIVE, NAME, U32, U8, BLOB], ("id", "queue", "attempt", "way")),
    r.Retry: ([POSITIVE, NAME, U32, POSITIVE, BLOB], ("id", "queue", "attempt", "run_at")),
    r.Release: ([POSITIVE, NAME, U32, U8], ("id", "queue", "attempt", "reason")),
    r.Fail: (
        [POSITIVE, NAME, U32, st.booleans(), TEXT, TEXT, BLOB],
        ("id", "queue", "attempt", "explicit", "reason", "dead_queue"),
    ),
    r.Wake: ([POSITIVE, NAME], ("id", "queue")),
    r.Unblock: ([POSITIVE, NAME, POSITIVE], ("id", "queue", "blocker")),
    r.Remove: ([POSITIVE, NAME, U8], ("id", "queue", "cause")),
    r.Move: ([POSITIVE, NAME, NAME, st.booleans()], ("id", "queue", "to", "front")),
    r.Rescore: ([POSITIVE, NAME, I64], ("id", "queue", "priority")),
    r.Extend: ([POSITIVE, NAME, U32, I64], ("id", "queue", "attempt", "deadline")),
    r.Replay: ([POSITIVE, NAME], ("id", "queue")),
    s.QueueSet: ([NAME, SETTINGS], ("queue",)),
    s.QueueGone: ([NAME], ("queue",)),
    s.ValueSet: ([SHORT, I64, st.booleans(), BLOB], ("key", "expires_at", "keep")),
    s.ValueGone: ([SHORT], ("key",)),
    s.SessionSet: ([POSITIVE, st.integers(0, 4), POSITIVE], ("id", "event", "upto")),
    s.Batch: (
        [TEXT, I64, I64, I64, IDS],
        ("consumer", "owner", "number", "deadline", "ids"),
    ),
    s.BatchDone: ([TEXT, I64, st.booleans()], ("consumer", "number", "dropped")),
    s.Forget: ([POSITIVE], ("count",)),
}
JOB_FIELDS = ("name", "priority", "run_at", "content", "front", "ttl_ms", "uid", "key")
POLICY_FIELDS = (
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
SETTINGS_FIELDS = (
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
)

RECORD = st.one_of(
    [st.builds(kind, I64, ORIGIN, *arguments) for kind, (arguments, _) in KINDS.items()]
)


def fields(thing: Any, names: tuple[str, ...]) -> list[Any]:
    return [getattr(thing, name) for name in names]


def content(record: r.Record) -> list[Any]:
    """All that a record says, but for its blob."""
    origin = record.origin
    found = [type(record), record.time, origin.dialect, origin.user, origin.holder]
    found += fields(record, KINDS[type(record)][1])
    if isinstance(record, r.Push):
        job = record.job
        found += fields(job, JOB_FIELDS) + fields(job.policy, POLICY_FIELDS)
        found.append(record.blockers or None)
        if job.notify is not None:
            found += fields(job.notify, ("session", "label", "stages"))
    if isinstance(record, s.QueueSet):
        found += fields(record.settings, SETTINGS_FIELDS)
    return found


def test_every_kind_is_tested() -> None:
    known: set[Any] = {*r.Record.__subclasses__(), *r.JobRecord.__subclasses__()}
    assert known - {r.JobRecord} == set(KINDS)
    assert len(r.EVENT_NAMES) == len(KINDS)


@given(
    appended=st.lists(RECORD, min_size=1, max_size=6),
    base=st.integers(0, 2**40),
    first_seq=st.integers(1, 2**40),
    blobs=st.booleans(),
)
def test_what_is_appended_is_read_back(
    appended: list[r.Record], base: int, first_seq: int, blobs: bool
) -> None:
    log = Log(first_seq, base)
    for record in appended:
        log.append(record)
    kept = dict(log.blobs)
    data = log.take(base + log.size() + 40)
    decoder = Decoder(blobs)
    at = 0
    for number, record in enumerate(appended):
        read = decoder.read(data, at, base)
        assert content(read) == content(record)
        assert record.seq == first_seq + number
        assert read.blob_size == len(record.blob)
        assert read.blob == (record.blob if blobs else b"")
        if record.blob:
            assert read.blob_at == record.blob_at
            assert data[read.blob_at - base :].startswith(record.blob)
            assert kept[record.blob_at] == record.blob
        at = decoder.next
    assert at == len(data)


@given(record=RECORD, blobs=st.booleans())
def test_every_kind_can_be_described(record: r.Record, blobs: bool) -> None:
    described = json.loads(json.dumps(describe(record, blobs)))
    assert described["event"] == r.EVENT_NAMES[record.kind()]
    assert "time" in described
    if record.kind() == r.PUSH:
        assert described["payload_size"] == len(record.blob)
        assert ("payload" in described or "payload_base64" in described) == blobs
