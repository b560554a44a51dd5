"""Masenko PUSH: ids, names, payloads and execution times."""

import json
from datetime import UTC, datetime, timedelta, timezone

import pytest
from support.wire import SimulatedWire, Wire, exchange, queue_counts

MIB = 1 << 20
LONG = b"1" * 5000  # digits, of which Python makes no number
CANNOT_UNMARSHAL = b'ERR {"msg":"cannot unmarshal payload"}\n'


def test_a_pushed_task_gets_the_first_id_and_goes_to_the_default_queue(wire: Wire) -> None:
    peer = wire.connect()
    exchange(peer, b'PUSH {"name":"a"}\n', b'OK {"id":1}\n')
    exchange(peer, b'FETCH {"queues":["default"]}\n', b'OK {"id":1,"queue":"default","name":"a"}\n')


def test_a_null_queue_is_the_default_queue(yard: SimulatedWire) -> None:
    peer = yard.connect()
    exchange(peer, b'PUSH {"name":"a","queue":null}\n', b'OK {"id":1}\n')
    assert queue_counts(peer) == {"default": (1, 0, 0)}


def test_all_attributes_together_are_accepted(wire: Wire) -> None:
    peer = wire.connect()
    exchange(
        peer,
        b'PUSH {"name":"mail","queue":"q","deadqueue":"dead","payload":{"to":"x"},"retry":3,'
        b'"execute_at":"2001-02-03T04:05:06Z","blocked_by":[7]}\n',
        b'OK {"id":1}\n',
    )
    exchange(
        peer,
        b'FETCH {"queues":["q"]}\n',
        b'OK {"id":1,"queue":"q","name":"mail","payload":{"to":"x"}}\n',
    )


def test_null_optional_attributes_count_as_absent(yard: SimulatedWire) -> None:
    peer = yard.connect()
    exchange(
        peer,
        b'PUSH {"name":"a","queue":null,"deadqueue":null,"retry":null,"execute_at":null,'
        b'"blocked_by":null}\n',
        b'OK {"id":1}\n',
    )
    exchange(peer, b"FETCH\n", b'OK {"id":1,"queue":"default","name":"a"}\n')


def test_ids_grow_by_one_over_all_queues_and_connections(wire: Wire) -> None:
    first, second = wire.connect(), wire.connect()
    exchange(first, b'PUSH {"name":"a","queue":"x"}\n', b'OK {"id":1}\n')
    exchange(second, b'PUSH {"name":"a","queue":"y"}\n', b'OK {"id":2}\n')
    exchange(first, b'PUSH {"name":"a","queue":"x"}\n', b'OK {"id":3}\n')
    exchange(second, b'PUSH {"name":"a"}\n', b'OK {"id":4}\n')


def test_the_id_of_a_finished_task_is_not_used_again(wire: Wire) -> None:
    peer = wire.connect()
    exchange(peer, b'PUSH {"name":"a"}\n', b'OK {"id":1}\n')
    exchange(peer, b"FETCH\n", b'OK {"id":1,"queue":"default","name":"a"}\n')
    exchange(peer, b'ACK {"id":1}\n', b"OK {}\n")
    exchange(peer, b'PUSH {"name":"b"}\n', b'OK {"id":2}\n')


def test_a_refused_push_uses_no_id_and_creates_no_queue(wire: Wire) -> None:
    peer = wire.connect()
    exchange(peer, b'PUSH {"queue":"x"}\n', b'ERR {"msg":"invalid task name \\"\\""}\n')
    exchange(peer, b'PUSH {"name":"a","queue":"y","retry":-1}\n', CANNOT_UNMARSHAL)
    exchange(peer, b'PUSH {"name":"a"}\n', b'OK {"id":1}\n')
    assert queue_counts(peer) == {"default": (1, 0, 0)}


