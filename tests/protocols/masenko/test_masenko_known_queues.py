"""Masenko FETCH on queues that are there: it means what its JSON says, whatever came before."""

import pytest
from support.api import ApiClient
from support.simulated import SimulatedServer
from support.wire import Peer, SimulatedWire, Wire, exchange, queue_counts

DEFAULT_WAIT = 22.5  # seconds: half the heartbeat


def push(peer: Peer, id: int, spelled: bytes) -> None:
    """Push the server's job number `id` to the queue that JSON spells so."""
    exchange(peer, b'PUSH {"name":"n","queue":"%b"}\n' % spelled, b'OK {"id":%d}\n' % id)


def given(id: int, spelled: bytes) -> bytes:
    return b'OK {"id":%d,"queue":"%b","name":"n"}\n' % (id, spelled)


def expect_wait(yard: SimulatedWire, peer: Peer, fetch: bytes, seconds: float) -> None:
    """The fetch is answered with nothing after this time and not before."""
    peer.send(fetch)
    yard.advance(seconds - 0.01)
    peer.expect_nothing()
    yard.advance(0.02)
    peer.expect(b"EMPTY {}\n")


@pytest.fixture
def idle(yard: SimulatedWire) -> SimulatedWire:
    """The queues a and b are known, and empty; the next job is number 3."""
    peer = yard.connect()
    for id, name in ((1, b"a"), (2, b"b")):
        push(peer, id, name)
        exchange(peer, b'FETCH {"queues":["%b"]}\n' % name, given(id, name))
        exchange(peer, b'ACK {"id":%d}\n' % id, b"OK {}\n")
    return yard


# What is no JSON


@pytest.mark.parametrize("before", [b'{"queues":["a"]}', b'{"queues":["a"],"timeout":5}'])
@pytest.mark.parametrize("body", [b'{"queues":["]}', b'{"queues":["],"timeout":5}'])
def test_a_quote_that_is_both_begin_and_end_of_a_name_is_none(
    idle: SimulatedWire, before: bytes, body: bytes
) -> None:
    peer = idle.connect()
    push(peer, 3, b"a")
    exchange(peer, b"FETCH " + before + b"\n", given(3, b"a"))
    exchange(peer, b"FETCH " + body + b"\n", b'ERR {"msg":"cannot unmarshal payload"}\n')
    exchange(peer, b'ACK {"id":3}\n', b"OK {}\n")


def test_such_a_one_behind_a_fetch_that_waits_harms_nobody_else(idle: SimulatedWire) -> None:
    odd, other, pusher = idle.connect(), idle.connect(), idle.connect()
    odd.send(b'FETCH {"queues":["a"]}\nFETCH {"queues":["]}\n')
    other.send(b'FETCH {"queues":["a"]}\n')
    push(pusher, 3, b"a")
    push(pusher, 4, b"a")
    odd.expect(given(3, b"a") + b'ERR {"msg":"cannot unmarshal payload"}\n')
    other.expect(given(4, b"a"))


# Names


def test_a_known_queue_is_taken_from_again_and_again(wire: Wire) -> None:
    peer = wire.connect()
    for id in (1, 2, 3):
        push(peer, id, b"a")
        exchange(peer, b'FETCH {"queues":["a"]}\n', given(id, b"a"))


def test_a_name_that_looks_like_two_is_not_taken_for_them(wire: Wire) -> None:
    """The queue `a","b` is known: a list of a and b is spelled just like it."""
    peer = wire.connect()
    push(peer, 1, rb"a\",\"b")
    push(peer, 2, b"a")
    push(peer, 3, b"b")
    both = b'FETCH {"queues":["a","b"]}\n'
    exchange(peer, both, given(2, b"a"))
    exchange(wire.connect(), both, given(3, b"b"))
    exchange(peer, rb'FETCH {"queues":["a\",\"b"]}' + b"\n", given(1, rb"a\",\"b"))


def test_nor_while_neither_of_the_two_has_a_job(yard: SimulatedWire) -> None:
    peer = yard.connect()
    push(peer, 1, rb"a\",\"b")
    expect_wait(yard, peer, b'FETCH {"queues":["a","b"]}\n', DEFAULT_WAIT)
    assert queue_counts(peer) == {'a","b': (1, 0, 0)}


def test_an_escape_means_the_character_it_stands_for(wire: Wire) -> None:
    r"""Although there is a queue whose name is the six characters \u0061."""
    peer = wire.connect()
    push(peer, 1, rb"\\u0061")
    push(peer, 2, b"a")
    escaped = rb'FETCH {"queues":["\u0061"]}' + b"\n"
    exchange(peer, escaped, given(2, b"a"))
    exchange(peer, rb'FETCH {"queues":["\\u0061"]}' + b"\n", given(1, rb"\\u0061"))
    push(peer, 3, b"a")
    exchange(wire.connect(), escaped, given(3, b"a"))


