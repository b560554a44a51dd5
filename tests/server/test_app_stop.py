"""The end of a real server process: what has arrived is answered, and everything is on disk."""

import signal
import socket
from pathlib import Path

import pytest
from support.process import ServerProcess
from support.sockets import HANG_GUARD
from support.wire import exchange, queue_counts

PUSH = b'PUSH {"name":"a"}\n'


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("mode", ["inline", "thread"])
def test_a_signal_ends_waiting_fetches_and_answers_what_is_behind_them(
    tmp_path: Path, number: signal.Signals, mode: str
) -> None:
    with ServerProcess(tmp_path, "--sync-mode", mode) as server:
        peer, idle = server.connect(), server.connect()
        peer.send(b"FETCH\n" + PUSH + b'FETCH {"queues":["none"]}\nPING\n')
        peer.expect_nothing()
        server.tell(number)
        peer.expect(b'EMPTY {}\nOK {"id":1}\nEMPTY {}\nPONG {}\n')
        peer.expect_closed()
        idle.expect_closed()
        assert server.wait() == 0
        assert server.log_text().endswith(" INFO stopped\n")
        assert "Traceback" not in server.log_text()
        server.restart()
        assert queue_counts(server.connect()) == {"default": (1, 0, 0)}


def test_all_that_was_answered_before_a_stop_is_there_after_it(tmp_path: Path) -> None:
    with ServerProcess(tmp_path) as server:
        with socket.create_connection(server.address(), timeout=HANG_GUARD) as client:
            client.sendall(PUSH * 500)
            received = client.recv(1)  # so the server is about its work
            server.tell(signal.SIGTERM)
            received += receive_all(client)
        assert server.wait() == 0
        server.restart()
        ready, _, _ = queue_counts(server.connect())["default"]
        assert received == b"".join(b'OK {"id":%d}\n' % id for id in range(1, ready + 1))


def receive_all(client: socket.socket) -> bytes:
    """Everything up to the end of the connection."""
    received = b""
    while data := client.recv(65_536):
        received += data
    return received


@pytest.mark.parametrize("durability", ["write", "memory"])
def test_a_stop_leaves_everything_on_disk_in_every_mode(tmp_path: Path, durability: str) -> None:
    with ServerProcess(tmp_path, "--durability", durability) as server:
        exchange(server.connect(), PUSH, b'OK {"id":1}\n')
        assert server.stop() == 0
        server.restart()
        assert "torn" not in server.log_text()
        assert queue_counts(server.connect()) == {"default": (1, 0, 0)}


def test_the_room_that_was_reserved_is_given_back(tmp_path: Path) -> None:
    with ServerProcess(tmp_path) as server:
        (segment,) = (server.data / "journal").iterdir()
        assert segment.stat().st_size > 1024 * 1024
        assert server.stop() == 0
        assert segment.stat().st_size < 4096


def test_nobody_can_connect_after_a_stop(tmp_path: Path) -> None:
    with ServerProcess(tmp_path) as server:
        address = server.address()
        assert server.stop() == 0
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(address)


def test_a_signal_during_the_start_ends_the_server_when_it_has_started(tmp_path: Path) -> None:
    server = ServerProcess(tmp_path)
    with server:
        assert server.stop() == 0
        lock = server.data / "lock"
        server.start()
        server.wait_for(lambda: lock.read_text() == f"{server.pid}\n")
        server.tell(signal.SIGTERM)
        assert server.wait() == 0
        assert not server.ports_file.exists()


def test_a_client_that_does_not_read_does_not_keep_the_server(tmp_path: Path) -> None:
    with ServerProcess(tmp_path) as server:
        other = server.connect()
        payload = b"x" * 500_000
        for id in range(1, 41):
            push = b'PUSH {"name":"a","payload":"%b"}\n' % payload
            exchange(other, push, b'OK {"id":%d}\n' % id)
        deaf = server.connect()
        deaf.send(b"FETCH\n" * 40)
        assert deaf.read_line().startswith(b'OK {"id":1,')
        for number in (signal.SIGTERM, signal.SIGTERM, signal.SIGINT):
            server.tell(number)  # more than one of them changes nothing
        assert server.wait() == 0
        server.restart()
        assert queue_counts(server.connect()) == {"default": (40, 0, 0)}


def test_a_client_that_closes_its_half_gets_its_replies(tmp_path: Path) -> None:
    """As `printf ... | nc -N` does it."""
    once = b'PUSH {"name":"a","retry":0,"deadqueue":"dead"}\n'  # so that no time brings it back
    with ServerProcess(tmp_path) as server:
        with socket.create_connection(server.address(), timeout=HANG_GUARD) as client:
            client.sendall(once + PUSH * 2 + b"FETCH\nPING\nhalf a comm")
            client.shutdown(socket.SHUT_WR)
            received = receive_all(client)
        assert received == (
            b'OK {"id":1}\nOK {"id":2}\nOK {"id":3}\n'
            b'OK {"id":1,"queue":"default","name":"a"}\nPONG {}\n'
        )
        assert queue_counts(server.connect()) == {"dead": (1, 0, 0), "default": (2, 0, 0)}
