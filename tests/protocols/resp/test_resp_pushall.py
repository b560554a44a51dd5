"""JOB.PUSHALL: many jobs in one command, all of them or none."""

from typing import Any
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.effort import effort
from support.naming import BAD_QUEUE, NAME_RULE
from support.replies_resp import Failure, Word, ask, command, read, refused
from support.resp_jobs import (
    NOT_AN_INTEGER,
    SYNTAX,
    no_value,
    push,
    take,
    take_many,
    unknown,
    wait_for,
)
from support.simulated import SimulatedPeer, SimulatedServer
from support.snapshot import snapshot
from support.wire import Wire, exchange

from taskyard.engine.model.state import EngineSettings

UIDS = [str(UUID(int=number + (1 << 100))) for number in range(1, 1001)]
COUNT = "ERR one command pushes 1 to 1000 jobs"
AFTER = "ERR AFTER must name an id, a uid, or -k for the k-th job before this one"


@pytest.fixture
def yard() -> SimulatedServer:
    return SimulatedServer()


@pytest.fixture
def peer(yard: SimulatedServer) -> SimulatedPeer:
    return yard.connect("resp")


def all_of(*jobs: tuple[Word, ...]) -> tuple[Word, ...]:
    words: list[Word] = ["JOB.PUSHALL", len(jobs)]
    for job in jobs:
        words += [len(job), *job]
    return tuple(words)


def mistake(text: str, job: int) -> str:
    return f"{text} (job {job} of the command)"


def is_empty(yard: SimulatedServer) -> bool:
    return yard.engine.state.next_id == 1


# Bytes


def test_jobs_are_pushed_together(wire: Wire) -> None:
    peer = wire.connect("resp")
    exchange(
        peer,
        b"*8\r\n$11\r\nJOB.PUSHALL\r\n$1\r\n2\r\n$1\r\n2\r\n$1\r\nq\r\n$1\r\na\r\n"
        b"$1\r\n2\r\n$1\r\nr\r\n$1\r\nb\r\n",
        b"*2\r\n:1\r\n:2\r\n",
    )
    exchange(
        peer,
        b"job.pushall 2 4 q c PRIORITY 5 5 q d after 1 -1\r\n",
        b"*2\r\n:3\r\n:4\r\n",
    )
    assert [job.payload for job in take_many(peer, "q", "COUNT", 9)] == [b"c", b"a"]
    assert take(peer, "r").payload == b"b"


# What the jobs may wait for


def test_a_job_waits_for_others_of_the_command(yard: SimulatedServer, peer: SimulatedPeer) -> None:
    earlier = push(peer, "q", "first")
    ids = ask(
        peer,
        *all_of(
            ("q", "a"),
            ("q", "b", "UID", UIDS[0]),
            ("q", "c", "AFTER", 3, -2, -1, earlier),
            ("q", "d", "AFTER", 1, UIDS[0]),
        ),
    )
    assert ids == [2, 3, 4, 5]
    assert yard.engine.job(4).ensure_extras().blockers == {1, 2, 3}
    assert yard.engine.job(5).ensure_extras().blockers == {3}
    assert [job.payload for job in take_many(peer, "q", "COUNT", 9)] == [b"first", b"a", b"b"]
    ask(peer, "JOB.DONE", "3-1-1")
    assert take(peer).payload == b"d"


@pytest.mark.parametrize("name", ["0", "-1", "-2"])
def test_what_is_not_before_a_job_cannot_block_it(
    yard: SimulatedServer, peer: SimulatedPeer, name: str
) -> None:
    assert refused(peer, *all_of(("q", "a", "AFTER", 1, name))) == mistake(AFTER, 1)
    assert is_empty(yard)


def test_a_later_job_cannot_be_waited_for(yard: SimulatedServer, peer: SimulatedPeer) -> None:
    text = refused(peer, *all_of(("q", "a", "AFTER", 1, UIDS[0]), ("q", "b", "UID", UIDS[0])))
    assert text == mistake(f"NOJOB there is no job {UIDS[0]} to wait for, or it is forgotten", 1)
    assert is_empty(yard)


