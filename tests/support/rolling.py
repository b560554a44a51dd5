"""Clients of every protocol that go on working while their server is restarted again and again.

Each has a queue of its own, a thread that pushes and one that takes, and comes back by itself. What
was promised to them stands in their books.
"""

from __future__ import annotations

import asyncio
import json
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from uuid import uuid4

import redis
from support.glovebox_socket import Talker
from support.sockets import HANG_GUARD
from websockets.exceptions import WebSocketException

import taskyard
from taskyard.toq import Consumer, Producer, Task

PAUSE = 0.02  # seconds before the next try to connect
LEASE = 10  # seconds: longer than a busy machine or its disk may stand still
AWAY = (OSError, EOFError, WebSocketException, redis.ConnectionError)

Ports = dict[str, tuple[str, int]]  # addresses by protocol, which stay the same


class DeliveryLog:
    """What one client was told. A token is used for one try to push, so it stands for one job."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.pushed: list[str] = []  # acknowledged
        self.done: set[str] = set()  # acknowledged
        self.back: list[str] = []  # and delivered once more after that
        self.errors: list[str] = []
        self.allowed = 0  # pushes so far: it has a share for each time between two restarts
        self.over = threading.Event()

    def was_pushed(self, token: str) -> None:
        with self._lock:
            self.pushed.append(token)

    def was_taken(self, token: str) -> None:
        with self._lock:
            if token in self.done:
                self.back.append(token)

    def was_done(self, token: str) -> None:
        with self._lock:
            self.done.add(token)

    def tokens(self) -> Iterator[str]:
        """One after the other, as many as are allowed; each may be asked for again."""
        while not self.over.is_set():
            if len(self.pushed) < self.allowed:
                yield uuid4().hex
            else:
                self.over.wait(PAUSE)

    def is_served(self) -> bool:
        """All that was promised so far is done."""
        return len(self.pushed) >= self.allowed and self.done.issuperset(self.pushed)


class RollingClients:
    """All clients, in threads."""

    def __init__(self, ports: Ports) -> None:
        host, port = ports["resp"]
        self.url = f"taskyard://{host}:{port}"
        self.ports = ports
        self.logs: dict[str, DeliveryLog] = {}
        self._threads: list[threading.Thread] = []
        self._consumer = Consumer(self.url, ["toq"], poll=0.1, lease=LEASE)

    def start(self) -> None:
        self._add("masenko", self._push_masenko, self._take_masenko)
        self._add("workq", self._push_workq, self._take_workq)
        self._add("redis", self._push_redis, self._take_redis)
        self._add("glovebox", self._push_glovebox, self._take_glovebox)
        self._add("client", self._push_client, self._take_client)
        self._add("async", self._push_async, self._take_async)
        self._add("toq", self._push_toq, self._take_toq)

    def allow(self, count: int) -> None:
        for book in self.logs.values():
            book.allowed += count

    def stop(self) -> None:
        for book in self.logs.values():
            book.over.set()
        self._consumer.stop()
        for thread in self._threads:
            thread.join(HANG_GUARD)
            assert not thread.is_alive(), f"{thread.name} goes on"

    def _add(self, name: str, *parts: Callable[[DeliveryLog], None]) -> None:
        book = self.logs[name] = DeliveryLog()
        for part in parts:
            thread = threading.Thread(target=self._keep_on, args=(book, part), name=part.__name__)
            self._threads.append(thread)
            thread.start()

    def _keep_on(self, book: DeliveryLog, part: Callable[[DeliveryLog], None]) -> None:
        """Come back whenever the server has gone."""
        while not book.over.is_set():
            try:
                part(book)
            except AWAY:
                book.over.wait(PAUSE)
            except Exception as error:  # a test must see it, whatever it is
                book.errors.append(repr(error))
                return

    # Masenko and Workq: sockets and lines

    def _push_masenko(self, book: DeliveryLog) -> None:
        with Lines(self.ports["masenko"]) as lines:
            for token in book.tokens():
                pushed = {"name": token, "queue": "masenko"}
                assert lines.ask(f"PUSH {json.dumps(pushed)}\n").startswith("OK ")
                book.was_pushed(token)

    def _take_masenko(self, book: DeliveryLog) -> None:
        with Lines(self.ports["masenko"]) as lines:
            while not book.over.is_set():
                verb, _, rest = lines.ask(
                    'FETCH {"queues":["masenko"],"timeout":"1s"}\n'
                ).partition(" ")
                if verb == "OK":
                    job = json.loads(rest)
                    book.was_taken(job["name"])
                    assert lines.ask(f'ACK {{"id":{job["id"]}}}\n') == "OK {}\n"
                    book.was_done(job["name"])

    def _push_workq(self, book: DeliveryLog) -> None:
        with Lines(self.ports["workq"]) as lines:
            for token in book.tokens():
                head = f"add {uuid4()} workq {LEASE * 1000} 600000 {len(token)}\r\n"
                assert lines.ask(f"{head}{token}\r\n") == "+OK\r\n"
                book.was_pushed(token)

    def _take_workq(self, book: DeliveryLog) -> None:
        with Lines(self.ports["workq"]) as lines:
            while not book.over.is_set():
                if lines.ask("lease workq 1000\r\n") != "+OK 1\r\n":
                    continue
                uid = lines.read().split()[0]
                token = lines.read().strip()
                book.was_taken(token)
                assert lines.ask(f"complete {uid} 0\r\n\r\n") == "+OK\r\n"
                book.was_done(token)

    # Redis

    def _push_redis(self, book: DeliveryLog) -> None:
        with self._redis() as client:
            for token in book.tokens():
                client.rpush("redis", token)
                book.was_pushed(token)

    def _take_redis(self, book: DeliveryLog) -> None:
        """What is popped is done: its answer is the acknowledgement."""
        with self._redis() as client:
            while not book.over.is_set():
                found = client.blpop(["redis"], timeout=1)
                if found is not None:
                    token = found[1].decode()
                    book.was_taken(token)
                    book.was_done(token)

    def _redis(self) -> redis.Redis:
        host, port = self.ports["resp"]
        return redis.Redis(host=host, port=port, socket_timeout=HANG_GUARD)

    # Glovebox, with sessions that outlive their sockets

    def _push_glovebox(self, book: DeliveryLog) -> None:
        with Talker(self.ports["http"], False) as talker:
            talker.say("create", queue="glovebox", label=1)
            talker.hear()  # it may be there already
            for token in book.tokens():
                talker.say("post", queue="glovebox", message=token, label=2, notify=["sync"])
                talker.hears(type="notice", label=2, notice="sync")
                book.was_pushed(token)

    def _take_glovebox(self, book: DeliveryLog) -> None:
        session: dict[str, str] = {"DURABLE-SESSION": "true"}
        while not book.over.is_set():
            try:
                with Talker(self.ports["http"], False, **session) as talker:
                    session["RECONNECT-AS"] = str(talker.id)
                    self._fetch_glovebox(talker, book)
            except AWAY:
                book.over.wait(PAUSE)

    def _fetch_glovebox(self, talker: Talker, book: DeliveryLog) -> None:
        while not book.over.is_set():
            talker.say("fetch", queue="glovebox", block_timeout=1, work_timeout=LEASE, label=3)
            told = talker.hear()
            if told["type"] == "message":
                token = told["body"].decode()
                book.was_taken(token)
                finished = {"shard": told["shard"], "sequence": told["sequence"]}
                talker.say("finish", queue="glovebox", response="sync", label=4, **finished)
                talker.hears(type="notice", label=4, notice="finish")
                book.was_done(token)

    # Taskyard's own clients, which need nobody to bring them back

    def _push_client(self, book: DeliveryLog) -> None:
        with taskyard.Client(self.url) as client:
            for token in book.tokens():
                client.push("client", token.encode())
                book.was_pushed(token)

    def _take_client(self, book: DeliveryLog) -> None:
        with taskyard.Client(self.url) as client:
            while not book.over.is_set():
                for job in client.fetch("client", wait=1, ttr=LEASE):
                    book.was_taken(job.payload.decode())
                    client.ack(job)
                    book.was_done(job.payload.decode())

    def _push_async(self, book: DeliveryLog) -> None:
        async def push() -> None:
            async with taskyard.AsyncClient(self.url) as client:
                for token in book.tokens():
                    await client.push("async", token.encode())
                    book.was_pushed(token)

        asyncio.run(push())

    def _take_async(self, book: DeliveryLog) -> None:
        async def take() -> None:
            async with taskyard.AsyncClient(self.url) as client:
                while not book.over.is_set():
                    for job in await client.fetch("async", wait=1, ttr=LEASE):
                        book.was_taken(job.payload.decode())
                        await client.ack(job)
                        book.was_done(job.payload.decode())

        asyncio.run(take())

    # toq

    def _push_toq(self, book: DeliveryLog) -> None:
        with Producer(self.url) as producer:
            for token in book.tokens():
                task = Task.of("note", token)
                producer.enqueue("toq", task)
                book.was_pushed(token)
                assert producer.result(task.id, timeout=HANG_GUARD).succeeded
                book.was_done(token)

    def _take_toq(self, book: DeliveryLog) -> None:
        self._consumer.register("note", lambda task: book.was_taken(task.arguments()[0]))
        self._consumer.run()


class Lines:
    """A protocol of lines on a socket; EOFError when the server has gone."""

    def __init__(self, address: tuple[str, int]) -> None:
        self._socket = socket.create_connection(address, timeout=HANG_GUARD)
        self._file = self._socket.makefile("r", newline="\n", encoding="utf-8")

    def __enter__(self) -> Lines:
        return self

    def __exit__(self, *_: object) -> None:
        with closing(self._socket):
            self._file.close()

    def ask(self, text: str) -> str:
        self._socket.sendall(text.encode())
        return self.read()

    def read(self) -> str:
        line = self._file.readline()
        if not line.endswith("\n"):
            raise EOFError
        return line
