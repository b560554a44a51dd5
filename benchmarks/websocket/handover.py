"""picows behind Taskyard's own HTTP listener, which hands the connection over to an echo."""

import tempfile
from pathlib import Path

from taskyard.broker.receiver import Receiver
from taskyard.protocols.glovebox.commands import Glovebox
from taskyard.protocols.glovebox.websocket_frames import BINARY, TEXT, frame
from taskyard.protocols.http.connection import Socket
from taskyard.protocols.http.messages import Response
from taskyard.protocols.http.parser import Incoming
from taskyard.protocols.http.websocket import WebSocket, refuse
from taskyard.server.app import Server
from taskyard.server.settings.config import load_settings

PATH = "/echo"
LARGEST = 2**20


class Echo:
    """Hears the messages of one connection in place of Glovebox."""

    def __init__(self, socket: Socket) -> None:
        self._socket = socket

    def text(self, data: bytes) -> None:
        self._socket.write(frame(TEXT, data))

    def data(self, data: bytes) -> None:
        self._socket.write(frame(BINARY, data))

    def pong(self, data: bytes) -> None:
        pass

    def hang_up(self, why: str) -> None:
        self._socket.close()


class HandOver:
    """Gives connections the receiver that Glovebox gives them, which has to be a compiled one where
    the listener is; only those who hear its messages are others. Its greeting stays."""

    def __init__(self, glovebox: Glovebox) -> None:
        self._glovebox = glovebox

    def __call__(self, socket: Socket, incoming: Incoming, rest: bytes) -> Receiver | Response:
        refusal = refuse(incoming, frozenset())
        if refusal is not None:
            return refusal
        reader = WebSocket(socket.raw(), LARGEST)
        reader.shake_hands(incoming)
        connection = self._glovebox.connect(socket, incoming.request.peer)
        connection.frames = reader
        reader.begin(Echo(socket), rest)
        return connection


async def start(directory: Path) -> int:
    """Gives the port."""
    flags = {"bind": "127.0.0.1", "http_port": "0", "masenko_port": "off", "workq_port": "off"}
    flags |= {"durability": "memory", "data": tempfile.mkdtemp(dir=directory)}
    server = Server(load_settings(flags, {}))
    await server.start()
    assert server._web is not None
    server._web.http.upgrades[PATH] = HandOver(server._web.glovebox)
    port: int = server._listeners["http"].sockets[0].getsockname()[1]
    return port
