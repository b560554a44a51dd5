"""Old segments go, what lives stays, and the disk holds about twice of it whatever the pattern."""

import json
from random import Random

import pytest
from support.batches import lease_all
from support.effort import effort
from support.replaying import check_replay
from support.simulated import SimulatedPeer, SimulatedServer

from taskyard.engine.compaction import blobs_to_move, snapshot_job
from taskyard.engine.model.events import FetchRequest
from taskyard.engine.model.job import (
    ALL_STAGES,
    FAILED,
    LEASED,
    READY,
    SUCCEEDED,
    NewJob,
    Notify,
    Origin,
    Policy,
)
from taskyard.engine.model.queue import QueueSettings
from taskyard.journal.format import parse_header, read_segment, segment_names
from taskyard.journal.identity import JOURNAL

SEGMENT = 1 << 15
LARGE = 4 << 20  # more than a zone of weights
JOB = 100_000
HOUR = 3_600_000_000
ORIGIN = Origin(1, "ann", "worker")


@pytest.fixture
def yard() -> SimulatedServer:
    return SimulatedServer(segment_size=SEGMENT, payload_memory=0)


class Hands:
    """Calls the engine as protocols do, each call a turn of its own."""

    def __init__(self, yard: SimulatedServer) -> None:
        self._yard = yard

    def push(self, queue: str = "q", size: int = 100, **options: object) -> int:
        policy = options.pop("policy", None) or Policy()
        assert isinstance(policy, Policy)
        new = NewJob(queue, "name", bytes(size), policy, **options)  # type: ignore[arg-type]
        now = self._yard.broker.begin_turn()
        job = self._yard.engine.push(new, ORIGIN, now)
        self._end()
        return job.id

    def take(self, queue: str = "q", owner: int = 7, ttr: int = 0) -> int:
        now = self._yard.broker.begin_turn()
        job = self._yard.engine.fetch(FetchRequest([queue.encode()], owner, ORIGIN, ttr=ttr), now)
        assert job is not None
        self._end()
        return job.id

    def call(self, name: str, *arguments: object) -> None:
        now = self._yard.broker.begin_turn()
        getattr(self._yard.engine, name)(*arguments, ORIGIN, now)
        self._end()

    def cycle(self, queue: str = "churn", size: int = 300) -> None:
        id = self.push(queue, size)
        assert self.take(queue) == id
        self.call("ack", id, 7)

    def churn(self, segments: int) -> None:
        """Short jobs for as many segments."""
        end = self._yard.journal.end + segments * SEGMENT
        while self._yard.journal.end < end:
            self.cycle()

    def _end(self) -> None:
        self._yard.broker.end_turn()
        self._yard.broker.flush_journal()
        self._yard.run_pending()


@pytest.fixture
def hands(yard: SimulatedServer) -> Hands:
    return Hands(yard)


def on_disk(yard: SimulatedServer) -> int:
    """Bytes of the segments that a replay would read."""
    return yard.journal.end - yard.journal.first_base


def passes(yard: SimulatedServer) -> int:
    return yard.broker.compaction_scheduler.compactor.passes


def assert_settled(yard: SimulatedServer) -> None:
    yard.advance(5)
    live = int(yard.engine.state.compacted_size())
    assert on_disk(yard) <= 2.3 * live + 2 * SEGMENT, f"{on_disk(yard)} for {live} live bytes"
    check_replay(yard)


def test_one_old_job_among_many_short_ones_pins_nothing(
    yard: SimulatedServer, hands: Hands
) -> None:
    old = hands.push("old", 1000)

    hands.churn(20)

    assert passes(yard) >= 10
    assert on_disk(yard) < 3 * SEGMENT
    assert yard.engine.job(old).state == READY
    assert_settled(yard)


def test_many_delayed_jobs_are_kept_in_twice_their_bytes(
    yard: SimulatedServer, hands: Hands
) -> None:
    later = yard.clock.now() + 30 * 24 * HOUR
    ids = [hands.push("later", 500, run_at=later + n) for n in range(400)]

    hands.churn(40)

    assert_settled(yard)
    queue = yard.engine.queue(b"later")
    assert queue is not None
    assert [job.id for job in queue.delayed.slice(0, 500)] == ids


