"""Queues that nobody uses any more are deleted, where that is set."""

import pytest
from engine.harness import ORIGIN, START, Bench
from support.model_invariants import check_invariants
from support.snapshot import snapshot

from taskyard.engine.model.job import SECOND, Policy
from taskyard.engine.model.queue import QueueRule, QueueSettings
from taskyard.engine.model.state import EngineSettings
from taskyard.engine.records.entities import QueueGone

HOUR = 3600 * SECOND


@pytest.fixture
def bench() -> Bench:
    return Bench(EngineSettings(idle_expiry=HOUR))


def has(bench: Bench, name: bytes = b"q") -> bool:
    return bench.engine.queue(name) is not None


def test_a_queue_without_jobs_is_deleted_after_a_while(bench: Bench) -> None:
    bench.push()
    bench.advance_clock(10 * HOUR)
    assert has(bench)
    bench.ack(bench.take())
    bench.advance_clock(HOUR)
    assert has(bench)
    bench.advance_clock(HOUR // 2)
    assert not has(bench)
    assert bench.engine.state.timers.heap == []
    assert any(isinstance(record, QueueGone) for record in bench.collect())
    assert snapshot(bench.rebuild()) == snapshot(bench.engine.state)
    check_invariants(bench.engine)


def test_use_keeps_it(bench: Bench) -> None:
    for _ in range(5):
        bench.push()
        bench.ack(bench.take())
        bench.advance_clock(HOUR - SECOND)
        assert has(bench)


def test_who_waits_for_jobs_keeps_it(bench: Bench) -> None:
    bench.push()
    bench.ack(bench.take())
    bench.wait(seconds=5 * 3600)
    bench.advance_clock(5 * HOUR)
    assert has(bench)
    bench.advance_clock(2 * HOUR)
    assert not has(bench)


def test_dead_letters_and_results_keep_it() -> None:
    bench = Bench(EngineSettings(idle_expiry=HOUR, dead_retention=10 * HOUR))
    bench.push(policy=Policy())
    bench.nack(bench.take())
    bench.advance_clock(9 * HOUR)
    assert has(bench)
    bench.advance_clock(3 * HOUR)
    assert not has(bench)


@pytest.mark.parametrize("settings", [QueueSettings(), QueueSettings(concurrency=3)])
def test_one_made_by_name_is_kept(bench: Bench, settings: QueueSettings) -> None:
    bench.engine.create_queue("q", settings, ORIGIN, bench.now)
    bench.advance_clock(10 * HOUR)
    assert has(bench)


def test_one_that_was_given_settings_is_kept(bench: Bench) -> None:
    bench.push()
    bench.ack(bench.take())
    bench.configure(settings=QueueSettings(retries=3))
    bench.advance_clock(10 * HOUR)
    assert has(bench)


@pytest.mark.parametrize("server", [0, HOUR])
def test_its_own_setting_counts_for_any(server: int) -> None:
    bench = Bench(EngineSettings(idle_expiry=server))
    settings = QueueSettings(idle_expiry=60 * SECOND)
    bench.engine.create_queue("q", settings, ORIGIN, bench.now)
    bench.advance_clock(80 * SECOND)
    assert not has(bench)
    assert bench.now - START < HOUR


def test_none_is_deleted_unless_it_is_set() -> None:
    bench = Bench()
    bench.push()
    bench.ack(bench.take())
    assert bench.engine.next_deadline(bench.now) == 0
    bench.advance_clock(1000 * HOUR)
    assert has(bench)


def test_a_rule_counts_for_those_whose_names_fit() -> None:
    rule = QueueRule("tmp.*", QueueSettings(idle_expiry=HOUR))
    bench = Bench(EngineSettings(queue_rules=[rule]))
    for name in ("tmp.a", "b"):
        bench.push(name)
        bench.ack(bench.take(name))
    bench.advance_clock(2 * HOUR)
    assert not has(bench, b"tmp.a")
    assert has(bench, b"b")


def test_after_a_restart_its_time_begins_anew(bench: Bench) -> None:
    bench.push()
    bench.ack(bench.take())
    bench.advance_clock(HOUR - SECOND)
    bench.restart()
    bench.advance_clock(HOUR - SECOND)
    assert has(bench)
    bench.advance_clock(HOUR)
    assert not has(bench)


def test_its_time_goes_on_when_the_configuration_is_read_again() -> None:
    def rules(expiry: int) -> list[QueueRule]:
        return [QueueRule("q", QueueSettings(idle_expiry=expiry))]

    bench = Bench(EngineSettings(queue_rules=rules(HOUR)))
    bench.push()
    bench.ack(bench.take())
    for _ in range(6):
        bench.advance_clock(HOUR // 4)
        bench.engine.set_queue_rules(rules(HOUR), bench.now)
    assert not has(bench)
    bench.push()
    bench.ack(bench.take())
    bench.engine.set_queue_rules(rules(9 * HOUR), bench.now)
    bench.advance_clock(8 * HOUR)
    assert has(bench)
    bench.engine.set_queue_rules(rules(HOUR), bench.now)
    bench.advance_clock(2 * HOUR)
    assert not has(bench)
