"""JOB.RESULT: how a job has ended, at once or when it does; every one who waits is answered."""

import pytest
from support.replies_resp import ask, command, read, refused
from support.resp_jobs import NOT_AN_INTEGER, no_value, push, take, unknown
from support.simulated import SimulatedPeer, SimulatedServer
from support.wire import Wire, exchange

from taskyard.engine.model.state import EngineSettings

UID = b"6ba7b810-9dad-41d1-80b4-00c04fd430c8"
NO_JOB = "NOJOB there is no such job, or it is forgotten"
BAD_NAME = "ERR a job is named by its id, a number, or by its uid, a UUID"


@pytest.fixture
def yard() -> SimulatedServer:
    return SimulatedServer()


@pytest.fixture
def peer(yard: SimulatedServer) -> SimulatedPeer:
    return yard.connect("resp")


def done(peer: SimulatedPeer, *result: bytes) -> None:
    assert ask(peer, "JOB.DONE", take(peer).ref, *result) == "OK"


def failed(peer: SimulatedPeer, error: bytes, *words: str) -> None:
    ask(peer, "JOB.FAIL", take(peer).ref, error, *words)


# Bytes


def test_a_job_that_succeeded_is_shown_with_its_result(wire: Wire) -> None:
    peer = wire.connect("resp")
    exchange(peer, b"JOB.PUSH q x TTL 60000\r\n", b":1\r\n")
    exchange(peer, b"JOB.RESULT 1\r\n", b"*-1\r\n")
    peer.send(b"JOB.TAKE 1 q\r\n")
    read(peer)
    exchange(peer, b"JOB.DONE 1-1-1 pong\r\n", b"+OK\r\n")
    shown = b"*5\r\n:1\r\n$9\r\nsucceeded\r\n:1\r\n$4\r\npong\r\n$-1\r\n"
    exchange(peer, b"JOB.RESULT 1\r\n", shown)
    exchange(peer, b"job.result 1 wait 60000\r\n", shown)


def test_nothing_is_spelled_as_the_protocol_has_it(peer: SimulatedPeer) -> None:
    push(peer)
    peer.send(b"HELLO 3\r\n")
    peer.take()
    exchange(peer, b"JOB.RESULT 1\r\n", b"_\r\n")
    done(peer)
    exchange(peer, b"JOB.RESULT 1\r\n", b"*5\r\n:1\r\n$9\r\nsucceeded\r\n:1\r\n_\r\n_\r\n")


def test_who_waits_is_told_when_the_job_ends(wire: Wire) -> None:
    waiting, worker = wire.connect("resp"), wire.connect("resp")
    exchange(worker, b"JOB.PUSH q x\r\n", b":1\r\n")
    waiting.send(b"JOB.RESULT 1 WAIT 60000\r\nPING\r\n")
    worker.send(b"JOB.TAKE 1 q\r\n")
    read(worker)
    exchange(worker, b"JOB.DONE 1-1-1 pong\r\n", b"+OK\r\n")
    waiting.expect(b"*5\r\n:1\r\n$9\r\nsucceeded\r\n:1\r\n$4\r\npong\r\n$-1\r\n+PONG\r\n")


# What is shown


def test_a_failure_that_is_final_is_shown_with_its_error(peer: SimulatedPeer) -> None:
    push(peer, "q", "x", "FAILS", 2, "BACKOFF", 0, 0)
    failed(peer, b"first")
    assert ask(peer, "JOB.RESULT", 1) is None
    failed(peer, b"second")
    assert ask(peer, "JOB.RESULT", 1) == [1, b"failed", 0, None, b"second"]


def test_a_job_that_failed_without_an_error_shows_why(
    yard: SimulatedServer, peer: SimulatedPeer
) -> None:
    push(peer, "q", "x", "ATTEMPTS", 1, "TTR", 1000)
    push(peer, "r", "x", "AFTER", 1, 1)
    take(peer)
    yard.advance(2)
    assert ask(peer, "JOB.RESULT", 1) == [1, b"failed", 0, None, b"attempts used up"]
    assert ask(peer, "JOB.RESULT", 2) == [2, b"failed", 0, None, b"a job it waited for failed"]


def test_a_job_in_the_queue_for_failed_ones_has_failed(peer: SimulatedPeer) -> None:
    push(peer, "q", "x", "DEAD", "morgue", "FAILS", 1)
    failed(peer, b"oops")
    assert ask(peer, "JOB.RESULT", 1) == [1, b"failed", 0, None, b"oops"]


def test_an_error_before_the_success_is_not_shown(peer: SimulatedPeer) -> None:
    push(peer, "q", "x", "FAILS", 0, "BACKOFF", 0, 0, "TTL", 60000)
    failed(peer, b"oops")
    done(peer, b"fine")
    assert ask(peer, "JOB.RESULT", 1) == [1, b"succeeded", 1, b"fine", None]


