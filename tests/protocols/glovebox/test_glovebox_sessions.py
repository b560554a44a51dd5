"""Glovebox: durable sessions, whose notices wait for a client that is away."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest
from support.effort import effort
from support.glovebox import ALL, Client
from support.simulated import SimulatedServer

from taskyard.engine.model.state import OUTBOX_NOTICE_BYTES, EngineSettings

Interruption = Callable[[SimulatedServer, Client], None]


# Nobody waits for the record that a notice was received. One who has it may be told a second time
# if the server dies within these seconds, before that is on disk.
A_MOMENT = 0.01


def lose_socket(yard: SimulatedServer, client: Client) -> None:
    client.close()


def restart(yard: SimulatedServer, client: Client) -> None:
    yard.restart()


def kill(yard: SimulatedServer, client: Client) -> None:
    yard.kill()


def crash(yard: SimulatedServer, client: Client) -> None:
    yard.crash()


def nothing(yard: SimulatedServer, client: Client) -> None:
    """The old socket is still open when the client comes back."""


INTERRUPTIONS = [lose_socket, restart, kill, crash, nothing]


@pytest.fixture
def yard() -> SimulatedServer:
    yard = SimulatedServer()
    Client(yard).create("q", retries=1)
    return yard


def durable(yard: SimulatedServer) -> Client:
    return Client(yard, durable=True)


def back(yard: SimulatedServer, client: Client) -> Client:
    again = Client(yard, reconnect_as=client.id)
    assert again.id == client.id
    return again


def work_on(yard: SimulatedServer, queue: str = "q") -> None:
    """Somebody else fetches a message and finishes it."""
    worker = Client(yard)
    worker.fetch(queue)
    worker.finish(queue, worker.taken(), response="sync")
    worker.expect_notice(0, "finish")
    worker.close()


# What is kept


@pytest.mark.parametrize("interrupt", INTERRUPTIONS)
def test_what_happens_while_the_client_is_away_is_told_when_it_is_back(
    yard: SimulatedServer, interrupt: Interruption
) -> None:
    client = durable(yard)
    client.post("q", label=7, notify=ALL)
    client.post("q", label=8, notify=("finish",))
    client.expect_notice(7, "ready", "write", "sync")
    yard.advance(A_MOMENT)
    interrupt(yard, client)
    if interrupt is not nothing:
        work_on(yard)
        work_on(yard)
        again = back(yard, client)
        assert again.stages() == [(7, "assign"), (7, "finish"), (8, "finish")]
    else:
        again = back(yard, client)
        work_on(yard)
        work_on(yard)
        assert again.stages() == [(7, "assign"), (7, "finish"), (8, "finish")]
    client.expect_nothing()
    again.close()
    assert back(yard, client).stages() == []


@pytest.mark.parametrize("interrupt", INTERRUPTIONS)
@pytest.mark.parametrize("step", range(6))
def test_each_notice_comes_once_wherever_the_client_is_interrupted(
    yard: SimulatedServer, interrupt: Interruption, step: int
) -> None:
    client = durable(yard)
    worker = Client(yard)
    told: list[tuple[object, object]] = []

    def maybe(at: int) -> None:
        nonlocal client, worker
        told.extend(client.stages())
        if at == step:
            yard.advance(A_MOMENT)
            interrupt(yard, client)
            client = back(yard, client)
            if worker.peer.closed:
                worker = Client(yard)

    maybe(0)
    client.post("q", label=7, notify=ALL)
    maybe(1)
    worker.fetch("q", work_timeout=10, sync="sync")
    assert worker.taken() == 1
    maybe(2)
    yard.advance(10)
    maybe(3)
    worker.fetch("q", work_timeout=10, sync="sync")
    assert worker.taken() == 1
    maybe(4)
    yard.advance(10)
    maybe(5)
    told.extend(client.stages())
    assert told == [
        (7, stage) for stage in ("ready", "write", "sync", "assign", "retry", "assign", "drop")
    ]
    client.close()
    assert back(yard, client).stages() == []


@pytest.mark.parametrize("interrupt", [lose_socket, restart, kill, crash])
def test_a_notice_that_was_sent_but_not_received_comes_again(
    yard: SimulatedServer, interrupt: Interruption
) -> None:
    client = durable(yard)
    client.peer.answers_pings = False  # all that is sent from here on is lost on the way
    client.post("q", label=7, notify=("ready", "sync"))
    client.peer.responses.clear()
    interrupt(yard, client)
    again = back(yard, client)
    assert again.stages() == [(7, "ready"), (7, "sync")]
    yard.advance(A_MOMENT)
    interrupt(yard, again)
    assert back(yard, client).stages() == []


@pytest.mark.parametrize("interrupt", [kill, crash])
def test_nothing_is_lost_by_a_server_that_dies_in_that_moment(
    yard: SimulatedServer, interrupt: Interruption
) -> None:
    client = durable(yard)
    client.post("q", label=7, notify=("ready", "sync"))
    assert client.stages() == [(7, "ready"), (7, "sync")]
    interrupt(yard, client)
    assert back(yard, client).stages() == [(7, "ready"), (7, "sync")]


def test_what_was_lost_on_the_way_comes_again_and_what_came_before_does_not(
    yard: SimulatedServer,
) -> None:
    client = durable(yard)
    client.post("q", label=1, notify=("sync",))
    client.peer.answers_pings = False
    client.post("q", label=2, notify=("sync",))
    client.peer.answers_pings = True
    client.post("q", label=3, notify=("sync",))
    client.close()
    assert back(yard, client).stages() == [(2, "sync"), (3, "sync")]


def test_a_post_that_was_cut_off_is_told_if_it_was_taken(yard: SimulatedServer) -> None:
    client = durable(yard)
    assert client.peer.connection is not None
    text = b'{"type":"post","queue":"q","message":"m","label":7,"notify":["ready","write","sync"]}'
    client.peer.connection.on_text(text)
    client.close()
    assert client.stages() == []
    assert back(yard, client).stages() == [(7, "ready"), (7, "write"), (7, "sync")]


@pytest.mark.parametrize("seed", range(effort(20, 8)))
def test_after_a_crash_the_session_fits_the_queue(seed: int) -> None:
    """Whatever part of the last moments is left: what is told and what is there go together."""
    yard = SimulatedServer(durability="write")
    maker = Client(yard)
    maker.create("q")
    client = durable(yard)
    yard.advance(2)
    for label in range(1, 6):
        client.post("q", label=label, notify=("ready", "sync"))
    yard.crash(Random(seed))
    again = back(yard, client)
    yard.advance(2)
    stages = again.stages()
    queue = yard.engine.queue(b"q")
    assert queue is not None
    kept = range(1, queue.ready.size + 1)
    assert {label for label, _ in stages} <= set(kept)
    assert [label for label, stage in stages if stage == "sync"] == list(kept)


@pytest.mark.parametrize("durability", ["sync", "write", "memory"])
def test_what_is_owed_comes_before_what_is_new(durability: str) -> None:
    yard = SimulatedServer(durability=durability)
    Client(yard).create("q")
    client = durable(yard)
    yard.advance(2)
    client.post("q", label=1, notify=("finish",))
    client.close()
    Client(yard).pop("q", sync="ready")
    again = yard.connect_glovebox(reconnect_as=client.id)
    again.send_json(type="post", queue="q", message="", label=2, notify=["ready", "write", "sync"])
    yard.advance(2)
    told = [(said.get("label"), said.get("notice", said["type"])) for said in again.responses]
    assert told == [
        (None, "hello"),
        (1, "finish"),
        (2, "ready"),
        (2, "write"),
        (2, "sync"),
    ]


@pytest.mark.parametrize("durability", ["write", "memory"])
def test_who_comes_back_early_is_not_told_of_a_sync_too_early(durability: str) -> None:
    yard = SimulatedServer(durability=durability, inline_sync=False)
    Client(yard).create("q")
    client = durable(yard)
    yard.advance(2)
    yard.scheduler.slow = True
    client.post("q", label=1, notify=("sync",))
    yard.advance(0.1)
    assert yard.journal.written == yard.engine.records.end_position() > yard.journal.durable
    client.close()
    yard.advance(0.1)
    again = back(yard, client)
    yard.advance(2)
    again.expect_nothing()
    while yard.scheduler.blocking:
        yard.scheduler.finish_blocking()
        yard.advance(2)
    assert again.stages() == [(1, "sync")]


@pytest.mark.parametrize("durability", ["sync", "write", "memory"])
def test_a_session_is_durable_before_its_client_knows_its_id(durability: str) -> None:
    yard = SimulatedServer(durability=durability, inline_sync=False)
    yard.advance(2)
    yard.scheduler.slow = True
    peer = yard.connect_glovebox(durable=True)
    if durability == "sync":
        peer.expect_nothing()
    peer.send_json(type="create", queue="q", label=1)
    peer.send_json(type="post", queue="q", message="", label=2, notify=["ready", "write"])
    if durability == "sync":
        peer.expect_nothing()  # not even what is true already overtakes the greeting
        while yard.scheduler.blocking:
            yard.scheduler.finish_blocking()
            yard.run_pending()
    assert peer.next()["type"] == "hello"
    assert sorted(str(said["notice"]) for said in peer.responses) == ["ready", "ready", "write"]


# What it holds


@pytest.mark.parametrize("interrupt", INTERRUPTIONS)
def test_who_is_back_may_finish_what_it_has_fetched(
    yard: SimulatedServer, interrupt: Interruption
) -> None:
    poster = durable(yard)
    poster.post("q", label=1, notify=("finish",))
    client = durable(yard)
    client.fetch("q", work_timeout=60, sync="sync")
    client.expect_message(0, 1)
    interrupt(yard, client)
    other = Client(yard)
    other.finish("q", 1, label=2)
    other.expect_error(2, "NoObject", "q")
    again = back(yard, client)
    again.finish("q", 1, label=3, response="sync")
    again.expect_notice(3, "finish")
    if interrupt in (restart, kill, crash):
        poster = back(yard, poster)
    assert poster.stages() == [(1, "finish")]


def test_who_is_back_too_late_may_not(yard: SimulatedServer) -> None:
    client = durable(yard)
    client.post("q")
    client.fetch("q", work_timeout=5)
    client.close()
    yard.advance(5)
    again = back(yard, client)
    again.finish("q", 1, label=3)
    again.expect_error(3, "NoObject", "q")


def test_what_waits_ends_with_the_socket(yard: SimulatedServer) -> None:
    client = durable(yard)
    client.pop("q", 100, label=1)
    client.close()
    assert not yard.engine.waiters
    again = back(yard, client)
    yard.advance(200)
    again.expect_nothing()


# Who gets which session


def test_a_session_that_is_not_durable_ends_with_its_socket(yard: SimulatedServer) -> None:
    client = Client(yard)
    client.post("q", label=7, notify=("finish",))
    client.close()
    work_on(yard)
    again = Client(yard, reconnect_as=client.id)
    assert again.id != client.id
    again.expect_nothing()
    assert not yard.engine.state.sessions


@pytest.mark.parametrize("durable_", [True, False])
@pytest.mark.parametrize("id", [0, 1, 2**63, 2**64 - 1])
def test_an_unknown_id_gets_a_new_session(yard: SimulatedServer, id: int, durable_: bool) -> None:
    client = Client(yard, durable=durable_, reconnect_as=id)
    assert client.id != id
    assert (client.id in yard.engine.state.sessions) == durable_


def test_the_latest_socket_has_the_session(yard: SimulatedServer) -> None:
    first = durable(yard)
    first.pop("q", 100, label=1)
    second = back(yard, first)
    assert first.peer.closed
    second.post("q", label=2, notify=("sync",))
    assert second.stages() == [(2, "sync")]
    first.expect_nothing()
    third = back(yard, second)
    work_on(yard)
    third.post("q", label=3, notify=("sync",))
    assert third.stages() == [(3, "sync")]
    assert yard.glovebox.stats.open_connections == 2  # with the one that made the queue


def test_another_form_may_be_spoken_afterwards(yard: SimulatedServer) -> None:
    client = durable(yard)
    client.post("q", label=7, notify=("finish",))
    client.close()
    work_on(yard)
    again = Client(yard, binary=True, sends_binary=True, reconnect_as=client.id)
    assert again.stages() == [(7, "finish")]


# Bounds


def test_a_session_is_forgotten_when_its_client_stays_away(yard: SimulatedServer) -> None:
    client = durable(yard)
    client.close()
    yard.advance(3599)
    client = back(yard, client)
    yard.advance(100_000)
    client.close()
    yard.advance(3600)
    assert Client(yard, reconnect_as=client.id).id != client.id


def test_the_oldest_notices_go_when_there_are_too_many() -> None:
    yard = SimulatedServer(settings=EngineSettings(outbox_bytes=3 * OUTBOX_NOTICE_BYTES))
    Client(yard).create("q")
    client = durable(yard)
    for label in range(1, 6):
        client.post("q", label=label, notify=("finish",))
    client.close()
    for _ in range(5):
        work_on(yard)
    assert back(yard, client).stages() == [(3, "finish"), (4, "finish"), (5, "finish")]


def test_numbers_of_notices_and_of_letters_agree(yard: SimulatedServer) -> None:
    client = durable(yard)
    for label in range(10):
        client.post("q", label=label, notify=ALL)
    taker = Client(yard)
    for turn in range(5):
        taker.fetch("q", work_timeout=5)
        taker.pop("q", label=turn)
        yard.advance(5 if turn % 2 else 1)
    yard.advance(100)
    session = yard.engine.state.sessions[client.id]
    assert client.peer.connection is not None
    letters = client.peer.connection.notice_tracker
    assert letters is not None
    assert letters.last_notice == session.numbered == session.delivered
    assert not session.outbox


def test_pongs_that_answer_nothing_are_ignored(yard: SimulatedServer) -> None:
    client = durable(yard)
    client.peer.answers_pings = False
    client.post("q", label=1, notify=("sync",))
    assert client.peer.connection is not None
    for payload in (b"", b"\0" * 8, b"\xff" * 8, b"\xff" * 9, (2).to_bytes(8, "big")):
        client.peer.connection.on_pong(payload)
    client.close()
    assert back(yard, client).stages() == [(1, "sync")]
    plain = Client(yard)
    assert plain.peer.connection is not None
    plain.peer.connection.on_pong((1).to_bytes(8, "big"))
    plain.expect_nothing()
