"""JOB.PUSH: every option, its limits, and what is refused."""

import pytest
from support.naming import BAD_QUEUE, NAME_RULE
from support.replies_resp import Failure, Word, ask, command, read, refused, replies
from support.resp_jobs import (
    NOT_AN_INTEGER,
    Taken,
    as_jobs,
    came,
    no_value,
    push,
    take,
    take_many,
    unknown,
    wait_for,
)
from support.simulated import SimulatedPeer, SimulatedServer
from support.wire import Wire, exchange

from taskyard.engine.model.job import DELAYED, READY
from taskyard.engine.model.state import EngineSettings

UID = b"6ba7b810-9dad-41d1-80b4-00c04fd430c8"
TAKEN = "UIDTAKEN another push has this uid, and this one does not repeat it"
MAX_INT = 2**63 - 1
DAY = 86_400_000
CENTURY = 100 * 365 * DAY


@pytest.fixture
def yard() -> SimulatedServer:
    return SimulatedServer()


@pytest.fixture
def peer(yard: SimulatedServer) -> SimulatedPeer:
    return yard.connect("resp")


def now_ms(yard: SimulatedServer) -> int:
    return yard.clock.now() // 1000


# Bytes


def test_a_job_is_pushed_taken_and_done(wire: Wire) -> None:
    peer = wire.connect("resp")
    payload = b"\x00\r\n\xff"
    peer.send(b"*3\r\n$8\r\nJOB.PUSH\r\n$5\r\nmails\r\n$4\r\n" + payload + b"\r\n")
    peer.expect(b":1\r\n")
    peer.send(b"*3\r\n$8\r\njob.take\r\n$1\r\n1\r\n$5\r\nmails\r\n")
    peer.expect(b"*1\r\n*9\r\n$5\r\n1-1-1\r\n:1\r\n$36\r\n")
    assert len(peer.read_line()) == 38
    peer.expect(b"$5\r\nmails\r\n$5\r\nmails\r\n:1\r\n:0\r\n:")
    assert int(peer.read_line()) > 1_700_000_000_000
    peer.expect(b"$4\r\n" + payload + b"\r\n")
    exchange(peer, b"JOB.DONE 1-1-1\r\n", b"+OK\r\n")
    exchange(peer, b"JOB.TAKE 1 mails\r\n", b"*0\r\n")
    exchange(peer, b"JOB.DONE 1-1-1\r\n", b"-STALE the lease is over, or the job is gone\r\n")


def test_a_job_shows_what_it_is(yard: SimulatedServer, peer: SimulatedPeer) -> None:
    push(peer, "q", "body", "NAME", "send", "UID", UID, "TTR", 2500)
    assert take(peer) == Taken(b"1-1-1", 1, UID, b"q", b"send", 1, 0, now_ms(yard) + 2500, b"body")


def test_a_job_without_a_uid_has_one_all_the_same(peer: SimulatedPeer) -> None:
    first, second = push(peer), push(peer)
    uids = [job.uid for job in take_many(peer, "q", "COUNT", 2)]
    assert len(set(uids)) == 2
    for uid in uids:
        assert refused(peer, "JOB.PUSH", "q", "x", "UID", uid) == TAKEN
    assert (first, second) == (1, 2)


def test_words_may_be_in_either_case_and_in_any_order(
    yard: SimulatedServer, peer: SimulatedPeer
) -> None:
    push(peer, "q", "body", "ttr", 1000, "Priority", 3, "name", "n", "fails", 0)
    job = yard.engine.job(1)
    assert (job.name, job.priority, job.policy.ttr, job.policy.max_fails) == ("n", 3, 10**6, -1)


# The options of a push


def test_a_plain_push_has_the_defaults(yard: SimulatedServer, peer: SimulatedPeer) -> None:
    push(peer)
    job = yard.engine.job(1)
    policy = job.policy
    assert (job.state, job.priority, job.run_at, job.extras) == (READY, 0, 0, None)
    assert (policy.ttr, policy.max_attempts, policy.dead_queue) == (0, 0, "")
    ask(peer, "JOB.FAIL", take(peer).ref, "no")
    assert take_many(peer) == []