EXACT_PAYLOADS = [
    b"null",
    b"true",
    b"false",
    b"0",
    b"-0",
    b"1.0",
    b"1.50",
    b"1e5",
    b"1E+2",
    b"-2.50e-07",
    b"1e999",
    b"123456789012345678901234567890",
    b"0.1000000000000000055511151231257827",
    b'""',
    b'"text"',
    b'"two  spaces : , { } [ ] kept"',
    b"{}",
    b"[]",
    b"[[],{},[[]]]",
    b'{"b":1,"a":2,"C":3}',
    b'{"deep":{"er":[1,{"est":[null,true]}]}}',
    b'{"id":9,"queue":"not this","failures":7}',
]


@pytest.mark.parametrize("payload", EXACT_PAYLOADS)
def test_a_payload_comes_back_with_its_number_spelling_and_key_order(
    yard: SimulatedWire, payload: bytes
) -> None:
    peer = yard.connect()
    exchange(peer, b'PUSH {"name":"a","payload":' + payload + b"}\n", b'OK {"id":1}\n')
    exchange(
        peer, b"FETCH\n", b'OK {"id":1,"queue":"default","name":"a","payload":' + payload + b"}\n"
    )


def test_payloads_of_every_kind_come_back_over_one_connection(wire: Wire) -> None:
    peer = wire.connect()
    for number, payload in enumerate(EXACT_PAYLOADS, start=1):
        exchange(peer, b'PUSH {"name":"a","payload":%b}\n' % payload, b'OK {"id":%d}\n' % number)
    for number, payload in enumerate(EXACT_PAYLOADS, start=1):
        exchange(
            peer,
            b"FETCH\n",
            b'OK {"id":%d,"queue":"default","name":"a","payload":%b}\n' % (number, payload),
        )


@pytest.mark.parametrize(
    ("sent", "received"),
    [
        (b'{ "a" : 1 }', b'{"a":1}'),
        (b"[ 1 , 2,\t3 ]", b"[1,2,3]"),
        (b'  {"a":[ ],"b":{ }}  ', b'{"a":[],"b":{}}'),
        (b'{"a"\t:\r"x  y" , "b" : " "}', b'{"a":"x  y","b":" "}'),
        (b'[ "a \\" b" , "c\\\\" , 1 ]', b'["a \\" b","c\\\\",1]'),
    ],
)
def test_white_space_between_the_tokens_of_a_payload_is_left_out(
    yard: SimulatedWire, sent: bytes, received: bytes
) -> None:
    peer = yard.connect()
    exchange(peer, b'PUSH {"name":"a","payload":' + sent + b"}\n", b'OK {"id":1}\n')
    exchange(
        peer, b"FETCH\n", b'OK {"id":1,"queue":"default","name":"a","payload":' + received + b"}\n"
    )


@pytest.mark.parametrize(
    "payload",
    [
        b'"\\u00e9\\n\\t\\r\\b\\f\\"\\\\\\/"',
        b'"\\ud83d\\ude00"',
        b'"\\u0000\\u001f\\u007f"',
        b'"<b>&amp;</b>"',
        '"é ß 日本語 😀 \u2028\u2029"'.encode(),
        '{"ключ":"значение"}'.encode(),
    ],
)
def test_the_text_in_a_payload_comes_back_as_the_same_text(
    yard: SimulatedWire, payload: bytes
) -> None:
    peer = yard.connect()
    exchange(peer, b'PUSH {"name":"a","payload":' + payload + b"}\n", b'OK {"id":1}\n')
    peer.send(b"FETCH\n")
    verb, _, body = peer.read_line().partition(b" ")
    assert verb == b"OK"
    assert json.loads(body)["payload"] == json.loads(payload)


def test_a_number_of_ten_thousand_digits_comes_back_unchanged(yard: SimulatedWire) -> None:
    peer = yard.connect()
    digits = b"7" * 10_000
    exchange(peer, b'PUSH {"name":"a","payload":' + digits + b"}\n", b'OK {"id":1}\n')
    exchange(
        peer, b"FETCH\n", b'OK {"id":1,"queue":"default","name":"a","payload":' + digits + b"}\n"
    )


