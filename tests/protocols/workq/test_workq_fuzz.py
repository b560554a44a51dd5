"""Workq under random input: the replies that are due, in their places, and never a crash.

`frame` is a second reading of the protocol's framing, kept as plain as it can be. It tells how many
replies some bytes are due, as far as that can be told without knowing what the server accepts.
"""

from collections.abc import Callable
from itertools import pairwise

from hypothesis import example, given, settings
from hypothesis import strategies as st
from support.effort import effort
from support.simulated import SimulatedPeer, SimulatedServer
from support.wire import exchange, is_no_stray
from support.workq import (
    MAX_PAYLOAD,
    OK,
    UNKNOWN,
    add,
    complete,
    delete,
    expect_in_step,
    fail,
    is_there,
    lease,
    leased,
    lengths,
    new_id,
    read_reply,
    result,
    run,
    schedule,
    succeeded,
)

# Where the size of the payload stands among the arguments.
SIZE_PLACE = {b"add": 4, b"run": 4, b"schedule": 5, b"complete": 1, b"fail": 1}
LARGEST_DROPPED = 64 << 20
WAITS = (0.0, 1.0, 100.0, 86_400.0)  # seconds of patience with a command that may wait

IDS = [b"6ba7b810-9dad-11d1-80b4-00c04fd430c%d" % digit for digit in range(4)]
NAMES = [b"a", b"b.c", b"D_e-f"]
JUNK = [b"x", b"0", b"\x00", b"\xff\xfe", b"18446744073709551616", b"a/b", b"9" * 40, b"=", b"1.5"]

ids = st.sampled_from(IDS)
names = st.sampled_from(NAMES)
payloads = st.one_of(st.binary(max_size=40), st.sampled_from([b"", b"\r\n", b"bogus\r\n", b"\n"]))
flags = st.sampled_from([b"", b"-priority=5", b"-max-attempts=1 -max-fails=2", b"-max-fails=255"])
times = st.sampled_from([b"2023-11-14T22:13:21Z", b"2100-01-01T00:00:00Z", b"2023-11-14T22:13:00Z"])
milliseconds = st.sampled_from([1, 500, 60_000])
waits = st.sampled_from([0, 1, 1500])

good_commands = st.one_of(
    st.builds(add, ids, names, payloads, ttr=milliseconds, ttl=milliseconds, flags=flags),
    st.builds(schedule, ids, names, payloads, time=times, ttr=milliseconds, flags=flags),
    st.builds(run, ids, names, payloads, ttr=milliseconds, wait=waits),
    st.builds(complete, ids, payloads),
    st.builds(fail, ids, payloads),
    st.builds(result, ids, waits),
    st.lists(names, min_size=1, max_size=3).flatmap(
        lambda chosen: st.builds(lambda wait: lease(*chosen, wait=wait), waits)
    ),
    st.builds(delete, ids),
    st.builds(lambda id: b"inspect job %b\r\n" % id, ids),
    st.builds(lambda name: b"inspect jobs %b 0 100\r\n" % name, names),
    st.builds(lambda name: b"inspect scheduled-jobs %b 0 100\r\n" % name, names),
    st.builds(lambda name: b"inspect queue %b\r\n" % name, names),
    st.sampled_from([b"inspect queues 0 100\r\n", b"inspect server\r\n"]),
)
payload_commands = good_commands.filter(lambda command: command.split(b" ")[0] in SIZE_PLACE)


# Damage after which the stream is in step


@st.composite
def with_a_wrong_argument(draw: st.DrawFn) -> bytes:
    """One argument replaced, but not the size, so that the payload is still known."""
    command: bytes = draw(payload_commands)
    line, _, payload = command.partition(b"\r\n")
    words = line.split(b" ")
    at = draw(st.integers(1, SIZE_PLACE[words[0]]))
    words[at] = draw(st.sampled_from(JUNK))
    return b" ".join(words) + b"\r\n" + payload


@st.composite
def with_wrong_flags(draw: st.DrawFn) -> bytes:
    command: bytes = draw(payload_commands)
    wrong = draw(
        st.sampled_from([b"-=1", b"-a=", b"-a=b", b"-priority=x", b"-priority=1 -priority=1"])
    )
    return command.replace(b"\r\n", b" %b\r\n" % wrong, 1)


