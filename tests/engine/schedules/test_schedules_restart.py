"""Schedules across restarts, crashes and compaction: no run is lost and none is doubled."""

import pytest
from engine.compacting import Compaction
from engine.harness import ORIGIN, START, Bench, Frame, property_settings
from engine.lived_in import make_used_engine
from engine.scheduling import DAY, HOUR, MINUTE, at, known, put, tick, told, wish
from hypothesis import given
from hypothesis import strategies as st
from support.model_invariants import check_invariants, check_weights
from support.snapshot import lasting, snapshot

from taskyard.engine.compaction import snapshot_schedule
from taskyard.engine.model.job import SECOND, Policy
from taskyard.engine.model.state import schedule_record_bytes
from taskyard.engine.records.entities import ScheduleSet, ScheduleTick
from taskyard.engine.records.job_lifecycle import PushRecord
from taskyard.engine.records.replay import apply_record
from taskyard.engine.records.snapshots import Checkpoint
from taskyard.engine.schedules.schedule import MISSED_SKIP, OVERLAP_ALLOW, OVERLAP_SKIP


def test_a_schedule_is_there_after_a_restart(bench: Bench) -> None:
    put(bench, wish("a", cron="0 3 * * *", zone="Europe/Berlin", payload=b"x", key=b"k"))
    put(bench, wish("b", every=HOUR, overlap=OVERLAP_SKIP, missed=MISSED_SKIP, limit_key=b"l"))
    put(bench, wish("c", every=HOUR, paused=True))
    bench.advance_clock(3 * HOUR)
    bench.engine.pause_schedule("b", True, ORIGIN, bench.now)
    bench.engine.delete_schedule("c", ORIGIN, bench.now)
    before = snapshot(bench.engine.state)["schedules"]
    bench.restart()
    assert snapshot(bench.engine.state)["schedules"] == before


