"""What is counted while the server runs: exact, from its start on, and without end."""

import pytest
from support.batches import ack_all, lease_all
from support.simulated import SimulatedServer
from support.wire import exchange

from taskyard.broker.metrics import EventLoopLagProbe, ProtocolStats
from taskyard.engine.model.job import API, NewJob, Origin, Policy
from taskyard.engine.model.queue import Queue
from taskyard.engine.operations.facade import Engine
from taskyard.engine.structures.statistics import Histogram, QueueTimes

ORIGIN = Origin(API, "", "tester")
PUSH = b'PUSH {"name":"a","queue":"q"}\n'
FETCH = b'FETCH {"queues":["q"],"timeout":"10s"}\n'


def times(yard: SimulatedServer, queue: bytes = b"q") -> QueueTimes:
    found = yard.engine.state.queues[queue].times
    assert found is not None
    return found


def queue_of(yard: SimulatedServer, name: bytes = b"q") -> Queue:
    return yard.engine.state.queues[name]


def verbs(traffic: ProtocolStats) -> dict[str, tuple[int, int, int, int]]:
    """Those that were used: asked for, ok, empty, error."""
    return {
        verb.name: (verb.count, verb.success_count(), verb.no_result, verb.errors)
        for verb in traffic.commands
        if verb.count or verb.replies
    }


# Histograms


@pytest.mark.parametrize("step", [1, 2, 3])
def test_a_duration_is_counted_at_the_first_bound_it_is_not_above(step: int) -> None:
    bounds = Histogram(4, step, 8).bounds()
    for duration in [0, 1, *(bound + near for bound in bounds for near in (-1, 0, 1))]:
        histogram = Histogram(4, step, 8)
        histogram.add(duration)
        expected = next((at for at, bound in enumerate(bounds) if duration <= bound), len(bounds))
        assert histogram.buckets.index(1) == expected, duration


@pytest.mark.parametrize("bits", range(1, 63))
def test_every_power_of_two_is_its_own_bound(bits: int) -> None:
    histogram = Histogram(0, 1, 63)
    histogram.add(1 << bits)
    histogram.add((1 << bits) + 1)
    assert histogram.buckets[bits : bits + 2] == [1, 1]


def test_count_and_total_are_those_of_all_durations() -> None:
    histogram = Histogram(4, 1, 3)
    for duration in (10, 20, 1_000_000):
        histogram.add(duration)
    assert (histogram.count, histogram.total) == (3, 1_000_030)
    assert histogram.buckets == [1, 1, 0, 1]


def test_durations_that_come_in_a_row_are_all_counted_whenever_one_looks() -> None:
    histogram = Histogram(4, 1, 3)
    for duration in (10, 10, 10, 20, 10, 1_000_000, 1_000_000):
        histogram.add(duration)
    assert histogram.buckets == [4, 1, 0, 2]
    histogram.add(1_000_000)
    assert (histogram.buckets, histogram.count) == ([4, 1, 0, 3], 8)


def test_a_time_before_now_counts_as_none_at_all() -> None:
    histogram = Histogram(4, 1, 3)
    histogram.add(-5)
    assert (histogram.total, histogram.buckets) == (0, [1, 0, 0, 0])


# Waiting and running


def test_the_wait_is_from_the_push_to_the_lease_and_the_run_from_there_to_the_ack() -> None:
    yard = SimulatedServer()
    peer = yard.connect()
    exchange(peer, PUSH, b'OK {"id":1}\n')
    yard.advance(3)
    peer.send(FETCH)
    yard.advance(5)
    peer.send(b'ACK {"id":1}\n')
    assert (times(yard).waits.count, times(yard).waits.total) == (1, 3_000_000)
    assert (times(yard).runs.count, times(yard).runs.total) == (1, 5_000_000)


