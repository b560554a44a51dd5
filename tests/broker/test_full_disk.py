"""A disk that is full: pushes are refused with the reason, finishing goes on, and all by itself."""

import errno
from functools import partial
from random import Random

import pytest
from broker.test_random_crashes import conversation, drain
from support.crashing import CRASHES, Kind, SimulatedClientLoad
from support.effort import effort
from support.ledger import Ledger
from support.simulated import SimulatedPeer, SimulatedServer
from support.wire import error_of, exchange, queue_counts

from taskyard.journal.memory import MemoryDisk
from taskyard.journal.segments import SPARE

SIZE = 1 << 16
PAYLOAD = b"x" * 1000
PUSH = b'PUSH {"name":"a","payload":"%b"}\n' % PAYLOAD
NO_MORE = "no space: no room in the journal: No space left on device"
REFUSED = "no space: no room for the next segment of the journal: No space left on device"


@pytest.fixture(params=["inline", "thread"])
def yard(request: pytest.FixtureRequest) -> SimulatedServer:
    """One whose disk has room for three segments."""
    disk = MemoryDisk()
    disk.set_capacity(3 * SIZE + 1000)
    return SimulatedServer(
        1000.0,
        spare=True,
        inline_sync=request.param == "inline",
        disk=disk,
        segment_size=SIZE,
    )


def fill(yard: SimulatedServer, peer: SimulatedPeer) -> int:
    """Push until that is refused; gives how many were taken."""
    taken = 0
    while True:
        peer.send(PUSH)
        line = peer.read_line()
        if not line.startswith(b"OK"):
            assert error_of(line) == REFUSED
            return taken
        taken += 1


def finish_one(peer: SimulatedPeer) -> int:
    peer.send(b"FETCH\n")
    line = peer.read_line()
    assert line.startswith(b'OK {"id":'), line
    id = int(line[9:].partition(b",")[0])
    exchange(peer, b'ACK {"id":%d}\n' % id, b"OK {}\n")
    return id


def test_pushes_are_refused_and_the_connection_stays(yard: SimulatedServer) -> None:
    peer = yard.connect()
    assert fill(yard, peer) > 60
    exchange(peer, b"PING\n", b"PONG {}\n")
    for command in (PUSH, b"ATOMIC\n" + PUSH + b"DONE\n"):
        peer.send(command)
        assert error_of(peer.read_line()) == REFUSED
    assert not yard.broker.failure


def test_finishing_goes_on_in_the_room_kept_for_it(yard: SimulatedServer) -> None:
    peer = yard.connect()
    pushed = fill(yard, peer)
    assert [finish_one(peer) for _ in range(pushed)] == list(range(1, pushed + 1))
    assert queue_counts(peer) == {"default": (0, 0, 0)}


def test_no_file_is_left_of_attempts_that_fail(yard: SimulatedServer) -> None:
    peer = yard.connect()
    fill(yard, peer)
    used = yard.disk.used()
    names = yard.disk.directory("journal").names()
    yard.advance(30)
    assert (yard.disk.used(), yard.disk.directory("journal").names()) == (used, names)
    assert SPARE not in names


def test_pushes_go_on_by_themselves_once_there_is_room(yard: SimulatedServer) -> None:
    told: list[str] = []
    yard.broker.disk_space.on_refusal_change(told.append)
    peer = yard.connect()
    pushed = fill(yard, peer)
    yard.disk.set_capacity(-1)
    yard.advance(1.1)
    exchange(peer, PUSH, b'OK {"id":%d}\n' % (pushed + 1))
    assert told == [REFUSED.removeprefix("no space: "), ""]
    for _ in range(100):
        peer.send(PUSH)
    assert peer.take().count(b"OK") == 100
    yard.crash()
    assert queue_counts(yard.connect()) == {"default": (pushed + 101, 0, 0)}


def test_the_disk_is_looked_at_about_once_a_second_and_only_while_it_is_full(
    yard: SimulatedServer,
) -> None:
    peer = yard.connect()
    fill(yard, peer)
    tries = yard.disk.calls("allocate")
    yard.advance(10)
    assert 8 <= yard.disk.calls("allocate") - tries <= 11
    yard.disk.set_capacity(-1)
    yard.advance(1.1)
    tries = yard.disk.calls("allocate")
    yard.advance(10)
    assert yard.disk.calls("allocate") == tries


