"""A server with clients of all protocols around it, and what everybody can see of it."""

import random
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import count
from typing import TypeVar

import pytest
from protocols.interop.adapters import ADAPTERS
from protocols.interop.adapters.base import (
    Adapter,
    Can,
    Handle,
    NotFound,
    Options,
    Result,
    Taken,
    View,
)
from support.simulated import SimulatedServer
from support.sockets import SocketWire
from support.wire import Wire

A = TypeVar("A", bound=Adapter)

ALIVE = 20.0  # seconds after which clients must have said something
MICROSECOND = 0.000_001
_queues = count(1)


def able(*needed: Can) -> list[type[Adapter]]:
    """The protocols that can do all of this; there is always one, or a test would test nothing."""
    found = [adapter for adapter in ADAPTERS if adapter.can.issuperset(needed)]
    assert found, f"no dialect can do {needed}"
    return found


class World:
    """One server. `between` marks the points of a test at which it may be restarted."""

    def __init__(
        self, wire: Wire, queue: str = "work", numbered: int = 0, interrupt: str = "steady"
    ) -> None:
        self._wire = wire
        self._clients: list[Adapter] = []
        self._numbered = numbered  # jobs that were pushed so far
        self._interrupt = interrupt
        self.queue = queue  # nobody else uses it

    # The server

    def between(self) -> None:
        """Nothing is held, and nobody waits: it is all the same if the server goes and comes."""
        if self._interrupt != "steady":
            self.interrupt()

    def interrupt(self) -> None:
        """The server goes and comes back; clients connect anew."""
        self._wire.restart()
        for client in self._clients:
            client.reconnect()

    def tick(self) -> None:
        """Let the shortest of waits come to its end."""

    # Clients

    def open(self, adapter: type[A]) -> A:
        client = adapter(self._wire.connect)
        self._clients.append(client)
        return client

    def close(self, client: Adapter) -> None:
        """The client goes away without a word."""
        self._clients.remove(client)
        client.disconnect()

    @contextmanager
    def visit(self, adapter: type[A]) -> Iterator[A]:
        """A client that only comes to look."""
        client = adapter(self._wire.connect)
        yield client
        client.disconnect()

    def push(
        self,
        client: Adapter,
        options: Options | None = None,
        queue: str = "",
        payload: bytes | None = None,
        goes_at_once: bool = False,
    ) -> Handle:
        """Push a job, and let everybody look at it, unless one who waits makes it go at once."""
        asked = options or Options()
        assert asked.needs() <= client.can, f"{client.dialect} cannot ask for {asked}"
        number = self._numbered + 1
        queue = queue or self.queue
        if payload is None:
            payload = b'{"number":%d}' % number
        uid = client.push(queue, payload, asked)
        self._numbered = number
        kept = client.result_outlives_job or asked.ttl is not None
        handle = Handle(queue, payload, number, uid, kept)
        if goes_at_once:
            return handle
        for observer in able(Can.LOOK):
            with self.visit(observer) as visitor:
                visitor.learn(handle)
        return handle

    def take(self, client: Adapter, queue: str = "") -> Taken:
        """Take the job that is next; there must be one."""
        client.ask(queue or self.queue, 0)
        return client.arrived()

    def take_this(self, client: Adapter, handle: Handle, queue: str = "") -> Taken:
        """Take a job, which must be this one."""
        taken = self.take(client, queue or handle.queue)
        self.is_delivery_of(handle, taken)
        return taken

    def is_delivery_of(self, handle: Handle, taken: Taken) -> None:
        """Every piece of identity that the taker is shown is that of the job."""
        assert taken.payload == handle.payload
        assert taken.number in {None, handle.number}
        assert taken.uid is None or not handle.uid or taken.uid == handle.uid
        if taken.uid is not None:
            handle.uid = taken.uid

    def nothing_for(self, client: Adapter, queue: str = "") -> None:
        """There is nothing to take."""
        client.ask(queue or self.queue, 0)
        self.tick()
        client.came_to_nothing()

    # What can be seen

    def sees(self, ready: int = 0, delayed: int = 0, leased: int = 0, queue: str = "") -> None:
        """Whoever can count the jobs of a queue comes to these numbers."""
        everything = {"ready": ready, "delayed": delayed, "leased": leased}
        for observer in able(Can.COUNT_READY):
            with self.visit(observer) as visitor:
                counts = visitor.counts(queue or self.queue)
            assert counts == {kind: everything[kind] for kind in counts}, observer.dialect
            assert counts.keys() == _counted(observer)

    def job_is(
        self, handle: Handle, state: str, attempts: int, fails: int, queue: str = ""
    ) -> None:
        """Whoever can look at a job sees it like this."""
        expected = View(state, attempts, fails, queue or handle.queue)
        for observer in able(Can.LOOK):
            with self.visit(observer) as visitor:
                assert visitor.look(handle) == expected, observer.dialect

    def job_is_gone(self, handle: Handle) -> None:
        for observer in able(Can.LOOK):
            with self.visit(observer) as visitor, pytest.raises(NotFound):
                visitor.look(handle)

    def result_is(self, handle: Handle, success: bool, data: bytes = b"") -> None:
        """Whoever can read results finds this one, and does not wait for it."""
        for observer in able(Can.RESULT):
            with self.visit(observer) as visitor:
                visitor.ask_result(handle, 0)
                assert visitor.result() == Result(success, data), observer.dialect

    def succeeded(self, handle: Handle, data: bytes = b"", attempts: int = 1) -> None:
        """A job has ended well: its result is kept, or nothing is."""
        if handle.kept:
            self.job_is(handle, "succeeded", attempts, 0)
            self.result_is(handle, True, data)
        else:
            self.job_is_gone(handle)

    def result_waiters(self, handle: Handle) -> list[Adapter]:
        """A client of each protocol that can, waiting to hear how a job ends."""
        waiters: list[Adapter] = [self.open(adapter) for adapter in able(Can.AWAIT_RESULT)]
        for waiter in waiters:
            waiter.ask_result(handle, 600)
            waiter.still_waits()
        return waiters

    def all_hear(
        self, waiters: Iterable[Adapter], handle: Handle, success: bool, data: bytes = b""
    ) -> None:
        for waiter in waiters:
            assert waiter.result() == Result(success, data), waiter.dialect


