"""JOB.DONE with KEEP: for how long a result is kept."""

import pytest
from support.replies_resp import ask, refused
from support.resp_jobs import no_value, push, take, unknown
from support.simulated import SimulatedPeer, SimulatedServer
from support.wire import Wire

from taskyard.engine.model.state import EngineSettings

NO_JOB = "NOJOB there is no such job, or it is forgotten"
NO_RING = EngineSettings(finished_bytes=0)


@pytest.fixture
def yard() -> SimulatedServer:
    return SimulatedServer(settings=NO_RING)


@pytest.fixture
def peer(yard: SimulatedServer) -> SimulatedPeer:
    return yard.connect("resp")


def test_a_result_is_kept_for_so_long_and_no_longer(
    yard: SimulatedServer, peer: SimulatedPeer
) -> None:
    push(peer)
    yard.advance(100)  # it counts from the end of the job, not from its push
    assert ask(peer, "JOB.DONE", take(peer).ref, "7", "KEEP", 5000) == "OK"
    yard.advance(4)
    assert ask(peer, "JOB.RESULT", 1) == [1, b"succeeded", 1, b"7", None]
    yard.advance(2)
    assert refused(peer, "JOB.RESULT", 1) == NO_JOB


def test_an_empty_result_is_kept_as_well(yard: SimulatedServer, peer: SimulatedPeer) -> None:
    push(peer)
    assert ask(peer, "JOB.DONE", take(peer).ref, "", "keep", 5000) == "OK"
    assert ask(peer, "JOB.RESULT", 1) == [1, b"succeeded", 1, None, None]


def test_the_ttl_of_the_job_counts_more(yard: SimulatedServer, peer: SimulatedPeer) -> None:
    push(peer, "q", "x", "TTL", 2000)
    assert ask(peer, "JOB.DONE", take(peer).ref, "7", "KEEP", 60_000) == "OK"
    yard.advance(3)
    assert refused(peer, "JOB.RESULT", 1) == NO_JOB


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (("KEEP",), no_value("JOB.DONE", "KEEP")),
        (("HOLD", "5"), unknown("JOB.DONE", "HOLD", "KEEP")),
        (("KEEP", "0"), "ERR KEEP must be between 1 and 3153600000000"),
        (("KEEP", "x"), "ERR value is not an integer or out of range"),
    ],
)
def test_what_is_wrong_is_refused_and_ends_nothing(
    peer: SimulatedPeer, words: tuple[str, ...], error: str
) -> None:
    push(peer)
    ref = take(peer).ref
    assert refused(peer, "JOB.DONE", ref, "7", *words) == error
    assert ask(peer, "JOB.DONE", ref) == "OK"


def test_a_result_that_is_kept_is_there_after_a_restart(wire: Wire) -> None:
    peer = wire.connect("resp")
    push(peer)
    assert ask(peer, "JOB.DONE", take(peer).ref, "7", "KEEP", 60_000) == "OK"
    wire.restart()
    assert ask(wire.connect("resp"), "JOB.RESULT", 1) == [1, b"succeeded", 1, b"7", None]