def test_a_backslash_before_the_quote_leaves_the_name_without_an_end(wire: Wire) -> None:
    peer = wire.connect()
    push(peer, 1, rb"a\\")
    exchange(peer, rb'FETCH {"queues":["a\"]}' + b"\n", b'ERR {"msg":"cannot unmarshal payload"}\n')
    exchange(peer, rb'FETCH {"queues":["a\\"]}' + b"\n", given(1, rb"a\\"))


def test_a_name_beyond_ascii_is_known_by_its_bytes_and_by_its_escapes(wire: Wire) -> None:
    peer = wire.connect()
    name = "k\u00f6nig\U0001f451".encode()
    push(peer, 1, name)
    push(peer, 2, name)
    exchange(peer, b'FETCH {"queues":["%b"]}\n' % name, given(1, name))
    escaped = rb'FETCH {"queues":["k\u00f6nig\ud83d\udc51"]}' + b"\n"
    exchange(peer, escaped, given(2, name))


@pytest.mark.parametrize(
    "body",
    [
        b'{"queues":["a"',
        b'{"queues":["a"]',
        b'{"queues":["a"}',
        b'{"queues":["a"]}}',
        b'{"queues":["a]}',
        b'{"queues":[a"]}',
        b'{"queues":["a"],}',
        b'{"queues":["]}',
        b'{"queues":["a"],"timeout":"1s"',
    ],
)
def test_what_is_no_json_is_refused_although_the_queue_is_known(wire: Wire, body: bytes) -> None:
    peer = wire.connect()
    push(peer, 1, b"a")
    push(peer, 2, b"a")
    exchange(peer, b'FETCH {"queues":["a"],"timeout":"1s"}\n', given(1, b"a"))
    exchange(peer, b"FETCH " + body + b"\n", b'ERR {"msg":"cannot unmarshal payload"}\n')
    exchange(peer, b'FETCH {"queues":["a"]}\n', given(2, b"a"))


@pytest.mark.parametrize(
    "body",
    [
        b'{"queues":["a" ]}',
        b'{"queues":["a"] }',
        b'{ "queues":["a"]}',
        b'{"queues": ["a"]}',
        b'{"queues":[ "a"]}',
        b'{"queues":["a"],"timeout":null}',
        b'{"timeout":"1s","queues":["a"]}',
        b'{"queues":["a"],"x":["b"]}',
        b'{"queues":["a","a"]}',
        b'{"queues":["b"],"queues":["a"]}',
    ],
)
def test_any_spelling_finds_the_queue_it_names(yard: SimulatedWire, body: bytes) -> None:
    peer = yard.connect()
    push(peer, 1, b"b")
    for id in (2, 3, 4):
        push(peer, id, b"a")
    for id, other in ((2, peer), (3, peer), (4, yard.connect())):
        exchange(other, b"FETCH " + body + b"\n", given(id, b"a"))
    assert queue_counts(peer)["b"] == (1, 0, 0)


@pytest.mark.parametrize(
    ("before", "body"),
    [
        (b'{"queues":["a"],"queues":["a"]}', b'{"queues":["b"],"queues":["a"]}'),
        (b'{"queues":["ab"],"queues":["a"]}', b'{"queues":["bb"],"queues":["a"]}'),
        (
            rb'{"queues":["a"],"\u0071ueues":["\u0061"]}',
            rb'{"queues":["b"],"\u0071ueues":["\u0061"]}',
        ),
    ],
)
def test_of_two_lists_the_last_one_counts_whatever_was_asked_before(
    yard: SimulatedWire, before: bytes, body: bytes
) -> None:
    peer = yard.connect()
    push(peer, 1, b"a")
    push(peer, 2, b"a")
    push(peer, 3, b"b")
    exchange(peer, b"FETCH " + before + b"\n", given(1, b"a"))
    exchange(peer, b"FETCH " + body + b"\n", given(2, b"a"))


def test_null_behind_a_list_means_the_default_queue_whatever_was_asked_before(
    yard: SimulatedWire,
) -> None:
    peer = yard.connect()
    push(peer, 1, b"default")
    push(peer, 2, b"default")
    push(peer, 3, b"b")
    first = b'FETCH {"queues":["default"],"queues":null}\n'
    exchange(peer, first, given(1, b"default"))
    exchange(peer, b'FETCH {"queues":["b"],"queues":null}\n', given(2, b"default"))


# How long


