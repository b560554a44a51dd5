"""Turns: a connection with much to say does not keep the others waiting, nor the loop."""

import pytest
from support.simulated import SimulatedPeer, SimulatedServer
from support.wire import exchange

PUSH = b'PUSH {"name":"a"}\n'
TURN = 16
ROUND = 2_500  # microseconds
MUCH = 15 * TURN  # commands of more bytes than are done ahead of others


def watch_replies(peer: SimulatedPeer, name: str, seen: list[str]) -> None:
    peer.witness = lambda data: seen.extend([name] * data.count(b"\n"))


def ask_together(yard: SimulatedServer, names: list[str], seen: list[str]) -> None:
    """All send, in this order, before the loop goes on: the deep ones much."""
    peers = [yard.connect() for _ in names]
    for name, peer in zip(names, peers, strict=True):
        watch_replies(peer, name, seen)
        peer.arrive(b"PING\n" * (MUCH if "deep" in name else 1))
    yard.run_pending()


def test_connections_take_turns_of_a_few_commands() -> None:
    yard = SimulatedServer()
    seen: list[str] = []
    ask_together(yard, ["deep", "also deep"], seen)
    # The first one had a turn at once, and then was in line before the second.
    turns = MUCH // TURN - 1
    expected = ["deep"] * 2 * TURN
    expected += (["also deep"] * TURN + ["deep"] * TURN) * (turns - 1) + ["also deep"] * 2 * TURN
    assert seen == expected


def test_who_has_come_with_little_overtakes_those_with_much() -> None:
    yard = SimulatedServer()
    seen: list[str] = []
    ask_together(yard, ["deep", "also deep", "plain", "also plain"], seen)
    assert seen[TURN : 2 * TURN + 2] == ["plain", *["deep"] * TURN, "also plain"]


def test_those_with_much_have_as_many_turns_as_in_one_line_with_all() -> None:
    yard = SimulatedServer()
    seen: list[str] = []
    ask_together(yard, ["deep"] * 2 + ["plain"] * 20, seen)
    [first, second, third] = [at for at, name in enumerate(seen) if name == "plain"][:3]
    assert (first, second, third) == (TURN, 2 * TURN + 1, 2 * TURN + 2)
    for number in (1, 2):  # turns of those with much
        before = seen[: [at for at, name in enumerate(seen) if name == "deep"][number * TURN]]
        assert before.count("plain") <= 10 * (number - 1) + 1
    assert seen.count("deep") == 2 * MUCH


class RecordingPost:
    def __init__(self, seen: list[str]) -> None:
        self._seen = seen

    def mark_priority(self) -> None:
        self._seen.append("mark")

    def send_priority_now(self) -> None:
        self._seen.append("hurry")


def test_replies_to_who_had_little_are_wanted_before_those_with_much_go_on() -> None:
    yard = SimulatedServer()
    seen: list[str] = []
    yard.broker.turn_queue.reply_sender = RecordingPost(seen)
    ask_together(yard, ["deep", "also deep", "plain", "also plain"], seen)
    assert seen[TURN : TURN + 4] == ["mark", "plain", "hurry", "deep"]
    assert seen.count("mark") == seen.count("hurry") == 1


@pytest.mark.parametrize("name", ["deep", "plain"])
def test_replies_are_not_wanted_at_once_where_all_are_alike(name: str) -> None:
    yard = SimulatedServer()
    seen: list[str] = []
    yard.broker.turn_queue.reply_sender = RecordingPost(seen)
    ask_together(yard, [name] * 5, seen)
    assert set(seen) == {name}


def test_replies_keep_the_order_of_commands_over_turns() -> None:
    yard = SimulatedServer()
    peer = yard.connect()
    peer.arrive(PUSH * 50)
    peer.arrive(PUSH * 50)
    yard.run_pending()
    peer.expect(b"".join(b'OK {"id":%d}\n' % id for id in range(1, 101)))
    peer.expect_nothing()


def test_the_loop_looks_at_its_sockets_after_a_while() -> None:
    """Each look at the clock takes time here, as commands do in life."""
    yard = SimulatedServer()
    deep, plain = yard.connect(), yard.connect()
    real_now = yard.clock.now

    def slow_now() -> int:
        yard.clock.time += ROUND // 5
        return real_now()

    yard.clock.now = slow_now  # type: ignore[method-assign]
    deep.arrive(b"PING\n" * 100 * TURN)
    answered = 0
    rounds = 0
    while answered < 100 * TURN:
        assert yard.scheduler.step()
        replies = deep.take().count(b"\n")
        assert replies <= 10 * TURN
        answered += replies
        rounds += 1
        if rounds == 3:
            plain.arrive(b"PING\n")
    assert rounds > 10
    yard.clock.now = real_now  # type: ignore[method-assign]
    yard.run_pending()
    plain.expect(b"PONG {}\n")


