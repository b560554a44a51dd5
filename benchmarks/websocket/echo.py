"""The echo servers, one library each, in a process of their own.

    python -m benchmarks.websocket.echo LIBRARY PORTS_FILE

The port goes to the file as soon as connections are accepted. No server compresses, and none pings
while it is measured: what is left is reading a message and sending it back.
"""

import asyncio
import importlib
import json
import signal
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import uvloop
from picows import WSFrame, WSListener, WSMsgType, WSTransport, WSUpgradeRequest, ws_create_server

HOST = "127.0.0.1"
PATH = "/echo"


class Listener(WSListener):
    def on_ws_frame(self, transport: WSTransport, frame: WSFrame) -> None:
        if frame.msg_type == WSMsgType.CLOSE:
            transport.send_close(frame.get_close_code(), frame.get_close_message())
            transport.disconnect()
        else:
            transport.send(frame.msg_type, frame.get_payload_as_bytes())


async def picows() -> int:
    def accept(request: WSUpgradeRequest) -> WSListener:
        return Listener()

    server = await ws_create_server(accept, HOST, 0)
    return port_of(server)


async def aiohttp() -> int:
    # By name: neither this nor websockets is needed to check the types of the rest.
    web: Any = importlib.import_module("aiohttp.web")

    async def echo(request: Any) -> Any:
        socket = web.WebSocketResponse(compress=False)
        await socket.prepare(request)
        async for message in socket:
            await socket.send_bytes(message.data)
        return socket

    application = web.Application()
    application.router.add_get(PATH, echo)
    runner = web.AppRunner(application, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, HOST, 0).start()
    port: int = runner.addresses[0][1]
    return port


async def websockets() -> int:
    library: Any = importlib.import_module("websockets.asyncio.server")

    async def echo(socket: Any) -> None:
        async for message in socket:
            await socket.send(message)

    server = await library.serve(echo, HOST, 0, compression=None, ping_interval=None)
    port: int = server.sockets[0].getsockname()[1]
    return port


async def handed_over() -> int:
    from benchmarks.websocket.handover import start

    return await start(Path(sys.argv[2]).parent)


def port_of(server: asyncio.Server) -> int:
    port: int = server.sockets[0].getsockname()[1]
    return port


LIBRARIES: dict[str, Callable[[], Awaitable[int]]] = {
    "picows": picows,
    "picows-handed-over": handed_over,
    "aiohttp": aiohttp,
    "websockets": websockets,
}


async def serve(library: str, ports: Path) -> None:
    port = await LIBRARIES[library]()
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    draft = ports.with_suffix(".new")
    draft.write_text(json.dumps({"http": {"host": HOST, "port": port}}))
    draft.rename(ports)
    await stop.wait()


if __name__ == "__main__":
    uvloop.run(serve(sys.argv[1], Path(sys.argv[2])))
