"""A real server under more than it can serve: its memory is bounded, it goes on, loses nothing."""

import asyncio
import json
import resource
import select
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing
from functools import partial
from http.client import HTTPConnection
from pathlib import Path
from random import Random

import pytest
from support.ledger import Ledger
from support.limits import (
    allow_files,
    connect,
    hang_up,
    memory,
    metric,
    open_files,
    read_to_end,
)
from support.load_storm import conversation, drain
from support.process import ServerProcess
from support.sockets import HANG_GUARD
from support.wire import Peer, exchange, queue_counts

MEBIBYTE = 1 << 20


@pytest.fixture(autouse=True)
def no_client_stays() -> Iterator[None]:
    yield
    hang_up()


def bulk(*words: bytes) -> bytes:
    return b"*%d\r\n" % len(words) + b"".join(
        b"$%d\r\n%b\r\n" % (len(each), each) for each in words
    )


# More pushes than can be taken


class Flood:
    """Clients that push without a pause, and read what comes back in between."""

    def __init__(self, server: ServerProcess, clients: int) -> None:
        self._server = server
        self._clients = clients
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.full = 0  # how often the server did not take what was offered
        self.sent = 0
        self.acknowledged = 0

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        line = b'PUSH {"name":"n","queue":"flood","payload":"%b"}\n' % (b"x" * 200)
        block = line * 400
        with ExitStack() as stack:
            peers = [
                stack.enter_context(closing(connect(self._server, "masenko")))
                for _ in range(self._clients)
            ]
            at = dict.fromkeys(peers, 0)
            for peer in peers:
                peer.setblocking(False)
            while not self._stop.is_set():
                for peer in peers:
                    try:
                        at[peer] += peer.send(block[at[peer] % len(line) :])
                    except BlockingIOError:
                        self.full += 1
                readable, _, _ = select.select(peers, [], [], 0.001)
                for peer in readable:
                    self.acknowledged += peer.recv(1 << 20).count(b"OK {")
            self.sent = sum(-(-count // len(line)) for count in at.values())


async def talk(server: ServerProcess, ledger: Ledger, chance: Random, name: str) -> None:
    """A well-behaved client among the others."""
    each = conversation(ledger, chance, name)
    reader, writer = await asyncio.open_connection(*server.address())
    for _ in range(25):
        writer.write(each.request())
        while not each.is_idle():
            data = await reader.read(65_536)
            assert data, "the server has closed the connection"
            each.receive(data)
    each.leave()
    writer.close()


async def talk_all(server: ServerProcess, ledger: Ledger) -> None:
    chance = Random(7)
    await asyncio.gather(*[talk(server, ledger, chance, f"c{each}") for each in range(4)])


def test_more_than_it_can_take(tmp_path: Path) -> None:
    flags = ("--payload-memory", "8MiB", "--memory-limit", "8MiB", "--durability", "sync")
    ledger = Ledger()
    with ServerProcess(tmp_path, *flags) as server:
        before = memory(server)
        flood = Flood(server, clients=8)
        flood.start()
        try:
            asyncio.run(talk_all(server, ledger))
            server.wait_for(lambda: flood.full > 100 and flood.acknowledged > 2000)
            most = memory(server) - before
        finally:
            flood.stop()
        exchange(server.connect(), b"PING\n", b"PONG {}\n")
        assert metric(server, "taskyard_in_flight_bytes") <= 10 * MEBIBYTE
        jobs = queue_counts(server.connect())["flood"][0]
        server.kill()
        ledger.crashed()
        server.restart()
        ready = queue_counts(server.connect())["flood"][0]
        assert flood.acknowledged <= ready <= flood.sent
        assert most < 64 * MEBIBYTE + 1024 * jobs  # each job that waits has its own place
        purge(server, "flood")
        drain(server.address(), ledger)
        ledger.check()
        assert server.stop() == 0
        assert "Traceback" not in server.log_text()


def purge(server: ServerProcess, queue: str) -> None:
    with closing(HTTPConnection(*server.address("http"), timeout=HANG_GUARD)) as connection:
        connection.request("DELETE", f"/api/v1/queues/{queue}?purge=true")
        assert connection.getresponse().status == 200


# Clients that do not read


def ask_for_much(server: ServerProcess, count: int) -> list[socket.socket]:
    """Clients that ask each for 5 MB, and read none of it yet."""
    with closing(connect(server, "resp")) as peer:
        peer.sendall(bulk(b"SET", b"large", b"x" * 50_000))
        assert peer.recv(100) == b"+OK\r\n"
    deaf = [connect(server, "resp", receive=4096) for _ in range(count)]
    for each in deaf:
        each.sendall(bulk(b"GET", b"large") * 100)
    return deaf


def test_what_deaf_clients_hold_is_bounded_and_nothing_is_dropped(tmp_path: Path) -> None:
    with ServerProcess(tmp_path, "--memory-limit", "4MiB") as server:
        before = memory(server)
        deaf = ask_for_much(server, 20)
        server.wait_for(lambda: metric(server, "taskyard_held_back_clients") > 0)
        worker = server.connect()
        for number in range(1, 51):  # whoever holds little is served all the same
            exchange(worker, b'PUSH {"name":"a"}\n', b'OK {"id":%d}\n' % number)
        assert metric(server, "taskyard_in_flight_bytes") < 8 * MEBIBYTE
        assert memory(server) - before < 30 * MEBIBYTE
        wanted = (b"$50000\r\n" + b"x" * 50_000 + b"\r\n") * 100
        received = {each: bytearray() for each in deaf}
        while any(len(each) < len(wanted) for each in received.values()):
            readable, _, _ = select.select(deaf, [], [], HANG_GUARD)
            assert readable, "nothing comes any more"
            for each in readable:
                data = each.recv(1 << 20)
                assert data, "the server has closed the connection"
                received[each] += data
        assert all(each == wanted for each in received.values())
        server.wait_for(lambda: metric(server, "taskyard_held_back_clients") == 0)


def test_commands_that_are_larger_together_than_the_memory_come_to_their_end(
    tmp_path: Path,
) -> None:
    flags = ("--memory-limit", "1MiB", "--payload-limit", "900KiB", "--segment-size", "8MiB")
    with ServerProcess(tmp_path, *flags) as server:
        peers = [connect(server, "resp") for _ in range(6)]
        command = bulk(b"RPUSH", b"q", b"x" * 900_000)
        go_on = threading.Event()

        def send(peer: socket.socket) -> None:
            peer.sendall(command[:-2])
            go_on.wait()
            peer.sendall(command[-2:])

        threads = [threading.Thread(target=send, args=[peer]) for peer in peers[:-1]]
        for thread in threads:
            thread.start()
        peers[-1].sendall(command)
        assert peers[-1].recv(100).startswith(b":")
        go_on.set()
        for thread in threads:
            thread.join()
        assert all(peer.recv(100).startswith(b":") for peer in peers[:-1])


# Clients that do not come to an end


def trickle(slow: socket.socket, other: Peer) -> None:
    """One byte at a time until something comes back; meanwhile others are served."""
    for _ in range(400):
        if select.select([slow], [], [], 0.02)[0]:
            return
        slow.sendall(b"x")
        exchange(other, b"PING\n", b"PONG {}\n")
    raise AssertionError("it may go on like this for ever")


HANDSHAKE = (
    b"GET /connect HTTP/1.1\r\nhost: x\r\nconnection: upgrade\r\nupgrade: websocket\r\n"
    b"sec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
)


def test_half_a_message_in_a_websocket_is_let_go_in_the_end(tmp_path: Path) -> None:
    with ServerProcess(tmp_path, "--stall-timeout", "200ms") as server:
        slow, idle = connect(server, "http"), connect(server, "http")
        for each in (slow, idle):
            each.sendall(HANDSHAKE)
            received = b""
            while b'"hello"' not in received:
                received += each.recv(1000)
        slow.sendall(b"\x81\xfe\x10\x00mask")  # 4,096 bytes are to follow
        trickle(slow, server.connect())
        assert read_to_end(slow) == b""
        assert metric(server, 'taskyard_stalled_clients_total{reason="input"}') == 1
        idle.sendall(b"\x89\x80mask")
        assert idle.recv(2) == b"\x8a\x00"


@pytest.mark.parametrize(
    ("dialect", "begun", "reason"),
    [
        (
            "masenko",
            b'PUSH {"name":"',
            b'ERR {"msg":"the rest of a command did not come in time"}\n',
        ),
        (
            "workq",
            b"add 6ba7b810-9dad-11d1-80b4-00c04fd430c4 q 1000 60000 500\r\n",
            b"-CLIENT-ERROR The rest of a command did not come in time\r\n",
        ),
        (
            "resp",
            b"*3\r\n$5\r\nRPUSH\r\n$1\r\nq\r\n$500\r\n",
            b"-ERR Protocol error: the rest of a command did not come in time\r\n",
        ),
    ],
)
def test_one_byte_at_a_time_is_let_go_in_the_end(
    tmp_path: Path, dialect: str, begun: bytes, reason: bytes
) -> None:
    with ServerProcess(tmp_path, "--stall-timeout", "200ms") as server:
        silent = connect(server, dialect)
        other = server.connect()
        with closing(connect(server, dialect)) as slow:
            slow.sendall(begun)
            trickle(slow, other)
            assert read_to_end(slow) == reason
        assert metric(server, 'taskyard_stalled_clients_total{reason="input"}') == 1
        silent.sendall(b"nonsense\r\n")  # it has said nothing so far, and may stay for ever
        assert silent.recv(1000).startswith((b"ERR", b"-ERR", b"-CLIENT-ERROR"))
        silent.close()


def test_who_never_reads_is_let_go_in_the_end(tmp_path: Path) -> None:
    with ServerProcess(tmp_path, "--stall-timeout", "200ms") as server:
        [deaf] = ask_for_much(server, 1)
        idle = server.connect()
        name = 'taskyard_stalled_clients_total{reason="output"}'
        server.wait_for(lambda: metric(server, name) == 1)
        with closing(deaf):
            assert len(read_to_end(deaf)) < 5_000_000
        exchange(idle, b"PING\n", b"PONG {}\n")


# Connections


REFUSALS = {
    "masenko": b'ERR {"msg":"too many connections from this address"}\n',
    "workq": b"-SERVER-ERROR Too many connections from this address\r\n",
    "resp": b"-ERR max number of clients reached\r\n",
}


def test_connections_of_an_address_are_counted_over_all_dialects(tmp_path: Path) -> None:
    with ServerProcess(tmp_path, "--max-connections-per-address", "3") as server:
        peers = [connect(server, dialect) for dialect in REFUSALS]
        for peer in peers:
            peer.sendall(b"hello\r\n")
            assert peer.recv(100)
        for dialect, reason in REFUSALS.items():
            with closing(connect(server, dialect)) as refused:
                assert read_to_end(refused) == reason
        with closing(HTTPConnection(*server.address("http"), timeout=HANG_GUARD)) as connection:
            connection.request("GET", "/healthz")
            answer = connection.getresponse()
            assert (answer.status, answer.headers["connection"]) == (503, "close")
            assert "too many connections" in json.loads(answer.read())["detail"]
        for peer in peers:
            peer.close()
        name = 'taskyard_refused_connections_total{reason="address"}'
        server.wait_for(partial(can_connect, server))
        assert metric(server, name) >= 4
        assert server.stop() == 0


def can_connect(server: ServerProcess) -> bool:
    """Whether a new connection is served."""
    with closing(connect(server, "masenko")) as peer:
        peer.sendall(b"PING\n")
        try:
            return peer.recv(100) == b"PONG {}\n"
        except ConnectionError:
            return False


def test_the_limit_of_files_leaves_enough_for_the_journal(tmp_path: Path) -> None:
    flags = ("--segment-size", "64KiB", "--payload-limit", "16KiB")
    server = ServerProcess(tmp_path, *flags, prepare=partial(allow_files, 120, 120))
    with server:
        peers = [connect(server, "workq") for _ in range(60)]
        for _ in range(20):
            with closing(connect(server, "workq")) as refused:
                assert read_to_end(refused) == b"-SERVER-ERROR Too many connections\r\n"
        assert open_files(server) < 110
        worker = peers[0]
        for number in range(100):
            command = b"add 6ba7b810-9dad-11d1-80b4-%012d q 1000 60000 10000\r\n" % number
            worker.sendall(command + b"x" * 10_000 + b"\r\n")
            assert worker.recv(100) == b"+OK\r\n"
        assert len(list((server.data / "journal").glob("*.seg"))) > 10
        for peer in peers[10:]:
            peer.close()
        server.wait_for(partial(can_connect, server))
        assert metric(server, 'taskyard_refused_connections_total{reason="total"}') >= 20


def test_a_system_without_descriptors_is_survived(tmp_path: Path) -> None:
    with ServerProcess(tmp_path) as server:
        old = server.connect()
        exchange(old, b"PING\n", b"PONG {}\n")
        with closing(HTTPConnection(*server.address("http"), timeout=HANG_GUARD)) as watch:
            limits = resource.prlimit(server.pid, resource.RLIMIT_NOFILE)
            failed = partial(failed_accepts, watch)
            assert failed() == 0
            began = time.monotonic()
            resource.prlimit(server.pid, resource.RLIMIT_NOFILE, (open_files(server), limits[1]))
            coming = [connect(server, "masenko") for _ in range(3)]
            server.wait_for(lambda: failed() >= 3)
            for number in range(1, 200):  # meanwhile others are served
                exchange(old, b'PUSH {"name":"a"}\n', b'OK {"id":%d}\n' % number)
            # It does not try again and again, but rests for a quarter of a second each time.
            assert failed() < 10 + 8 * (time.monotonic() - began)
            resource.prlimit(server.pid, resource.RLIMIT_NOFILE, limits)
        for peer in coming:
            with closing(peer):
                peer.sendall(b"PING\n")
                assert peer.recv(100) == b"PONG {}\n"
        assert server.log_text().count("cannot accept connections") >= 1
        assert server.stop() == 0


def failed_accepts(watch: HTTPConnection) -> int:
    """As a connection sees it that was there before."""
    watch.request("GET", "/metrics")
    text = watch.getresponse().read().decode()
    [line] = [
        each for each in text.splitlines() if each.startswith("taskyard_failed_accepts_total")
    ]
    return int(line.split()[-1])


def test_ten_thousand_idle_connections_cost_little(tmp_path: Path) -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    allow_files(hard, hard)
    count = min(10_000, hard - 500)
    # To connect them all may take longer than the first of them may be silent by default.
    flags = ("--heartbeat", "1h")
    with ServerProcess(tmp_path, *flags, prepare=partial(allow_files, hard, hard)) as server:
        before = memory(server)
        with ExitStack() as stack:
            for number in range(count):
                dialect = ("masenko", "workq", "resp")[number % 3]
                stack.enter_context(closing(connect(server, dialect)))
            server.wait_for(lambda: open_files(server) > count)
            assert memory(server) - before < 20_000 * count
            worker = server.connect()
            exchange(worker, b'PUSH {"name":"a"}\n', b'OK {"id":1}\n')
        server.wait_for(lambda: open_files(server) < 100)
        assert server.stop() == 0


# Rate


def test_commands_beyond_the_rate_wait(tmp_path: Path) -> None:
    with ServerProcess(tmp_path, "--max-commands-per-second", "100") as server:
        fast, other = server.connect(), server.connect()
        fast.send(b"PING\n" * 130)
        fast.expect(b"PONG {}\n" * 100)
        exchange(other, b"PING\n", b"PONG {}\n")  # it has a rate of its own
        fast.expect(b"PONG {}\n" * 30)
        assert metric(server, "taskyard_slowed_commands_total") >= 1
