"""Leases by ref: done, fail, extend, return, from any connection, and no longer once they are over;
and waiting for one.
"""

import json

import pytest
from support.replies_resp import ask, command, read, refused
from support.resp_jobs import (
    ENDS,
    NOT_AN_INTEGER,
    Taken,
    came,
    expect_stale,
    no_value,
    push,
    take,
    take_many,
    unknown,
    wait_for,
)
from support.simulated import SimulatedPeer, SimulatedServer
from support.wire import Wire

from taskyard.engine.model.job import FAILED, LEASED, READY
from taskyard.engine.operations.finish import GIVEN_UP

UID = b"6ba7b810-9dad-41d1-80b4-00c04fd430c8"
DAY = 86_400_000
CENTURY = 100 * 365 * DAY


@pytest.fixture
def yard() -> SimulatedServer:
    return SimulatedServer()


@pytest.fixture
def peer(yard: SimulatedServer) -> SimulatedPeer:
    return yard.connect("resp")


@pytest.fixture
def other(yard: SimulatedServer) -> SimulatedPeer:
    return yard.connect("resp")


def now_ms(yard: SimulatedServer) -> int:
    return yard.clock.now() // 1000


# Ending a lease


def test_a_lease_is_ended_from_any_connection(
    yard: SimulatedServer, peer: SimulatedPeer, other: SimulatedPeer
) -> None:
    push(peer)
    push(peer, "q", "body", "FAILS", 1)
    first, second = take_many(peer, "q", "COUNT", 2)
    assert ask(other, "JOB.DONE", first.ref) == "OK"
    peer.close()
    assert take_many(other) == []  # the lease does not end with the connection
    assert ask(other, "JOB.EXTEND", second.ref, 5000) == now_ms(yard) + 5000
    assert ask(yard.connect("resp"), "JOB.FAIL", second.ref, "no") == "failed"
    expect_stale(other, first.ref)
    expect_stale(other, second.ref)


@pytest.mark.parametrize("result", [b"", b"pong", b"\x00\r\n\xff"])
def test_a_result_goes_to_who_waits_for_it(
    yard: SimulatedServer, peer: SimulatedPeer, result: bytes
) -> None:
    push(peer, "q", "body", "UID", UID, "TTL", 60_000)
    waiting = yard.connect("workq")
    waiting.send(b"result %b 5000\r\n" % UID)
    assert ask(peer, "JOB.DONE", take(peer).ref, result) == "OK"
    waiting.expect(b"+OK 1\r\n%b 1 %d\r\n%b\r\n" % (UID, len(result), result))


def test_a_finished_lease_is_stale(peer: SimulatedPeer) -> None:
    push(peer, "q", "body", "TTL", 60_000)
    job = take(peer)
    ask(peer, "JOB.DONE", job.ref)
    expect_stale(peer, job.ref)


def test_an_expired_lease_is_stale(yard: SimulatedServer, peer: SimulatedPeer) -> None:
    push(peer, "q", "body", "TTR", 1000)
    job = take(peer)
    yard.advance(0.999)
    assert ask(peer, "JOB.EXTEND", job.ref, 500) == now_ms(yard) + 500
    yard.advance(0.5)
    expect_stale(peer, job.ref)
    again = take(peer)
    assert (again.attempt, again.fails) == (2, 0)
    expect_stale(peer, job.ref)
    assert ask(peer, "JOB.DONE", again.ref) == "OK"


def test_the_lease_of_an_earlier_attempt_is_stale(peer: SimulatedPeer) -> None:
    push(peer, "q", "body", "FAILS", 9, "BACKOFF", 0, 0)
    first = take(peer)
    assert ask(peer, "JOB.FAIL", first.ref, "no") == "ready"
    expect_stale(peer, first.ref)
    second = take(peer)
    expect_stale(peer, first.ref)
    assert ask(peer, "JOB.RETURN", second.ref) == "OK"
    expect_stale(peer, second.ref)
    third = take(peer)
    assert (third.attempt, third.fails) == (3, 1)
    assert ask(peer, "JOB.DONE", third.ref) == "OK"


