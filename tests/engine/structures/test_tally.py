"""Sums over queues, and what queues that were deleted leave in them."""

from engine.harness import ORIGIN, OWNER, Bench

from taskyard.engine.model.job import FAILED, SECOND, Policy
from taskyard.engine.model.queue import Queue, QueueSettings
from taskyard.engine.structures.statistics import QueueTotals

STATES = ("ready", "delayed", "leased", "blocked", "done", "dead", "limited")
COUNTERS = (
    "pushed",
    "leases",
    "finished",
    "failed",
    "retried",
    "released",
    "expired",
    "removed",
)


def tally(bench: Bench, *names: str) -> QueueTotals:
    found = QueueTotals(bench.engine.statistics)
    queues = [bench.queue(name) for name in names]
    found.add(queues, 0, len(queues))
    return found


def counters(found: QueueTotals) -> dict[str, int]:
    return {name: getattr(found, name) for name in COUNTERS if getattr(found, name)}


def states(found: QueueTotals) -> dict[str, int]:
    return {name: getattr(found, name) for name in STATES if getattr(found, name)}


def live_through_everything(bench: Bench, name: str) -> Queue:
    """Jobs of a queue end in each way there is, so that no two counters are the same."""
    ends = Policy(max_fails=1)
    for _ in range(2):  # finished
        bench.push(name)
        bench.advance_clock(3 * SECOND)
        job = bench.take(name)
        bench.advance_clock(SECOND)
        bench.ack(job)
    for _ in range(3):  # failed
        bench.push(name, policy=ends)
        bench.nack(bench.take(name))
    for _ in range(4):  # tried again, and removed
        bench.push(name)
        job = bench.take(name)
        bench.nack(job)
        bench.delete(job)
    for _ in range(5):  # handed back, and removed
        bench.push(name)
        job = bench.take(name)
        bench.engine.release_lease(job.id, OWNER, ORIGIN, bench.now)
        bench.delete(job)
    for _ in range(6):  # past its time
        bench.push(name, ttl_ms=1000)
    bench.advance_clock(2 * SECOND)
    return bench.queue(name)


def test_every_counter_is_its_own_sum(bench: Bench) -> None:
    queue = live_through_everything(bench, "q")
    found = counters(tally(bench, "q"))
    assert found == {
        "pushed": 20,
        "leases": 14,
        "finished": 2,
        "failed": 3,
        "retried": 4,
        "released": 5,
        "expired": 6,
        "removed": 9,
    }
    assert list(found.values()) == queue.counters()


def test_queues_are_added_up(bench: Bench) -> None:
    live_through_everything(bench, "a")
    bench.push("b")
    both = tally(bench, "a", "b")
    assert both.queues == 2
    assert both.pushed == 21
    assert (both.finished, both.failed, both.ready) == (2, 3, 1)


def test_only_the_queues_of_the_portion_are_added(bench: Bench) -> None:
    queues = []
    for count, name in enumerate(("a", "b", "c", "d"), 1):
        for _ in range(count):
            bench.push(name)
        queues.append(bench.queue(name))
    found = QueueTotals(bench.engine.statistics)
    found.add(queues, 1, 3)
    assert (found.queues, found.pushed, found.ready) == (2, 5, 5)
    found.add(queues, 3, 4)
    assert (found.queues, found.pushed, found.ready) == (3, 9, 9)


def test_jobs_are_counted_by_their_state(bench: Bench) -> None:
    for _ in range(7):
        bench.push("q", limit_key=b"k")
    bench.configure("q", QueueSettings(key_concurrency=1))
    bench.take("q")
    assert bench.try_to_take("q") is None
    blocker = bench.push("q")
    for _ in range(2):
        bench.push("q", blocked_by=[blocker.id])
    for _ in range(3):
        bench.push("q", run_at=bench.now + SECOND)
    for _ in range(4):
        bench.push("dying", policy=Policy(max_fails=1))
        bench.nack(bench.take("dying"))
    for _ in range(5):
        bench.push("kept", ttl_ms=60_000)
        bench.ack(bench.take("kept"))
    found = states(tally(bench, "q", "dying", "kept"))
    assert found == {
        "ready": 1,
        "delayed": 3,
        "leased": 1,
        "blocked": 2,
        "done": 5,
        "dead": 4,
        "limited": 6,
    }


def test_what_a_deleted_queue_has_counted_stays_in_the_sums(bench: Bench) -> None:
    live_through_everything(bench, "q")
    bench.engine.purge_queue(b"q", FAILED, 100, ORIGIN, bench.now)
    before = tally(bench, "q")
    bench.engine.delete_queue(b"q", ORIGIN, bench.now)
    after = tally(bench)
    assert counters(after) == counters(before)
    assert after.queues == 0
    for kind in ("waits", "runs"):
        assert getattr(after.times, kind).buckets == getattr(before.times, kind).buckets
        assert getattr(after.times, kind).total == getattr(before.times, kind).total


def test_times_are_from_ready_to_leased_and_from_there_to_the_end(bench: Bench) -> None:
    bench.push("q")
    bench.advance_clock(3 * SECOND)
    job = bench.take("q")
    bench.advance_clock(5 * SECOND)
    bench.ack(job)
    found = tally(bench, "q")
    assert (found.times.waits.total, found.times.waits.count) == (3 * SECOND, 1)
    assert (found.times.runs.total, found.times.runs.count) == (5 * SECOND, 1)
    assert found.named_queues == [bench.queue("q")]


def test_queues_beyond_the_named_ones_share_their_times() -> None:
    bench = Bench()
    bench.engine.statistics.limit = 1
    for name in ("first", "second", "third"):
        bench.push(name)
        bench.advance_clock(SECOND)
        bench.take(name)
    found = tally(bench, "first", "second", "third")
    assert found.named_queues == [bench.queue("first")]
    assert (found.times.waits.total, found.times.waits.count) == (3 * SECOND, 3)
