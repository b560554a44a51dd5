"""Glovebox: each notice comes at its moment, whatever the server's durability is."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from support.glovebox import ALL, Client
from support.simulated import SimulatedServer

MODES = ("sync", "write", "memory")
A_WHILE = 2.0  # more than the time between two syncs that nobody waits for


def started(
    durability: str = "sync", *, inline_sync: bool = True
) -> tuple[SimulatedServer, Client]:
    """A server with a queue `q`, all of it on disk."""
    yard = SimulatedServer(durability=durability, inline_sync=inline_sync)
    client = Client(yard)
    client.create("q", retries=1)
    client.next()
    yard.advance(A_WHILE)
    assert yard.journal.durable == yard.engine.records.end_position()
    return yard, client


def seen(yard: SimulatedServer, client: Client) -> Iterator[tuple[str, bool, bool]]:
    """Each response as it comes, with whether all was written and synced by then."""
    while True:
        while client.peer.responses:
            response = client.next()
            mark = yard.engine.records.end_position()
            name = str(response.get("notice", response["type"]))
            yield name, yard.journal.written >= mark, yard.journal.durable >= mark
        if not yard.scheduler.step():
            return


def send(client: Client, text: str) -> None:
    """The text reaches the server, whose loop has not run on by then."""
    assert client.peer.connection is not None
    client.peer.connection.on_text(text.encode())


def post(client: Client, *stages: str) -> None:
    names = ",".join(f'"{stage}"' for stage in stages)
    send(client, f'{{"type":"post","queue":"q","message":"body","label":1,"notify":[{names}]}}')


# Ready, write and sync


@pytest.mark.parametrize("durability", MODES)
def test_ready_is_told_while_the_message_is_in_memory_only(durability: str) -> None:
    yard, client = started(durability)
    post(client, "ready")
    assert next(seen(yard, client)) == ("ready", False, False)


@pytest.mark.parametrize("durability", MODES)
def test_write_is_told_when_it_is_written(durability: str) -> None:
    yard, client = started(durability, inline_sync=False)
    yard.scheduler.slow = True
    post(client, "write")
    assert list(seen(yard, client)) == [("write", True, False)]


@pytest.mark.parametrize("durability", MODES)
def test_sync_is_told_when_it_is_synced(durability: str) -> None:
    yard, client = started(durability, inline_sync=False)
    yard.scheduler.slow = True
    post(client, "sync")
    yard.advance(A_WHILE)
    client.expect_nothing()
    yard.scheduler.finish_blocking()
    assert list(seen(yard, client)) == [("sync", True, True)]


@pytest.mark.parametrize("inline_sync", [True, False])
@pytest.mark.parametrize("durability", MODES)
def test_the_three_come_in_this_order(durability: str, inline_sync: bool) -> None:
    yard, client = started(durability, inline_sync=inline_sync)
    post(client, "sync", "write", "ready")
    yard.advance(A_WHILE)
    assert client.stages() == [(1, "ready"), (1, "write"), (1, "sync")]


def test_a_write_does_not_wait_for_the_sync_of_one_before() -> None:
    yard, client = started(inline_sync=False)
    yard.scheduler.slow = True
    post(client, "sync", "write")
    assert [name for name, _, _ in seen(yard, client)] == ["write"]
    client.create("other", label=2)
    client.expect_nothing()  # that one is a promise
    yard.scheduler.finish_blocking()
    assert [name for name, _, _ in seen(yard, client)] == ["sync"]
    yard.scheduler.finish_blocking()
    yard.run_pending()
    client.expect_notice(2, "ready")


@pytest.mark.parametrize("durability", ["write", "memory"])
def test_a_sync_notice_is_not_forgotten_when_a_sync_takes_long(durability: str) -> None:
    yard, client = started(durability, inline_sync=False)
    yard.scheduler.slow = True
    post(client, "sync")
    yard.advance(A_WHILE)
    post(client, "sync")
    yard.advance(A_WHILE)
    client.expect_nothing()
    yard.scheduler.finish_blocking()
    yard.run_pending()
    client.expect_notice(1, "sync")
    client.expect_nothing()
    yard.advance(A_WHILE)
    yard.scheduler.finish_blocking()
    yard.run_pending()
    client.expect_notice(1, "sync")


def test_a_failed_sync_is_never_told_as_one() -> None:
    yard, client = started("write", inline_sync=False)
    yard.scheduler.slow = True
    post(client, "write", "sync")
    yard.run_pending()
    client.expect_notice(1, "write")
    yard.advance(A_WHILE)
    yard.disk.fail_always("sync")
    yard.scheduler.finish_blocking()
    yard.run_pending()
    client.expect_nothing()
    assert client.peer.closed
    assert yard.broker.failure


@pytest.mark.parametrize("durability", MODES)
def test_a_message_of_which_sync_was_told_survives_a_crash(durability: str) -> None:
    yard, client = started(durability)
    post(client, "sync")
    yard.advance(A_WHILE)
    client.expect_notice(1, "sync")
    yard.crash()
    again = Client(yard)
    again.pop("q", label=2)
    yard.advance(A_WHILE)
    again.expect_message(2, 1, finished=True)


# Assign, finish, retry and drop: what they tell is as durable as an answer


def test_the_life_of_a_fetched_message() -> None:
    yard, client = started()
    taker = Client(yard)
    client.post("q", label=7, notify=ALL)
    client.expect_notice(7, "ready", "write", "sync")
    taker.fetch("q", work_timeout=5)
    taker.taken()
    client.expect_notice(7, "assign")
    yard.advance(5)
    client.expect_notice(7, "retry")
    taker.fetch("q", work_timeout=5)
    client.expect_notice(7, "assign")
    taker.finish("q", taker.taken())
    client.expect_notice(7, "finish")
    client.expect_nothing()


@pytest.mark.parametrize("stage", ["assign", "finish", "retry", "drop"])
def test_they_wait_for_their_record(stage: str) -> None:
    yard, client = started(inline_sync=False)
    client.post("q", label=7, notify=(stage,))
    taker = Client(yard)
    witnessed: list[bool] = []

    def witness(data: bytes) -> None:
        witnessed.append(yard.journal.durable >= yard.engine.records.end_position())

    client.peer.witness = witness
    for _ in range(2):
        taker.fetch("q", work_timeout=5)
        taken = taker.taken()
        if stage == "finish":
            taker.finish("q", taken)
            break
        yard.advance(5)
    assert (7, stage) in client.stages()
    assert witnessed
    assert all(witnessed)


def test_only_what_was_asked_for_is_told() -> None:
    yard, client = started()
    client.post("q", label=7, notify=("finish",))
    client.post("q", label=8)
    taker = Client(yard)
    for _ in range(2):
        taker.fetch("q")
        taker.finish("q", taker.taken())
    yard.advance(100)
    client.expect_notice(7, "finish")
    client.expect_nothing()


def test_a_label_that_is_used_again_is_told_for_each() -> None:
    _, client = started()
    for _ in range(3):
        client.post("q", label=7, notify=("sync",))
    assert client.stages() == [(7, "sync")] * 3


# Pops


def test_of_a_popped_message_only_finish_is_told() -> None:
    yard, client = started()
    client.post("q", label=7, notify=ALL)
    client.expect_notice(7, "ready", "write", "sync")
    Client(yard).pop("q")
    client.expect_notice(7, "finish")
    yard.advance(100)
    client.expect_nothing()


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        (("ready",), ["finish"]),
        (("finish",), ["finish"]),
        (("ready", "finish"), ["finish"]),
        (ALL, ["finish"]),
        (("write", "sync", "assign", "retry", "drop"), []),
    ],
)
def test_what_a_waiting_pop_takes_was_never_ready(asked: tuple[str, ...], told: list[str]) -> None:
    yard, client = started()
    popper = Client(yard)
    popper.pop("q", 10, label=3)
    client.post("q", label=7, notify=asked)
    popper.expect_message(3, 1, finished=True)
    assert client.stages() == [(7, stage) for stage in told]


def test_a_pop_behind_a_waiting_fetch_is_not_fast() -> None:
    yard, client = started()
    reader = Client(yard)
    reader.fetch("q", 10, label=3)
    reader.pop("q", 10, label=4)
    client.post("q", label=7, notify=("ready",))
    client.expect_notice(7, "ready")
    reader.expect_message(3, 1)


# How durable an assignment is before it is told


@pytest.mark.parametrize("durability", MODES)
@pytest.mark.parametrize(
    "request_", ['"type":"fetch","work_timeout":9', '"type":"pop"'], ids=["fetch", "pop"]
)
@pytest.mark.parametrize(
    ("sync", "written", "synced"),
    [("ready", False, False), ("write", True, False), ("sync", True, True)],
)
def test_a_message_comes_when_its_assignment_is_as_durable_as_was_asked(
    durability: str, request_: str, sync: str, written: bool, synced: bool
) -> None:
    yard, client = started(durability, inline_sync=False)
    client.post("q")
    yard.advance(A_WHILE)
    yard.scheduler.slow = True
    send(client, f'{{{request_},"queue":"q","sync":"{sync}"}}')
    if synced:
        yard.advance(A_WHILE)
        client.expect_nothing()
        yard.scheduler.finish_blocking()
    assert list(seen(yard, client)) == [("message", written, synced)]


@pytest.mark.parametrize("sync", ["ready", "write", "sync"])
@pytest.mark.parametrize("kind", ["fetch", "pop"])
def test_no_message_is_shown_whose_post_may_be_lost(kind: str, sync: str) -> None:
    yard, client = started(inline_sync=False)
    yard.scheduler.slow = True
    post(client)
    send(client, f'{{"type":"{kind}","queue":"q","work_timeout":9,"sync":"{sync}"}}')
    yard.run_pending()
    client.expect_nothing()
    yard.scheduler.finish_blocking()
    assert list(seen(yard, client)) == [("message", True, True)]


@pytest.mark.parametrize("durability", MODES)
@pytest.mark.parametrize(
    ("response", "written", "synced"),
    [("ready", False, False), ("write", True, False), ("sync", True, True)],
)
def test_finish_is_confirmed_when_it_is_as_durable_as_was_asked(
    durability: str, response: str, written: bool, synced: bool
) -> None:
    yard, client = started(durability, inline_sync=False)
    client.post("q")
    client.fetch("q")
    sequence = client.taken()
    yard.advance(A_WHILE)
    yard.scheduler.slow = True
    send(
        client,
        f'{{"type":"finish","queue":"q","sequence":{sequence},"shard":0,"response":"{response}"}}',
    )
    if synced:
        yard.advance(A_WHILE)
        client.expect_nothing()
        yard.scheduler.finish_blocking()
    assert list(seen(yard, client)) == [("finish", written, synced)]
