"""Commands that take too long are noted, with where the time went. Who waits on purpose is not."""

from collections.abc import Callable

import pytest
from support.simulated import SimulatedYard

from taskyard.broker.slow import KEPT, SlowCommand

MILLISECOND = 1000
LIMIT = 100 * MILLISECOND
PUSH = b'PUSH {"name":"a"}\n'
WORKQ_ADD = b"add 6ba7b810-9dad-11d1-80b4-00c04fd430c8 q 1000 60000 1\r\nx\r\n"


@pytest.fixture
def yard() -> SimulatedYard:
    yard = SimulatedYard(inline_sync=False)
    yard.broker.slow.limit = LIMIT
    return yard


def only(yard: SimulatedYard) -> SlowCommand:
    (found,) = yard.broker.slow.last()
    return found


def stall_disk(yard: SimulatedYard, microseconds: int, meanwhile: Callable[[], None]) -> None:
    """The sync of what is done meanwhile takes that long."""
    yard.scheduler.slow = True
    meanwhile()
    yard.settle()
    yard.clock.time += microseconds
    yard.scheduler.slow = False
    while yard.scheduler.blocking:
        yard.scheduler.finish_blocking()
        yard.settle()


def tick(yard: SimulatedYard, microseconds: int) -> None:
    """From now on each look at the clock finds that so much time has passed."""

    def now() -> int:
        yard.clock.time += microseconds
        return yard.clock.time

    yard.clock.now = now  # type: ignore[method-assign]


def parts(slow: SlowCommand) -> tuple[int, int, int, int]:
    return slow.took, slow.line, slow.work, slow.disk


def test_a_disk_that_stalls(yard: SimulatedYard) -> None:
    peer = yard.connect()
    stall_disk(yard, 250 * MILLISECOND, lambda: peer.arrive(b"PING\n" + PUSH * 3))
    slow = only(yard)
    assert (slow.dialect, slow.command, slow.count, slow.request) == ("masenko", "PUSH", 3, "0-2")
    assert parts(slow) == (250 * MILLISECOND, 0, 0, 250 * MILLISECOND)
    assert slow.peer.startswith("peer:")
    assert slow.time == yard.clock.time


def test_as_long_as_is_allowed_is_not_slow(yard: SimulatedYard) -> None:
    peer = yard.connect()
    stall_disk(yard, LIMIT, lambda: peer.arrive(PUSH))
    assert yard.broker.slow.count == 0
    stall_disk(yard, LIMIT + 1, lambda: peer.arrive(PUSH))
    assert only(yard).request == "0-2"


def test_what_comes_during_a_flush_has_waited_for_the_disk_too(yard: SimulatedYard) -> None:
    first, second = yard.connect(), yard.connect()
    yard.scheduler.slow = True
    first.arrive(PUSH)
    yard.settle()
    yard.clock.time += 50 * MILLISECOND
    second.arrive(PUSH)
    yard.settle()
    yard.clock.time += 60 * MILLISECOND
    yard.scheduler.finish_blocking()
    yard.settle()
    yard.clock.time += 60 * MILLISECOND
    yard.scheduler.finish_blocking()
    yard.settle()
    late, early = yard.broker.slow.last()
    assert parts(early) == (110 * MILLISECOND, 0, 0, 110 * MILLISECOND)
    assert parts(late) == (120 * MILLISECOND, 0, 0, 120 * MILLISECOND)


def test_a_quick_command_after_a_long_silence_is_quick(yard: SimulatedYard) -> None:
    peer = yard.connect()
    for _ in range(3):
        peer.arrive(PUSH + b"PING\n")
        yard.settle()
        yard.clock.time += 3600 * 1000 * MILLISECOND
    assert yard.broker.slow.count == 0


@pytest.mark.parametrize(
    ("dialect", "take", "push"),
    [
        (
            "masenko",
            b'FETCH {"queues":["q"],"timeout":"40s"}\n',
            b'PUSH {"name":"a","queue":"q"}\n',
        ),
        ("workq", b"lease q 3600000\r\n", WORKQ_ADD),
        ("resp", b"BLPOP q 3600\r\n", b"RPUSH q x\r\n"),
        ("resp", b"JOB.TAKE 1 q WAIT 3600000\r\n", b"JOB.PUSH q x\r\n"),
    ],
)
def test_to_be_asked_to_wait_is_not_to_be_slow(
    yard: SimulatedYard, dialect: str, take: bytes, push: bytes
) -> None:
    worker = yard.connect(dialect)
    worker.arrive(take)
    yard.settle()
    yard.advance(20)
    assert worker.take() == b""
    pusher = yard.connect(dialect)
    pusher.arrive(push)
    yard.settle()
    assert worker.take() != b""
    worker.arrive(take)
    yard.advance(3601)  # for nothing, this time
    assert worker.take() != b""
    assert yard.broker.slow.count == 0


def test_the_disk_counts_for_who_has_waited_for_a_job(yard: SimulatedYard) -> None:
    worker, pusher = yard.connect(), yard.connect()
    worker.arrive(b'FETCH {"queues":["q"],"timeout":"40s"}\n')
    yard.advance(5)
    stall_disk(yard, 200 * MILLISECOND, lambda: pusher.arrive(b'PUSH {"name":"a","queue":"q"}\n'))
    commands = {slow.command: slow for slow in yard.broker.slow.last()}
    assert set(commands) == {"FETCH", "PUSH"}
    assert parts(commands["FETCH"]) == (200 * MILLISECOND, 0, 0, 200 * MILLISECOND)