# All or none


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        (("a b", "x"), BAD_QUEUE),
        (("q", "x", "TTR"), no_value("JOB.PUSHALL", "TTR")),
        (("q", "x", "COLOUR", "red"), unknown("JOB.PUSHALL", "COLOUR")),
        (("q", "x", "TTR", "-1"), "ERR TTR must be between 0 and 86400000"),
        (("q", "x", "PRIORITY", "x"), NOT_AN_INTEGER),
        (("q", "x", "NAME", ""), f"ERR name: {NAME_RULE}"),
        (("q", "x", "UID", "x"), "ERR uid: must be a UUID in its canonical form"),
        (("q", "x", "UID", UIDS[0]), "ERR uid: two jobs of this command have it"),
        (("q", "x", "KEY", "k"), "ERR key: two jobs of this command have it"),
        (("q", "x", "KEY", ""), "ERR key: must be 1 to 65535 bytes"),
        (("q", "x", "AFTER", 1, "x"), NOT_AN_INTEGER),
    ],
)
def test_one_that_is_wrong_spoils_them_all(
    yard: SimulatedServer, peer: SimulatedPeer, wrong: tuple[Word, ...], text: str
) -> None:
    right: tuple[Word, ...] = ("q", "a", "UID", UIDS[0], "KEY", "k")
    assert refused(peer, *all_of(right, wrong, ("q", "b"))) == mistake(text, 2)
    assert is_empty(yard)


@pytest.mark.parametrize(
    ("words", "text"),
    [
        ((0, 2, "q", "x"), COUNT),
        ((-1, 2, "q", "x"), COUNT),
        ((1001, 2, "q", "x"), COUNT),
        (("x", 2, "q", "x"), NOT_AN_INTEGER),
        ((2, 2, "q", "x"), mistake(SYNTAX, 2)),
        ((2, 2, "q", "x", 2), mistake(SYNTAX, 2)),
        ((1, 3, "q", "x"), mistake(SYNTAX, 1)),
        ((1, 1, "q", "x"), mistake(SYNTAX, 1)),
        ((1, -1, "q", "x"), mistake(SYNTAX, 1)),
        ((1, "x", "q", "x"), mistake(NOT_AN_INTEGER, 1)),
        ((1, 2, "q", "x", "TTR", 5), SYNTAX),
        ((1, 2, "q"), "ERR wrong number of arguments for 'job.pushall' command"),
    ],
)
def test_groups_must_be_what_they_say(
    yard: SimulatedServer, peer: SimulatedPeer, words: tuple[Word, ...], text: str
) -> None:
    assert refused(peer, "JOB.PUSHALL", *words) == text
    assert is_empty(yard)
    assert ask(peer, "PING") == "PONG"


def test_a_full_queue_takes_none(yard: SimulatedServer) -> None:
    yard = SimulatedServer(settings=EngineSettings(max_jobs=2))
    peer = yard.connect("resp")
    text = refused(peer, *all_of(("r", "x"), *[("q", "x")] * 3))
    assert text == mistake("OOM queue is full: it may have 2 jobs", 4)
    assert is_empty(yard)


def test_a_key_that_is_taken_spoils_them_all(yard: SimulatedServer, peer: SimulatedPeer) -> None:
    first = push(peer, "q", "x", "KEY", "k")
    text = refused(peer, *all_of(("q", "a"), ("q", "b", "KEY", "k")))
    assert text == mistake(f"DUPLICATE {first} is a job with this key, and waits", 2)
    assert ask(peer, *all_of(("q", "a"), ("r", "b", "KEY", "k"))) == [2, 3]


# Repeated


