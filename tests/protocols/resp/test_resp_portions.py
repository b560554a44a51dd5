"""Commands about long lists are work in chunks: others are answered in between, and connections
may end in the middle.
"""

from random import Random

import pytest
from support.replies_resp import ask, command, replies
from support.resp_jobs import as_jobs
from support.resp_lists import content, fill, length, numbers, run
from support.simulated import SimulatedPeer, SimulatedServer

from taskyard.engine.model.job import READY, SYSTEM_ORIGIN
from taskyard.engine.model.queue import QueueSettings
from taskyard.protocols.resp.connection import RespConnection

PORTION = 256
TURN = 16  # of chunks, as of commands
LONG = 8_300  # two turns, and something
MIB = 1 << 20


@pytest.fixture
def yard() -> SimulatedServer:
    return SimulatedServer()


def pings_during(
    yard: SimulatedServer, peer: SimulatedPeer, request: bytes
) -> tuple[list[object], int]:
    """The replies to this request, and how many replies another client got in the middle of it."""
    other = yard.connect("resp")
    peer.arrive(request)
    connection = peer.receiver
    assert isinstance(connection, RespConnection)
    between = 0

    def witness(data: bytes) -> None:
        nonlocal between
        if connection.chunked_command is not None:
            between += data.count(b"+PONG")

    other.witness = witness
    other.arrive(command("PING") * 1000)
    yard.run_pending()
    assert other.take() == b"+PONG\r\n" * 1000
    return replies(peer.take()), between


LONG_COMMANDS: dict[str, tuple[tuple[bytes | str | int, ...], object]] = {
    "LRANGE": (("LRANGE", "l", 0, -1), numbers(LONG)),
    "LPOP": (("LPOP", "l", LONG + 5), numbers(LONG)),
    "RPOP": (("RPOP", "l", LONG - 1), numbers(LONG)[:0:-1]),
    "LREM": (("LREM", "l", 0, b"%d" % (LONG - 1)), 1),
    "LREM backwards": (("LREM", "l", -1, b"0"), 1),
    "LREM in vain": (("LREM", "l", 5, b"none"), 0),
    "DEL": (("DEL", "l", "none"), 1),
    "UNLINK": (("UNLINK", "none", "l"), 1),
}


@pytest.mark.parametrize("name", LONG_COMMANDS)
def test_others_are_answered_while_a_long_list_is_worked_on(
    yard: SimulatedServer, name: str
) -> None:
    words, reply = LONG_COMMANDS[name]
    peer = fill(yard, numbers(LONG))
    found, answered = pings_during(yard, peer, command(*words) + command("PING"))
    assert found == [reply, "PONG"]
    assert answered == TURN


def test_short_lists_are_done_at_once(yard: SimulatedServer) -> None:
    peer = fill(yard, numbers(PORTION))
    found, answered = pings_during(yard, peer, command("LRANGE", "l", 0, -1))
    assert (found, answered) == ([numbers(PORTION)], 0)


@pytest.mark.parametrize("count", [PORTION - 1, PORTION, PORTION + 1, 2 * PORTION])
def test_the_borders_of_portions_lose_nothing(count: int) -> None:
    values = numbers(count)
    for words, reply, left in [
        (("LRANGE", "l", 0, -1), values, values),
        (("LPOP", "l", count), values, []),
        (("RPOP", "l", count), values[::-1], []),
        (("LPOP", "l", count - 1), values[:-1], values[-1:]),
        (("LREM", "l", 0, values[-1]), 1, values[:-1]),
        (("LREM", "l", -1, values[0]), 1, values[1:]),
        (("DEL", "l"), 1, []),
    ]:
        yard = SimulatedServer()
        peer = fill(yard, values)
        assert run(peer, *words) == reply
        assert content(yard) == left


# LREM


@pytest.mark.parametrize("count", [0, 1, -1, 2, -2, 39, -39, 40, -40, 41, -41, 1000, -1000])
def test_so_many_are_removed_from_either_end(yard: SimulatedServer, count: int) -> None:
    """Forty equal ones among others, several of them in one chunk."""
    values = [b"x" if number % 25 == 7 else b"%d" % number for number in range(1000)]
    peer = fill(yard, values)
    removed = min(abs(count) or 40, 40)
    assert run(peer, "LREM", "l", count, "x") == removed
    assert content(yard) == expected_after(values, b"x", count)


@pytest.mark.parametrize("count", [2, -2, 5200, -5200])
def test_a_list_of_equal_values_is_removed_from_either_end(
    yard: SimulatedServer, count: int
) -> None:
    values = [b"x"] * 5000 + [b"y"] * 100 + [b"x"] * 5000
    peer = fill(yard, values)
    assert run(peer, "LREM", "l", count, "x") == (abs(count) or 10_000)
    assert content(yard) == expected_after(values, b"x", count)


def expected_after(values: list[bytes], value: bytes, count: int) -> list[bytes]:
    left = list(values)
    if count < 0:
        left.reverse()
    for _ in range(abs(count) or len(values)):
        if value not in left:
            break
        left.remove(value)
    if count < 0:
        left.reverse()
    return left


@pytest.mark.parametrize("count", [0, 1, -1, 7, -7, 300, -300])
def test_jobs_of_several_priorities_are_removed_in_delivery_order(
    yard: SimulatedServer, count: int
) -> None:
    chance = Random(count)
    peer = yard.connect("resp")
    jobs = [(chance.choice([-5, 0, 0, 3, 9]), chance.choice([b"x", b"y"])) for _ in range(900)]
    peer.send(
        b"".join(command("JOB.PUSH", "l", value, "PRIORITY", priority) for priority, value in jobs)
    )
    peer.take()
    values = [value for _, value in sorted(jobs, key=lambda job: -job[0])]
    assert content(yard) == values
    run(peer, "LREM", "l", count, "x")
    assert content(yard) == expected_after(values, b"x", count)


