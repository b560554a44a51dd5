"""Films to be encoded, over Glovebox: few, slow, and the poster is told of every stage."""

from __future__ import annotations

import json
import random
from typing import Any

from websockets.sync.client import ClientConnection, connect

from demo.crew import Addresses, Shift, Tally, work_for


class Films:
    def __init__(self, addresses: Addresses, shift: Shift, tally: Tally) -> None:
        host, port = addresses.http
        self._url = f"ws://{host}:{port}/connect/"
        self._shift = shift
        self._tally = tally

    def studio(self) -> None:
        with connect(self._url) as socket:
            _receive(socket)  # hello
            for label, dice in enumerate(self._shift.beats(2.5, seed=6), start=1):
                film = {"film": f"clip-{dice.randrange(10_000)}.mov", "codec": "av1"}
                _send(
                    socket,
                    type="post",
                    queue="films",
                    message=json.dumps(film),
                    priority=dice.choice([0, 5, 9]),
                    label=label,
                    notify=["sync"],
                )
                assert _receive(socket)["notice"] == "sync"
                self._tally.add(pushed=1)

    def encoder(self) -> None:
        dice = random.Random(7)
        with connect(self._url) as socket:
            _receive(socket)
            while not self._shift.home.is_set():
                _send(socket, type="fetch", queue="films", work_timeout=8, block_timeout=0.5)
                answer = _receive(socket)
                if answer["type"] != "message":
                    continue
                if dice.random() < 0.05:  # it hangs: the film goes to another one in time
                    self._tally.add(failed=1)
                    continue
                work_for(dice, 0.3)
                _send(
                    socket,
                    type="finish",
                    queue="films",
                    sequence=answer["sequence"],
                    shard=answer["shard"],
                    response="sync",
                )
                assert _receive(socket)["notice"] == "finish"
                self._tally.add(done=1)

    def open_queue(self) -> None:
        """Glovebox wants a queue to be created before it is posted to."""
        with connect(self._url) as socket:
            _receive(socket)
            _send(socket, type="create", queue="films", retries=3, label=1)
            _receive(socket)


def _send(socket: ClientConnection, **request: object) -> None:
    socket.send(json.dumps(request))


def _receive(socket: ClientConnection) -> dict[str, Any]:
    answer: dict[str, Any] = json.loads(socket.recv())
    return answer