def test_a_command_that_is_repeated_pushes_nothing(
    yard: SimulatedServer, peer: SimulatedPeer
) -> None:
    jobs = all_of(
        ("q", "a", "UID", UIDS[0], "KEY", "k"), ("q", "b", "UID", UIDS[1], "AFTER", 1, -1)
    )
    assert ask(peer, *jobs) == [1, 2]
    before = yard.engine.records.end_position()
    assert ask(peer, *jobs) == [1, 2]
    ask(peer, "JOB.DONE", take(peer).ref)
    ask(peer, "JOB.DONE", take(peer).ref)
    assert ask(peer, *jobs) == [1, 2]
    assert yard.engine.records.end_position() > before
    yard.restart()
    assert ask(yard.connect("resp"), *jobs) == [1, 2]
    assert yard.engine.state.next_id == 3


def test_one_that_is_repeated_among_new_ones_is_refused(
    yard: SimulatedServer, peer: SimulatedPeer
) -> None:
    push(peer, "q", "x", "UID", UIDS[0])
    for other in ((), ("UID", UIDS[1])):
        text = refused(peer, *all_of(("q", "a", *other), ("q", "b", "UID", UIDS[0])))
        assert text == mistake("DUPLICATE 1 is a job with this uid", 2)
    assert yard.engine.state.next_id == 2


def test_one_whose_uid_is_taken_is_refused_with_all_others(
    yard: SimulatedServer, peer: SimulatedPeer
) -> None:
    push(peer, "q", "x", "UID", UIDS[0])
    taken = "UIDTAKEN another push has this uid, and this one does not repeat it"
    for queue, before in (("other", ("q", "x", "UID", UIDS[0])), ("other", ("other", "a"))):
        text = refused(peer, *all_of(before, (queue, "b", "UID", UIDS[0])))
        assert text == mistake(taken, 2)
    text = refused(peer, *all_of(("other", "b", "UID", UIDS[0])))
    assert text == mistake(taken, 1)
    assert yard.engine.state.next_id == 2


def test_jobs_without_uids_are_pushed_again(peer: SimulatedPeer) -> None:
    jobs = all_of(("q", "a"), ("q", "b"))
    assert [ask(peer, *jobs), ask(peer, *jobs)] == [[1, 2], [3, 4]]


# Many


def test_a_thousand_jobs_are_one_command(yard: SimulatedServer, peer: SimulatedPeer) -> None:
    jobs: list[tuple[Word, ...]] = [("q", "x", "UID", uid) for uid in UIDS]
    peer.arrive(command(*all_of(*jobs)) + b"LLEN q\r\n")
    assert is_empty(yard)  # they are not even read: that is more than one turn
    yard.run_pending()
    assert read(peer) == list(range(1, 1001))
    assert read(peer) == 1000
    assert ask(peer, *all_of(*jobs)) == list(range(1, 1001))


def test_a_mistake_far_behind_is_found(yard: SimulatedServer, peer: SimulatedPeer) -> None:
    jobs: list[tuple[Word, ...]] = [("q", "x")] * 999
    text = refused(peer, *all_of(*jobs, ("q", "x", "TTR", "x")))
    assert text == mistake(NOT_AN_INTEGER, 1000)
    assert ask(peer, "PING") == "PONG"
    assert is_empty(yard)


def test_a_client_that_goes_meanwhile_pushes_nothing(
    yard: SimulatedServer, peer: SimulatedPeer
) -> None:
    jobs: list[tuple[Word, ...]] = [("q", "x")] * 1000
    peer.arrive(command(*all_of(*jobs)))
    peer.close()
    assert is_empty(yard)


def test_commands_wait_for_it_between_multi_and_exec(peer: SimulatedPeer) -> None:
    jobs: list[tuple[Word, ...]] = [("q", "x")] * 600
    peer.send(b"MULTI\r\n" + command(*all_of(*jobs)) + b"LLEN q\r\nEXEC\r\nPING\r\n")
    peer.expect(b"+OK\r\n+QUEUED\r\n+QUEUED\r\n")
    assert read(peer) == [list(range(1, 601)), 600]
    assert read(peer) == "PONG"


