"""Payloads that are on disk only: read back for RESP clients, while all else goes on."""

from collections.abc import Callable

import pytest
from support.fixed_gate import FixedAuthenticator
from support.replies_resp import Failure, ask, command, replies
from support.resp_jobs import as_jobs
from support.resp_lists import content, fill, length, run
from support.simulated import SimulatedPeer, SimulatedServer

from taskyard.access.principal import PUSH, TAKE, Principal, Rule


@pytest.fixture
def cold() -> SimulatedServer:
    """With as little memory for payloads as there can be."""
    return SimulatedServer(payload_memory=0, segment_size=1 << 18)


def large(count: int, size: int = 3000) -> list[bytes]:
    return [b"%08d" % number * (size // 8) for number in range(count)]


def cool(yard: SimulatedServer, values: list[bytes]) -> SimulatedPeer:
    """Have these in a list, and none of them in memory."""
    fill(yard, values)
    yard.restart()
    return yard.connect("resp")


def reads_done(yard: SimulatedServer) -> None:
    while yard.scheduler.blocking:
        yard.scheduler.finish_blocking()
        yard.run_pending()


COLD_COMMANDS: list[tuple[tuple[bytes | str | int, ...], Callable[[list[bytes]], object]]] = [
    (("LRANGE", "l", 0, -1), lambda values: values),
    (("LRANGE", "l", 100, 700), lambda values: values[100:701]),
    (("LPOP", "l", 700), lambda values: values[:700]),
    (("RPOP", "l", 700), lambda values: values[:-701:-1]),
    (("LPOP", "l"), lambda values: values[0]),
    (("RPOP", "l"), lambda values: values[-1]),
    (("BLPOP", "l", 0), lambda values: [b"l", values[0]]),
    (("LINDEX", "l", 500), lambda values: values[500]),
    (("LREM", "l", 0, large(800)[799]), lambda values: 1),
    (("LREM", "l", -1, large(800)[0]), lambda values: 1),
    (("LMOVE", "l", "m", "RIGHT", "LEFT"), lambda values: values[-1]),
]


@pytest.mark.parametrize("slow", [False, True])
@pytest.mark.parametrize("case", range(len(COLD_COMMANDS)))
def test_payloads_come_back_from_disk(cold: SimulatedServer, case: int, slow: bool) -> None:
    words, expected = COLD_COMMANDS[case]
    values = large(800)
    peer = cool(cold, values)
    reads = cold.disk.calls("read")
    cold.scheduler.slow = slow
    other = cold.connect("resp")
    peer.send(command(*words) + command("PING"))
    if slow:
        peer.expect_nothing()
        assert ask(other, "PING") == "PONG"
    reads_done(cold)
    assert replies(peer.take()) == [expected(values), "PONG"]
    assert cold.disk.calls("read") > reads


def test_jobs_come_back_from_disk(cold: SimulatedServer) -> None:
    values = large(800)
    peer = cool(cold, values)
    peer.send(command("JOB.TAKE", 1, "l", "COUNT", 700))
    [reply] = replies(peer.take())
    assert [job.payload for job in as_jobs(reply)] == values[:700]


def in_small_segments(values: list[bytes]) -> tuple[SimulatedServer, SimulatedPeer]:
    """Have these in a list, in many segments, and none of them in memory."""
    yard = SimulatedServer(payload_memory=0, segment_size=1 << 16)
    peer = yard.connect("resp")
    for value in values:
        peer.send(command("RPUSH", "l", value))
    yard.restart()
    assert yard.journal.segments > 50
    yard.scheduler.slow = True
    return yard, yard.connect("resp")


@pytest.mark.parametrize("last", [False, True])
def test_what_is_popped_is_answered_though_compaction_drops_it(last: bool) -> None:
    """The journal is garbage once the jobs are popped, and goes while they are read."""
    values = large(2000)
    yard, peer = in_small_segments(values)
    peer.send(command("RPOP" if last else "LPOP", "l", 2000))
    while yard.scheduler.blocking:
        yard.advance(0.1)
        yard.scheduler.finish_blocking()
        yard.run_pending()
    [reply] = replies(peer.take())
    assert reply == (values[::-1] if last else values)
    yard.advance(1)
    reads_done(yard)
    assert yard.journal.segments < 30


def test_jobs_that_others_pop_while_a_range_is_read_are_left_out() -> None:
    values = large(2000)
    yard, peer = in_small_segments(values)
    peer.send(command("LRANGE", "l", 0, -1))
    other = yard.connect("resp")
    other.send(command("DEL", "l"))
    other.expect(b":1\r\n")
    while yard.scheduler.blocking:
        yard.advance(0.1)
        yard.scheduler.blocking.rotate(1)  # what drops segments comes before what reads them
        yard.scheduler.finish_blocking()
        yard.run_pending()
    [reply] = replies(peer.take())
    assert isinstance(reply, list)
    assert set(reply) <= set(values)
    assert not peer.closed


def test_a_job_whose_lease_ends_while_it_is_read_is_not_given(cold: SimulatedServer) -> None:
    """Its ref would be that of whoever took it next."""
    peer = cool(cold, large(800))
    cold.scheduler.slow = True
    peer.send(command("JOB.TAKE", 1, "l", "TTR", 1000))
    cold.advance(1)
    other = cold.connect("resp")
    other.send(command("JOB.TAKE", 1, "l", "TTR", 60_000))
    reads_done(cold)
    assert replies(peer.take()) == [[]]
    [[job]] = replies(other.take())
    assert job[0] == b"1-2-2"


@pytest.mark.parametrize("brief", [True, False])
def test_of_several_jobs_those_whose_lease_has_ended_are_not_given(
    cold: SimulatedServer, brief: bool
) -> None:
    fill(cold, large(300))
    cold.restart()
    peer = cold.connect("resp")
    ask(peer, "JOB.PUSH", "l", b"x" * 3000, "TTR", 1000, "PRIORITY", 1)
    ask(peer, "JOB.PUSH", "l", b"", "PRIORITY", 2)
    cold.restart()
    peer = cold.connect("resp")
    cold.scheduler.slow = True
    peer.send(command("JOB.TAKE", 1, "l", "COUNT", 200, *["BRIEF"] * brief))
    cold.advance(1)
    reads_done(cold)
    [reply] = replies(peer.take())
    assert [job[-1] for job in reply] == [b"", *large(198)]


def test_a_disk_that_cannot_be_read_ends_the_connection(cold: SimulatedServer) -> None:
    peer = cool(cold, large(800))
    cold.disk.fail_call("read")
    peer.send(command("LPOP", "l", 700))
    peer.expect_closed()
    cold.disk.heal()
    assert length(cold) == 800
    assert run(cold.connect("resp"), "LPOP", "l") == large(1)[0]


def test_an_old_value_is_read_before_it_is_replaced(cold: SimulatedServer) -> None:
    peer = cold.connect("resp")
    ask(peer, "SET", "k", b"old" * 1000)
    peer = cool(cold, large(800))
    cold.scheduler.slow = True
    peer.send(command("SET", "k", "new", "GET") + command("GET", "k"))
    peer.expect_nothing()
    reads_done(cold)
    assert replies(peer.take()) == [b"old" * 1000, b"new"]


def test_a_key_that_becomes_a_list_while_its_value_is_read_stays_one(cold: SimulatedServer) -> None:
    ask(cold.connect("resp"), "SET", "k", b"old" * 1000)
    peer = cool(cold, large(800))
    cold.scheduler.slow = True
    peer.send(command("SET", "k", "new", "GET"))
    other = cold.connect("resp")
    assert ask(other, "DEL", "k") == 1
    assert ask(other, "RPUSH", "k", "a") == 1
    reads_done(cold)
    [reply] = replies(peer.take())
    assert isinstance(reply, Failure)
    assert reply.startswith("WRONGTYPE")
    assert ask(other, "TYPE", "k") == "list"


def test_who_is_lost_while_payloads_are_read_leaves_a_sound_list(cold: SimulatedServer) -> None:
    values = large(800)
    peer = cool(cold, values)
    cold.scheduler.slow = True
    peer.send(command("LPOP", "l", 700))
    peer.close()
    reads_done(cold)
    cold.scheduler.slow = False
    left = content(cold)
    assert isinstance(left, list)
    assert left == values[-len(left) :]


def test_who_says_no_more_while_payloads_are_read_is_answered(cold: SimulatedServer) -> None:
    values = large(800)
    peer = cool(cold, values)
    cold.scheduler.slow = True
    peer.send(command("LPOP", "l", 700) + command("LLEN", "l"))
    assert peer.receiver is not None
    peer.receiver.on_eof()
    reads_done(cold)
    assert replies(peer.take()) == [values[:700], 100]
    peer.expect_closed()


WAITING: list[tuple[str | int, ...]] = [
    ("BLPOP", "l", 0),
    ("BRPOP", "l", 0),
    ("BLPOP", "other", "l", 100),
    ("BLMOVE", "l", "m", "LEFT", "RIGHT", 0),
    ("BRPOPLPUSH", "l", "m", 0),
]


def due_later(yard: SimulatedServer, values: list[bytes], delay_ms: int = 10_000) -> SimulatedPeer:
    """Have these in a list after that time, and none of them in memory."""
    peer = yard.connect("resp")
    for value in values:
        ask(peer, "JOB.PUSH", "l", value, "IN", delay_ms)
    fill(yard, large(400), "more")  # what was written last is kept in any case
    yard.restart()
    yard.scheduler.slow = True
    return yard.connect("resp")


@pytest.mark.parametrize("words", WAITING)
def test_who_waits_gets_a_job_whose_payload_has_to_be_read(
    cold: SimulatedServer, words: tuple[str | int, ...]
) -> None:
    peer = due_later(cold, [b"late" * 1000])
    peer.send(command(*words) + command("PING"))
    cold.advance(10)
    peer.expect_nothing()
    assert length(cold) == 1
    reads_done(cold)
    value = b"late" * 1000
    expected = value if "m" in words else [b"l", value]
    assert replies(peer.take()) == [expected, "PONG"]
    assert length(cold) == 0


@pytest.mark.parametrize("words", WAITING)
def test_a_job_whose_payload_cannot_be_read_stays_for_others(
    cold: SimulatedServer, words: tuple[str | int, ...]
) -> None:
    peer = due_later(cold, [b"late" * 1000])
    peer.send(command(*words))
    cold.disk.fail_always("read")
    cold.advance(10)
    reads_done(cold)
    peer.expect_closed()
    assert length(cold) == 1
    assert length(cold, "m") == 0
    cold.disk.heal()
    other = cold.connect("resp")
    other.send(command("BLPOP", "l", 0))
    reads_done(cold)
    assert replies(other.take()) == [[b"l", b"late" * 1000]]


@pytest.mark.parametrize("words", [("LMOVE", "l", "m", "LEFT", "LEFT"), ("LPOP", "l"), ("NEXT",)])
def test_a_job_that_cannot_be_read_is_neither_popped_nor_moved(
    cold: SimulatedServer, words: tuple[str, ...]
) -> None:
    queue = "pqueue" if words == ("NEXT",) else "l"
    fill(cold, large(800), queue)
    cold.restart()
    peer = cold.connect("resp")
    cold.disk.fail_always("read")
    peer.send(command(*words))
    peer.expect_closed()
    assert length(cold, queue) == 800
    assert length(cold, "m") == 0


def test_all_who_wait_are_served_though_the_disk_fails_for_the_first(cold: SimulatedServer) -> None:
    values = [b"%d" % number * 2000 for number in range(2)]
    first = due_later(cold, values)
    second, third = cold.connect("resp"), cold.connect("resp")
    for peer in (first, second, third):
        peer.send(command("BLPOP", "l", 0))
    cold.disk.fail_call("read")
    cold.advance(10)
    cold.scheduler.finish_blocking()
    cold.run_pending()
    first.expect_closed()
    cold.disk.heal()
    reads_done(cold)
    assert replies(second.take()) == [[b"l", values[0]]]
    assert replies(third.take()) == [[b"l", values[1]]]


@pytest.mark.parametrize("goes", [True, False])
def test_a_job_goes_on_to_the_next_when_its_waiter_leaves_while_it_is_read(
    cold: SimulatedServer, goes: bool
) -> None:
    value = b"late" * 1000
    first = due_later(cold, [value])
    second = cold.connect("resp")
    first.send(command("BLPOP", "l", 12))
    second.send(command("BLPOP", "l", 0))
    cold.advance(10)
    if goes:
        first.close()
    else:
        cold.advance(2)
        assert replies(first.take()) == [None]
    reads_done(cold)
    assert replies(second.take()) == [[b"l", value]]


def test_who_is_quicker_gets_the_job_that_is_read_for_another(cold: SimulatedServer) -> None:
    value = b"late" * 1000
    waits = due_later(cold, [value])
    waits.send(command("BLPOP", "l", 0))
    cold.advance(10)
    other = cold.connect("resp")
    assert ask(other, "DEL", "l") == 1
    reads_done(cold)
    waits.expect_nothing()
    assert ask(other, "RPUSH", "l", "new") == 1
    assert replies(waits.take()) == [[b"l", b"new"]]


@pytest.mark.parametrize(
    "words", [("LPOP", "l"), ("BLPOP", "l", 0), ("LMOVE", "l", "m", "LEFT", "LEFT")]
)
def test_a_pop_may_be_forbidden_while_its_payload_is_read(words: tuple[str | int, ...]) -> None:
    user = Principal("ada", [Rule(["*"], [TAKE, PUSH])])
    gate = FixedAuthenticator({"ada": user, "root": Principal("root", is_superuser=True)})
    yard = SimulatedServer(payload_memory=0, segment_size=1 << 18, gate=gate)
    root = yard.connect("resp", certificate="root")
    for value in large(400):
        ask(root, "RPUSH", "l", value)
    yard.restart()
    yard.scheduler.slow = True
    peer = yard.connect("resp", certificate="ada")
    peer.send(command(*words))
    user.set_rules([Rule(["other"], [TAKE])], False)
    reads_done(yard)
    [reply] = replies(peer.take())
    assert str(reply).startswith("NOPERM ")
    queue = yard.engine.queue(b"l")
    assert queue is not None
    assert queue.ready.size == 400
