"""What a RESP client cannot do: be shown what is not on disk, hold the server up, fill its memory,
or have a job lost that it was not given."""

import pytest
from support.replies_resp import Failure, command, replies
from support.simulated import SimulatedPeer, SimulatedServer

from taskyard.engine.model.events import MAX_QUEUES_PER_COMMAND
from taskyard.protocols.resp.connection import RespConnection
from taskyard.protocols.resp.wire import MAX_WAIT, parse_timeout

BIG = 300_000


@pytest.fixture
def yard() -> SimulatedServer:
    return SimulatedServer()


def run(peer: SimulatedPeer, *words: bytes | str | int) -> object:
    peer.send(command(*words))
    [reply] = replies(peer.take())
    return reply


def reads_done(yard: SimulatedServer) -> None:
    while yard.scheduler.blocking:
        yard.scheduler.finish_blocking()
        yard.run_pending()


def cold_yard(*first: tuple[bytes | str | int, ...]) -> tuple[SimulatedServer, SimulatedPeer]:
    """A server that has these commands behind it, whose bytes are on disk only by now, and reads
    them back when it is told to; and a client of it."""
    yard = SimulatedServer(payload_memory=0)
    peer = yard.connect("resp")
    for words in first:
        run(peer, *words)
    for _ in range(8):
        run(peer, "RPUSH", "others", b"x" * BIG)
    yard.scheduler.slow = True
    return yard, peer


# Bytes that have to be read back

POPS: list[tuple[str | int, ...]] = [
    ("LPOP", "l"),
    ("RPOP", "l"),
    ("LPOP", "l", 1),
    ("BLPOP", "l", 0),
    ("BRPOP", "none", "l", 5),
]


@pytest.mark.parametrize("words", POPS, ids=lambda words: " ".join(map(str, words)))
def test_a_client_that_goes_before_its_pop_is_read_back_takes_nothing_along(
    words: tuple[str | int, ...],
) -> None:
    yard, peer = cold_yard(("RPUSH", "l", b"y" * BIG))
    peer.send(command(*words))
    assert yard.scheduler.blocking
    peer.close()
    reads_done(yard)
    yard.scheduler.slow = False
    assert run(yard.connect("resp"), "LPOP", "l") == b"y" * BIG


@pytest.mark.parametrize("words", POPS, ids=lambda words: " ".join(map(str, words)))
def test_a_job_that_cannot_be_read_back_now_is_there_later(words: tuple[str | int, ...]) -> None:
    yard, peer = cold_yard(("RPUSH", "l", b"y" * BIG))
    peer.send(command(*words) + command("PING"))
    yard.disk.fail_call("read")
    reads_done(yard)
    peer.expect_closed()
    yard.scheduler.slow = False
    assert run(yard.connect("resp"), "LPOP", "l") == b"y" * BIG


def test_a_power_cut_before_a_pop_is_read_back_loses_nothing() -> None:
    yard, peer = cold_yard(("RPUSH", "l", b"y" * BIG))
    peer.send(command("BLPOP", "l", 0))
    yard.advance(1)
    peer.expect_nothing()
    yard.crash()
    assert run(yard.connect("resp"), "LPOP", "l") == b"y" * BIG


def test_who_is_quicker_gets_the_job_that_is_read_back_for_another() -> None:
    yard, peer = cold_yard(("RPUSH", "l", b"y" * BIG, b"z" * BIG))
    other = yard.connect("resp")
    peer.send(command("BLPOP", "l", 0))
    other.send(command("LPOP", "l"))
    reads_done(yard)
    assert replies(peer.take()) == [[b"l", b"y" * BIG]]
    assert replies(other.take()) == [b"z" * BIG]


def test_a_pop_waits_if_the_job_that_was_read_back_for_it_has_gone() -> None:
    yard, peer = cold_yard(("RPUSH", "l", b"y" * BIG))
    peer.send(command("BLPOP", "l", 0) + command("PING"))
    assert run(yard.connect("resp"), "DEL", "l") == 1
    reads_done(yard)
    peer.expect_nothing()
    run(yard.connect("resp"), "RPUSH", "l", "new")
    assert replies(peer.take()) == [[b"l", b"new"], "PONG"]


def test_a_pop_in_a_transaction_does_not_wait_even_then() -> None:
    yard, peer = cold_yard(("RPUSH", "l", b"y" * BIG))
    peer.send(command("MULTI") + command("BLPOP", "l", 0) + command("PING") + command("EXEC"))
    assert run(yard.connect("resp"), "DEL", "l") == 1
    reads_done(yard)
    assert replies(peer.take())[-1] == [None, "PONG"]


def test_set_gives_the_value_that_it_has_replaced_and_no_earlier_one() -> None:
    yard, peer = cold_yard(("SET", "k", b"y" * BIG))
    peer.send(command("SET", "k", "mine", "GET"))
    assert run(yard.connect("resp"), "SET", "k", "other") == "OK"
    reads_done(yard)
    assert replies(peer.take()) == [b"other"]
    assert run(peer, "GET", "k") == b"mine"


