"""A client of the simulated server: runs a protocol driver over a link, at its own pace."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Protocol

from simulation.agenda import SECOND, EventQueue
from simulation.crowd import SetClient
from simulation.network import Link


class ClientPace:
    """How a client behaves."""

    def __init__(self, chance: Random, idle: bool = False) -> None:
        self.pause = chance.choice((300, 2000, 20_000, 200_000))  # microseconds between requests
        self.burst = chance.choice((1, 1, 1, 3, 10))  # requests at once, at most
        self.requests = chance.choice((5, 20, 60))  # then it leaves
        self.leaves_abruptly = chance.random() < 0.2  # leaves without waiting for replies
        self.reads_every = chance.choice((0, 0, 0, 0, 30_000, 700_000))  # microseconds; 0: at once
        self.reads = chance.choice((200, 4096))  # bytes at a time
        if idle:
            self.pause = chance.choice((2, 10, 60)) * SECOND
            self.burst = 1
            self.requests = 2


class Host(Protocol):
    """The machine that clients connect to."""

    def gone(self, client: SimulatedClient, lost: bool) -> None:
        """It has left, or has lost its connection."""


class SimulatedClient:
    def __init__(
        self,
        agenda: EventQueue,
        chance: Random,
        host: Host,
        name: str,
        met: SetClient,
        temper: ClientPace,
    ) -> None:
        self.name = name
        self.connected_client = met
        self._agenda = agenda
        self._chance = chance
        self._host = host
        self._pace = temper
        self._link: Link | None = None
        self._left = temper.requests
        self._unread = bytearray()
        self._reading = False  # a look at what has come is planned
        self.hears: Callable[[], None] | None = None  # when something was received

    def start(self, link: Link, acts: bool = True) -> None:
        self._link = link
        if acts:
            self._plan()

    @property
    def link(self) -> Link | None:
        return self._link

    def _plan(self) -> None:
        pause = self._pace.pause
        self._agenda.after(self._chance.randrange(pause // 2, 2 * pause), self._act)

    def _act(self) -> None:
        link = self._link
        if link is None:
            return
        if self._left <= 0:
            self._leave(link)
            return
        if link.can_send() and not self._unread:
            talk = self.connected_client.talk
            count = min(self._left, self._chance.randint(1, self._pace.burst))
            self._left -= count
            link.send(b"".join(talk.request() for _ in range(count)))
        self._plan()

    def send(self, data: bytes) -> None:
        if self._link is not None:
            self._link.send(data)

    def _leave(self, link: Link) -> None:
        talk = self.connected_client.talk
        if not talk.is_idle() and not self._pace.leaves_abruptly:
            self._plan()
            return
        self._link = None
        if not talk.is_idle():
            if self._chance.random() < 0.5:
                link.close()
            else:
                link.reset()
            self._host.gone(self, lost=True)
            return
        talk.leave()
        link.close()
        self._host.gone(self, lost=False)

    def stop_soon(self, gently: bool) -> None:
        """It is to leave: once all is answered, or at once."""
        if gently:
            self._left = 0
        else:
            self.hang_up()

    def leave_now(self) -> None:
        """In order, at the end of a drain."""
        link, self._link = self._link, None
        if link is not None:
            self.connected_client.talk.leave()
            link.close()

    def hang_up(self) -> None:
        """Reset the connection, whatever is open."""
        link, self._link = self._link, None
        if link is not None:
            link.reset()
            self._host.gone(self, lost=True)

    # From the link

    def arrived(self, data: bytes) -> None:
        if self._link is None:
            return
        if self._pace.reads_every:
            self._unread += data
            if not self._reading:
                self._reading = True
                self._agenda.after(self._pace.reads_every, self._read)
            return
        self._link.read(len(data))
        self._receive(data)

    def _read(self) -> None:
        self._reading = False
        if self._link is None:
            return
        data = bytes(self._unread[: self._pace.reads])
        del self._unread[: len(data)]
        self._link.read(len(data))
        if self._unread:
            self._reading = True
            self._agenda.after(self._pace.reads_every, self._read)
        self._receive(data)

    def _receive(self, data: bytes) -> None:
        talk = self.connected_client.talk
        talk.receive(data)
        answer = getattr(talk, "answer", None)  # what it has to say by itself, such as a pong
        if answer is not None:
            said = answer()
            if said and self._link is not None:
                self._link.send(said)

    def ended(self) -> None:
        if self._link is not None:
            self._link = None
            self._host.gone(self, lost=True)
