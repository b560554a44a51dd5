"""What a client sends stays within bounds, whatever its commands have to wait for."""

from collections.abc import Iterator

import pytest
from support.simulated import SimulatedPeer, SimulatedServer
from support.wire import exchange

from taskyard.protocols.connection import INPUT_LIMIT

CHUNK = 65_536
MEBIBYTE = 1 << 20


def pour(peer: SimulatedPeer, chunks: Iterator[bytes], at_most: int) -> int:
    """Send until the server does not read any more; gives the number of bytes that took."""
    sent = 0
    while peer.reading:
        assert sent <= at_most, f"{sent} bytes were read, and it goes on reading"
        chunk = next(chunks)
        peer.send(chunk)
        sent += len(chunk)
    return sent


def in_chunks(line: bytes) -> Iterator[bytes]:
    """The same line without end, in pieces that do not care where it ends."""
    rest = b""
    while True:
        while len(rest) < CHUNK:
            rest += line * (CHUNK // len(line) + 1)
        yield rest[:CHUNK]
        rest = rest[CHUNK:]


def test_what_is_behind_a_waiting_fetch_is_bounded() -> None:
    yard = SimulatedServer()
    peer, other = yard.connect(), yard.connect()
    peer.send(b'FETCH {"queues":["q"]}\n')
    sent = pour(peer, in_chunks(b"PING\n"), INPUT_LIMIT + CHUNK)
    peer.expect_nothing()
    exchange(other, b'PUSH {"name":"a","queue":"q"}\n', b'OK {"id":1}\n')
    assert peer.reading
    peer.expect(b'OK {"id":1,"queue":"q","name":"a"}\n')
    peer.expect(b"PONG {}\n" * (sent // 5))
    peer.expect_nothing()


def test_what_is_behind_many_waiting_fetches_is_read_when_the_first_ones_end() -> None:
    yard = SimulatedServer()
    peer = yard.connect()
    fetch = b'FETCH {"queues":["q"],"timeout":"1s"}\n'
    sent = pour(peer, in_chunks(fetch), INPUT_LIMIT + CHUNK)
    most = (sent - INPUT_LIMIT) // len(fetch) + 1
    yard.advance(most + 0.5)
    assert peer.reading
    assert peer.take() == b"EMPTY {}\n" * most


def test_a_line_that_does_not_end_behind_a_waiting_fetch_is_bounded_too() -> None:
    yard = SimulatedServer()
    peer = yard.connect()
    peer.send(b'FETCH {"queues":["q"],"timeout":"1s"}\n')
    pour(peer, in_chunks(b"x"), MEBIBYTE + 2 * CHUNK)
    yard.advance(1.1)
    peer.expect(b'EMPTY {}\nERR {"msg":"line too long"}\n')
    peer.expect_closed()


@pytest.fixture
def slow() -> SimulatedServer:
    """One whose disk syncs when the test says so."""
    yard = SimulatedServer(inline_sync=False, output_limit=10_000)
    yard.scheduler.slow = True
    return yard


def sync_all(yard: SimulatedServer) -> None:
    while yard.scheduler.blocking:
        yard.scheduler.finish_blocking()
        yard.run_pending()


def ids_in(replies: bytes) -> list[int]:
    prefix, suffix = b'OK {"id":', b"}"
    return [int(line.removeprefix(prefix).removesuffix(suffix)) for line in replies.splitlines()]


def test_replies_that_wait_for_the_disk_are_bounded(slow: SimulatedServer) -> None:
    peer = slow.connect()
    push = b'PUSH {"name":"a"}\n'
    sent = pour(peer, in_chunks(push), 8 * INPUT_LIMIT)
    done = range(1, slow.engine.state.next_id)
    assert sum(len(b'OK {"id":%d}\n' % id) for id in done) < 10_000 + 100
    sync_all(slow)
    assert peer.reading
    assert ids_in(peer.take()) == list(range(1, sent // len(push) + 1))


@pytest.mark.parametrize("size", [1000, MEBIBYTE - 2])
def test_records_that_wait_for_the_disk_are_bounded(slow: SimulatedServer, size: int) -> None:
    """Though their replies are short, and so far from the limit of the connection."""
    peers = [slow.connect() for _ in range(3)]
    push = b'PUSH {"name":"a","payload":"%b"}\n' % (b"x" * size)
    sent = sum(pour(peer, in_chunks(push), 32 * MEBIBYTE) for peer in peers)
    assert slow.engine.records.size() < 24 * MEBIBYTE
    sync_all(slow)
    assert all(peer.reading for peer in peers)
    found = [id for peer in peers for id in ids_in(peer.take())]
    assert sorted(found) == list(range(1, len(found) + 1))
    assert sent - len(push) * 3 < len(found) * len(push) <= sent


def test_those_who_add_nothing_are_served_while_the_disk_is_behind(slow: SimulatedServer) -> None:
    peer, other = slow.connect(), slow.connect()
    push = b'PUSH {"name":"a","payload":"%b"}\n' % (b"x" * MEBIBYTE)[:-2]
    pour(peer, in_chunks(push), 32 * MEBIBYTE)
    exchange(other, b"PING\n", b"PONG {}\n")
    exchange(other, b'FETCH {"queues":[]}\n', b"EMPTY {}\n")
