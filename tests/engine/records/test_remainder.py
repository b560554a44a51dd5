"""What compaction carries beside jobs and values: one thing at a time, while it is still there."""

from collections.abc import Callable

import pytest
from engine.harness import ORIGIN, Bench
from engine.scheduling import MINUTE, put, wish
from support.batches import drop_all, lease_all

from taskyard.engine.compaction import OUT_OF_SPACE, EntitySnapshotter
from taskyard.engine.model.job import SECOND
from taskyard.engine.model.queue import QueueSettings
from taskyard.engine.records.job_lifecycle import FIRST_SNAPSHOT, Record

UID = b"0123456789abcdef"
Step = Callable[[Bench], object]


def remainder(bench: Bench, room: Callable[[int], bool] = lambda _: True) -> EntitySnapshotter:
    """All that is there so far stands before the base."""
    bench.collect()
    return EntitySnapshotter(bench.engine, bench.frames[-1].end, bench.next_seq, room)


def carried(bench: Bench) -> list[Record]:
    return [record for record in bench.collect() if record.kind() >= FIRST_SNAPSHOT]


def carry_all(bench: Bench, rest: EntitySnapshotter) -> list[str]:
    while rest.snapshot_next(bench.now):
        pass
    return [type(record).__name__ for record in carried(bench)]


def keep_queue(bench: Bench) -> None:
    bench.engine.create_queue("kept", QueueSettings(), ORIGIN, bench.now)


def keep_keys(bench: Bench) -> None:
    rules = QueueSettings(key_rate_count=1, key_rate_period=60 * SECOND)
    bench.engine.create_queue("kept", rules, ORIGIN, bench.now)
    bench.push("kept", limit_key=b"k")
    bench.ack(bench.take("kept"))


def keep_grave(bench: Bench) -> None:
    bench.push("done", uid=UID)
    bench.ack(bench.take("done"))
    assert UID in bench.engine.state.tombstones.by_uid


def forget_grave(bench: Bench) -> None:
    bench.advance_clock(bench.settings.uid_window + 60 * SECOND)
    assert UID not in bench.engine.state.tombstones.by_uid


THINGS: dict[str, tuple[Step, Step]] = {
    "QueueSnapshot": (
        keep_queue,
        lambda bench: bench.engine.delete_queue(b"kept", ORIGIN, bench.now),
    ),
    "KeyLimitsSnapshot": (
        keep_keys,
        lambda bench: bench.engine.delete_queue(b"kept", ORIGIN, bench.now),
    ),
    "SessionSnapshot": (
        lambda bench: bench.engine.open_session(7, ORIGIN, bench.now),
        lambda bench: bench.engine.close_session(7, ORIGIN, bench.now),
    ),
    "ConsumerSnapshot": (
        lambda bench: lease_all(bench.engine, "c", 1, [b"q"], 1, 0, ORIGIN, bench.now),
        lambda bench: drop_all(bench.engine, "c", ORIGIN, bench.now),
    ),
    "ReaderSnapshot": (
        lambda bench: bench.engine.register_reader("r", 1, 60 * SECOND, ORIGIN, bench.now),
        lambda bench: bench.engine.drop_reader("r", ORIGIN, bench.now),
    ),
    "ScheduleSnapshot": (
        lambda bench: put(bench, wish(every=MINUTE)),
        lambda bench: bench.engine.delete_schedule("s", ORIGIN, bench.now),
    ),
    "TombstonesSnapshot": (keep_grave, forget_grave),
}


@pytest.fixture
def bench() -> Bench:
    bench = Bench()
    bench.push()
    return bench


@pytest.mark.parametrize("kind", THINGS)
def test_what_stands_before_the_base_is_carried(bench: Bench, kind: str) -> None:
    keep, _ = THINGS[kind]
    keep(bench)
    assert kind in carry_all(bench, remainder(bench))


@pytest.mark.parametrize("kind", THINGS)
def test_what_goes_meanwhile_is_not_carried(bench: Bench, kind: str) -> None:
    keep, end = THINGS[kind]
    keep(bench)
    rest = remainder(bench)
    end(bench)
    before = [name for name in carry_all(bench, rest) if name == kind]
    assert before == (["QueueSnapshot"] if kind == "QueueSnapshot" else [])


@pytest.mark.parametrize(
    "kind", [kind for kind in THINGS if kind not in ("QueueSnapshot", "ReaderSnapshot")]
)
def test_without_room_it_waits_and_is_not_lost(bench: Bench, kind: str) -> None:
    keep, _ = THINGS[kind]
    keep(bench)
    has_room = [True]
    rest = remainder(bench, lambda _: has_room[0])
    has_room[0] = False
    for _ in range(100):
        if rest.snapshot_next(bench.now) == OUT_OF_SPACE:
            break
    assert rest.snapshot_next(bench.now) == OUT_OF_SPACE
    assert kind not in [type(record).__name__ for record in carried(bench)]
    has_room[0] = True
    assert kind in carry_all(bench, rest)