def test_beside_many_live_jobs_old_segments_are_used_again() -> None:
    yard = SimulatedServer(segment_size=SEGMENT, payload_memory=0, spare=True)
    hands = Hands(yard)
    later = yard.clock.now() + 30 * 24 * HOUR
    for number in range(400):
        hands.push("later", 500, run_at=later + number)
    hands.churn(30)
    made, passed = yard.disk.calls("create"), passes(yard)

    hands.churn(30)

    assert passes(yard) > passed + 10
    assert yard.disk.calls("create") == made
    assert_settled(yard)


def test_constant_rescoring_of_a_few_items_leaves_no_garbage(
    yard: SimulatedServer, hands: Hands
) -> None:
    for turn in range(3000):
        now = yard.broker.begin_turn()
        key = b"item%d" % (turn % 7)
        yard.engine.update_keyed("pool", key, 1, Policy(), ORIGIN, now)
        yard.broker.end_turn()
        yard.broker.flush_journal()
        yard.run_pending()

    assert on_disk(yard) < 3 * SEGMENT
    assert_settled(yard)
    first = yard.engine.peek(b"pool")
    assert first is not None
    assert first.priority == 429


def test_results_with_a_long_ttl_are_kept(yard: SimulatedServer, hands: Hands) -> None:
    kept = []
    for number in range(200):
        id = hands.push("work", 300, ttl_ms=86_400_000, uid=number.to_bytes(16, "big"))
        hands.take("work")
        hands.call("complete", id, b"result %d" % number * 20)
        kept.append(id)

    hands.churn(30)

    assert_settled(yard)
    for number, id in enumerate(kept):
        job = yard.engine.job(id)
        assert job.state == SUCCEEDED
        assert job.extras is not None
        assert job.extras.result_at > yard.journal.replay_start
        assert (
            read(yard, job.extras.result_at, job.extras.result_size) == b"result %d" % number * 20
        )


def read(yard: SimulatedServer, at: int, size: int) -> bytes:
    found: list[bytes | None] = [yard.journal.read_blob(at, size)]
    if found[0] is None:
        yard.broker.read_from_disk(at, size, found.append)
        yard.run_pending()
    assert found[-1] is not None
    return found[-1]


def test_payloads_that_were_carried_are_what_was_pushed(yard: SimulatedServer) -> None:
    peer = yard.connect()
    texts = [f"{number}:" + "x" * (number % 700) for number in range(300)]
    for text in texts:
        tell(peer, "PUSH", {"name": "n", "queue": "kept", "payload": text})
    Hands(yard).churn(30)
    yard.advance(5)
    assert passes(yard)
    yard.crash()

    peer = yard.connect()

    for text in texts:
        got = tell(peer, "FETCH", {"queues": ["kept"]})
        assert got["payload"] == text
        tell(peer, "ACK", {"id": got["id"]})


def tell(peer: SimulatedPeer, verb: str, arguments: dict[str, object]) -> dict[str, object]:
    peer.send(f"{verb} {json.dumps(arguments)}\n".encode())
    status, _, rest = peer.read_line().decode().partition(" ")
    assert status == "OK"
    answer: dict[str, object] = json.loads(rest)
    return answer


def test_everything_the_engine_keeps_survives(yard: SimulatedServer, hands: Hands) -> None:
    engine = yard.engine
    hands.call("create_queue", "made", QueueSettings(retries=3, result_retention=HOUR))
    hands.call("set_value", b"forever", b"v" * 100, 0)
    hands.call("set_value", b"later", b"w" * 100, yard.clock.now() + HOUR)
    hands.call("open_session", 5)
    blocker = hands.push("front")
    hands.push("blocked", blocked_by=[blocker])
    hands.push("noticed", notify=Notify(5, 9, ALL_STAGES))
    hands.call("detach_session", 5)
    leased = hands.push("leased", policy=Policy(ttr=HOUR))
    hands.take("leased")
    failing = hands.push("failing", policy=Policy(max_fails=3))
    hands.take("failing")
    hands.call("fail", failing, b"an error")
    dead = hands.push("dead")
    hands.take("dead")
    hands.call("fail", dead, b"the last error")
    hands.push("keyed", key=b"k", priority=5)
    hands.push("uid", uid=b"u" * 16)
    gone = hands.push("gone", uid=b"g" * 16)
    hands.take("gone")
    hands.call("ack", gone, 7)
    hands.push("front", front=True)
    for _ in range(3):
        hands.push("batch")
    now = yard.broker.begin_turn()
    lease_all(engine, "spark", 1, [b"batch"], 2, 0, ORIGIN, now)
    yard.broker.end_turn()

    hands.churn(10)

    assert passes(yard) >= 5
    check_replay(yard)
    yard.crash()
    engine = yard.engine
    assert engine.job(leased).state == LEASED
    assert engine.job(dead).state == FAILED
    assert engine.job(failing).fails == 1
    assert engine.state.tombstones.id_of(b"g" * 16) == gone
    assert engine.state.sessions[5].numbered == 3
    assert engine.state.consumers["spark"].number == 1
    check_replay(yard)