def test_a_hundred_levels_of_nesting_come_back_unchanged(yard: SimulatedWire) -> None:
    peer = yard.connect()
    nested = b"[" * 100 + b"]" * 100
    exchange(peer, b'PUSH {"name":"a","payload":' + nested + b"}\n", b'OK {"id":1}\n')
    exchange(
        peer, b"FETCH\n", b'OK {"id":1,"queue":"default","name":"a","payload":' + nested + b"}\n"
    )


def test_a_payload_of_one_mebibyte_is_accepted_and_comes_back(wire: Wire) -> None:
    peer = wire.connect()
    payload = b'"' + b"x" * (MIB - 2) + b'"'
    exchange(peer, b'PUSH {"name":"a","payload":' + payload + b"}\n", b'OK {"id":1}\n')
    exchange(
        peer, b"FETCH\n", b'OK {"id":1,"queue":"default","name":"a","payload":' + payload + b"}\n"
    )


def test_a_payload_of_one_byte_more_is_too_large(wire: Wire) -> None:
    peer = wire.connect()
    payload = b'"' + b"x" * (MIB - 1) + b'"'
    exchange(
        peer,
        b'PUSH {"name":"a","payload":' + payload + b"}\n",
        b'ERR {"msg":"payload too large"}\n',
    )
    exchange(peer, b'PUSH {"name":"a"}\n', b'OK {"id":1}\n')


@pytest.mark.parametrize("retry", [b"0", b"1", b"254", b"255"])
def test_retry_may_be_anything_from_0_to_255(yard: SimulatedWire, retry: bytes) -> None:
    peer = yard.connect()
    exchange(peer, b'PUSH {"name":"a","retry":' + retry + b"}\n", b'OK {"id":1}\n')


def test_names_are_up_to_255_bytes_of_any_visible_text(wire: Wire) -> None:
    peer = wire.connect()
    names = ["x" * 255, "é" * 127 + "x", "a/b:c.d-e_f", "задача", "😀"]
    for number, name in enumerate(names, start=1):
        written = json.dumps(name, ensure_ascii=False).encode()
        exchange(
            peer, b'PUSH {"name":%b,"queue":%b}\n' % (written, written), b'OK {"id":%d}\n' % number
        )
        peer.send(b'FETCH {"queues":[%b]}\n' % written)
        verb, _, body = peer.read_line().partition(b" ")
        assert verb == b"OK"
        assert json.loads(body) == {"id": number, "queue": name, "name": name}


def test_a_quote_in_a_name_is_escaped_in_the_reply(yard: SimulatedWire) -> None:
    peer = yard.connect()
    exchange(peer, b'PUSH {"name":"say\\"hi\\"","queue":"a\\\\b"}\n', b'OK {"id":1}\n')
    exchange(
        peer,
        b'FETCH {"queues":["a\\\\b"]}\n',
        b'OK {"id":1,"queue":"a\\\\b","name":"say\\"hi\\""}\n',
    )


def rfc3339(moment: float, zone: timezone = UTC) -> bytes:
    """A moment in milliseconds and with its zone, as an execute_at."""
    written = datetime.fromtimestamp(round(moment, 3), zone)
    return written.isoformat(timespec="milliseconds").encode()


def test_a_task_cannot_be_fetched_before_its_execute_at(yard: SimulatedWire) -> None:
    peer = yard.connect()
    due = rfc3339(yard.now() + 10)
    exchange(peer, b'PUSH {"name":"a","execute_at":"' + due + b'"}\n', b'OK {"id":1}\n')
    assert queue_counts(peer) == {"default": (0, 1, 0)}
    peer.send(b"FETCH\n")
    yard.advance(9.9)
    peer.expect_nothing()
    yard.advance(0.2)
    peer.expect(b'OK {"id":1,"queue":"default","name":"a"}\n')


