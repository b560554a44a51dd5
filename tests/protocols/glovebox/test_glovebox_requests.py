"""Glovebox: what each request does, in both forms and answered in both."""

from collections.abc import Callable

import pytest
from support.glovebox import Client
from support.naming import NAME_RULE
from support.simulated import SimulatedServer

from taskyard.engine.model.state import EngineSettings

MAX_U64 = 2**64 - 1
NOT_TEXT = b"\xff\x00\x80"

Connect = Callable[..., Client]


@pytest.fixture
def yard() -> SimulatedServer:
    return SimulatedServer()


@pytest.fixture(params=["json", "bincode"])
def sends_binary(request: pytest.FixtureRequest) -> bool:
    return bool(request.param == "bincode")


@pytest.fixture(params=["to json", "to bincode"])
def connect(request: pytest.FixtureRequest, yard: SimulatedServer, sends_binary: bool) -> Connect:
    """Clients of each form that are answered in each form."""

    def make(at: SimulatedServer = yard) -> Client:
        return Client(at, binary=request.param == "to bincode", sends_binary=sends_binary)

    return make


@pytest.fixture
def client(connect: Connect) -> Client:
    """One that has created the queue `q`."""
    client = connect()
    client.create("q", label=1)
    client.expect_notice(1, "ready")
    return client


# Hello and create


def test_every_connection_is_greeted_with_an_id_of_its_own(connect: Connect) -> None:
    ids = {connect().id for _ in range(5)}
    assert len(ids) == 5
    assert all(1 << 62 <= id < 1 << 63 for id in ids)


def test_a_created_queue_is_there(connect: Connect) -> None:
    client = connect()
    client.pop("new", label=2)
    client.expect_error(2, "NoObject", "new")
    client.create("new", label=3)
    client.expect_notice(3, "ready")
    client.pop("new", label=4)
    client.expect_none(4)


def test_a_name_in_use_is_not_created_again(client: Client) -> None:
    client.create("q", label=MAX_U64)
    client.expect_error(MAX_U64, "ObjectAlreadyExists", "q")


def test_creation_can_be_switched_off(connect: Connect) -> None:
    client = connect(SimulatedServer(creation=False))
    client.create("q", label=5)
    client.expect_error(5, "PermissionDenied", "q")
    client.post("q", label=6)
    client.expect_error(6, "NoObject", "q")


@pytest.mark.parametrize("name", ["", "two words", "a\nb", "x" * 256])
def test_a_queue_must_have_a_name_that_all_dialects_allow(connect: Connect, name: str) -> None:
    client = connect()
    client.create(name, label=5)
    client.expect_error(5, "BadRequest", f"queue: {NAME_RULE}")


def test_a_queue_of_another_dialect_exists(yard: SimulatedServer, connect: Connect) -> None:
    yard.connect().send(b'PUSH {"name":"task","queue":"theirs","payload":{"a": [1,  2]}}\n')
    client = connect()
    client.create("theirs", label=1)
    client.expect_error(1, "ObjectAlreadyExists", "theirs")
    client.pop("theirs", label=2)
    client.expect_message(2, 1, '{"a":[1,2]}', finished=True)


def test_its_settings_outlive_the_server(yard: SimulatedServer, connect: Connect) -> None:
    connect().create("once", retries=0)
    yard.restart()
    poster, taker = connect(), connect()
    poster.post("once", label=9, notify=("retry", "drop"))
    taker.fetch("once", work_timeout=5)
    taker.taken()
    yard.advance(5)
    poster.expect_notice(9, "drop")


@pytest.mark.parametrize(
    "ask",
    [
        lambda client: client.post("none", label=8),
        lambda client: client.pop("none", label=8),
        lambda client: client.fetch("none", label=8),
        lambda client: client.finish("none", 1, label=8),
        lambda client: client.pop("none", 10, label=8),
    ],
)
def test_nothing_can_be_asked_of_a_queue_that_is_not_there(
    client: Client, ask: Callable[[Client], None]
) -> None:
    ask(client)
    client.expect_error(8, "NoObject", "none")


# Post


def test_a_message_is_posted_without_a_word(client: Client) -> None:
    client.post("q", b"hello", label=4)
    client.expect_nothing()
    client.pop("q", label=5)
    client.expect_message(5, 1, "hello", finished=True)


@pytest.mark.parametrize(
    ("sent", "shown"),
    [
        (b"", ""),
        ("h\u00e4\u2603\U0001f600".encode(), "h\u00e4\u2603\U0001f600"),
        (b'a"b\\c\n\0', 'a"b\\c\n\0'),
        (b'{"not": "parsed"}', '{"not": "parsed"}'),
        (NOT_TEXT, [255, 0, 128]),
        (b"x" * 70_000, "x" * 70_000),
    ],
)
def test_a_body_that_is_text_is_a_string_and_any_other_an_array_of_bytes(
    client: Client, sent: bytes, shown: object
) -> None:
    client.post("q", sent)
    client.pop("q", label=5)
    client.expect_message(5, 1, shown, finished=True)


