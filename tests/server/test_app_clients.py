"""Clients of a real server that are slow, many, silent or deaf, and the settings they feel."""

import socket
from contextlib import suppress
from pathlib import Path

import pytest
from support.process import ServerProcess
from support.sockets import SocketPeer, allow_many_files
from support.wire import error_of, exchange, queue_counts

MEBIBYTE = 1 << 20


def test_one_byte_at_a_time_is_fast_enough(tmp_path: Path) -> None:
    with ServerProcess(tmp_path) as server:
        slow, other = server.connect(), server.connect()
        for byte in b'PUSH {"name":"a","payload":{"key":"value"}}\nFETCH\nACK {"id":1}\n':
            slow.send(bytes([byte]))
            exchange(other, b"PING\n", b"PONG {}\n")
        slow.expect(b'OK {"id":1}\n')
        slow.expect(b'OK {"id":1,"queue":"default","name":"a","payload":{"key":"value"}}\n')
        slow.expect(b"OK {}\n")


def test_a_thousand_idle_connections_are_no_burden(tmp_path: Path) -> None:
    with ServerProcess(tmp_path, prepare=allow_many_files) as server:
        allow_many_files()
        peers = [server.connect() for _ in range(1000)]
        worker = server.connect()
        exchange(worker, b'PUSH {"name":"a"}\n', b'OK {"id":1}\n')
        for peer in (peers[0], peers[500], peers[-1]):
            exchange(peer, b"PING\n", b"PONG {}\n")
        for peer in peers:
            peer.close()
        exchange(worker, b"FETCH\n", b'OK {"id":1,"queue":"default","name":"a"}\n')
        assert server.stop() == 0
        assert "Traceback" not in server.log_text()


