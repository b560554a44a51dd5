"""What the simulated machine knows of its clients: whose bytes to transport, and what to notify.

A crowd has the clients of all protocols and records what they asked for and were told. It
does no I/O. The order in which it hears of things is that in which they happen to its clients:
bytes that were on their way when a connection ended have been received, or never will be.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import NamedTuple, Protocol

from support.talk import ProtocolDriver

DIALECTS = ("masenko", "workq", "resp", "glovebox", "api")
"""The last two are bytes of HTTP, from the request for an upgrade or the first request line on."""

POWER = "power"  # the power fails: what was not synced may be gone
KILL = "kill"  # the process ends at once
STOP = "stop"  # a clean stop: everything is on disk


class SetClient(Protocol):
    """A client that has connected, and the listener that it uses."""

    @property
    def dialect(self) -> str: ...

    @property
    def talk(self) -> ProtocolDriver: ...


class PlainClient(NamedTuple):
    """The same, for client sets without a class of their own."""

    dialect: str
    talk: ProtocolDriver


@dataclass(frozen=True, slots=True)
class Rules:
    """Those settings of the server that decide what it may do with a job."""

    durability: str = "sync"
    heartbeat: float = 45.0  # seconds without a word after which Masenko lets a client go
    max_losses: int = 10  # deliveries that may be lost with their worker, then the job is dead
    workq_max_losses: int = 0  # the same where Workq was spoken; 0: any number
    default_ttr: float = 60.0  # seconds that a lease lasts where nobody says
    lease_ttr: bool = False  # Workq's ttr is that of the lease
    disk_fails: bool = False  # requests may be refused: no space, or read only
    largest_payload: int = 400  # that is sensible for the size of the segments


@dataclass(frozen=True, slots=True)
class SimulationContext:
    """What a client set gets from the simulation. All chance comes from one Random."""

    chance: Random
    clock: Callable[[], float]
    """The server's own time in seconds since 1970. It never goes back while a server runs; after
    `crashed` it may be less than before, or much more, as somebody has set the machine's clock."""
    settings: Rules


class ServerConnector(Protocol):
    """Connections to a server without faults, for the end of a run."""

    def connect(self, dialect: str, talk: ProtocolDriver) -> None:
        """Connect this one."""

    def exchange(self, talk: ProtocolDriver, request: bytes) -> None:
        """Send its bytes, and pass it the replies, until the driver is idle."""

    def wait(self, seconds: float) -> None:
        """Let so much time pass."""

    def disconnect(self, talk: ProtocolDriver) -> None:
        """Close its connection; the server has heard of it when this returns."""


class ClientSet(Protocol):
    def add_client(self, name: str) -> SetClient:
        """Add a new client, or one that returns."""

    def on_connection_lost(self, talk: ProtocolDriver) -> None:
        """Its connection has ended without `leave`, whoever has ended it, perhaps in the middle of
        something. What it had asked for may still reach the server, or may be there already; when
        the server hears of the end is another matter. It receives nothing more."""

    def on_crash(self, how: str, safe: float) -> None:
        """The server is gone (POWER, KILL, STOP). `lost` was called for all who were connected.

        Whatever was told to a client before the time `safe` must be there afterwards; with
        durability "sync" that is infinity. What was told later may have been forgotten.
        """

    def on_server_started(self) -> None:
        """It is there again."""

    def drain(self, door: ServerConnector) -> None:
        """Take and finish whatever is there. All connections have ended, and the server knows."""

    def check(self) -> object:
        """AssertionError if the answers cannot all be true."""

    def counts(self) -> dict[str, int]:
        """Figures for the sum: acknowledged, finished, redelivered, lost, invented, ..."""


MakeClientSet = Callable[[SimulationContext], ClientSet]