def test_set_gives_nothing_if_the_value_has_gone_meanwhile() -> None:
    yard, peer = cold_yard(("SET", "k", b"y" * BIG))
    peer.send(command("SET", "k", "mine", "GET"))
    assert run(yard.connect("resp"), "DEL", "k") == 1
    reads_done(yard)
    assert replies(peer.take()) == [None]


def test_records_stay_in_the_order_of_time_after_a_read() -> None:
    yard, peer = cold_yard(("SET", "k", b"y" * BIG), ("RPUSH", "l", b"z" * BIG))
    other = yard.connect("resp")
    peer.send(command("SET", "k", "mine", "EX", 100, "GET"))
    other.send(command("LREM", "l", 0, b"z" * BIG))
    yard.advance(5)
    reads_done(yard)
    assert replies(peer.take()) == [b"y" * BIG]
    assert replies(other.take()) == [1]
    assert yard.engine.state.time == yard.clock.now()


# A journal that cannot be written any more


@pytest.mark.parametrize(
    "words",
    [
        ("LLEN", "l"),
        ("LRANGE", "l", 0, -1),
        ("LINDEX", "l", 0),
        ("LPOP", "none"),
        ("LREM", "l", 0, "none"),
        ("EXISTS", "k"),
        ("TYPE", "k"),
        ("TTL", "k"),
        ("PTTL", "k"),
        ("GET", "k"),
        ("SETNX", "k", "v"),
        ("SET", "k", "v", "NX"),
        ("SET", "k", "v", "GET"),
        ("EXPIRE", "none", 5),
        ("PERSIST", "k"),
        ("INFO",),
        ("PEEK",),
        ("JOB.DONE", "1-1-1"),
    ],
    ids=lambda words: " ".join(map(str, words)),
)
def test_nothing_is_shown_that_may_never_be_on_disk(
    yard: SimulatedServer, words: tuple[str | int, ...]
) -> None:
    peer = yard.connect("resp")
    run(peer, "RPUSH", "l", "a")
    run(peer, "SET", "k", "v")
    yard.disk.fail_call("sync")
    other = yard.connect("resp")
    other.send(command("RPUSH", "l", "b"))
    assert other.closed
    reply = run(peer, *words)
    assert isinstance(reply, Failure)
    assert str(reply).startswith("READONLY ")
    assert run(peer, "PING") == "PONG"


# Bounds


def test_a_client_cannot_wait_in_lines_without_number(yard: SimulatedServer) -> None:
    peer = yard.connect("resp")
    keys = [b"k%d" % number for number in range(MAX_QUEUES_PER_COMMAND)]
    reply = run(peer, "BLPOP", *keys, "one-more", 0)
    assert str(reply) == f"ERR too many queues: a command names at most {MAX_QUEUES_PER_COMMAND}"
    assert not yard.engine.waiters
    peer.send(command("BLPOP", *keys, 0))
    assert len(yard.engine.waiters) == MAX_QUEUES_PER_COMMAND
    run(yard.connect("resp"), "RPUSH", keys[-1], "x")
    assert replies(peer.take()) == [[keys[-1], b"x"]]


def test_a_long_command_is_not_remembered(yard: SimulatedServer) -> None:
    peer = yard.connect("resp")
    connection = peer.receiver
    assert isinstance(connection, RespConnection)
    run(peer, "RPUSH", "l", "x", "y", "z")
    assert run(peer, "BLPOP", "l", 0) == [b"l", b"x"]
    assert connection.last_pop
    keys = [b"k%d" % number for number in range(999)]
    for value in (b"y", b"z"):
        assert run(peer, "BLPOP", *keys, "l", 0) == [b"l", value]
        assert connection.last_pop == [b"BLPOP", b"l", b"0"]


def test_arguments_fill_a_transaction_as_well(yard: SimulatedServer) -> None:
    peer = yard.connect("resp")
    assert run(peer, "MULTI") == "OK"
    assert run(peer, "DEL", *[b""] * 79_999) == "QUEUED"
    assert run(peer, "DEL", *[b""] * 79_999) == "QUEUED"
    reply = run(peer, "PING")
    assert str(reply) == "ERR too much in one transaction: at most 160000 arguments"
    assert str(run(peer, "EXEC")).startswith("EXECABORT ")


def test_bytes_fill_a_transaction_as_well(yard: SimulatedServer) -> None:
    peer = yard.connect("resp")
    assert run(peer, "MULTI") == "OK"
    value = b"x" * 1_000_000
    for _ in range(67):
        assert run(peer, "RPUSH", "l", value) == "QUEUED"
    reply = run(peer, "RPUSH", "l", value)
    assert str(reply) == "ERR too much in one transaction: at most 67108864 bytes"
    assert str(run(peer, "EXEC")).startswith("EXECABORT ")
    assert run(peer, "LLEN", "l") == 0


