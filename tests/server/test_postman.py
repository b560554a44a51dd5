"""Replies by the postman: whole, in order, to the right one, whoever reads or leaves meanwhile."""

import asyncio
import contextlib
import os
import re
import select
import signal
import socket
from collections.abc import Coroutine, Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest
from support.effort import effort
from support.process import WarmServer
from support.sockets import HANG_GUARD

from taskyard import build
from taskyard.server.postman import Carrier

pytestmark = pytest.mark.skipif(
    build.form() != "compiled", reason="only the compiled form has this thread"
)

CROWD = 60


@pytest.fixture
def carrier() -> Iterator[Carrier]:
    from taskyard.server._postman import Postman as Made

    made = Made()
    yield made
    made.close()


@contextlib.contextmanager
def pairs(count: int) -> Iterator[list[tuple[socket.socket, socket.socket]]]:
    with contextlib.ExitStack() as stack:
        made = [socket.socketpair() for _ in range(count)]
        for ours, theirs in made:
            ours.setblocking(False)
            stack.enter_context(ours)
            stack.enter_context(theirs)
        yield made


def finished(carrier: Carrier) -> list[tuple[int, int]]:
    carrier.wait()
    rest = carrier.end()
    assert rest is not None
    return rest


# The thread


def test_a_round_is_sent(carrier: Carrier) -> None:
    with pairs(50) as made:
        files = [ours.fileno() for ours, _ in made]
        for turn in range(20):
            letters = [b"%d to %d" % (turn, number) for number in range(50)]
            carrier.begin(files, letters)
            assert finished(carrier) == []
            assert [theirs.recv(100) for _, theirs in made] == letters


def test_a_letter_to_nobody_is_left_out(carrier: Carrier) -> None:
    with pairs(1) as [(ours, theirs)]:
        carrier.begin([-1, ours.fileno(), -1], [b"a", b"b", b""])
        assert finished(carrier) == []
        assert theirs.recv(100) == b"b"


def test_what_is_not_taken_is_told_unasked(carrier: Carrier) -> None:
    large = b"x" * 10_000_000
    with pairs(3) as made:
        made[2][1].close()  # cannot be sent to at all
        files = [ours.fileno() for ours, _ in made]
        carrier.begin(files, [large, b"small", b"lost"])
        assert select.select([carrier.fileno()], [], [], HANG_GUARD)[0]
        rest = finished(carrier)
        assert [place for place, _ in rest] == [0, 2]
        sent = dict(rest)
        assert 0 < sent[0] < len(large)
        assert sent[2] == 0
        assert made[1][1].recv(100) == b"small"
        assert not select.select([carrier.fileno()], [], [], 0)[0]


def test_the_end_is_told_to_who_wishes_it(carrier: Carrier) -> None:
    with pairs(1) as [(ours, theirs)]:
        assert not carrier.wish()  # there is nothing to wait for
        assert carrier.end() is None
        for _ in range(200):
            carrier.begin([ours.fileno()], [b"letter"])
            if carrier.wish():
                assert select.select([carrier.fileno()], [], [], HANG_GUARD)[0]
                carrier.heard()
            assert carrier.end() == []
            assert theirs.recv(100) == b"letter"


def test_who_helps_sends_what_the_thread_has_not(carrier: Carrier) -> None:
    with pairs(400) as made:
        files = [ours.fileno() for ours, _ in made]
        letters = [b"%d" % number for number in range(400)]
        carrier.begin(files, letters)
        while carrier.help(3):
            pass
        assert finished(carrier) == []
        assert [theirs.recv(100) for _, theirs in made] == letters
        assert not carrier.help(3)


def test_it_does_one_thing_at_a_time(carrier: Carrier) -> None:
    with pairs(1) as [(ours, _)]:
        carrier.begin([ours.fileno()], [b"a"])
        with pytest.raises(ValueError, match="under way"):
            carrier.begin([ours.fileno()], [b"b"])
        assert finished(carrier) == []


def test_only_what_can_be_sent_is_taken(carrier: Carrier) -> None:
    with pytest.raises(ValueError, match="a file for each"):
        carrier.begin([1, 2], [b"a"])
    with pytest.raises(TypeError, match="not bytes"):
        carrier.begin([1], ["text"])  # type: ignore[list-item]
    with pytest.raises(TypeError, match="two lists"):
        carrier.begin((), [])  # type: ignore[arg-type]
    carrier.close()
    carrier.close()
    with pytest.raises(ValueError, match="closed"):
        carrier.begin([], [])


