"""Weights: how many bytes still live in each region of the journal."""

from collections import Counter

from engine.harness import ORIGIN, Bench, property_settings
from hypothesis import given
from hypothesis import strategies as st
from support.model_invariants import check_weights

from taskyard.engine.model.job import Policy
from taskyard.engine.model.state import EngineSettings
from taskyard.engine.structures.index import REGION_BYTES, TOMBSTONE_RECORD_BYTES, LiveBytes

places = st.integers(0, 40 * REGION_BYTES)


def in_zones(weights: LiveBytes, count: int) -> list[int]:
    return [weights.bytes_in_region_of(zone * REGION_BYTES) for zone in range(count)]


def test_nothing_weighs_nothing() -> None:
    weights = LiveBytes()
    assert (
        weights.total
        == weights.unplaced
        == weights.bytes_in_region_of(0)
        == weights.bytes_in_region_of(1 << 50)
        == 0
    )


def test_weight_is_counted_where_it_is() -> None:
    weights = LiveBytes()
    weights.add(5 * REGION_BYTES, 10)
    weights.add(6 * REGION_BYTES - 1, 1)
    weights.add(6 * REGION_BYTES, 100)
    assert in_zones(weights, 8) == [0, 0, 0, 0, 0, 11, 100, 0]
    weights.subtract(5 * REGION_BYTES + 7, 11)
    assert in_zones(weights, 8) == [0, 0, 0, 0, 0, 0, 100, 0]
    assert weights.total == 100


def test_weight_may_come_before_what_was_there() -> None:
    """As when a snapshot tells of a job whose payload stands before the base."""
    weights = LiveBytes()
    weights.add(5 * REGION_BYTES, 10)
    weights.add(2 * REGION_BYTES, 7)
    assert in_zones(weights, 7) == [0, 0, 7, 0, 0, 10, 0]


def test_what_is_before_the_base_is_forgotten() -> None:
    weights = LiveBytes()
    weights.add(2 * REGION_BYTES, 7)
    weights.subtract(2 * REGION_BYTES, 7)
    weights.add(5 * REGION_BYTES, 10)
    weights.forget_before(5 * REGION_BYTES + 1)
    assert in_zones(weights, 7) == [0, 0, 0, 0, 0, 10, 0]
    weights.subtract(5 * REGION_BYTES, 10)
    weights.forget_before(9 * REGION_BYTES)
    weights.forget_before(3 * REGION_BYTES)  # long forgotten
    weights.add(9 * REGION_BYTES, 1)
    assert in_zones(weights, 10) == [0] * 9 + [1]
    assert weights.total == 1


@given(st.lists(st.tuples(places, st.integers(0, 1000)), max_size=30), st.data())
@property_settings
def test_zones_add_up(added: list[tuple[int, int]], data: st.DataObject) -> None:
    weights = LiveBytes()
    wanted = Counter[int]()
    for at, weight in added:
        weights.add(at, weight)
        wanted[at // REGION_BYTES] += weight
    for at, weight in data.draw(st.permutations(added))[: len(added) // 2]:
        weights.subtract(at, weight)
        wanted[at // REGION_BYTES] -= weight
    gone = min((zone for zone in wanted if wanted[zone]), default=40)
    weights.forget_before(data.draw(st.integers(0, gone)) * REGION_BYTES)
    assert in_zones(weights, 42) == [wanted[zone] for zone in range(42)]
    assert weights.total == wanted.total()


def test_a_job_weighs_what_its_record_takes(bench: Bench) -> None:
    before = bench.engine.state.live_bytes.total
    bench.push(payload=b"x" * 5000)
    (push,) = (record for record in bench.collect() if record.blob)
    job = bench.take()
    assert job.record_bytes == push.size
    queue = bench.engine.state.live_bytes.total - before - push.size
    assert 0 < queue < 300
    bench.ack(job)
    assert bench.engine.state.live_bytes.total == before + queue
    check_weights(bench.engine.state)


def test_results_and_errors_weigh_as_long_as_they_are_kept(bench: Bench) -> None:
    weights = bench.engine.state.live_bytes
    job = bench.push(policy=Policy(max_fails=3), ttl_ms=60_000)
    plain = weights.total
    for error in (b"e" * 100, b"e" * 30, b""):  # the third failure is final
        bench.engine.fail(job.id, error, ORIGIN, bench.now)
        check_weights(bench.engine.state)
    assert weights.total == plain + 30
    bench.engine.replay_dead_letter(job.id, ORIGIN, bench.now)
    bench.engine.complete(job.id, b"r" * 50, ORIGIN, bench.now)
    assert weights.total == plain + 30 + 50
    bench.delete(job)
    assert weights.total < plain
    check_weights(bench.engine.state)


def test_a_state_weighs_tombstones_too() -> None:
    bench = Bench(EngineSettings(uid_window=1_000_000))
    bench.push()
    light = bench.engine.state.compacted_size()
    job = bench.push(uid=b"u" * 16)
    bench.engine.complete(job.id, b"", ORIGIN, bench.now)
    assert bench.engine.state.compacted_size() == light + TOMBSTONE_RECORD_BYTES
    bench.advance_clock(2_000_000)
    assert bench.engine.state.compacted_size() == light
