"""What RESP clients have put there is there after a restart, and ends when it should."""

from collections.abc import Callable

import pytest
from support.replies_resp import ask, command, read
from support.resp_jobs import push, take, take_many
from support.simulated import SimulatedPeer, SimulatedServer
from support.wire import Wire

from taskyard.engine.model.state import EngineSettings

Revive = Callable[[], SimulatedPeer]


@pytest.fixture
def yard() -> SimulatedServer:
    return SimulatedServer()


@pytest.fixture
def peer(yard: SimulatedServer) -> SimulatedPeer:
    return yard.connect("resp")


@pytest.fixture(params=["restart", "crash", "kill"])
def revive(request: pytest.FixtureRequest, yard: SimulatedServer) -> Revive:
    """The server goes and comes back; gives a client of it."""

    def go_and_come() -> SimulatedPeer:
        getattr(yard, request.param)()
        return yard.connect("resp")

    return go_and_come


# Values


def test_values_are_there(peer: SimulatedPeer, revive: Revive) -> None:
    ask(peer, "SET", "plain", b"\x00\r\n\xff")
    ask(peer, "SET", "empty", b"")
    ask(peer, "SET", b"\xff key", "any bytes")
    ask(peer, "SET", "gone", "x")
    ask(peer, "DEL", "gone")
    ask(peer, "SET", "twice", "one")
    ask(peer, "SET", "twice", "two")
    peer = revive()
    assert ask(peer, "GET", "plain") == b"\x00\r\n\xff"
    assert ask(peer, "GET", "empty") == b""
    assert ask(peer, "GET", b"\xff key") == b"any bytes"
    assert ask(peer, "GET", "gone") is None
    assert ask(peer, "GET", "twice") == b"two"
    assert ask(peer, "TTL", "plain") == -1


@pytest.mark.parametrize(
    "words",
    [
        ("SETEX", "k", 10, "v"),
        ("PSETEX", "k", 10_000, "v"),
        ("SET", "k", "v", "EX", 10),
        ("SET", "k", "v", "PX", 10_000),
        ("SET", "k", "v", "PXAT", 1_700_000_010_250),
    ],
)
def test_values_expire_when_they_should(
    yard: SimulatedServer, peer: SimulatedPeer, revive: Revive, words: tuple[str | int, ...]
) -> None:
    assert ask(peer, *words) == "OK"
    yard.advance(3)
    peer = revive()
    assert ask(peer, "PTTL", "k") == 7000
    yard.advance(6.999)
    assert ask(peer, "GET", "k") == b"v"
    yard.advance(0.001)
    assert ask(peer, "GET", "k") is None
    assert ask(peer, "EXISTS", "k") == 0
    peer = revive()
    assert ask(peer, "TTL", "k") == -2


def test_values_expire_while_the_server_is_down(yard: SimulatedServer, peer: SimulatedPeer) -> None:
    ask(peer, "SETEX", "short", 5, "v")
    ask(peer, "SETEX", "long", 50, "v")
    yard.stop()
    yard.clock.time += 20_000_000
    yard.kill()
    peer = yard.connect("resp")
    assert ask(peer, "GET", "short") is None
    assert ask(peer, "PTTL", "long") == 30_000


def test_a_changed_expiry_is_the_one_that_counts(
    yard: SimulatedServer, peer: SimulatedPeer, revive: Revive
) -> None:
    for key in ("longer", "shorter", "kept", "lost", "never", "given"):
        ask(peer, *(("SET", key, "v") if key == "given" else ("SETEX", key, 10, "v")))
    ask(peer, "EXPIRE", "longer", 100)
    ask(peer, "PEXPIRE", "shorter", 1)
    ask(peer, "SET", "kept", "new", "KEEPTTL")
    ask(peer, "SET", "lost", "new")
    ask(peer, "PERSIST", "never")
    ask(peer, "EXPIRE", "given", 20)
    peer = revive()
    yard.advance(10)
    keys = ("longer", "shorter", "kept", "lost", "never", "given")
    assert [ask(peer, "TTL", key) for key in keys] == [90, -2, -2, -1, -1, 10]
    assert ask(peer, "GET", "lost") == b"new"


def test_values_outlive_the_segments_they_were_written_in(yard: SimulatedServer) -> None:
    yard = SimulatedServer(segment_size=1 << 14, payload_memory=0)
    peer = yard.connect("resp")
    ask(peer, "SETEX", "k", 1000, b"v" * 3000)
    ask(peer, "SET", "l", b"w" * 3000)
    ask(peer, "UPDATE", "item", 5)
    for number in range(300):
        ask(peer, "RPUSH", "q", b"%d" % number + b"x" * 500)
        ask(peer, "LPOP", "q")
        yard.advance(0.1)
    assert yard.journal.first_base > 3000
    yard.crash()
    peer = yard.connect("resp")
    assert ask(peer, "GET", "k") == b"v" * 3000
    assert ask(peer, "GET", "l") == b"w" * 3000
    assert ask(peer, "SCORE", "item") == 5
    assert 900 < ask(peer, "TTL", "k") <= 970
    yard.advance(1000)
    assert ask(peer, "GET", "k") is None


# Lists