def test_a_returned_job_is_at_its_old_place_and_has_not_failed(peer: SimulatedPeer) -> None:
    ids = [push(peer) for _ in range(3)]
    first, second = take_many(peer, "q", "COUNT", 2)
    assert ask(peer, "JOB.RETURN", second.ref) == "OK"
    assert ask(peer, "JOB.RETURN", first.ref) == "OK"
    taken = take_many(peer, "q", "COUNT", 3)
    assert [(job.id, job.attempt, job.fails) for job in taken] == [
        (ids[0], 2, 0),
        (ids[1], 2, 0),
        (ids[2], 1, 0),
    ]


@pytest.mark.parametrize(("ttr", "good"), [(1, True), (DAY, True), (0, False), (DAY + 1, False)])
def test_a_lease_is_extended_within_limits(
    yard: SimulatedServer, peer: SimulatedPeer, ttr: int, good: bool
) -> None:
    push(peer, "q", "body", "TTR", 2000)
    job = take(peer)
    if good:
        assert ask(peer, "JOB.EXTEND", job.ref, ttr) == now_ms(yard) + ttr
        yard.advance((ttr - 1) / 1000)
        assert take_many(peer) == []
        yard.advance(0.001)
        expect_stale(peer, job.ref)
    else:
        text = f"ERR the time must be between 1 and {DAY} milliseconds"
        assert refused(peer, "JOB.EXTEND", job.ref, ttr) == text
        assert ask(peer, "JOB.DONE", job.ref) == "OK"


def test_a_fail_says_when_to_try_again(yard: SimulatedServer, peer: SimulatedPeer) -> None:
    push(peer, "q", "body", "FAILS", 0, "BACKOFF", 10, 10)
    assert ask(peer, "JOB.FAIL", take(peer).ref, "no", "IN", 0) == "ready"
    assert ask(peer, "JOB.FAIL", take(peer).ref, "no", "in", 1500) == "delayed"
    yard.advance(1.499)
    assert take_many(peer) == []
    yard.advance(0.001)
    assert ask(peer, "JOB.FAIL", take(peer).ref, "no", "IN", CENTURY) == "delayed"
    yard.advance(1)
    assert take_many(peer) == []


def test_a_time_to_try_again_does_not_help_when_the_fails_are_used_up(
    yard: SimulatedServer, peer: SimulatedPeer
) -> None:
    push(peer, "q", "body", "FAILS", 2)
    assert ask(peer, "JOB.FAIL", take(peer).ref, "no", "IN", 0) == "ready"
    assert ask(peer, "JOB.FAIL", take(peer).ref, "no", "IN", 0) == "failed"
    push(peer, "q", "body", "FAILS", 9, "ATTEMPTS", 1)
    assert ask(peer, "JOB.FAIL", take(peer).ref, "no", "IN", 0) == "failed"


@pytest.mark.parametrize("dead", [(), ("DEAD", "dead")])
def test_a_final_fail_is_the_last(
    yard: SimulatedServer, peer: SimulatedPeer, dead: tuple[str, ...]
) -> None:
    push(peer, "q", "body", "FAILS", 0, "BACKOFF", 10, 10, *dead)
    assert ask(peer, "JOB.FAIL", take(peer).ref, "no", "final") == "failed"
    job = yard.engine.job(1)
    assert job.ensure_extras().reason == GIVEN_UP
    assert (job.state, job.queue.name) == ((READY, "dead") if dead else (FAILED, "q"))


def test_a_fail_tells_the_same_whoever_waits_for_the_job(
    yard: SimulatedServer, peer: SimulatedPeer, other: SimulatedPeer
) -> None:
    push(peer, "q", "body", "FAILS", 0, "BACKOFF", 0, 0)
    job = take(peer)
    wait_for(other)
    assert ask(peer, "JOB.FAIL", job.ref, "no") == "ready"
    again = came(other)
    other.send(command("BLPOP", "q", 0))
    assert ask(peer, "JOB.FAIL", again.ref, "no") == "ready"
    assert read(other) == [b"q", b"body"]