def test_execute_at_is_kept_to_the_millisecond(yard: SimulatedWire) -> None:
    peer = yard.connect()
    due = rfc3339(yard.now() + 10.5)
    exchange(peer, b'PUSH {"name":"a","execute_at":"' + due + b'"}\n', b'OK {"id":1}\n')
    peer.send(b"FETCH\n")
    yard.advance(10.498)
    peer.expect_nothing()
    yard.advance(0.004)
    peer.expect(b'OK {"id":1,"queue":"default","name":"a"}\n')


@pytest.mark.parametrize("hours", [-11, -3.5, 0, 2, 5.75, 14])
def test_execute_at_may_be_in_any_zone(yard: SimulatedWire, hours: float) -> None:
    peer = yard.connect()
    due = rfc3339(yard.now() + 10, timezone(timedelta(hours=hours)))
    exchange(peer, b'PUSH {"name":"a","execute_at":"' + due + b'"}\n', b'OK {"id":1}\n')
    peer.send(b"FETCH\n")
    yard.advance(9.9)
    peer.expect_nothing()
    yard.advance(0.2)
    peer.expect(b'OK {"id":1,"queue":"default","name":"a"}\n')


@pytest.mark.parametrize(
    "moment",
    [
        b"1999-12-31T23:59:59Z",
        b"1970-01-01T00:00:00Z",
        b"1969-12-31T23:59:59.999Z",
        b"0001-01-01T00:00:00Z",
        b"2001-02-03T04:05:06.7Z",
        b"2001-02-03T04:05:06.123456Z",
        b"2001-02-03T04:05:06.123456789+01:00",
        b"2000-02-29T00:00:00-00:00",
    ],
)
def test_a_task_whose_execute_at_is_past_is_ready_at_once(
    yard: SimulatedWire, moment: bytes
) -> None:
    peer = yard.connect()
    exchange(peer, b'PUSH {"name":"a","execute_at":"' + moment + b'"}\n', b'OK {"id":1}\n')
    exchange(peer, b"FETCH\n", b'OK {"id":1,"queue":"default","name":"a"}\n')


@pytest.mark.parametrize("moment", [b"9999-12-31T23:59:59Z", b"9999-12-31T23:59:59-23:59"])
def test_a_task_of_the_far_future_is_accepted_and_waits(yard: SimulatedWire, moment: bytes) -> None:
    peer = yard.connect()
    exchange(peer, b'PUSH {"name":"a","execute_at":"' + moment + b'"}\n', b'OK {"id":1}\n')
    assert queue_counts(peer) == {"default": (0, 1, 0)}


def test_delayed_tasks_come_in_the_order_of_their_times(yard: SimulatedWire) -> None:
    peer = yard.connect()
    later, sooner = rfc3339(yard.now() + 10), rfc3339(yard.now() + 5)
    exchange(peer, b'PUSH {"name":"later","execute_at":"' + later + b'"}\n', b'OK {"id":1}\n')
    exchange(peer, b'PUSH {"name":"sooner","execute_at":"' + sooner + b'"}\n', b'OK {"id":2}\n')
    yard.advance(6)
    exchange(peer, b"FETCH\n", b'OK {"id":2,"queue":"default","name":"sooner"}\n')
    yard.advance(5)
    exchange(peer, b"FETCH\n", b'OK {"id":1,"queue":"default","name":"later"}\n')


def test_a_delayed_task_does_not_hold_up_a_ready_one(wire: Wire) -> None:
    peer = wire.connect()
    exchange(peer, b'PUSH {"name":"a","execute_at":"9999-01-01T00:00:00Z"}\n', b'OK {"id":1}\n')
    exchange(peer, b'PUSH {"name":"b"}\n', b'OK {"id":2}\n')
    exchange(peer, b"FETCH\n", b'OK {"id":2,"queue":"default","name":"b"}\n')


