"""Masenko and bad input: a clear ERR, nothing applied, and the connection lives where it can."""

import pytest
from support.wire import SimulatedWire, Wire, error_of, exchange, queue_counts

MIB = 1 << 20
LONGEST_LINE = MIB + (64 << 10)
CANNOT_UNMARSHAL = "cannot unmarshal payload"

NO_STRINGS = [b"1", b"-1", b"1.5", b"true", b"false", b"[]", b"{}", b'["a"]', b'{"a":"b"}']
NO_BYTE_NUMBERS = [
    b"-1",
    b"256",
    b"4294967296",
    b"1e400",
    b"9" * 5000,
    b"1.5",
    b'"1"',
    b'""',
    b"true",
    b"false",
    b"[]",
    b"[1]",
    b"{}",
]
NO_TIMES = [
    b"1",
    b"1700000000",
    b"true",
    b"[]",
    b"{}",
    b'""',
    b'"tomorrow"',
    b'"2030-01-01"',
    b'"00:00:00Z"',
    b'"2030-01-01T00:00:00"',
    b'"2030-01-01T00:00Z"',
    b'"2030-01-01T00Z"',
    b'"20300101T000000Z"',
    b'"2030-W01-1T00:00:00Z"',
    b'"2030-01-01T00:00:00+0200"',
    b'"2030-01-01T00:00:00+02"',
    b'"2030-01-01T00:00:00+02:60"',
    b'"2030-01-01T00:00:00+24:00"',
    b'"2030-01-01T00:00:00 Z"',
    b'"2030-01-01T00:00:00.Z"',
    b'"2030-01-01T00:00:00ZZ"',
    b'" 2030-01-01T00:00:00Z"',
    b'"2030-13-01T00:00:00Z"',
    b'"2030-00-01T00:00:00Z"',
    b'"2030-02-30T00:00:00Z"',
    b'"2030-01-01T25:00:00Z"',
    b'"2030-01-01T00:60:00Z"',
    b'"2030-01-01T00:00:61Z"',
    b'"30-01-01T00:00:00Z"',
    b'"12030-01-01T00:00:00Z"',
    b'"-2030-01-01T00:00:00Z"',
    b'"\\uff12\\uff10\\uff13\\uff10-01-01T00:00:00Z"',
]
NO_ID_LISTS = [
    b"1",
    b'"1"',
    b"true",
    b"{}",
    b'["1"]',
    b"[1.5]",
    b"[true]",
    b"[null]",
    b"[[]]",
    b"[{}]",
    b"[1,[2]]",
    b"[" + b"9" * 5000 + b"]",
]
NO_NAME_LISTS = [b"1", b'"default"', b"true", b"{}", b"[1]", b"[null]", b"[true]", b"[[]]", b"[{}]"]
NO_DURATIONS = [
    b"1.5",
    b"true",
    b"false",
    b"[]",
    b"{}",
    b'""',
    b'"abc"',
    b'"5"',
    b'"s"',
    b'"1x"',
    b'"1 s"',
    b'" 1s"',
    b'"1s "',
    b'"--1s"',
    b'"1s2"',
    b'"1.5.5s"',
    b'"."',
    b'".s"',
    b'"1e3s"',
    b'"1S"',
    b'"1d"',
    b'"\\u0661s"',
]
NO_IDS = [
    b"-1",
    b"1.5",
    b'"1"',
    b'""',
    b"true",
    b"false",
    b"[]",
    b"[1]",
    b"{}",
    b"-" + b"9" * 5000,
]
BROKEN_JSON = [
    b"",
    b"{",
    b"}",
    b"[",
    b'"',
    b"nul",
    b"nulll",
    b"{]",
    b"{,}",
    b'{"x"',
    b'{"x":',
    b'{"x":}',
    b'{"x":1',
    b'{"x":1,}',
    b'{"x":1 "y":2}',
    b'{"x" 1}',
    b"{'x':1}",
    b"{x:1}",
    b'{1:"x"}',
    b'{"x":[1,]}',
    b'{"x":01}',
    b'{"x":.5}',
    b'{"x":1.}',
    b'{"x":+1}',
    b'{"x":1e}',
    b'{"x":0x1}',
    b'{"x":-}',
    b'{"x":NaN}',
    b'{"x":Infinity}',
    b'{"x":-Infinity}',
    b'{"x":True}',
    b'{"x":"\\x41"}',
    b'{"x":"\\u12G4"}',
    b'{"x":"\\u12"}',
    b'{"x":"unended}',
    b'{"x":"raw \x01 control"}',
    b'{"x":"raw \x00 zero"}',
    b'{"x":"raw \t tab"}',
    b'{"x":1}{"x":1}',
    b'{"x":1} x',
    b'{"x":1},',
    b"{}}",
    b"{}]",
    b"{} {}",
    b"/* */ {}",
    b"\xef\xbb\xbf{}",
    b"\x00{}",
    b"{}\x00",
    b"{\xa0}",
]
NO_OBJECTS = [b"[]", b"1", b'"x"', b"true", b'[{"name":"a","id":1}]']
INVALID_UTF8 = [
    b"\xff",
    b"\x80",
    b"\xc3",
    b"\xc3(",
    b"\xc0\x80",
    b"\xe2\x82",
    b"\xed\xa0\x80",
    b"\xf4\x90\x80\x80",
    b"\xf8\x88\x80\x80\x80",
]
INVALID_NAMES = [" ", "a b", " a", "a ", "\t", "a\nb", "a\rb", "\0", "a\x1fb", "a\x7fb"]
TOO_LONG_NAMES = ["x" * 256, "é" * 128, "x" * 100_000]


