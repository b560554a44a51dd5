"""Stands between a lake and its server, and stops a task in the middle of what it reads."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable
from typing import Final

from support.proxy import Proxy
from support.sockets import HANG_GUARD

_OF_A_TASK: Final = b" /api/v1/journal/segments/"
_OF_THE_DRIVER: Final = b" /api/v1/journal?"


class StoppingProxy(Proxy):
    """A task's connection is one that asks for segments, and never for what there is."""

    def __init__(self, target: Callable[[], tuple[str, int]]) -> None:
        super().__init__(target)
        self.is_holding = False
        self._left: int | None = None  # bytes that tasks may still get; None: all
        self._go = threading.Event()
        self._lock = threading.Lock()

    def stop_after(self, size: int) -> None:
        """Tasks get so many bytes more, and then wait."""
        with self._lock:
            self._left = size
            self.is_holding = False
            self._go.clear()

    def resume(self) -> None:
        with self._lock:
            self._left = None
            self.is_holding = False
            self._go.set()

    def hang_up(self) -> None:
        """End the connections there are; who waits never gets the rest."""
        super().hang_up()
        self.resume()

    def _join(self, client: socket.socket, server: socket.socket) -> None:
        pair = _Pair(client, server)
        for pump in (self._ask, self._answer):
            threading.Thread(target=pump, args=(pair,), daemon=True).start()

    def _ask(self, pair: _Pair) -> None:
        with contextlib.suppress(OSError):
            while data := pair.client.recv(1 << 16):
                pair.is_task |= _OF_A_TASK in data
                pair.is_driver |= _OF_THE_DRIVER in data
                pair.server.sendall(data)
        self._end_both(pair.client, pair.server)

    def _answer(self, pair: _Pair) -> None:
        with contextlib.suppress(OSError):
            while data := pair.server.recv(1 << 16):
                if pair.is_task and not pair.is_driver:
                    data = self._held_back(pair, data)
                pair.client.sendall(data)
        self._end_both(pair.client, pair.server)

    def _held_back(self, pair: _Pair, data: bytes) -> bytes:
        """What of it may be passed on now; the beginning has been, if it had to wait."""
        with self._lock:
            if self._left is None:
                return data
            first, rest = data[: self._left], data[self._left :]
            self._left -= len(first)
            if not rest:
                return data
            self.is_holding = True
        pair.client.sendall(first)
        assert self._go.wait(HANG_GUARD), "nobody has opened the gate"
        return rest


class _Pair:
    def __init__(self, client: socket.socket, server: socket.socket) -> None:
        self.client = client
        self.server = server
        self.is_task = self.is_driver = False