def use_up(yard: SimulatedServer, peer: SimulatedPeer) -> None:
    """Take and fail jobs until there is no room for that either."""
    for _ in range(10_000):
        peer.send(b'FETCH {"timeout":"1s"}\n')
        yard.advance(2)
        line = peer.read_line()
        if line.startswith(b"EMPTY"):
            yard.advance(100)
            continue
        if line.startswith(b"OK"):
            id = int(line[9:].partition(b",")[0])
            peer.send(b'NACK {"id":%d}\n' % id)
            line = peer.read_line()
        if line.startswith(b"ERR"):
            assert error_of(line) == NO_MORE
            return
    raise AssertionError("there is always room")


def test_when_that_room_is_used_up_everything_is_refused_until_there_is_more(
    yard: SimulatedServer,
) -> None:
    peer, worker, waiter = yard.connect(), yard.connect(), yard.connect()
    pushed = fill(yard, peer)
    finish_one(worker)
    worker.send(b"FETCH\n")
    worker.read_line()
    use_up(yard, peer)
    use_up(yard, peer)
    waiter.send(b'FETCH {"queues":["other"],"timeout":"2s"}\n')
    assert "no space" in error_of(waiter.read_line())
    worker.send(b'ACK {"id":2}\n')
    assert "no space" in error_of(worker.read_line())
    counts = queue_counts(peer)
    assert sum(counts["default"]) == pushed - 1
    peer.close()  # its jobs are failed when there is room
    yard.advance(20)  # and none of the retries has come
    assert not yard.broker.failure
    yard.disk.set_capacity(-1)
    yard.advance(5)
    exchange(worker, b'ACK {"id":2}\n', b"OK {}\n")
    exchange(waiter, PUSH, b'OK {"id":%d}\n' % (pushed + 1))
    yard.advance(3600)
    yard.crash()
    assert queue_counts(yard.connect())["default"][2] == 0


def test_a_restart_with_a_full_disk_goes_on_finishing(yard: SimulatedServer) -> None:
    peer = yard.connect()
    pushed = fill(yard, peer)
    yard.restart()
    peer = yard.connect()
    assert [finish_one(peer) for _ in range(5)] == [1, 2, 3, 4, 5]
    assert fill(yard, peer) < pushed
    finish_one(peer)


def test_a_kill_with_a_full_disk_loses_nothing(yard: SimulatedServer) -> None:
    peer = yard.connect()
    pushed = fill(yard, peer)
    for _ in range(10):
        finish_one(peer)
    yard.kill()
    assert yard.report.torn_bytes == 0
    assert queue_counts(yard.connect()) == {"default": (pushed - 10, 0, 0)}


@pytest.mark.parametrize("error", [errno.EROFS, errno.EACCES, errno.EMFILE, errno.EDQUOT])
def test_a_directory_in_which_nothing_can_be_made_is_like_a_full_disk(
    yard: SimulatedServer, error: int
) -> None:
    peer = yard.connect()
    yard.disk.set_capacity(-1)
    exchange(peer, PUSH, b'OK {"id":1}\n')
    yard.disk.fail_always("create", error)
    pushed = 1
    peer.send(PUSH)
    while (line := peer.read_line()).startswith(b"OK"):
        pushed += 1
        peer.send(PUSH)
    assert error_of(line).endswith("of the journal: injected into create")
    finish_one(peer)
    yard.advance(5)
    yard.disk.heal()
    yard.advance(1.1)
    exchange(peer, PUSH, b'OK {"id":%d}\n' % (pushed + 1))


def test_a_spare_that_is_still_being_made_keeps_nobody_from_pushing() -> None:
    """The segment that is needed before it is ready is made at once."""
    yard = SimulatedServer(spare=True, segment_size=SIZE)
    yard.scheduler.slow = True
    peer = yard.connect()
    for number in range(1, 201):
        exchange(peer, PUSH, b'OK {"id":%d}\n' % number)
    assert len(yard.scheduler.blocking) == 1
    yard.scheduler.finish_blocking()
    yard.run_pending()
    yard.scheduler.slow = False
    for number in range(201, 401):
        exchange(peer, PUSH, b'OK {"id":%d}\n' % number)
    yard.crash()
    assert queue_counts(yard.connect()) == {"default": (400, 0, 0)}


