"""The client of all servers: picows, in a process of its own.

    python -m benchmarks.websocket.client TALK --port PORT --pid PID --window 20

Every frame it sends is made beforehand and every answer is checked. It prints one line of JSON.
"""

import argparse
import asyncio
import json
import sys
import time
from collections.abc import Callable

import uvloop
from picows import WSFrame, WSListener, WSMsgType, WSTransport, ws_connect

from benchmarks import readings
from benchmarks.websocket.talk import TALKS, Step, Talk

SILENCE = 30.0
"""Seconds after which a server that does not answer is given up."""


class Crowd:
    """What all connections share: how often a talk was gone through, and what went wrong."""

    def __init__(self) -> None:
        self.count = 0
        self.stopping = False
        self.problem: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def fail(self, reason: str) -> None:
        if not self.stopping and not self.problem.done():
            self.problem.set_exception(RuntimeError(reason))


class Client(WSListener):
    """Goes through its steps, over and over or once."""

    def __init__(self, crowd: Crowd, talk: Talk, steps: tuple[Step, ...], once: bool) -> None:
        super().__init__()
        self.greeted: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._crowd = crowd
        self._steps = steps
        self._once = once
        self._window = talk.window
        self._step = 0
        self._answers = steps[0].answers
        self._heard = 0
        self._silent = talk.greeted
        self._write: Callable[[bytes], None] = _not_connected

    def on_ws_connected(self, transport: WSTransport) -> None:
        self._write = transport.underlying_transport.write
        if not self._silent:
            self.greeted.set_result(None)

    def begin(self) -> None:
        self._write(self._steps[0].requests)

    def on_ws_frame(self, transport: WSTransport, frame: WSFrame) -> None:
        if frame.msg_type == WSMsgType.CLOSE:
            self._crowd.fail("the server closed a connection")
            return
        payload = frame.get_payload_as_bytes()
        if self._silent:
            self._silent = False
            self.greeted.set_result(None)
            return
        if not self._answers[self._heard].fits(payload):
            self._crowd.fail(f"this is not the answer: {payload[:200]!r}")
            return
        self._heard += 1
        if self._heard == len(self._answers):
            self._go_on()

    def on_ws_disconnected(self, transport: WSTransport) -> None:
        self._crowd.fail("a connection was lost")

    def _go_on(self) -> None:
        self._heard = 0
        self._step += 1
        if self._step == len(self._steps):
            self._step = 0
            if self._once:
                self.ended.set_result(None)
                return
            self._crowd.count += self._window
        step = self._steps[self._step]
        self._answers = step.answers
        self._write(step.requests)


def _not_connected(data: bytes) -> None:
    raise AssertionError("nothing is sent before the connection is there")


async def connect(crowd: Crowd, talk: Talk, port: int, *, opening: bool = False) -> Client:
    steps = talk.opening if opening else talk.steps
    client = Client(crowd, talk, steps, once=opening)
    url = f"ws://127.0.0.1:{port}{talk.path}"
    await ws_connect(lambda: client, url, extra_headers=dict(talk.headers))
    await either(crowd, client.greeted)
    return client


async def either(crowd: Crowd, wanted: asyncio.Future[None]) -> None:
    """Wait for what is wanted; what went wrong anywhere ends that."""
    waiting = [wanted, crowd.problem]
    done, _ = await asyncio.wait(waiting, timeout=SILENCE, return_when=asyncio.FIRST_COMPLETED)
    if not done:
        raise RuntimeError(f"no answer in {SILENCE:.0f} s")
    for future in done:
        future.result()


async def run(arguments: argparse.Namespace) -> dict[str, float]:
    crowd = Crowd()
    talk = TALKS[arguments.talk](arguments.payload, arguments.window)
    if talk.opening:
        first = await connect(crowd, talk, arguments.port, opening=True)
        first.begin()
        await either(crowd, first.ended)
    clients = [await connect(crowd, talk, arguments.port) for _ in range(arguments.connections)]
    for client in clients:
        client.begin()
    await pause(crowd, arguments.warmup)
    server, own = readings.cpu_seconds(arguments.pid), time.process_time()
    count, began = crowd.count, time.perf_counter()
    await pause(crowd, arguments.seconds)
    seconds = time.perf_counter() - began
    server, own = readings.cpu_seconds(arguments.pid) - server, time.process_time() - own
    crowd.stopping = True
    if crowd.count == count:
        raise RuntimeError("nothing was answered in the time that was measured")
    return {
        "count": crowd.count - count,
        "seconds": seconds,
        "client_cpu": own,
        "server_cpu": server,
    }


async def pause(crowd: Crowd, seconds: float) -> None:
    await asyncio.wait([crowd.problem], timeout=seconds)
    if crowd.problem.done():
        crowd.problem.result()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("talk", choices=TALKS)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--pid", type=int, required=True, help="of the server")
    parser.add_argument("--connections", type=int, default=50)
    parser.add_argument("--window", type=int, default=1, help="messages on their way (1)")
    parser.add_argument("--payload", type=int, default=200)
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--warmup", type=float, default=0.5)
    try:
        told = uvloop.run(run(parser.parse_args()))
    except (RuntimeError, OSError) as error:
        print(error, file=sys.stderr)
        return 1
    print(json.dumps(told))
    return 0


if __name__ == "__main__":
    sys.exit(main())
