"""Workq payloads and results: any bytes, the sizes that are taken, and the stream kept in step."""

import pytest
from support.simulated import SimulatedServer
from support.wire import SimulatedWire, Wire, exchange
from support.workq import (
    MAX_PAYLOAD,
    OK,
    PAYLOAD_SIZE,
    RESULT_SIZE,
    UNKNOWN,
    add,
    client_error,
    complete,
    expect_in_step,
    fail,
    failed,
    is_there,
    job,
    lease,
    leased,
    new_id,
    new_name,
    result,
    run,
    schedule,
    succeeded,
)

from taskyard.engine.model.state import EngineSettings

LARGEST_DROPPED = 64 << 20


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"\r\n",
        b"\n",
        b"\r",
        b"\x00",
        b"ping\r\ninspect server\r\n",
        b"\r\n\r\n",
        b"-TIMEOUT\r\n",
        b" leading and trailing ",
        bytes(range(256)),
        b"\xff\xfe\xed\xa0\x80",
    ],
)
def test_payloads_and_results_are_any_bytes_and_come_back_unchanged(
    shared_wire: Wire, payload: bytes
) -> None:
    peer, id, name = shared_wire.connect("workq"), new_id(), new_name()
    exchange(peer, add(id, name, payload), OK)
    assert job(peer, id)["payload"] == payload
    exchange(peer, lease(name), leased(id, name, payload))
    exchange(peer, complete(id, payload), OK)
    exchange(peer, result(id), succeeded(id, payload))
    expect_in_step(peer)


def test_the_largest_payload_and_the_largest_result_are_taken(shared_wire: Wire) -> None:
    peer, id, name = shared_wire.connect("workq"), new_id(), new_name()
    payload = b"\r\n" + b"p" * (MAX_PAYLOAD - 4) + b"\r\n"
    exchange(peer, add(id, name, payload), OK)
    exchange(peer, lease(name), leased(id, name, payload))
    exchange(peer, complete(id, payload[::-1]), OK)
    exchange(peer, result(id), succeeded(id, payload[::-1]))


def test_the_largest_result_of_a_failure_is_taken(shared_wire: Wire) -> None:
    peer, id, name = shared_wire.connect("workq"), new_id(), new_name()
    exchange(peer, add(id, name), OK)
    exchange(peer, fail(id, b"f" * MAX_PAYLOAD), OK)
    exchange(peer, result(id), failed(id, b"f" * MAX_PAYLOAD))


def commands_with_payload(id: bytes, payload: bytes) -> dict[str, bytes]:
    """Each command that brings bytes along, for an id that may be used once."""
    return {
        "add": add(id, payload=payload),
        "schedule": schedule(id, payload=payload, time=b"2100-01-01T00:00:00Z"),
        "run": run(id, payload=payload, wait=0),
        "complete": complete(id, payload),
        "fail": fail(id, payload),
    }


COMMANDS = sorted(commands_with_payload(b"", b""))