def test_a_large_payload_on_a_full_disk_is_refused_alone() -> None:
    disk = MemoryDisk()
    yard = SimulatedServer(spare=True, disk=disk, segment_size=SIZE)
    peer = yard.connect()
    exchange(peer, PUSH * 25, b"".join(b'OK {"id":%d}\n' % id for id in range(1, 26)))
    disk.set_capacity(disk.used())  # the spare is there
    peer.send(b'PUSH {"name":"a","payload":"%b"}\n' % (b"x" * 100_000))
    assert error_of(peer.read_line()) == NO_MORE
    exchange(peer, PUSH, b'OK {"id":26}\n')


def test_what_piles_up_behind_a_slow_disk_has_its_room_before_it_is_taken() -> None:
    """The disk fills up while a sync is on its way; nothing that was taken is lost by that."""
    disk = MemoryDisk()
    yard = SimulatedServer(spare=True, disk=disk, segment_size=SIZE, inline_sync=False)
    peers = [yard.connect() for _ in range(10)]
    yard.scheduler.slow = True
    disk.set_capacity(disk.used() + 2 * SIZE)
    for peer in peers:
        peer.arrive(PUSH * 50)
    yard.run_pending()
    while yard.scheduler.blocking:
        yard.scheduler.finish_blocking()
        yard.run_pending()
    yard.scheduler.slow = False
    lines = b"".join(peer.take() for peer in peers).splitlines()
    assert len(lines) == 500
    taken = sum(line.startswith(b"OK") for line in lines)
    assert 50 < taken < 500
    assert not yard.broker.failure
    finish_one(peers[0])
    yard.crash()
    assert queue_counts(yard.connect()) == {"default": (taken - 1, 0, 0)}


def test_finished_work_makes_room_for_pushes(yard: SimulatedServer) -> None:
    """What was finished is compacted away, so the disk need not be emptied by anybody else."""
    peer = yard.connect()
    pushed = fill(yard, peer)
    for _ in range(pushed):
        finish_one(peer)
    yard.advance(3)
    exchange(peer, PUSH, b'OK {"id":%d}\n' % (pushed + 1))
    assert yard.journal.first_base > 0


def test_enospc_in_spite_of_allocation_is_a_failure(yard: SimulatedServer) -> None:
    peer, other = yard.connect(), yard.connect()
    exchange(peer, PUSH, b'OK {"id":1}\n')
    yard.disk.fail_call("write", error=errno.ENOSPC)
    peer.send(PUSH)
    peer.expect_closed()
    other.send(PUSH)
    assert error_of(other.read_line()).startswith("read only: ")


@pytest.mark.parametrize("seed", range(effort(60, 15)))
def test_what_was_acknowledged_survives_a_disk_that_fills_and_empties(seed: int) -> None:
    chance = Random(seed)
    disk = MemoryDisk()
    yard = SimulatedServer(
        heartbeat=1000.0,
        spare=chance.random() < 0.8,
        inline_sync=chance.random() < 0.5,
        disk=disk,
        segment_size=SIZE,
        payload_memory=0,
        seed=seed,
    )
    ledger = Ledger()
    kinds = [Kind("masenko", partial(conversation, yard, ledger, chance))]
    for number in range(CRASHES):
        yard.scheduler.slow = chance.random() < 0.5
        FullStorm(yard, kinds, chance, number).run_steps()
        ledger.crashed()
        disk.set_capacity(disk.used() + chance.choice((80_000, 200_000, 1 << 20)))
        if chance.random() < 0.5:
            yard.crash(chance)
        else:
            yard.kill()
    disk.set_capacity(-1)
    yard.advance(2)
    assert not yard.broker.failure
    drain(yard, ledger, chance)
    ledger.check()


class FullStorm(SimulatedClientLoad):
    """Between the requests the disk gets fuller and emptier."""

    def _step(self) -> None:
        if self._chance.random() < 0.15:
            disk = self._yard.disk
            disk.set_capacity(disk.used() + self._chance.choice((0, 0, 1000, 70_000, 140_000)))
        super()._step()
