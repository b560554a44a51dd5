"""JOB.DONEALL and JOB.TAKE BRIEF: many jobs with few words."""

import pytest
from support.replies_resp import ask, command, read, refused
from support.simulated import SimulatedPeer, SimulatedServer
from support.wire import Wire, exchange

INVALID = "ERR invalid ref"


@pytest.fixture
def yard() -> SimulatedServer:
    return SimulatedServer()


@pytest.fixture
def peer(yard: SimulatedServer) -> SimulatedPeer:
    return yard.connect("resp")


def push(peer: SimulatedPeer, count: int, queue: str = "mails") -> None:
    for number in range(count):
        ask(peer, "JOB.PUSH", queue, f"letter {number}")


def test_jobs_are_taken_briefly_and_done_together(wire: Wire) -> None:
    peer = wire.connect("resp")
    exchange(peer, b"JOB.PUSH mails a\r\n", b":1\r\n")
    exchange(peer, b"JOB.PUSH mails bc NAME greet\r\n", b":2\r\n")
    exchange(
        peer,
        b"JOB.TAKE 1 mails COUNT 10 BRIEF\r\n",
        b"*2\r\n*3\r\n$5\r\n1-1-1\r\n$5\r\nmails\r\n$1\r\na\r\n"
        b"*3\r\n$5\r\n2-1-1\r\n$5\r\ngreet\r\n$2\r\nbc\r\n",
    )
    exchange(peer, b"JOB.DONEALL 1-1-1 2-1-1\r\n", b"*2\r\n:1\r\n:1\r\n")
    exchange(peer, b"JOB.DONEALL 2-1-1\r\n", b"*1\r\n:0\r\n")
    exchange(peer, b"JOB.TAKE 1 mails\r\n", b"*0\r\n")


def test_one_job_is_shown_as_briefly(peer: SimulatedPeer) -> None:
    push(peer, 1)
    assert ask(peer, "JOB.TAKE", 1, "mails", "BRIEF") == [[b"1-1-1", b"mails", b"letter 0"]]


def test_each_job_is_shown_with_its_own_name(peer: SimulatedPeer) -> None:
    ask(peer, "JOB.PUSH", "mails", "a", "NAME", "greet")
    ask(peer, "JOB.PUSH", "mails", "b" * 1000)
    ask(peer, "JOB.PUSH", "films", "c")
    ask(peer, "JOB.PUSH", "mails", "")
    assert ask(peer, "JOB.TAKE", 2, "mails", "films", "COUNT", 4, "BRIEF") == [
        [b"1-1-1", b"greet", b"a"],
        [b"2-1-1", b"mails", b"b" * 1000],
        [b"4-1-1", b"mails", b""],
        [b"3-1-1", b"films", b"c"],
    ]


def test_the_names_of_another_database_are_shown_without_it(peer: SimulatedPeer) -> None:
    ask(peer, "SELECT", 3)
    push(peer, 2)
    assert ask(peer, "JOB.TAKE", 1, "mails", "COUNT", 2, "BRIEF") == [
        [b"1-1-1", b"mails", b"letter 0"],
        [b"2-1-1", b"mails", b"letter 1"],
    ]


def test_a_lease_that_is_over_ends_nothing_and_the_others_end(peer: SimulatedPeer) -> None:
    push(peer, 3)
    ask(peer, "JOB.TAKE", 1, "mails", "COUNT", 3)
    ask(peer, "JOB.RETURN", "2-1-1")
    done = ask(peer, "JOB.DONEALL", "1-1-1", "2-1-1", "3-1-1", "3-1-1", "99-1-1", "1-7-1")
    assert done == [1, 0, 1, 0, 0, 0]
    assert ask(peer, "LLEN", "mails") == 1


@pytest.mark.parametrize(
    "ref", ["", "1", "1-1", "1-1-1-1", "a-1-1", "1--1", "-1-1-1", "1-1-" + "9" * 20]
)
def test_nothing_is_done_if_one_of_them_is_no_ref(peer: SimulatedPeer, ref: str) -> None:
    push(peer, 1)
    ask(peer, "JOB.TAKE", 1, "mails")
    assert refused(peer, "JOB.DONEALL", "1-1-1", ref) == INVALID
    assert ask(peer, "JOB.DONEALL", "1-1-1") == [1]


def test_as_many_as_can_be_taken_can_be_done(peer: SimulatedPeer) -> None:
    push(peer, 1000)
    taken = ask(peer, "JOB.TAKE", 1, "mails", "COUNT", 1000, "BRIEF")
    refs = [job[0] for job in taken]
    assert ask(peer, "JOB.DONEALL", *refs) == [1] * 1000
    wrong = "ERR wrong number of arguments for 'job.doneall' command"
    assert refused(peer, "JOB.DONEALL", *refs, "1-1-1") == wrong


def test_those_who_wait_for_the_end_of_a_job_hear_of_it(
    yard: SimulatedServer, peer: SimulatedPeer
) -> None:
    push(peer, 1)
    ask(peer, "JOB.TAKE", 1, "mails")
    other = yard.connect("resp")
    other.send(command("JOB.RESULT", 1, "WAIT", 1000))
    assert ask(peer, "JOB.DONEALL", "1-1-1") == [1]
    heard = read(other)
    assert isinstance(heard, list)
    assert heard[1] == b"succeeded"