class TimedWorld(World):
    """A server whose clock the test moves."""

    def __init__(self, yard: SimulatedServer, interrupt: str = "steady") -> None:
        super().__init__(yard, interrupt=interrupt)
        self._yard = yard

    def interrupt(self) -> None:
        stop: dict[str, Callable[[], None]] = {
            "steady": self._yard.restart,
            "restart": self._yard.restart,
            "crash": self._yard.crash,
            "kill": self._yard.kill,
        }
        stop[self._interrupt]()
        for client in self._clients:
            client.reconnect()

    def crash_in_part(self, seed: int) -> None:
        """Of what was not synced, some is on disk and some is not."""
        self._yard.crash(random.Random(seed))
        for client in self._clients:
            client.reconnect()

    def tick(self) -> None:
        self._yard.advance(MICROSECOND)

    def now(self) -> float:
        return self._yard.now()

    def advance(self, seconds: float, silent: Adapter | None = None) -> None:
        """Let time pass; all but the silent one do what keeps them connected."""
        end = self.now() + seconds
        for _ in count():
            left = end - self.now()
            if left <= ALIVE:
                break
            self._yard.advance(ALIVE)
            for client in self._clients:
                if client is not silent:
                    client.keep_alive()
        self._yard.advance(max(end - self.now(), 0))


def socket_world(server: SocketWire, interrupt: str = "steady") -> World:
    """A world of its own on a server that others have used: it goes on with their numbers."""
    peer = server.connect()
    peer.send(b'PUSH {"name":"count","queue":"count"}\n')
    number = int(peer.read_line().removeprefix(b'OK {"id":').removesuffix(b"}\n"))
    peer.close()
    return World(server, f"work-{next(_queues)}", number, interrupt)


def _counted(observer: type[Adapter]) -> set[str]:
    kinds = {Can.COUNT_READY: "ready", Can.COUNT_DELAYED: "delayed", Can.COUNT_LEASED: "leased"}
    return {kind for can, kind in kinds.items() if can in observer.can}
