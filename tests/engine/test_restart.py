"""Recovery: the records so far give the state that was there, and a boot goes on from it."""

from collections.abc import Callable

from engine.harness import ORIGIN, START, Bench
from engine.lived_in import lived_in
from support.batches import ack_all
from support.model_invariants import check_invariants
from support.snapshot import snapshot

from taskyard.engine.job import BLOCKED, DELAYED, FAILED, LEASED, SECOND, SUCCEEDED
from taskyard.engine.queue import QueueSettings
from taskyard.engine.records import Boot
from taskyard.engine.state import EngineSettings, State


def test_the_records_give_the_same_state_again() -> None:
    bench = lived_in()
    assert snapshot(bench.rebuild()) == snapshot(bench.engine.state)
    check_invariants(bench.engine)


def test_a_snapshot_tells_states_apart() -> None:
    bench = lived_in()
    leased = bench.take(owner=1)
    changes: tuple[Callable[[], object], ...] = (
        lambda: bench.engine.rescore(leased.id, 99, ORIGIN, bench.now),
        lambda: bench.engine.extend(leased.id, 1, SECOND, ORIGIN, bench.now),
        lambda: bench.engine.set_value(b"v", b"other", 0, ORIGIN, bench.now),
        lambda: bench.engine.letters_delivered(1, 9, ORIGIN, bench.now),
        lambda: bench.configure("q", QueueSettings()),
        lambda: ack_all(bench.engine, "c", 1, ORIGIN, bench.now),
    )
    for change in changes:
        before = snapshot(bench.engine.state)
        change()
        assert snapshot(bench.engine.state) != before


def test_nothing_is_lost_over_many_restarts() -> None:
    bench = lived_in()
    for _ in range(5):
        bench.restart()
        assert snapshot(bench.rebuild()) == snapshot(bench.engine.state)
        check_invariants(bench.engine)
    assert bench.engine.state.epoch == 6
    assert len(bench.ids(state=LEASED)) == 4  # two with a time, and the batch
    assert len(bench.ids(state=DELAYED)) == len(bench.ids(state=BLOCKED)) == 1
    assert len(bench.ids("done", SUCCEEDED)) == 3
    assert len(bench.ids("dead", FAILED)) == 1


def test_ids_and_sequence_numbers_go_on(bench: Bench) -> None:
    bench.push()
    bench.restart()
    assert bench.push().id == 2
    assert bench.engine.log.next_seq == 5  # boot, push, boot, push


def test_a_boot_is_a_record_with_its_epoch(bench: Bench) -> None:
    bench.restart()
    (boot,) = bench.collect()
    assert isinstance(boot, Boot)
    assert boot.epoch == 2
    assert boot.version == "0"


def test_evicted_jobs_are_counted_since_the_start(bench: Bench) -> None:
    bench.push(ttl_ms=1000)
    bench.pass_time(SECOND)
    assert bench.engine.state.evicted == 1
    bench.restart()
    assert bench.engine.state.evicted == 0
    assert bench.queue().expired == 1


def test_waiters_and_watchers_are_of_this_run_only(bench: Bench) -> None:
    job = bench.push("other")
    bench.wait()
    bench.engine.watch(job.id, 1, bench.now + SECOND)
    bench.restart()
    assert bench.engine.waiting == {}
    assert bench.engine.watchers == {}
    assert bench.engine.state.timers.heap == []


def test_settings_of_the_server_may_change_in_between() -> None:
    bench = lived_in()
    bench.restart(
        EngineSettings(
            finished_bytes=512, uid_window=0, dead_retention=SECOND, outbox_bytes=64, outbox_age=1
        )
    )
    check_invariants(bench.engine)
    bench.pass_time(SECOND)
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