class DeafClient:
    """Sends and sends, and does not read until it is told to."""

    def __init__(self, server: ServerProcess, probe: SocketPeer) -> None:
        self._socket = socket.create_connection(server.address())
        self._socket.setblocking(False)
        self._probe = probe
        self.sent = 0

    def send_until_stuck(self, line: bytes, at_most: int) -> None:
        """Until the server takes no more, though it is there and answers others."""
        data = line * (262_144 // len(line) + 1)
        in_vain = 0
        while in_vain < 20:
            assert self.sent < at_most, f"the server took {self.sent} bytes"
            try:
                self.sent += self._socket.send(data[self.sent % len(line) :])
                in_vain = 0
            except BlockingIOError:
                in_vain += 1
                exchange(self._probe, b"PING\n", b"PONG {}\n")

    def finish_line(self, line: bytes) -> None:
        """Send what is missing of the last line; there is room for it by now."""
        self._socket.settimeout(30)
        missing = -self.sent % len(line)
        if missing:
            self._socket.sendall(line[-missing:])
            self.sent += missing

    def receive(self, size: int) -> bytes:
        self._socket.settimeout(30)
        received = bytearray()
        while len(received) < size:
            data = self._socket.recv(MEBIBYTE)
            assert data, f"closed after {len(received)} bytes"
            received += data
        return bytes(received)

    def close(self) -> None:
        self._socket.close()


def test_a_client_that_does_not_read_is_not_read_from_and_loses_nothing(tmp_path: Path) -> None:
    with ServerProcess(tmp_path, "--output-limit", "64KiB") as server:
        worker = server.connect()
        deaf = DeafClient(server, worker)
        deaf.send_until_stuck(b"PING\n", 64 * MEBIBYTE)
        exchange(worker, b'PUSH {"name":"a"}\n', b'OK {"id":1}\n')
        exchange(worker, b"FETCH\n", b'OK {"id":1,"queue":"default","name":"a"}\n')
        exchange(worker, b'ACK {"id":1}\n', b"OK {}\n")
        count = deaf.sent // 5
        received = deaf.receive(8 * count)
        deaf.finish_line(b"PING\n")
        if deaf.sent > 5 * count:
            received += deaf.receive(8)
        assert received == b"PONG {}\n" * (deaf.sent // 5)
        deaf.close()


def test_a_client_with_much_behind_a_waiting_fetch_is_bounded(tmp_path: Path) -> None:
    with ServerProcess(tmp_path) as server:
        worker = server.connect()
        deaf = DeafClient(server, worker)
        fetch = b'FETCH {"queues":["some-rather-long-name-of-a-queue"],"timeout":"40s"}\n'
        deaf.send_until_stuck(fetch, 64 * MEBIBYTE)
        deaf.close()
        exchange(worker, b'PUSH {"name":"a"}\n', b'OK {"id":1}\n')


def test_large_replies_to_a_client_that_does_not_read_stay_on_disk(tmp_path: Path) -> None:
    with ServerProcess(tmp_path, "--output-limit", "64KiB", "--payload-memory", "0") as server:
        worker = server.connect()
        payload = b"x" * 900_000
        for number in range(1, 31):
            push = b'PUSH {"name":"a","payload":"%b"}\n' % payload
            exchange(worker, push, b'OK {"id":%d}\n' % number)
        deaf = server.connect()
        deaf.send(b"FETCH\n" * 30)
        assert deaf.read_line().startswith(b'OK {"id":1,')
        ready, _, held = queue_counts(worker)["default"]
        assert ready + held == 30
        assert ready > 0
        for number in range(2, 31):
            assert deaf.read_line().startswith(b'OK {"id":%d,' % number)
        assert queue_counts(worker) == {"default": (0, 0, 30)}


def test_a_restart_keeps_ids_order_and_delays(tmp_path: Path) -> None:
    with ServerProcess(tmp_path) as server:
        peer = server.connect()
        later = b'PUSH {"name":"later","execute_at":"2999-01-01T00:00:00Z"}\n'
        exchange(peer, later, b'OK {"id":1}\n')
        for number in range(2, 12):
            exchange(peer, b'PUSH {"name":"n%d"}\n' % number, b'OK {"id":%d}\n' % number)
        for end in (server.stop, server.kill):
            end()
            server.restart()
            assert queue_counts(server.connect()) == {"default": (10, 1, 0)}
        peer = server.connect()
        exchange(peer, b'PUSH {"name":"n12"}\n', b'OK {"id":12}\n')
        for number in range(2, 13):
            reply = b'OK {"id":%d,"queue":"default","name":"n%d"}\n' % (number, number)
            exchange(peer, b"FETCH\n", reply)


def test_the_limit_of_payloads_is_as_configured(tmp_path: Path) -> None:
    with ServerProcess(tmp_path, "--payload-limit", "10") as server:
        peer = server.connect()
        exchange(peer, b'PUSH {"name":"a","payload":"12345678"}\n', b'OK {"id":1}\n')
        peer.send(b'PUSH {"name":"a","payload":"123456789"}\n')
        assert error_of(peer.read_line()) == "payload too large"
        peer.send(b"x" * 65_547)
        assert error_of(peer.read_line()) == "line too long"


@pytest.mark.parametrize(
    ("dialect", "reply"),
    [
        ("masenko", b'ERR {"msg":"line too long"}\n'),
        ("workq", b"-CLIENT-ERROR Line too long\r\n"),
    ],
)
def test_a_client_that_sends_on_after_a_line_too_long_can_read_why_it_is_cut_off(
    tmp_path: Path, dialect: str, reply: bytes
) -> None:
    with ServerProcess(tmp_path) as server:
        peer = server.connect(dialect)
        with suppress(ConnectionError):  # the server does not read for ever
            peer.send(b"x" * 8_000_000)
        peer.expect(reply)
        with suppress(ConnectionError):  # the same, told here
            peer.expect_closed()


def test_the_heartbeat_is_as_configured(tmp_path: Path) -> None:
    with ServerProcess(tmp_path, environment={"TASKYARD_HEARTBEAT": "1500ms"}) as server:
        refusal = "timeout must be smaller than the heartbeat frequency 1.5s"

        def is_told() -> bool:
            """False: this client was silent for too long before it has said anything."""
            peer = server.connect()
            try:
                peer.send(b'FETCH {"timeout":"1500ms"}\n')
                first = error_of(peer.read_line())
            except ConnectionError:
                return False
            if first == "no heartbeat":
                return False
            assert first == refusal
            assert error_of(peer.read_line()) == "no heartbeat"
            peer.expect_closed()
            return True

        server.wait_for(is_told)


def test_the_size_of_segments_is_as_configured(tmp_path: Path) -> None:
    config = tmp_path / "taskyard.toml"
    config.write_text('segment_size = "128KiB"\npayload_limit = "64KiB"\n')
    with ServerProcess(tmp_path, "--config", str(config)) as server:
        peer = server.connect()
        push = b'PUSH {"name":"a","payload":"%b"}\n' % (b"x" * 60_000)
        for number in range(1, 8):
            exchange(peer, push, b'OK {"id":%d}\n' % number)
        assert len(list((server.data / "journal").glob("*.seg"))) == 3
