"""Every kind of record is read back from the log's bytes as it was appended."""

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from support.carries import (
    BLOB,
    I64,
    IDS,
    NAME,
    NOTIFY,
    ORIGIN,
    POLICY,
    POSITIVE,
    SCHEDULE,
    SETTINGS,
    SHORT,
    SNAPSHOT_EXAMPLES,
    SNAPSHOT_STRATEGY,
    TEXT,
    U8,
    U32,
    U64,
    UID,
    a_job,
    flat,
)

from taskyard.engine.model.job import (
    DIALECT_NAMES,
    MAX_PRIORITY,
    MIN_PRIORITY,
    NewJob,
    Notify,
    Origin,
    Policy,
)
from taskyard.engine.model.queue import OVERFLOW_DEAD, OVERFLOW_REFUSE, QueueSettings
from taskyard.engine.records import entities as s
from taskyard.engine.records import entities as t
from taskyard.engine.records import job_changes as j
from taskyard.engine.records import job_lifecycle as r
from taskyard.engine.records.decode import Decoder
from taskyard.engine.records.describe import describe
from taskyard.engine.records.log import RecordBuffer

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
    st.none() | UID,
    st.none() | SHORT,
    st.none(),
    st.none() | NOTIFY,
    st.none() | SHORT,
)

# The arguments after time and origin, in the order of the constructors; and their attributes.
KINDS: dict[Any, tuple[list[Any], tuple[str, ...]]] = {
    r.BootRecord: ([I64, TEXT], ("epoch", "version")),
    r.PushRecord: ([POSITIVE, NAME, NEW_JOB, st.none() | IDS], ("id", "queue")),
    r.LeaseRecord: (
        [POSITIVE, NAME, I64, st.booleans(), U32, U32, I64],
        ("id", "queue", "owner", "bound", "epoch", "attempt", "deadline"),
    ),
    r.FinishRecord: (
        [POSITIVE, NAME, U32, U8, I64, st.none() | UID, BLOB],
        ("id", "queue", "attempt", "way", "kept_until", "uid"),
    ),
    j.RetryRecord: (
        [POSITIVE, NAME, U32, POSITIVE, st.booleans(), BLOB],
        ("id", "queue", "attempt", "run_at", "keyless"),
    ),
    j.ReleaseRecord: (
        [POSITIVE, NAME, U32, U8, st.booleans()],
        ("id", "queue", "attempt", "reason", "keyless"),
    ),
    j.FailRecord: (
        [POSITIVE, NAME, U32, st.booleans(), TEXT, TEXT, BLOB],
        ("id", "queue", "attempt", "explicit", "reason", "dead_queue"),
    ),
    j.WakeRecord: ([POSITIVE, NAME], ("id", "queue")),
    j.UnblockRecord: ([POSITIVE, NAME, POSITIVE], ("id", "queue", "blocker")),
    j.RemoveRecord: (
        [POSITIVE, NAME, U8, st.booleans(), st.none() | UID],
        ("id", "queue", "cause", "ended", "uid"),
    ),
    j.MoveRecord: ([POSITIVE, NAME, NAME, st.booleans()], ("id", "queue", "to", "front")),
    j.RescoreRecord: ([POSITIVE, NAME, I64], ("id", "queue", "priority")),
    j.ExtendRecord: ([POSITIVE, NAME, U32, I64], ("id", "queue", "attempt", "deadline")),
    j.ProgressRecord: (
        [POSITIVE, NAME, U32, U32, TEXT],
        ("id", "queue", "attempt", "permille", "message"),
    ),
    j.ReplayRecord: ([POSITIVE, NAME, st.booleans()], ("id", "queue", "keyless")),
    s.QueueSet: ([NAME, SETTINGS], ("queue",)),
    s.QueueGone: ([NAME], ("queue",)),
    s.ValueSet: ([SHORT, I64, st.booleans(), BLOB], ("key", "expires_at", "keep")),
    s.ValueGone: ([SHORT], ("key",)),
    s.SessionChange: ([POSITIVE, st.integers(0, 4), POSITIVE], ("id", "event", "upto")),
    s.BatchDone: (
        [TEXT, I64, st.booleans(), st.booleans()],
        ("consumer", "number", "dropped", "expired"),
    ),
    s.ForgetUids: ([I64], ("before",)),
    s.ReaderSet: ([TEXT, I64, I64], ("name", "next_seq", "lease_until")),
    s.ReaderGone: ([TEXT], ("name",)),
    t.ScheduleSet: ([SCHEDULE], ("queue",)),
    t.ScheduleGone: ([TEXT, NAME], ("name", "queue")),
    t.ScheduleTick: (
        [TEXT, NAME, I64, st.integers(0, 3), POSITIVE, POSITIVE, I64],
        ("name", "queue", "due", "outcome", "job", "missed", "next_at"),
    ),
}
BATCH_FIELDS = (
    "consumer",
    "owner",
    "number",
    "epoch",
    "deadline",
    "ids",
    "queues",
    "counts",
    "attempts",
)
JOB_FIELDS = ("name", "priority", "run_at", "content", "front", "ttl_ms", "uid", "key", "limit_key")
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