def quoted(name: str) -> bytes:
    """A name as a JSON string, its control characters escaped."""
    written = "".join(c if c.isprintable() else f"\\u{ord(c):04x}" for c in name)
    return b'"' + written.encode() + b'"'


def with_good_fields(body: bytes) -> bytes:
    """The same broken object with everything in it that a command could want."""
    return body.replace(b'{"x"', b'{"name":"a","queues":[],"id":1,"x"', 1)


def assert_refused(wire: Wire, line: bytes) -> str:
    """Send a line; it is answered by one ERR, nothing changes, and the connection lives."""
    peer = wire.connect()
    before = queue_counts(peer)
    peer.send(line + b"\n")
    message = error_of(peer.read_line())
    exchange(peer, b"PING\n", b"PONG {}\n")
    assert queue_counts(peer) == before
    return message


@pytest.mark.parametrize(
    ("field", "value"),
    [
        *[(field, value) for field in (b"name", b"queue", b"deadqueue") for value in NO_STRINGS],
        *[(b"retry", value) for value in NO_BYTE_NUMBERS],
        *[(b"execute_at", value) for value in NO_TIMES],
        *[(b"blocked_by", value) for value in NO_ID_LISTS],
    ],
)
def test_a_push_with_a_value_of_the_wrong_kind_is_refused(
    shared_wire: Wire, field: bytes, value: bytes
) -> None:
    name = b"" if field == b"name" else b'"name":"a",'
    line = b'PUSH {%b"%b":%b}' % (name, field, value)
    assert assert_refused(shared_wire, line) == CANNOT_UNMARSHAL


@pytest.mark.parametrize("body", [b"{}", b'{"queue":"q"}', b'{"name":""}', b'{"name":null}'])
def test_a_push_without_a_name_is_refused(shared_wire: Wire, body: bytes) -> None:
    assert assert_refused(shared_wire, b"PUSH " + body) == 'invalid task name ""'


