"""Masenko lines: verbs, spaces, unknown words, pipelining, PING and QUIT."""

import pytest
from support.wire import SimulatedWire, Wire, error_of, exchange, queue_counts


def test_ping_is_answered_with_pong_and_an_empty_object(shared_wire: Wire) -> None:
    peer = shared_wire.connect()
    exchange(peer, b"PING\n", b"PONG {}\n")


def test_the_server_sends_no_greeting(shared_wire: Wire) -> None:
    peer = shared_wire.connect()
    peer.expect_nothing()
    exchange(peer, b"PING\n", b"PONG {}\n")


@pytest.mark.parametrize("verb", [b"ping", b"Ping", b"pInG"])
def test_a_verb_may_be_in_any_case(shared_wire: Wire, verb: bytes) -> None:
    peer = shared_wire.connect()
    exchange(peer, verb + b"\n", b"PONG {}\n")


def test_all_verbs_may_be_in_lower_case(wire: Wire) -> None:
    peer = wire.connect()
    exchange(peer, b'push {"name":"a","retry":0}\n', b'OK {"id":1}\n')
    exchange(peer, b'push {"name":"b"}\n', b'OK {"id":2}\n')
    exchange(peer, b"fetch\n", b'OK {"id":1,"queue":"default","name":"a"}\n')
    exchange(peer, b'nack {"id":1}\n', b"OK {}\n")
    exchange(peer, b"fetch {}\n", b'OK {"id":2,"queue":"default","name":"b"}\n')
    exchange(peer, b'ack {"id":2}\n', b"OK {}\n")
    exchange(peer, b'atomic\npush {"name":"c"}\ndone\n', b'OK {"ids":[3]}\n')
    peer.send(b"info\n")
    assert peer.read_line().startswith(b'OK {"queues":[{"name":"default",')
    exchange(peer, b"quit\n", b"OK {}\n")
    peer.expect_closed()


@pytest.mark.parametrize("ending", [b" \n", b"    \n", b"\r\n", b" \r\n"])
def test_trailing_spaces_and_a_carriage_return_are_tolerated(
    shared_wire: Wire, ending: bytes
) -> None:
    peer = shared_wire.connect()
    exchange(peer, b"PING" + ending, b"PONG {}\n")
    exchange(peer, b'FETCH {"queues":[]}' + ending, b"EMPTY {}\n")


def test_spaces_between_verb_and_json_are_tolerated(shared_wire: Wire) -> None:
    peer = shared_wire.connect()
    exchange(peer, b'FETCH    { "queues" : [ ] }\n', b"EMPTY {}\n")


@pytest.mark.parametrize("line", [b"PING {}", b'PING {"a":1}', b"PING not json", b"PING ["])
def test_ping_ignores_a_payload(shared_wire: Wire, line: bytes) -> None:
    peer = shared_wire.connect()
    exchange(peer, line + b"\n", b"PONG {}\n")


@pytest.mark.parametrize("line", [b"INFO {}", b'INFO {"a":1}', b"INFO not json", b"INFO ["])
def test_info_ignores_a_payload(shared_wire: Wire, line: bytes) -> None:
    peer = shared_wire.connect()
    peer.send(line + b"\n")
    assert peer.read_line().startswith(b'OK {"queues":[')


@pytest.mark.parametrize("payload", [b" {}", b" not json", b" ["])
def test_atomic_and_done_ignore_a_payload(shared_wire: Wire, payload: bytes) -> None:
    peer = shared_wire.connect()
    exchange(peer, b"ATOMIC" + payload + b"\nDONE" + payload + b"\n", b"OK {}\n")


def test_unknown_json_keys_are_ignored(yard: SimulatedWire) -> None:
    peer = yard.connect()
    exchange(peer, b'PUSH {"x":[{}],"name":"a","y":null,"NAMES":1}\n', b'OK {"id":1}\n')
    exchange(
        peer,
        b'FETCH {"x":1,"queues":["default"]}\n',
        b'OK {"id":1,"queue":"default","name":"a"}\n',
    )
    exchange(peer, b'ACK {"why":"done","id":1}\n', b"OK {}\n")


def test_json_keys_may_be_spelled_with_escapes(yard: SimulatedWire) -> None:
    peer = yard.connect()
    exchange(peer, b'PUSH {"n\\u0061me":"a"}\n', b'OK {"id":1}\n')


def test_an_unknown_verb_is_named_and_the_connection_lives(shared_wire: Wire) -> None:
    peer = shared_wire.connect()
    exchange(peer, b"BOGUS\n", b'ERR {"msg":"unknown verb BOGUS"}\n')
    exchange(peer, b'BOGUS {"id":1}\n', b'ERR {"msg":"unknown verb BOGUS"}\n')
    exchange(peer, b"PING\n", b"PONG {}\n")


def test_a_longer_word_that_starts_with_a_verb_is_unknown(shared_wire: Wire) -> None:
    peer = shared_wire.connect()
    exchange(peer, b"PINGS\n", b'ERR {"msg":"unknown verb PINGS"}\n')
    exchange(peer, b"PIN\n", b'ERR {"msg":"unknown verb PIN"}\n')


