"""Pqueue at the wire: scores, the order in which items leave, and what it says of itself."""

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from support.effort import effort
from support.resp import ErrorReply, RespClient, SimulatedSide, ask, command, inline, value
from support.simulated import SimulatedServer
from support.sockets import SocketWire
from support.wire import Peer, SimulatedWire, Wire, exchange

HIGHEST = 2**63 - 1
LOWEST = -(2**63)
NIL = b"$-1\r\n"
OVERFLOW = b"-ERR increment or decrement would overflow\r\n"
NOT_AN_INTEGER = b"-ERR value is not an integer or out of range\r\n"

# Sessions that say most of what there is to say: what is sent, what comes back.
SESSIONS = {
    "update": [
        (b"UPDATE foo 123\r\n", b":123\r\n"),
        (b"UPDATE foo -12\r\n", b":111\r\n"),
    ],
    "next": [
        (b"UPDATE foo 123\r\n", b":123\r\n"),
        (b"NEXT\r\n", b"+foo\r\n"),
        (b"NEXT\r\n", NIL),
    ],
    "peek": [
        (b"UPDATE foo 123\r\n", b":123\r\n"),
        (b"PEEK\r\n", b"+foo\r\n"),
        (b"NEXT\r\n", b"+foo\r\n"),
        (b"PEEK\r\n", NIL),
    ],
    "peek at a key": [
        (b"UPDATE foo 123\r\n", b":123\r\n"),
        (b"UPDATE bar 7\r\n", b":7\r\n"),
        (b"PEEK bar\r\n", b"+bar\r\n"),
        (b"PEEK baz\r\n", NIL),
        (b"PEEK BAR\r\n", NIL),
    ],
    "score": [
        (b"SCORE foo\r\n", NIL),
        (b"UPDATE foo 123\r\n", b":123\r\n"),
        (b"SCORE foo\r\n", b":123\r\n"),
        (b"NEXT\r\n", b"+foo\r\n"),
        (b"SCORE foo\r\n", NIL),
    ],
    "no score": [
        (b"UPDATE foo\r\n", b":1\r\n"),
        (b"UPDATE foo\r\n", b":2\r\n"),
        (b"UPDATE foo -5\r\n", b":-3\r\n"),
        (b"UPDATE foo\r\n", b":-2\r\n"),
    ],
    "highest first": [
        (b"UPDATE low -5\r\n", b":-5\r\n"),
        (b"UPDATE high 5\r\n", b":5\r\n"),
        (b"UPDATE middle 0\r\n", b":0\r\n"),
        (b"NEXT\r\n", b"+high\r\n"),
        (b"NEXT\r\n", b"+middle\r\n"),
        (b"NEXT\r\n", b"+low\r\n"),
    ],
    "longest at its score first": [
        (b"UPDATE a 5\r\n", b":5\r\n"),
        (b"UPDATE b 5\r\n", b":5\r\n"),
        (b"UPDATE c 4\r\n", b":4\r\n"),
        (b"UPDATE a 1\r\n", b":6\r\n"),
        (b"UPDATE a -1\r\n", b":5\r\n"),
        (b"UPDATE c 1\r\n", b":5\r\n"),
        (b"NEXT\r\n", b"+b\r\n"),
        (b"NEXT\r\n", b"+a\r\n"),
        (b"NEXT\r\n", b"+c\r\n"),
    ],
    "an item that left is new": [
        (b"UPDATE foo 10\r\n", b":10\r\n"),
        (b"NEXT\r\n", b"+foo\r\n"),
        (b"UPDATE foo 1\r\n", b":1\r\n"),
    ],
    "commands in any case": [
        (b"update foo 1\r\n", b":1\r\n"),
        (b"Update foo 1\r\n", b":2\r\n"),
        (b"peek\r\n", b"+foo\r\n"),
        (b"sCoRe foo\r\n", b":2\r\n"),
        (b"next\r\n", b"+foo\r\n"),
    ],
    "keys in their own case": [
        (b"UPDATE foo 1\r\n", b":1\r\n"),
        (b"UPDATE Foo 2\r\n", b":2\r\n"),
        (b"NEXT\r\n", b"+Foo\r\n"),
        (b"NEXT\r\n", b"+foo\r\n"),
    ],
    "the largest and the smallest score": [
        (b"UPDATE max %d\r\n" % HIGHEST, b":%d\r\n" % HIGHEST),
        (b"UPDATE max 1\r\n", OVERFLOW),
        (b"UPDATE max\r\n", OVERFLOW),
        (b"SCORE max\r\n", b":%d\r\n" % HIGHEST),
        (b"UPDATE min %d\r\n" % LOWEST, b":%d\r\n" % LOWEST),
        (b"UPDATE min -1\r\n", OVERFLOW),
        (b"SCORE min\r\n", b":%d\r\n" % LOWEST),
        (b"UPDATE zero 0\r\n", b":0\r\n"),
        (b"NEXT\r\n", b"+max\r\n"),
        (b"NEXT\r\n", b"+zero\r\n"),
        (b"UPDATE min %d\r\n" % HIGHEST, b":-1\r\n"),
        (b"NEXT\r\n", b"+min\r\n"),
    ],
    "beyond 64 bits": [
        (b"UPDATE foo %d\r\n" % (HIGHEST + 1), NOT_AN_INTEGER),
        (b"UPDATE foo %d\r\n" % (LOWEST - 1), NOT_AN_INTEGER),
        (b"UPDATE foo %b\r\n" % (b"9" * 100), NOT_AN_INTEGER),
        (b"SCORE foo\r\n", NIL),
        (b"PEEK\r\n", NIL),
    ],
    "no integers": [
        (b"UPDATE foo x\r\n", NOT_AN_INTEGER),
        (b"UPDATE foo 1.5\r\n", NOT_AN_INTEGER),
        (b"UPDATE foo +1\r\n", NOT_AN_INTEGER),
        (b'UPDATE foo ""\r\n', NOT_AN_INTEGER),
        (b"NEXT\r\n", NIL),
    ],
    "too few and too many": [
        (b"UPDATE\r\n", b"-ERR wrong number of arguments for 'update' command\r\n"),
        (b"UPDATE a 1 2\r\n", b"-ERR wrong number of arguments for 'update' command\r\n"),
        (b"NEXT a\r\n", b"-ERR wrong number of arguments for 'next' command\r\n"),
        (b"PEEK a b\r\n", b"-ERR wrong number of arguments for 'peek' command\r\n"),
        (b"SCORE\r\n", b"-ERR wrong number of arguments for 'score' command\r\n"),
        (b"score a b\r\n", b"-ERR wrong number of arguments for 'score' command\r\n"),
        (b"PING\r\n", b"+PONG\r\n"),
    ],
    "databases": [
        (b"UPDATE foo 1\r\n", b":1\r\n"),
        (b"SELECT 1\r\n", b"+OK\r\n"),
        (b"PEEK\r\n", NIL),
        (b"UPDATE foo 5\r\n", b":5\r\n"),
        (b"SELECT 0\r\n", b"+OK\r\n"),
        (b"SCORE foo\r\n", b":1\r\n"),
    ],
}
sessions = pytest.mark.parametrize("session", SESSIONS.values(), ids=SESSIONS)
Session = list[tuple[bytes, bytes]]