@pytest.mark.parametrize("name", [" ", "a b", " a", "a "])
def test_a_name_with_a_space_is_refused_by_name(shared_wire: Wire, name: str) -> None:
    task, queue = f'invalid task name "{name}"', f'invalid queue name "{name}"'
    bad = quoted(name)
    assert assert_refused(shared_wire, b'PUSH {"name":%b}' % bad) == task
    assert assert_refused(shared_wire, b'PUSH {"name":"a","queue":%b}' % bad) == queue
    assert assert_refused(shared_wire, b'PUSH {"name":"a","deadqueue":%b}' % bad) == queue
    assert assert_refused(shared_wire, b'FETCH {"queues":["ok",%b]}' % bad) == queue


@pytest.mark.parametrize("name", INVALID_NAMES + TOO_LONG_NAMES)
def test_a_name_with_spaces_or_control_characters_or_too_long_is_refused(
    shared_wire: Wire, name: str
) -> None:
    bad = quoted(name)
    task = assert_refused(shared_wire, b'PUSH {"name":%b}' % bad)
    assert task.startswith('invalid task name "')
    for line in (
        b'PUSH {"name":"a","queue":%b}' % bad,
        b'PUSH {"name":"a","deadqueue":%b}' % bad,
        b'FETCH {"queues":["ok",%b]}' % bad,
    ):
        assert assert_refused(shared_wire, line).startswith('invalid queue name "')


@pytest.mark.parametrize(
    ("field", "value"),
    [
        *[(b"queues", value) for value in NO_NAME_LISTS],
        *[(b"timeout", value) for value in NO_DURATIONS],
    ],
)
def test_a_fetch_with_a_value_of_the_wrong_kind_is_refused(
    shared_wire: Wire, field: bytes, value: bytes
) -> None:
    line = b'FETCH {"%b":%b}' % (field, value)
    assert assert_refused(shared_wire, line) == CANNOT_UNMARSHAL


@pytest.mark.parametrize("timeout", [b"9" * 30, b"9" * 5000, b'"%bh"' % (b"9" * 30), b"1e30"])
def test_a_timeout_beyond_all_bounds_is_refused(shared_wire: Wire, timeout: bytes) -> None:
    assert assert_refused(shared_wire, b'FETCH {"timeout":%b}' % timeout) in (
        CANNOT_UNMARSHAL,
        "timeout must be smaller than the heartbeat frequency 45s",
    )


@pytest.mark.parametrize("verb", [b"ACK", b"NACK"])
@pytest.mark.parametrize("value", NO_IDS)
def test_an_id_of_the_wrong_kind_is_refused(shared_wire: Wire, verb: bytes, value: bytes) -> None:
    message = assert_refused(shared_wire, b'%b {"id":%b}' % (verb, value))
    assert message.startswith("unmarshal payload: ")


@pytest.mark.parametrize("verb", [b"ACK", b"NACK"])
@pytest.mark.parametrize("value", [b"4294967296", b"18446744073709551616", b"9" * 5000])
def test_an_id_beyond_all_bounds_is_not_held(shared_wire: Wire, verb: bytes, value: bytes) -> None:
    message = assert_refused(shared_wire, b'%b {"id":%b}' % (verb, value))
    assert message == "task not acquired" or message.startswith("unmarshal payload: ")


@pytest.mark.parametrize("body", BROKEN_JSON + NO_OBJECTS)
def test_a_push_of_broken_json_is_refused(shared_wire: Wire, body: bytes) -> None:
    assert assert_refused(shared_wire, b"PUSH " + with_good_fields(body)) == CANNOT_UNMARSHAL


@pytest.mark.parametrize("body", BROKEN_JSON[1:] + NO_OBJECTS)
def test_a_fetch_of_broken_json_is_refused(shared_wire: Wire, body: bytes) -> None:
    assert assert_refused(shared_wire, b"FETCH " + with_good_fields(body)) == CANNOT_UNMARSHAL