def test_rates_and_keys_survive_and_come_to_rest(yard: SimulatedServer, hands: Hands) -> None:
    settings = QueueSettings(
        rate_count=1000,
        rate_period=HOUR,
        key_concurrency=1,
        key_rate_count=1,
        key_rate_period=HOUR,
    )
    now = yard.broker.begin_turn()
    yard.engine.create_queue("q", settings, ORIGIN, now)
    yard.broker.end_turn()
    for number in range(300):
        hands.push(limit_key=b"%d" % number * 20)
        hands.call("ack", hands.take(), 7)
    hands.push(limit_key=b"held")
    hands.take()
    hands.push(limit_key=b"held")
    first = yard.journal.first_base
    for _ in range(3):
        hands.churn(12)
        check_replay(yard)
    assert yard.journal.first_base > first
    queue = yard.engine.queue(b"q")
    assert queue is not None
    assert queue.key_limits is not None
    assert len(queue.key_limits) == 301
    yard.advance(5)
    assert on_disk(yard) <= 2 * yard.engine.state.compacted_size() + 2 * SEGMENT
    yard.crash()
    queue = yard.engine.queue(b"q")
    assert queue is not None
    assert queue.key_limits is not None
    assert len(queue.key_limits) == 301
    assert yard.engine.fetch(FetchRequest([b"q"], 8, ORIGIN), yard.broker.begin_turn()) is None
    assert queue.limited.size == 1
    yard.broker.end_turn()


def test_the_counters_of_a_queue_count_on(yard: SimulatedServer, hands: Hands) -> None:
    hands.churn(12)
    queue = yard.engine.queue(b"churn")
    assert queue is not None
    before = queue.counters()

    yard.crash()

    after = yard.engine.queue(b"churn")
    assert after is not None
    assert after.counters() == before
    assert after.pushed == after.leases == after.finished > 500


def test_a_burst_that_is_drained_gives_its_disk_back(yard: SimulatedServer, hands: Hands) -> None:
    for _ in range(600):
        hands.push("burst", 1000)
    assert on_disk(yard) > 15 * SEGMENT
    for _ in range(600):
        hands.call("ack", hands.take("burst"), 7)

    yard.advance(5)

    assert on_disk(yard) < 2 * SEGMENT
    assert len(yard.disk.directory(JOURNAL).names()) <= 2


