"""A Glovebox client over a real WebSocket, with a library that is not ours."""

import contextlib
import json
import socket
from typing import Any

from support.websocket_client import HANG_GUARD, connect
from websockets.exceptions import ConnectionClosed


class WebSocketPeer:
    def __init__(self, address: tuple[str, int], masenko: tuple[str, int]) -> None:
        """`masenko` is where that protocol listens."""
        self._masenko = masenko
        host, port = address
        self._client = connect(f"ws://{host}:{port}/connect/", max_size=None, legacy=True)

    def send_json(self, **fields: object) -> None:
        self._client.send(json.dumps(fields))

    def next(self) -> dict[str, Any]:
        message = json.loads(self._client.recv(HANG_GUARD))
        assert isinstance(message, dict)
        return message

    def send(self, data: bytes) -> None:
        self._client.send(data.decode())

    def expect(self, data: bytes) -> None:
        received = self._client.recv(HANG_GUARD)
        assert received == data.decode(), f"received {received!r} instead of {data!r}"

    def expect_nothing(self) -> None:
        """Two round trips on a second connection give the server the turns to have answered in."""
        with socket.create_connection(self._masenko, HANG_GUARD) as probe:
            for _ in range(2):
                probe.sendall(b"PING\n")
                assert probe.recv(8) == b"PONG {}\n"
        with contextlib.suppress(TimeoutError):
            message = self._client.recv(timeout=0)
            raise AssertionError(f"received {message!r} instead of nothing")

    def expect_closed(self) -> None:
        with contextlib.suppress(ConnectionClosed):
            message = self._client.recv(HANG_GUARD)
            raise AssertionError(f"received {message!r} instead of the end")

    def read_line(self) -> bytes:
        message = self._client.recv(HANG_GUARD)
        return message if isinstance(message, bytes) else message.encode()

    def close(self) -> None:
        self._client.close_socket()