@pytest.mark.parametrize("verb", [b"ACK", b"NACK"])
@pytest.mark.parametrize("body", BROKEN_JSON + NO_OBJECTS)
def test_an_ack_or_nack_of_broken_json_is_refused(
    shared_wire: Wire, verb: bytes, body: bytes
) -> None:
    message = assert_refused(shared_wire, verb + b" " + with_good_fields(body))
    assert message.startswith("unmarshal payload: ")


@pytest.mark.parametrize("verb", [b"PUSH", b"ACK", b"NACK"])
def test_a_command_that_needs_a_payload_is_refused_without_one(
    shared_wire: Wire, verb: bytes
) -> None:
    message = assert_refused(shared_wire, verb)
    assert "unmarshal payload" in message


@pytest.mark.parametrize("garbage", [b"x", b",", b"}", b"{}", b'{"name":"b"}', b"\x00", b"null"])
def test_garbage_behind_a_good_command_is_refused(shared_wire: Wire, garbage: bytes) -> None:
    for line, message in (
        (b'PUSH {"name":"a"}', CANNOT_UNMARSHAL),
        (b'FETCH {"queues":[]}', CANNOT_UNMARSHAL),
        (b'ACK {"id":1}', "unmarshal payload: "),
        (b'NACK {"id":1}', "unmarshal payload: "),
    ):
        assert assert_refused(shared_wire, line + garbage).startswith(message)
        assert assert_refused(shared_wire, line + b" " + garbage).startswith(message)


@pytest.mark.parametrize("text", INVALID_UTF8)
def test_invalid_utf8_in_a_command_is_refused(shared_wire: Wire, text: bytes) -> None:
    for line in (
        b'PUSH {"name":"%b"}' % text,
        b'PUSH {"name":"a","queue":"%b"}' % text,
        b'PUSH {"name":"a","deadqueue":"%b"}' % text,
        b'PUSH {"name":"a","payload":"%b"}' % text,
        b'PUSH {"name":"a","payload":{"deep":["x%by"]}}' % text,
        b'PUSH {"name":"a","payload":{"%b":1}}' % text,
        b'PUSH {"name":"a"%b}' % text,
        b'FETCH {"queues":["%b"]}' % text,
    ):
        assert assert_refused(shared_wire, line) == CANNOT_UNMARSHAL


@pytest.mark.parametrize(
    "line",
    [
        b"\x00",
        b"\xff\xfe\xfd",
        b"\x80\x81garbage",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"PING\x00",
        b"\x00PING",
        b"PI\xffNG",
        bytes(byte for byte in range(256) if byte not in b"\n "),
        "ÄÖÜ".encode(),
        "\uff30\uff29\uff2e\uff27".encode(),
    ],
)
def test_binary_garbage_is_an_unknown_verb(shared_wire: Wire, line: bytes) -> None:
    assert assert_refused(shared_wire, line).startswith("unknown verb ")


def test_a_verb_of_a_hundred_kilobytes_is_unknown(shared_wire: Wire) -> None:
    assert assert_refused(shared_wire, b"X" * 100_000).startswith("unknown verb X")


def test_a_request_of_http_is_broken_off(shared_wire: Wire) -> None:
    peer = shared_wire.connect()
    peer.send(b"GET / HTTP/1.1\r\nHOST: x\r\n\r\n")
    peer.expect(b'ERR {"msg":"this port does not speak HTTP"}\n')
    peer.expect_closed()


@pytest.mark.parametrize("depth", [10_000, 400_000])
@pytest.mark.parametrize(
    "line",
    [
        b'PUSH {"name":"a","payload":%b}',
        b'PUSH {"name":"a","unknown":%b}',
        b'PUSH {"name":%b}',
        b'PUSH {"name":"a","blocked_by":%b}',
        b"PUSH %b",
        b'FETCH {"queues":%b}',
        b'FETCH {"queues":[],"unknown":%b}',
        b"FETCH %b",
        b'ACK {"id":%b}',
        b'ACK {"id":1,"unknown":%b}',
        b"NACK %b",
    ],
)
def test_json_nested_too_deeply_is_refused(shared_wire: Wire, line: bytes, depth: int) -> None:
    assert assert_refused(shared_wire, line % (b"[" * depth + b"]" * depth))
    assert assert_refused(shared_wire, line % (b"[" * depth))
    objects = min(depth, 100_000)
    assert assert_refused(shared_wire, line % (b'{"a":' * objects + b"1" + b"}" * objects))