def pop_many(yard: SimulatedServer, count: int, size: int) -> tuple[SimulatedPeer, RespConnection]:
    """A client whose EXEC, which pops so many, has just arrived."""
    peer = yard.connect("resp")
    for _ in range(count):
        run(peer, "RPUSH", "l", b"x" * size)
    run(peer, "MULTI")
    for _ in range(count):
        run(peer, "LPOP", "l")
    peer.arrive(command("EXEC"))
    connection = peer.receiver
    assert isinstance(connection, RespConnection)
    return peer, connection


def test_nobody_comes_in_between_though_the_replies_have_to_wait() -> None:
    yard = SimulatedServer(output_limit=10_000)
    peer, connection = pop_many(yard, 100, 1000)
    assert not connection.has_list(b"l")
    yard.run_pending()
    assert replies(peer.take()) == [[b"x" * 1000] * 100]


def test_a_transaction_goes_on_later_if_its_replies_are_very_large() -> None:
    yard = SimulatedServer(payload_memory=1 << 27, segment_size=1 << 22)
    peer, connection = pop_many(yard, 70, 1_000_000)
    assert connection.has_list(b"l")
    yard.run_pending()
    assert not connection.has_list(b"l")
    assert replies(peer.take()) == [[b"x" * 1_000_000] * 70]


def test_what_exec_has_still_to_do_is_counted_as_held() -> None:
    yard, peer = cold_yard(("RPUSH", "l", b"y" * BIG))
    connection = peer.receiver
    assert connection is not None
    for words in (("MULTI",), ("LINDEX", "l", 0), ("RPUSH", "l", b"x" * 5000)):
        run(peer, *words)
    peer.send(command("EXEC"))
    assert yard.scheduler.blocking
    assert connection.buffered_bytes() >= 5000
    reads_done(yard)
    assert replies(peer.take()) == [[b"y" * BIG, 2]]
    assert connection.buffered_bytes() == 0


def test_others_are_answered_while_many_keys_are_looked_for(yard: SimulatedServer) -> None:
    peer, other = yard.connect("resp"), yard.connect("resp")
    run(peer, "SET", "k", "v")
    connection = peer.receiver
    assert isinstance(connection, RespConnection)
    between = 0

    def witness(data: bytes) -> None:
        nonlocal between
        if connection.chunked_command is not None:
            between += data.count(b"+PONG")

    other.witness = witness
    peer.arrive(command("EXISTS", *[b"k"] * 40_000, "none"))
    other.arrive(command("PING"))
    yard.run_pending()
    assert replies(peer.take()) == [40_000]
    assert between == 1


@pytest.mark.parametrize("text", [b"1e12", b"1e15", b"9e15"])
def test_a_wait_of_ages_fits_in_64_bits(yard: SimulatedServer, text: bytes) -> None:
    assert parse_timeout(text) == MAX_WAIT
    peer = yard.connect("resp")
    peer.send(command("BLPOP", "l", text))
    yard.advance(10_000)
    peer.expect_nothing()
    run(yard.connect("resp"), "RPUSH", "l", "x")
    assert replies(peer.take()) == [[b"l", b"x"]]


def test_a_key_that_is_due_does_not_look_as_if_it_never_expired(yard: SimulatedServer) -> None:
    """What is due is done in chunks, so a key may be found after its time."""
    peer = yard.connect("resp")
    run(peer, "SET", "k", "v", "PX", 1000)
    value = yard.engine.value(b"k")
    assert value is not None
    yard.engine.state.timers.cancel(value.timer)
    yard.advance(2)
    assert run(peer, "TTL", "k") == 0
    assert run(peer, "PTTL", "k") == 0


def test_a_job_that_is_tried_again_is_not_called_failed_since_others_are(
    yard: SimulatedServer,
) -> None:
    """Those that wait for a job which fails do so in chunks, at whosever turn it is."""
    peer = yard.connect("resp")
    blocker = run(peer, "JOB.PUSH", "b", "x")
    assert isinstance(blocker, int)
    run(peer, "JOB.PUSH", "q", "x", "FAILS", 0, "BACKOFF", 0, 0)
    jobs = run(peer, "JOB.TAKE", 2, "b", "q", "COUNT", 2)
    assert isinstance(jobs, list)
    assert len(jobs) == 2
    for _ in range(3000):
        peer.arrive(command("JOB.PUSH", "q", "y", "AFTER", 1, blocker))
    yard.run_pending()
    peer.take()
    peer.send(command("JOB.FAIL", jobs[0][0], "e", "FINAL") + command("JOB.FAIL", jobs[1][0], "e"))
    assert replies(peer.take()) == ["failed", "ready"]
