"""Many leases at once: the jobs, and the records, that one fetch after the other would give."""

import pytest
from engine.harness import ORIGIN, OWNER, START, Bench
from hypothesis import given, settings
from hypothesis import strategies as st
from support.effort import effort
from support.model_invariants import check_invariants
from support.snapshot import snapshot

from taskyard.engine.model.events import WATCH_LEASED, FetchRequest, NoSpace
from taskyard.engine.model.job import LEASED, SECOND, STAGE_ASSIGN, Job, Notify, Policy
from taskyard.engine.model.queue import QueueSettings
from taskyard.engine.operations.room import MAX_STEP_BYTES

PLENTY = 1 << 20


def fetch_more(bench: Bench, take: FetchRequest, most: int, size: int = PLENTY) -> list[int]:
    """The ids of those that were taken."""
    jobs: list[Job] = []
    bench.engine.fetch_more(take, jobs, most, size, bench.now)
    assert all(job.lease is not None and job.lease.owner == take.owner for job in jobs)
    return [job.id for job in jobs]


def one_by_one(bench: Bench, take: FetchRequest, most: int, size: int = PLENTY) -> list[int]:
    """The same, plainly."""
    found: list[int] = []
    while len(found) < most and size > 0:
        try:
            job = bench.engine.fetch(take, bench.now)
        except NoSpace:
            break
        if job is None:
            break
        found.append(job.id)
        size -= job.payload_size
    return found


def fill(bench: Bench, *queues: str, payload: bytes = b"") -> list[int]:
    return [bench.push(queue, payload=payload).id for queue in queues]


def test_as_many_are_taken_as_are_wanted(bench: Bench) -> None:
    ids = fill(bench, *"qqqqq")
    assert fetch_more(bench, bench.fetch_request(), 3) == ids[:3]
    assert (bench.ids(state=LEASED), bench.ids()) == (ids[:3], ids[3:])
    assert fetch_more(bench, bench.fetch_request(), 3) == ids[3:]
    assert fetch_more(bench, bench.fetch_request(), 3) == []
    check_invariants(bench.engine)


def test_those_that_were_taken_before_count(bench: Bench) -> None:
    fill(bench, *"qqqqq")
    jobs = [bench.take(), bench.take()]
    bench.engine.fetch_more(bench.fetch_request(), jobs, 4, PLENTY, bench.now)
    assert [job.id for job in jobs] == [1, 2, 3, 4]
    bench.engine.fetch_more(bench.fetch_request(), jobs, 4, PLENTY, bench.now)
    assert len(jobs) == 4
    assert bench.ids() == [5]


def test_queues_are_emptied_in_their_order(bench: Bench) -> None:
    fill(bench, *"cbacba")
    wish = bench.fetch_request("b", "unknown", "c", "a")
    assert fetch_more(bench, wish, 5) == [2, 5, 1, 4, 3]
    assert bench.ids("a") == [6]


def test_priorities_come_first_within_a_queue_only(bench: Bench) -> None:
    for queue, priority in (("a", 0), ("b", 9), ("a", 5), ("a", 0)):
        bench.push(queue, priority=priority)
    assert fetch_more(bench, bench.fetch_request("a", "b"), 9) == [3, 1, 4, 2]


def test_the_last_ones_come_first_if_that_is_wanted(bench: Bench) -> None:
    fill(bench, *"aaabbb")
    wish = FetchRequest([b"a", b"b"], OWNER, ORIGIN, last=True)
    assert fetch_more(bench, wish, 9) == [3, 2, 1, 6, 5, 4]


@pytest.mark.parametrize(
    ("size", "count"), [(0, 0), (-5, 0), (1, 1), (10, 1), (11, 2), (20, 2), (21, 3), (99, 5)]
)
def test_no_more_is_taken_once_so_many_bytes_have_come(bench: Bench, size: int, count: int) -> None:
    fill(bench, *"aaabb", payload=b"x" * 10)
    assert len(fetch_more(bench, bench.fetch_request("a", "b"), 9, size)) == count
    assert len(bench.ids("a")) + len(bench.ids("b")) == 5 - count


def test_empty_payloads_have_no_size(bench: Bench) -> None:
    fill(bench, *"qqqqq")
    assert len(fetch_more(bench, bench.fetch_request(), 9, 1)) == 5


# Queues that do not give all they have


def test_a_paused_queue_gives_nothing(bench: Bench) -> None:
    fill(bench, *"aabb")
    bench.configure("a", QueueSettings(paused=True))
    assert fetch_more(bench, bench.fetch_request("a", "b"), 9) == [3, 4]
    assert fetch_more(bench, bench.fetch_request("a"), 9) == []


def test_a_queue_gives_as_many_as_may_run(bench: Bench) -> None:
    fill(bench, *"aaaabb")
    bench.configure("a", QueueSettings(concurrency=3))
    assert fetch_more(bench, bench.fetch_request("a", "b"), 9) == [1, 2, 3, 5, 6]
    assert fetch_more(bench, bench.fetch_request("a", "b"), 9) == []
    check_invariants(bench.engine)


def test_a_queue_gives_as_many_as_its_rate_allows(bench: Bench) -> None:
    fill(bench, *"aaaab")
    bench.configure("a", QueueSettings(rate_count=2, rate_period=SECOND))
    assert fetch_more(bench, bench.fetch_request("a", "b"), 9) == [1, 2, 5]
    bench.advance_clock(SECOND)
    assert fetch_more(bench, bench.fetch_request("a", "b"), 9) == [3, 4]


