"""JOB.DONEALL, ref by ref, and what JOB.TAKE BRIEF answers byte by byte."""

from itertools import product
from typing import Any

import pytest
from support.replies_resp import Failure, ask, command, read, refused, replies
from support.simulated import SimulatedPeer, SimulatedServer
from support.wire import Wire, exchange

from taskyard.engine.model.job import LEASED
from taskyard.engine.operations.room import MAX_STEP_BYTES, JournalSpace

INVALID = "ERR invalid ref"
STALE = "99999-1-1"


@pytest.fixture
def yard() -> SimulatedServer:
    return SimulatedServer()


@pytest.fixture
def peer(yard: SimulatedServer) -> SimulatedPeer:
    return yard.connect("resp")


def take(peer: SimulatedPeer, count: int) -> list[str]:
    """Push so many jobs, and take them; gives their refs."""
    peer.send(command("JOB.PUSH", "mails", "letter") * count)
    peer.take()
    peer.send(command("JOB.TAKE", 1, "mails", "COUNT", count, "BRIEF"))
    return [job[0].decode() for job in read(peer)]


def leased(yard: SimulatedServer) -> int:
    queue = yard.engine.queue(b"mails")
    return 0 if queue is None else queue.job_count(LEASED)


# Which have ended


@pytest.mark.parametrize("held", list(product([True, False], repeat=4)))
def test_each_ref_is_answered_in_its_place(
    yard: SimulatedServer, peer: SimulatedPeer, held: tuple[bool, ...]
) -> None:
    """All of them, the first, one in the middle, the last, or none."""
    refs = take(peer, 4)
    asked = [ref if holds else STALE for ref, holds in zip(refs, held, strict=True)]
    peer.send(command("JOB.DONEALL", *asked))
    peer.expect(b"*4\r\n" + b"".join(b":1\r\n" if holds else b":0\r\n" for holds in held))
    peer.expect_nothing()
    assert leased(yard) == held.count(False)


def test_of_a_ref_that_is_there_twice_the_first_one_ends_the_lease(peer: SimulatedPeer) -> None:
    first, second = take(peer, 2)
    peer.send(command("JOB.DONEALL", first, first, second, first, second))
    peer.expect(b"*5\r\n:1\r\n:0\r\n:1\r\n:0\r\n:0\r\n")


def test_a_lease_of_another_boot_or_of_another_number_is_over(peer: SimulatedPeer) -> None:
    take(peer, 2)
    peer.send(command("JOB.DONEALL", "1-2-1", "1-0-1", "1-1-2", "1-1-0", "2-1-1", "0-0-0"))
    peer.expect(b"*6\r\n:0\r\n:0\r\n:0\r\n:0\r\n:1\r\n:0\r\n")


def test_a_thousand_of_which_every_seventh_is_stale(
    yard: SimulatedServer, peer: SimulatedPeer
) -> None:
    refs = take(peer, 1000)
    refs[::7] = [STALE] * len(refs[::7])
    peer.send(command("JOB.DONEALL", *refs))
    peer.expect(b"*1000\r\n" + b"".join(b":%d\r\n" % (ref != STALE) for ref in refs))
    assert leased(yard) == refs.count(STALE)


def done_with_room(yard: SimulatedServer, peer: SimulatedPeer, room: int, refs: list[str]) -> Any:
    """The answer of a server whose journal takes so many bytes more for now."""
    before = yard.engine.journal_space
    yard.engine.journal_space = JournalSpace()
    yard.engine.journal_space.free_bytes = yard.engine.records.size() + room
    answer = ask(peer, "JOB.DONEALL", *refs)
    yard.engine.journal_space = before
    return answer


@pytest.mark.parametrize("stale", [[], [0], [0, 2]])
def test_those_that_have_ended_are_told_when_there_is_no_room_for_more(
    yard: SimulatedServer, peer: SimulatedPeer, stale: list[int]
) -> None:
    refs = take(peer, 50)
    for number in stale:
        refs[number] = STALE
    done = done_with_room(yard, peer, MAX_STEP_BYTES + 500, refs)
    held = [ref != STALE for ref in refs]
    assert 0 < sum(done) < 40
    assert done == [int(holds) for holds in held[: sum(done) + len(stale)]] + [0] * (
        50 - sum(done) - len(stale)
    )
    assert leased(yard) == 50 - sum(done)
    again = ask(peer, "JOB.DONEALL", *refs)
    assert [first + second for first, second in zip(done, again, strict=True)] == held