@st.composite
def with_a_wrong_size(draw: st.DrawFn) -> bytes:
    """More bytes than announced, or fewer and a line that is taken with them."""
    verb = draw(st.sampled_from([b"add %b a 1 1" % IDS[0], b"complete " + IDS[1], b"fail 1"]))
    payload = draw(st.text("ping\n", min_size=1, max_size=20)).encode()
    if draw(st.booleans()):
        return b"%b %d\r\n%b\r\n" % (verb, draw(st.integers(0, len(payload) - 1)), payload)
    return b"%b %d\r\n%b\r\nswallowed\r\n" % (verb, len(payload) + 2, payload)


@st.composite
def without_a_size(draw: st.DrawFn) -> bytes:
    verb = draw(st.sampled_from([b"add %b a 1 1" % IDS[0], b"complete " + IDS[1], b"run", b"fail"]))
    size = draw(st.sampled_from([b"", b" x", b" 4x", b" 1.0", b" \xff"]))
    return verb + size + b"\r\n"


@st.composite
def with_a_bare_line_feed(draw: st.DrawFn) -> bytes:
    command: bytes = draw(good_commands)
    return command.partition(b"\r\n")[0] + b"\n"


@st.composite
def unknown_lines(draw: st.DrawFn) -> bytes:
    text = draw(st.binary(max_size=30).filter(lambda text: b"\n" not in text))
    return b"~" + text + b"\r\n"


damaged_commands = st.one_of(
    with_a_wrong_argument(),
    with_wrong_flags(),
    with_a_wrong_size(),
    without_a_size(),
    with_a_bare_line_feed(),
    unknown_lines(),
)

cuts = st.lists(st.integers(0, 600), max_size=8)


# Damage of any kind


@st.composite
def mutations(draw: st.DrawFn) -> Callable[[bytes], bytes]:
    """Replace one stretch by another: a deletion, an insertion or a change."""
    start = draw(st.integers(0, 150))
    length = draw(st.integers(0, 6))
    filling = draw(
        st.one_of(
            st.binary(max_size=6),
            st.sampled_from([b"\r\n", b"\n", b"\r", b" ", b"-", b"=", b"9" * 9, b"add ", b"\x00"]),
        )
    )

    def mutate(data: bytes) -> bytes:
        at = start % (len(data) + 1)
        return data[:at] + filling + data[at + length :]

    return mutate


@st.composite
def mutated_commands(draw: st.DrawFn) -> bytes:
    data: bytes = draw(good_commands)
    for mutate in draw(st.lists(mutations(), max_size=3)):
        data = mutate(data)
    return data


# The reference


def frame(data: bytes) -> tuple[int, str]:
    """How many replies are due, and how it ends: in step, open, closed or untold."""
    at = replies = 0
    while at < len(data):
        end = data.find(b"\n", at)
        if end < 0:
            return replies, "open"
        line = data[at:end]
        at = end + 1
        if not line.endswith(b"\r"):
            replies += 1
            continue
        words = [word for word in line[:-1].split(b" ") if word]
        if words and words[0][:5].upper() in (b"POST", b"HOST:"):
            return replies + 1, "closed"
        size = size_of(words)
        if size is None:
            replies += 1
            continue
        if size < 0:
            return replies, "untold"
        if size > LARGEST_DROPPED:
            return replies + 1, "closed"
        behind = at + size
        if len(data) < behind + 2:
            return replies, "open" if size <= MAX_PAYLOAD else "untold"
        if data[behind : behind + 2] != b"\r\n":
            behind = data.find(b"\r\n", behind)
            if behind < 0:
                return replies, "untold"
        at = behind + 2
        replies += 1
    return replies, "in step"


def size_of(words: list[bytes]) -> int | None:
    """The size of the payload behind a line; None: there is none; -1: this cannot tell."""
    place = SIZE_PLACE.get(words[0]) if words else None
    if place is None:
        return None
    arguments, rest = words[1 : place + 2], words[place + 2 :]
    if any(word.startswith(b"-") for word in arguments):
        return -1
    if len(arguments) <= place:
        return None
    if any(not word.startswith(b"-") or b"=" not in word for word in rest):
        return -1
    return int(arguments[place]) if arguments[place].isdigit() else None


def pieces_of(data: bytes, positions: list[int]) -> list[bytes]:
    edges = [0, *sorted({cut for cut in positions if cut < len(data)} - {0}), len(data)]
    return [data[start:end] for start, end in pairwise(edges)]


