"""JOB.PUSH with KEY, and with AFTER by uid."""

import pytest
from support.replies_resp import ask, refused
from support.resp_jobs import NOT_AN_INTEGER, no_value, push, take
from support.simulated import SimulatedPeer, SimulatedServer
from support.wire import Wire, exchange

from taskyard.engine.model.job import BLOCKED, READY
from taskyard.engine.model.state import EngineSettings

UID = "6ba7b810-9dad-41d1-80b4-00c04fd430c8"
OTHER = "6ba7b811-9dad-41d1-80b4-00c04fd430c8"


@pytest.fixture
def yard() -> SimulatedServer:
    return SimulatedServer()


@pytest.fixture
def peer(yard: SimulatedServer) -> SimulatedPeer:
    return yard.connect("resp")


def taken(id: int) -> str:
    return f"DUPLICATE {id} is a job with this key, and waits"


# KEY


def test_a_key_is_unique_while_its_job_waits(wire: Wire) -> None:
    peer = wire.connect("resp")
    exchange(peer, b"JOB.PUSH q x KEY k\r\n", b":1\r\n")
    exchange(peer, b"JOB.PUSH q y KEY k\r\n", b"-DUPLICATE 1 is a job with this key, and waits\r\n")
    exchange(peer, b"JOB.PUSH q y KEY l\r\n", b":2\r\n")
    exchange(peer, b"JOB.PUSH r y KEY k\r\n", b":3\r\n")
    assert take(peer).payload == b"x"
    exchange(peer, b"JOB.PUSH q z KEY k\r\n", b":4\r\n")


def test_a_delayed_or_blocked_job_has_its_key(peer: SimulatedPeer) -> None:
    push(peer, "q", "x", "KEY", "a", "IN", 60_000)
    push(peer, "q", "x", "KEY", "b", "AFTER", 1, 1)
    assert refused(peer, "JOB.PUSH", "q", "x", "KEY", "a") == taken(1)
    assert refused(peer, "JOB.PUSH", "q", "x", "KEY", "b") == taken(2)


def test_a_job_that_comes_back_has_its_key_again_unless_another_has_it(
    yard: SimulatedServer, peer: SimulatedPeer
) -> None:
    push(peer, "q", "x", "KEY", "k")
    ask(peer, "JOB.RETURN", take(peer).ref)
    assert refused(peer, "JOB.PUSH", "q", "x", "KEY", "k") == taken(1)
    ref = take(peer).ref
    push(peer, "q", "y", "KEY", "k")
    ask(peer, "JOB.RETURN", ref)
    assert refused(peer, "JOB.PUSH", "q", "x", "KEY", "k") == taken(2)
    assert yard.engine.job(1).ensure_extras().key is None


def test_a_key_outlives_a_restart(yard: SimulatedServer, peer: SimulatedPeer) -> None:
    push(peer, "q", "x", "KEY", "k")
    yard.restart()
    peer = yard.connect("resp")
    assert refused(peer, "JOB.PUSH", "q", "x", "KEY", "k") == taken(1)


def test_the_uid_comes_before_the_key(peer: SimulatedPeer) -> None:
    push(peer, "q", "x", "KEY", "k")
    ask(peer, "JOB.DONE", take(peer).ref)
    push(peer, "q", "x", "UID", UID, "KEY", "k")
    text = refused(peer, "JOB.PUSH", "q", "x", "KEY", "k", "UID", UID)
    assert text == "DUPLICATE 2 is a job with this uid"


def test_a_key_is_any_bytes_of_some_length(peer: SimulatedPeer) -> None:
    push(peer, "q", "x", "KEY", b"\x00 \r\n\xff")
    push(peer, "q", "x", "KEY", b"k" * 65_535)
    wrong = "ERR key: must be 1 to 65535 bytes"
    assert refused(peer, "JOB.PUSH", "q", "x", "KEY", b"k" * 65_536) == wrong
    assert refused(peer, "JOB.PUSH", "q", "x", "KEY", "") == wrong
    assert refused(peer, "JOB.PUSH", "q", "x", "KEY") == no_value("JOB.PUSH", "KEY")


# AFTER


def test_a_job_waits_for_one_that_is_named_by_its_uid(
    yard: SimulatedServer, peer: SimulatedPeer
) -> None:
    push(peer, "q", "first", "UID", UID)
    second = push(peer, "q", "second")
    push(peer, "q", "third", "AFTER", 2, UID.upper(), second)
    assert yard.engine.job(3).ensure_extras().blockers == {1, 2}
    for _ in range(2):
        assert yard.engine.job(3).state == BLOCKED
        ask(peer, "JOB.DONE", take(peer).ref)
    assert take(peer).payload == b"third"


def test_a_uid_that_the_server_gave_can_be_waited_for(
    yard: SimulatedServer, peer: SimulatedPeer
) -> None:
    push(peer)
    first = take(peer)
    push(peer, "q", "x", "AFTER", 1, first.uid)
    assert yard.engine.job(2).ensure_extras().blockers == {1}
    ask(peer, "JOB.DONE", first.ref)
    assert take(peer).id == 2
    push(peer, "q", "x", "AFTER", 1, first.uid)
    assert yard.engine.job(3).state == READY


def test_a_job_that_is_done_does_not_block(yard: SimulatedServer, peer: SimulatedPeer) -> None:
    push(peer, "q", "x", "UID", UID)
    ask(peer, "JOB.DONE", take(peer).ref)
    push(peer, "q", "x", "AFTER", 1, UID)
    assert yard.engine.job(2).state == READY


@pytest.mark.parametrize("forgotten", [False, True])
def test_a_uid_that_is_not_known_is_refused(forgotten: bool) -> None:
    yard = SimulatedServer(settings=EngineSettings(uid_window=1_000_000, finished_bytes=0))
    peer = yard.connect("resp")
    if forgotten:
        push(peer, "q", "x", "UID", UID)
        ask(peer, "JOB.DONE", take(peer).ref)
        yard.advance(60)
    text = refused(peer, "JOB.PUSH", "q", "x", "AFTER", 1, UID)
    assert text == f"NOJOB there is no job {UID} to wait for, or it is forgotten"


def test_a_push_that_is_repeated_may_name_what_is_forgotten() -> None:
    yard = SimulatedServer(settings=EngineSettings(uid_window=1_000_000, finished_bytes=0))
    peer = yard.connect("resp")
    push(peer, "q", "x", "UID", UID)
    words = ("JOB.PUSH", "q", "x", "UID", OTHER, "AFTER", 1, UID)
    assert ask(peer, *words) == 2
    ask(peer, "JOB.DONE", take(peer).ref)
    yard.advance(60)
    assert refused(peer, *words) == "DUPLICATE 2 is a job with this uid"


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("x", NOT_AN_INTEGER),
        (UID[:-1], NOT_AN_INTEGER),
        ("0", f"ERR AFTER must be between 1 and {2**63 - 1}"),
        ("-1", f"ERR AFTER must be between 1 and {2**63 - 1}"),
    ],
)
def test_what_is_no_job_is_refused(peer: SimulatedPeer, name: str, text: str) -> None:
    assert refused(peer, "JOB.PUSH", "q", "x", "AFTER", 1, name) == text
