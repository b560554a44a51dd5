"""Connections between clients and the simulated process: late, in pieces, lost, half-open.

A `Link` is one TCP connection. Both directions deliver in order; bytes that are being sent may be
lost with the connection, and the two ends notice that at different times or never.
"""

from __future__ import annotations

import asyncio
import os
from collections import deque
from functools import partial
from itertools import pairwise
from random import Random
from typing import Any, Protocol

from simulation.agenda import EventQueue
from simulation.loop import Loop

from taskyard.server.net.connection import Connection

READ = 65_536  # bytes that a loop reads at once


class Client(Protocol):
    """The other end."""

    name: str

    def arrived(self, data: bytes) -> None:
        """Bytes have come; a slow reader leaves them where they are for a while."""

    def ended(self) -> None:
        """The connection has ended, and not by this client."""


class LinkOptions:
    """How a link behaves."""

    def __init__(self, chance: Random) -> None:
        self.latency = chance.choice((10, 50, 200, 1000, 40_000))  # microseconds one way, at least
        self.pieces = chance.choice((0.0, 0.0, 0.05, 0.5))  # how often bytes arrive in pieces
        self.window = chance.choice((2048, 65_536, 65_536))  # bytes that are sent and not read


class Link:
    def __init__(
        self, agenda: EventQueue, chance: Random, loop: Loop, client: Client, manner: LinkOptions
    ) -> None:
        self._agenda = agenda
        self._chance = chance
        self._loop = loop
        self._client: Client | None = client  # while it has its end open
        self._manner = manner
        self.name = client.name
        self._up: deque[bytes] = deque()  # on the way to the server
        self._down: deque[bytes] = deque()
        self._up_last = 0
        self._down_last = 0
        self._broken = False  # nothing arrives any more
        self.server: ServerEnd | None = None

    def open(self, connection: Connection) -> None:
        """The server has accepted it."""
        self.server = ServerEnd(self, self._loop, connection, self._manner.window)
        connection.connection_made(self.server)

    # The client's end

    def send(self, data: bytes) -> None:
        if not self._broken:
            for piece in self._cut(data):
                self._up.append(piece)
                self._up_last = self._arrival(self._up_last)
                self._agenda.at(self._up_last, self._arrive_up)

    def can_send(self) -> bool:
        """Whether there is room for more on the way."""
        waiting = sum(map(len, self._up))
        if self.server is not None:
            waiting += len(self.server.inbox)
        return waiting < self._manner.window

    def close(self) -> None:
        """By the client, in order."""
        self._client = None
        if not self._broken:
            self._up.append(b"")
            self._up_last = self._arrival(self._up_last)
            self._agenda.at(self._up_last, self._arrive_up)

    def reset(self) -> None:
        """By the client, at once."""
        self._client = None
        self._break()
        self._agenda.after(self._manner.latency, self._lose_server)

    def read(self, size: int) -> None:
        """The client has taken so many bytes."""
        if self.server is not None:
            self.server.taken(size)

    # What may happen in between

    def drop(self, client_hears: int, server_hears: int) -> None:
        """Cut the connection; each end notices after so many microseconds; -1: never."""
        self._break()
        if client_hears >= 0:
            self._agenda.after(client_hears, self._end_client)
        if server_hears >= 0:
            self._agenda.after(server_hears, self._lose_server)

    def server_died(self) -> None:
        """A part of what was on its way to the client may still arrive, and that was it."""
        self.server = None
        keep = self._chance.randint(0, len(self._down))
        arriving = [self._down.popleft() for _ in range(keep)]
        self._break()
        client = self._client
        if client is not None:
            for data in arriving:
                if data:
                    self._agenda.record(f"{self.name} <", data)
                    client.arrived(data)
        self._end_client()

    def is_open(self) -> bool:
        return self._client is not None or (self.server is not None and not self.server.lost)

    def knows_client(self) -> bool:
        return self._client is not None

    def _break(self) -> None:
        self._broken = True
        self._up.clear()
        self._down.clear()

    def _end_client(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            client.ended()

    def _lose_server(self) -> None:
        if self.server is not None:
            self.server.cut_off()

    # On the way

    def _arrival(self, last: int) -> int:
        latency = self._manner.latency
        return max(last, self._agenda.now + latency + self._chance.randrange(latency))

    def _cut(self, data: bytes) -> list[bytes]:
        chance = self._chance
        if len(data) < 2 or chance.random() >= self._manner.pieces:
            return [data]
        at = sorted(chance.randrange(1, len(data)) for _ in range(chance.randint(1, 3)))
        return [part for part in _split(data, at) if part]

    def _arrive_up(self) -> None:
        if not self._up:
            return
        data = self._up.popleft()
        server = self.server
        if server is None:
            return
        self._agenda.record(f"{self.name} >", data)
        server.arrive(data)

    def carry_down(self, data: bytes) -> None:
        """From the server, with b"" for the end."""
        if self._broken:
            return
        for piece in self._cut(data):
            self._down.append(piece)
            self._down_last = self._arrival(self._down_last)
            self._agenda.at(self._down_last, self._arrive_down)

    def _arrive_down(self) -> None:
        if not self._down:
            return
        data = self._down.popleft()
        client = self._client
        if client is None:
            if data and self.server is not None:  # nobody is there: the answer is a reset
                self._agenda.after(self._manner.latency, self._lose_server)
            return
        self._agenda.record(f"{self.name} <", data)
        if data:
            client.arrived(data)
        else:
            self._end_client()

    def server_gone(self, in_order: bool) -> None:
        """The server has closed its end."""
        if in_order:
            self.carry_down(b"")
        elif not self._broken:
            self._break()
            self._agenda.after(self._manner.latency, self._end_client)


def _split(data: bytes, at: list[int]) -> list[bytes]:
    ends = [0, *at, len(data)]
    return [data[start:end] for start, end in pairwise(ends)]


class _Pipes:
    """One with nothing in it and one with a byte, for those who ask the system what has come."""

    def __init__(self) -> None:
        self._kept = (*os.pipe(), *os.pipe())
        self.empty = self._kept[0]
        self.full = self._kept[2]
        os.write(self._kept[3], b"x")


_pipes: list[_Pipes] = []


class _Socket:
    """What the server asks a socket for."""

    def __init__(self, end: ServerEnd) -> None:
        self._end = end

    def fileno(self) -> int:
        if not _pipes:
            _pipes.append(_Pipes())
        return _pipes[0].full if self._end.inbox else _pipes[0].empty

    def setsockopt(self, *_: object) -> None: ...

    def getsockopt(self, *_: object) -> int:
        return 0


class ServerEnd(asyncio.Transport):
    """The transport of a connection, as uvloop's behave."""

    def __init__(self, link: Link, loop: Loop, connection: Connection, window: int) -> None:
        super().__init__()
        self._link = link
        self._loop = loop
        self._connection: Connection | None = connection
        self._room = window  # bytes that may still be put on the way
        self._buffer = bytearray()
        self._high = 65_536
        self._paused_writing = False
        self._reading = True
        self._eof_came = False
        self._eof_told = False
        self._eof_sent = False
        self._closing = False
        self._cut_off = False
        self._listed = False
        self.inbox = bytearray()
        self.lost = False

    # From the network

    def arrive(self, data: bytes) -> None:
        if data:
            self.inbox += data
        else:
            self._eof_came = True
        self._list()

    def taken(self, size: int) -> None:
        self._room += size
        if self._buffer:
            self._list()

    def cut_off(self) -> None:
        self._cut_off = True
        self._list()

    def _list(self) -> None:
        if not self._listed and not self.lost:
            self._listed = True
            self._loop.arrived(self)

    # From the loop

    def on_ready(self) -> None:
        self._listed = False
        if self.lost:
            return
        if self._cut_off:
            self._lose(ConnectionResetError("the connection was reset"))
            return
        if self._buffer and self._room > 0:
            self._pump()
        if not self._reading or self._closing or self._connection is None:
            return
        if self.inbox:
            data = bytes(self.inbox[:READ])
            del self.inbox[:READ]
            self._connection.data_received(data)
            if self.inbox or self._eof_came:
                self._list()
        elif self._eof_came and not self._eof_told:
            self._eof_told = True
            if not self._connection.eof_received():
                self.close()

    def _lose(self, error: Exception | None) -> None:
        if self.lost:
            return
        self.lost = True
        self._closing = True
        connection, self._connection = self._connection, None
        self._buffer.clear()
        if connection is not None:
            connection.connection_lost(error)

    # As a transport

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        if name == "peername":
            return (self._link.name, 1)
        if name == "socket":
            return _Socket(self)
        if name == "ssl_object":
            return self  # or WebSockets would write to the socket themselves
        return default

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._high = 65_536 if high is None else high

    def get_write_buffer_size(self) -> int:
        return len(self._buffer)

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if self._closing or self._eof_sent:
            return
        self._buffer += data
        self._pump()
        if len(self._buffer) > self._high and not self._paused_writing:
            self._paused_writing = True
            if self._connection is not None:
                self._connection.pause_writing()

    def _pump(self) -> None:
        size = min(self._room, len(self._buffer))
        if size > 0:
            self._room -= size
            self._link.carry_down(bytes(self._buffer[:size]))
            del self._buffer[:size]
        if self._paused_writing and len(self._buffer) <= self._high // 4:
            self._paused_writing = False
            if self._connection is not None:
                self._connection.resume_writing()
        if not self._buffer and self._closing:
            self._finish()

    def _finish(self) -> None:
        """Everything was sent: close."""
        if not self.lost:
            self._link.server_gone(in_order=True)
            self._loop.call_soon(partial(self._lose, None))

    def is_reading(self) -> bool:
        return self._reading and not self._closing

    def pause_reading(self) -> None:
        self._reading = False

    def resume_reading(self) -> None:
        self._reading = True
        if self.inbox or self._eof_came:
            self._list()

    def is_closing(self) -> bool:
        return self._closing

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        if not self._eof_sent and not self._closing:
            self._eof_sent = True
            self._link.carry_down(b"")

    def close(self) -> None:
        if self._closing:
            return
        self._closing = True
        if not self._buffer:
            self._finish()

    def abort(self) -> None:
        if self.lost:
            return
        self._closing = True
        self._buffer.clear()
        self._link.server_gone(in_order=False)
        self._loop.call_soon(partial(self._lose, None))
