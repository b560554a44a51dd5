"""Settings that queues have by their names, as the server's configuration says."""

from typing import Any

import pytest
from engine.compacting import Compaction
from engine.harness import ORIGIN, OWNER, Bench
from support.snapshot import lasting

from taskyard.engine.compaction import snapshot_key_limits, snapshot_queue
from taskyard.engine.model.job import (
    DELAYED,
    FAILED,
    LIMITED,
    REDIS,
    SECOND,
    WORKQ,
    NewJob,
    Origin,
    Policy,
)
from taskyard.engine.model.queue import QueueRule, QueueSettings
from taskyard.engine.model.state import EngineSettings


def ruled(**patterns: QueueSettings) -> Bench:
    rules = [QueueRule(pattern, settings) for pattern, settings in patterns.items()]
    return Bench(EngineSettings(queue_rules=rules))


@pytest.mark.parametrize(
    ("pattern", "name", "fits"),
    [
        ("mail", "mail", True),
        ("mail", "mail.out", False),
        ("mail.*", "mail.out", True),
        ("mail.*", "mail.", True),
        ("mail.*", "mailxout", False),
        ("*", "anything", True),
        ("*.out", "mail.out", True),
        ("m*l*t", "mail.out", True),
        ("m*l*t", "mailt.outs", False),
        ("m**t", "mt", True),
        ("*a*b*", "ba", False),
        ("*ab*b", "ab", False),
        ("*" + 40 * "a*" + "b", 255 * "a", False),
        ("*" + 40 * "a*" + "b", 40 * "ax" + "b", True),
        ("[a-z]", "a", False),
    ],
)
def test_a_star_stands_for_anything(pattern: str, name: str, fits: bool) -> None:
    assert QueueRule(pattern, QueueSettings()).matches(name) is fits


def test_the_first_that_fits_counts_and_no_other() -> None:
    rules = [
        QueueRule("mail.bulk", QueueSettings(concurrency=1)),
        QueueRule("mail.*", QueueSettings(concurrency=2, ttr=3 * SECOND)),
    ]
    bench = Bench(EngineSettings(queue_rules=rules))
    assert bench.engine.effective_settings(b"mail.bulk").concurrency == 1
    assert bench.engine.effective_settings(b"mail.bulk").ttr == -1
    assert bench.engine.effective_settings(b"mail.x").concurrency == 2
    assert bench.engine.effective_settings(b"other").concurrency == -1


def test_they_hold_for_queues_that_come() -> None:
    bench = ruled(q=QueueSettings(concurrency=1))
    bench.push()
    bench.push()
    bench.take()
    assert bench.try_to_take() is None
    assert bench.queue().settings.concurrency == -1


def test_a_queue_may_have_others_of_its_own() -> None:
    bench = ruled(q=QueueSettings(concurrency=1, retries=7))
    bench.push()
    bench.push()
    bench.configure(settings=QueueSettings(concurrency=0))
    assert (
        bench.queue().effective_settings.concurrency,
        bench.queue().effective_settings.retries,
    ) == (0, 7)
    bench.take()
    bench.take()


def test_they_can_be_read_again_while_the_server_runs() -> None:
    bench = Bench()
    for _ in range(4):
        bench.push(limit_key=b"x")
    bench.engine.set_queue_rules([QueueRule("q", QueueSettings(key_concurrency=1))], bench.now)
    bench.take()
    assert bench.try_to_take() is None
    assert len(bench.ids(state=LIMITED)) == 3
    waiter = bench.wait(owner=2)
    bench.engine.set_queue_rules([], bench.now)
    assert bench.effects() == [("assigned", waiter.number, 2)]
    assert bench.ids(state=LIMITED) == []


def test_nothing_is_handed_out_for_that_when_nothing_can_be_written() -> None:
    bench = ruled(q=QueueSettings(concurrency=1))
    bench.push()
    bench.push()
    bench.take()
    bench.wait(owner=2)
    bench.collect()
    bench.engine.read_only_reason = "the disk is gone"
    bench.engine.set_queue_rules([], bench.now)
    assert bench.collect() == []
    assert bench.effects() == []


def test_a_pattern_may_say_something_else_when_it_is_read_again() -> None:
    bench = ruled(q=QueueSettings(concurrency=1))
    for name in ("q", "other"):
        bench.push(name)
    bench.engine.set_queue_rules([QueueRule("q", QueueSettings(concurrency=7))], bench.now)
    found = [bench.queue(name).effective_settings.concurrency for name in ("q", "other")]
    assert (
        found
        == [bench.engine.effective_settings(name).concurrency for name in (b"q", b"other")]
        == [7, -1]
    )


def test_a_server_with_other_rules_goes_on_with_the_same_jobs() -> None:
    bench = ruled(q=QueueSettings(key_rate_count=1, key_rate_period=3600 * SECOND))
    for _ in range(3):
        bench.push(limit_key=b"x")
    bench.take()
    bench.restart(EngineSettings())
    assert bench.take().id == 2


def started(rule: QueueSettings, count: int) -> Bench:
    """So many jobs of one key were started by this rule, and two more wait."""
    bench = ruled(q=rule)
    for _ in range(count + 2):
        bench.push(limit_key=b"x")
    for _ in range(count):
        bench.ack(bench.take())
    return bench


HOUR = 3600 * SECOND