@st.composite
def batches(draw: st.DrawFn) -> s.BatchRecord:
    """As many counts as queues."""
    taken = draw(st.lists(st.tuples(NAME, POSITIVE), max_size=3))
    queues = st.just([name for name, _ in taken])
    counts = st.just([count for _, count in taken])
    ids = draw(IDS)
    attempts = st.lists(U32, min_size=len(ids), max_size=len(ids))
    held = (st.just(ids), queues, counts, attempts)
    return draw(st.builds(s.BatchRecord, I64, ORIGIN, TEXT, I64, I64, U32, I64, *held))


EVENT: st.SearchStrategy[r.Record] = st.one_of(
    batches(), *(st.builds(kind, I64, ORIGIN, *each) for kind, (each, _) in KINDS.items())
)
RECORD = EVENT | SNAPSHOT_STRATEGY


def fields(thing: Any, names: tuple[str, ...]) -> list[Any]:
    return [getattr(thing, name) for name in names]


def content(record: r.Record) -> list[Any]:
    """All that an event says, but for its blob."""
    origin = record.origin
    found = [type(record), record.time, origin.dialect, origin.user, origin.holder]
    found += fields(
        record, BATCH_FIELDS if type(record) is s.BatchRecord else KINDS[type(record)][1]
    )
    if isinstance(record, r.PushRecord):
        job = record.job
        found += fields(job, JOB_FIELDS) + fields(job.policy, POLICY_FIELDS)
        found.append(record.blockers or None)
        if job.notify is not None:
            found += fields(job.notify, ("session", "label", "stages"))
    if isinstance(record, t.ScheduleSet):
        found.append(flat(record.schedule))
    if isinstance(record, s.QueueSet):
        found += fields(record.settings, SETTINGS_FIELDS)
    return found


def carried(record: r.Record) -> dict[str, object]:
    """All that a snapshot says, but for its blob."""
    found = flat(record)
    assert isinstance(found, dict)
    return {name: each for name, each in found.items() if name not in ("blob", "seq")}


def test_every_kind_is_tested() -> None:
    bases: tuple[Any, ...] = (r.Record, j.JobRecord, j.AttemptRecord)
    known: set[Any] = {kind for base in bases for kind in base.__subclasses__()}
    carries = {type(record) for record in SNAPSHOT_EXAMPLES}
    assert known - {*bases} == {*KINDS, s.BatchRecord} | carries
    assert len(r.EVENT_NAMES) == len(KINDS) + 1 + len(carries)


@given(
    appended=st.lists(RECORD, min_size=1, max_size=6),
    base=st.integers(0, 2**40),
    first_seq=st.integers(1, 2**40),
    blobs=st.booleans(),
)
def test_what_is_appended_is_read_back(
    appended: list[r.Record], base: int, first_seq: int, blobs: bool
) -> None:
    log = RecordBuffer(first_seq, base)
    for record in appended:
        log.append(record)
    kept = [log.unwritten_blob(record.blob_at) for record in appended]
    data = log.drain(base + log.size() + 40)
    decoder = Decoder(blobs)
    at = 0
    for number, record in enumerate(appended):
        read = decoder.read(data, at, base)
        if record.kind() < r.FIRST_SNAPSHOT:
            assert content(read) == content(record)
        else:
            assert carried(read) == carried(record)
        assert record.seq == first_seq + number
        assert read.blob_size == len(record.blob)
        assert read.blob == (record.blob if blobs else b"")
        if record.blob:
            assert read.blob_at == record.blob_at
            assert data[read.blob_at - base :].startswith(record.blob)
            assert kept[number] == record.blob
        at = decoder.next_at
    assert at == len(data)