def test_a_job_can_be_named_by_its_uid(peer: SimulatedPeer) -> None:
    push(peer, "q", "x", "UID", UID)
    push(peer)
    assert ask(peer, "JOB.RESULT", UID) is None
    done(peer, b"a")
    assert ask(peer, "JOB.RESULT", UID.upper()) == [1, b"succeeded", 1, b"a", None]
    other = take(peer)
    assert ask(peer, "JOB.RESULT", other.uid) is None
    ask(peer, "JOB.DONE", other.ref)
    assert ask(peer, "JOB.RESULT", other.uid) == [2, b"succeeded", 1, None, None]


def test_a_job_that_was_popped_has_succeeded(peer: SimulatedPeer) -> None:
    assert ask(peer, "RPUSH", "q", "x") == 1
    assert ask(peer, "LPOP", "q") == b"x"
    assert ask(peer, "JOB.RESULT", 1) == [1, b"succeeded", 1, None, None]


def test_a_result_of_another_dialect_is_shown(yard: SimulatedServer, peer: SimulatedPeer) -> None:
    workq = yard.connect("workq")
    exchange(workq, b"add %b q 1000 60000 1\r\nx\r\n" % UID, b"+OK\r\n")
    exchange(workq, b"complete %b 4\r\npong\r\n" % UID, b"+OK\r\n")
    assert ask(peer, "JOB.RESULT", UID) == [1, b"succeeded", 1, b"pong", None]


# What is not known


def test_a_job_that_never_was_is_not_known(peer: SimulatedPeer) -> None:
    for name in ("1", "0", "-1", str(2**63 - 1), UID):
        assert refused(peer, "JOB.RESULT", name, "WAIT", 60000) == NO_JOB


def test_a_job_that_was_removed_is_not_known(yard: SimulatedServer, peer: SimulatedPeer) -> None:
    push(peer)
    push(peer, "r", "x", "TTL", 1000)
    ask(peer, "DEL", "q")
    yard.advance(2)
    assert refused(peer, "JOB.RESULT", 1) == NO_JOB
    assert refused(peer, "JOB.RESULT", 2) == NO_JOB


def test_a_result_is_forgotten_with_its_ttl(yard: SimulatedServer, peer: SimulatedPeer) -> None:
    push(peer, "q", "x", "TTL", 5000)
    done(peer, b"a")
    yard.advance(4.9)
    assert ask(peer, "JOB.RESULT", 1) == [1, b"succeeded", 1, b"a", None]
    yard.advance(0.2)
    assert refused(peer, "JOB.RESULT", 1) == NO_JOB


def test_what_the_ring_has_no_room_for_is_forgotten() -> None:
    peer = SimulatedServer(settings=EngineSettings(finished_bytes=1024)).connect("resp")
    for _ in range(3):
        push(peer)
        done(peer, b"a")
    assert refused(peer, "JOB.RESULT", 1) == NO_JOB
    assert ask(peer, "JOB.RESULT", 3) == [3, b"succeeded", 1, b"a", None]


def test_what_compaction_took_is_forgotten() -> None:
    yard = SimulatedServer(segment_size=1 << 16, payload_memory=1 << 12)
    peer = yard.connect("resp")
    push(peer)
    done(peer, b"a" * 100)
    for _ in range(300):
        ask(peer, "RPUSH", "bulk", "x" * 2000)
        ask(peer, "LPOP", "bulk")
        yard.advance(1)
    assert yard.journal.first_base > 0
    assert yard.engine.recent(1) is not None
    assert refused(peer, "JOB.RESULT", 1) == NO_JOB


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("x",), BAD_NAME),
        (("",), BAD_NAME),
        (("01",), BAD_NAME),
        ((UID[:-1],), BAD_NAME),
        (("99999999999999999999",), BAD_NAME),
        (("1", "WAIT"), no_value("JOB.RESULT", "WAIT")),
        (("1", "FOR", "5"), unknown("JOB.RESULT", "FOR", "WAIT")),
        (("1", "WAIT", "x"), NOT_AN_INTEGER),
        (("1", "WAIT", "-1"), "ERR WAIT must be between 0 and 3153600000000"),
        (("1", "WAIT", "3153600000001"), "ERR WAIT must be between 0 and 3153600000000"),
        ((), "ERR wrong number of arguments for 'job.result' command"),
        (
            ("1", "WAIT", "1", "WAIT", "1"),
            "ERR wrong number of arguments for 'job.result' command",
        ),
    ],
)
def test_what_is_wrong_is_refused(
    peer: SimulatedPeer, words: tuple[str | bytes, ...], text: str
) -> None:
    push(peer)
    assert refused(peer, "JOB.RESULT", *words) == text
    assert ask(peer, "PING") == "PONG"


# Waiting