def test_a_job_that_somebody_waits_for_has_not_waited() -> None:
    yard = SimulatedServer()
    worker, producer = yard.connect(), yard.connect()
    worker.send(FETCH)
    yard.advance(2)
    producer.send(PUSH)
    assert (times(yard).waits.count, times(yard).waits.total) == (1, 0)


def test_a_delayed_job_waits_from_its_time_on() -> None:
    yard = SimulatedServer()
    job = NewJob("q", "a", b"", Policy(), run_at=yard.clock.now() + 7_000_000)
    yard.engine.push(job, ORIGIN, yard.broker.begin_turn())
    yard.broker.end_turn()
    yard.advance(10)
    yard.connect().send(FETCH)
    assert times(yard).waits.total == 3_000_000


def test_a_retried_job_waits_anew() -> None:
    yard = SimulatedServer()
    peer = yard.connect()
    exchange(peer, b'PUSH {"name":"a","queue":"q","retry":3}\n', b'OK {"id":1}\n')
    peer.send(FETCH)
    yard.advance(2)
    peer.send(b'NACK {"id":1}\n')
    yard.advance(20)
    ready_at = yard.engine.job(1).ready_at
    peer.send(FETCH)
    assert times(yard).waits.count == 2
    assert times(yard).waits.total == yard.clock.now() - ready_at
    assert 19_000_000 < times(yard).waits.total < 20_000_000
    assert times(yard).runs.count == 0  # it did not succeed


def test_a_lease_that_is_lost_begins_another_wait() -> None:
    yard = SimulatedServer()
    peer = yard.connect("workq")
    uid = b"6ba7b810-9dad-11d1-80b4-00c04fd430c8"
    exchange(peer, b"add %b q 1000 60000 1\r\nx\r\n" % uid, b"+OK\r\n")
    peer.send(b"lease q 1000\r\n")
    yard.advance(4)
    peer.send(b"lease q 1000\r\n")
    assert (times(yard).waits.count, times(yard).waits.total) == (2, 3_000_000)
    assert queue_of(yard).counts_since_start()[5] == 1


def test_a_pop_ends_a_wait() -> None:
    yard = SimulatedServer()
    yard.engine.push(NewJob("q", "a", b"", Policy()), ORIGIN, yard.broker.begin_turn())
    yard.broker.end_turn()
    yard.advance(1)
    yard.engine.pop(b"q", False, ORIGIN, yard.broker.begin_turn())
    yard.broker.end_turn()
    assert times(yard).waits.total == 1_000_000
    assert times(yard).runs.count == 0


def test_batches_are_measured_like_single_leases() -> None:
    yard = SimulatedServer()
    for _ in range(3):
        yard.engine.push(NewJob("q", "a", b"", Policy()), ORIGIN, yard.broker.begin_turn())
    yard.broker.end_turn()
    yard.advance(1)
    engine = yard.engine
    assert len(lease_all(engine, "spark", 1, [b"q"], 10, 0, ORIGIN, yard.broker.begin_turn())) == 3
    yard.broker.end_turn()
    yard.advance(2)
    ack_all(engine, "spark", 1, ORIGIN, yard.broker.begin_turn())
    yard.broker.end_turn()
    assert (times(yard).waits.count, times(yard).waits.total) == (3, 3_000_000)
    assert (times(yard).runs.count, times(yard).runs.total) == (3, 6_000_000)


@pytest.mark.parametrize("end", ["restart", "kill", "crash"])
def test_a_job_that_waited_through_a_restart_has_waited_all_the_time(end: str) -> None:
    yard = SimulatedServer()
    exchange(yard.connect(), PUSH, b'OK {"id":1}\n')
    yard.advance(3)
    getattr(yard, end)()
    yard.advance(2)
    yard.connect().send(FETCH)
    assert (times(yard).waits.count, times(yard).waits.total) == (1, 5_000_000)


# Counters of queues