def test_those_who_wait_are_served(yard: SimulatedServer, peer: SimulatedPeer) -> None:
    waiting = [yard.connect("resp") for _ in range(2)]
    for one in waiting:
        wait_for(one)
    assert ask(peer, *all_of(("q", "a"), ("q", "b"), ("q", "c"))) == [1, 2, 3]
    assert [read(one)[0][8] for one in waiting] == [b"a", b"b"]
    assert take(peer).payload == b"c"


def test_queues_are_those_of_the_database(yard: SimulatedServer, peer: SimulatedPeer) -> None:
    ask(peer, "SELECT", 2)
    ask(peer, *all_of(("q", "a"), ("q", "b")))
    assert yard.engine.queue(b"db2:q") is not None
    assert yard.engine.queue(b"q") is None


# The same as one by one

words: st.SearchStrategy[tuple[Word, ...]] = st.one_of(
    st.just(()),
    st.tuples(st.just("NAME"), st.sampled_from(["n", "m"])),
    st.tuples(st.just("UID"), st.sampled_from(UIDS[:4])),
    st.tuples(st.just("KEY"), st.sampled_from(["k", "l"])),
    st.tuples(st.just("PRIORITY"), st.integers(-2, 2)),
    st.tuples(st.just("IN"), st.integers(0, 5000)),
    st.tuples(st.just("TTL"), st.integers(0, 5000)),
    st.tuples(st.just("FAILS"), st.integers(0, 3)),
    st.tuples(st.just("BACKOFF"), st.integers(0, 5), st.integers(0, 50)),
    st.tuples(st.just("DEAD"), st.just("morgue")),
    st.tuples(st.just("AFTER"), st.just(1), st.sampled_from([*UIDS[:2], 1, 2, 3])),
)
jobs_drawn = st.lists(
    st.builds(
        lambda queue, payload, first, second: (queue, payload, *first, *second),
        st.sampled_from(["q", "r"]),
        st.binary(max_size=3),
        words,
        words,
    ),
    min_size=1,
    max_size=6,
)


@settings(max_examples=effort(150, 30))
@given(jobs_drawn)
def test_it_is_the_same_as_one_push_after_the_other(jobs: list[tuple[Any, ...]]) -> None:
    together, apart = SimulatedServer(), SimulatedServer()
    reply = ask(together.connect("resp"), *all_of(*jobs))
    peer = apart.connect("resp")
    peer.send(b"".join(command("JOB.PUSH", *job) for job in jobs))
    answers = [read(peer) for _ in jobs]
    wrong = [number for number, one in enumerate(answers, 1) if isinstance(one, Failure)]
    if isinstance(reply, Failure):
        assert is_empty(together)
        # The words of all jobs are read before the first is pushed.
        assert any(reply.endswith(f"(job {number} of the command)") for number in wrong)
    else:
        assert reply == answers
        assert snapshot(together.engine.state) == snapshot(apart.engine.state)


def test_all_of_them_wait_for_so_many_others(yard: SimulatedServer, peer: SimulatedPeer) -> None:
    push(peer)
    waiting: tuple[Word, ...] = ("q", "x", "AFTER", 255, *[1] * 255)
    too_many = ask(peer, *all_of(*[waiting] * 126))
    assert too_many == mistake("ERR AFTER: one command names at most 32000 jobs", 126)
    assert yard.engine.state.next_id == 2
    assert ask(peer, *all_of(*[waiting] * 125)) == list(range(2, 127))


def test_those_who_wait_for_many_are_read_in_smaller_portions(yard: SimulatedServer) -> None:
    peer, other = yard.connect("resp"), yard.connect("resp")
    push(peer)
    waiting: tuple[Word, ...] = ("q", "x", "AFTER", 255, *[1] * 255)
    peer.arrive(command(*all_of(*[waiting] * 60)))  # without those, that is a turn
    other.arrive(command("JOB.PUSH", "r", "x"))
    yard.run_pending()
    assert read(other) == 2
    assert read(peer) == list(range(3, 63))
