"""The line between clients and the server is cut: for a moment, and for good."""

import asyncio
import socket
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest
from support.effort import effort
from support.faults import crowds
from support.faults.cable import FAR, NEAR, Cable
from support.faults.far_side import FarSide
from support.faults.run import under_load
from support.faults.storm import Storm, Streams
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

    def _peer(self, listener: str, side: FarSide) -> SocketPeer:
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
    """The clients of all dialects are silent, with and without something that they were sent."""
    flags = ("--keep-alive", "3s", "--heartbeat", "2s")
    with CabledServer(tmp_path, cable, *flags) as server:
        holder = server.far()
        exchange(holder, b'PUSH {"name":"a"}\n', b'OK {"id":1}\n')
        exchange(holder, b"FETCH\n", b'OK {"id":1,"queue":"default","name":"a"}\n')
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
        assert server.from_afar() == 6
        cable.cut()
        beside = server.near("resp")
        exchange(beside, command("RPUSH", "other", "lost"), b":1\r\n")  # on its way to nowhere
        worker = server.near()
        worker.send(b'FETCH {"timeout":"1900ms"}\nFETCH {"timeout":"1900ms"}\n')
        line = worker.read_line()
        if line == b"EMPTY {}\n":
            line = worker.read_line()
        assert line == b'OK {"id":1,"queue":"default","name":"a","failures":1}\n'
        server.wait_for(lambda: not server.from_afar())
        exchange(beside, command("RPUSH", "list", "x"), b":1\r\n")
        exchange(beside, command("LPOP", "list"), b"$1\r\nx\r\n")  # nobody waits for it any more
        cable.mend()
        holder.send(b'ACK {"id":1}\n')
        with pytest.raises((ConnectionError, AssertionError)):
            holder.expect(b"OK {}\n")
        exchange(server.far(), b"PING\n", b"PONG {}\n")
        assert server.stop() == 0
    tally["cuts of the line"] += 1


def wait_for_losses(storm: Storm, count: int) -> None:
    """Until so many more clients have given up."""
    enough = storm.cut_off + count
    storm.wait_until(lambda: storm.cut_off >= enough)


def test_a_line_that_fails_again_and_again_loses_nothing(
    tmp_path: Path, cable: Cable, chance: Random, tally: Counter[str]
) -> None:
    """Clients give up and come back; what they left half open is found out."""

    async def connect(address: tuple[str, int]) -> Streams:
        opened = await asyncio.to_thread(cable.far.connect, address)
        return await asyncio.open_connection(sock=opened)

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
            wait_for_losses(run.storm, chance.choice([0, 1, 5]))
            cable.mend()
            tally["cuts of the line"] += 1
        run.wait(50)
        run.storm.gather()
        run.wait_until(lambda: not server.from_afar())
