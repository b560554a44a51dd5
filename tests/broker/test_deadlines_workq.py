"""Times of Workq jobs are absolute: a crash in between moves none of them, to the millisecond."""

import pytest
from support.simulated import SimulatedPeer, SimulatedServer
from support.wire import exchange

ID = b"6ba7b810-9dad-41d1-80b4-00c04fd430c4"
OTHER = b"6ba7b810-9dad-41d1-80b4-00c04fd430c5"
OK = b"+OK\r\n"
TIMEOUT = b"-TIMEOUT\r\n"
NOT_FOUND = b"-NOT-FOUND\r\n"
LEASE = b"lease q 0\r\n"
LEASED = b"+OK 1\r\n%b q 4\r\nping\r\n" % ID
RESULT = b"result %b 0\r\n" % ID


@pytest.fixture(params=["inline", "thread"])
def yard(request: pytest.FixtureRequest) -> SimulatedServer:
    return SimulatedServer(inline_sync=request.param == "inline")


@pytest.fixture
def peer(yard: SimulatedServer) -> SimulatedPeer:
    return yard.connect("workq")


def add(ttr: int, ttl: int, flags: bytes = b"", id: bytes = ID) -> bytes:
    return b"add %b q %d %d 4%b\r\nping\r\n" % (id, ttr, ttl, flags)


def crash(yard: SimulatedServer) -> SimulatedPeer:
    yard.crash()
    return yard.connect("workq")


def test_a_ready_job_expires_when_it_would_have(yard: SimulatedServer, peer: SimulatedPeer) -> None:
    exchange(peer, add(1000, 10_000), OK)
    yard.advance(4)
    peer = crash(yard)
    yard.advance(5.999)
    exchange(peer, RESULT, TIMEOUT)
    yard.advance(0.001)
    exchange(peer, RESULT, NOT_FOUND)
    exchange(peer, LEASE, TIMEOUT)


def test_a_result_expires_when_it_would_have(yard: SimulatedServer, peer: SimulatedPeer) -> None:
    exchange(peer, add(1000, 10_000), OK)
    yard.advance(3)
    exchange(peer, b"complete %b 4\r\npong\r\n" % ID, OK)
    yard.advance(1)
    peer = crash(yard)
    yard.advance(5.999)
    exchange(peer, RESULT, b"+OK 1\r\n%b 1 4\r\npong\r\n" % ID)
    yard.advance(0.001)
    exchange(peer, RESULT, NOT_FOUND)


def test_who_waits_for_a_result_hears_of_the_expiry(
    yard: SimulatedServer, peer: SimulatedPeer
) -> None:
    exchange(peer, add(1000, 10_000), OK)
    yard.advance(4)
    peer = crash(yard)
    peer.send(b"result %b 60000\r\n" % ID)
    yard.advance(5.999)
    peer.expect_nothing()
    yard.advance(0.001)
    peer.expect(NOT_FOUND)


def test_a_lease_ends_when_it_would_have(yard: SimulatedServer, peer: SimulatedPeer) -> None:
    exchange(peer, add(10_000, 60_000), OK)
    exchange(peer, LEASE, LEASED)
    exchange(peer, b"delete %b\r\n" % OTHER, NOT_FOUND)
    exchange(peer, add(1000, 60_000, b" -priority=-1", OTHER), OK)  # the lease is on disk with it
    exchange(peer, b"delete %b\r\n" % OTHER, OK)
    yard.advance(4)
    peer = crash(yard)
    yard.advance(5.999)
    exchange(peer, LEASE, TIMEOUT)
    yard.advance(0.001)
    exchange(peer, LEASE, LEASED)


def test_the_last_attempt_ends_when_it_would_have(
    yard: SimulatedServer, peer: SimulatedPeer
) -> None:
    exchange(peer, add(10_000, 60_000, b" -max-attempts=1"), OK)
    exchange(peer, LEASE, LEASED)
    yard.advance(4)
    peer = crash(yard)
    peer.send(b"result %b 60000\r\n" % ID)
    yard.advance(5.999)
    peer.expect_nothing()
    yard.advance(0.001)
    peer.expect(b"+OK 1\r\n%b 0 0\r\n\r\n" % ID)
    exchange(peer, LEASE, TIMEOUT)


def test_a_scheduled_job_comes_and_expires_when_it_would_have(
    yard: SimulatedServer, peer: SimulatedPeer
) -> None:
    assert yard.now() == 1_700_000_000.25  # 2023-11-14T22:13:20.25Z
    at = b"2023-11-14T22:13:30.250Z"
    exchange(peer, b"schedule %b q 1000 10000 %b 4\r\nping\r\n" % (ID, at), OK)
    yard.advance(4)
    peer = crash(yard)
    yard.advance(5.999)
    exchange(peer, LEASE, TIMEOUT)
    yard.advance(0.001)
    exchange(peer, LEASE, LEASED)
    peer = crash(yard)
    yard.advance(9.999)
    exchange(peer, RESULT, TIMEOUT)
    yard.advance(0.001)
    exchange(peer, RESULT, NOT_FOUND)
