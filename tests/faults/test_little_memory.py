"""A process with little memory: what it holds is bounded, and without any it ends in time."""

import resource
from collections import Counter
from contextlib import suppress
from pathlib import Path
from random import Random

from support.faults.crowds import FLAGS
from support.faults.run import under_load
from support.process import WarmServer
from support.wire import exchange, queue_counts

MIB = 1 << 20
BACKLOG = 400  # pushes of PAYLOAD bytes each
PAYLOAD = 100_000
PUSH = b'PUSH {"name":"a","payload":"%b"}\n' % (b"x" * PAYLOAD)


def limit_memory(server: WarmServer, more: int) -> None:
    """From now on so many bytes are left to it, freed ones not counted."""
    [line] = [
        line
        for line in Path(f"/proc/{server.pid}/status").read_text().splitlines()
        if line.startswith("VmData:")
    ]
    most = int(line.split()[1]) * 1024 + more
    resource.prlimit(server.pid, resource.RLIMIT_DATA, (most, most))


def test_a_backlog_larger_than_the_memory_is_kept_and_handed_out(
    tmp_path: Path, chance: Random, tally: Counter[str]
) -> None:
    with WarmServer(tmp_path, "--payload-memory", "1MiB", "--segment-size", "4MiB") as server:
        peer = server.connect()
        exchange(peer, PUSH, b'OK {"id":1}\n')
        limit_memory(server, BACKLOG * PAYLOAD // 2)
        for id in range(2, BACKLOG + 1):
            exchange(peer, PUSH, b'OK {"id":%d}\n' % id)
        for id in range(1, BACKLOG + 1):
            peer.send(b"FETCH\n")
            line = peer.read_line()
            assert line.startswith(b'OK {"id":%d,' % id)
            assert len(line) > PAYLOAD
            exchange(peer, b'ACK {"id":%d}\n' % id, b"OK {}\n")
        assert queue_counts(peer) == {"default": (0, 0, 0)}
        assert server.stop() == 0
        assert "Traceback" not in server.log_text()


def test_a_server_without_memory_ends_and_nothing_is_lost(
    tmp_path: Path, chance: Random, tally: Counter[str]
) -> None:
    """The end may come at any place in the code. What was begun there must never be written."""
    server = WarmServer(tmp_path, *FLAGS, "--segment-size", "4MiB")
    with server, under_load(server, chance, tally) as run:
        run.wait(chance.randint(1, 200))
        limit_memory(server, chance.randint(0, 16) * MIB // 4)
        fill_memory(server, chance)
        assert server.wait() == 70
        assert "exiting at once" in server.log_text()
        run.ended()
        run.again()
        run.wait(50)
        tally["ends without memory"] += 1


def fill_memory(server: WarmServer, chance: Random) -> None:
    """One client that asks for more than there is, in one command or in many."""
    one = b"*1000\r\n$5\r\nRPUSH\r\n$6\r\nfiller\r\n" + b"$60000\r\n%b\r\n" % (b"x" * 60_000) * 998
    many = b'PUSH {"name":"a","queue":"filler","payload":"%b"}\n' % (b"x" * 900_000) * 20
    listener, data = chance.choice([("resp", one), ("masenko", many)])
    with suppress(OSError):
        peer = server.connect(listener)
        while True:
            peer.send(data)