def test_jobs_that_are_not_ready_are_left_alone(yard: SimulatedServer) -> None:
    peer = fill(yard, [b"x"] * 3)
    ask(peer, "JOB.TAKE", 1, "l")
    ask(peer, "JOB.PUSH", "l", "x", "IN", 1000)
    assert run(peer, "LREM", "l", 0, "x") == 2
    yard.advance(1)
    assert content(yard) == [b"x"]


def test_a_list_changes_while_it_is_looked_through(yard: SimulatedServer) -> None:
    for count in (0, -LONG):
        peer = fill(yard, [b"x"] * LONG)
        other = yard.connect("resp")
        peer.arrive(command("LREM", "l", count, "x"))
        popped = 0
        while True:
            if length(yard) > 10:
                other.arrive(
                    command("LPOP", "l") + command("RPOP", "l") + command("LPUSH", "l", "y")
                )
            if not yard.scheduler.step():
                break
            popped += other.take().count(b"$1\r\nx")
        popped += other.take().count(b"$1\r\nx")
        [removed] = replies(peer.take())
        assert popped
        assert removed + popped == LONG
        assert set(content(yard)) <= {b"y"}  # type: ignore[call-overload]
        run(peer, "DEL", "l")


# Bounds


def test_no_reply_is_larger_than_its_limit() -> None:
    yard = SimulatedServer(segment_size=1 << 24)
    values = [b"%02d" % number * (MIB // 2) for number in range(65)]
    peer = yard.connect("resp")
    for value in values:
        assert run(peer, "RPUSH", "l", value) == int(value[:2]) + 1
    refusal = run(peer, "LRANGE", "l", 0, -1)
    assert refusal == "ERR the range has 68157440 bytes: ask for at most 67108864 at a time"
    assert run(peer, "LRANGE", "l", 0, 63) == values[:64]
    peer.send(command("JOB.TAKE", 1, "l", "COUNT", 1000))
    [reply] = replies(peer.take())
    taken = as_jobs(reply)
    assert [job.payload for job in taken] == values[:64]
    peer.send(b"".join(command("JOB.RETURN", job.ref) for job in taken))
    peer.expect(b"+OK\r\n" * 64)
    assert run(peer, "LPOP", "l", 1000) == values[:64]
    assert run(peer, "LPOP", "l", 1000) == values[64:]
    assert run(peer, "LPOP", "l", 1000) is None


# The end of a connection in the middle


@pytest.mark.parametrize("name", LONG_COMMANDS)
def test_who_is_lost_in_the_middle_leaves_a_sound_list(yard: SimulatedServer, name: str) -> None:
    words, _ = LONG_COMMANDS[name]
    peer = fill(yard, numbers(LONG))
    peer.arrive(command(*words) + command("RPUSH", "l", "never"))
    peer.close()
    left = content(yard)
    assert isinstance(left, list)
    assert b"never" not in left
    assert [int(value) for value in left] == sorted({int(value) for value in left})
    yard.crash()
    assert content(yard) == left


@pytest.mark.parametrize("name", LONG_COMMANDS)
def test_who_says_no_more_is_answered_all_the_same(yard: SimulatedServer, name: str) -> None:
    words, reply = LONG_COMMANDS[name]
    peer = fill(yard, numbers(LONG))
    peer.arrive(command(*words) + command("PING"))
    assert peer.receiver is not None
    peer.receiver.on_eof()
    yard.run_pending()
    assert replies(peer.take()) == [reply, "PONG"]
    peer.expect_closed()


@pytest.mark.parametrize(
    ("words", "reply"),
    [
        (("BLPOP", "none", 0), None),
        (("BLMOVE", "none", "l", "LEFT", "LEFT", 0), None),
        (("JOB.TAKE", 1, "none", "WAIT", 60_000), []),
    ],
)
def test_who_says_no_more_while_waiting_gets_nothing(
    yard: SimulatedServer, words: tuple[str | int, ...], reply: object
) -> None:
    peer = yard.connect("resp")
    peer.send(command(*words) + command("PING"))
    peer.expect_nothing()
    assert peer.receiver is not None
    peer.receiver.on_eof()
    yard.run_pending()
    assert replies(peer.take()) == [reply, "PONG"]
    peer.expect_closed()


def test_a_stop_answers_what_is_under_way(yard: SimulatedServer) -> None:
    peer = fill(yard, numbers(LONG))
    peer.arrive(command("LRANGE", "l", 0, -1) + command("PING"))
    yard.stop()
    assert replies(peer.take()) == [numbers(LONG), "PONG"]
    peer.expect_closed()


def test_a_paused_queue_gives_nothing(yard: SimulatedServer) -> None:
    peer = fill(yard, numbers(3))
    queue = yard.engine.queue(b"l")
    assert queue is not None
    yard.engine.configure_queue(b"l", QueueSettings(paused=True), SYSTEM_ORIGIN, yard.clock.now())
    assert run(peer, "LPOP", "l") is None
    assert run(peer, "LPOP", "l", 2) is None
    assert run(peer, "LLEN", "l") == 3
    assert {job.state for job in yard.engine.jobs_from(queue, READY, 0, 3)} == {READY}
