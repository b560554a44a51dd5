"""Recovery: the records so far give the state that was there, and a boot goes on from it."""

from collections.abc import Callable

from engine.harness import ORIGIN, OWNER, START, Bench
from engine.lived_in import make_used_engine
from support.batches import ack_all, lease_all
from support.model_invariants import check_invariants
from support.snapshot import snapshot

from taskyard.engine.model.job import BLOCKED, DELAYED, FAILED, LEASED, SECOND, SUCCEEDED, Policy
from taskyard.engine.model.queue import QueueSettings
from taskyard.engine.model.state import EngineSettings, State
from taskyard.engine.records.job_lifecycle import BootRecord


def test_the_records_give_the_same_state_again() -> None:
    bench = make_used_engine()
    assert snapshot(bench.rebuild()) == snapshot(bench.engine.state)
    check_invariants(bench.engine)


def test_a_snapshot_tells_states_apart() -> None:
    bench = make_used_engine()
    leased = bench.take(owner=1)
    changes: tuple[Callable[[], object], ...] = (
        lambda: bench.engine.rescore(leased.id, 99, ORIGIN, bench.now),
        lambda: bench.engine.extend_lease(leased.id, 1, SECOND, ORIGIN, bench.now),
        lambda: bench.engine.set_value(b"v", b"other", 0, ORIGIN, bench.now),
        lambda: bench.engine.acknowledge_notices(1, 9, ORIGIN, bench.now),
        lambda: bench.configure("q", QueueSettings()),
        lambda: ack_all(bench.engine, "c", 1, ORIGIN, bench.now),
    )
    for change in changes:
        before = snapshot(bench.engine.state)
        change()
        assert snapshot(bench.engine.state) != before


def test_nothing_is_lost_over_many_restarts() -> None:
    bench = make_used_engine()
    for _ in range(5):
        bench.restart()
        assert snapshot(bench.rebuild()) == snapshot(bench.engine.state)
        check_invariants(bench.engine)
    assert bench.engine.state.epoch == 6
    assert len(bench.ids(state=LEASED)) == 4  # two with a time, and the batch
    assert len(bench.ids(state=DELAYED)) == len(bench.ids(state=BLOCKED)) == 1
    assert len(bench.ids("done", SUCCEEDED)) == 3
    assert len(bench.ids("dead", FAILED)) == 1


def test_the_time_is_that_of_the_last_record_of_whatever_kind(bench: Bench) -> None:
    """A start goes on from there, should its clock be behind."""
    engine = bench.engine
    for _ in range(6):
        bench.push()
    dying = bench.push("dying", policy=Policy(max_fails=1))
    blocker = bench.push("first")
    bench.push(blocked_by=[blocker.id])
    engine.open_session(1, ORIGIN, bench.now)
    taken = bench.take()
    steps: list[Callable[[], object]] = [
        lambda: engine.report_progress(taken.id, OWNER, 5, "", ORIGIN, bench.now),
        lambda: engine.extend_lease(taken.id, OWNER, SECOND, ORIGIN, bench.now),
        lambda: engine.release_lease(taken.id, OWNER, ORIGIN, bench.now),
        bench.take,
        lambda: bench.nack(taken),
        lambda: bench.ack(bench.take()),
        lambda: engine.rescore(3, 4, ORIGIN, bench.now),
        lambda: engine.move_job(3, "elsewhere", False, ORIGIN, bench.now),
        lambda: engine.delete_job(4, ORIGIN, bench.now),
        lambda: engine.fail(dying.id, b"", ORIGIN, bench.now),
        lambda: engine.replay_dead_letter(dying.id, ORIGIN, bench.now),
        lambda: engine.complete(blocker.id, b"", ORIGIN, bench.now),
        lambda: engine.set_value(b"k", b"v", 0, ORIGIN, bench.now),
        lambda: engine.delete_value(b"k", ORIGIN, bench.now),
        lambda: engine.create_queue("new", QueueSettings(), ORIGIN, bench.now),
        lambda: engine.delete_queue(b"new", ORIGIN, bench.now),
        lambda: engine.detach_session(1, ORIGIN, bench.now),
        lambda: engine.register_reader("r", 1, SECOND, ORIGIN, bench.now),
        lambda: engine.drop_reader("r", ORIGIN, bench.now),
        lambda: lease_all(engine, "c", 1, [b"q"], 1, 0, ORIGIN, bench.now),
        lambda: ack_all(engine, "c", 1, ORIGIN, bench.now),
    ]
    for step in steps:
        bench.now += 1
        step()
        assert engine.state.time == bench.now
        last = bench.collect()[-1]
        assert last.time == bench.now
        assert bench.rebuild().time == bench.now, last


def test_ids_and_sequence_numbers_go_on(bench: Bench) -> None:
    bench.push()
    bench.restart()
    assert bench.push().id == 2
    assert bench.engine.records.next_seq == 5  # boot, push, boot, push


def test_a_boot_is_a_record_with_its_epoch(bench: Bench) -> None:
    bench.restart()
    (boot,) = bench.collect()
    assert isinstance(boot, BootRecord)
    assert boot.epoch == 2
    assert boot.version == "0"


def test_evicted_jobs_are_counted_since_the_start(bench: Bench) -> None:
    bench.push(ttl_ms=1000)
    bench.advance_clock(SECOND)
    assert bench.engine.state.evicted == 1
    bench.restart()
    assert bench.engine.state.evicted == 0
    assert bench.queue().expired == 1


def test_waiters_and_watchers_are_of_this_run_only(bench: Bench) -> None:
    job = bench.push("other")
    bench.wait()
    bench.engine.watch_job(job.id, 1, bench.now + SECOND)
    bench.restart()
    assert bench.engine.waiters == {}
    assert bench.engine.watchers == {}
    assert bench.engine.state.timers.heap == []


def test_settings_of_the_server_may_change_in_between() -> None:
    bench = make_used_engine()
    bench.restart(
        EngineSettings(
            finished_bytes=512, uid_window=0, dead_retention=SECOND, outbox_bytes=64, outbox_age=1
        )
    )
    check_invariants(bench.engine)
    bench.advance_clock(SECOND)
    assert bench.ids("dead", FAILED) == []
    bench.restart(EngineSettings())
    check_invariants(bench.engine)


def test_an_empty_journal_is_an_empty_state() -> None:
    state = State(EngineSettings())
    assert snapshot(state)["jobs"] == {}
    assert (state.next_id, state.epoch) == (1, 0)


def test_time_is_that_of_the_last_record(bench: Bench) -> None:
    bench.now += 5 * SECOND
    bench.push()
    assert bench.rebuild().time == START + 5 * SECOND
