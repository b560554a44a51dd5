"""Glovebox, sentence by sentence, over real WebSockets and in both encodings: taking."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.glovebox_socket import LEVELS, NOWHERE, STAGES, Talker, get
from support.process import WarmServer
from support.sockets import HANG_GUARD
from websockets.exceptions import ConnectionClosed

SHORT = 0.05  # seconds that somebody waits for in vain
LONG = 60.0
MAX_U32 = 2**32 - 1
MAX_U64 = 2**64 - 1

Connect = Callable[..., Talker]


# Popped messages


def test_of_a_popped_message_no_assign_retry_or_drop_is_told(client: Talker, queue: str) -> None:
    client.say("post", queue=queue, message="m", label=5, notify=list(STAGES))
    client.hears_stages(5, "ready", "write", "sync")
    client.say("pop", queue=queue, label=6)
    heard = [client.hear(), client.hear()]
    assert {"type": "notice", "label": 5, "notice": "finish"} in heard
    assert [told["body"] for told in heard if told["type"] == "message"] == [b"m"]
    client.hears_nothing()


@pytest.mark.parametrize(
    ("notify", "told"),
    [
        (["ready"], ["finish"]),
        (["finish"], ["finish"]),
        (["ready", "finish"], ["finish"]),
        (list(STAGES), ["finish"]),
        (["write", "sync", "assign", "retry", "drop"], []),
        ([], []),
    ],
)
def test_a_pending_pop_takes_a_message_that_is_never_enqueued(
    client: Talker, join: Connect, queue: str, notify: list[str], told: list[str]
) -> None:
    reader = join()
    reader.say("pop", queue=queue, timeout=LONG, label=6)
    reader.hears_nothing()
    client.say("post", queue=queue, message="m", label=5, notify=notify)
    popped = reader.message()
    assert (popped["label"], popped["body"], popped["finished"]) == (6, b"m", True)
    client.hears_stages(5, *told)
    client.hears_nothing()


# Popping


def test_a_popped_message_needs_no_finish(client: Talker, queue: str) -> None:
    client.put(queue, b"m")
    client.say("pop", queue=queue, label=5)
    message = client.message()
    place = {"shard": message["shard"], "sequence": message["sequence"]}
    body = {"body": b"m", "finished": True}
    assert message == {"type": "message", "label": 5, **place, **body}
    client.say("finish", queue=queue, **place, label=6)
    client.hears_error(6, "NoObject", queue)
    client.say("pop", queue=queue, label=7)
    client.hears(type="nomessage", label=7)


def test_a_pop_without_a_timeout_does_not_wait(client: Talker, queue: str) -> None:
    client.say("pop", queue=queue, label=5)
    client.hears(type="nomessage", label=5)


def test_a_pop_waits_until_its_timeout(client: Talker, queue: str) -> None:
    client.say("pop", queue=queue, timeout=SHORT, label=5)
    client.hears(type="nomessage", label=5)
    client.put(queue, b"later")  # nobody waits for it any more
    client.hears_nothing()


@pytest.mark.parametrize("sync", LEVELS)
def test_a_pop_may_say_how_durable_it_must_be(client: Talker, queue: str, sync: str) -> None:
    client.put(queue, b"m")
    client.say("pop", queue=queue, sync=sync, label=5)
    assert client.message()["body"] == b"m"


# Fetching


def test_a_fetched_message_is_to_be_finished(client: Talker, queue: str) -> None:
    client.put(queue, b"m")
    message = client.fetched(queue, label=5)
    place = {"shard": message["shard"], "sequence": message["sequence"]}
    body = {"body": b"m", "finished": False}
    assert message == {"type": "message", "label": 5, **place, **body}


def test_a_fetch_waits_until_its_block_timeout(client: Talker, queue: str) -> None:
    for wait in (None, 0, SHORT):
        client.say("fetch", queue=queue, block_timeout=wait, work_timeout=LONG, label=5)
        client.hears(type="nomessage", label=5)


def test_a_fetch_that_waits_is_served(client: Talker, join: Connect, queue: str) -> None:
    reader = join()
    reader.say("fetch", queue=queue, block_timeout=LONG, work_timeout=LONG, label=6)
    reader.hears_nothing()
    client.say("post", queue=queue, message="m", label=5, notify=["ready", "assign"])
    client.hears_stages(5, "ready", "assign")
    message = reader.message()
    assert (message["label"], message["body"], message["finished"]) == (6, b"m", False)


@pytest.mark.parametrize("sync", LEVELS)
def test_a_fetch_says_how_persisted_the_assignment_must_be(
    client: Talker, queue: str, sync: str
) -> None:
    client.put(queue, b"m")
    assert client.fetched(queue, sync=sync)["body"] == b"m"


@pytest.mark.parametrize("response", LEVELS)
def test_a_finish_is_acknowledged_where_that_is_asked_for(
    server: WarmServer, client: Talker, queue: str, response: str
) -> None:
    client.put(queue, b"m")
    message = client.fetched(queue)
    place = {"sequence": message["sequence"], "shard": message["shard"]}
    client.say("finish", queue=queue, **place, label=5, response=response)
    client.hears_stages(5, "finish")
    assert get(server, f"/api/v1/jobs/{message['sequence']}")["state"] == "gone"


def test_a_finish_needs_neither_label_nor_response(client: Talker, queue: str) -> None:
    client.put(queue, b"m")
    message = client.fetched(queue)
    place = {"sequence": message["sequence"], "shard": message["shard"]}
    client.say("finish", queue=queue, **place)
    client.hears_nothing()
    client.say("finish", queue=queue, **place)
    client.hears_error(0, "NoObject", queue)


def test_what_is_not_finished_in_time_goes_back_to_its_queue(
    client: Talker, join: Connect, queue: str
) -> None:
    late = join()
    client.put(queue, b"m")
    message = late.fetched(queue, work_timeout=SHORT)
    client.say("fetch", queue=queue, block_timeout=LONG, work_timeout=LONG, label=5)
    again = client.message()
    assert (again["sequence"], again["body"]) == (message["sequence"], b"m")
    late.say("finish", queue=queue, sequence=message["sequence"], shard=message["shard"], label=6)
    late.hears_error(6, "NoObject", queue)


def test_only_who_has_fetched_a_message_can_finish_it(
    client: Talker, join: Connect, queue: str
) -> None:
    client.put(queue, b"m")
    message = client.fetched(queue)
    place = {"sequence": message["sequence"], "shard": message["shard"]}
    other = join()
    other.say("finish", queue=queue, **place, label=5, response="ready")
    other.hears_error(5, "NoObject", queue)
    client.say("finish", queue=queue, **place, label=6, response="ready")
    client.hears_stages(6, "finish")


@pytest.mark.parametrize("change", [{"sequence": MAX_U64}, {"shard": 1}, {"sequence": 0}])
def test_a_message_that_is_unknown_cannot_be_finished(
    client: Talker, queue: str, change: dict[str, int]
) -> None:
    client.put(queue, b"m")
    message = client.fetched(queue)
    place = {"sequence": message["sequence"], "shard": message["shard"], **change}
    client.say("finish", queue=queue, **place, label=5)
    client.hears_error(5, "NoObject", queue)


# Labels instead of order


def test_who_has_to_wait_holds_up_nothing_else(client: Talker, queue: str) -> None:
    client.say("pop", queue=queue, timeout=LONG, label=1)
    client.say("fetch", queue=queue, block_timeout=LONG, work_timeout=LONG, label=2)
    client.say("post", queue=queue, message="first", label=3)
    client.say("post", queue=queue, message="second", label=4)
    heard = {told["label"]: told["body"] for told in (client.hear(), client.hear())}
    assert heard == {1: b"first", 2: b"second"}


def test_readers_are_served_in_the_order_in_which_they_came(
    client: Talker, join: Connect, queue: str
) -> None:
    readers = [join() for _ in range(3)]
    for reader in readers:
        reader.say("fetch", queue=queue, block_timeout=LONG, work_timeout=LONG, label=1)
        reader.hears_nothing()
    for number, reader in enumerate(readers):
        client.say("post", queue=queue, message=b"%d" % number)
        assert reader.message()["body"] == b"%d" % number


# Errors


REQUESTS: list[tuple[str, dict[str, Any]]] = [
    ("post", {"message": "m", "notify": ["ready"]}),
    ("pop", {}),
    ("pop", {"timeout": LONG}),
    ("fetch", {"work_timeout": LONG}),
    ("finish", {"sequence": 1, "shard": 0}),
]


@pytest.mark.parametrize(("kind", "fields"), REQUESTS)
def test_a_queue_that_is_not_there_is_no_object(
    client: Talker, kind: str, fields: dict[str, Any]
) -> None:
    client.say(kind, queue=NOWHERE, label=5, **fields)
    client.hears_error(5, "NoObject", NOWHERE)
    client.hears_nothing()


JUNK: list[str | bytes] = ["", "junk", "[]", '{"type":"nonsense"}', b"", b"\0" * 7, b"\xff" * 30]


def test_what_is_no_request_is_answered_and_the_connection_goes_on(
    client: Talker, queue: str
) -> None:
    client.say("pop", queue=queue, timeout=LONG, label=1)
    for junk in JUNK:
        client.socket.send(junk)
        error = client.hear()
        assert (error["type"], error["label"]) == ("error", 0)
        if client.binary:
            assert error["code"] == "PermissionDenied"
            assert error["key"].startswith("BadRequest:")
        else:
            assert error["code"] == "BadRequest"
    client.say("post", queue=queue, message="m")
    assert client.message()["label"] == 1  # nothing was lost


# Sessions

DURABLE = {"DURABLE-SESSION": "true"}


def back_as(id: int) -> dict[str, str]:
    return {"RECONNECT-AS": str(id)}


def test_a_durable_session_is_told_what_happened_while_it_was_away(
    client: Talker, join: Connect, queue: str
) -> None:
    away = join(**DURABLE)
    away.say("post", queue=queue, message="m", label=5, notify=["assign", "finish"])
    away.hears_nothing()
    away.vanish()
    message = client.fetched(queue)
    place = {"sequence": message["sequence"], "shard": message["shard"]}
    client.say("finish", queue=queue, **place, label=6, response="sync")
    client.hears_stages(6, "finish")
    back = join(**back_as(away.id))
    assert back.id == away.id
    back.hears_stages(5, "assign", "finish")
    back.hears_nothing()


def test_a_durable_session_keeps_what_it_has_fetched(
    client: Talker, join: Connect, queue: str
) -> None:
    client.put(queue, b"m")
    away = join(**DURABLE)
    message = away.fetched(queue)
    away.vanish()
    back = join(**back_as(away.id))
    place = {"sequence": message["sequence"], "shard": message["shard"]}
    back.say("finish", queue=queue, **place, label=5, response="sync")
    back.hears_stages(5, "finish")


def test_a_client_that_is_back_too_early_takes_the_session_from_its_old_socket(
    join: Connect,
) -> None:
    old = join(**DURABLE)
    new = join(**DURABLE, **back_as(old.id))
    assert new.id == old.id
    with pytest.raises(ConnectionClosed):
        old.socket.recv(HANG_GUARD)
    new.hears_nothing()


@pytest.mark.parametrize("durable", [False, True])
def test_a_session_that_is_not_there_is_a_new_one(join: Connect, durable: bool) -> None:
    gone = join()
    gone.vanish()
    for id in (gone.id, 1, MAX_U64):
        assert join(**back_as(id), **(DURABLE if durable else {})).id != id


def test_a_durable_session_outlives_the_server(tmp_path: Path, binary: bool) -> None:
    with WarmServer(tmp_path) as server:
        away = Talker(server.address("http"), binary, **DURABLE)
        away.create("q")
        away.say("post", queue="q", message="m", label=5, notify=["sync", "finish"])
        away.hears_stages(5, "sync")
        away.vanish()
        server.kill()
        server.restart()
        with Talker(server.address("http"), binary) as reader:
            reader.say("pop", queue="q", label=6)
            assert reader.message()["body"] == b"m"
        with Talker(server.address("http"), binary, **back_as(away.id)) as back:
            assert back.id == away.id
            heard = [back.hear()]
            if heard[0]["notice"] == "sync":  # told twice if its pong was lost with the server
                heard.append(back.hear())
            assert heard[-1] == {"type": "notice", "label": 5, "notice": "finish"}