def as_array(line: bytes) -> bytes:
    """The same request as a client library sends it."""
    words = line.replace(b'""', b"\0").split()
    return command(*(b"" if word == b"\0" else word for word in words))


@sessions
def test_a_session_typed_by_hand(yard: SimulatedWire, session: Session) -> None:
    peer = yard.connect("resp")
    for sent, received in session:
        exchange(peer, sent, received)


def test_all_sessions_before_a_server_process(module_socket_server: SocketWire) -> None:
    peer = module_socket_server.connect("resp")
    for session in SESSIONS.values():
        for sent, received in session:
            exchange(peer, sent, received)
        peer.send(b"DEL pqueue pqueue:1\r\n")
        assert peer.read_line().startswith(b":")


@sessions
def test_a_session_of_a_client_library(yard: SimulatedWire, session: Session) -> None:
    peer = yard.connect("resp")
    for sent, received in session:
        exchange(peer, as_array(sent), received)


@sessions
@pytest.mark.parametrize("form", [bytes, as_array])
def test_a_session_in_one_piece(yard: SimulatedWire, session: Session, form: type[bytes]) -> None:
    peer = yard.connect("resp")
    peer.send(b"".join(form(sent) for sent, _ in session))
    peer.expect(b"".join(received for _, received in session))
    peer.expect_nothing()