def test_text_sent_as_an_array_of_bytes_comes_back_as_a_string(yard: SimulatedServer) -> None:
    client = Client(yard)
    client.create("q")
    client.peer.send_json(type="post", queue="q", message=[104, 105])
    client.next()
    client.pop("q")
    client.expect_message(0, 1, "hi", finished=True)


def test_higher_priorities_come_first_and_equal_ones_as_they_came(client: Client) -> None:
    for priority, body in [(1, b"b"), (0, b"d"), (2**32 - 1, b"a"), (1, b"c")]:
        client.post("q", body, priority=priority)
    bodies = []
    for _ in range(4):
        client.pop("q")
        bodies.append(client.next()["body"])
    assert bodies == ["a", "b", "c", "d"]


def test_a_message_beyond_the_limit_is_refused(connect: Connect) -> None:
    client = connect(SimulatedServer(settings=EngineSettings(payload_limit=10)))
    client.create("q")
    client.next()
    client.post("q", b"x" * 11, label=3)
    client.expect_error(3, "BadRequest", "payload: too large")
    client.post("q", b"x" * 10, label=3, notify=("sync",))
    client.expect_notice(3, "sync")


# Pop


@pytest.mark.parametrize("sync", ["ready", "write", "sync"])
def test_a_popped_message_is_finished(client: Client, sync: str) -> None:
    client.post("q")
    client.pop("q", label=5, sync=sync)
    client.expect_message(5, 1, finished=True)
    client.finish("q", 1, label=6)
    client.expect_error(6, "NoObject", "q")


def test_a_pop_of_an_empty_queue_is_answered_at_once(client: Client) -> None:
    client.pop("q", label=5)
    client.expect_none(5)
    client.pop("q", 0, label=6)
    client.expect_none(6)


def test_a_pop_with_a_timeout_waits_that_long(yard: SimulatedServer, client: Client) -> None:
    client.pop("q", 2.5, label=5)
    yard.advance(2.499)
    client.expect_nothing()
    yard.advance(0.001)
    client.expect_none(5)
    client.post("q", notify=("ready",), label=6)
    client.expect_notice(6, "ready")


def test_a_waiting_pop_gets_what_comes(yard: SimulatedServer, connect: Connect) -> None:
    first, second = connect(), connect()
    first.create("q")
    first.next()
    first.pop("q", 10, label=5)
    yard.advance(9)
    second.post("q")
    first.expect_message(5, 1, finished=True)
    yard.advance(10)
    first.expect_nothing()


def test_json_need_not_say_how_durable_a_pop_is(yard: SimulatedServer) -> None:
    client = Client(yard)
    client.create("q")
    client.next()
    client.post("q")
    client.peer.send_json(type="pop", queue="q", label=7)
    client.expect_message(7, 1, finished=True)
    yard.crash()
    again = Client(yard)
    again.pop("q", label=1)
    again.expect_none(1)


# Fetch and finish


@pytest.mark.parametrize("sync", ["ready", "write", "sync"])
def test_a_fetched_message_is_to_be_finished(client: Client, sync: str) -> None:
    client.post("q")
    client.fetch("q", label=5, sync=sync)
    client.expect_message(5, 1)
    client.finish("q", 1)
    client.expect_nothing()
    client.finish("q", 1, label=6)
    client.expect_error(6, "NoObject", "q")


@pytest.mark.parametrize("response", ["ready", "write", "sync"])
def test_finish_is_confirmed_if_that_is_asked_for(client: Client, response: str) -> None:
    client.post("q")
    client.fetch("q")
    client.finish("q", client.taken(), label=77, response=response)
    client.expect_notice(77, "finish")


def test_a_finish_without_a_label_is_confirmed_with_label_0(client: Client) -> None:
    client.post("q")
    client.fetch("q")
    client.finish("q", client.taken(), response="sync")
    client.expect_notice(0, "finish")


def test_a_fetch_waits_for_block_timeout(yard: SimulatedServer, client: Client) -> None:
    client.fetch("q", 1.5, label=5)
    yard.advance(1.5)
    client.expect_none(5)
    client.fetch("q", 1.5, label=6)
    client.post("q")
    client.expect_message(6, 1)


def test_one_that_waits_does_not_hold_up_the_others(yard: SimulatedServer, client: Client) -> None:
    client.create("other")
    client.next()
    client.fetch("q", 10, label=1)
    client.pop("q", 5, label=2)
    client.fetch("other", 20, label=3)
    client.pop("other", label=4)
    client.expect_none(4)
    client.post("other", b"o")
    client.expect_message(3, 1, "o")
    yard.advance(5)
    client.expect_none(2)
    client.post("q")
    client.expect_message(1, 2)