def test_the_higher_priority_comes_first(peer: SimulatedPeer) -> None:
    priorities = [0, 5, -(2**63), 2**63 - 1, 5]
    for priority in priorities:
        push(peer, "q", priority, "PRIORITY", priority)
    taken = [int(job.payload) for job in take_many(peer, "q", "COUNT", 9)]
    assert taken == sorted(priorities, reverse=True)


@pytest.mark.parametrize("word", ["AT", "IN"])
def test_a_job_comes_when_its_time_has_come(
    yard: SimulatedServer, peer: SimulatedPeer, word: str
) -> None:
    push(peer, "q", "late", word, 1500 + (now_ms(yard) if word == "AT" else 0))
    yard.advance(1.499)
    assert take_many(peer) == []
    yard.advance(0.001)
    assert take(peer).payload == b"late"


@pytest.mark.parametrize("options", [("AT", 0), ("AT", 1), ("IN", 0)])
def test_a_time_that_is_past_is_now(
    yard: SimulatedServer, peer: SimulatedPeer, options: tuple[str, int]
) -> None:
    push(peer, "q", "body", *options)
    assert yard.engine.job(1).state == READY


def test_of_two_times_the_last_one_counts(yard: SimulatedServer, peer: SimulatedPeer) -> None:
    push(peer, "q", "body", "IN", 5000, "IN", 1000)
    yard.advance(1)
    take(peer)


@pytest.mark.parametrize(
    ("job", "taker", "lasts"),
    [
        ((), (), 60_000),
        (("TTR", 0), (), 60_000),
        (("TTR", 1), (), 1),
        (("TTR", DAY), (), DAY),
        ((), ("TTR", 1), 1),
        ((), ("TTR", DAY), DAY),
        (("TTR", 5000), ("TTR", 7000), 5000),
        (("TTR", 7000), ("TTR", 5000), 5000),
    ],
)
def test_a_lease_lasts_as_long_as_the_job_and_the_taker_allow(
    yard: SimulatedServer,
    peer: SimulatedPeer,
    job: tuple[str, int],
    taker: tuple[str, int],
    lasts: int,
) -> None:
    push(peer, "q", "body", *job)
    assert take(peer, "q", *taker).deadline == now_ms(yard) + lasts
    yard.advance((lasts - 1) / 1000)
    assert take_many(peer) == []
    yard.advance(0.001)
    assert take(peer).attempt == 2


def test_the_default_of_a_lease_is_a_setting() -> None:
    yard = SimulatedServer(settings=EngineSettings(default_ttr=7_000_000))
    peer = yard.connect("resp")
    push(peer)
    assert take(peer).deadline == now_ms(yard) + 7000


def test_a_job_is_forgotten_after_its_time_to_live(
    yard: SimulatedServer, peer: SimulatedPeer
) -> None:
    push(peer, "q", "ready", "TTL", 1000)
    push(peer, "q", "leased", "TTL", 1000, "PRIORITY", 1)
    job = take(peer)
    yard.advance(0.999)
    assert ask(peer, "JOB.EXTEND", job.ref, 60_000) == now_ms(yard) + 60_000
    yard.advance(0.001)
    assert take_many(peer) == []
    assert refused(peer, "JOB.DONE", job.ref).startswith("STALE ")
    assert ask(peer, "EXISTS", "q") == 0


def test_a_result_is_kept_as_long_as_the_time_to_live(
    yard: SimulatedServer, peer: SimulatedPeer
) -> None:
    push(peer, "q", "body", "TTL", 5000, "UID", UID)
    assert ask(peer, "JOB.DONE", take(peer).ref, b"pong\r\n") == "OK"
    reader = yard.connect("workq")
    exchange(reader, b"result %b 0\r\n" % UID, b"+OK 1\r\n%b 1 6\r\npong\r\n\r\n" % UID)
    yard.advance(5)
    exchange(reader, b"result %b 0\r\n" % UID, b"-NOT-FOUND\r\n")


