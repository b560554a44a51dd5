"""A server whose journal and queues Spark reads: its addresses, and work for it."""

from __future__ import annotations

from typing import Self

from support.process import WarmServer

from taskyard import Client


class Server(WarmServer):
    """When it is back after its end, it has the same addresses."""

    def __enter__(self) -> Self:
        super().__enter__()
        for dialect in ("resp", "http"):
            self.flags += [f"--{dialect}-port", str(self.address(dialect)[1])]
        return self

    @property
    def url(self) -> str:
        """For clients."""
        host, port = self.address("resp")
        return f"taskyard://{host}:{port}"

    def http_url(self, credentials: str = "") -> str:
        host, port = self.address("http")
        return f"http://{credentials}{host}:{port}"

    def client(self) -> Client:
        return Client(self.url, heartbeats=False)  # no leases are extended

    def work(self, jobs: int, size: int = 1000, left: int = 0) -> None:
        """Push jobs, and do all but those that are to be left."""
        with self.client() as client:
            client.push_many("work", [b"x" * size] * (jobs + left), name="task")
            done = 0
            while done < jobs:
                taken = client.fetch("work", count=min(20, jobs - done))
                client.ack_many(taken)
                done += len(taken)