def test_without_any_room_that_is_the_answer(yard: SimulatedServer, peer: SimulatedPeer) -> None:
    refs = take(peer, 3)
    answer = done_with_room(yard, peer, 0, [STALE, *refs])
    assert isinstance(answer, Failure)
    assert leased(yard) == 3


# How refs are spelled


@pytest.mark.parametrize(
    "ref",
    [
        "",
        "-",
        "--",
        "1",
        "1-",
        "1-1",
        "1-1-",
        "-1-1",
        "1--1",
        "-1-1-1",
        "1-1--1",
        "1-1-1-",
        "1-1-1-1",
        "01-1-1",
        "1-01-1",
        "1-1-01",
        "1-1-00",
        "+1-1-1",
        "1-1-+1",
        " 1-1-1",
        "1-1-1 ",
        "1-1-1\n",
        "1-1-1\0",
        "1-1-a",
        "a-1-1",
        "1_1_1",
        "1-1/1",
        "1:1:1",
        "1:1-1",
        "1 1-1",
        "1.0-1-1",
        "1-1-9223372036854775808",
        "9223372036854775808-1-1",
        "1-" + "9" * 40 + "-1",
        "\u0661-1-1",
    ],
)
@pytest.mark.parametrize("place", [0, 1, 2])
def test_nothing_is_done_if_one_of_them_is_no_ref(
    yard: SimulatedServer, peer: SimulatedPeer, ref: str, place: int
) -> None:
    refs = take(peer, 2)
    asked = [*refs]
    asked.insert(place, ref)
    assert refused(peer, "JOB.DONEALL", *asked) == INVALID
    assert leased(yard) == 2
    assert refused(peer, "JOB.DONE", ref) == INVALID
    assert ask(peer, "JOB.DONEALL", *refs) == [1, 1]


@pytest.mark.parametrize(
    "ref",
    [
        "1-1-999999999999999999",  # 18 digits
        "1-1-1000000000000000000",  # 19
        "1-1-9223372036854775807",
        "9223372036854775807-1-1",
        "1-9223372036854775807-1",
        "9223372036854775807-9223372036854775807-9223372036854775807",
        "0-1-1",
    ],
)
def test_numbers_as_large_as_can_be_are_refs_of_no_lease(
    yard: SimulatedServer, peer: SimulatedPeer, ref: str
) -> None:
    (held,) = take(peer, 1)
    peer.send(command("JOB.DONEALL", ref, held, ref))
    peer.expect(b"*3\r\n:0\r\n:1\r\n:0\r\n")
    assert leased(yard) == 0


# Brief answers


def test_jobs_that_differ_in_anything_are_shown_one_behind_the_other(wire: Wire) -> None:
    peer = wire.connect("resp")
    peer.send(
        b"JOB.PUSH mails a\r\nJOB.PUSH mails bc\r\nJOB.PUSH mails d NAME greet\r\n"
        b"JOB.PUSH mails ee\r\nJOB.PUSH films f\r\nJOB.PUSH films g NAME mails\r\n"
        b"JOB.PUSH films '' NAME show\r\n"
    )
    peer.expect(b":1\r\n:2\r\n:3\r\n:4\r\n:5\r\n:6\r\n:7\r\n")
    exchange(
        peer,
        b"JOB.TAKE 2 mails films COUNT 9 BRIEF\r\n",
        b"*7\r\n"
        b"*3\r\n$5\r\n1-1-1\r\n$5\r\nmails\r\n$1\r\na\r\n"
        b"*3\r\n$5\r\n2-1-1\r\n$5\r\nmails\r\n$2\r\nbc\r\n"
        b"*3\r\n$5\r\n3-1-1\r\n$5\r\ngreet\r\n$1\r\nd\r\n"
        b"*3\r\n$5\r\n4-1-1\r\n$5\r\nmails\r\n$2\r\nee\r\n"
        b"*3\r\n$5\r\n5-1-1\r\n$5\r\nfilms\r\n$1\r\nf\r\n"
        b"*3\r\n$5\r\n6-1-1\r\n$5\r\nmails\r\n$1\r\ng\r\n"
        b"*3\r\n$5\r\n7-1-1\r\n$4\r\nshow\r\n$0\r\n\r\n",
    )