@pytest.mark.parametrize(
    ("options", "error"),
    [
        (("WHAT",), unknown("JOB.FAIL", "WHAT", "IN, FINAL")),
        (("",), unknown("JOB.FAIL", "", "IN, FINAL")),
        (("IN",), no_value("JOB.FAIL", "IN")),
        (("FINAL", "FINAL"), "ERR JOB.FAIL takes IN or FINAL, and not both"),
        (("FINAL", "x"), unknown("JOB.FAIL", "x", "IN, FINAL")),
        (("IN", -1), f"ERR IN must be between 0 and {CENTURY}"),
        (("IN", CENTURY + 1), f"ERR IN must be between 0 and {CENTURY}"),
        (("IN", "soon"), NOT_AN_INTEGER),
    ],
)
def test_a_wrong_fail_leaves_the_lease_as_it_is(
    yard: SimulatedServer, peer: SimulatedPeer, options: tuple[str, ...], error: str
) -> None:
    push(peer)
    job = take(peer)
    assert refused(peer, "JOB.FAIL", job.ref, "no", *options) == error
    assert yard.engine.job(1).state == LEASED
    assert ask(peer, "JOB.DONE", job.ref) == "OK"


@pytest.mark.parametrize(
    "ref",
    [
        "", "1", "1-1", "1-1-1-1", "x-1-1", "1-x-1", "1-1-x", "1--1", "-1-1-1", "1-1-1 ",
        "01-1-1", "+1-1-1", "9223372036854775808-1-1", "1-1-99999999999999999999",
    ],
)  # fmt: skip
def test_what_is_no_ref_is_refused(peer: SimulatedPeer, ref: str) -> None:
    for verb, *rest in ENDS:
        assert refused(peer, verb, ref, *rest) == "ERR invalid ref", verb


@pytest.mark.parametrize(
    "ref", ["2-1-1", "0-1-1", "1-2-1", "1-0-1", "1-1-2", "1-1-0", f"{2**63 - 1}-1-1",
            f"1-{2**63 - 1}-1", f"1-1-{2**63 - 1}", f"{2**32 + 1}-1-1"],
)  # fmt: skip
def test_a_ref_of_nothing_is_stale(peer: SimulatedPeer, ref: str) -> None:
    push(peer)
    assert take(peer).ref == b"1-1-1"
    expect_stale(peer, ref.encode())


def test_a_job_that_is_not_leased_has_no_ref(peer: SimulatedPeer) -> None:
    push(peer)
    push(peer, "q", "body", "IN", 5000)
    for ref in (b"1-1-0", b"1-1-1", b"2-1-0"):
        expect_stale(peer, ref)


# Over a restart


@pytest.mark.parametrize("how", ["restart", "kill", "crash"])
def test_a_lease_survives_the_server(yard: SimulatedServer, peer: SimulatedPeer, how: str) -> None:
    push(peer, "q", "done", "TTR", 10_000)
    push(peer, "q", "late", "TTR", 1000, "PRIORITY", -1)
    first, second = take_many(peer, "q", "COUNT", 2)
    push(peer, "other")  # so the records of the leases before it are on disk
    getattr(yard, how)()
    peer = yard.connect("resp")
    assert take_many(peer) == []
    assert ask(peer, "JOB.EXTEND", first.ref, 2000) == now_ms(yard) + 2000
    yard.advance(1)
    expect_stale(peer, second.ref)
    assert take(peer).ref == b"2-2-2"
    assert ask(peer, "JOB.DONE", first.ref) == "OK"
    expect_stale(peer, first.ref)


def test_a_ref_of_a_lease_that_was_lost_is_not_that_of_another(
    yard: SimulatedServer, peer: SimulatedPeer
) -> None:
    push(peer)
    lost = take(peer)
    yard.crash()  # nobody waited for the record of the lease
    peer = yard.connect("resp")
    expect_stale(peer, lost.ref)
    again = take(peer)
    assert (again.attempt, again.ref) == (1, b"1-2-1")
    expect_stale(peer, lost.ref)
    assert ask(peer, "JOB.DONE", again.ref) == "OK"


