"""What tests of the journal over HTTP want of a server: its addresses, and work for it."""

from support.process import ServerProcess

from taskyard import Client


def url_of(server: ServerProcess, credentials: str = "") -> str:
    host, port = server.address("http")
    return f"http://{credentials}{host}:{port}"


def client_of(server: ServerProcess) -> Client:
    host, port = server.address("resp")
    return Client(f"taskyard://{host}:{port}", heartbeats=False)  # no leases are extended


def work(server: ServerProcess, jobs: int, size: int = 1000) -> None:
    """Push jobs, and do them."""
    with client_of(server) as client:
        client.push_many("work", [b"x" * size] * jobs, name="task")
        done = 0
        while done < jobs:
            taken = client.fetch("work", count=20)
            client.ack_many(taken)
            done += len(taken)