def test_many_errors_do_not_tire_a_connection(shared_wire: Wire) -> None:
    peer = shared_wire.connect()
    exchange(peer, b"X\n" * 1000, b'ERR {"msg":"unknown verb X"}\n' * 1000)
    exchange(peer, b"PING\n", b"PONG {}\n")


def test_a_payload_too_large_is_refused_and_the_connection_lives(shared_wire: Wire) -> None:
    line = b'PUSH {"name":"a","payload":"' + b"x" * MIB + b'"}'
    assert assert_refused(shared_wire, line) == "payload too large"


def test_a_line_of_the_greatest_length_is_read(shared_wire: Wire) -> None:
    peer = shared_wire.connect()
    exchange(peer, b"PING".ljust(LONGEST_LINE - 1) + b"\n", b"PONG {}\n")
    exchange(peer, b"PING\n", b"PONG {}\n")


@pytest.mark.parametrize(
    "start",
    [
        b"",
        b"PING ",
        b'PUSH {"name":"a","payload":"',
        b'FETCH {"queues":["',
        b'ATOMIC\nPUSH {"name":"a"}\nPUSH {"name":"b","payload":"',
    ],
)
def test_a_line_that_never_ends_is_answered_with_an_error_and_the_connection_closed(
    shared_wire: Wire, start: bytes
) -> None:
    peer, other = shared_wire.connect(), shared_wire.connect()
    before = queue_counts(other)
    begun = start.rpartition(b"\n")[2]
    peer.send(start + b"x" * (LONGEST_LINE + 2 - len(begun)))
    assert error_of(peer.read_line())
    peer.expect_closed()
    assert queue_counts(other) == before


def test_a_line_too_long_that_does_end_closes_the_connection_too(yard: SimulatedWire) -> None:
    peer = yard.connect()
    peer.send(b"PING\n" + b"x" * (LONGEST_LINE + 2) + b"\nPING\n")
    peer.expect(b"PONG {}\n")
    assert error_of(peer.read_line())
    peer.expect_closed()


def test_a_line_too_long_in_small_pieces_closes_the_connection(yard: SimulatedWire) -> None:
    peer = yard.connect()
    for _ in range(LONGEST_LINE // 4096):
        peer.send(b"x" * 4096)
        peer.expect_nothing()
    peer.send(b"xx")
    assert error_of(peer.read_line())
    peer.expect_closed()


def test_a_line_too_long_behind_a_waiting_fetch_is_answered_after_it(yard: SimulatedWire) -> None:
    peer = yard.connect()
    peer.send(b'FETCH {"queues":["q"],"timeout":"5s"}\n')
    peer.send(b"x" * (LONGEST_LINE + 2))
    yard.advance(5.1)
    peer.expect(b"EMPTY {}\n")
    assert error_of(peer.read_line())
    peer.expect_closed()


def test_tasks_held_by_a_connection_closed_for_its_long_line_are_nacked(wire: Wire) -> None:
    peer, other = wire.connect(), wire.connect()
    exchange(peer, b'PUSH {"name":"a","retry":0,"deadqueue":"dead"}\n', b'OK {"id":1}\n')
    exchange(peer, b"FETCH\n", b'OK {"id":1,"queue":"default","name":"a"}\n')
    peer.send(b"x" * (LONGEST_LINE + 2))
    assert error_of(peer.read_line())
    peer.expect_closed()
    exchange(other, b'FETCH {"queues":["dead"]}\n', b'OK {"id":1,"queue":"dead","name":"a"}\n')