@pytest.mark.parametrize("form", [bytes, as_array])
@pytest.mark.parametrize("name", ["longest at its score first", "too few and too many"])
def test_a_session_that_is_split_anywhere(name: str, form: type[bytes]) -> None:
    data = b"".join(form(sent) for sent, _ in SESSIONS[name])
    wanted = b"".join(received for _, received in SESSIONS[name])
    for at in range(1, len(data)):
        peer = SimulatedServer().connect("resp")
        peer.send(data[:at])
        peer.send(data[at:])
        peer.expect(wanted)
        peer.expect_nothing()


@pytest.mark.parametrize("form", [bytes, as_array])
def test_a_session_byte_by_byte(yard: SimulatedWire, form: type[bytes]) -> None:
    peer = yard.connect("resp")
    for sent, received in SESSIONS["longest at its score first"]:
        for byte in form(sent):
            peer.expect_nothing()
            peer.send(bytes([byte]))
        peer.expect(received)


def test_lines_may_end_with_a_line_feed_alone(yard: SimulatedWire) -> None:
    peer = yard.connect("resp")
    exchange(peer, b"UPDATE foo 3\nNEXT\n\n\r\nNEXT\n", b":3\r\n+foo\r\n$-1\r\n")


@pytest.mark.parametrize("key", [b"", b"a b", b"a\n", b"\r\n", b" ", b"\ta"])
def test_a_key_has_no_spaces_and_no_newlines(yard: SimulatedWire, key: bytes) -> None:
    peer = yard.connect("resp")
    refusal = b"-ERR invalid item key: it must not be empty or have spaces or newlines\r\n"
    exchange(peer, command("UPDATE", key, 5), refusal)
    exchange(peer, b"PEEK\r\n", NIL)


@pytest.mark.parametrize(
    "key", ["naïve".encode(), b"\xff\xfe", b"\x00", b"k" * 1000, b"+OK", b"-1"]
)
def test_a_key_of_any_other_bytes(yard: SimulatedWire, key: bytes) -> None:
    peer = yard.connect("resp")
    exchange(peer, command("UPDATE", key, 5), b":5\r\n")
    exchange(peer, inline("UPDATE", key, 5), b":10\r\n")
    exchange(peer, command("PEEK", key), b"+%b\r\n" % key)
    exchange(peer, b"NEXT\r\n", b"+%b\r\n" % key)


@pytest.mark.parametrize(
    ("data", "refusal"),
    [
        (b"*x\r\n", b"-ERR Protocol error: invalid multibulk length\r\n"),
        (b"*1\r\n:4\r\n", b"-ERR Protocol error: expected '$', got ':'\r\n"),
        (b"*1\r\n$x\r\n", b"-ERR Protocol error: invalid bulk length\r\n"),
        (b'UPDATE "foo\r\n', b"-ERR Protocol error: unbalanced quotes in request\r\n"),
    ],
)
def test_bytes_that_cannot_be_parsed_are_the_end(
    yard: SimulatedWire, data: bytes, refusal: bytes
) -> None:
    peer, other = yard.connect("resp"), yard.connect("resp")
    peer.send(b"UPDATE foo 1\r\n" + data + b"UPDATE foo 1\r\n")
    peer.expect(b":1\r\n" + refusal)
    peer.expect_closed()
    exchange(other, b"SCORE foo\r\n", b":1\r\n")


# INFO