def test_jobs_that_come_back_are_shown_with_their_latest_lease(wire: Wire) -> None:
    """All are alike but for that: one was never taken, some once, one eleven times."""
    peer = wire.connect("resp")
    for number in (1, 2, 3):
        exchange(peer, b"JOB.PUSH mails x\r\n", b":%d\r\n" % number)
    for lease in range(1, 11):
        exchange(
            peer,
            b"JOB.TAKE 1 mails BRIEF\r\n",
            b"*1\r\n*3\r\n$%d\r\n1-1-%d\r\n$5\r\nmails\r\n$1\r\nx\r\n"
            % (5 if lease < 10 else 6, lease),
        )
        exchange(peer, b"JOB.RETURN 1-1-%d\r\n" % lease, b"+OK\r\n")
    exchange(
        peer,
        b"JOB.TAKE 1 mails COUNT 9 BRIEF\r\n",
        b"*3\r\n"
        b"*3\r\n$6\r\n1-1-11\r\n$5\r\nmails\r\n$1\r\nx\r\n"
        b"*3\r\n$5\r\n2-1-1\r\n$5\r\nmails\r\n$1\r\nx\r\n"
        b"*3\r\n$5\r\n3-1-1\r\n$5\r\nmails\r\n$1\r\nx\r\n",
    )
    peer.send(b"JOB.RETURN 3-1-1\r\nJOB.RETURN 2-1-1\r\nJOB.PUSH mails x\r\n")
    peer.expect(b"+OK\r\n+OK\r\n:4\r\n")
    exchange(
        peer,
        b"JOB.TAKE 1 mails COUNT 9 BRIEF\r\n",
        b"*3\r\n"
        b"*3\r\n$5\r\n2-1-2\r\n$5\r\nmails\r\n$1\r\nx\r\n"
        b"*3\r\n$5\r\n3-1-2\r\n$5\r\nmails\r\n$1\r\nx\r\n"
        b"*3\r\n$5\r\n4-1-1\r\n$5\r\nmails\r\n$1\r\nx\r\n",
    )
    exchange(
        peer,
        b"JOB.DONEALL 1-1-10 1-1-11 2-1-1 2-1-2 4-1-1\r\n",
        b"*5\r\n:0\r\n:1\r\n:0\r\n:1\r\n:1\r\n",
    )


def test_ids_of_any_length_are_shown(peer: SimulatedPeer) -> None:
    peer.send(command("JOB.PUSH", "mails", "x") * 1001)
    peer.take()
    for first, count in ((1, 98), (99, 900), (999, 3)):
        peer.send(command("JOB.TAKE", 1, "mails", "COUNT", count, "BRIEF"))
        shown = [
            b"*3\r\n$%d\r\n%d-1-1\r\n$5\r\nmails\r\n$1\r\nx\r\n" % (len(str(id)) + 4, id)
            for id in range(first, first + count)
        ]
        peer.expect(b"*%d\r\n" % count + b"".join(shown))
        peer.expect_nothing()


def test_answers_that_are_written_at_the_same_time_are_not_mixed_up() -> None:
    """Payloads are read back for both. A buffer is used again, but not by two answers at once."""
    yard = SimulatedServer(payload_memory=0, segment_size=1 << 18)
    peer = yard.connect("resp")
    values = [b"%08d" % number * 375 for number in range(300)]
    for number, value in enumerate(values):
        ask(peer, "JOB.PUSH", b"q%d" % (number % 2), value)
    yard.restart()
    peers = [yard.connect("resp") for _ in range(2)]
    take(peers[0], 5)  # from now on there is a buffer that has been used
    yard.scheduler.slow = True
    for number, peer in enumerate(peers):
        peer.send(command("JOB.TAKE", 1, b"q%d" % number, "COUNT", 100, "BRIEF"))
        assert not peer.take()
    while yard.scheduler.blocking:
        yard.scheduler.finish_blocking()
        yard.run_pending()
    for number, peer in enumerate(peers):
        jobs = zip(range(number + 1, 201, 2), values[number:200:2], strict=True)
        shown = [[b"%d-2-1" % id, b"q%d" % number, value] for id, value in jobs]
        assert replies(peer.take()) == [shown]


def test_an_answer_of_another_boot_says_so(wire: Wire) -> None:
    exchange(wire.connect("resp"), b"JOB.PUSH mails x\r\n", b":1\r\n")
    wire.restart()
    peer = wire.connect("resp")
    exchange(
        peer,
        b"JOB.TAKE 1 mails COUNT 2 BRIEF\r\n",
        b"*1\r\n*3\r\n$5\r\n1-2-1\r\n$5\r\nmails\r\n$1\r\nx\r\n",
    )
    exchange(peer, b"JOB.DONEALL 1-1-1 1-2-1\r\n", b"*2\r\n:0\r\n:1\r\n")