def test_lists_keep_their_order(peer: SimulatedPeer, revive: Revive) -> None:
    ask(peer, "RPUSH", "l", "c", "d", "x", "y")
    ask(peer, "LPUSH", "l", "b", "a")
    ask(peer, "RPOP", "l")
    ask(peer, "LREM", "l", 0, "x")
    ask(peer, "RPUSH", "m", "e")
    ask(peer, "LMOVE", "m", "l", "LEFT", "RIGHT")
    ask(peer, "JOB.PUSH", "l", "first", "PRIORITY", 1)
    ask(peer, "JOB.PUSH", "l", "last", "PRIORITY", -1)
    whole = [b"first", b"a", b"b", b"c", b"d", b"e", b"last"]
    assert ask(peer, "LRANGE", "l", 0, -1) == whole
    peer = revive()
    assert ask(peer, "LRANGE", "l", 0, -1) == whole
    assert ask(peer, "EXISTS", "m") == 0
    ask(peer, "LPUSH", "l", "front")
    ask(peer, "RPUSH", "l", "back")
    assert ask(peer, "LRANGE", "l", 0, -1) == [b"first", b"front", *whole[1:-1], b"back", b"last"]


def test_what_was_deleted_stays_away(peer: SimulatedPeer, revive: Revive) -> None:
    ask(peer, "RPUSH", "l", *range(600))
    ask(peer, "RPUSH", "m", "a", "b")
    assert ask(peer, "DEL", "l") == 1
    assert ask(peer, "LPOP", "m", 1) == [b"a"]
    peer = revive()
    assert ask(peer, "LLEN", "l") == 0
    assert ask(peer, "LRANGE", "m", 0, -1) == [b"b"]


def test_databases_stay_apart(peer: SimulatedPeer, revive: Revive) -> None:
    for number in (0, 3):
        ask(peer, "SELECT", number)
        ask(peer, "RPUSH", "l", f"list {number}")
        ask(peer, "SET", "k", f"value {number}")
        ask(peer, "UPDATE", "item", 10 + number)
    peer = revive()
    for number in (3, 0):
        ask(peer, "SELECT", number)
        assert ask(peer, "LPOP", "l") == f"list {number}".encode()
        assert ask(peer, "GET", "k") == f"value {number}".encode()
        assert ask(peer, "SCORE", "item") == 10 + number


# Items


def test_items_keep_their_scores_and_their_order(peer: SimulatedPeer, revive: Revive) -> None:
    for key, delta in (("a", 5), ("b", 5), ("c", 7), ("d", 5), ("a", 1), ("a", -1), ("e", -3)):
        ask(peer, "UPDATE", key, delta)
    peer = revive()
    assert [ask(peer, "SCORE", key) for key in "abcde"] == [5, 5, 7, 5, -3]
    assert ask(peer, "UPDATE", "e", 3) == 0
    assert [ask(peer, "NEXT") for _ in range(6)] == ["c", "b", "d", "a", "e", None]


def test_an_item_that_has_left_begins_anew(peer: SimulatedPeer, revive: Revive) -> None:
    ask(peer, "UPDATE", "a", 5)
    assert ask(peer, "NEXT") == "a"
    peer = revive()
    assert ask(peer, "NEXT") is None
    assert ask(peer, "UPDATE", "a", 2) == 2


# Jobs


def test_delays_retries_and_dependents_go_on(
    yard: SimulatedServer, peer: SimulatedPeer, revive: Revive
) -> None:
    push(peer, "q", "later", "IN", 5000)
    push(peer, "q", "tried", "FAILS", 2, "DEAD", "dead")
    ask(peer, "JOB.FAIL", take(peer).ref, "no", "IN", 8000)
    blocker = push(peer, "other")
    push(peer, "q", "after", "AFTER", 1, blocker)
    push(peer, "brief", "body", "TTL", 7000)
    peer = revive()
    assert take_many(peer) == []
    yard.advance(5)
    assert take(peer).payload == b"later"
    yard.advance(3)
    tried = take(peer)
    assert (tried.payload, tried.attempt, tried.fails) == (b"tried", 2, 1)
    assert ask(peer, "JOB.FAIL", tried.ref, "no") == "failed"
    assert take(peer, "dead").payload == b"tried"
    assert ask(peer, "LPOP", "other") == b"body"
    assert take(peer).payload == b"after"
    assert ask(peer, "EXISTS", "q", "brief") == 0


def test_who_waits_at_a_stop_is_told_that_nothing_came(yard: SimulatedServer) -> None:
    first, second = yard.connect("resp"), yard.connect("resp")
    first.send(command("BLPOP", "q", 0))
    second.send(command("JOB.TAKE", 1, "q", "WAIT", 60_000))
    yard.stop()
    assert read(first) is None
    assert read(second) == []
    first.expect_closed()
    second.expect_closed()


def test_a_real_server_comes_back_with_everything(wire: Wire) -> None:
    peer = wire.connect("resp")
    ask(peer, "SETEX", "k", 1000, "v")
    ask(peer, "RPUSH", "l", "a", "b")
    ask(peer, "UPDATE", "item", 3)
    push(peer)
    job = take(peer)
    wire.restart()
    peer = wire.connect("resp")
    assert ask(peer, "GET", "k") == b"v"
    assert 900 < ask(peer, "TTL", "k") <= 1000
    assert ask(peer, "LRANGE", "l", 0, -1) == [b"a", b"b"]
    assert ask(peer, "NEXT") == "item"
    assert take_many(peer) == []
    assert ask(peer, "JOB.DONE", job.ref) == "OK"


def test_settings_of_the_next_run_do_not_change_leases_of_this_one() -> None:
    yard = SimulatedServer(settings=EngineSettings(default_ttr=7_000_000))
    peer = yard.connect("resp")
    push(peer)
    job = take(peer)
    yard.restart()
    peer = yard.connect("resp")
    yard.advance(6.9)
    assert ask(peer, "JOB.DONE", job.ref) == "OK"