@pytest.mark.parametrize("line", [b"\n", b"\r\n", b" \n", b"   \n"])
def test_an_empty_line_is_an_unknown_verb(shared_wire: Wire, line: bytes) -> None:
    peer = shared_wire.connect()
    exchange(peer, line, b'ERR {"msg":"unknown verb "}\n')


def test_the_first_space_ends_the_verb_even_at_the_start(shared_wire: Wire) -> None:
    peer = shared_wire.connect()
    exchange(peer, b" PING\n", b'ERR {"msg":"unknown verb "}\n')


def test_a_tab_does_not_end_the_verb(shared_wire: Wire) -> None:
    peer = shared_wire.connect()
    peer.send(b'FETCH\t{"queues":[]}\n')
    assert error_of(peer.read_line()).startswith("unknown verb FETCH")


def test_error_texts_are_escaped_as_json(shared_wire: Wire) -> None:
    peer = shared_wire.connect()
    exchange(peer, b'SAY"HI"\n', b'ERR {"msg":"unknown verb SAY\\"HI\\""}\n')
    exchange(peer, b"A\\B\n", b'ERR {"msg":"unknown verb A\\\\B"}\n')


def test_done_outside_of_a_transaction_is_an_error(shared_wire: Wire) -> None:
    peer = shared_wire.connect()
    exchange(peer, b"DONE\n", b'ERR {"msg":"DONE is not allowed outside of a transaction."}\n')
    exchange(peer, b"PING\n", b"PONG {}\n")


def test_pipelined_commands_are_answered_in_order(wire: Wire) -> None:
    peer = wire.connect()
    peer.send(
        b"PING\n"
        b'PUSH {"name":"a"}\n'
        b"NONSENSE\n"
        b'PUSH {"name":"b"}\n'
        b"FETCH\n"
        b'ACK {"id":1}\n'
        b'FETCH {"queues":[]}\n'
        b"PING\n"
    )
    peer.expect(
        b"PONG {}\n"
        b'OK {"id":1}\n'
        b'ERR {"msg":"unknown verb NONSENSE"}\n'
        b'OK {"id":2}\n'
        b'OK {"id":1,"queue":"default","name":"a"}\n'
        b"OK {}\n"
        b"EMPTY {}\n"
        b"PONG {}\n"
    )
    peer.expect_nothing()


def test_a_thousand_commands_in_one_write_get_a_thousand_answers(shared_wire: Wire) -> None:
    peer = shared_wire.connect()
    exchange(peer, b"PING\n" * 1000, b"PONG {}\n" * 1000)
    peer.expect_nothing()


def test_a_hundred_whole_cycles_in_one_write_are_answered_in_order(wire: Wire) -> None:
    peer = wire.connect()
    peer.send(
        b"".join(
            b'PUSH {"name":"a","payload":%d}\nFETCH\nACK {"id":%d}\n' % (i, i)
            for i in range(1, 101)
        )
    )
    peer.expect(
        b"".join(
            b'OK {"id":%d}\nOK {"id":%d,"queue":"default","name":"a","payload":%d}\nOK {}\n'
            % (i, i, i)
            for i in range(1, 101)
        )
    )


def test_half_a_line_is_not_answered_until_the_rest_has_come(shared_wire: Wire) -> None:
    peer = shared_wire.connect()
    peer.send(b"PI")
    peer.expect_nothing()
    peer.send(b"NG")
    peer.expect_nothing()
    peer.send(b"\nPI")
    peer.expect(b"PONG {}\n")
    peer.expect_nothing()
    exchange(peer, b"NG\n", b"PONG {}\n")


def test_connections_do_not_share_half_lines(shared_wire: Wire) -> None:
    first, second = shared_wire.connect(), shared_wire.connect()
    first.send(b"PI")
    second.send(b"BO")
    first.send(b"NG\n")
    second.send(b"GUS\n")
    first.expect(b"PONG {}\n")
    second.expect(b'ERR {"msg":"unknown verb BOGUS"}\n')


@pytest.mark.parametrize("line", [b"QUIT", b"QUIT {}", b'QUIT {"a":1}', b"QUIT not json"])
def test_quit_is_answered_and_then_the_connection_is_closed(shared_wire: Wire, line: bytes) -> None:
    peer = shared_wire.connect()
    exchange(peer, line + b"\n", b"OK {}\n")
    peer.expect_closed()


def test_commands_before_quit_are_answered_and_those_after_it_are_not_run(wire: Wire) -> None:
    peer = wire.connect()
    peer.send(b'PUSH {"name":"a"}\nQUIT\nPUSH {"name":"b"}\nPING\n')
    peer.expect(b'OK {"id":1}\nOK {}\n')
    peer.expect_closed()
    assert queue_counts(wire.connect()) == {"default": (1, 0, 0)}


def test_one_client_that_quits_does_not_disturb_another(shared_wire: Wire) -> None:
    first, second = shared_wire.connect(), shared_wire.connect()
    exchange(first, b"QUIT\n", b"OK {}\n")
    first.expect_closed()
    exchange(second, b"PING\n", b"PONG {}\n")
