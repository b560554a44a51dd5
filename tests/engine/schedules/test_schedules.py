"""Schedules: what is set, when it comes, and what each tick pushes."""

from typing import Any

import pytest
from engine.harness import ORIGIN, START, Bench
from engine.scheduling import DAY, HOUR, MINUTE, at, known, put, tick, told, wish

from taskyard.engine.model.events import InvalidOption, QueueFull, ScheduleNotFound, SchedulesFull
from taskyard.engine.model.job import READY, SECOND, SYSTEM, Policy
from taskyard.engine.model.queue import QueueSettings
from taskyard.engine.model.state import EngineSettings
from taskyard.engine.records.job_lifecycle import PushRecord
from taskyard.engine.schedules.registry import tick_uid
from taskyard.engine.schedules.schedule import MISSED_ALL, MISSED_SKIP, OVERLAP_SKIP, Schedule


def test_an_interval_comes_again_and_again_without_drift(bench: Bench) -> None:
    put(bench, wish(every=10 * SECOND, payload=b"hello"))
    bench.advance_clock(9 * SECOND)
    assert bench.ids() == []
    bench.advance_clock(SECOND)
    assert bench.ids() == [1]
    bench.now += 3 * SECOND  # nobody looks for a while: the next but one is on time
    bench.advance_clock(7 * SECOND)
    bench.advance_clock(10 * SECOND)
    assert bench.ids() == [1, 2, 3]
    schedule = known(bench)
    assert schedule.runs == 3
    assert schedule.last_job == 3
    assert schedule.last_at == START + 30 * SECOND
    assert schedule.next_at == START + 40 * SECOND


