"""Glovebox, sentence by sentence, over real WebSockets and in both encodings: putting."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from support.glovebox_socket import LEVELS, NOWHERE, STAGES, Talker, dead_letters, get, new_queue
from support.process import WarmServer
from support.sockets import HANG_GUARD

SHORT = 0.05  # seconds that somebody waits for in vain
LONG = 60.0
MAX_U32 = 2**32 - 1
MAX_U64 = 2**64 - 1

Connect = Callable[..., Talker]


# GET /status/<queue>


def test_the_status_of_an_existing_queue_is_read(
    server: WarmServer, client: Talker, queue: str
) -> None:
    client.put(queue, b"one", b"two", b"three")
    client.fetched(queue)
    assert get(server, f"/status/{queue}") == {
        "type": "Status",
        "length": 2,
        "readers_waiting": 0,
        "shards_read_write": 1,
        "shards_read_only": 0,
        "shards_finished": 0,
    }


def test_the_status_counts_those_who_wait(server: WarmServer, client: Talker, queue: str) -> None:
    client.say("pop", queue=queue, timeout=LONG, label=1)
    client.say("fetch", queue=queue, block_timeout=LONG, work_timeout=LONG, label=2)
    client.hears_nothing()
    assert get(server, f"/status/{queue}")["readers_waiting"] == 2


def test_an_unknown_queue_has_no_status(server: WarmServer) -> None:
    assert get(server, f"/status/{NOWHERE}") == {
        "type": "Error",
        "name": NOWHERE,
        "code": "QueueNotFound",
        "message": "Named queue not found",
    }


# Connecting


def test_every_new_websocket_is_sent_a_hello_with_an_id_of_its_own(join: Connect) -> None:
    first, second = join(), join()
    assert first.hello == {"type": "hello", "id": first.id}
    assert second.hello == {"type": "hello", "id": second.id}
    assert first.id != second.id


@pytest.mark.parametrize(
    ("value", "is_binary"),
    [("true", True), ("TRUE", True), ("1", True), ("false", False), ("0", False), ("yes", False)],
)
def test_the_binary_header_chooses_what_the_server_sends(
    server: WarmServer, value: str, is_binary: bool
) -> None:
    with Talker(server.address("http"), is_binary, Binary=value) as client:
        client.hears_nothing()


def test_both_encodings_are_accepted_whatever_the_header_says(client: Talker, queue: str) -> None:
    for label, sends_binary in enumerate((True, False, True, False)):
        client.sends_binary = sends_binary
        client.say("post", queue=queue, message=b"%d" % label, label=label, notify=["ready"])
        client.hears_stages(label, "ready")
        client.say("pop", queue=queue, label=label)
        assert client.message()["body"] == b"%d" % label


# Messages as strings and as arrays of bytes


@pytest.mark.parametrize("sends_binary", [False, True], ids=["from-json", "from-bincode"])
@pytest.mark.parametrize(
    ("message", "body"),
    [
        (b"plain", "plain"),
        ("grüße \U0001f600".encode(), "grüße \U0001f600"),
        (b"", ""),
        (b'\0"\\\n', '\0"\\\n'),
        (b"\xff\0\x80", [255, 0, 128]),
        (b"half \xc3", [*b"half \xc3"]),
    ],
)
def test_json_has_strings_where_it_can_and_arrays_else(
    server: WarmServer, message: bytes, body: object, sends_binary: bool
) -> None:
    with Talker(server.address("http"), binary=False) as client:
        queue = new_queue()
        client.create(queue)
        client.sends_binary = sends_binary
        client.put(queue, message)
        client.say("pop", queue=queue)
        assert json.loads(client.socket.recv(HANG_GUARD))["body"] == body


@pytest.mark.parametrize("message", ["text", [116, 101, 120, 116]])
def test_clients_may_send_json_messages_in_either_format(
    client: Talker, queue: str, message: object
) -> None:
    client.sends_binary = False
    client.say("post", queue=queue, message=message, notify=["ready"])
    client.hears_stages(0, "ready")
    client.say("pop", queue=queue)
    assert client.message()["body"] == b"text"


def test_any_bytes_go_through(client: Talker, queue: str) -> None:
    messages = [bytes(range(256)), b"x" * 200_000, b""]
    client.put(queue, *messages)
    for message in messages:
        client.say("pop", queue=queue)
        assert client.message()["body"] == message


# Creating queues


def test_a_queue_is_created_and_ready(client: Talker) -> None:
    name = new_queue()
    client.say("create", queue=name, label=5)
    client.hears(type="notice", label=5, notice="ready")
    client.say("pop", queue=name, label=6)
    client.hears(type="nomessage", label=6)


def test_a_queue_is_created_with_its_settings(server: WarmServer, client: Talker) -> None:
    name = new_queue()
    client.create(name, retries=7, shard_max_entries=1000, shard_max_bytes=MAX_U64)
    assert get(server, f"/api/v1/queues/{name}")["settings"]["retries"] == 7


def test_a_name_that_is_in_use_cannot_be_created(client: Talker, queue: str) -> None:
    client.say("create", queue=queue, label=5)
    client.hears_error(5, "ObjectAlreadyExists", queue)


def test_where_the_operator_forbids_it_no_queue_is_created(tmp_path: Path) -> None:
    with WarmServer(tmp_path, "--glovebox-creation", "off") as server:
        for binary in (False, True):
            with Talker(server.address("http"), binary) as client:
                client.say("create", queue="new", label=5)
                client.hears_error(5, "PermissionDenied", "new")
        assert get(server, "/status/new")["code"] == "QueueNotFound"


# Sending


def test_a_post_that_asks_for_no_notice_is_not_answered(client: Talker, queue: str) -> None:
    client.say("post", queue=queue, message="m", label=5)
    client.say("post", queue=queue, message="m", label=5, notify=[])
    client.hears_nothing()


@pytest.mark.parametrize("label", [0, 1, MAX_U64])
def test_every_response_carries_the_label_of_its_request(
    client: Talker, queue: str, label: int
) -> None:
    client.say("post", queue=queue, message="m", label=label, notify=["sync"])
    client.hears_stages(label, "sync")
    client.say("fetch", queue=queue, work_timeout=LONG, label=label)
    message = client.message()
    assert message["label"] == label
    place = {"sequence": message["sequence"], "shard": message["shard"]}
    client.say("finish", queue=queue, **place, label=label, response="ready")
    client.hears_stages(label, "finish")
    client.say("finish", queue=queue, **place, label=label)
    client.hears_error(label, "NoObject", queue)
    client.say("pop", queue=queue, label=label)
    client.hears(type="nomessage", label=label)
    client.say("create", queue=queue, label=label)
    client.hears_error(label, "ObjectAlreadyExists", queue)


def test_higher_priorities_come_first_and_equal_ones_as_they_arrived(
    client: Talker, queue: str
) -> None:
    for message, priority in [("a", 5), ("b", None), ("c", MAX_U32), ("d", 5), ("e", 0), ("f", 6)]:
        client.say("post", queue=queue, message=message, priority=priority)
    bodies = []
    for _ in range(6):
        client.say("pop", queue=queue)
        bodies.append(client.message()["body"])
    assert b"".join(bodies) == b"cfadbe"


@pytest.mark.parametrize("stage", LEVELS)
def test_the_sender_is_told_how_far_the_message_is(client: Talker, queue: str, stage: str) -> None:
    client.say("post", queue=queue, message="m", label=5, notify=[stage])
    client.hears_stages(5, stage)
    client.hears_nothing()


def test_assign_is_told_when_a_consumer_has_the_message(
    client: Talker, join: Connect, queue: str
) -> None:
    client.say("post", queue=queue, message="m", label=5, notify=["assign"])
    client.hears_nothing()
    join().fetched(queue)
    client.hears_stages(5, "assign")


def test_finish_is_told_when_the_message_is_completed(
    client: Talker, join: Connect, queue: str
) -> None:
    reader = join()
    client.say("post", queue=queue, message="m", label=5, notify=["finish"])
    client.hears_nothing()  # and it is there for others
    message = reader.fetched(queue)
    client.hears_nothing()
    reader.say("finish", queue=queue, sequence=message["sequence"], shard=message["shard"])
    client.hears_stages(5, "finish")
    client.hears_nothing()


def test_a_fetched_message_has_all_the_stages_of_its_life(
    client: Talker, join: Connect, queue: str
) -> None:
    reader = join()
    client.say("post", queue=queue, message="m", label=5, notify=list(STAGES))
    client.hears_stages(5, "ready", "write", "sync")
    reader.fetched(queue, work_timeout=SHORT)
    client.hears_stages(5, "assign", "retry")
    again = reader.fetched(queue)
    client.hears_stages(5, "assign")
    reader.say("finish", queue=queue, sequence=again["sequence"], shard=again["shard"])
    client.hears_stages(5, "finish")
    client.hears_nothing()


def test_a_message_whose_retries_are_used_up_is_dropped_and_can_still_be_found(
    server: WarmServer, client: Talker, join: Connect, queue: str
) -> None:
    reader = join()
    client.say("post", queue=queue, message="m", label=5, notify=["retry", "drop"])
    client.hears_nothing()
    first = reader.fetched(queue, work_timeout=SHORT)
    client.hears_stages(5, "retry")
    second = reader.fetched(queue, work_timeout=SHORT)
    client.hears_stages(5, "drop")
    client.hears_nothing()
    assert (first["sequence"], first["shard"]) == (second["sequence"], second["shard"])
    reader.say("pop", queue=queue, label=6)
    reader.hears(type="nomessage", label=6)
    dead = dead_letters(server, queue)
    assert [job["id"] for job in dead] == [first["sequence"]]
