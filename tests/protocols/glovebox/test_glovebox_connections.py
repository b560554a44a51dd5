"""Glovebox: bad messages, slow clients, cold messages, stopping, and what HTTP tells."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.effort import effort
from support.glovebox import Client
from support.replies_resp import command
from support.simulated import SimulatedServer

from taskyard.access.principal import TAKE, Principal, Rule
from taskyard.engine.model.events import NoSpace, ReadOnly
from taskyard.engine.model.job import SYSTEM_ORIGIN
from taskyard.engine.model.queue import QueueSettings
from taskyard.protocols.glovebox.connection import MAX_PENDING_FETCHES
from taskyard.protocols.glovebox.messages import ConnectOptions, parse_connect_headers, queue_status


@pytest.fixture
def yard() -> SimulatedServer:
    yard = SimulatedServer()
    Client(yard).create("q")
    return yard


# Bad messages


@pytest.mark.parametrize("binary", [False, True])
def test_a_bad_message_is_answered_and_nothing_is_lost(yard: SimulatedServer, binary: bool) -> None:
    client = Client(yard, binary=binary)
    client.pop("q", 10, label=1)
    client.peer.send_text(b'{"type":"post","queue":"q","label":6}')
    error = client.next()
    assert (error["label"], error["code"]) == (6, "BadRequest")
    client.peer.send_data(b"nonsense")
    error = client.next()
    assert (error["label"], error["code"]) == (0, "BadRequest")
    client.post("q")
    client.expect_message(1, 1, finished=True)


def test_the_key_of_an_error_is_not_longer_than_a_name(yard: SimulatedServer) -> None:
    client = Client(yard)
    client.pop("n" * 100_000, label=1)
    client.expect_error(1, "NoObject", "n" * 255)


@settings(max_examples=effort(50, 20))
@given(st.lists(st.tuples(st.booleans(), st.binary(max_size=60)), max_size=10))
def test_no_message_brings_a_connection_down(messages: list[tuple[bool, bytes]]) -> None:
    yard = SimulatedServer()
    client = Client(yard)
    for is_text, message in messages:
        (client.peer.send_text if is_text else client.peer.send_data)(message)
        assert client.next()["code"] == "BadRequest"
    client.create("q", label=9)
    client.expect_notice(9, "ready")


# Fairness and bounds


def test_a_client_may_send_much_at_once(yard: SimulatedServer) -> None:
    client = Client(yard)
    connection = client.peer.connection
    assert connection is not None
    for label in range(500):
        text = f'{{"type":"post","queue":"q","message":"m","label":{label},"notify":["sync"]}}'
        connection.on_text(text.encode())
    yard.run_pending()
    assert client.stages() == [(label, "sync") for label in range(500)]


def test_requests_that_wait_are_bounded(yard: SimulatedServer) -> None:
    client = Client(yard)
    for label in range(MAX_PENDING_FETCHES):
        client.pop("q", 10, label=label)
    client.expect_nothing()
    client.pop("q", 10, label=1)
    error = client.next()
    assert (error["code"], error["label"]) == ("BadRequest", 1)
    client.post("q")
    client.expect_message(0, 1, finished=True)
    client.pop("q", 10, label=2)
    client.expect_nothing()


def test_a_client_that_does_not_read_is_not_sent_notices_without_end() -> None:
    yard = SimulatedServer(output_limit=1000)
    client = Client(yard)
    client.create("q")
    client.next()
    for label in range(100):
        client.post("q", label=label, notify=("finish",))
    connection = client.peer.connection
    assert connection is not None
    connection.output_blocked = True
    worker = Client(yard)
    for _ in range(100):
        worker.pop("q")
        worker.next()
    assert client.peer.closed


def test_a_client_that_reads_again_is_answered_again() -> None:
    yard = SimulatedServer(output_limit=1000)
    client = Client(yard)
    client.create("q")
    client.next()
    connection = client.peer.connection
    assert connection is not None
    for _ in range(50):
        connection.output_blocked = True
        client.pop("q", label=3)
        client.expect_nothing()
        connection.output_blocked = False
        connection.resume()
        yard.run_pending()
        client.expect_none(3)


def test_who_asks_for_no_answers_waits_for_a_slow_disk_all_the_same() -> None:
    yard = SimulatedServer(inline_sync=False, segment_size=1 << 26)
    client = Client(yard)
    client.create("q")
    client.next()
    yard.scheduler.slow = True
    for _ in range(60):
        client.post("q", b"x" * 1_000_000)
    queue = yard.engine.queue(b"q")
    assert queue is not None
    assert queue.ready.size < 40
    assert not client.peer.reading
    while yard.scheduler.blocking:
        yard.scheduler.finish_blocking()
        yard.run_pending()
    assert queue.ready.size == 60
    assert client.peer.reading


def test_reading_pauses_while_much_is_to_be_done(yard: SimulatedServer) -> None:
    client = Client(yard)
    connection = client.peer.connection
    assert connection is not None
    connection.output_blocked = True
    client.post("q", b"x" * 300_000)
    assert not client.peer.reading
    connection.output_blocked = False
    connection.resume()
    yard.run_pending()
    assert client.peer.reading


# Messages that are not in memory


def cold_yard() -> SimulatedServer:
    yard = SimulatedServer(payload_memory=0)
    client = Client(yard)
    client.create("q")
    for number in range(4):
        client.post("q", bytes([48 + number]) * 100)
    client.close()
    yard.restart()
    yard.scheduler.slow = True
    return yard


def test_a_message_may_have_to_be_read_back_and_holds_up_nobody() -> None:
    yard = cold_yard()
    client = Client(yard)
    client.fetch("q", label=1)
    client.pop("none", label=2)
    client.expect_error(2, "NoObject", "none")
    while yard.scheduler.blocking:
        yard.scheduler.finish_blocking()
        yard.run_pending()
    client.expect_message(1, 1, "0" * 100)


@pytest.mark.parametrize("way", ["shut_down", "on_eof"])
def test_a_popped_message_is_not_forgotten_by_a_stop(way: str) -> None:
    yard = cold_yard()
    client = Client(yard)
    client.pop("q", label=1, sync="ready")
    connection = client.peer.connection
    assert connection is not None
    getattr(connection, way)()
    yard.run_pending()
    assert not client.peer.closed
    while yard.scheduler.blocking:
        yard.scheduler.finish_blocking()
        yard.run_pending()
    client.expect_message(1, 1, "0" * 100, finished=True)
    assert client.peer.closed


def test_a_message_that_cannot_be_read_closes_the_connection() -> None:
    yard = cold_yard()
    client = Client(yard)
    client.fetch("q", label=1)
    yard.disk.fail_always("read")
    while yard.scheduler.blocking:
        yard.scheduler.finish_blocking()
        yard.run_pending()
    client.expect_nothing()
    assert client.peer.closed


def reads_done(yard: SimulatedServer) -> None:
    while yard.scheduler.blocking:
        yard.scheduler.finish_blocking()
        yard.run_pending()


def length(yard: SimulatedServer) -> int:
    queue = yard.engine.queue(b"q")
    assert queue is not None
    return queue.ready.size


def test_a_message_that_cannot_be_read_is_not_popped() -> None:
    yard = cold_yard()
    client = Client(yard)
    client.pop("q", label=1)
    yard.disk.fail_always("read")
    reads_done(yard)
    client.expect_nothing()
    assert client.peer.closed
    yard.disk.heal()
    assert length(yard) == 4


def test_several_pops_get_a_message_each_while_all_are_read() -> None:
    yard = cold_yard()
    client = Client(yard)
    for label in range(6):
        client.pop("q", label=label)
    assert length(yard) == 4
    reads_done(yard)
    for label in range(4):
        client.expect_message(label, label + 1, str(label) * 100, finished=True)
    client.expect_none(4)
    client.expect_none(5)
    client.expect_nothing()


def test_pops_of_one_queue_do_not_all_read_the_same_message() -> None:
    yard = SimulatedServer(payload_memory=0)
    client = Client(yard)
    client.create("q")
    for number in range(30):
        client.post("q", b"%02d" % number * 20_000)
    client.close()
    yard.restart()
    yard.scheduler.slow = True
    client = Client(yard)
    connection = client.peer.connection
    assert connection is not None
    for label in range(30):
        client.pop("q", label=label)
    assert connection._disk_reads == 1
    while yard.scheduler.blocking:
        assert connection._disk_reads <= 1
        yard.scheduler.finish_blocking()
        yard.run_pending()
    for label in range(30):
        client.expect_message(label, label + 1, f"{label:02}" * 20_000, finished=True)
    assert (connection._disk_reads, length(yard)) == (0, 0)


def test_only_so_many_pops_stand_behind_one_that_is_read() -> None:
    yard = cold_yard()
    client = Client(yard)
    for label in range(MAX_PENDING_FETCHES + 2):
        client.pop("q", label=label)
    text = f"timeout: {MAX_PENDING_FETCHES} requests of this connection wait already"
    client.expect_error(MAX_PENDING_FETCHES + 1, "BadRequest", text)


def test_nothing_is_popped_behind_a_message_that_cannot_be_read() -> None:
    yard = cold_yard()
    client = Client(yard)
    client.pop("q", label=1)
    client.pop("q", label=2)
    Client(yard).post("q", b"in memory", priority=9)
    yard.disk.fail_call("read")
    reads_done(yard)
    client.expect_nothing()
    assert client.peer.closed
    assert length(yard) == 5


def test_a_pop_behind_one_that_is_read_may_be_forbidden_by_then() -> None:
    yard = cold_yard()
    user = Principal("ada", [Rule(["q"], [TAKE])])
    client = Client(yard, principal=user)
    client.pop("q", label=1)
    client.pop("q", label=2)
    user.set_rules([Rule(["other"], [TAKE])], False)
    reads_done(yard)
    client.expect_error(1, "PermissionDenied", "q")
    client.expect_error(2, "PermissionDenied", "q")
    assert length(yard) == 4


def test_who_waits_for_a_message_gets_it_once_it_is_read() -> None:
    yard, client = waiting_for_the_cold()
    assert length(yard) == 1
    reads_done(yard)
    client.expect_message(1, 1, "late" * 1000, finished=True)
    assert length(yard) == 0


def test_a_message_that_somebody_waits_for_and_that_cannot_be_read_stays() -> None:
    yard, client = waiting_for_the_cold()
    yard.disk.fail_always("read")
    reads_done(yard)
    client.expect_nothing()
    assert client.peer.closed
    yard.disk.heal()
    assert length(yard) == 1


def waiting_for_the_cold() -> tuple[SimulatedServer, Client]:
    """A pop that has waited for a message whose payload is on disk only."""
    yard = SimulatedServer(payload_memory=0)
    peer = yard.connect("resp")
    peer.send(command("JOB.PUSH", "q", b"late" * 1000, "IN", 10_000))
    yard.restart()
    yard.scheduler.slow = True
    client = Client(yard)
    client.pop("q", 100, label=1)
    yard.advance(10)
    return yard, client


def test_a_message_is_not_lost_with_a_client_that_goes_while_it_is_read() -> None:
    yard = cold_yard()
    client = Client(yard)
    client.pop("q", label=1)
    client.close()
    reads_done(yard)
    assert length(yard) == 4


def test_a_client_that_has_gone_meanwhile_is_no_harm() -> None:
    yard = cold_yard()
    client = Client(yard)
    client.fetch("q", label=1)
    client.close()
    while yard.scheduler.blocking:
        yard.scheduler.finish_blocking()
        yard.run_pending()
    assert yard.glovebox.stats.open_connections == 0


# Stopping


@pytest.mark.parametrize("durability", ["sync", "write", "memory"])
def test_a_stop_answers_what_waits_and_closes(durability: str) -> None:
    yard = SimulatedServer(durability=durability)
    client = Client(yard)
    client.create("q", label=1)
    client.pop("q", 100, label=2)
    client.fetch("q", 100, label=3)
    other = Client(yard)
    other.create("r")
    other.post("r", label=4, notify=("write", "sync"))
    yard.stop()
    client.expect_notice(1, "ready")
    client.expect_none(2)
    client.expect_none(3)
    client.expect_nothing()
    assert client.peer.closed
    other.expect_notice(0, "ready")
    other.expect_notice(4, "write", "sync")
    assert other.peer.closed


def test_a_client_that_says_goodbye_is_answered_first(yard: SimulatedServer) -> None:
    client = Client(yard)
    client.pop("q", 100, label=2)
    connection = client.peer.connection
    assert connection is not None
    connection.on_text(b'{"type":"pop","queue":"q","label":3}')
    connection.on_eof()
    yard.run_pending()
    client.expect_none(3)
    client.expect_none(2)
    assert client.peer.closed


# A disk that takes no more


def test_a_server_that_cannot_write_refuses(yard: SimulatedServer) -> None:
    client = Client(yard)
    other = Client(yard)
    yard.disk.fail_always("write")
    client.post("q", label=1, notify=("ready", "sync"))
    assert client.peer.closed
    other.post("q", label=2)
    error = other.next()
    assert (error["label"], error["code"]) == (2, "Unavailable")
    with pytest.raises(ReadOnly):
        Client(yard, durable=True)
    assert Client(yard).id


def test_without_room_nothing_is_added(yard: SimulatedServer) -> None:
    client = Client(yard)
    yard.engine.journal_space.push_refusal = "the disk is full"
    client.post("q", label=1)
    client.expect_error(1, "Unavailable", "the disk is full")
    client.create("r", label=2)
    client.expect_error(2, "Unavailable", "the disk is full")
    with pytest.raises(NoSpace):
        Client(yard, durable=True)
    client.pop("q", label=3)
    client.expect_none(3)


# Over HTTP


def told(yard: SimulatedServer, queue: str) -> tuple[int, object]:
    response = queue_status(yard.engine, queue)
    assert response.content_type == "application/json"
    assert response.position == yard.engine.records.end_position()
    return response.status, json.loads(response.body)


def test_the_status_of_a_queue(yard: SimulatedServer) -> None:
    client = Client(yard)
    expected = {
        "type": "Status",
        "length": 0,
        "readers_waiting": 0,
        "shards_read_write": 1,
        "shards_read_only": 0,
        "shards_finished": 0,
    }
    assert told(yard, "q") == (200, expected)
    client.pop("q", 10)
    client.fetch("q", 10)
    assert told(yard, "q") == (200, expected | {"readers_waiting": 2})
    for _ in range(5):
        client.post("q")
    assert told(yard, "q") == (200, expected | {"length": 3})
    yard.engine.configure_queue(b"q", QueueSettings(paused=True), SYSTEM_ORIGIN, yard.clock.now())
    assert told(yard, "q") == (200, expected)


@pytest.mark.parametrize("name", ["none", "\u2603", ""])
def test_the_status_of_a_queue_that_is_not_there(yard: SimulatedServer, name: str) -> None:
    error = {
        "type": "Error",
        "name": name,
        "code": "QueueNotFound",
        "message": "Named queue not found",
    }
    assert told(yard, name) == (404, error)


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ({}, ConnectOptions(binary=False, durable=False, reconnect_as=None)),
        ({"binary": "true"}, ConnectOptions(binary=True, durable=False, reconnect_as=None)),
        (
            {"binary": "1", "durable-session": " TRUE "},
            ConnectOptions(binary=True, durable=True, reconnect_as=None),
        ),
        (
            {"binary": "false", "durable-session": "yes", "reconnect-as": "12"},
            ConnectOptions(binary=False, durable=False, reconnect_as=12),
        ),
        (
            {"reconnect-as": "18446744073709551615"},
            ConnectOptions(binary=False, durable=False, reconnect_as=2**64 - 1),
        ),
        (
            {"reconnect-as": "18446744073709551616"},
            ConnectOptions(binary=False, durable=False, reconnect_as=None),
        ),
        ({"reconnect-as": "-1"}, ConnectOptions(binary=False, durable=False, reconnect_as=None)),
        (
            {"reconnect-as": "\u0663"},
            ConnectOptions(binary=False, durable=False, reconnect_as=None),
        ),
        ({"reconnect-as": ""}, ConnectOptions(binary=False, durable=False, reconnect_as=None)),
    ],
)
def test_what_the_headers_of_a_connection_ask_for(
    headers: dict[str, str], expected: ConnectOptions
) -> None:
    assert parse_connect_headers(headers) == expected


def test_requests_are_counted_by_verb_and_outcome(yard: SimulatedServer) -> None:
    client = Client(yard)
    client.post("q")
    client.pop("q")
    client.finish("q", 1)
    client.pop("q")
    counts = {
        verb.name: (verb.count, verb.errors, verb.no_result)
        for verb in yard.glovebox.stats.commands
    }
    assert counts == {
        "unknown": (0, 0, 0),
        "post": (1, 0, 0),
        "fetch": (0, 0, 0),
        "finish": (1, 1, 0),
        "pop": (2, 0, 1),
        "create": (1, 0, 0),
    }
