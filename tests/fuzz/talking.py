"""One conversation with a whole server in memory, and what must hold after any."""

from __future__ import annotations

from collections.abc import Sequence

from support.model_invariants import check_invariants
from support.replaying import check_replay
from support.simulated import SimulatedPeer, SimulatedServer

SEGMENT = 1 << 16
BODY = SEGMENT // 4


def new_server() -> SimulatedServer:
    """A small one: most of the time of a run would go into its files."""
    return SimulatedServer(segment_size=SEGMENT, payload_memory=1 << 16)


def say(yard: SimulatedServer, dialect: str, pieces: Sequence[bytes]) -> SimulatedPeer:
    peer = yard.connect(dialect)
    for piece in pieces:
        peer.send(piece)
    return peer


def check_server_state(yard: SimulatedServer) -> None:
    """The engine is whole, and a start from its journal would know the same."""
    check_invariants(yard.engine)
    check_replay(yard)


def check_served(yard: SimulatedServer) -> None:
    """Whatever one client has sent, the next one is served."""
    other = yard.connect("masenko")
    other.send(b"PING\n")
    other.expect(b"PONG {}\n")


def let_pass(yard: SimulatedServer, peer: SimulatedPeer, wanted: bytes, step: float) -> bytes:
    """All that the client hears until `wanted` ends it, it is let go, or nothing more is due."""
    heard = peer.take()
    for _ in range(60):
        if heard.endswith(wanted) or peer.closed:
            break
        yard.advance(step)
        heard += peer.take()
    return heard
