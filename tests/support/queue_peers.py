"""Servers in a thread, for those who try a client.

The little of beanstalkd and of NATS JetStream that a job's way needs, and one that passes on what
another server says, with something changed.
"""

from __future__ import annotations

import contextlib
import json
import socket
import socketserver
import threading
import time
from collections import deque
from collections.abc import Iterator

HOST = "127.0.0.1"
Address = tuple[str, int]


class PeerServer(socketserver.ThreadingTCPServer):
    """A thread for each connection."""

    daemon_threads = True
    allow_reuse_address = True
    request_queue_size = 128


@contextlib.contextmanager
def serving(server: PeerServer) -> Iterator[Address]:
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield HOST, server.server_address[1]
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class Beanstalkd(PeerServer):
    """put, reserve-with-timeout and delete, in one tube."""

    def __init__(self) -> None:
        super().__init__((HOST, 0), BeanstalkdConnection)
        self.lock = threading.Lock()
        self.pushed = 0
        self.ready: deque[tuple[int, bytes]] = deque()
        self.reserved: set[int] = set()
        self._trouble: dict[int, float] = {}

    def hold_up_after(self, *, pushes: int, seconds: float) -> None:
        """Answer the push of that number, counted from the first, so much later."""
        self._trouble[pushes] = seconds

    def hang_up_after(self, *, pushes: int) -> None:
        """Close the connection with no answer to the push of that number."""
        self._trouble[pushes] = 0.0

    def get_into_trouble(self) -> None:
        seconds = self._trouble.get(self.pushed)
        if seconds == 0.0:
            raise ConnectionError
        time.sleep(seconds or 0.0)


class BeanstalkdConnection(socketserver.StreamRequestHandler):
    server: Beanstalkd

    def handle(self) -> None:
        with contextlib.suppress(ConnectionError):
            while line := self.rfile.readline():
                self.wfile.write(self._answer(line.split()))

    def _answer(self, words: list[bytes]) -> bytes:
        with self.server.lock:
            if words[0] == b"put":
                return self._put(int(words[4]))
            if words[0] == b"reserve-with-timeout":
                return self._reserve()
            assert words[0] == b"delete"
            self.server.reserved.remove(int(words[1]))
            return b"DELETED\r\n"

    def _put(self, size: int) -> bytes:
        body = self.rfile.read(size + 2)
        self.server.pushed += 1
        self.server.ready.append((self.server.pushed, body))
        self.server.get_into_trouble()
        return b"INSERTED %d\r\n" % self.server.pushed

    def _reserve(self) -> bytes:
        if not self.server.ready:
            return b"TIMED_OUT\r\n"
        number, body = self.server.ready.popleft()
        self.server.reserved.add(number)
        return b"RESERVED %d %d\r\n%b" % (number, len(body) - 2, body)


class JetStream(PeerServer):
    """One stream with one consumer. Its server speaks unasked as well, as a real one does."""

    def __init__(self) -> None:
        super().__init__((HOST, 0), JetStreamConnection)
        self.lock = threading.Lock()
        self.made: list[str] = []
        self.pushed = 0
        self.ready: deque[tuple[int, bytes]] = deque()
        self.pending: set[bytes] = set()
        self.pongs = 0


class JetStreamConnection(socketserver.StreamRequestHandler):
    server: JetStream
    subscriptions: dict[bytes, bytes]

    def handle(self) -> None:
        self.subscriptions = {}
        self.wfile.write(b'INFO {"server_id":"small"}\r\n')
        with contextlib.suppress(ConnectionError):
            while line := self.rfile.readline():
                with self.server.lock:
                    self.wfile.write(self._answer(line.split()))

    def _answer(self, words: list[bytes]) -> bytes:
        match words:
            case [b"CONNECT", *_]:
                return b'INFO {"server_id":"small"}\r\n'
            case [b"SUB", subject, number]:
                self.subscriptions[subject] = number
            case [b"PING"]:
                return b"PONG\r\n"
            case [b"PONG"]:
                self.server.pongs += 1
            case [b"PUB", subject, reply, size]:
                return self._published(subject, reply, self._body(size))
            case [b"PUB", ack, size]:
                assert self._body(size) == b"+ACK"
                self.server.pending.remove(ack)
            case _:
                raise AssertionError(words)
        return b""

    def _body(self, size: bytes) -> bytes:
        return self.rfile.read(int(size) + 2)[:-2]

    def _published(self, subject: bytes, reply: bytes, body: bytes) -> bytes:
        if subject.startswith(b"$JS.API.CONSUMER.MSG.NEXT."):
            return self._pulled(reply, json.loads(body)["batch"])
        if subject.startswith(b"$JS.API."):
            self.server.made.append(subject.decode())
            return self._message(reply, reply, b'{"type":"made"}')
        self.server.pushed += 1
        self.server.ready.append((self.server.pushed, body))
        answer = b'{"stream":"bench","seq":%d}' % self.server.pushed
        asks = b"PING\r\n" if self.server.pushed % 50 == 0 else b""
        return asks + self._message(reply, reply, answer) + asks

    def _pulled(self, reply: bytes, batch: int) -> bytes:
        messages: list[bytes] = []
        while self.server.ready and len(messages) < batch:
            number, body = self.server.ready.popleft()
            ack = b"$JS.ACK.bench.bench.1.%d" % number
            self.server.pending.add(ack)
            messages.append(self._message(b"bench0", reply, body, ack + b" "))
        if len(messages) < batch:
            status = b"NATS/1.0 404 No Messages\r\n\r\n"
            sizes = b"%d %d" % (len(status), len(status))
            head = b"HMSG %b %b %b\r\n" % (reply, self.subscriptions[reply], sizes)
            messages.append(head + status + b"\r\n")
        return b"".join(messages)

    def _message(self, subject: bytes, inbox: bytes, body: bytes, ack: bytes = b"") -> bytes:
        head = b"MSG %b %b %b%d\r\n" % (subject, self.subscriptions[inbox], ack, len(body))
        return head + body + b"\r\n"


class Forger(PeerServer):
    """Passes on all that a server says, but for these bytes, in place of which it says others.

    It looks at whole answers, as far as the server sends them in one piece.
    """

    def __init__(self, target: Address, old: bytes, new: bytes) -> None:
        super().__init__((HOST, 0), ForgedConnection)
        self.target = target
        self.old = old
        self.new = new


class ForgedConnection(socketserver.StreamRequestHandler):
    server: Forger

    def handle(self) -> None:
        with socket.create_connection(self.server.target) as server:
            thread = threading.Thread(target=self._pass_on_to, args=(server,), daemon=True)
            thread.start()
            with contextlib.suppress(OSError):
                while data := server.recv(1 << 16):
                    self.connection.sendall(data.replace(self.server.old, self.server.new))

    def _pass_on_to(self, server: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := self.connection.recv(1 << 16):
                server.sendall(data)
            server.shutdown(socket.SHUT_WR)
