"""Applying any record: the way in for recovery."""

from __future__ import annotations

from taskyard.engine.model.events import CorruptRecord
from taskyard.engine.model.state import State
from taskyard.engine.partial_replay import apply_unknown, is_known
from taskyard.engine.records import entities as s
from taskyard.engine.records import entities as t
from taskyard.engine.records import job_changes as j
from taskyard.engine.records import job_lifecycle as r
from taskyard.engine.records.apply import (
    apply_extend,
    apply_fail,
    apply_finish,
    apply_lease,
    apply_move,
    apply_progress,
    apply_push,
    apply_release,
    apply_remove,
    apply_replay,
    apply_rescore,
    apply_retry,
    apply_unblock,
    apply_wake,
)
from taskyard.engine.records.entities import (
    apply_batch,
    apply_batch_done,
    apply_boot,
    apply_forget_uids,
    apply_queue,
    apply_queue_gone,
    apply_reader,
    apply_reader_gone,
    apply_schedule,
    apply_schedule_gone,
    apply_schedule_tick,
    apply_session,
    apply_value,
    apply_value_gone,
)
from taskyard.engine.records.snapshots import apply_snapshot


def apply_record(state: State, record: r.Record) -> None:
    """What recovery does with each record, in order."""
    try:
        if state.is_partial_replay and not is_known(state, record):
            apply_unknown(state, record)
        else:
            _apply(state, record)
    except (LookupError, AssertionError, ValueError, ArithmeticError) as error:
        raise CorruptRecord(f"record {record.seq} does not fit what came before") from error


def _apply(state: State, record: r.Record) -> None:
    if isinstance(record, r.PushRecord):
        apply_push(state, record)
    elif isinstance(record, r.LeaseRecord):
        apply_lease(state, record)
    elif isinstance(record, r.FinishRecord):
        apply_finish(state, record)
    elif isinstance(record, j.JobRecord):
        _apply_job(state, record)
    else:
        _apply_entity(state, record)


def _apply_job(state: State, record: j.JobRecord) -> None:
    if isinstance(record, j.RetryRecord):
        apply_retry(state, record)
    elif isinstance(record, j.ReleaseRecord):
        apply_release(state, record)
    elif isinstance(record, j.FailRecord):
        apply_fail(state, record)
    elif isinstance(record, j.WakeRecord):
        apply_wake(state, record)
    elif isinstance(record, j.UnblockRecord):
        apply_unblock(state, record)
    elif isinstance(record, j.RemoveRecord):
        apply_remove(state, record)
    elif isinstance(record, j.MoveRecord):
        apply_move(state, record)
    elif isinstance(record, j.RescoreRecord):
        apply_rescore(state, record)
    elif isinstance(record, j.ExtendRecord):
        apply_extend(state, record)
    elif isinstance(record, j.ProgressRecord):
        apply_progress(state, record)
    elif isinstance(record, j.ReplayRecord):
        apply_replay(state, record)


def _apply_entity(state: State, record: r.Record) -> None:
    if isinstance(record, r.BootRecord):
        apply_boot(state, record)
    elif isinstance(record, s.QueueSet):
        apply_queue(state, record)
    elif isinstance(record, s.QueueGone):
        apply_queue_gone(state, record)
    elif isinstance(record, s.ValueSet):
        apply_value(state, record)
    elif isinstance(record, s.ValueGone):
        apply_value_gone(state, record)
    elif isinstance(record, s.SessionChange):
        apply_session(state, record)
    elif isinstance(record, s.BatchRecord):
        apply_batch(state, record)
    elif isinstance(record, s.BatchDone):
        apply_batch_done(state, record)
    elif isinstance(record, s.ForgetUids):
        apply_forget_uids(state, record)
    elif isinstance(record, s.ReaderSet):
        apply_reader(state, record)
    elif isinstance(record, s.ReaderGone):
        apply_reader_gone(state, record)
    else:
        _apply_schedule(state, record)


def _apply_schedule(state: State, record: r.Record) -> None:
    if isinstance(record, t.ScheduleSet):
        apply_schedule(state, record)
    elif isinstance(record, t.ScheduleTick):
        apply_schedule_tick(state, record)
    elif isinstance(record, t.ScheduleGone):
        apply_schedule_gone(state, record)
    else:
        apply_snapshot(state, record)
