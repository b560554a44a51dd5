"""Replies by the reply sender: whole, in order, to the right one, whoever reads or leaves
meanwhile.
"""

import asyncio
import contextlib
import os
import re
import select
import signal
import socket
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest
from support.effort import effort
from support.process import WarmServer
from support.simulated import SimulatedServer
from support.sockets import HANG_GUARD, allow_many_files

from taskyard.broker import metrics
from taskyard.server.net.connection import Connection, ConnectionRegistry
from taskyard.server.net.sending import BatchingReplySender, SendThread

pytestmark = pytest.mark.skipif(
    metrics.form() != "compiled", reason="only the compiled form has this thread"
)

CROWD = 60
THOUSANDS = 1100


@pytest.fixture
def carrier() -> Iterator[SendThread]:
    from taskyard.server.net._postman import SendThread as Made

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


def finished(carrier: SendThread) -> list[tuple[int, int]]:
    carrier.wait()
    rest = carrier.collect_results()
    assert rest is not None
    return rest


# The thread


def test_a_round_is_sent(carrier: SendThread) -> None:
    with pairs(50) as made:
        files = [ours.fileno() for ours, _ in made]
        for turn in range(20):
            letters = [b"%d to %d" % (turn, number) for number in range(50)]
            carrier.start(files, letters, False)
            assert finished(carrier) == []
            assert [theirs.recv(100) for _, theirs in made] == letters


def test_a_letter_to_nobody_is_left_out(carrier: SendThread) -> None:
    with pairs(1) as [(ours, theirs)]:
        carrier.start([-1, ours.fileno(), -1], [b"a", b"b", b""], False)
        assert finished(carrier) == []
        assert theirs.recv(100) == b"b"


def test_what_is_not_taken_is_told_unasked(carrier: SendThread) -> None:
    large = b"x" * 10_000_000
    with pairs(3) as made:
        made[2][1].close()  # cannot be sent to at all
        files = [ours.fileno() for ours, _ in made]
        carrier.start(files, [large, b"small", b"lost"], False)
        assert select.select([carrier.fileno()], [], [], HANG_GUARD)[0]
        rest = finished(carrier)
        assert [place for place, _ in rest] == [0, 2]
        sent = dict(rest)
        assert 0 < sent[0] < len(large)
        assert sent[2] == 0
        assert made[1][1].recv(100) == b"small"
        assert not select.select([carrier.fileno()], [], [], 0)[0]


def test_the_end_is_told_to_who_wishes_it(carrier: SendThread) -> None:
    with pairs(1) as [(ours, theirs)]:
        assert not carrier.request_wakeup()  # there is nothing to wait for
        assert carrier.collect_results() is None
        for _ in range(200):
            carrier.start([ours.fileno()], [b"letter"], False)
            if carrier.request_wakeup():
                assert select.select([carrier.fileno()], [], [], HANG_GUARD)[0]
                carrier.clear_wakeup()
            assert carrier.collect_results() == []
            assert theirs.recv(100) == b"letter"


def test_who_helps_sends_what_the_thread_has_not(carrier: SendThread) -> None:
    with pairs(400) as made:
        files = [ours.fileno() for ours, _ in made]
        letters = [b"%d" % number for number in range(400)]
        carrier.start(files, letters, False)
        while carrier.assist(3):
            pass
        assert finished(carrier) == []
        assert [theirs.recv(100) for _, theirs in made] == letters
        assert not carrier.assist(3)


def test_it_does_one_thing_at_a_time(carrier: SendThread) -> None:
    with pairs(1) as [(ours, _)]:
        carrier.start([ours.fileno()], [b"a"], False)
        with pytest.raises(ValueError, match="under way"):
            carrier.start([ours.fileno()], [b"b"], False)
        assert finished(carrier) == []


def test_only_what_can_be_sent_is_taken(carrier: SendThread) -> None:
    with pytest.raises(ValueError, match="a file for each"):
        carrier.start([1, 2], [b"a"], False)
    with pytest.raises(TypeError, match="not bytes"):
        carrier.start([1], ["text"], False)  # type: ignore[list-item]
    with pytest.raises(TypeError, match="wanted: a list"):
        carrier.start((), [], False)  # type: ignore[arg-type]
    carrier.close()
    carrier.close()
    with pytest.raises(ValueError, match="closed"):
        carrier.start([], [], False)