@pytest.mark.parametrize(
    ("fast", "slow"),
    [
        (
            QueueSettings(rate_count=1000, rate_period=SECOND),
            QueueSettings(rate_count=1, rate_period=HOUR),
        ),
        (
            QueueSettings(key_rate_count=1000, key_rate_period=SECOND),
            QueueSettings(key_rate_count=1, key_rate_period=HOUR),
        ),
    ],
    ids=["queue", "key"],
)
def test_after_a_restart_with_a_slower_rate_no_more_than_a_burst_counts(
    fast: QueueSettings, slow: QueueSettings
) -> None:
    bench = started(fast, 500)
    bench.restart(EngineSettings(queue_rules=[QueueRule("q", slow)]))
    assert bench.try_to_take() is None
    bench.advance_clock(HOUR)
    bench.take()
    assert bench.try_to_take() is None


@pytest.mark.parametrize("again", [QueueSettings(), QueueSettings(rate_count=9, rate_period=HOUR)])
def test_what_was_carried_of_a_slower_rate_does_not_hold_up_a_faster_one(
    again: QueueSettings,
) -> None:
    slow = QueueSettings(
        rate_count=1, rate_period=99 * HOUR, key_rate_count=1, key_rate_period=99 * HOUR
    )
    bench = started(slow, 1)
    gates = bench.queue().key_limits
    assert gates is not None
    snapshot_queue(bench.engine, bench.queue(), bench.now)
    snapshot_key_limits(bench.engine, bench.queue(), list(gates.values()), bench.now)
    bench.restart(EngineSettings(queue_rules=[QueueRule("q", again)]))
    assert bench.queue().key_limits is None
    bench.take()
    bench.take()


def test_a_replay_from_a_base_counts_no_starts_by_settings_that_did_not_hold() -> None:
    bench = ruled(q=QueueSettings(key_rate_count=1, key_rate_period=HOUR))
    bench.push()
    bench.configure(settings=QueueSettings(key_rate_count=0))
    bench.collect()
    compaction = Compaction(bench, bench.engine.records.start_position)
    for _ in range(3):
        bench.push(limit_key=b"x")
    for _ in range(3):
        bench.ack(bench.take())
    bench.configure()
    while not compaction.closed:
        compaction.continue_scan(1, 0)
        bench.collect()
    assert lasting(bench.replay(compaction.base)) == lasting(bench.engine.state)
    bench.base = compaction.base
    bench.restart()
    assert bench.take().id == 4


def test_results_and_dead_letters_are_kept_as_the_rule_says() -> None:
    bench = ruled(q=QueueSettings(result_retention=9 * SECOND, dead_retention=5 * SECOND))
    done, dead = bench.push(), bench.push(policy=Policy())
    bench.ack(bench.take())
    bench.nack(bench.take())
    bench.advance_clock(4 * SECOND)
    assert bench.engine.job(dead.id).state == FAILED
    bench.advance_clock(SECOND)
    assert bench.engine.state.live_job(dead.id) is None
    assert bench.engine.job(done.id) is done


def push_as(bench: Bench, dialect: int, policy: Policy) -> None:
    new = NewJob("q", "task", b"", policy)
    bench.engine.push(new, Origin(dialect, "", ""), bench.now)


def fail_once(bench: Bench) -> int:
    job = bench.take()
    bench.engine.nack(job.id, OWNER, b"", ORIGIN, bench.now)
    return job.state


def test_how_often_a_job_is_tried_where_its_pusher_has_not_said() -> None:
    bench = ruled(q=QueueSettings(retries=1, backoff=2, backoff_base=4 * SECOND))
    push_as(bench, REDIS, Policy())
    assert fail_once(bench) == DELAYED
    bench.advance_clock(4 * SECOND)
    assert fail_once(bench) == FAILED


def test_whoever_has_said_it_is_taken_at_his_word() -> None:
    bench = ruled(q=QueueSettings(retries=5))
    push_as(bench, REDIS, Policy(max_fails=1))
    assert fail_once(bench) == FAILED


def test_in_workq_to_say_nothing_is_to_say_once() -> None:
    bench = ruled(q=QueueSettings(retries=5))
    push_as(bench, WORKQ, Policy())
    assert fail_once(bench) == FAILED


def test_dead_letters_are_kept_as_long_as_the_rules_that_are_read_anew_say(bench: Bench) -> None:
    job = bench.push(policy=Policy(max_fails=1))
    bench.nack(bench.take())
    rule = QueueRule("q", QueueSettings(dead_retention=10 * SECOND))
    bench.engine.set_queue_rules([rule], bench.now)
    bench.advance_clock(10 * SECOND - 1)
    assert job.state == FAILED
    bench.advance_clock(1)
    assert bench.ids(state=FAILED) == []


def test_who_waits_is_served_when_rules_that_are_read_anew_allow_more(bench: Bench) -> None:
    for _ in range(2):
        bench.push()
    bench.engine.set_queue_rules([QueueRule("q", QueueSettings(concurrency=1))], bench.now)
    bench.take()
    waiter = bench.wait()
    assert bench.effects() == []
    bench.engine.set_queue_rules([QueueRule("q", QueueSettings(concurrency=2))], bench.now)
    assert not waiter.waiting
    assert bench.queue().leased.size == 2


def test_what_a_queue_has_set_to_zero_is_not_taken_from_a_rule() -> None:
    zeros: dict[str, Any] = {
        "retries": 0,
        "dead_retention": 0,
        "backoff": 0,
        "ttr": 0,
        "concurrency": 0,
        "rate_count": 0,
        "key_concurrency": 0,
        "key_rate_count": 0,
        "idle_expiry": 0,
    }
    nines: dict[str, Any] = dict.fromkeys(zeros, 9)
    bench = ruled(q=QueueSettings(**nines))
    bench.push()
    assert {name: getattr(bench.queue().effective_settings, name) for name in zeros} == nines
    bench.configure("q", QueueSettings(**zeros))
    assert {name: getattr(bench.queue().effective_settings, name) for name in zeros} == zeros
