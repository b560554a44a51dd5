"""JOB.PROGRESS: how far a job is, for all to see."""

import json
from typing import Any

import pytest
from support.listening import Listening
from support.replies_resp import Word, ask, command, read, refused
from support.resp_jobs import NOT_AN_INTEGER, expect_stale, push, take
from support.simulated import SimulatedPeer, SimulatedServer
from support.wire import Wire, exchange

from taskyard.protocols.text import format_moment

THOUSANDTHS = "ERR progress is told in thousandths: 0 to 1000"


@pytest.fixture
def yard() -> SimulatedServer:
    return SimulatedServer()


@pytest.fixture
def peer(yard: SimulatedServer) -> SimulatedPeer:
    return yard.connect("resp")


def shown(peer: SimulatedPeer, id: int = 1) -> Any:
    status, body = ask(peer, "API", "GET", f"/api/v1/jobs/{id}")
    assert status == 200
    return json.loads(body)["progress"]


def test_progress_is_told_on_any_connection(wire: Wire) -> None:
    peer, other = wire.connect("resp"), wire.connect("resp")
    exchange(peer, b"JOB.PUSH q x\r\nJOB.TAKE 1 q\r\n", b":1\r\n")
    read(peer)
    exchange(peer, b"JOB.PROGRESS 1-1-1 400 resizing\r\n", b"+OK\r\n")
    exchange(other, b"job.progress 1-1-1 1000\r\n", b"+OK\r\n")
    exchange(peer, b"JOB.DONE 1-1-1\r\n", b"+OK\r\n")
    stale = b"-STALE the lease is over, or the job is gone\r\n"
    exchange(peer, b"JOB.PROGRESS 1-1-1 1000 done\r\n", stale)


def test_the_job_shows_it(yard: SimulatedServer, peer: SimulatedPeer) -> None:
    push(peer)
    assert shown(peer) is None
    ref = take(peer).ref
    assert shown(peer) is None
    yard.advance(2)
    at = format_moment(yard.clock.now())
    assert ask(peer, "JOB.PROGRESS", ref, 400, "über die Hälfte") == "OK"
    yard.advance(2)
    assert shown(peer) == {"fraction": 0.4, "message": "über die Hälfte", "at": at}
    ask(peer, "JOB.RETURN", ref)
    assert shown(peer) is None
    take(peer)
    assert shown(peer) is None


def test_the_lease_is_not_longer_for_it(yard: SimulatedServer, peer: SimulatedPeer) -> None:
    push(peer, "q", "x", "TTR", 1000)
    ref = take(peer).ref
    yard.advance(0.9)
    ask(peer, "JOB.PROGRESS", ref, 900)
    yard.advance(0.2)
    expect_stale(peer, ref)


def test_it_is_an_event() -> None:
    listening = Listening(SimulatedServer())
    peer = listening.yard.connect("resp")
    push(peer)
    ref = take(peer).ref
    stream = listening.listen(event="progress")
    ask(peer, "JOB.PROGRESS", ref, 250, "a quarter")
    listening.yard.advance(0.01)
    [event] = stream.events()
    assert (event["event"], event["id"], event["queue"]) == ("progress", 1, "q")
    assert (event["attempt"], event["permille"], event["message"]) == (1, 250, "a quarter")


def test_nobody_waits_for_the_disk(yard: SimulatedServer, peer: SimulatedPeer) -> None:
    push(peer)
    ref = take(peer).ref
    yard.advance(1)
    seen: list[bool] = []
    peer.witness = lambda data: seen.append(
        yard.journal.durable < yard.journal.records.end_position()
    )
    assert ask(peer, "JOB.PROGRESS", ref, 1) == "OK"
    assert seen == [True]


def test_it_outlives_a_restart(yard: SimulatedServer, peer: SimulatedPeer) -> None:
    push(peer)
    ask(peer, "JOB.PROGRESS", take(peer).ref, 700, "so far")
    yard.restart()
    peer = yard.connect("resp")
    assert shown(peer)["fraction"] == 0.7


def test_compaction_keeps_the_lease_and_may_forget_how_far_it_is() -> None:
    yard = SimulatedServer(segment_size=1 << 16, payload_memory=1 << 12)
    peer = yard.connect("resp")
    push(peer, "q", "x", "TTR", 3_600_000)
    ref = take(peer, "q", "TTR", 3_600_000).ref
    for number in range(300):
        ask(peer, "JOB.PROGRESS", ref, number, "x" * 1000)
        yard.advance(1)
    assert yard.journal.first_base > 0
    assert shown(peer)["fraction"] == 0.299
    yard.restart()
    peer = yard.connect("resp")
    assert ask(peer, "JOB.PROGRESS", ref, 300) == "OK"
    assert shown(peer)["fraction"] == 0.3


@pytest.mark.parametrize(
    ("words", "text"),
    [
        ((-1, "m"), THOUSANDTHS),
        ((1001, "m"), THOUSANDTHS),
        (("0.5", "m"), NOT_AN_INTEGER),
        (("", "m"), NOT_AN_INTEGER),
        ((5, b"\xff"), "ERR message: must be UTF-8"),
        ((5, "x" * 1025), "ERR message: must be at most 1024 bytes"),
        ((5, "m", "more"), "ERR wrong number of arguments for 'job.progress' command"),
        ((), "ERR wrong number of arguments for 'job.progress' command"),
    ],
)
def test_what_is_wrong_is_refused(peer: SimulatedPeer, words: tuple[Word, ...], text: str) -> None:
    push(peer)
    ref = take(peer).ref
    assert refused(peer, "JOB.PROGRESS", ref, *words) == text
    assert shown(peer) is None


def test_it_may_be_told_between_multi_and_exec(peer: SimulatedPeer) -> None:
    push(peer)
    ref = take(peer).ref
    peer.send(b"MULTI\r\n" + command("JOB.PROGRESS", ref, 1) + b"EXEC\r\n")
    peer.expect(b"+OK\r\n+QUEUED\r\n*1\r\n+OK\r\n")
