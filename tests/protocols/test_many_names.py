"""Commands that name queues to take from: how many names one may have, in each protocol's words."""

import json
from collections.abc import Callable

import pytest
from support.simulated import SimulatedServer

from taskyard.engine.model.events import ALWAYS_ALLOWED_QUEUES, MAX_QUEUES_PER_COMMAND
from taskyard.protocols.resp.connection import RespConnection

Words = Callable[[list[str]], bytes]


def fetch(names: list[str]) -> bytes:
    return b"FETCH " + json.dumps({"queues": names, "timeout": "9s"}).encode() + b"\n"


def line(head: str, end: str) -> Words:
    return lambda names: f"{head.format(len(names))} {' '.join(names)} {end}\r\n".encode()


RESP_ERROR = f"-ERR too many queues: a command names at most {MAX_QUEUES_PER_COMMAND}\r\n".encode()
COMMANDS: dict[str, tuple[str, Words, bytes]] = {
    "FETCH": (
        "masenko",
        fetch,
        b'ERR {"msg":"too many queues: at most %d can be fetched from"}\n' % MAX_QUEUES_PER_COMMAND,
    ),
    "lease": (
        "workq",
        line("lease", "9000"),
        b"-CLIENT-ERROR Too many names: at most %d\r\n" % MAX_QUEUES_PER_COMMAND,
    ),
    "BLPOP": ("resp", line("BLPOP", "9"), RESP_ERROR),
    "BRPOP": ("resp", line("BRPOP", "9"), RESP_ERROR),
    "JOB.TAKE": ("resp", line("JOB.TAKE {}", "WAIT 9000"), RESP_ERROR),
}


def names(count: int) -> list[str]:
    return [f"q{number}" for number in range(count)]


@pytest.mark.parametrize("which", COMMANDS)
def test_a_command_may_wait_at_so_many_queues(which: str) -> None:
    dialect, words, _ = COMMANDS[which]
    yard = SimulatedServer()
    peer = yard.connect(dialect)
    peer.send(words(names(MAX_QUEUES_PER_COMMAND)))
    peer.expect_nothing()
    assert len(yard.engine.waiters) == MAX_QUEUES_PER_COMMAND
    yard.connect("resp").send(b"RPUSH q%d x\r\n" % (MAX_QUEUES_PER_COMMAND - 1))
    assert peer.take() != b""
    assert yard.engine.waiters == {}


@pytest.mark.parametrize("which", COMMANDS)
def test_a_command_with_more_names_is_refused_and_the_connection_goes_on(which: str) -> None:
    dialect, words, error = COMMANDS[which]
    yard = SimulatedServer()
    yard.connect("resp").send(b"RPUSH q0 x y\r\n")
    peer = yard.connect(dialect)
    peer.send(words(names(MAX_QUEUES_PER_COMMAND + 1)))
    peer.expect(error)
    peer.expect_nothing()
    assert yard.engine.waiters == {}
    peer.send(words(names(2)))
    assert peer.take() not in (b"", error)


def test_names_that_are_said_twice_count_twice() -> None:
    """Whoever counts them need not read them first."""
    for dialect, words, error in COMMANDS.values():
        peer = SimulatedServer().connect(dialect)
        peer.send(words(["q"] * (MAX_QUEUES_PER_COMMAND + 1)))
        peer.expect(error)


def test_a_batch_is_from_so_many_queues() -> None:
    peer = SimulatedServer().connect("resp")
    words = line("BATCH.LEASE me 1 10 TTR 60000 QUEUES", "")
    peer.send(words(names(MAX_QUEUES_PER_COMMAND + 1)))
    peer.expect(RESP_ERROR)
    peer.send(words(names(MAX_QUEUES_PER_COMMAND)))
    peer.expect(b"*2\r\n:")


@pytest.mark.parametrize("which", COMMANDS)
def test_a_command_with_many_names_means_what_it_says_each_time(which: str) -> None:
    """It is not remembered, unlike those with few."""
    dialect, words, _ = COMMANDS[which]
    yard = SimulatedServer()
    peer = yard.connect(dialect)
    for last in ("a", "b", "a"):
        peer.send(words([*(f"{name}{'x' * 200}" for name in names(50)), last]))
        peer.expect_nothing()
        yard.connect("resp").send(f"RPUSH {last} value\r\n".encode())
        assert peer.take() != b""


