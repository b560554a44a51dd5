"""The line between clients and the server is cut: for a moment, and for good."""

import asyncio
import json
import socket
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from random import Random

import pytest
from support.effort import effort
from support.faults import crowds
from support.faults.cable import FAR, NEAR, Cable
from support.faults.far_side import RemoteNamespace
from support.faults.run import under_load
from support.faults.storm import Streams, TcpClientLoad
from support.process import ServerProcess
from support.replies_resp import command
from support.sockets import SocketPeer
from support.wire import exchange, queue_counts

FLAGS = ("--bind", NEAR, "--allow-anonymous", "on")
CUTS = effort(20, 3)
UPGRADE = (
    b"GET /connect/ HTTP/1.1\r\nhost: x\r\nconnection: upgrade\r\nupgrade: websocket\r\n"
    b"sec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
)
FAR_HEX = socket.inet_aton(FAR)[::-1].hex().upper()
EVENTS = b"GET /api/v1/events HTTP/1.1\r\nhost: x\r\n\r\n"
HEARTBEAT = 2  # seconds


class CabledServer(ServerProcess):
    """On the near side of a cable."""

    def __init__(self, directory: Path, cable: Cable, *flags: str) -> None:
        self._cable = cable
        super().__init__(directory, *FLAGS, *flags, wrapper=cable.near_side)

    def near(self, listener: str = "masenko") -> SocketPeer:
        return self._peer(listener, self._cable.near)

    def far(self, listener: str = "masenko") -> SocketPeer:
        return self._peer(listener, self._cable.far)

    def from_afar(self) -> int:
        """Connections that the server has with the other side, dead ones that it takes for alive
        included: as the kernel lists them."""
        lines = Path(f"/proc/{self.pid}/net/tcp").read_text().splitlines()[1:]
        found = [line.split()[2:4] for line in lines]
        return sum(peer.startswith(FAR_HEX) and state == "01" for peer, state in found)

    def _peer(self, listener: str, side: RemoteNamespace) -> SocketPeer:
        address = self.address(listener)
        peer = SocketPeer(address, opened=side.connect(address))
        self._peers.append(peer)
        return peer


@pytest.fixture
def cable() -> Iterator[Cable]:
    with Cable() as cable:
        yield cable


def test_a_short_cut_is_none_of_the_clients_business(
    tmp_path: Path, cable: Cable, chance: Random, tally: Counter[str]
) -> None:
    with CabledServer(tmp_path, cable) as server:
        worker, beside = server.far(), server.near()
        waiting = server.far("resp")
        exchange(worker, b'PUSH {"name":"a"}\n', b'OK {"id":1}\n')
        exchange(worker, b"FETCH\n", b'OK {"id":1,"queue":"default","name":"a"}\n')
        waiting.send(command("BLPOP", "list", 0))
        cable.cut()
        worker.send(b'ACK {"id":1}\nPUSH {"name":"b"}\nPING\n')
        pusher = server.near("resp")
        exchange(pusher, command("RPUSH", "list", "x"), b":1\r\n")
        assert queue_counts(beside)["default"] == (0, 0, 1)
        cable.mend()
        worker.expect(b'OK {}\nOK {"id":3}\nPONG {}\n')
        waiting.expect(b"*2\r\n$4\r\nlist\r\n$1\r\nx\r\n")
        assert server.stop() == 0
    tally["cuts of the line"] += 1