@pytest.mark.parametrize("attempts", [1, 3])
def test_attempts_are_counted_whatever_becomes_of_them(
    yard: SimulatedServer, peer: SimulatedPeer, attempts: int
) -> None:
    push(peer, "q", "body", "ATTEMPTS", attempts, "TTR", 1000, "FAILS", 0)
    for number in range(1, attempts + 1):
        assert take(peer).attempt == number
        yard.advance(1)
    assert take_many(peer) == []
    assert yard.engine.job(1).ensure_extras().reason == "attempts used up"


@pytest.mark.parametrize(("fails", "tries"), [(1, 1), (2, 2), (5, 5)])
def test_the_nth_fail_is_final(peer: SimulatedPeer, fails: int, tries: int) -> None:
    push(peer, "q", "body", "FAILS", fails, "BACKOFF", 0, 0)
    for number in range(tries):
        job = take(peer)
        assert (job.attempt, job.fails) == (number + 1, number)
        outcome = ask(peer, "JOB.FAIL", job.ref, "no")
        assert outcome == ("failed" if number + 1 == tries else "ready")
    assert take_many(peer) == []


def test_with_no_limit_no_fail_is_final(peer: SimulatedPeer) -> None:
    push(peer, "q", "body", "FAILS", 0, "BACKOFF", 0, 0)
    for number in range(30):
        job = take(peer)
        assert job.fails == number
        assert ask(peer, "JOB.FAIL", job.ref, "no") == "ready"