def info(peer: Peer) -> dict[bytes, int]:
    """In the order and the form of the protocol's own example."""
    peer.send(b"INFO\r\n")
    peer.expect(b"*12\r\n")
    found = {}
    for name in (b"pools", b"updates", b"connected", b"connections", b"ops", b"items"):
        peer.expect(b"$%d\r\n%b\r\n:" % (len(name), name))
        found[name] = int(peer.read_line())
    return found


def test_info_counts_pools_items_updates_and_commands(yard: SimulatedWire) -> None:
    peer = yard.connect("resp")
    for line in (b"UPDATE a 5", b"UPDATE b 5", b"UPDATE c 1", b"UPDATE a 1"):
        peer.send(line + b"\r\n")
        peer.read_line()
    told = info(peer)
    assert told == {
        b"pools": 3,
        b"updates": 4,
        b"connected": 1,
        b"connections": 1,
        b"ops": 5,
        b"items": 3,
    }
    exchange(peer, b"NEXT\r\n", b"+a\r\n")
    told = info(peer)
    assert (told[b"pools"], told[b"items"], told[b"ops"]) == (2, 2, 7)


def test_info_counts_connections(wire: Wire) -> None:
    first = wire.connect("resp")
    before = info(first)
    others = [wire.connect("resp") for _ in range(3)]
    for other in others:
        exchange(other, b"PING\r\n", b"+PONG\r\n")
    told = info(first)
    assert told[b"connected"] == before[b"connected"] + 3
    assert told[b"connections"] == before[b"connections"] + 3


def test_those_who_have_left_are_not_connected(yard: SimulatedWire) -> None:
    first, second = yard.connect("resp"), yard.connect("resp")
    second.close()
    told = info(first)
    assert (told[b"connected"], told[b"connections"]) == (1, 2)


def test_info_with_a_section_is_the_text_of_redis(yard: SimulatedWire) -> None:
    client = yard.connect("resp")
    client.send(b"INFO server\r\n")
    assert client.read_line().startswith(b"$")
    assert client.read_line() == b"# Server\r\n"
    assert client.read_line().startswith(b"redis_version:7.")


# What lasts, and who else sees it


def test_scores_and_their_order_outlive_a_restart(wire: Wire) -> None:
    peer = wire.connect("resp")
    for key, score in ((b"a", 1), (b"b", 2), (b"c", 1), (b"a", 1)):
        peer.send(command("UPDATE", key, score))
        assert peer.read_line().startswith(b":")
    wire.restart()
    peer = wire.connect("resp")
    exchange(peer, b"UPDATE d 2\r\n", b":2\r\n")
    exchange(peer, b"NEXT\r\n" * 5, b"+b\r\n+a\r\n+d\r\n+c\r\n" + NIL)


def test_nothing_is_spelt_in_the_way_of_the_newer_protocol() -> None:
    client = SimulatedSide(SimulatedServer()).connect()
    assert ask(client, "HELLO", 3).startswith(b"%7\r\n")
    for words in (("NEXT",), ("PEEK",), ("PEEK", "a"), ("SCORE", "a")):
        assert ask(client, *words) == b"_\r\n"
    assert ask(client, "UPDATE", "a", 1) == b":1\r\n"
    assert ask(client, "NEXT") == b"+a\r\n"


def test_a_list_has_no_keys(yard: SimulatedWire) -> None:
    """What others push into the queue leaves by NEXT too, but only UPDATE makes items."""
    peer = yard.connect("resp")
    exchange(peer, b"RPUSH pqueue foo\r\n", b":1\r\n")
    exchange(peer, b"SCORE foo\r\n", NIL)
    exchange(peer, b"UPDATE foo 5\r\n", b":5\r\n")
    exchange(peer, b"LLEN pqueue\r\n", b":2\r\n")
    exchange(peer, b"NEXT\r\nNEXT\r\nNEXT\r\n", b"+foo\r\n+foo\r\n" + NIL)


