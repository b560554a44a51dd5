"""Masenko PUSH after one that begins alike: it means what its JSON says, whatever came before."""

import json

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from support.effort import effort

from taskyard.engine.model.job import NewJob, Policy
from taskyard.protocols.masenko.parsing import BAD_JSON, CommandError, RequestParser

HEARTBEAT = 45_000_000

KEYS = [
    *("payload", "queue", "name", "retry", "deadqueue", "execute_at", "blocked_by", "x"),
    *("Payload", "PAYLOAD", "Queue", "pay\\u006coad", '\\"payload'),
]
VALUES = [
    "1",
    '"a"',
    '"b"',
    "null",
    "[]",
    "[-1]",
    '{"payload":1}',
    '{"x":{"payload":"a"}}',
    '"\\"payload\\":"',
    '"payload"',
    '":"',
    '"2100-01-02T03:04:05Z"',
    "1 ",
    "[1, 2]",
    '"\u00e9"',
    # No JSON value, or more than one.
    "",
    "{",
    "}",
    '"',
    "1,2",
    '1,"queue":"c"',
    '1},{"payload":1',
    "01",
]


def requests() -> RequestParser:
    return RequestParser(HEARTBEAT, 20)


def outcome(requests: RequestParser, text: bytes) -> object:
    """What the push asks for, or why it is refused."""
    try:
        new = requests.parse_push(text)
    except CommandError as refusal:
        return str(refusal)
    return {
        name: told(new.policy) if name == "policy" else getattr(new, name)
        for name in fields(NewJob)
    }


def fields(kind: type) -> list[str]:
    """A compiled class has no __slots__."""
    found = vars(kind).items()
    return [name for name, held in found if not name.startswith("_") and not callable(held)]


def told(policy: Policy) -> dict[str, object]:
    return {name: getattr(policy, name) for name in fields(Policy)}


@pytest.mark.parametrize(
    ("text", "payload"),
    [
        (b'{"queue":"q","name":"n","payload":"two"}', b'"two"'),
        (b'{"queue":"q","name":"n","payload":{"a":[1, 2]}}', b'{"a":[1,2]}'),
        (b'{"queue":"q","name":"n","payload": 5 }', b"5"),
        (b'{"queue":"q","name":"n","payload":"\xc3\xa9"}', '"é"'.encode()),
        (b'{"queue":"q","name":"n","payload":null}', b"null"),
    ],
)
def test_only_the_payload_differs(text: bytes, payload: bytes) -> None:
    reader = requests()
    reader.parse_push(b'{"queue":"q","name":"n","payload":"one"}')
    new = reader.parse_push(text)
    assert (new.queue, new.name, new.payload) == ("q", "n", payload)


@pytest.mark.parametrize(
    "text",
    [
        b'{"queue":"q","payload":}',
        b'{"queue":"q","payload":1,2}',
        b'{"queue":"q","payload":"1}',
        b'{"queue":"q","payload":1}}',
        b'{"queue":"q","payload":"\xff"}',
        b'{"queue":"q","payload":"\n"}',
        b'{"queue":"q","payload":[}',
    ],
)
def test_what_is_no_json_is_refused(text: bytes) -> None:
    reader = requests()
    reader.parse_push(b'{"queue":"q","payload":1}')
    assert outcome(reader, text) == BAD_JSON
    assert reader.parse_push(b'{"queue":"q","payload":2}').payload == b"2"


def test_what_stands_behind_the_payload_counts() -> None:
    reader = requests()
    reader.parse_push(b'{"queue":"q","payload":1}')
    new = reader.parse_push(b'{"queue":"q","payload":1,"queue":"other","retry":0}')
    assert (new.queue, new.payload, new.policy.max_fails) == ("other", b"1", 1)


def test_those_that_go_on_behind_the_payload_are_read_twice_only_once() -> None:
    reader = requests()
    reader.parse_push(b'{"payload":1}')
    long = b'{"payload":1,"retry":3}'
    assert outcome(reader, long) == outcome(requests(), long)
    assert reader._cached_push_prefix == b""
    reader.parse_push(b'{"payload":2}')
    assert reader._cached_push_prefix == b'{"payload":'


def test_a_time_and_blockers_are_for_one_push_only() -> None:
    reader = requests()
    later = reader.parse_push(b'{"execute_at":"2100-01-02T03:04:05Z","payload":1}')
    blocked = reader.parse_push(b'{"blocked_by":[1],"payload":1}')
    plain = reader.parse_push(b'{"payload":1}')
    assert later.run_at > 0
    assert blocked.blocked_by == [1]
    assert (plain.run_at, plain.blocked_by) == (0, None)


def pushes() -> st.SearchStrategy[bytes]:
    pairs = st.lists(st.tuples(st.sampled_from(KEYS), st.sampled_from(VALUES)), max_size=4)
    return st.tuples(pairs, st.sampled_from(["", "", "", " "])).map(
        lambda drawn: spelled(drawn[0], drawn[1]).encode()
    )


def spelled(pairs: list[tuple[str, str]], space: str) -> str:
    members = [f'{space}"{key}":{space}{value}' for key, value in pairs]
    return "{" + ",".join(members) + space + "}"


@settings(max_examples=effort(5000, 600))
@given(st.lists(pushes(), min_size=2, max_size=6))
@example([b'{"payload":1,"x":{"payload":1}}', b'{"payload":1,"x":{"payload":2}}'])
@example([b'{"x":"\\"payload":1}', b'{"payload":1,"retry":1}', b'{"payload":1,"retry":2}'])
def test_a_push_means_the_same_to_a_reader_that_has_read_others(texts: list[bytes]) -> None:
    reader = requests()
    for text in texts:
        assert outcome(reader, text) == outcome(requests(), text)


@settings(max_examples=effort(5000, 600))
@given(pushes(), st.sampled_from(VALUES) | st.text(max_size=8), st.binary(max_size=4))
@example(b'{"Payload":1,"payload":1}', "null", b"")
@example(b'{"payload":1,"Payload":2}', '3,"Payload":4', b"")
@example(b'{"queue":"","payload":1}', '1,"queue":"q"', b"")
def test_a_push_means_the_same_whatever_the_cache_holds(
    first: bytes, payload: str, junk: bytes
) -> None:
    """The second push begins as the first, up to where its payload stands."""
    reader = requests()
    outcome(reader, first)
    begin = reader._cached_push_prefix or first[: first.rfind(b":") + 1]
    for second in (begin + payload.encode() + b"}", begin + junk + payload.encode() + junk + b"}"):
        cold = outcome(requests(), second)
        assert outcome(reader, second) == cold
        assert outcome(reader, second) == cold


@settings(max_examples=effort(2000, 200))
@given(st.lists(st.text(max_size=8), min_size=1, max_size=8))
def test_payloads_in_a_row_come_as_they_are(payloads: list[str]) -> None:
    reader = requests()
    for payload in payloads:
        spelled = json.dumps(payload, ensure_ascii=False).encode()
        assert reader.parse_push(b'{"queue":"q","payload":%b}' % spelled).payload == spelled