def test_a_wait_ends_with_nothing(yard: SimulatedServer, peer: SimulatedPeer) -> None:
    push(peer)
    peer.send(command("JOB.RESULT", 1, "WAIT", 1000))
    yard.advance(0.9)
    peer.expect_nothing()
    yard.advance(0.2)
    peer.expect(b"*-1\r\n")
    assert not yard.engine.watchers


def test_a_failure_that_is_tried_again_is_no_end(
    yard: SimulatedServer, peer: SimulatedPeer
) -> None:
    worker = yard.connect("resp")
    push(worker, "q", "x", "FAILS", 2, "BACKOFF", 0, 0)
    peer.send(command("JOB.RESULT", 1, "WAIT", 60000))
    failed(worker, b"first")
    peer.expect_nothing()
    failed(worker, b"second")
    assert read(peer) == [1, b"failed", 0, None, b"second"]


def test_all_who_wait_are_told(yard: SimulatedServer, peer: SimulatedPeer) -> None:
    waiting = [yard.connect("resp") for _ in range(5)]
    push(peer)
    for one in waiting:
        one.send(command("JOB.RESULT", 1, "WAIT", 60000))
    done(peer, b"a")
    for one in waiting:
        assert read(one) == [1, b"succeeded", 1, b"a", None]


def test_who_waits_for_a_job_that_is_removed_is_told(
    yard: SimulatedServer, peer: SimulatedPeer
) -> None:
    push(peer)
    waiting = yard.connect("resp")
    waiting.send(command("JOB.RESULT", 1, "WAIT", 60000))
    ask(peer, "DEL", "q")
    waiting.expect(f"-{NO_JOB}\r\n".encode())


def test_a_client_that_goes_waits_no_more(yard: SimulatedServer, peer: SimulatedPeer) -> None:
    push(peer)
    waiting = yard.connect("resp")
    waiting.send(command("JOB.RESULT", 1, "WAIT", 60000))
    assert yard.engine.watchers
    waiting.close()
    assert not yard.engine.watchers
    done(peer, b"a")


def test_a_stop_answers_those_who_wait(yard: SimulatedServer, peer: SimulatedPeer) -> None:
    push(peer)
    peer.send(command("JOB.RESULT", 1, "WAIT", 60000))
    yard.stop()
    peer.expect(b"*-1\r\n")


def test_nothing_waits_between_multi_and_exec(yard: SimulatedServer, peer: SimulatedPeer) -> None:
    push(peer)
    peer.send(b"MULTI\r\nJOB.RESULT 1 WAIT 60000\r\nJOB.RESULT 2\r\nPING\r\nEXEC\r\n")
    peer.expect(b"+OK\r\n" + 3 * b"+QUEUED\r\n")
    peer.expect(b"*3\r\n*-1\r\n-" + NO_JOB.encode() + b"\r\n+PONG\r\n")


def test_a_result_that_is_only_on_disk_is_read_back() -> None:
    yard = SimulatedServer(payload_memory=1)
    peer = yard.connect("resp")
    push(peer, "q", "x", "TTL", 60000)
    done(peer, b"a" * 5000)
    push(peer, "q", "x", "FAILS", 1)
    failed(peer, b"b" * 5000)
    yard.restart()
    peer = yard.connect("resp")
    assert ask(peer, "JOB.RESULT", 1) == [1, b"succeeded", 1, b"a" * 5000, None]
    peer.send(b"MULTI\r\nJOB.RESULT 1\r\nJOB.RESULT 2\r\nPING\r\nEXEC\r\n")
    peer.expect(b"+OK\r\n" + 3 * b"+QUEUED\r\n")
    assert read(peer) == [
        [1, b"succeeded", 1, b"a" * 5000, None],
        [2, b"failed", 0, None, b"b" * 5000],
        "PONG",
    ]


# Promises


def test_a_result_is_there_after_a_restart(wire: Wire) -> None:
    peer = wire.connect("resp")
    exchange(peer, b"JOB.PUSH q x TTL 600000\r\nJOB.TAKE 1 q\r\n", b":1\r\n")
    read(peer)
    exchange(peer, b"JOB.DONE 1-1-1 pong\r\n", b"+OK\r\n")
    wire.restart()
    peer = wire.connect("resp")
    assert ask(peer, "JOB.RESULT", 1) == [1, b"succeeded", 1, b"pong", None]


def test_a_result_is_shown_when_it_is_on_disk(yard: SimulatedServer, peer: SimulatedPeer) -> None:
    push(peer)
    waiting = yard.connect("resp")
    waiting.send(command("JOB.RESULT", 1, "WAIT", 60000))
    seen: list[int] = []
    waiting.witness = lambda data: seen.append(
        yard.journal.durable - yard.journal.records.end_position()
    )
    done(peer, b"a")
    assert seen == [0]
    assert read(waiting) == [1, b"succeeded", 1, b"a", None]
