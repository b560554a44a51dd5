"""Records that are whole but do not fit the state that they meet: never applied by half."""

import pytest
from engine.harness import ORIGIN, Bench
from support.carries import a_job

from taskyard.engine.model.events import CorruptRecord
from taskyard.engine.model.job import LEASED, LIMITED
from taskyard.engine.model.state import EngineSettings, State
from taskyard.engine.partial_replay import begin_partial_replay
from taskyard.engine.records import job_changes as j
from taskyard.engine.records import job_lifecycle as r
from taskyard.engine.records.replay import apply_record

READY_JOB, GONE_JOB = 1, 2


@pytest.fixture
def state(bench: Bench) -> State:
    """Job 1 is ready and waits for nobody; job 2 is done, and still in the ring."""
    bench.push()
    bench.push("other")
    bench.ack(bench.take("other"))
    return bench.rebuild()


@pytest.mark.parametrize(
    ("record", "reason"),
    [
        (j.UnblockRecord(1, ORIGIN, READY_JOB, b"q", 6), "job 1 waits for no other"),
        (j.ExtendRecord(1, ORIGIN, READY_JOB, b"q", 3, 99), "job 1 is not leased"),
        (j.ProgressRecord(1, ORIGIN, READY_JOB, b"q", 3, 5, "half"), "job 1 is not leased"),
        (j.WakeRecord(1, ORIGIN, GONE_JOB, b"q"), "there is no job 2"),
        (j.FailRecord(1, ORIGIN, GONE_JOB, b"q", 3, True, "", "", b""), "there is no job 2"),
    ],
)
def test_a_record_of_a_job_that_is_in_another_state_is_refused(
    state: State, record: r.Record, reason: str
) -> None:
    with pytest.raises(CorruptRecord, match=reason):
        apply_record(state, record)


def test_a_job_that_is_gone_is_not_carried(state: State) -> None:
    record = a_job()
    record.id = GONE_JOB
    with pytest.raises(CorruptRecord, match="job 2 is gone"):
        apply_record(state, record)


@pytest.mark.parametrize(
    ("number", "reason"), [(LEASED, "is leased to nobody"), (LIMITED, "in no state"), (99, "in no")]
)
def test_a_job_is_not_carried_in_a_state_that_it_cannot_have(number: int, reason: str) -> None:
    state = State(EngineSettings())
    begin_partial_replay(state, 1)
    record = a_job()
    record.state = number
    record.lease = None
    with pytest.raises(CorruptRecord, match=reason):
        apply_record(state, record)
