"""The numbers that stand in journals: each means for ever what it meant when it was written."""

from types import ModuleType

import pytest
from support.carries import a_job

from taskyard.engine.model import job, queue
from taskyard.engine.model import job as stages
from taskyard.engine.model.job import API, Origin
from taskyard.engine.model.queue import QueueSettings
from taskyard.engine.records import job_lifecycle as records
from taskyard.engine.records import snapshots
from taskyard.engine.schedules import schedule

KINDS = {
    "BOOT": 1,
    "PUSH": 2,
    "LEASE": 3,
    "FINISH": 4,
    "RETRY": 5,
    "RELEASE": 6,
    "FAIL": 7,
    "WAKE": 8,
    "UNBLOCK": 9,
    "REMOVE": 10,
    "MOVE": 11,
    "RESCORE": 12,
    "EXTEND": 13,
    "REPLAY": 14,
    "QUEUE": 15,
    "QUEUE_GONE": 16,
    "VALUE": 17,
    "VALUE_GONE": 18,
    "SESSION": 19,
    "BATCH": 20,
    "BATCH_DONE": 21,
    "FORGET": 22,
    "READER": 23,
    "READER_GONE": 24,
    "SCHEDULE": 25,
    "SCHEDULE_GONE": 26,
    "SCHEDULE_TICK": 27,
    "PROGRESS": 28,
    "FIRST_SNAPSHOT": 64,
    "SNAPSHOT_JOB": 64,
    "SNAPSHOT_QUEUE": 65,
    "SNAPSHOT_VALUE": 66,
    "SNAPSHOT_SESSION": 67,
    "SNAPSHOT_CONSUMER": 68,
    "SNAPSHOT_TOMBSTONES": 69,
    "CHECKPOINT": 70,
    "SNAPSHOT_READER": 71,
    "SNAPSHOT_SCHEDULE": 72,
    "SNAPSHOT_KEY_LIMITS": 73,
}
CAUSES = {
    "EXPIRED": 0,
    "LOST": 1,
    "RETURNED": 2,
    "RESTARTED": 3,
    "DELETED": 0,
    "PURGED": 1,
    "TTL_OVER": 2,
    "WITHDRAWN": 3,
    "RETENTION_OVER": 4,
    "ACKED": 0,
    "COMPLETED": 1,
    "POPPED": 2,
    "REMOVED_FROM_LIST": 3,
    "OPENED": 0,
    "DETACHED": 1,
    "ATTACHED": 2,
    "DELIVERED": 3,
    "CLOSED": 4,
}
OF_A_PUSH = {
    "HAS_UID": 1,
    "HAS_KEY": 2,
    "HAS_TTL": 4,
    "HAS_BLOCKERS": 8,
    "HAS_NOTIFY": 16,
    "HAS_RUN_AT": 32,
    "AT_FRONT": 64,
    "HAS_LIMIT_KEY": 128,
}
OF_A_CARRIED_JOB = {
    "MOVES_PAYLOAD": 1,
    "MOVES_RESULT": 2,
    "MOVES_ERROR": 4,
    "ERROR_IS_RESULT": 8,
    "HAS_LEASE": 1,
    "HAS_EXTRAS": 2,
    "HAS_UID": 4,
    "HAS_KEY": 8,
    "HAS_NOTIFY": 16,
    "HAS_BLOCKERS": 32,
    "HAS_RESULT": 64,
    "HAS_LIMIT_KEY": 128,
}
OF_A_JOB = {
    "BLOCKED": 0,
    "DELAYED": 1,
    "READY": 2,
    "LEASED": 3,
    "SUCCEEDED": 4,
    "FAILED": 5,
    "GONE": 6,
    "LIMITED": 7,
    "SYSTEM": 0,
    "MASENKO": 1,
    "WORKQ": 2,
    "GLOVEBOX": 3,
    "PQUEUE": 4,
    "REDIS": 5,
    "API": 6,
    "CLIENT": 7,
    "OPAQUE": 0,
    "JSON": 1,
    "BACKOFF_NONE": 0,
    "BACKOFF_QUARTIC": 1,
    "BACKOFF_EXPONENTIAL": 2,
}
OF_A_SCHEDULE = {
    "MISSED_ONCE": 0,
    "MISSED_SKIP": 1,
    "MISSED_ALL": 2,
    "OVERLAP_ALLOW": 0,
    "OVERLAP_SKIP": 1,
    "RAN": 0,
    "SKIPPED": 1,
    "DROPPED": 2,
    "BY_HAND": 3,
}
STAGES = {
    "STAGE_READY": 1,
    "STAGE_WRITE": 2,
    "STAGE_SYNC": 4,
    "STAGE_ASSIGN": 8,
    "STAGE_FINISH": 16,
    "STAGE_RETRY": 32,
    "STAGE_DROP": 64,
    "ALL_STAGES": 127,
    "SYNCHRONOUS_CALL": 128,
}


@pytest.mark.parametrize(
    ("module", "numbers"),
    [
        (records, KINDS),
        (records, CAUSES),
        (records, OF_A_PUSH),
        (snapshots, OF_A_CARRIED_JOB),
        (job, OF_A_JOB),
        (schedule, OF_A_SCHEDULE),
        (stages, STAGES),
        (queue, {"OVERFLOW_REFUSE": 0, "OVERFLOW_DEAD": 1}),
    ],
)
def test_a_number_keeps_its_meaning(module: ModuleType, numbers: dict[str, int]) -> None:
    assert {name: getattr(module, name) for name in numbers} == numbers


def test_what_is_written_has_these_numbers() -> None:
    boot = records.BootRecord(1, Origin(API, "", ""), 2, "1")
    assert (boot.kind(), boot.origin.dialect) == (1, 6)
    carried = a_job(full=True)
    assert (carried.kind(), carried.state, carried.moves) == (64, 3, 7)
    assert QueueSettings().overflow == 0


def test_numbers_have_names() -> None:
    assert records.RELEASE_REASONS[records.RESTARTED] == "restarted"
    assert records.REMOVE_CAUSES[records.RETENTION_OVER] == "retention"
    assert records.FINISH_WAYS[records.REMOVED_FROM_LIST] == "remove"