def test_a_loop_that_is_kept_busy(yard: SimulatedYard) -> None:
    peer = yard.connect("resp")
    tick(yard, 150 * MILLISECOND)
    peer.arrive(b"PING\r\nECHO a\r\n")
    yard.settle()
    slow = only(yard)
    assert (slow.dialect, slow.command, slow.count, slow.request) == ("resp", "echo", 2, "0-1")
    assert parts(slow) == (150 * MILLISECOND, 0, 150 * MILLISECOND, 0)


def test_work_and_disk_are_told_apart(yard: SimulatedYard) -> None:
    peer = yard.connect("workq")

    def push() -> None:
        before = yard.clock.now
        tick(yard, 150 * MILLISECOND)
        peer.arrive(WORKQ_ADD)
        yard.settle()
        yard.clock.now = before  # type: ignore[method-assign]

    stall_disk(yard, 1000 * MILLISECOND, push)
    slow = only(yard)
    assert slow.command == "add"
    assert slow.disk == 1000 * MILLISECOND
    assert slow.work == slow.took - slow.disk >= 150 * MILLISECOND


def test_the_line_counts(yard: SimulatedYard) -> None:
    """A round lasts 4 milliseconds, and who comes then has to wait until others had their turns."""
    peers = [yard.connect() for _ in range(60)]
    tick(yard, 5 * MILLISECOND)
    for peer in peers:
        peer.arrive(b"PING\n")
    yard.settle()
    found = yard.broker.slow.last()
    assert found
    for slow in found:
        assert slow.line > LIMIT - 10 * MILLISECOND
        assert slow.took == slow.line + slow.work


def test_reading_a_payload_back_counts(yard: SimulatedYard) -> None:
    yard = SimulatedYard(payload_memory=0)
    yard.broker.slow.limit = LIMIT
    pusher = yard.connect("resp")
    for _ in range(64):  # the little that is kept in memory all the same is less than that
        pusher.arrive(b"*3\r\n$5\r\nRPUSH\r\n$1\r\nq\r\n$65536\r\n%b\r\n" % (b"x" * 65536))
        yard.settle()
    worker = yard.connect("resp")
    stall_disk(yard, 300 * MILLISECOND, lambda: worker.arrive(b"LPOP q\r\n"))
    slow = only(yard)
    assert (slow.command, slow.request) == ("lpop", "0-1")
    assert slow.work >= 300 * MILLISECOND


def test_a_command_in_portions_is_one(yard: SimulatedYard) -> None:
    """A portion has 256 items, a turn 16 portions, and none of the turns is slow."""
    peer = yard.connect("resp")
    for _ in range(6):
        peer.arrive(b"RPUSH q" + b" x" * 1000 + b"\r\n")
        yard.settle()
    tick(yard, 45 * MILLISECOND)
    peer.arrive(b"LPOP q 6000\r\nPING\r\n")
    yard.settle()
    found = [slow for slow in yard.broker.slow.last() if slow.command == "lpop"]
    assert [(slow.request, slow.took > LIMIT) for slow in found] == [("0-7", True)]


def test_a_request_over_http(yard: SimulatedYard) -> None:
    peer = yard.connect("api")
    body = b'{"payload":"secret"}'
    head = (
        b"POST /api/v1/queues/mail/jobs HTTP/1.1\r\nhost: a\r\ncontent-type: application/json\r\n"
    )
    request = head + b"x-request-id: mine\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body)
    stall_disk(yard, 250 * MILLISECOND, lambda: peer.arrive(request))
    slow = only(yard)
    assert (slow.dialect, slow.command) == ("http", "POST /api/v1/queues/mail/jobs")
    assert (slow.queue, slow.request) == ("mail", "mine")
    assert parts(slow) == (250 * MILLISECOND, 0, 0, 250 * MILLISECOND)


def test_a_client_that_has_gone_is_not_told_of(yard: SimulatedYard) -> None:
    peer = yard.connect()

    def push() -> None:
        peer.arrive(PUSH)
        yard.settle()
        peer.close()

    stall_disk(yard, 250 * MILLISECOND, push)
    assert yard.broker.slow.count == 0


def test_only_the_last_ones_are_kept(yard: SimulatedYard) -> None:
    peer = yard.connect()
    for _ in range(KEPT + 5):
        stall_disk(yard, 200 * MILLISECOND, lambda: peer.arrive(PUSH))
    slow = yard.broker.slow
    assert (slow.count, slow.size(), slow.dialects) == (KEPT + 5, KEPT, {"masenko": KEPT + 5})
    assert [slow.last()[0].id, slow.last()[-1].id] == [KEPT + 4, 5]
    slow.forget()
    assert (slow.count, slow.last()) == (KEPT + 5, [])


def test_nobody_looks_unless_told_to() -> None:
    yard = SimulatedYard(inline_sync=False)
    peer = yard.connect()
    stall_disk(yard, 3600 * 1000 * MILLISECOND, lambda: peer.arrive(PUSH))
    tick(yard, 1000 * MILLISECOND)
    peer.arrive(b"PING\n")
    yard.settle()
    assert yard.broker.slow.count == 0
