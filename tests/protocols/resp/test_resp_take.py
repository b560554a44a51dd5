"""JOB.TAKE: from which queues, how many, and on what terms; and what the records tell."""

from collections import Counter

import pytest
from support.replies_resp import ask, command, refused, replies
from support.resp_jobs import (
    NOT_AN_INTEGER,
    SYNTAX,
    as_jobs,
    no_value,
    push,
    take,
    take_many,
    unknown,
)
from support.simulated import SimulatedPeer, SimulatedServer

from taskyard.engine.model.job import CLIENT, PQUEUE, READY, REDIS

DAY = 86_400_000
CENTURY = 100 * 365 * DAY


@pytest.fixture
def yard() -> SimulatedServer:
    return SimulatedServer()


@pytest.fixture
def peer(yard: SimulatedServer) -> SimulatedPeer:
    return yard.connect("resp")


def test_as_many_are_taken_as_are_wanted_and_there(peer: SimulatedPeer) -> None:
    ids = [push(peer) for _ in range(7)]
    assert [job.id for job in take_many(peer, "q", "COUNT", 3)] == ids[:3]
    assert [job.id for job in take_many(peer, "q", "COUNT", 1000)] == ids[3:]
    assert take_many(peer, "q", "COUNT", 1000) == []


def test_a_thousand_jobs_may_be_taken_at_once(peer: SimulatedPeer) -> None:
    peer.send(command("JOB.PUSH", "q", "body") * 1001)
    peer.take()
    peer.send(command("JOB.TAKE", 1, "q", "COUNT", 1000))
    [reply] = replies(peer.take())
    taken = as_jobs(reply)
    assert [job.id for job in taken] == list(range(1, 1001))
    peer.send(b"".join(command("JOB.DONE", job.ref) for job in taken))
    peer.expect(b"+OK\r\n" * 1000)


def test_queues_are_looked_at_in_their_order(peer: SimulatedPeer) -> None:
    push(peer, "b", "b", "PRIORITY", 9)
    push(peer, "a", "a1")
    push(peer, "a", "a2")
    taken = take_many(peer, "a", "a", "b", "COUNT", 9, queues=3)
    assert [(job.queue, job.payload) for job in taken] == [
        (b"a", b"a1"),
        (b"a", b"a2"),
        (b"b", b"b"),
    ]


def test_at_random_every_queue_with_work_has_its_chance(peer: SimulatedPeer) -> None:
    for _ in range(60):
        push(peer, "a")
        push(peer, "b")
    wanted = ("a", "b", "empty", "RANDOM")
    taken = Counter(take(peer, *wanted, queues=3).queue for _ in range(60))
    assert set(taken) == {b"a", b"b"}
    assert min(taken.values()) > 10


@pytest.mark.parametrize(
    ("words", "error"),
    [
        ((0, "q"), SYNTAX),
        ((-1, "q"), SYNTAX),
        ((2, "q"), SYNTAX),
        ((10_001, "q"), SYNTAX),
        (("x", "q"), NOT_AN_INTEGER),
        ((1, "q", "r"), unknown("JOB.TAKE", "r", "COUNT, WAIT, TTR, RANDOM, BRIEF")),
        ((1, "q", ""), unknown("JOB.TAKE", "", "COUNT, WAIT, TTR, RANDOM, BRIEF")),
        ((1, "q", "COUNT"), no_value("JOB.TAKE", "COUNT")),
        ((1, "q", "COUNT", 0), "ERR COUNT must be between 1 and 1000"),
        ((1, "q", "COUNT", 1001), "ERR COUNT must be between 1 and 1000"),
        ((1, "q", "WAIT", -1), f"ERR WAIT must be between 0 and {CENTURY}"),
        ((1, "q", "WAIT", CENTURY + 1), f"ERR WAIT must be between 0 and {CENTURY}"),
        ((1, "q", "WAIT", "1.5"), NOT_AN_INTEGER),
        ((1, "q", "TTR", 0), f"ERR TTR must be between 1 and {DAY}"),
        ((1, "q", "TTR", DAY + 1), f"ERR TTR must be between 1 and {DAY}"),
    ],
)
def test_a_take_with_a_wrong_option_takes_nothing(
    yard: SimulatedServer, peer: SimulatedPeer, words: tuple[str | int, ...], error: str
) -> None:
    push(peer)
    assert refused(peer, "JOB.TAKE", *words) == error
    assert yard.engine.job(1).state == READY


@pytest.mark.parametrize(
    ("words", "name"),
    [
        (("JOB.PUSH", "q"), "job.push"),
        (("JOB.TAKE", 1), "job.take"),
        (("JOB.DONE",), "job.done"),
        (("JOB.DONE", "1-1-1", "a", "KEEP", 5, "b"), "job.done"),
        (("JOB.FAIL", "1-1-1"), "job.fail"),
        (("JOB.FAIL", "1-1-1", "a", "IN", 5, "x"), "job.fail"),
        (("JOB.EXTEND", "1-1-1"), "job.extend"),
        (("JOB.EXTEND", "1-1-1", 5, 5), "job.extend"),
        (("JOB.RETURN",), "job.return"),
        (("JOB.RETURN", "1-1-1", 1), "job.return"),
    ],
)
def test_a_command_needs_its_arguments(
    peer: SimulatedPeer, words: tuple[str | int, ...], name: str
) -> None:
    assert refused(peer, *words) == f"ERR wrong number of arguments for '{name}' command"


def test_another_database_has_queues_of_its_own(yard: SimulatedServer, peer: SimulatedPeer) -> None:
    other = yard.connect("resp")
    assert ask(peer, "SELECT", 3) == "OK"
    push(peer, "q", "body", "DEAD", "dead", "FAILS", 1)
    assert take_many(other) == []
    job = take(peer)
    assert (job.queue, job.name) == (b"q", b"q")
    assert ask(other, "JOB.FAIL", job.ref, "no") == "failed"
    assert take_many(other, "dead") == []
    assert take(other, "db3:dead").queue == b"db3:dead"


# Records


def test_records_tell_who_caused_them(yard: SimulatedServer, peer: SimulatedPeer) -> None:
    yard.broker.feed.subscribe(lambda: None)
    push(peer, "q", "body", "FAILS", 1)
    push(peer)
    ask(peer, "JOB.EXTEND", take(peer).ref, 1000)
    ask(peer, "JOB.RETURN", b"1-1-1")
    ask(peer, "JOB.FAIL", take(peer).ref, "no")
    ask(peer, "JOB.DONE", take(peer).ref)
    yard.advance(0.1)
    events = yard.broker.feed.events_from(0, 100)
    assert [(type(e.record).__name__, e.record.origin.dialect) for e in events] == [
        (name, CLIENT)
        for name in (
            "PushRecord",
            "PushRecord",
            "LeaseRecord",
            "ExtendRecord",
            "ReleaseRecord",
            "LeaseRecord",
            "FailRecord",
            "LeaseRecord",
            "FinishRecord",
        )
    ]
    assert {event.record.origin.holder for event in events} == {"peer:0#1"}


def test_jobs_of_each_kind_of_client_say_so(yard: SimulatedServer, peer: SimulatedPeer) -> None:
    push(peer)
    ask(peer, "RPUSH", "q", "x")
    ask(peer, "UPDATE", "key")
    assert [yard.engine.job(id).dialect for id in (1, 2, 3)] == [CLIENT, REDIS, PQUEUE]
