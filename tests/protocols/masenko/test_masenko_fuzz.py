"""Masenko under random input: one reply a line, never a crash, and the next client is served."""

from collections.abc import Callable
from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st
from support.effort import effort
from support.simulated import SimulatedServer
from support.wire import Peer, SimulatedWire, exchange, is_no_stray, queue_counts

WAIT_STEP = 5.0
STEPS_OF_A_HEARTBEAT = 10

GOOD_LINES = [
    b"PING",
    b"ping {}\r",
    b"INFO",
    b'PUSH {"name":"a"}',
    b'PUSH {"name":"b","queue":"q","payload":{"k":[1.50,null,"\xc3\xa9\\n"]},"retry":1}',
    b'PUSH {"name":"c","deadqueue":"dead","retry":0}',
    b'PUSH {"name":"d","execute_at":"2100-01-02T03:04:05.678+09:00"}',
    b'PUSH {"name":"e","blocked_by":[1,2]}',
    b'PUSH {"name":"f","blocked_by":[-1]}',
    b"FETCH",
    b'FETCH {"queues":["q","dead"],"timeout":"1.5s"}',
    b'FETCH {"queues":["default"],"timeout":250000000}',
    b'FETCH {"queues":[]}',
    b'ACK {"id":1}',
    b'ACK {"id":2}',
    b'NACK {"id":1}',
    b'NACK {"id":3}',
]
FRAMES = [b"ATOMIC", b"DONE", b"QUIT"]
INTERESTING = [
    b"\n",
    b"\r\n",
    b" ",
    b"\x00",
    b"\xff",
    b'"',
    b"\\",
    b"{",
    b"}",
    b"[[[[",
    b"]",
    b",",
    b":",
    b"-",
    b"1e999",
    b"99999999999999999999",
    b"null",
    b"true",
    b'"id":',
    b'"name":',
    b"\\ud800",
    b"\xed\xa0\x80",
]

Mutation = Callable[[bytes], bytes]


@st.composite
def mutations(draw: st.DrawFn) -> Mutation:
    """Replace one stretch of a line by another: a deletion, an insertion or a change."""
    start = draw(st.integers(0, 120))
    length = draw(st.integers(0, 6))
    filling = draw(st.one_of(st.binary(max_size=6), st.sampled_from(INTERESTING)))

    def mutate(line: bytes) -> bytes:
        at = start % (len(line) + 1)
        return line[:at] + filling + line[at + length :]

    return mutate


@st.composite
def mutated_lines(draw: st.DrawFn) -> bytes:
    """A good line, changed in a few places or in none."""
    line: bytes = draw(st.sampled_from(GOOD_LINES))
    for mutate in draw(st.lists(mutations(), max_size=3)):
        line = mutate(line)
    return line


conversations = (
    st.lists(
        st.one_of(mutated_lines(), mutated_lines(), mutated_lines(), st.sampled_from(FRAMES)),
        max_size=12,
    )
    .map(lambda lines: b"".join(line + b"\n" for line in lines))
    .filter(is_no_stray)
)

cuts = st.lists(st.integers(0, 400), max_size=6)


def verb_of(line: bytes) -> bytes:
    return line.rstrip(b" \r").partition(b" ")[0].upper()


def until_quit(data: bytes) -> tuple[bytes, int, bool]:
    """The bytes up to a QUIT that counts, the replies they are due, and whether it came."""
    end, replies, in_transaction = 0, 0, False
    for line in data.split(b"\n")[:-1]:
        end += len(line) + 1
        verb = verb_of(line)
        if in_transaction:
            in_transaction = verb != b"DONE"
            replies += not in_transaction
        elif verb == b"ATOMIC":
            in_transaction = True
        else:
            replies += 1
            if verb == b"QUIT":
                return data[:end], replies, True
    return data, replies, False


def read_reply(yard: SimulatedWire, peer: Peer) -> bytes:
    """The next line, for which a waiting FETCH may need less time than a heartbeat."""
    for _ in range(STEPS_OF_A_HEARTBEAT):
        try:
            return peer.read_line()
        except AssertionError:
            yard.advance(WAIT_STEP)
    return peer.read_line()


def pieces_of(data: bytes, positions: list[int]) -> list[bytes]:
    edges = [0, *sorted({cut for cut in positions if cut < len(data)} - {0}), len(data)]
    return [data[start:end] for start, end in pairwise(edges)]


def assert_survived(yard: SimulatedWire, data: bytes, positions: list[int]) -> None:
    """Send all of it, count the replies, and let another client work as if nothing had been."""
    peer, other = yard.connect(), yard.connect()
    sent, replies, quits = until_quit(data)
    for piece in pieces_of(sent, positions):
        peer.send(piece)
    for _ in range(replies):
        line = read_reply(yard, peer)
        assert line.split(b" ", 1)[0] in (b"OK", b"PONG", b"EMPTY", b"ERR"), line
        exchange(other, b"PING\n", b"PONG {}\n")
    if quits:
        peer.expect_closed()
    else:
        peer.expect_nothing()
        peer.close()
    work_as_usual(yard)


def work_as_usual(yard: SimulatedWire) -> None:
    peer = yard.connect()
    peer.send(b'PUSH {"name":"after","queue":"after"}\n')
    reply = peer.read_line()
    number = int(reply.removeprefix(b'OK {"id":').removesuffix(b"}\n"))
    exchange(
        peer,
        b'FETCH {"queues":["after"]}\n',
        b'OK {"id":%d,"queue":"after","name":"after"}\n' % number,
    )
    exchange(peer, b'ACK {"id":%d}\n' % number, b"OK {}\n")
    assert queue_counts(peer)["after"] == (0, 0, 0)


@settings(max_examples=effort(300, 60))
@given(data=conversations, positions=cuts)
def test_changed_commands_get_one_reply_each_and_harm_nobody(
    data: bytes, positions: list[int]
) -> None:
    assert_survived(SimulatedServer(), data, positions)


@settings(max_examples=effort(300, 60))
@given(
    data=st.lists(st.binary(max_size=40).filter(is_no_stray), max_size=8).map(b"\n".join),
    positions=cuts,
)
def test_random_bytes_get_one_reply_a_line_and_harm_nobody(
    data: bytes, positions: list[int]
) -> None:
    assert_survived(SimulatedServer(), data, positions)


@settings(max_examples=effort(100, 25))
@given(data=conversations)
def test_what_survives_a_restart_does_not_depend_on_what_was_refused(data: bytes) -> None:
    yard = SimulatedServer()
    peer = yard.connect()
    sent, replies, _ = until_quit(data)
    peer.send(sent)
    for _ in range(replies):
        read_reply(yard, peer)
    yard.restart()
    work_as_usual(yard)