def test_who_has_vanished_is_found_out_and_its_jobs_come_back(
    tmp_path: Path, cable: Cable, chance: Random, tally: Counter[str]
) -> None:
    """The clients of all protocols are silent, with and without something that they were sent."""
    flags = ("--keep-alive", "3s", "--heartbeat", f"{HEARTBEAT}s")
    with CabledServer(tmp_path, cable, *flags) as server:
        silent = [server.far(name) for name in ("workq", "resp", "resp", "http")]
        workq, waiting, unsent, listening = silent
        workq.send(b"lease q 3600000\r\n")
        waiting.send(command("BLPOP", "list", 0))
        unsent.send(command("BLPOP", "other", 0))
        listening.send(EVENTS)
        listening.read_line()
        glovebox = server.far("http")
        glovebox.send(UPGRADE)
        assert glovebox.read_line() == b"HTTP/1.1 101 Switching Protocols\r\n"
        assert server.from_afar() == 5
        holder, id, queue = holds_a_job(server)
        cable.cut()
        beside = server.near("resp")
        exchange(beside, command("RPUSH", "other", "lost"), b":1\r\n")  # on its way to nowhere
        come = b'OK {"id":%d,"queue":"%b","name":"a","failures":1}\n' % (id, queue)
        server.wait_for(lambda: fetch(server, queue) == come)
        server.wait_for(lambda: not server.from_afar())
        exchange(beside, command("RPUSH", "list", "x"), b":1\r\n")
        exchange(beside, command("LPOP", "list"), b"$1\r\nx\r\n")  # nobody waits for it any more
        cable.mend()
        holder.send(b'ACK {"id":%d}\n' % id)
        with pytest.raises((ConnectionError, AssertionError)):
            holder.expect(b"OK {}\n")
        exchange(server.far(), b"PING\n", b"PONG {}\n")
        assert server.stop() == 0
    tally["cuts of the line"] += 1


def holds_a_job(server: CabledServer) -> tuple[SocketPeer, int, bytes]:
    """One of the far side, of which the server knows; with the id of the job, and its queue.

    If this test stands still for a heartbeat, the server rightly takes the job away.
    """
    while True:
        begun = time.monotonic()
        queue = b"q%d" % time.monotonic_ns()
        holder = server.far()
        try:
            holder.send(b'PUSH {"name":"a","queue":"%b"}\n' % queue)
            line = holder.read_line()
            assert line.startswith(b"OK "), line
            id: int = json.loads(line.removeprefix(b"OK "))["id"]
            fetched = b'OK {"id":%d,"queue":"%b","name":"a"}\n' % (id, queue)
            exchange(holder, b'FETCH {"queues":["%b"]}\n' % queue, fetched)
            assert server.from_afar() == 6
        except (AssertionError, ConnectionError):
            if time.monotonic() - begun < HEARTBEAT:
                raise
            holder.close()
            server.wait_for(lambda: server.from_afar() == 5)
        else:
            return holder, id, queue


def fetch(server: CabledServer, queue: bytes) -> bytes:
    """What somebody beside the server is given, who goes again at once: no heartbeat is needed."""
    with closing(server.near()) as worker:
        worker.send(b'FETCH {"queues":["%b"]}\n' % queue)
        line = worker.read_line()
    assert line == b"EMPTY {}\n" or b'"failures":1}' in line, line
    return line


def wait_for_losses(
    storm: TcpClientLoad, count: int, connected: list[asyncio.StreamWriter]
) -> None:
    """Until so many more clients have given up, or all who were there have."""
    enough = storm.cut_off + count
    storm.wait_until(
        lambda: storm.cut_off >= enough or all(writer.is_closing() for writer in connected)
    )


def test_a_line_that_fails_again_and_again_loses_nothing(
    tmp_path: Path, cable: Cable, chance: Random, tally: Counter[str]
) -> None:
    """Clients give up and come back; what they left half open is found out."""

    connected: list[asyncio.StreamWriter] = []

    async def connect(address: tuple[str, int]) -> Streams:
        opened = await asyncio.to_thread(cable.far.connect, address)
        streams = await asyncio.open_connection(sock=opened)
        connected.append(streams[1])
        return streams

    server = CabledServer(tmp_path, cable, *crowds.FLAGS, "--keep-alive", "3s")
    with (
        server,
        under_load(
            server,
            chance,
            tally,
            connect=connect,
            connect_at_the_end=cable.near.connect,
            patience=0.5,
        ) as run,
    ):
        for _ in range(CUTS):
            run.wait(chance.randint(1, 300))
            cable.cut()
            wait_for_losses(run.storm, chance.choice([0, 1, 5]), connected)
            cable.mend()
            tally["cuts of the line"] += 1
        run.wait(50)
        run.storm.pause_clients()
        run.wait_until(lambda: not server.from_afar())