def test_one_letter_is_sent_from_here(carrier: SendThread) -> None:
    with pairs(1) as [(ours, theirs)]:
        assert carrier.send(ours.fileno(), b"letter", True) == 6
        assert theirs.recv(100) == b"letter"
        taken = carrier.send(ours.fileno(), bytes(10_000_000), False)
        assert 0 < taken < 10_000_000
        assert carrier.send(ours.fileno(), b"more", False) == 0
        theirs.close()
        assert carrier.send(ours.fileno(), b"more", False) == 0
    assert carrier.send(-1, b"letter", False) == 0
    with pytest.raises(TypeError, match="wanted: a file"):
        carrier.send(1, "text", False)  # type: ignore[arg-type]


@pytest.mark.parametrize("patient", [True, False])
@pytest.mark.parametrize("by_thread", [True, False])
def test_requests_are_acknowledged_by_replies(
    carrier: SendThread, patient: bool, by_thread: bool
) -> None:
    """Or as soon as they are read, as a socket does until its replies have come quickly."""
    with (
        socket.create_server(("127.0.0.1", 0)) as listener,
        socket.create_connection(listener.getsockname()),
        listener.accept()[0] as ours,
    ):
        if by_thread:
            carrier.start([ours.fileno()], [b"letter"], patient)
            assert finished(carrier) == []
        else:
            assert carrier.send(ours.fileno(), b"letter", patient) == 6
        at_once = ours.getsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK)
        assert bool(at_once) is not patient


@pytest.mark.parametrize("many", [True, False])
def test_among_thousands_replies_may_take_long(many: bool) -> None:
    everyone = ConnectionRegistry()
    dialect = SimulatedServer().masenko
    here = [Connection(dialect, 1000, everyone) for _ in range(1001)]
    for connection in here:
        everyone.add(connection)
    if not many:
        everyone.discard(here.pop())
    carrier = RecordingCarrier()
    planned: list[Callable[[], None]] = []
    postman = BatchingReplySender(everyone, carrier, planned.append, 1)
    for connection in here[:2]:
        postman.enqueue(connection, 7, b"letter")
    planned.pop(0)()
    assert carrier.sent == [(b"letter", many)] * 2
    for connection in here[2:5]:  # the others have not arrived, so these go from here
        postman.enqueue(connection, 7, b"more")
    planned.pop()()
    assert carrier.sent[2:] == [(b"more", many)] * 3


@pytest.mark.parametrize("size", [32_768, 32_769])
def test_large_letters_are_sent_by_the_thread_however_few(size: int) -> None:
    with pairs(2) as made:
        everyone = ConnectionRegistry()
        planned: list[Callable[[], None]] = []
        carrier = RecordingCarrier()
        postman = BatchingReplySender(everyone, carrier, planned.append, 40)
        for ours, theirs in made:
            connection = Connection(SimulatedServer().masenko, 1000, everyone)
            connection.connection_made(SocketTransport(ours))
            postman.enqueue(connection, ours.fileno(), bytes(size))
            theirs.setblocking(False)
        planned.pop(0)()
        assert carrier.sent == [(bytes(size), False)] * 2
        assert carrier.begun == (2 * size > 65_536)


def test_only_what_came_since_the_mark_goes_ahead_of_the_others() -> None:
    with pairs(4) as made:
        everyone = ConnectionRegistry()
        planned: list[Callable[[], None]] = []
        carrier = RecordingCarrier()
        postman = BatchingReplySender(everyone, carrier, planned.append, 1)
        dialect = SimulatedServer().masenko
        here = [Connection(dialect, 1000, everyone) for _ in made]
        for connection, (ours, theirs) in zip(here, made, strict=True):
            connection.connection_made(SocketTransport(ours))
            theirs.setblocking(False)
        for connection in here[:2]:
            postman.enqueue(connection, 7, b"first")
        planned.pop(0)()  # they are on their way, and do not arrive
        postman.enqueue(here[2], 7, b"early")
        postman.mark_priority()
        postman.enqueue(here[3], 7, b"late")
        postman.enqueue(here[0], 7, b"behind the first")
        postman.send_priority_now()
        assert carrier.sent == [(b"first", False)] * 2
        *others, (_, last) = made
        assert last.recv(100) == b"late"
        postman.send_priority_now()
        planned.pop()()
        assert carrier.sent[2:] == [(b"early", False)]
        for _, theirs in [*others, (None, last)]:
            with pytest.raises(BlockingIOError):
                theirs.recv(100)