def test_back_off_doubles_up_to_its_cap(yard: SimulatedServer, peer: SimulatedPeer) -> None:
    push(peer, "q", "body", "FAILS", 0, "BACKOFF", 1000, 5000)
    for most in (1000, 2000, 4000, 5000, 5000):
        assert ask(peer, "JOB.FAIL", take(peer).ref, "no") == "delayed"
        yard.advance((most // 2 - 1) / 1000)
        assert take_many(peer) == []
        yard.advance((most - most // 2 + 1) / 1000)


def test_a_back_off_of_nothing_is_none(peer: SimulatedPeer) -> None:
    push(peer, "q", "body", "FAILS", 0, "BACKOFF", 0, 0)
    assert ask(peer, "JOB.FAIL", take(peer).ref, "no") == "ready"


def test_a_failed_job_goes_to_its_dead_queue(peer: SimulatedPeer) -> None:
    push(peer, "q", "body", "DEAD", "dead", "UID", UID, "FAILS", 1)
    assert ask(peer, "JOB.FAIL", take(peer).ref, "no") == "failed"
    assert take_many(peer) == []
    dead = take(peer, "dead")
    assert (dead.id, dead.uid, dead.payload) == (1, UID, b"body")
    assert (dead.attempt, dead.fails) == (1, 0)
    assert ask(peer, "JOB.FAIL", dead.ref, "no") == "failed"
    assert take_many(peer, "dead") == []


def test_a_failed_job_is_with_who_waits_at_the_dead_queue(
    yard: SimulatedServer, peer: SimulatedPeer
) -> None:
    waiting = yard.connect("resp")
    waiting.send(command("BLPOP", "dead", 0))
    push(peer, "q", "body", "DEAD", "dead", "FAILS", 1)
    assert ask(peer, "JOB.FAIL", take(peer).ref, "no") == "failed"
    assert read(waiting) == [b"dead", b"body"]


def test_a_job_waits_for_those_it_comes_after(yard: SimulatedServer, peer: SimulatedPeer) -> None:
    first, second = push(peer, "first"), push(peer, "second")
    push(peer, "q", "body", "AFTER", 2, first, second)
    assert ask(peer, "JOB.DONE", take(peer, "first").ref) == "OK"
    assert take_many(peer) == []
    wait_for(peer)
    assert ask(yard.connect("resp"), "LPOP", "second") == b"body"
    assert came(peer).id == 3


def test_a_job_fails_with_the_one_it_comes_after(
    yard: SimulatedServer, peer: SimulatedPeer
) -> None:
    first = push(peer, "first", "body", "FAILS", 1)
    push(peer, "q", "body", "AFTER", 1, first, "DEAD", "dead")
    assert ask(peer, "JOB.FAIL", take(peer, "first").ref, "no") == "failed"
    assert take(peer, "dead").id == 2
    assert take_many(peer) == []


def test_jobs_that_are_over_or_were_never_there_do_not_block(peer: SimulatedPeer) -> None:
    done = push(peer, "first")
    ask(peer, "JOB.DONE", take(peer, "first").ref)
    push(peer, "q", "body", "AFTER", 3, done, 12345, MAX_INT)
    take(peer)


def test_as_many_may_be_waited_for_as_there_can_be(
    yard: SimulatedServer, peer: SimulatedPeer
) -> None:
    ids = [push(peer, "first") for _ in range(255)]
    blocked = push(peer, "q", "body", "AFTER", 255, *ids)
    peer.send(command("JOB.TAKE", 1, "first", "COUNT", 255))
    [reply] = replies(peer.take())
    for job in as_jobs(reply):
        assert take_many(peer) == []
        ask(peer, "JOB.DONE", job.ref)
    assert take(peer).id == blocked
    text = refused(peer, "JOB.PUSH", "q", "x", "AFTER", 256, *([1] * 256))
    assert text == "ERR AFTER must be between 1 and 255"


def test_a_uid_is_taken_once(yard: SimulatedServer, peer: SimulatedPeer) -> None:
    duplicate = "DUPLICATE 1 is a job with this uid"
    push(peer, "q", "body", "UID", UID)
    assert refused(peer, "JOB.PUSH", "q", "x", "UID", UID.upper()) == duplicate
    job = take(peer)
    assert refused(peer, "JOB.PUSH", "q", "x", "UID", UID) == duplicate
    ask(peer, "JOB.DONE", job.ref)
    assert refused(peer, "JOB.PUSH", "q", "x", "UID", UID) == duplicate
    yard.restart()
    peer = yard.connect("resp")
    assert refused(peer, "JOB.PUSH", "q", "x", "UID", UID) == duplicate
    assert ask(peer, "EXISTS", "q") == 0


def test_a_uid_of_another_queue_is_taken_in_a_transaction_too(peer: SimulatedPeer) -> None:
    push(peer, "q", "body", "UID", UID)
    ask(peer, "MULTI")
    for queue in ("other", "q"):
        assert ask(peer, "JOB.PUSH", queue, "x", "UID", UID) == "QUEUED"
    answers = ask(peer, "EXEC")
    assert answers == [Failure(TAKEN), Failure("DUPLICATE 1 is a job with this uid")]
    assert ask(peer, "EXISTS", "other") == 0


@pytest.mark.parametrize("options", [(), ("KEY", "k"), ("AFTER", 1, 1)])
def test_a_uid_of_another_queue_is_taken(
    yard: SimulatedServer, peer: SimulatedPeer, options: tuple[Word, ...]
) -> None:
    push(peer, "q", "body", "UID", UID)
    assert refused(peer, "JOB.PUSH", "other", "x", "UID", UID.upper(), *options) == TAKEN
    ask(peer, "JOB.DONE", take(peer).ref)
    yard.restart()
    peer = yard.connect("resp")
    assert refused(peer, "JOB.PUSH", "other", "x", "UID", UID, *options) == TAKEN
    assert ask(peer, "EXISTS", "q", "other") == 0


@pytest.mark.parametrize(
    ("options", "error"),
    [
        (("WHAT",), unknown("JOB.PUSH", "WHAT")),
        (("RETRIES", 3), unknown("JOB.PUSH", "RETRIES", meant="FAILS")),
        (("priorty", 3), unknown("JOB.PUSH", "priorty", meant="PRIORITY")),
        (("",), unknown("JOB.PUSH", "")),
        (("", "NAME", "n"), unknown("JOB.PUSH", "")),
        (("NAME", "n", ""), unknown("JOB.PUSH", "")),
        (("NAME",), no_value("JOB.PUSH", "NAME")),
        (("NAME", ""), f"ERR name: {NAME_RULE}"),
        (("NAME", "a b"), f"ERR name: {NAME_RULE}"),
        (("NAME", b"\xff"), f"ERR name: {NAME_RULE}"),
        (("NAME", "n" * 256), f"ERR name: {NAME_RULE}"),
        (("UID", "x"), "ERR uid: must be a UUID in its canonical form"),
        (("UID", UID + b"0"), "ERR uid: must be a UUID in its canonical form"),
        (("UID", UID.replace(b"-", b"")), "ERR uid: must be a UUID in its canonical form"),
        (("PRIORITY",), no_value("JOB.PUSH", "PRIORITY")),
        (("PRIORITY", "high"), NOT_AN_INTEGER),
        (("PRIORITY", "1.5"), NOT_AN_INTEGER),
        (("PRIORITY", 2**63), NOT_AN_INTEGER),
        (("PRIORITY", -(2**63) - 1), NOT_AN_INTEGER),
        (("AT", -1), f"ERR AT must be between 0 and {MAX_INT // 1000}"),
        (("AT", MAX_INT // 1000 + 1), f"ERR AT must be between 0 and {MAX_INT // 1000}"),
        (("IN", -1), f"ERR IN must be between 0 and {CENTURY}"),
        (("IN", CENTURY + 1), f"ERR IN must be between 0 and {CENTURY}"),
        (("IN", " 1"), NOT_AN_INTEGER),
        (("TTR", -1), f"ERR TTR must be between 0 and {DAY}"),
        (("TTR", DAY + 1), f"ERR TTR must be between 0 and {DAY}"),
        (("TTL", 0), f"ERR TTL must be between 1 and {MAX_INT}"),
        (("ATTEMPTS", -1), "ERR ATTEMPTS must be between 0 and 4294967295"),
        (("ATTEMPTS", 2**32), "ERR ATTEMPTS must be between 0 and 4294967295"),
        (("FAILS", -1), "ERR FAILS must be between 0 and 4294967295"),
        (("FAILS", 2**32), "ERR FAILS must be between 0 and 4294967295"),
        (("BACKOFF", 1), no_value("JOB.PUSH", "BACKOFF")),
        (("BACKOFF", -1, 1), f"ERR BACKOFF must be between 0 and {CENTURY}"),
        (("BACKOFF", 1, CENTURY + 1), f"ERR BACKOFF must be between 0 and {CENTURY}"),
        (("DEAD", "a b"), f"ERR dead_queue: {NAME_RULE}"),
        (("DEAD", b"\xff"), f"ERR dead_queue: {NAME_RULE}"),
        (("AFTER", 0), "ERR AFTER must be between 1 and 255"),
        (("AFTER", 2, 1), no_value("JOB.PUSH", "AFTER")),
        (("AFTER", 1, 0), f"ERR AFTER must be between 1 and {MAX_INT}"),
        (("AFTER", 1, -3), f"ERR AFTER must be between 1 and {MAX_INT}"),
    ],
)  # fmt: skip
def test_a_push_with_a_wrong_option_is_refused(
    yard: SimulatedServer, peer: SimulatedPeer, options: tuple[str, ...], error: str
) -> None:
    assert refused(peer, "JOB.PUSH", "q", "body", *options) == error
    assert yard.engine.state.jobs.size == 0


@pytest.mark.parametrize(
    "options",
    [
        ("NAME", "n" * 255),
        ("AT", MAX_INT // 1000),
        ("IN", CENTURY),
        ("TTL", MAX_INT),
        ("TTL", 1),
        ("ATTEMPTS", 2**32 - 1),
        ("ATTEMPTS", 0),
        ("FAILS", 2**32 - 1),
        ("BACKOFF", CENTURY, CENTURY),
        ("DEAD", ""),
        ("AFTER", 1, MAX_INT),
    ],
)
def test_a_push_at_the_limits_is_taken_and_survives(
    yard: SimulatedServer, peer: SimulatedPeer, options: tuple[str, ...]
) -> None:
    push(peer, "q", "body", *options)
    yard.crash()
    job = yard.engine.job(1)
    assert job.state in (READY, DELAYED)


@pytest.mark.parametrize("queue", ["", "a b", "a\n", b"\xff", "q" * 256, "\x7f"])
def test_a_queue_must_have_a_name(peer: SimulatedPeer, queue: str | bytes) -> None:
    assert refused(peer, "JOB.PUSH", queue, "x") == BAD_QUEUE
    assert refused(peer, "JOB.TAKE", 1, queue) == BAD_QUEUE