@given(record=RECORD, blobs=st.booleans())
def test_every_kind_can_be_described(record: r.Record, blobs: bool) -> None:
    described = json.loads(json.dumps(describe(record, blobs)))
    assert described["event"] == r.EVENT_NAMES[record.kind()]
    assert "time" in described
    if record.kind() == r.PUSH:
        assert described["payload_size"] == len(record.blob)
        assert ("payload" in described or "payload_base64" in described) == blobs


def test_a_carried_job_is_described_with_all_it_has() -> None:
    log = RecordBuffer(9, 1000)
    record = a_job(full=True)
    log.append(record)
    found = describe(record, True)
    assert found["state"] == "leased"
    assert found["lease"] == {
        "owner": 9,
        "bound": True,
        "holder": "holder",
        "epoch": 2**32 - 1,
        "attempt": 2**32 - 2,
        "since": "1970-01-01T00:00:00.000003Z",
        "deadline": 2**63 - 1,
    }
    assert found["blocked_by"] == [1, 2]
    assert found["uid"] == "75" * 16
    blobs = [found[name] for name in ("payload", "result", "error")]
    assert blobs == ["payload", "result", "error"]
    assert found["payload_at"] == record.blob_at
    assert found["result_at"] == record.blob_at + len("payload")
    assert found["error_at"] == record.blob_at + len("payloadresult")


def test_a_dialect_that_is_not_known_yet_is_described_by_its_number() -> None:
    known = len(DIALECT_NAMES)
    names = [
        describe(r.BootRecord(1, Origin(number, "", ""), 1, "1"), False)["dialect"]
        for number in range(known + 2)
    ]
    assert names == [*DIALECT_NAMES, str(known), str(known + 1)]


def test_names_and_keys_are_described_as_text_whatever_they_are() -> None:
    new = NewJob("q", "name", b"", Policy(), key=b"k\xff", limit_key="schlüssel".encode())
    found = describe(r.PushRecord(1, Origin(1, "", ""), 7, b"q", new), False)
    assert (found["queue"], found["key"], found["limit_key"]) == ("q", "k\\xff", "schlüssel")


def test_what_a_push_and_a_queue_say_is_described() -> None:
    origin = Origin(1, "", "")
    new = NewJob("q", "name", b"", Policy(), ttl_ms=5, notify=Notify(3, 4, 5))
    found = describe(r.PushRecord(1, origin, 7, b"q", new), False)
    assert (found["ttl_ms"], found["notify"]) == (5, 3)
    plain = describe(r.PushRecord(1, origin, 7, b"q", NewJob("q", "name", b"", Policy())), False)
    assert "ttl_ms" not in plain
    assert "notify" not in plain
    settings = describe(s.QueueSet(1, origin, b"q", QueueSettings(retries=3)), False)["settings"]
    assert isinstance(settings, dict)
    assert settings["retries"] == 3


def test_uids_are_described_as_hex() -> None:
    buried = [record for record in SNAPSHOT_EXAMPLES if record.kind() == r.SNAPSHOT_TOMBSTONES]
    assert describe(buried[0], False)["uids"] == ["75" * 16, "76" * 16]
    origin = buried[0].origin
    assert "uid" not in describe(r.FinishRecord(1, origin, 7, b"q", 3, r.POPPED), False)
    finish = r.FinishRecord(1, origin, 7, b"q", 3, r.POPPED, 0, b"u" * 16)
    assert describe(finish, False)["uid"] == "75" * 16


def test_settings_are_written_as_they_were_before_there_was_an_overflow() -> None:
    """Journals of older servers can be read, and they can read what does not use it."""
    settings = QueueSettings(True, False, 3, 0, -1, -1, 0, 0, 7, 9)
    numbers = (3, 0, -1, -1, 0, 0, 7, 9)
    encoded = b"\x01" + b"".join(each.to_bytes(8, "little", signed=True) for each in numbers)
    record = s.QueueSet(1, Origin(1, "", ""), b"q", settings)
    log = RecordBuffer(1, 0)
    log.append(record)
    data = log.drain(0)
    assert encoded in data
    decoded = Decoder(True).read(data, 0, 0)
    assert isinstance(decoded, s.QueueSet)
    assert decoded.settings.overflow == OVERFLOW_REFUSE
    settings.overflow = OVERFLOW_DEAD
    log.append(s.QueueSet(1, Origin(1, "", ""), b"q", settings))
    decoded = Decoder(True).read(log.drain(0), 0, 0)
    assert isinstance(decoded, s.QueueSet)
    assert decoded.settings.overflow == OVERFLOW_DEAD
