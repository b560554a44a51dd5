"""picows behind Taskyard's own HTTP listener, which hands the connection over to an echo."""

import tempfile
from pathlib import Path

from taskyard.broker.turns import ClientConnection
from taskyard.protocols.glovebox.connection import BINARY, TEXT, Glovebox, encode_frame
from taskyard.protocols.http.connection import UpgradableTransport
from taskyard.protocols.http.websocket import WebSocket, refuse_upgrade
from taskyard.protocols.http.wire import ParsedRequest, Response
from taskyard.server.app import Server
from taskyard.server.settings.schema import load_settings

PATH = "/echo"
LARGEST = 2**20


class Echo:
    """Hears the messages of one connection in place of Glovebox."""

    def __init__(self, socket: UpgradableTransport) -> None:
        self._socket = socket

    def on_text(self, data: bytes) -> None:
        self._socket.write(encode_frame(TEXT, data))

    def on_binary(self, data: bytes) -> None:
        self._socket.write(encode_frame(BINARY, data))

    def on_pong(self, data: bytes) -> None:
        pass

    def on_close(self, reason: str) -> None:
        self._socket.close()


class HandOver:
    """Gives connections the receiver that Glovebox gives them, which has to be a compiled one where
    the listener is; only those who hear its messages are others. Its greeting stays."""

    def __init__(self, glovebox: Glovebox) -> None:
        self._glovebox = glovebox

    def __call__(
        self, socket: UpgradableTransport, incoming: ParsedRequest, rest: bytes
    ) -> ClientConnection | Response:
        refusal = refuse_upgrade(incoming, frozenset())
        if refusal is not None:
            return refusal
        reader = WebSocket(socket.detach_transport(), LARGEST)
        reader.complete_handshake(incoming)
        connection = self._glovebox.connect(socket, incoming.request.peer)
        connection.websocket = reader
        reader.attach_handler(Echo(socket), rest)
        return connection


async def start(directory: Path) -> int:
    """Gives the port."""
    flags = {"bind": "127.0.0.1", "http_port": "0", "masenko_port": "off", "workq_port": "off"}
    flags |= {"durability": "memory", "data": tempfile.mkdtemp(dir=directory)}
    server = Server(load_settings(flags, {}))
    await server.start()
    assert server._http is not None
    server._http.http.upgrades[PATH] = HandOver(server._http.glovebox)
    port: int = server._listeners["http"].sockets[0].getsockname()[1]
    return port