def test_what_cannot_be_a_simple_string_is_a_bulk_string(yard: SimulatedWire) -> None:
    peer = yard.connect("resp")
    exchange(peer, command("RPUSH", "pqueue", b"two\r\nlines"), b":1\r\n")
    exchange(peer, b"PEEK\r\n", b"$10\r\ntwo\r\nlines\r\n")
    exchange(peer, b"NEXT\r\n", b"$10\r\ntwo\r\nlines\r\n")


def test_an_item_that_somebody_holds_is_not_queued(yard: SimulatedWire) -> None:
    peer, worker = yard.connect("resp"), yard.connect("masenko")
    exchange(peer, b"UPDATE 1 5\r\n", b":5\r\n")
    worker.send(b'FETCH {"queues":["pqueue"]}\n')
    assert b'"payload":1' in worker.read_line()
    exchange(peer, b"SCORE 1\r\nPEEK 1\r\nNEXT\r\n", NIL * 3)
    exchange(peer, b"UPDATE 1 2\r\n", b":2\r\n")
    exchange(peer, b"NEXT\r\n", b"+1\r\n")


# Against a model


class Model:
    """Items with their scores, in the order in which they came to them."""

    def __init__(self) -> None:
        self.scores: dict[bytes, int] = {}
        self.order: list[bytes] = []

    def update(self, key: bytes, change: int) -> int | None:
        score = self.scores.get(key, 0) + change
        if not LOWEST <= score <= HIGHEST:
            return None
        if key in self.scores:
            self.order.remove(key)
        self.scores[key] = score
        self.order.append(key)
        return score

    def peek(self) -> bytes | None:
        return max(self.order, key=lambda key: self.scores[key], default=None)

    def next(self) -> bytes | None:
        key = self.peek()
        if key is not None:
            self.order.remove(key)
            del self.scores[key]
        return key


changes = st.one_of(
    st.integers(-3, 3),
    st.integers(LOWEST, HIGHEST),
    st.sampled_from([LOWEST, LOWEST + 1, HIGHEST - 1, HIGHEST]),
)
item_keys = st.sampled_from([b"a", b"b", b"c", b"A", b"\xff", b"10"])


class PqueueMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.yard = SimulatedServer()
        self.client: RespClient = SimulatedSide(self.yard).connect()
        self.model = Model()

    def ask(self, *words: bytes | int) -> object:
        return value(ask(self.client, *words))

    @rule(key=item_keys, change=changes)
    def update(self, key: bytes, change: int) -> None:
        told = self.ask(b"UPDATE", key, change)
        wanted = self.model.update(key, change)
        if wanted is None:
            assert isinstance(told, ErrorReply)
        else:
            assert told == wanted

    @rule(key=item_keys)
    def update_by_one(self, key: bytes) -> None:
        told = self.ask(b"UPDATE", key)
        wanted = self.model.update(key, 1)
        assert isinstance(told, ErrorReply) if wanted is None else told == wanted

    @rule()
    def next(self) -> None:
        assert self.ask(b"NEXT") == self.model.next()

    @rule(key=item_keys)
    def score(self, key: bytes) -> None:
        assert self.ask(b"SCORE", key) == self.model.scores.get(key)

    @rule(key=item_keys)
    def peek_at(self, key: bytes) -> None:
        assert self.ask(b"PEEK", key) == (key if key in self.model.scores else None)

    @rule()
    def restart(self) -> None:
        self.yard.restart()
        self.client = SimulatedSide(self.yard).connect()

    @rule()
    def crash(self) -> None:
        self.yard.crash()
        self.client = SimulatedSide(self.yard).connect()

    @invariant()
    def is_as_the_model_has_it(self) -> None:
        assert self.ask(b"PEEK") == self.model.peek()
        told = self.ask(b"INFO")
        assert isinstance(told, list)
        counts = dict(zip(told[::2], told[1::2], strict=True))
        assert counts[b"items"] == len(self.model.order)
        assert counts[b"pools"] == len(set(self.model.scores.values()))


TestPqueueAgainstAModel = PqueueMachine.TestCase
TestPqueueAgainstAModel.settings = settings(max_examples=effort(40, 12), stateful_step_count=30)