def test_counters_begin_at_zero_with_each_start_and_the_queue_knows_its_own() -> None:
    yard = SimulatedServer()
    peer = yard.connect()
    exchange(peer, PUSH * 3, b'OK {"id":1}\nOK {"id":2}\nOK {"id":3}\n')
    peer.send(FETCH + b'ACK {"id":1}\n')
    assert queue_of(yard).counts_since_start() == [3, 1, 1, 0, 0, 0, 0, 0]
    yard.restart()
    assert queue_of(yard).counts_since_start() == [0] * 8
    exchange(yard.connect(), PUSH, b'OK {"id":4}\n')
    assert queue_of(yard).counts_since_start() == [1, 0, 0, 0, 0, 0, 0, 0]
    assert queue_of(yard).pushed == 4


def test_what_a_crash_takes_back_is_not_counted_backwards() -> None:
    yard = SimulatedServer()
    peer = yard.connect()
    exchange(peer, PUSH, b'OK {"id":1}\n')
    peer.arrive(FETCH)  # its lease is written later, if ever
    yard.crash()
    assert queue_of(yard).counts_since_start() == [0] * 8


# Queues that have their own


def deleted(engine: Engine, name: bytes, now: int) -> None:
    queue = engine.state.queues[name]
    while queue.ready.size:
        engine.pop(name, False, ORIGIN, now)
    engine.delete_queue(name, ORIGIN, now)


def test_only_the_first_queues_have_times_of_their_own() -> None:
    yard = SimulatedServer()
    measures = yard.engine.statistics
    measures.limit = 2
    for name in ("a", "b", "c", "d"):
        yard.engine.push(NewJob(name, "a", b"", Policy()), ORIGIN, yard.broker.begin_turn())
        yard.engine.pop(name.encode(), False, ORIGIN, yard.broker.begin_turn())
    rest = [times(yard, name) is measures.shared_times for name in (b"a", b"b", b"c", b"d")]
    assert rest == [False, False, True, True]
    assert measures.shared_times.waits.count == 2


def test_a_deleted_queue_gives_its_place_to_the_next_new_one() -> None:
    yard = SimulatedServer()
    measures = yard.engine.statistics
    measures.limit = 1
    now = yard.broker.begin_turn()
    for name in ("a", "b"):
        yard.engine.push(NewJob(name, "a", b"", Policy()), ORIGIN, now)
        deleted(yard.engine, name.encode(), now)
    yard.engine.push(NewJob("c", "a", b"", Policy()), ORIGIN, now)
    assert measures.times_of(queue_of(yard, b"c")) is not measures.shared_times


def test_the_sum_of_the_rest_does_not_shrink_with_a_queue_that_is_deleted() -> None:
    yard = SimulatedServer()
    yard.engine.statistics.limit = 0
    now = yard.broker.begin_turn()
    for name in ("a", "b"):
        yard.engine.push(NewJob(name, "a", b"", Policy()), ORIGIN, now)
        deleted(yard.engine, name.encode(), now)
    assert yard.engine.statistics.deleted_since_start == [2, 0, 2, 0, 0, 0, 0, 0]


# Requests


def test_requests_of_masenko_are_counted_by_verb_and_outcome() -> None:
    yard = SimulatedServer()
    peer = yard.connect()
    peer.send(b"PING\n" + PUSH + b"PUSH {}\n" + FETCH + b'ACK {"id":1}\nACK {"id":1}\n')
    peer.send(b'ATOMIC\nPUSH {"name":"a","queue":"t"}\nDONE\nDONE\nNONSENSE\n')
    peer.send(b'FETCH {"queues":[]}\n')
    assert verbs(yard.masenko.stats) == {
        "unknown": (1, 0, 0, 1),
        "PING": (1, 1, 0, 0),
        "PUSH": (2, 1, 0, 1),
        "FETCH": (2, 1, 1, 0),
        "ACK": (2, 1, 0, 1),
        "ATOMIC": (1, 0, 0, 0),
        "DONE": (2, 1, 0, 1),
    }