@pytest.fixture
def deep() -> tuple[SimulatedServer, Hands]:
    """Jobs wait in six large segments, and files for the next ones are made in advance."""
    yard = SimulatedServer(segment_size=LARGE, payload_memory=0, spare=True)
    hands = Hands(yard)
    for _ in range(6 * LARGE // JOB):
        hands.push("deep", JOB)
    return yard, hands


def take_oldest(hands: Hands, size: int) -> None:
    """For each job that comes the oldest one goes."""
    for _ in range(size // JOB):
        hands.push("deep", JOB)
        hands.call("ack", hands.take("deep"), 7)


def test_a_segment_whose_jobs_are_done_is_used_again_however_much_lives_behind_it(
    deep: tuple[SimulatedServer, Hands],
) -> None:
    yard, hands = deep
    made = len(recycled(yard))
    assert not any(recycled(yard))

    take_oldest(hands, 4 * LARGE)

    assert yard.journal.first_base >= 2 * LARGE
    assert recycled(yard)[-2:] == [True, True]
    assert len(recycled(yard)) <= made + 2
    check_replay(yard)


def test_a_segment_in_which_something_lives_is_left_while_there_is_room(
    deep: tuple[SimulatedServer, Hands],
) -> None:
    yard, hands = deep
    hands.call("ack", hands.take("deep"), 7)
    kept = [hands.take("deep") for _ in range(LARGE // JOB // 4)]  # which nobody finishes

    take_oldest(hands, 2 * LARGE)

    assert passes(yard) == 0
    assert yard.journal.first_base == 0
    assert all(yard.engine.job(id).state == LEASED for id in kept)


def recycled(yard: SimulatedServer) -> list[bool]:
    """Which of the segments that are there were made of an earlier one."""
    directory = yard.disk.directory(JOURNAL)
    names = segment_names(directory)
    return [parse_header(read_segment(directory, name)).recycled for name in names]


def test_compaction_off_drops_nothing() -> None:
    yard = SimulatedServer(segment_size=SEGMENT, compaction=0)

    Hands(yard).churn(5)
    yard.advance(5)

    assert yard.journal.first_base == 0


def test_an_idle_server_comes_to_rest(yard: SimulatedServer, hands: Hands) -> None:
    hands.push("old")
    hands.churn(10)
    yard.advance(5)
    end = yard.journal.end

    yard.advance(100)

    assert yard.journal.end == end
    assert not yard.scheduler.is_waiting()


@pytest.mark.parametrize("payload", [0, 1, 700])
def test_names_and_payloads_of_any_length_come_to_rest(payload: int) -> None:
    """Were live bytes estimated too low, the same jobs would be carried round and round."""
    yard = SimulatedServer(segment_size=1 << 13, payload_memory=0)
    hands = Hands(yard)
    for number in range(60):
        hands.push("q" * 200 + str(number), payload, key=b"k" * 300, uid=number.to_bytes(16, "big"))
    hands.churn(5)
    yard.advance(30)
    end = yard.journal.end

    yard.advance(100)

    assert yard.journal.end == end
    check_replay(yard)


def test_a_damaged_head_stops_compaction_and_nothing_else(
    yard: SimulatedServer, hands: Hands
) -> None:
    told: list[str] = []
    yard.broker.compaction_scheduler.on_damage(told.append)
    old = hands.push("old", 1000)
    directory = yard.disk.directory(JOURNAL)
    name = min(name for name in directory.names() if name.endswith(".seg"))
    content = bytearray(directory.content(name))
    content[600] ^= 1
    directory.put(name, bytes(content))

    hands.churn(4)
    yard.advance(5)

    assert len(told) == 1
    assert "no intact frame" in told[0]
    assert yard.journal.first_base == 0
    assert yard.engine.job(old).state == READY
    hands.cycle()


@pytest.mark.parametrize("seed", range(effort(20, 8)))
def test_a_crash_at_any_point_of_a_pass_is_harmless(seed: int) -> None:
    """Cut the power while reads and removals of compaction are under way, in any order."""
    chance = Random(seed)
    yard = SimulatedServer(segment_size=1 << 13, payload_memory=0, spare=seed % 2 == 0, seed=seed)
    hands = Hands(yard)
    old = [hands.push("old", chance.randrange(900)) for _ in range(20)]
    for _ in range(6):
        yard.scheduler.slow = True
        for _ in range(chance.randrange(10, 60)):
            hands.cycle()
            if chance.random() < 0.5 and yard.scheduler.blocking:
                yard.scheduler.finish_blocking()
                for _ in range(chance.randrange(4)):
                    yard.scheduler.step()
        yard.scheduler.slow = False
        yard.crash(chance)
        queue = yard.engine.queue(b"old")
        assert queue is not None
        assert [job.id for job in queue.ready.slice(0, 100)] == old
        check_replay(yard)


def test_what_was_just_carried_can_be_read_before_it_is_written(
    yard: SimulatedServer, hands: Hands
) -> None:
    id = hands.push("work", 300, ttl_ms=86_400_000, policy=Policy(max_fails=9))
    hands.take("work")
    hands.call("fail", id, b"an error")
    hands.take("work")
    hands.call("complete", id, b"a result")
    job = yard.engine.job(id)
    assert job.extras is not None

    moves = blobs_to_move(job, yard.journal.end)
    blob = bytes(300) + b"a result" + b"an error"
    snapshot_job(yard.engine, job, moves, blob, yard.clock.now())

    assert yard.journal.read_blob(job.payload_at, job.payload_size) == bytes(300)
    assert yard.journal.read_blob(job.extras.result_at, job.extras.result_size) == b"a result"
    assert yard.journal.read_blob(job.extras.error_at, job.extras.error_size) == b"an error"


def test_a_pass_goes_on_when_those_it_waited_for_are_gone(
    yard: SimulatedServer, hands: Hands
) -> None:
    """A job whose blobs had to be read from elsewhere may be finished before they are."""
    yard.broker.compaction_scheduler.compactor._jobs_with_remote_blobs = {4711: None}

    hands.churn(5)

    assert passes(yard) >= 2