def test_what_was_missed_while_the_server_was_down_is_made_up_for_once(bench: Bench) -> None:
    put(bench, wish(every=HOUR))
    bench.collect()
    bench.now += 10 * HOUR + MINUTE
    bench.restart()
    tick(bench)
    assert told(bench) == [("ran", (START + 10 * HOUR) // SECOND, 9)]
    bench.restart()
    tick(bench)
    assert told(bench) == []


def test_what_was_missed_while_the_server_was_down_is_let_go(bench: Bench) -> None:
    put(bench, wish(every=HOUR, missed=MISSED_SKIP))
    bench.collect()
    bench.now += 10 * HOUR + 2 * MINUTE
    bench.restart()
    tick(bench)
    assert told(bench) == [("dropped", (START + 10 * HOUR) // SECOND, 10)]
    bench.advance_clock(58 * MINUTE)
    assert told(bench) == [("ran", (START + 11 * HOUR) // SECOND, 0)]


@pytest.mark.parametrize(
    ("down", "up", "ran", "then"),
    [
        # Down from before the clock goes forward until after it.
        ("2026-03-28 12:00", "2026-03-29 06:00", "2026-03-29 01:00", "2026-03-30 00:30"),
        # And while it goes back: the second half past two is none.
        ("2026-10-24 12:00", "2026-10-25 01:45", "2026-10-25 00:30", "2026-10-26 01:30"),
    ],
)
def test_down_while_the_clocks_shift(bench: Bench, down: str, up: str, ran: str, then: str) -> None:
    bench.now = at(down)
    put(bench, wish(cron="30 2 * * *", zone="Europe/Berlin"))
    bench.collect()
    bench.now = at(up)
    bench.restart()
    tick(bench)
    assert told(bench) == [("ran", at(ran) // SECOND, 0)]
    assert known(bench).next_at == at(then)


def test_a_tick_and_its_push_are_one_frame(bench: Bench) -> None:
    put(bench, wish(every=HOUR))
    bench.collect()
    bench.now += HOUR
    bench.engine.tick(bench.now)
    assert [type(record) for record in bench.collect()] == [PushRecord, ScheduleTick]


def test_a_push_whose_tick_was_lost_is_not_doubled(bench: Bench) -> None:
    """They are written together; if they were not, the job's uid would tell."""
    put(bench, wish(every=HOUR))
    bench.collect()
    bench.now += HOUR
    bench.engine.tick(bench.now)
    push, _ = bench.collect()
    whole = bench.frames.pop()
    bench.frames.append(Frame(whole.base, whole.first, whole.data[: push.size]))
    bench.next_seq -= 1
    bench.restart()
    assert known(bench).next_at == START + HOUR
    tick(bench)
    assert bench.ids() == [1]
    assert (known(bench).runs, known(bench).last_job) == (1, 1)
    assert known(bench).next_at == START + 2 * HOUR


def test_a_crash_after_any_turn_loses_no_run_and_doubles_none(bench: Bench) -> None:
    put(bench, wish("a", every=7 * MINUTE))
    put(bench, wish("b", cron="*/5 * * * *", missed=MISSED_SKIP))
    put(bench, wish("c", every=HOUR, overlap=OVERLAP_SKIP))
    for _ in range(60):
        bench.collect()
        bench.advance_clock(MINUTE)
    bench.collect()
    frames = list(bench.frames)
    end = bench.now
    whole = pushes(bench)
    for count in range(1, len(frames) + 1):
        crashed = Bench()
        crashed.collect()
        crashed.frames = frames[:count]
        crashed.next_seq = frames[count].first if count < len(frames) else bench.next_seq
        crashed.now = crashed.rebuild().time
        crashed.restart()
        tick(crashed)
        crashed.advance_clock(end - crashed.now)
        assert pushes(crashed) == whole, count


def pushes(bench: Bench) -> list[tuple[bytes | None, int]]:
    """The uid of each job, which says of which tick it is, and when it was pushed."""
    state = bench.engine.state
    jobs = [state.jobs.get(id) for id in bench.ids()]
    return [(job.ensure_extras().uid, job.pushed_at) for job in jobs if job is not None]


def test_a_schedule_whose_time_zone_is_gone_says_so(bench: Bench) -> None:
    """It was set where there was one of that name."""
    schedule = wish(cron="0 3 * * *", zone="Mars/Olympus")
    schedule.next_at = bench.now + HOUR
    record = ScheduleSet(bench.now, ORIGIN, schedule)
    bench.engine.records.append(record)
    apply_record(bench.engine.state, record)
    bench.restart()
    bench.advance_clock(2 * HOUR)
    assert "there is no time zone 'Mars/Olympus'" in known(bench).refusal
    assert bench.engine.next_deadline(bench.now) > bench.now
    put(bench, wish(cron="0 3 * * *"))
    bench.advance_clock(DAY)
    assert bench.ids() == [1]


# Compaction


def test_a_schedule_is_carried_with_its_history(bench: Bench) -> None:
    put(bench, wish(cron="*/7 * * * *", zone="Europe/Berlin", payload=b"x" * 1000, key=b"k"))
    put(bench, wish("limited", every=DAY, limit_key=b"l"))
    bench.advance_clock(HOUR)
    bench.push("other")
    compact(bench)
    assert lasting(bench.rebuild()) == lasting(bench.engine.state)
    assert known(bench).runs == 1
    bench.restart()
    bench.take()
    bench.advance_clock(7 * MINUTE)
    assert known(bench).runs == 2
    assert lasting(bench.rebuild()) == lasting(bench.engine.state)


@pytest.mark.parametrize("name", ["s", 255 * "s", 127 * "ü", 63 * "😀"])
def test_a_schedule_weighs_what_carrying_it_takes(bench: Bench, name: str) -> None:
    """Or a little more: if it were less, compaction would never have done enough."""
    put(bench, wish(name, every=HOUR, queue=name, policy=Policy(dead_queue=name), key=b"k"))
    bench.collect()
    before = bench.engine.records.size()
    snapshot_schedule(bench.engine, known(bench, name), bench.now)
    assert (
        0 <= schedule_record_bytes(known(bench, name)) - (bench.engine.records.size() - before) < 50
    )


def test_ticks_and_ends_of_schedules_that_were_set_before_the_base_are_passed_over(
    bench: Bench,
) -> None:
    put(bench, wish("a", every=MINUTE))
    put(bench, wish("b", every=MINUTE))
    bench.collect()
    bench.push("base")
    base = bench.engine.records.start_position
    bench.advance_clock(3 * MINUTE)
    bench.engine.delete_schedule("b", ORIGIN, bench.now)
    compact(bench, base)
    bench.advance_clock(MINUTE)
    assert lasting(bench.rebuild()) == lasting(bench.engine.state)
    assert list(bench.engine.state.schedules) == ["a"]


def test_a_base_of_an_older_server_knows_of_no_schedules() -> None:
    bench = make_used_engine()
    state = bench.rebuild()
    counts = state.entity_counts()[:6]
    apply_record(state, Checkpoint(1, 0, state.epoch, state.next_id, counts))


NAMES = st.sampled_from(("a", "b"))
STEPS = st.lists(
    st.tuples(
        st.sampled_from(("set", "set", "pause", "resume", "delete", "run", "take", "wait", "wait")),
        NAMES,
        st.sampled_from((7 * SECOND, MINUTE, 5 * MINUTE)),
    )
    | st.tuples(st.sampled_from(("restart", "compact")), NAMES, st.integers(0, 9)),
    min_size=5,
    max_size=40,
)


@property_settings
@given(steps=STEPS)
def test_whatever_happens_a_replay_from_any_base_gives_the_same(
    steps: list[tuple[str, str, int]],
) -> None:
    bench = Bench()
    for what, name, number in steps:
        step(bench, what, name, number)
        check_invariants(bench.engine)
        check_weights(bench.engine.state)
        assert lasting(bench.rebuild()) == lasting(bench.engine.state)
    assert lasting(bench.replay(0)) == lasting(bench.engine.state)


def step(bench: Bench, what: str, name: str, number: int) -> None:
    """One step of a life; what cannot be done is left out."""
    engine, now = bench.engine, bench.now
    if what == "set":
        overlap = OVERLAP_SKIP if number == MINUTE else OVERLAP_ALLOW
        put(bench, wish(name, every=number, overlap=overlap, payload=name.encode()))
    elif what == "restart":
        bench.now += number * MINUTE
        bench.restart()
        tick(bench)
    elif what == "compact":
        bench.collect()
        later = [frame.base for frame in bench.frames if frame.base > bench.base]
        if later:
            compact(bench, later[number % len(later)])
    elif what == "wait":
        bench.advance_clock(number)
    elif what == "take":
        engine.pop(b"q", False, ORIGIN, now)
    elif engine.schedule(name) is None:
        return
    elif what == "delete":
        engine.delete_schedule(name, ORIGIN, now)
    elif what == "run":
        engine.run_schedule(name, ORIGIN, now)
    else:
        engine.pause_schedule(name, what == "pause", ORIGIN, now)


def compact(bench: Bench, base: int = 0) -> None:
    bench.collect()
    pass_ = Compaction(bench, base or bench.engine.records.start_position)
    while not pass_.closed:
        pass_.continue_scan(1, 0)
    bench.collect()
    bench.base = pass_.base
