"""RESP clients of a server whose disk fails or is full: nobody is told what is not true."""

import pytest
from support.replies_resp import Failure, ask, command, refused, replies
from support.resp_jobs import as_jobs, push, take
from support.simulated import SimulatedPeer, SimulatedServer

from taskyard.journal.memory import MemoryDisk

Words = tuple[str | int, ...]

CHANGES_AND_LOOKS: list[Words] = [
    ("RPUSH", "l", "a"),
    ("LPUSH", "l", "a", "b"),
    ("LPOP", "l"),
    ("RPOP", "l", 2),
    ("LPOP", "none"),
    ("BLPOP", "l", 0),
    ("BLPOP", "none", 0),
    ("LLEN", "l"),
    ("LRANGE", "l", 0, -1),
    ("LINDEX", "l", 0),
    ("LREM", "l", 0, "a"),
    ("LMOVE", "l", "m", "LEFT", "LEFT"),
    ("BLMOVE", "none", "m", "LEFT", "LEFT", 0),
    ("SET", "k", "v"),
    ("SET", "k", "v", "NX"),
    ("SETNX", "k", "v"),
    ("SETEX", "k", 10, "v"),
    ("GET", "k"),
    ("GET", "none"),
    ("TTL", "k"),
    ("EXPIRE", "k", 10),
    ("EXPIRE", "none", 10),
    ("PERSIST", "k"),
    ("DEL", "k", "l"),
    ("DEL", "none"),
    ("EXISTS", "k"),
    ("TYPE", "l"),
    ("UPDATE", "item"),
    ("NEXT",),
    ("PEEK",),
    ("PEEK", "item"),
    ("SCORE", "item"),
    ("INFO",),
    ("JOB.PUSH", "q", "body"),
    ("JOB.TAKE", 1, "q"),
    ("JOB.TAKE", 1, "none", "WAIT", 1000),
    ("JOB.DONE", "1-1-1"),
    ("JOB.FAIL", "1-1-1", "no"),
    ("JOB.EXTEND", "1-1-1", 5000),
    ("JOB.RETURN", "1-1-1"),
]


@pytest.fixture(params=["inline", "thread"])
def yard(request: pytest.FixtureRequest) -> SimulatedServer:
    return SimulatedServer(inline_sync=request.param == "inline")


def break_down(yard: SimulatedServer, operation: str = "sync") -> SimulatedPeer:
    """The disk fails under a push; gives the client that made it."""
    peer = yard.connect("resp")
    yard.disk.fail_call(operation)
    peer.send(command("RPUSH", "l", "unlucky"))
    return peer


@pytest.mark.parametrize("operation", ["sync", "write"])
def test_nothing_is_answered_that_may_not_be_true(yard: SimulatedServer, operation: str) -> None:
    peer = yard.connect("resp")
    push(peer)
    assert take(peer).ref == b"1-1-1"
    ask(peer, "RPUSH", "l", "a", "b")
    ask(peer, "SET", "k", "v")
    ask(peer, "UPDATE", "item")
    break_down(yard, operation).expect_closed()
    for words in CHANGES_AND_LOOKS:
        text = refused(peer, *words)
        assert text.startswith("READONLY the journal cannot be written: "), words
    for words in [("PING",), ("ECHO", "x"), ("SELECT", 1), ("COMMAND", "COUNT"), ("HELLO", 2)]:
        assert not isinstance(ask(peer, *words), Failure), words
    yard.disk.heal()
    yard.crash()
    peer = yard.connect("resp")
    assert ask(peer, "LRANGE", "l", 0, -1) == [b"a", b"b"]
    assert ask(peer, "GET", "k") == b"v"


def test_who_waits_for_a_reply_is_closed_unanswered(yard: SimulatedServer) -> None:
    peers = [yard.connect("resp") for _ in range(3)]
    idle = yard.connect("resp")
    yard.disk.fail_call("sync")
    for peer, verb in zip(peers, ("RPUSH", "SET", "JOB.PUSH"), strict=True):
        peer.arrive(command(verb, f"{verb}-key", "value") + command("PING"))
    yard.run_pending()
    for peer in peers:
        peer.expect_closed()
    assert ask(idle, "PING") == "PONG"


COLD: list[Words] = [
    ("LPOP", "l"),
    ("BLPOP", "l", 0),
    ("LPOP", "l", 2),
    ("LRANGE", "l", 0, -1),
    ("LINDEX", "l", 0),
    ("LMOVE", "l", "m", "LEFT", "LEFT"),
    ("SET", "k", "new", "GET"),
    ("GET", "k"),
    ("JOB.TAKE", 1, "l", "COUNT", 2),
]


@pytest.mark.parametrize("words", COLD)
def test_what_is_read_back_when_the_disk_has_failed_is_not_told(words: Words) -> None:
    """A pop that is not on disk would give the same job again after the restart."""
    yard = SimulatedServer(payload_memory=0)
    peer = yard.connect("resp")
    ask(peer, "SET", "k", b"old" * 1000)
    for number in range(300):
        ask(peer, "RPUSH", "l", b"%04d" % number * 1000)
    yard.restart()
    peer = yard.connect("resp")
    yard.scheduler.slow = True
    peer.send(command(*words))
    peer.expect_nothing()
    break_down(yard).expect_closed()
    while yard.scheduler.blocking:
        yard.scheduler.finish_blocking()
        yard.run_pending()
    answer = replies(peer.take())
    if answer:
        assert str(answer[0]).startswith("READONLY ")
    else:
        peer.expect_closed()


# Full


@pytest.fixture
def full() -> SimulatedServer:
    """One whose disk has room for three small segments, all of it used by a list."""
    disk = MemoryDisk()
    disk.set_capacity(3 * (1 << 16) + 1000)
    yard = SimulatedServer(spare=True, disk=disk, segment_size=1 << 16)
    peer = yard.connect("resp")
    while not isinstance(ask(peer, "RPUSH", "l", "x" * 1000), Failure):
        pass
    return yard


def test_what_adds_is_refused_and_what_finishes_goes_on(full: SimulatedServer) -> None:
    peer = full.connect("resp")
    pushed = ask(peer, "LLEN", "l")
    assert pushed > 60
    adding: list[Words] = [
        ("RPUSH", "l", "a"),
        ("RPUSH", "l", "a", "b"),
        ("JOB.PUSH", "l", "a"),
        ("SET", "k", "v"),
        ("UPDATE", "item"),
    ]
    for words in adding:
        assert refused(peer, *words).startswith("OOM no room "), words
    job = take(peer, "l")
    assert ask(peer, "JOB.DONE", job.ref) == "OK"
    assert ask(peer, "LPOP", "l") == b"x" * 1000
    popped = ask(peer, "LPOP", "l", 10)
    assert popped == [b"x" * 1000] * 10
    peer.send(command("JOB.TAKE", 1, "l", "COUNT", 20))
    [reply] = replies(peer.take())
    assert len(as_jobs(reply)) == 20
    assert ask(peer, "LREM", "l", 5, "x" * 1000) == 5
    assert ask(peer, "DEL", "l") == 1
    assert ask(peer, "LLEN", "l") == 0