def test_waiting_readers_are_served_in_the_order_they_came(connect: Connect) -> None:
    poster, first, second = connect(), connect(), connect()
    poster.create("q")
    poster.next()
    first.fetch("q", 10, label=1)
    second.pop("q", 10, label=2)
    first.pop("q", 10, label=3)
    for _ in range(3):
        poster.post("q")
    first.expect_message(1, 1)
    second.expect_message(2, 2, finished=True)
    first.expect_message(3, 3, finished=True)


@pytest.mark.parametrize(
    ("sequence", "shard", "queue"),
    [(2, 0, "q"), (0, 0, "q"), (MAX_U64, 0, "q"), (1, 1, "q"), (1, 2**32 - 1, "q"), (1, 0, "r")],
)
def test_finish_must_name_the_message_as_it_is(
    client: Client, sequence: int, shard: int, queue: str
) -> None:
    client.create("r")
    client.next()
    client.post("q")
    client.fetch("q")
    client.taken()
    client.finish(queue, sequence, shard=shard, label=6)
    client.expect_error(6, "NoObject", queue)
    client.finish("q", 1, label=7, response="sync")
    client.expect_notice(7, "finish")


def test_only_who_holds_a_message_can_finish_it(connect: Connect) -> None:
    holder, other = connect(), connect()
    holder.create("q")
    holder.next()
    holder.post("q")
    other.finish("q", 1, label=1)
    other.expect_error(1, "NoObject", "q")
    holder.fetch("q")
    holder.taken()
    other.finish("q", 1, label=2)
    other.expect_error(2, "NoObject", "q")
    holder.finish("q", 1, label=3, response="ready")
    holder.expect_notice(3, "finish")


def test_a_message_goes_back_when_its_work_timeout_is_over(
    yard: SimulatedServer, client: Client
) -> None:
    client.post("q")
    client.fetch("q", work_timeout=1.5)
    client.taken()
    yard.advance(1.499)
    client.fetch("q", label=1)
    client.expect_none(1)
    yard.advance(0.001)
    client.finish("q", 1, label=2)
    client.expect_error(2, "NoObject", "q")
    client.fetch("q", label=3)
    client.expect_message(3, 1)


@pytest.mark.parametrize(("retries", "attempts"), [(0, 1), (2, 3), (None, 21)])
def test_a_message_is_dropped_when_its_retries_are_used_up(
    yard: SimulatedServer, connect: Connect, retries: int | None, attempts: int
) -> None:
    poster, taker = connect(), connect()
    poster.create("r", retries=retries)
    poster.next()
    poster.post("r", label=4, notify=("assign", "retry", "drop"))
    for attempt in range(1, attempts + 1):
        taker.fetch("r", 1, work_timeout=2)
        assert taker.taken() == 1
        poster.expect_notice(4, "assign")
        yard.advance(2)
        poster.expect_notice(4, "retry" if attempt < attempts else "drop")
    taker.fetch("r", label=9)
    taker.expect_none(9)
    queue = yard.engine.queue(b"r")
    assert queue is not None
    assert queue.dead.size == 1  # it can still be found


def test_what_a_lost_client_has_fetched_comes_back_in_its_time(
    yard: SimulatedServer, connect: Connect
) -> None:
    holder, other = connect(), connect()
    holder.create("q")
    holder.post("q")
    holder.fetch("q", work_timeout=10)
    holder.close()
    other.fetch("q", 20, label=1)
    yard.advance(9.9)
    other.expect_nothing()
    yard.advance(0.1)
    other.expect_message(1, 1)


def test_a_lost_client_does_not_wait_any_more(yard: SimulatedServer, connect: Connect) -> None:
    lost, other = connect(), connect()
    lost.create("q")
    lost.pop("q", 10)
    lost.fetch("q", 10)
    lost.close()
    assert not yard.engine.waiters
    other.post("q")
    other.pop("q", label=1)
    other.expect_message(1, 1, finished=True)


@pytest.mark.parametrize("seconds", [-1.0, float("nan"), float("inf"), 1e30])
def test_times_that_are_none_are_refused(yard: SimulatedServer, seconds: float) -> None:
    client = Client(yard, sends_binary=True)
    client.create("q")
    client.next()
    client.pop("q", seconds, label=0)
    client.fetch("q", seconds, label=1)
    client.fetch("q", 1, seconds, label=2)
    for label in range(3):
        error = client.next()
        assert (error["type"], error["label"], error["code"]) == ("error", label, "BadRequest")
    client.expect_nothing()


def test_no_time_to_work_is_refused_and_the_shortest_is_not(client: Client) -> None:
    client.post("q")
    client.fetch("q", work_timeout=0, label=3)
    client.expect_error(3, "BadRequest", "work_timeout: must not be 0")
    client.fetch("q", work_timeout=1e-20, label=4)
    client.expect_message(4, 1)