@pytest.mark.parametrize(
    ("push", "answer"),
    [
        (b'{"Name":"n","QUEUE":"q","Payload":[1, 2],"ReTRY":0}', b'"payload":[1,2]'),
        (b'{"name":"n","queue":"other","Queue":"q","payload":1}', b'"payload":1'),
        (b'{"queue":"q","Queue":null,"name":"n","payload":1}', b'"payload":1'),
        (b'{"NAME":"x","name":"n","Queue":"q","PAYLOAD":1,"payload":null}', b'"payload":null'),
        (b'{"Payload":1,"payload":2,"Payload":3,"name":"n","queue":"q"}', b'"payload":3'),
        (b'{"name":"n","queue":"q","other":{"Queue":"r"},"payload":1}', b'"payload":1'),
        (b'{"na\\u006de":"n","queue":"q","payload":1.00}', b'"payload":1.00'),
        (b'{"name":"n","queue":"p","Queue":"q","payload":' + LONG + b"}", b'"payload":' + LONG),
    ],
)
def test_the_case_of_keys_does_not_matter(wire: Wire, push: bytes, answer: bytes) -> None:
    peer = wire.connect()
    exchange(peer, b"PUSH " + push + b"\n", b'OK {"id":1}\n')
    told = b'OK {"id":1,"queue":"q","name":"n",' + answer + b"}\n"
    exchange(peer, b'FETCH {"Queues":["q"],"TIMEOUT":"1s"}\n', told)
    exchange(peer, b'ACK {"ID":1}\n', b"OK {}\n")


def test_a_key_of_another_case_is_checked_as_well(wire: Wire) -> None:
    bad = b'ERR {"msg":"cannot unmarshal payload"}\n'
    peer = wire.connect()
    exchange(peer, b'PUSH {"name":"n","Retry":256}\n', bad)
    exchange(peer, b'PUSH {"name":"n","Queue":1}\n', bad)
    exchange(peer, b'FETCH {"Timeout":true}\n', bad)


def test_a_key_of_another_case_counts_behind_a_prefix_that_is_remembered(wire: Wire) -> None:
    peer = wire.connect()
    exchange(peer, b'PUSH {"name":"n","queue":"a","payload":1}\n', b'OK {"id":1}\n')
    exchange(peer, b'PUSH {"name":"n","queue":"a","payload":1,"Queue":"b"}\n', b'OK {"id":2}\n')
    told = b'OK {"id":2,"queue":"b","name":"n","payload":1}\n'
    exchange(peer, b'FETCH {"queues":["b"]}\n', told)


@pytest.mark.parametrize("request_", [b"null", b" null", b'{"queues":null,"timeout":null}'])
def test_null_is_the_default_of_a_fetch(wire: Wire, request_: bytes) -> None:
    peer = wire.connect()
    exchange(peer, b'PUSH {"name":"a"}\n', b'OK {"id":1}\n')
    told = b'OK {"id":1,"queue":"default","name":"a"}\n'
    exchange(peer, b"FETCH " + request_ + b"\n", told)


def test_null_is_a_push_without_a_name_and_an_ack_without_an_id(wire: Wire) -> None:
    peer = wire.connect()
    exchange(peer, b"PUSH null\n", b'ERR {"msg":"invalid task name \\"\\""}\n')
    exchange(peer, b"ACK null\n", b'ERR {"msg":"missing id"}\n')


def test_an_empty_queue_is_no_name(wire: Wire) -> None:
    peer = wire.connect()
    bad = b'ERR {"msg":"invalid queue name \\"\\""}\n'
    exchange(peer, b'PUSH {"name":"a","queue":""}\n', bad)
    exchange(peer, b'PUSH {"name":"a","queue":"","payload":1}\n', bad)
    exchange(peer, b'PUSH {"name":"a","queue":"","payload":2}\n', bad)
    exchange(peer, b'FETCH {"queues":[""]}\n', bad)


@pytest.mark.parametrize("verb", [b"hello", b"Push1", b"auth", b"AUTH"])
def test_an_unknown_verb_is_quoted_as_it_was_sent(wire: Wire, verb: bytes) -> None:
    peer = wire.connect()
    exchange(peer, verb + b" {}\n", b'ERR {"msg":"unknown verb ' + verb + b'"}\n')
