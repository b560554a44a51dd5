"""The servers that Taskyard is measured beside: real ones, each with its settings.

A peer is one server with one setting of its durability. Where a server is missing it is installed
on the spot if that can be done; else `unavailable` says why, and a run goes on without it.
"""

from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from benchmarks import rig
from benchmarks.peers import beanstalkd, nats, redis

__all__ = ["Peer", "Product", "Server", "all_peers"]


class Server(Protocol):
    """What can be measured; Taskyard of the rig is one as well."""

    @property
    def name(self) -> str: ...

    def run(self, directory: Path) -> AbstractContextManager[rig.RunningServer]: ...


class Product(Protocol):
    """A module of this package: one kind of server, whatever its settings."""

    def version(self) -> str: ...

    def unavailable(self, durability: rig.Durability) -> str | None: ...


@dataclass(frozen=True, slots=True)
class Peer:
    key: str
    durability: rig.Durability
    server: Server
    setting: str
    """Of its durability, in the peer's own words."""
    product: Product

    def version(self) -> str:
        """Only of one that is available."""
        return self.product.version()

    def unavailable(self) -> str | None:
        """None if it is here, perhaps installed just now; else why it is not."""
        return self.product.unavailable(self.durability)


def all_peers() -> list[Peer]:
    peers = [
        Peer("beanstalkd", durability, beanstalkd.Beanstalkd(durability), setting, beanstalkd)
        for durability, setting in beanstalkd.SETTINGS.items()
    ]
    peers += [
        Peer(key, durability, redis.Redis(durability, driver), setting, redis)
        for key, driver in redis.DRIVERS.items()
        for durability, setting in redis.SETTINGS.items()
    ]
    peers += [
        Peer("nats", durability, nats.Nats(durability), setting, nats)
        for durability, setting in nats.SETTINGS.items()
    ]
    return peers
