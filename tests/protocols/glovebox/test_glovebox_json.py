"""Glovebox's JSON form: what each field may be, what is said without it, and bad texts."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from protocols.glovebox.test_bincode import fields

from taskyard.protocols.glovebox.messages import decode_request, encode_response
from taskyard.protocols.glovebox.types import (
    BAD_REQUEST,
    CODE_NAMES,
    READY,
    STAGE_NAMES,
    UNSPECIFIED,
    WAIT_SYNCED,
    WAIT_WRITTEN,
    Create,
    Error,
    Fetch,
    FetchedMessage,
    Finish,
    GloveboxRequest,
    Hello,
    MalformedMessage,
    NoMessage,
    Notice,
    Pop,
    Post,
)

MAX_U64 = 2**64 - 1


@pytest.mark.parametrize(
    ("text", "request_"),
    [
        ('{"type":"post","queue":"q","message":"m"}', Post("q", b"m")),
        (
            (
                '{"notify":["drop","ready"],"label":7,"priority":4294967295,"message":"m",'
                '"queue":"q","type":"post"}'
            ),
            Post("q", b"m", 2**32 - 1, 7, 0b1000001),
        ),
        ('{"type":"post","queue":"q","message":[0,255],"unknown":{}}', Post("q", b"\0\xff")),
        ('{"type":"post","queue":"q","message":[],"priority":null}', Post("q", b"")),
        ('{"type":"pop","queue":"q"}', Pop("q", UNSPECIFIED, None, 0)),
        (
            '{"type":"pop","queue":"q","timeout":1,"sync":"write","label":18446744073709551615}',
            Pop("q", WAIT_WRITTEN, 1.0, MAX_U64),
        ),
        (
            (
                '{"type":"fetch","queue":"q","block_timeout":0.5,"work_timeout":3,"sync":"sync",'
                '"label":2}'
            ),
            Fetch("q", 0.5, 3.0, WAIT_SYNCED, 2),
        ),
        ('{"type":"fetch","queue":"q","work_timeout":3}', Fetch("q", None, 3.0, READY, 0)),
        (
            '{"type":"finish","queue":"q","sequence":5,"shard":1,"label":3,"response":"ready"}',
            Finish("q", 5, 1, 3, READY),
        ),
        ('{"type":"finish","queue":"q","sequence":5}', Finish("q", 5, 0)),
        ('{"type":"create","queue":"q"}', Create("q")),
        (
            (
                '{"type":"create","queue":"q","label":1,"retries":2,"shard_max_entries":3,'
                '"shard_max_bytes":18446744073709551615}'
            ),
            Create("q", 1, 2, 3, MAX_U64),
        ),
    ],
)
def test_a_text_is_this_request(text: str, request_: GloveboxRequest) -> None:
    assert fields(decode_request(text.encode())) == fields(request_)


@pytest.mark.parametrize(
    ("text", "label"),
    [
        (b"", 0),
        (b"{", 0),
        (b"[]", 0),
        (b"null", 0),
        (b'{"label":5}', 5),
        (b'{"type":"nothing","label":5}', 5),
        (b'{"type":"pop","label":5}', 5),
        (b'{"type":"pop","queue":1,"label":5}', 5),
        (b'{"type":"pop","queue":"q","label":-1}', 0),
        (b'{"type":"pop","queue":"q","label":18446744073709551616}', 0),
        (b'{"type":"pop","queue":"q","label":"5"}', 0),
        (b'{"type":"pop","queue":"q","label":1.5}', 0),
        (b'{"type":"pop","queue":"q","timeout":"1","label":5}', 5),
        (b'{"type":"pop","queue":"q","timeout":1e999,"label":5}', 5),
        (b'{"type":"pop","queue":"q","sync":"assign","label":5}', 5),
        (b'{"type":"post","queue":"q","label":5}', 5),
        (b'{"type":"post","queue":"q","message":[256],"label":5}', 5),
        (b'{"type":"post","queue":"q","message":[-1],"label":5}', 5),
        (b'{"type":"post","queue":"q","message":{},"label":5}', 5),
        (b'{"type":"post","queue":"q","message":"","priority":-1,"label":5}', 5),
        (b'{"type":"post","queue":"q","message":"","priority":4294967296,"label":5}', 5),
        (b'{"type":"post","queue":"q","message":"","notify":["all"],"label":5}', 5),
        (b'{"type":"fetch","queue":"q","label":5}', 5),
        (b'{"type":"finish","queue":"q","sequence":-1,"label":5}', 5),
        (b'{"type":"finish","queue":"q","sequence":18446744073709551616,"label":5}', 5),
        (b'{"type":"create","queue":"q","retries":4294967296,"label":5}', 5),
        (b'{"type":"create","queue":"q","shard_max_bytes":18446744073709551616,"label":5}', 5),
        (b'{"type":"pop","queue":"\\ud800","label":5}', 0),
        (b'{"type":"pop","queue":"\xff","label":5}', 5),
        (b'{"type":"post","queue":"q","message":"\xc3\x28","label":5}', 5),
        (b'{"type":"pop","queue":"q"} {}', 0),
        (b"[" * 100_000, 0),
    ],
)
def test_what_is_no_request_is_malformed_and_its_label_is_known_if_it_can_be(
    text: bytes, label: int
) -> None:
    with pytest.raises(MalformedMessage) as caught:
        decode_request(text)
    assert str(caught.value)
    assert caught.value.label == label


@given(st.binary(max_size=100))
def test_any_bytes_are_a_request_or_malformed(text: bytes) -> None:
    with pytest.raises(MalformedMessage):
        decode_request(text)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=5,
)
names = st.sampled_from(
    [
        "queue",
        "message",
        "priority",
        "label",
        "notify",
        "timeout",
        "block_timeout",
        "work_timeout",
        "sync",
        "sequence",
        "shard",
        "response",
        "retries",
        "shard_max_entries",
        "shard_max_bytes",
    ]
)


@given(
    st.sampled_from(["post", "pop", "fetch", "finish", "create"]),
    st.dictionaries(names, json_values | st.just("q") | st.just("sync")),
)
def test_any_fields_are_a_request_or_malformed(kind: str, said: dict[str, Any]) -> None:
    try:
        request_ = decode_request(json.dumps({"type": kind, **said}).encode())
    except MalformedMessage:
        return
    assert 0 <= request_.label <= MAX_U64


@pytest.mark.parametrize(
    ("response", "text"),
    [
        (
            FetchedMessage(MAX_U64, 0, 3, "\u00e4".encode(), True),
            (
                '{"type":"message","label":18446744073709551615,"shard":0,"sequence":3,'
                '"body":"\u00e4","finished":true}'
            ),
        ),
        (
            FetchedMessage(1, 0, 3, b"\xff\0", False),
            '{"type":"message","label":1,"shard":0,"sequence":3,"body":[255,0],"finished":false}',
        ),
        (Hello(1 << 62), '{"type":"hello","id":4611686018427387904}'),
        (NoMessage(4), '{"type":"nomessage","label":4}'),
        *(
            (Notice(4, index), f'{{"type":"notice","label":4,"notice":"{name}"}}')
            for index, name in enumerate(STAGE_NAMES)
        ),
        *(
            (Error(4, code, "k"), f'{{"type":"error","label":4,"code":"{name}","key":"k"}}')
            for code, name in enumerate(CODE_NAMES)
        ),
    ],
)
def test_a_response_is_this_text(response: Any, text: str) -> None:
    assert encode_response(response).decode() == text


def test_the_names_are_those_of_the_protocol() -> None:
    assert STAGE_NAMES == ("ready", "write", "sync", "assign", "finish", "retry", "drop")
    assert CODE_NAMES[:3] == ("NoObject", "ObjectAlreadyExists", "PermissionDenied")
    assert CODE_NAMES[BAD_REQUEST] == "BadRequest"