def test_a_fetch_that_waits_is_answered_when_it_is() -> None:
    yard = SimulatedServer()
    peer = yard.connect()
    peer.send(FETCH)
    assert verbs(yard.masenko.stats) == {"FETCH": (1, 0, 0, 0)}
    yard.advance(11)
    assert verbs(yard.masenko.stats) == {"FETCH": (1, 0, 1, 0)}


def test_an_error_without_a_request_is_nobodys() -> None:
    yard = SimulatedServer(10.0)
    peer = yard.connect()
    peer.send(b"PING\n")
    yard.advance(21)
    peer.take()
    assert peer.closed
    assert verbs(yard.masenko.stats) == {"unknown": (0, 0, 0, 1), "PING": (1, 1, 0, 0)}


def test_requests_of_workq_are_counted_by_verb_and_outcome() -> None:
    yard = SimulatedServer()
    peer = yard.connect("workq")
    uid = b"6ba7b810-9dad-11d1-80b4-00c04fd430c8"
    add = b"add %b q 1000 60000 1\r\nx\r\n" % uid
    peer.send(add + add + b"lease q 1000\r\ncomplete %b 1\r\ny\r\n" % uid)
    peer.send(b"result %b 0\r\ndelete %b\r\ndelete %b\r\n" % (uid, uid, uid))
    peer.send(b"result %b 1000\r\nlease q 1\r\nwhatever\r\ninspect queue none\r\n" % uid)
    yard.advance(2)
    assert verbs(yard.workq.stats) == {
        "unknown": (1, 0, 0, 1),
        "add": (2, 1, 0, 1),
        "lease": (2, 1, 1, 0),
        "complete": (1, 1, 0, 0),
        "result": (2, 1, 0, 1),
        "delete": (2, 1, 0, 1),
        "inspect": (1, 0, 0, 1),
    }


def test_connections_are_counted_while_they_are_open_and_for_ever() -> None:
    yard = SimulatedServer()
    peers = [yard.connect(dialect) for dialect in ("masenko", "masenko", "workq")]
    peers[0].close()
    masenko, workq = yard.masenko.stats, yard.workq.stats
    assert (masenko.open_connections, masenko.total_connections) == (1, 2)
    assert (workq.open_connections, workq.total_connections) == (1, 1)
    names = [traffic.protocol_name for traffic in yard.broker.metrics.protocols]
    assert names == ["masenko", "workq", "resp", "glovebox"]


# Flushes and the loop


@pytest.mark.parametrize("durability", ["sync", "write"])
def test_each_commit_is_a_flush(durability: str) -> None:
    yard = SimulatedServer(durability=durability)
    before = yard.broker.commits
    exchange(yard.connect(), PUSH, b'OK {"id":1}\n')
    assert yard.broker.commits == before + 1
    assert yard.broker.metrics.flush_durations.count == 1


def test_a_flush_in_a_thread_lasts_until_it_is_done() -> None:
    yard = SimulatedServer(inline_sync=False)
    peer = yard.connect()
    yard.scheduler.slow = True
    peer.send(PUSH)
    yard.advance(0.25)
    assert yard.broker.metrics.flush_durations.count == 0
    yard.scheduler.finish_blocking()
    yard.run_pending()
    peer.expect(b'OK {"id":1}\n')
    assert yard.broker.metrics.flush_durations.total == 250_000


def test_the_lag_of_the_loop_is_how_late_an_alarm_is() -> None:
    yard = SimulatedServer()
    lag = yard.broker.metrics.loop_lag
    probe = EventLoopLagProbe(yard.broker.metrics, yard.clock, yard.scheduler)
    probe.start()
    yard.advance(3)
    assert (lag.count, lag.total) == (3, 0)
    yard.clock.time += 1_200_000  # something holds up the loop
    yard.run_pending()
    assert (lag.count, lag.total) == (4, 200_000 - 1_500)
    probe.stop()
    yard.advance(5)
    assert lag.count == 4
    assert not yard.scheduler.is_waiting()