def test_the_only_attempt_is_not_forgotten(yard: SimulatedServer, peer: SimulatedPeer) -> None:
    push(peer, "q", "body", "ATTEMPTS", 1)
    job = take(peer)
    yard.crash()
    peer = yard.connect("resp")
    assert take_many(peer) == []
    assert ask(peer, "JOB.DONE", job.ref) == "OK"


def test_everything_about_a_job_survives(yard: SimulatedServer, peer: SimulatedPeer) -> None:
    push(
        peer,
        "q",
        "body",
        "NAME",
        "n",
        "UID",
        UID,
        "FAILS",
        3,
        "DEAD",
        "dead",
        "TTR",
        7000,
        "BACKOFF",
        0,
        0,
    )
    ask(peer, "JOB.FAIL", take(peer).ref, "no")
    yard.restart()
    peer = yard.connect("resp")
    deadline = now_ms(yard) + 7000
    assert take(peer) == Taken(b"1-2-2", 1, UID, b"q", b"n", 2, 1, deadline, b"body")


# Waiting


def test_a_job_goes_to_who_waits(shared_wire: Wire) -> None:
    waiting, peer = shared_wire.connect("resp"), shared_wire.connect("resp")
    wait_for(waiting, "waited", 60_000, "TTR", 1234, "COUNT", 5)
    waiting.expect_nothing()
    id = push(peer, "waited")
    job = came(waiting)
    assert (job.id, job.queue) == (id, b"waited")
    assert ask(peer, "JOB.DONE", job.ref) == "OK"


def test_a_wait_comes_to_its_end(yard: SimulatedServer, peer: SimulatedPeer) -> None:
    wait_for(peer, "q", 1500)
    peer.send(command("PING"))
    yard.advance(1.499)
    peer.expect_nothing()
    yard.advance(0.001)
    peer.expect(b"*0\r\n+PONG\r\n")
    push(peer)
    assert yard.engine.job(1).state == READY


@pytest.mark.parametrize("options", [(), ("WAIT", 0)])
def test_without_a_wait_the_answer_comes_at_once(
    peer: SimulatedPeer, options: tuple[str, int]
) -> None:
    assert take_many(peer, "q", *options) == []


def test_a_longest_wait_is_for_ever(yard: SimulatedServer, peer: SimulatedPeer) -> None:
    wait_for(peer, "q", CENTURY)
    yard.advance(1000 * 86_400)
    push(yard.connect("resp"))
    came(peer)


def test_who_waits_gets_all_that_one_transaction_brings(
    yard: SimulatedServer, peer: SimulatedPeer, other: SimulatedPeer
) -> None:
    wait_for(peer, "q", 60_000, "COUNT", 3)
    assert ask(other, "RPUSH", "q", "a", "b", "c", "d") == 4
    reply = read(peer)
    assert [Taken(*job).payload for job in reply] == [b"a", b"b", b"c"]


def test_waiters_of_all_kinds_are_served_as_they_came(yard: SimulatedServer) -> None:
    first, second = yard.connect("resp"), yard.connect("resp")
    masenko, fourth, workq = yard.connect(), yard.connect("resp"), yard.connect("workq")
    wait_for(first)
    second.send(command("BLPOP", "q", 0))
    masenko.send(b'FETCH {"queues":["q"],"timeout":"40s"}\n')
    fourth.send(command("BLMOVE", "q", "moved", "LEFT", "RIGHT", 0))
    workq.send(b"lease q 60000\r\n")
    last = yard.connect("resp")
    wait_for(last)
    pusher = yard.connect("resp")
    for number in range(1, 7):
        push(pusher, "q", b"%d" % number, *(("UID", UID) if number == 5 else ()))
    assert came(first).payload == b"1"
    assert read(second) == [b"q", b"2"]
    assert json.loads(masenko.read_line()[3:])["id"] == 3
    assert read(fourth) == b"4"
    workq.expect(b"+OK 1\r\n%b q 1\r\n5\r\n" % UID)
    assert came(last).payload == b"6"


def test_who_leaves_while_waiting_is_given_nothing(
    yard: SimulatedServer, peer: SimulatedPeer, other: SimulatedPeer
) -> None:
    wait_for(peer)
    wait_for(other)
    peer.close()
    push(yard.connect("resp"))
    came(other)