def next_reply(yard: SimulatedServer, peer: SimulatedPeer) -> bytes:
    """The first line of the next reply, for which time may have to pass."""
    for seconds in WAITS:
        yard.advance(seconds)
        try:
            peer.expect_nothing()
        except AssertionError:
            return read_reply(peer)
    raise AssertionError("no reply")


def work_as_usual(yard: SimulatedServer) -> None:
    peer, id = yard.connect("workq"), new_id()
    exchange(peer, add(id, b"after"), OK)
    exchange(peer, lease(b"after"), leased(id, b"after"))
    exchange(peer, complete(id), OK)
    exchange(peer, result(id), succeeded(id))
    exchange(peer, delete(id), OK)
    assert lengths(peer, b"after") == (0, 0)


def assert_survived(data: bytes, positions: list[int]) -> None:
    """Send all of it, take the replies that are due, and let another client work as usual."""
    yard = SimulatedServer()
    peer, other = yard.connect("workq"), yard.connect("workq")
    for piece in pieces_of(data, positions):
        peer.send(piece)
    replies, end = frame(data)
    for _ in range(replies):
        next_reply(yard, peer)
        exchange(other, b"in-step?\r\n", UNKNOWN)
    if end == "closed":
        peer.expect_closed()
    elif end == "open":
        peer.expect_nothing()
    elif end == "in step":
        expect_in_step(peer)
    peer.close()
    yard.advance(86_400)
    work_as_usual(yard)
    yard.restart()
    work_as_usual(yard)


@settings(max_examples=effort(300, 60))
@given(commands=st.lists(st.one_of(good_commands, damaged_commands), max_size=10), positions=cuts)
def test_after_every_command_right_or_wrong_the_next_is_answered_in_its_place(
    commands: list[bytes], positions: list[int]
) -> None:
    yard = SimulatedServer()
    peer = yard.connect("workq")
    for command in commands:
        assert frame(command) == (1, "in step"), command
    data = b"".join(command + b"in-step?\r\n" for command in commands)
    for piece in pieces_of(data, positions):
        peer.send(piece)
    for command in commands:
        first = next_reply(yard, peer)
        assert first.startswith((b"+OK", b"-TIMEOUT", b"-NOT-FOUND", b"-CLIENT-ERROR ")), command
        assert next_reply(yard, peer) + b"\r\n" == UNKNOWN, command
    peer.expect_nothing()
    assert not peer.closed


@settings(max_examples=effort(200, 40))
@given(command=damaged_commands)
def test_damage_is_answered_with_an_error_of_the_client_or_is_none(command: bytes) -> None:
    """An argument that was replaced by junk may be right by chance, as a name or a number."""
    yard = SimulatedServer()
    peer = yard.connect("workq")
    peer.send(command)
    first = next_reply(yard, peer)
    if first.startswith(b"-CLIENT-ERROR "):
        for id in IDS:
            assert not is_there(peer, id)
    else:
        assert any(b" %b " % junk in command for junk in JUNK), command


@settings(max_examples=effort(300, 60))
@given(data=st.lists(mutated_commands(), max_size=8).map(b"".join), positions=cuts)
@example(data=b"add\r\nfail x 0\r\n\r\n", positions=[])
@example(data=b"complete %b 67108865\r\n" % IDS[0], positions=[])
@example(data=b"host:x add\r\nadd\r\n", positions=[])
def test_changed_commands_get_the_replies_that_are_due_and_harm_nobody(
    data: bytes, positions: list[int]
) -> None:
    assert_survived(data, positions)


@settings(max_examples=effort(300, 60))
@given(
    data=st.lists(st.binary(max_size=40).filter(is_no_stray), max_size=8).flatmap(
        lambda parts: st.sampled_from([b"\r\n", b"\n"]).map(lambda end: end.join(parts))
    ),
    positions=cuts,
)
def test_random_bytes_get_one_reply_a_line_and_harm_nobody(
    data: bytes, positions: list[int]
) -> None:
    assert_survived(data, positions)


@settings(max_examples=effort(100, 25))
@given(data=st.lists(mutated_commands(), max_size=8).map(b"".join), cut=st.integers(0, 600))
def test_how_the_bytes_are_split_changes_nothing(data: bytes, cut: int) -> None:
    whole, split = SimulatedServer(), SimulatedServer()
    one, two = whole.connect("workq"), split.connect("workq")
    one.send(data)
    for piece in (data[:cut], data[cut:]):
        two.send(piece)
    for seconds in WAITS:
        whole.advance(seconds)
        split.advance(seconds)
        assert one.take() == two.take()
        assert one.closed == two.closed