def test_what_waits_in_line_shares_a_commit_with_what_was_carried_out() -> None:
    yard = SimulatedServer()
    peers = [yard.connect() for _ in range(10)]
    syncs = yard.disk.calls("sync")
    for peer in peers:
        peer.arrive(PUSH * 5 * TURN)
    yard.run_pending()
    assert yard.disk.calls("sync") == syncs + 1


def test_a_connection_that_ends_while_it_is_in_line_is_answered_and_closed() -> None:
    yard = SimulatedServer()
    peer = yard.connect()
    peer.arrive(PUSH * 3 * TURN)
    assert peer.receiver is not None
    peer.receiver.on_eof()
    yard.run_pending()
    assert peer.take().count(b"\n") == 3 * TURN
    peer.expect_closed()


def test_a_connection_that_is_lost_while_it_is_in_line_does_nothing_more() -> None:
    yard = SimulatedServer()
    peer = yard.connect()
    peer.arrive(PUSH * 3 * TURN)
    peer.close()
    other = yard.connect()
    exchange(other, PUSH, b'OK {"id":%d}\n' % (TURN + 1))


def test_a_stop_answers_what_is_in_line() -> None:
    yard = SimulatedServer()
    peer = yard.connect()
    peer.arrive(PUSH * 3 * TURN)
    yard.stop()
    assert peer.take().count(b"\n") == 3 * TURN
    peer.expect_closed()


def test_a_client_that_goes_with_many_jobs_gives_them_back_over_several_turns() -> None:
    yard = SimulatedServer()
    peer, other = yard.connect(), yard.connect()
    peer.send(b'PUSH {"name":"a","retry":0,"deadqueue":"dead"}\n' * 1000 + b"FETCH\n" * 1000)
    peer.take()
    assert peer.receiver is not None
    peer.receiver.on_disconnect()
    held = yard.engine.state.queues[b"default"].leased.size
    assert 0 < held < 1000
    exchange(other, b"PING\n", b"PONG {}\n")
    assert yard.engine.state.queues[b"default"].leased.size == 0
    other.send(b'FETCH {"queues":["dead"]}\n' * 1000)
    ids = [int(line.split(b":")[1].split(b",")[0]) for line in other.take().splitlines()]
    assert ids == list(range(1, 1001))


def test_jobs_that_are_still_to_be_given_back_at_a_crash_are_given_back_after_it() -> None:
    yard = SimulatedServer()
    peer = yard.connect()
    peer.send(PUSH * 1000 + b"FETCH\n" * 1000)
    assert peer.receiver is not None
    peer.receiver.on_disconnect()
    assert yard.engine.state.queues[b"default"].leased.size
    yard.crash()
    assert yard.engine.state.queues[b"default"].leased.size == 0
    assert yard.engine.state.jobs.size == 1000


def request(method: str, path: str, body: bytes = b"") -> bytes:
    head = f"{method} {path} HTTP/1.1\r\nhost: a\r\ncontent-type: application/json\r\n"
    return head.encode() + b"content-length: %d\r\n\r\n%b" % (len(body), body)


@pytest.mark.parametrize(
    ("dialect", "data"),
    [
        ("api", request("GET", "/api/v1/queues")),
        ("api", request("POST", "/api/v1/queues/q/jobs", b'{"payload":1}')),
        ("api", request("GET", "/api/v1/queues/none")),  # is refused
        ("resp", b"API GET /api/v1/queues\r\n"),
        ("resp", b"PING\r\n"),
        ("workq", b"inspect queues 0 1\r\n"),
        ("masenko", PUSH),
    ],
)
def test_a_request_is_one_turn(dialect: str, data: bytes) -> None:
    yard = SimulatedServer()
    peer = yard.connect(dialect)
    peer.send(data)
    peer.take()
    before = yard.broker._turn_count
    peer.arrive(data)
    assert yard.broker._turn_count == before + 1
    yard.run_pending()
    assert peer.take() != b""


def test_who_waits_has_the_job_of_a_request_in_the_same_turn() -> None:
    yard = SimulatedServer()
    worker = yard.connect("resp")
    worker.send(b"BLPOP q 0\r\n")
    yard.connect("api").send(request("POST", "/api/v1/queues/q/jobs", b'{"payload":1}') * 2)
    worker.expect(b"*2\r\n$1\r\nq\r\n$1\r\n1\r\n")