# Connections


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WarmServer]:
    directory = tmp_path_factory.mktemp("server")
    with WarmServer(directory, "--durability", "memory", "--output-limit", "100kB") as running:
        yield running
        assert "Traceback" not in running.log_text()
        assert running.stop() == 0


def rounds_of(server: WarmServer) -> int:
    """How often the postman of a server has gone to sleep."""
    for task in Path(f"/proc/{server.pid}/task").iterdir():
        if (task / "comm").read_text() == "postman\n":
            found = re.search(
                r"^voluntary_ctxt_switches:\s*(\d+)", (task / "status").read_text(), re.MULTILINE
            )
            assert found
            return int(found[1])
    raise AssertionError("there is no postman")


def stream(start: int, size: int) -> bytes:
    """Bytes of which each place is another, so that none can be lost or swapped unseen."""
    text = b"".join(b"%07d " % number for number in range(start // 8, (start + size) // 8 + 1))
    return text[start % 8 : start % 8 + size]


def echo(text: bytes) -> bytes:
    return b"*2\r\n$4\r\nECHO\r\n$%d\r\n%b\r\n" % (len(text), text)


class Crowd:
    """Many clients who ask at the same moment: the server is stopped until all of them have."""

    def __init__(self, server: WarmServer, size: int) -> None:
        self._server = server
        self._missing = size
        self._silent = size
        self._all_here = asyncio.Event()

    async def join(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Connect, and wait for the others."""
        pair = await asyncio.open_connection(*self._server.address("resp"), limit=4096)
        self._missing -= 1
        if not self._missing:
            os.kill(self._server.pid, signal.SIGSTOP)
            self._all_here.set()
        await self._all_here.wait()
        return pair

    def spoke(self) -> None:
        """One of them has asked for everything."""
        self._silent -= 1
        if not self._silent:
            os.kill(self._server.pid, signal.SIGCONT)


async def talk(crowd: Crowd, chance: Random, sizes: list[int], *, slowly: bool) -> None:
    reader, writer = await crowd.join()
    expected = b""
    start = chance.randrange(1_000_000)  # nobody else has the same bytes
    for size in sizes:
        text = stream(start, size)
        start += size
        expected += b"$%d\r\n%b\r\n" % (size, text)
        writer.write(echo(text))
        if chance.random() < 0.1:
            await asyncio.sleep(0)
    writer.write(b"QUIT\r\n")
    crowd.spoke()
    received = bytearray()
    while data := await reader.read(chance.choice((10, 1000, 100_000))):
        received += data
        if slowly:
            await asyncio.sleep(0.001)
    assert bytes(received) == expected + b"+OK\r\n"
    writer.close()


async def leave(crowd: Crowd, chance: Random) -> None:
    """Without having read everything, or anything."""
    reader, writer = await crowd.join()
    writer.write(echo(b"letter") * chance.randint(1, 30))
    crowd.spoke()
    if chance.random() < 0.7:
        await reader.read(10)
    writer.transport.abort()


async def together(*tasks: Coroutine[Any, Any, None]) -> None:
    async with asyncio.timeout(HANG_GUARD):
        await asyncio.gather(*tasks)


@pytest.mark.parametrize("seed", range(effort(20, 3)))
def test_everybody_gets_everything_in_order(server: WarmServer, seed: int) -> None:
    before = rounds_of(server)
    chance = Random(seed)

    async def run() -> None:
        crowd = Crowd(server, CROWD)
        talks = []
        for number in range(CROWD):
            kinds = (1, 50, 3000, 20_000) if number % 9 else (200_000,)
            sizes = [chance.choice(kinds) for _ in range(chance.randint(5, 40))]
            talks.append(talk(crowd, chance, sizes, slowly=number % 7 == 0))
        await together(*talks)

    asyncio.run(run())
    assert rounds_of(server) > before


def test_nobody_gets_the_letters_of_one_who_has_left(server: WarmServer) -> None:
    """Whoever comes next may have the same descriptor."""
    before = rounds_of(server)
    chance = Random(1)

    async def run() -> None:
        for _ in range(effort(100, 12)):
            crowd = Crowd(server, CROWD)
            left = [leave(crowd, chance) for _ in range(CROWD // 2)]
            stayed = [talk(crowd, chance, [7, 300, 7], slowly=False) for _ in range(CROWD // 2)]
            await together(*left, *stayed)

    asyncio.run(run())
    assert rounds_of(server) > before