def size_error(command: str) -> bytes:
    return RESULT_SIZE if command == "fail" else PAYLOAD_SIZE


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("size", [MAX_PAYLOAD + 1, MAX_PAYLOAD + 100_000])
def test_a_payload_that_is_too_large_is_refused_and_dropped(
    shared_wire: Wire, command: str, size: int
) -> None:
    peer, id = shared_wire.connect("workq"), new_id()
    payload = (b"inspect server\r\n" * (size // 16 + 1))[:size]
    exchange(peer, commands_with_payload(id, payload)[command], size_error(command))
    expect_in_step(peer)
    assert not is_there(peer, id)


def test_the_largest_payload_that_is_dropped_is_of_64_mib(yard: SimulatedWire) -> None:
    peer, id = yard.connect("workq"), new_id()
    peer.send(b"add %b ping 1000 60000 %d\r\n" % (id, LARGEST_DROPPED))
    peer.expect(PAYLOAD_SIZE)
    piece = b"bogus\r\n " * (1 << 17)
    for _ in range(LARGEST_DROPPED // len(piece)):
        peer.send(piece)
    peer.send(b"\r\n")
    expect_in_step(peer)


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("pieces", [1, 3, 1 << 20])
def test_a_size_that_is_too_large_is_refused_before_the_payload_comes(
    command: str, pieces: int
) -> None:
    yard = SimulatedServer(settings=EngineSettings(payload_limit=50))
    peer, id = yard.connect("workq"), new_id()
    line, _, rest = commands_with_payload(id, b"bogus\r\n" * 10)[command].partition(b"\r\n")
    peer.send(line + b"\r\n")
    peer.expect(size_error(command))
    step = -(-len(rest) // pieces)
    for start in range(0, len(rest), step):
        peer.send(rest[start : start + step])
        peer.expect_nothing()
    expect_in_step(peer)
    assert not is_there(peer, id)


def test_what_is_wrong_before_the_size_is_said_of_one_that_is_too_large() -> None:
    yard = SimulatedServer(settings=EngineSettings(payload_limit=50))
    peer = yard.connect("workq")
    exchange(peer, b"add none ping 1000 60000 51\r\n", client_error("Invalid ID"))
    peer.send(b"x" * 51 + b"\r\n")
    expect_in_step(peer)


def test_a_payload_longer_than_the_size_that_was_too_large_is_dropped_to_its_end() -> None:
    yard = SimulatedServer(settings=EngineSettings(payload_limit=50))
    peer = yard.connect("workq")
    exchange(peer, b"add %b ping 1000 60000 51\r\n" % new_id(), PAYLOAD_SIZE)
    peer.send(b"x" * 60 + b"\r\n")
    peer.expect_nothing()
    expect_in_step(peer)


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("missing", [1, 2, 3, 6])
def test_a_payload_that_ends_with_the_connection_is_refused(command: str, missing: int) -> None:
    yard = SimulatedServer()
    peer, id = yard.connect("workq"), new_id()
    exchange(peer, add(id), OK)
    other = new_id() if command in {"add", "schedule", "run"} else id
    peer.arrive(commands_with_payload(other, b"ping")[command][:-missing])
    peer.expect_nothing()
    assert peer.receiver is not None
    peer.receiver.on_eof()
    yard.run_pending()
    peer.expect(size_error(command))
    peer.expect_closed()
    client = yard.connect("workq")
    assert job(client, id)["state"] == b"0"
    assert other == id or not is_there(client, other)


def test_a_server_that_stops_does_not_blame_the_client_for_half_a_payload() -> None:
    yard = SimulatedServer()
    peer = yard.connect("workq")
    peer.send(add(new_id())[:-3])
    yard.stop()
    peer.expect_closed()


def test_what_was_refused_by_its_size_is_refused_once_though_the_connection_ends() -> None:
    yard = SimulatedServer(settings=EngineSettings(payload_limit=50))
    peer = yard.connect("workq")
    peer.arrive(b"add %b ping 1000 60000 51\r\nxx" % new_id())
    assert peer.receiver is not None
    peer.receiver.on_eof()
    yard.run_pending()
    peer.expect(PAYLOAD_SIZE)
    peer.expect_closed()


def test_a_lower_limit_of_the_server_is_the_limit_here_too() -> None:
    yard = SimulatedServer(settings=EngineSettings(payload_limit=1000))
    peer, id, other = yard.connect("workq"), new_id(), new_id()
    exchange(peer, add(id, payload=b"x" * 1000), OK)
    exchange(peer, add(other, payload=b"x" * 1001), PAYLOAD_SIZE)
    exchange(peer, complete(id, b"x" * 1001), PAYLOAD_SIZE)
    exchange(peer, fail(id, b"x" * 1001), RESULT_SIZE)
    exchange(peer, complete(id, b"x" * 1000), OK)
    expect_in_step(peer)
    assert not is_there(peer, other)


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("size", [LARGEST_DROPPED + 1, 1 << 64, 10**40])
def test_a_size_beyond_64_mib_closes_the_connection(
    yard: SimulatedWire, command: str, size: int
) -> None:
    peer, id = yard.connect("workq"), new_id()
    peer.send(commands_with_payload(id, b"")[command].replace(b" 0\r\n", b" %d\r\n" % size))
    peer.expect(size_error(command))
    peer.expect_closed()
    assert not is_there(yard.connect("workq"), id)


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize(
    "size", [b"four", b"4x", b"0x4", b"4.0", b"1e1", b"4,0", b"\xd9\xa4", b"4_0"]
)
def test_nothing_is_taken_for_the_payload_of_a_size_that_is_no_number(
    shared_wire: Wire, command: str, size: bytes
) -> None:
    peer, id = shared_wire.connect("workq"), new_id()
    line = commands_with_payload(id, b"")[command].partition(b" 0\r\n")[0]
    exchange(peer, line + b" " + size + b"\r\n", size_error(command))
    exchange(peer, b"ping\r\n", UNKNOWN)
    expect_in_step(peer)
    assert not is_there(peer, id)


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize(
    "behind",
    [b"X\r\n", b"XX\r\n", b"\rX\r\n", b"X\n\r\n", b"\n\r\n", b"\r\r\n", b"inspect server\r\n"],
)
def test_a_payload_longer_than_its_size_is_skipped_up_to_the_end_of_its_line(
    shared_wire: Wire, command: str, behind: bytes
) -> None:
    peer, id = shared_wire.connect("workq"), new_id()
    sent = commands_with_payload(id, b"ping")[command].removesuffix(b"\r\n") + behind
    exchange(peer, sent, size_error(command))
    expect_in_step(peer)
    assert not is_there(peer, id)


@pytest.mark.parametrize("command", COMMANDS)
def test_a_payload_shorter_than_its_size_takes_the_next_line_with_it(
    shared_wire: Wire, command: str
) -> None:
    peer, id = shared_wire.connect("workq"), new_id()
    sent = commands_with_payload(id, b"ping")[command].replace(b" 4\r\n", b" 6\r\n")
    peer.send(sent)
    peer.expect_nothing()
    exchange(peer, b"inspect server\r\n", size_error(command))
    expect_in_step(peer)
    assert not is_there(peer, id)