def test_an_expression_comes_by_the_clock_of_its_zone(bench: Bench) -> None:
    bench.now = at("2026-03-27 12:00")
    put(bench, wish(cron="30 2 * * *", zone="Europe/Berlin"))
    bench.collect()
    bench.advance_clock(4 * DAY)
    when = ["2026-03-28 01:30", "2026-03-29 01:00", "2026-03-30 00:30", "2026-03-31 00:30"]
    assert told(bench) == [("ran", at(time) // SECOND, 0) for time in when]


def test_the_job_is_as_the_schedule_says(bench: Bench) -> None:
    policy = Policy(ttr=5, max_attempts=3, max_fails=2, dead_queue="dead")
    put(bench, wish("nightly", every=MINUTE, payload=b"hello", policy=policy, ttl_ms=5000))
    bench.collect()
    bench.advance_clock(MINUTE)
    push = next(record for record in bench.collect() if isinstance(record, PushRecord))
    assert (push.queue, push.blob, push.job.name, push.job.ttl_ms) == (b"q", b"hello", "task", 5000)
    assert push.job.policy.same(policy)
    origin = push.origin
    assert (origin.dialect, origin.user, origin.holder) == (SYSTEM, "tester", "schedule nightly")
    assert push.job.uid == tick_uid(bench.engine, "nightly", START + MINUTE)


def test_whoever_waits_gets_the_job_of_a_tick(bench: Bench) -> None:
    bench.wait("q", seconds=300)
    put(bench, wish(every=MINUTE))
    bench.advance_clock(MINUTE)
    assert [effect[0] for effect in bench.effects()] == ["assigned"]


def test_the_next_deadline_is_that_of_the_next_tick(bench: Bench) -> None:
    assert bench.engine.next_deadline(bench.now) == 0
    put(bench, wish(every=MINUTE))
    assert bench.engine.next_deadline(bench.now) == START + MINUTE
    bench.engine.delete_schedule("s", ORIGIN, bench.now)
    assert bench.engine.next_deadline(bench.now) == 0


# Late, missed


def test_one_run_makes_up_for_all_ticks_that_were_missed(bench: Bench) -> None:
    put(bench, wish(every=MINUTE))
    bench.collect()
    bench.now = START + 5 * MINUTE + SECOND
    tick(bench)
    assert told(bench) == [("ran", (START + 5 * MINUTE) // SECOND, 4)]
    assert known(bench).missed == 4
    assert known(bench).next_at == START + 6 * MINUTE


@pytest.mark.parametrize("minutes", [5, 100, 101, 102, 1000, 60 * 24 * 400])
def test_the_last_missed_tick_of_an_expression_is_found_however_many_there_are(
    bench: Bench, minutes: int
) -> None:
    bench.now = at("2026-01-01 00:00")
    put(bench, wish(cron="* * * * *", zone="Europe/Berlin"))
    bench.collect()
    start = bench.now
    bench.now += minutes * MINUTE + 30 * SECOND
    tick(bench)
    assert told(bench) == [("ran", start // SECOND + minutes * 60, min(minutes - 1, 100))]
    assert known(bench).next_at == start + (minutes + 1) * MINUTE


def test_the_last_missed_tick_may_be_long_ago(bench: Bench) -> None:
    bench.now = at("2026-11-30 00:00")
    put(bench, wish(cron="* 0-5 * 12 *"))
    bench.collect()
    bench.now = at("2027-06-15 08:00")
    tick(bench)
    assert told(bench) == [("ran", at("2026-12-31 05:59") // SECOND, 100)]
    assert known(bench).next_at == at("2027-12-01 00:00")


def test_missed_ticks_can_be_let_go(bench: Bench) -> None:
    put(bench, wish(every=10 * MINUTE, missed=MISSED_SKIP))
    bench.collect()
    bench.now = START + 21 * MINUTE + SECOND
    tick(bench)
    assert told(bench) == [("dropped", (START + 20 * MINUTE) // SECOND, 2)]
    assert bench.ids() == []
    schedule = known(bench)
    assert (schedule.runs, schedule.missed) == (0, 2)
    assert (schedule.last_at, schedule.last_job) == (0, 0)
    assert schedule.next_at == START + 30 * MINUTE


def test_a_tick_that_is_a_little_late_was_not_missed(bench: Bench) -> None:
    put(bench, wish(every=10 * MINUTE, missed=MISSED_SKIP))
    bench.collect()
    bench.now = START + 21 * MINUTE
    tick(bench)
    assert told(bench) == [("ran", (START + 20 * MINUTE) // SECOND, 1)]


def test_each_missed_tick_of_the_last_day_can_have_a_run_of_its_own(bench: Bench) -> None:
    put(bench, wish(every=HOUR, missed=MISSED_ALL))
    bench.collect()
    bench.now = START + 26 * HOUR + MINUTE
    tick(bench)
    first = (START + 2 * HOUR) // SECOND
    assert told(bench) == [
        ("ran", first, 1),
        *[("ran", first + number * 3600, 0) for number in range(1, 25)],
    ]
    assert known(bench).next_at == START + 27 * HOUR
    assert bench.engine.job(1).run_at == START + 2 * HOUR


def test_the_last_of_all_missed_ticks_has_a_run_however_late_it_is(bench: Bench) -> None:
    bench.now = at("2026-11-30 00:00")
    put(bench, wish(cron="0 0-3 1 * *", missed=MISSED_ALL))
    bench.collect()
    bench.now = at("2026-12-20 00:00")
    tick(bench)
    assert told(bench) == [("ran", at("2026-12-01 03:00") // SECOND, 3)]


def test_ticks_during_a_pause_were_not_missed(bench: Bench) -> None:
    put(bench, wish(every=10 * MINUTE))
    bench.engine.pause_schedule("s", True, ORIGIN, bench.now)
    assert known(bench).next_at == 0
    assert bench.engine.next_deadline(bench.now) == 0
    bench.advance_clock(55 * MINUTE)
    bench.engine.pause_schedule("s", False, ORIGIN, bench.now)
    bench.collect()
    bench.advance_clock(5 * MINUTE)
    assert told(bench) == [("ran", (START + 60 * MINUTE) // SECOND, 0)]
    assert known(bench).missed == 0


def test_pausing_twice_is_pausing_once(bench: Bench) -> None:
    put(bench, wish(every=MINUTE))
    bench.engine.pause_schedule("s", True, ORIGIN, bench.now)
    bench.collect()
    assert bench.engine.pause_schedule("s", True, ORIGIN, bench.now).paused
    assert bench.collect() == []


# Overlap


def test_a_tick_is_skipped_while_the_last_job_has_not_ended(bench: Bench) -> None:
    put(bench, wish(every=MINUTE, overlap=OVERLAP_SKIP))
    bench.advance_clock(MINUTE)
    job = bench.take(ttr=DAY)
    bench.advance_clock(2 * MINUTE)
    assert known(bench).skipped == 2
    bench.ack(job)
    bench.advance_clock(MINUTE)
    assert bench.ids() == [2]
    bench.advance_clock(MINUTE)
    assert (known(bench).runs, known(bench).skipped) == (2, 3)


def test_a_job_that_has_failed_for_good_holds_up_none(bench: Bench) -> None:
    put(bench, wish(every=MINUTE, overlap=OVERLAP_SKIP, policy=Policy()))
    bench.advance_clock(MINUTE)
    bench.nack(bench.take())
    bench.advance_clock(MINUTE)
    assert bench.ids() == [2]


def test_a_job_in_its_dead_queue_holds_up_none(bench: Bench) -> None:
    put(bench, wish(every=MINUTE, overlap=OVERLAP_SKIP, policy=Policy(dead_queue="dead")))
    bench.advance_clock(MINUTE)
    bench.nack(bench.take())
    assert bench.ids("dead") == [1]
    bench.advance_clock(MINUTE)
    assert bench.ids() == [2]


def test_a_job_that_may_go_to_a_dead_queue_holds_up_the_next_until_it_has(bench: Bench) -> None:
    put(bench, wish(every=MINUTE, overlap=OVERLAP_SKIP, policy=Policy(dead_queue="dead")))
    bench.advance_clock(2 * MINUTE)
    assert bench.ids() == [1]
    assert known(bench).skipped == 1


def test_overlaps_are_allowed_if_nothing_is_said(bench: Bench) -> None:
    put(bench, wish(every=MINUTE))
    bench.advance_clock(3 * MINUTE)
    assert bench.ids() == [1, 2, 3]


def test_jobs_have_the_limit_key_of_their_schedule(bench: Bench) -> None:
    first = put(bench, wish(every=MINUTE, limit_key=b"ada"))
    assert put(bench, wish(every=MINUTE, limit_key=b"ada")) is first
    bench.advance_clock(MINUTE)
    bench.engine.run_schedule("s", ORIGIN, bench.now)
    assert [bench.engine.job(id).ensure_extras().limit_key for id in (1, 2)] == [b"ada", b"ada"]
    assert put(bench, wish(every=MINUTE, limit_key=b"bob")) is not first
    bench.advance_clock(MINUTE)
    assert bench.engine.job(3).ensure_extras().limit_key == b"bob"


def test_a_tick_is_skipped_while_a_job_of_its_key_waits(bench: Bench) -> None:
    put(bench, wish(every=MINUTE, key=b"k"))
    bench.push(key=b"k")
    bench.advance_clock(MINUTE)
    assert bench.ids() == [1]
    assert known(bench).skipped == 1
    bench.take(ttr=DAY)
    bench.advance_clock(MINUTE)
    assert bench.ids() == [2]
    assert bench.queue().keys == {b"k": bench.engine.job(2)}


# Measures


def test_what_came_of_the_ticks_of_all_schedules_is_counted(bench: Bench) -> None:
    put(bench, wish(every=HOUR, overlap=OVERLAP_SKIP))
    put(bench, wish("other", every=HOUR, missed=MISSED_SKIP, queue="other"))
    bench.advance_clock(3 * HOUR)
    measures = bench.engine.statistics.schedules
    assert (measures.runs, measures.skipped, measures.missed) == (4, 2, 0)
    assert (measures.lateness.count, measures.lateness.total) == (4, 0)
    bench.now += 2 * HOUR + 30 * MINUTE  # nothing ticks
    tick(bench)
    assert (measures.runs, measures.skipped, measures.missed) == (4, 3, 3)
    bench.now += 30 * MINUTE + 10 * SECOND
    tick(bench)
    assert (measures.runs, measures.skipped, measures.missed) == (5, 4, 3)
    assert (measures.lateness.count, measures.lateness.total) == (5, 10 * SECOND)


# Refused


def test_a_refused_tick_is_tried_again_until_there_is_a_place(bench: Bench) -> None:
    bench.engine.create_queue("q", QueueSettings(max_jobs=1), ORIGIN, bench.now)
    job = bench.push()
    put(bench, wish(every=10 * MINUTE))
    bench.advance_clock(11 * MINUTE)
    schedule = known(bench)
    assert schedule.refusal.startswith("queue is full")
    assert bench.engine.statistics.schedules.refused == 1
    bench.collect()
    bench.delete(job)
    bench.advance_clock(5 * SECOND)
    assert told(bench) == [("ran", (START + 10 * MINUTE) // SECOND, 0)]
    assert bench.ids() == [2]
    assert known(bench).refusal == ""
    assert known(bench).next_at == START + 20 * MINUTE


def test_ticks_that_come_while_one_is_refused_count_as_missed(bench: Bench) -> None:
    bench.engine.create_queue("q", QueueSettings(max_jobs=1), ORIGIN, bench.now)
    job = bench.push()
    put(bench, wish(every=MINUTE))
    bench.advance_clock(3 * MINUTE + 30 * SECOND)
    bench.collect()
    bench.delete(job)
    bench.advance_clock(10 * SECOND)
    assert told(bench) == [("ran", (START + 3 * MINUTE) // SECOND, 2)]


def test_a_refused_tick_is_dropped_when_it_is_too_late(bench: Bench) -> None:
    bench.engine.create_queue("q", QueueSettings(max_jobs=0), ORIGIN, bench.now)
    put(bench, wish(every=HOUR, missed=MISSED_SKIP))
    bench.collect()
    bench.advance_clock(HOUR + 2 * MINUTE)
    assert told(bench) == [("dropped", (START + HOUR) // SECOND, 1)]
    assert known(bench).refusal == ""


def test_without_room_in_the_journal_a_tick_waits(bench: Bench) -> None:
    put(bench, wish(every=HOUR))
    bench.collect()
    bench.engine.journal_space.push_refusal = "the disk is full"
    bench.advance_clock(HOUR + MINUTE)
    assert bench.collect() == []
    assert known(bench).refusal == "the disk is full"
    bench.engine.journal_space.push_refusal = ""
    bench.advance_clock(5 * SECOND)
    assert told(bench) == [("ran", (START + HOUR) // SECOND, 0)]


def test_a_read_only_engine_ticks_no_more(bench: Bench) -> None:
    put(bench, wish(every=MINUTE))
    bench.collect()
    bench.engine.read_only_reason = "the disk is gone"
    bench.now += HOUR
    assert not bench.engine.tick(bench.now)
    assert bench.engine.next_deadline(bench.now) == 0
    assert bench.collect() == []


# Set again


def test_who_sets_it_again_neither_puts_it_off_nor_doubles_it(bench: Bench) -> None:
    first = put(bench, wish(every=HOUR))
    bench.advance_clock(59 * MINUTE)
    bench.collect()
    assert put(bench, wish(every=HOUR)) is first
    assert bench.collect() == []
    bench.advance_clock(MINUTE)
    assert bench.ids() == [1]


def test_another_payload_leaves_its_timing_and_its_history(bench: Bench) -> None:
    put(bench, wish(every=HOUR))
    bench.advance_clock(90 * MINUTE)
    changed = put(bench, wish(every=HOUR, payload=b"new"))
    assert (changed.runs, changed.last_job, changed.next_at) == (1, 1, START + 2 * HOUR)
    assert changed.since == START
    bench.advance_clock(30 * MINUTE)
    assert bench.ids() == [1, 2]
    assert bench.engine.job(2).payload_size == 3


def test_another_timing_begins_now(bench: Bench) -> None:
    put(bench, wish(every=HOUR))
    bench.now += 30 * MINUTE
    changed = put(bench, wish(every=2 * HOUR))
    assert changed.next_at == bench.now + 2 * HOUR


def test_a_paused_one_that_is_set_again_goes_on_where_its_clock_is(bench: Bench) -> None:
    put(bench, wish(every=HOUR, paused=True))
    bench.now += 90 * MINUTE
    assert put(bench, wish(every=HOUR)).next_at == START + 2 * HOUR


def test_a_tick_that_is_due_survives_a_change(bench: Bench) -> None:
    put(bench, wish(every=HOUR))
    bench.now += HOUR
    put(bench, wish(every=HOUR, payload=b"new"))
    tick(bench)
    assert bench.ids() == [1]


# By hand


def test_a_run_by_hand_is_beside_the_ticks(bench: Bench) -> None:
    put(bench, wish(every=HOUR, overlap=OVERLAP_SKIP, paused=True))
    assert bench.engine.run_schedule("s", ORIGIN, bench.now).state == READY
    assert bench.engine.run_schedule("s", ORIGIN, bench.now).id == 2
    schedule = known(bench)
    assert (schedule.runs, schedule.last_job, schedule.next_at) == (2, 2, 0)
    assert told(bench)[0] == ("by_hand", START // SECOND, 0)


def test_a_run_by_hand_is_refused_as_a_push_is(bench: Bench) -> None:
    bench.engine.create_queue("q", QueueSettings(max_jobs=0), ORIGIN, bench.now)
    put(bench, wish(every=HOUR))
    bench.collect()
    with pytest.raises(QueueFull):
        bench.engine.run_schedule("s", ORIGIN, bench.now)
    assert bench.collect() == []


# What is refused


@pytest.mark.parametrize(
    ("wished", "option"),
    [
        (wish("a b", every=HOUR), "schedule"),
        (wish(), "cron"),
        (wish(every=HOUR, cron="* * * * *"), "cron"),
        (wish(cron="nonsense"), "cron"),
        (wish(cron="0 0 30 2 *"), "cron"),
        (wish(cron="0 0 LW * */7"), "cron"),
        (wish(cron="* * * * *", zone="Mars/Olympus"), "timezone"),
        (wish(every=SECOND - 1), "every"),
        (wish(every=367 * DAY), "every"),
        (wish(every=-1), "every"),
        (wish(every=HOUR, queue="a b"), "queue"),
        (wish(every=HOUR, payload=bytes(1_048_577)), "payload"),
        (wish(every=HOUR, missed=9), "missed"),
        (wish(every=HOUR, overlap=9), "overlap"),
        (wish(every=HOUR, policy=Policy(max_fails=-3)), "max_fails"),
    ],
)
def test_what_cannot_be_a_schedule_is_refused(bench: Bench, wished: Schedule, option: str) -> None:
    with pytest.raises(InvalidOption) as refused:
        put(bench, wished)
    assert refused.value.option == option
    assert not bench.engine.state.schedules


def test_there_may_be_so_many() -> None:
    bench = Bench(EngineSettings(max_schedules=2))
    for name in ("a", "b"):
        put(bench, wish(name, every=HOUR))
    with pytest.raises(SchedulesFull):
        put(bench, wish("c", every=HOUR))
    put(bench, wish("b", every=MINUTE))
    bench.engine.delete_schedule("a", ORIGIN, bench.now)
    put(bench, wish("c", every=HOUR))


def test_there_may_be_so_many_bytes_of_them() -> None:
    bench = Bench(EngineSettings(schedule_bytes=1000))
    put(bench, wish("a", every=HOUR, payload=bytes(500)))
    with pytest.raises(SchedulesFull):
        put(bench, wish("b", every=HOUR, payload=bytes(500)))
    put(bench, wish("a", every=HOUR, payload=bytes(600)))
    bench.engine.delete_schedule("a", ORIGIN, bench.now)
    assert bench.engine.state.schedule_bytes == 0
    assert bench.engine.state.live_bytes.unplaced == 0


def test_what_is_not_there_cannot_be_changed(bench: Bench) -> None:
    engine = bench.engine
    with pytest.raises(ScheduleNotFound):
        engine.pause_schedule("s", True, ORIGIN, bench.now)
    with pytest.raises(ScheduleNotFound):
        engine.delete_schedule("s", ORIGIN, bench.now)
    with pytest.raises(ScheduleNotFound):
        engine.run_schedule("s", ORIGIN, bench.now)


# Many


def test_ten_thousand_at_the_same_second_come_in_portions(bench: Bench) -> None:
    for number in range(10_000):
        put(bench, wish(f"s{number}", every=HOUR))
    bench.now += HOUR
    assert bench.engine.tick(bench.now)
    assert bench.queue().ready.size == 250
    tick(bench)
    assert bench.queue().ready.size == 10_000
    assert bench.engine.next_deadline(bench.now) == START + 2 * HOUR


def test_large_payloads_come_in_smaller_portions(bench: Bench) -> None:
    put(bench, wish(every=SECOND, missed=MISSED_ALL, payload=bytes(1_000_000)))
    bench.now += HOUR
    assert bench.engine.tick(bench.now)
    assert 1 < bench.queue().ready.size < 20
    assert bench.engine.records.size() < 20_000_000


@pytest.mark.parametrize(
    "other",
    [
        {"every": 2 * MINUTE},
        {"missed": MISSED_ALL},
        {"overlap": OVERLAP_SKIP},
        {"paused": True},
        {"queue": "other"},
        {"payload": b"other"},
        {"policy": Policy(ttr=5)},
        {"ttl_ms": 5},
        {"key": b"k"},
        {"limit_key": b"k"},
    ],
)
def test_a_wish_that_differs_in_anything_is_another_one(
    bench: Bench, other: dict[str, Any]
) -> None:
    first = put(bench, wish(every=MINUTE))
    assert put(bench, wish(every=MINUTE)) is first
    bench.collect()
    assert put(bench, wish(**{"every": MINUTE, **other})) is not first
    assert len(bench.collect()) == 1