@pytest.mark.parametrize(("letters", "handful"), [(2, 4), (19, 4), (20, 5), (400, 100)])
def test_the_loop_helps_with_a_few_or_a_part_at_a_time(letters: int, handful: int) -> None:
    everyone = ConnectionRegistry()
    planned: list[Callable[[], None]] = []
    carrier = RecordingCarrier()
    postman = BatchingReplySender(everyone, carrier, planned.append, 1)
    dialect = SimulatedServer().masenko
    for _ in range(letters):
        postman.enqueue(Connection(dialect, 1000, everyone), 7, b"letter")
    planned.pop()()
    while planned:
        planned.pop()()
    assert carrier.begun == 1
    assert carrier.helped == [handful]


def test_what_a_socket_does_not_take_from_the_loop_is_left_to_its_transport() -> None:
    with pairs(2) as made:
        everyone = ConnectionRegistry()
        planned: list[Callable[[], None]] = []
        carrier = RecordingCarrier()
        carrier.taken = 2
        postman = BatchingReplySender(everyone, carrier, planned.append, 40)
        transports = [SocketTransport(ours) for ours, _ in made]
        for transport, (ours, _) in zip(transports, made, strict=True):
            connection = Connection(SimulatedServer().masenko, 1000, everyone)
            connection.connection_made(transport)
            postman.enqueue(connection, ours.fileno(), b"letter")
        planned.pop()()
        assert carrier.sent == [(b"letter", False)] * 2
        assert carrier.begun == 0
        assert [transport.written for transport in transports] == [[b"tter"]] * 2


class SocketTransport(asyncio.Transport):
    """Only good for finding out which socket it has, and what is left to it."""

    def __init__(self, ours: socket.socket) -> None:
        self._known = {"socket": ours, "peername": ("127.0.0.1", 7)}
        self.written: list[bytes] = []

    def write(self, data: Any) -> None:
        self.written.append(data)

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self._known.get(name, default)

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None: ...

    def is_closing(self) -> bool:
        return False


class RecordingCarrier:
    """Whose first round is never over."""

    def __init__(self) -> None:
        self.sent: list[tuple[bytes, bool]] = []
        self.begun = 0  # rounds of the thread
        self.helped: list[int] = []
        self.taken = 1_000_000  # bytes that a socket takes

    def fileno(self) -> int:
        return -1

    def start(self, files: list[int], letters: list[bytes], patient: bool, /) -> None:
        self.begun += 1
        self.sent += [(letter, patient) for letter in letters]

    def send(self, file: int, letter: bytes, patient: bool, /) -> int:
        self.sent.append((letter, patient))
        return min(self.taken, len(letter))

    def assist(self, most: int, /) -> bool:
        self.helped.append(most)
        return False

    def request_wakeup(self) -> bool:
        return True

    def clear_wakeup(self) -> None: ...

    def collect_results(self) -> list[tuple[int, int]] | None:
        return None

    def wait(self) -> None: ...

    def close(self) -> None: ...


# Connections


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WarmServer]:
    directory = tmp_path_factory.mktemp("server")
    with WarmServer(directory, "--durability", "memory", "--output-limit", "100kB") as running:
        yield running
        assert "Traceback" not in running.log_text()
        assert running.stop() == 0


def rounds_of(server: WarmServer) -> int:
    """How often the reply sender of a server has gone to sleep."""
    for task in Path(f"/proc/{server.pid}/task").iterdir():
        if (task / "comm").read_text() == "reply-sender\n":
            found = re.search(
                r"^voluntary_ctxt_switches:\s*(\d+)", (task / "status").read_text(), re.MULTILINE
            )
            assert found
            return int(found[1])
    raise AssertionError("there is no postman")


def has_gone_round(server: WarmServer, before: int) -> None:
    """Its part of a round may be that of the loop by the time that it wakes up, but it does."""
    server.wait_for(lambda: rounds_of(server) > before)


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
    has_gone_round(server, before)


def test_thousands_get_everything_in_order(server: WarmServer) -> None:
    chance = Random(2)

    async def run() -> None:
        crowd = Crowd(server, THOUSANDS)
        sizes = [[chance.choice((1, 300)) for _ in range(3)] for _ in range(THOUSANDS)]
        await together(*(talk(crowd, chance, some, slowly=False) for some in sizes))

    allow_many_files()
    asyncio.run(run())


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
    has_gone_round(server, before)