def test_the_mark_of_no_fetch_is_no_fetch() -> None:
    peer = SimulatedServer().connect()
    peer.send(b"FETCH -\n")
    peer.expect(b'ERR {"msg":"cannot unmarshal payload"}\n')


# When the memory for those who wait is used up

REFUSED = b"commands that wait take up the memory there is for them"


@pytest.mark.parametrize("which", COMMANDS)
def test_no_more_wait_at_many_queues_when_their_memory_is_used_up(which: str) -> None:
    dialect, words, _ = COMMANDS[which]
    yard = SimulatedServer()
    yard.engine.waiter_bytes_limit = 20_000
    first, second = yard.connect(dialect), yard.connect(dialect)
    first.send(words(names(30)))
    first.expect_nothing()
    second.send(words(names(30)))
    assert REFUSED in second.take()
    second.send(words(names(ALWAYS_ALLOWED_QUEUES)))  # as many as workers have
    second.expect_nothing()
    yard.connect("resp").send(b"RPUSH q0 x y z\r\n")
    assert first.take() != b""
    assert second.take() != b""
    assert yard.engine.waiter_bytes == 0
    first.send(words(names(30)))
    first.close()
    assert yard.engine.waiter_bytes == 0


def test_nor_do_more_requests_of_one_glovebox_connection() -> None:
    yard = SimulatedServer()
    peer = yard.connect_glovebox()
    peer.send_json(type="create", queue="q", label=0)
    peer.responses.clear()
    yard.engine.waiter_bytes_limit = 0
    for label in range(ALWAYS_ALLOWED_QUEUES):
        peer.send_json(type="pop", queue="q", timeout=9, label=label)
    peer.expect_nothing()
    peer.send_json(type="pop", queue="q", timeout=9, label=99)
    error = peer.next()
    assert (error["label"], error["code"]) == (99, "Unavailable")
    assert REFUSED.decode() in error["key"]
    peer.close()
    assert yard.engine.waiter_bytes == 0


# Arguments of RESP


def test_the_arguments_of_an_unfinished_command_count_with_what_they_take() -> None:
    yard = SimulatedServer()
    told: list[int] = []
    yard.broker.on_memory_used = told.append
    peer = yard.connect("resp")
    count = 10_000
    peer.send(b"*%d\r\n$3\r\nDEL\r\n" % (count + 2) + b"$2\r\nxy\r\n" * count)
    assert peer.receiver is not None
    assert peer.receiver.buffered_bytes() >= count * 50
    assert sum(told) >= count * 48
    peer.send(b"$1\r\na\r\n")
    assert peer.take() != b""
    assert peer.receiver.buffered_bytes() == 0


@pytest.mark.parametrize(
    ("dialect", "begin", "step", "least"),
    [
        ("resp", b"MULTI\r\n", b"PING a\r\n", 150 * 2 * 48),
        ("masenko", b"ATOMIC\n", b'PUSH {"name":"a"}\n', 128 * 512),
    ],
)
def test_a_transaction_that_is_not_over_counts_with_what_it_takes(
    dialect: str, begin: bytes, step: bytes, least: int
) -> None:
    yard = SimulatedServer()
    told: list[int] = []
    yard.broker.on_memory_used = told.append
    peer = yard.connect(dialect)
    peer.send(begin + step * 190)
    assert least <= sum(told) <= 2 * least
    assert len(told) < 10


def test_the_arguments_of_a_large_command_are_not_kept_behind_it() -> None:
    yard = SimulatedServer()
    peer = yard.connect("resp")
    values = b"".join(b"$100\r\n%b\r\n" % (b"x" * 100) for _ in range(100))
    peer.send(b"*102\r\n$5\r\nRPUSH\r\n$1\r\nq\r\n" + values)
    peer.expect(b":100\r\n")
    connection = peer.receiver
    assert isinstance(connection, RespConnection)
    assert connection._frame_parser.args == []