def test_a_timeout_of_one_fetch_is_not_that_of_the_next(idle: SimulatedWire) -> None:
    peer = idle.connect()
    plain = b'FETCH {"queues":["a"]}\n'
    short = b'FETCH {"queues":["a"],"timeout":"1s"}\n'
    other = b'FETCH {"queues":["a"],"timeout":"3s"}\n'
    for fetch, seconds in (
        (short, 1),
        (plain, DEFAULT_WAIT),
        (short, 1),
        (short, 1),
        (other, 3),
        (plain, DEFAULT_WAIT),
        (plain, DEFAULT_WAIT),
        (other, 3),
    ):
        expect_wait(idle, peer, fetch, seconds)


def test_nor_that_of_another_client(idle: SimulatedWire) -> None:
    first, second = idle.connect(), idle.connect()
    expect_wait(idle, first, b'FETCH {"queues":["a"],"timeout":"1s"}\n', 1)
    expect_wait(idle, second, b'FETCH {"queues":["a"]}\n', DEFAULT_WAIT)
    expect_wait(idle, first, b'FETCH {"queues":["b"]}\n', DEFAULT_WAIT)
    expect_wait(idle, second, b'FETCH {"queues":["b"],"timeout":"1s"}\n', 1)
    expect_wait(idle, first, b'FETCH {"queues":["a"],"timeout":"1s"}\n', 1)


def test_a_timeout_that_ends_like_another_is_its_own(idle: SimulatedWire) -> None:
    """What stands behind the name is compared as a whole."""
    peer = idle.connect()
    expect_wait(idle, peer, b'FETCH {"queues":["a"],"timeout":"1s"}\n', 1)
    expect_wait(idle, peer, b'FETCH {"queues":["a"],"timeout":"11s"}\n', 11)
    expect_wait(idle, peer, b'FETCH {"timeout":"4s","queues":["a"]}\n', 4)
    expect_wait(idle, peer, b'FETCH {"queues":["a"]}\n', DEFAULT_WAIT)


def test_a_refused_timeout_is_refused_again_and_changes_nothing(idle: SimulatedWire) -> None:
    peer = idle.connect()
    zero = b'ERR {"msg":"timeout must be greater than zero"}\n'
    for _ in range(2):
        exchange(peer, b'FETCH {"queues":["a"],"timeout":0}\n', zero)
        exchange(idle.connect(), b'FETCH {"queues":["b"],"timeout":0}\n', zero)
    expect_wait(idle, peer, b'FETCH {"queues":["a"]}\n', DEFAULT_WAIT)


def test_the_default_follows_the_heartbeat_from_the_first_fetch_on() -> None:
    yard = SimulatedServer(heartbeat=10.0)
    peer = yard.connect()
    push(peer, 1, b"a")
    exchange(peer, b'FETCH {"queues":["a"]}\n', given(1, b"a"))
    expect_wait(yard, peer, b'FETCH {"queues":["a"]}\n', 5)


# Queues that are not known


def test_an_unknown_queue_behind_a_known_one_is_waited_for(idle: SimulatedWire) -> None:
    worker, producer = idle.connect(), idle.connect()
    expect_wait(idle, worker, b'FETCH {"queues":["a"],"timeout":"2s"}\n', 2)
    expect_wait(idle, worker, b'FETCH {"queues":["c"],"timeout":"2s"}\n', 2)
    assert list(queue_counts(producer)) == ["a", "b"]
    worker.send(b'FETCH {"queues":["c"],"timeout":"2s"}\n')
    push(producer, 3, b"c")
    worker.expect(given(3, b"c"))


@pytest.mark.parametrize("name", [b"", b"two words", b"x" * 256])
def test_a_name_that_cannot_be_is_refused_behind_a_known_one(
    idle: SimulatedWire, name: bytes
) -> None:
    peer = idle.connect()
    push(peer, 3, b"a")
    exchange(peer, b'FETCH {"queues":["a"]}\n', given(3, b"a"))
    peer.send(b'FETCH {"queues":["%b"]}\n' % name)
    assert peer.read_line().startswith(b'ERR {"msg":"invalid queue name ')


def test_a_queue_that_was_deleted_meanwhile_is_waited_for() -> None:
    """Whoever remembers the one that was there does not see the one that comes after it."""
    yard = SimulatedServer()
    worker, producer = yard.connect(), yard.connect()
    fetch = b'FETCH {"queues":["a"],"timeout":"1s"}\n'
    push(producer, 1, b"a")
    exchange(worker, fetch, given(1, b"a"))
    exchange(worker, b'ACK {"id":1}\n', b"OK {}\n")
    ApiClient(yard).call("DELETE", "/api/v1/queues/a").ok()
    assert queue_counts(producer) == {}
    expect_wait(yard, worker, fetch, 1)
    expect_wait(yard, yard.connect(), fetch, 1)
    worker.send(fetch)
    push(producer, 2, b"a")
    worker.expect(given(2, b"a"))
