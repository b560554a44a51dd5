"""Long lists on a simulated server, as tests of the RESP listener make and look at them."""

from support.replies_resp import Word, command, replies
from support.simulated import SimulatedPeer, SimulatedServer


def fill(yard: SimulatedServer, values: list[bytes], queue: str = "l") -> SimulatedPeer:
    """Push these values; gives a client."""
    peer = yard.connect("resp")
    for at in range(0, len(values), 5000):
        peer.send(command("RPUSH", queue, *values[at : at + 5000]))
        peer.take()
    assert length(yard, queue) == len(values)
    return peer


def length(yard: SimulatedServer, queue: str = "l") -> int:
    found = yard.engine.queue(queue.encode())
    return found.ready.size if found is not None else 0


def numbers(count: int) -> list[bytes]:
    return [b"%d" % number for number in range(count)]


def run(peer: SimulatedPeer, *words: Word) -> object:
    """What this one command is answered with."""
    peer.send(command(*words))
    [reply] = replies(peer.take())
    return reply


def content(yard: SimulatedServer, queue: str = "l") -> object:
    return run(yard.connect("resp"), "LRANGE", queue, 0, -1)