def test_a_key_gives_as_many_as_may_run(bench: Bench) -> None:
    for key in (b"x", b"x", b"y", None, b"x", b"y"):
        bench.push("a", limit_key=key)
    bench.configure("a", QueueSettings(key_concurrency=1))
    assert fetch_more(bench, bench.fetch_request("a"), 9) == [1, 3, 4]
    check_invariants(bench.engine)


def test_at_random_each_job_is_of_another_draw() -> None:
    found = []
    for take_many in (fetch_more, one_by_one):
        bench = Bench(seed=3)
        fill(bench, *"ab" * 20)
        found.append(take_many(bench, bench.fetch_request("a", "b", uniform=True), 30))
    assert found[0] == found[1]
    assert len(found[0]) == 30
    odd = [id % 2 for id in found[0]]
    assert odd != sorted(odd)
    assert odd != sorted(odd, reverse=True)


def test_at_random_over_one_queue_is_its_order(bench: Bench) -> None:
    ids = fill(bench, *"qqqqq")
    assert fetch_more(bench, bench.fetch_request(uniform=True), 4) == ids[:4]


# Room


def test_what_is_taken_before_the_room_ends_stays_taken(bench: Bench) -> None:
    ids = fill(bench, *"a" * 40, *"b" * 40)
    bench.collect()
    bench.engine.journal_space.free_bytes = MAX_STEP_BYTES + 3000
    taken = fetch_more(bench, bench.fetch_request("a", "b"), 80)
    assert 10 < len(taken) < 70
    assert taken == ids[: len(taken)]
    assert bench.engine.records.size() <= bench.engine.journal_space.free_bytes
    assert bench.ids("a", LEASED) + bench.ids("b", LEASED) == taken
    bench.engine.journal_space.free_bytes = PLENTY
    assert fetch_more(bench, bench.fetch_request("a", "b"), 80) == ids[len(taken) :]


def test_without_any_room_nothing_is_taken(bench: Bench) -> None:
    fill(bench, *"qq")
    bench.collect()
    bench.engine.journal_space.free_bytes = 0
    assert fetch_more(bench, bench.fetch_request(), 9) == []
    assert bench.collect() == []


def test_nothing_is_taken_on_a_server_that_only_reads(bench: Bench) -> None:
    fill(bench, *"qq")
    bench.collect()
    bench.engine.read_only_reason = "the disk is gone"
    assert fetch_more(bench, bench.fetch_request(), 9) == []
    assert bench.collect() == []


# Who is told


def test_those_who_watch_and_those_who_asked_hear_of_each_lease(bench: Bench) -> None:
    for label in (1, 2, 3):
        job = bench.push(notify=Notify(7, label, STAGE_ASSIGN))
        bench.engine.watch_job(job.id, OWNER)
    fetch_more(bench, bench.fetch_request(), 3)
    assert bench.effects() == [
        ("notice", 7, 1, STAGE_ASSIGN, 1),
        ("watched", 1, WATCH_LEASED, 1),
        ("notice", 7, 2, STAGE_ASSIGN, 2),
        ("watched", 2, WATCH_LEASED, 2),
        ("notice", 7, 3, STAGE_ASSIGN, 3),
        ("watched", 3, WATCH_LEASED, 3),
    ]


# As one after the other

pushes = st.lists(
    st.tuples(
        st.sampled_from("abc"),
        st.sampled_from((b"", b"x" * 10, b"x" * 100)),
        st.sampled_from((0, 0, 1)),  # priority
        st.sampled_from((0, 0, 5 * SECOND, 2 * SECOND)),  # ttr
        st.sampled_from((None, None, b"k", b"l")),
        st.sampled_from((0, 0, START + SECOND)),
    ),
    max_size=25,
)
rules = st.none() | st.builds(
    QueueSettings,
    paused=st.sampled_from((False, False, False, True)),
    concurrency=st.sampled_from((-1, -1, 1, 3)),
    key_concurrency=st.sampled_from((-1, 1)),
    ttr=st.sampled_from((-1, 3 * SECOND)),
)


@given(
    pushes,
    rules,
    st.permutations(("a", "b", "c", "unknown")),
    st.lists(st.tuples(st.integers(1, 9), st.sampled_from((1, 15, 150, PLENTY))), max_size=4),
    st.booleans(),
    st.sampled_from((0, SECOND)),
    st.sampled_from((PLENTY, MAX_STEP_BYTES + 300, MAX_STEP_BYTES + 700)),
)
@settings(max_examples=effort(300, 80))
def test_it_is_just_what_one_fetch_after_the_other_is(
    pushed: list[tuple[str, bytes, int, int, bytes | None, int]],
    settings: QueueSettings | None,
    names: list[str],
    takes: list[tuple[int, int]],
    uniform: bool,
    ttr: int,
    room: int,
) -> None:
    found = []
    for take_many in (fetch_more, one_by_one):
        bench = Bench(seed=5)
        for queue, payload, priority, job_ttr, key, run_at in pushed:
            policy = Policy(ttr=job_ttr)
            bench.push(queue, payload, policy, priority=priority, limit_key=key, run_at=run_at)
        if settings is not None and bench.engine.queue(b"b") is not None:
            bench.configure("b", settings)
        bench.collect()
        bench.engine.journal_space.free_bytes = room
        take = bench.fetch_request(*names[:3], uniform=uniform, ttr=ttr)
        taken = [take_many(bench, take, most, size) for most, size in takes]
        check_invariants(bench.engine)
        state = snapshot(bench.engine.state)
        bench.collect()
        assert snapshot(bench.rebuild()) == state
        found.append((taken, bench.frames, state))
    assert found[0] == found[1]
