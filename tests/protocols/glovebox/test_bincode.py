"""Glovebox's binary form: golden bytes written by hand from the layout, round trips, bad bytes."""

import contextlib
import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from taskyard.protocols.glovebox.bincode import (
    decode_request,
    decode_response,
    encode_request,
    encode_response,
)
from taskyard.protocols.glovebox.types import (
    BAD_REQUEST,
    NO_OBJECT,
    OBJECT_ALREADY_EXISTS,
    PERMISSION_DENIED,
    READY,
    UNAVAILABLE,
    UNSPECIFIED,
    WAIT_SYNCED,
    WAIT_WRITTEN,
    Create,
    Error,
    Fetch,
    FetchedMessage,
    Finish,
    GloveboxRequest,
    GloveboxResponse,
    Hello,
    MalformedMessage,
    NoMessage,
    Notice,
    Pop,
    Post,
)


def fields(said: object) -> dict[str, Any]:
    """All that a request or response says."""
    names = [name for name in dir(said) if not name.startswith("_")]
    return {"kind": type(said).__name__} | {name: getattr(said, name) for name in names}


def hexed(text: str) -> bytes:
    return bytes.fromhex(text)


Q = "01 00 00 00 00 00 00 00 71 "  # the string "q"

REQUESTS: list[tuple[GloveboxRequest, str]] = [
    (
        Post("q", b"hi", 3, 4, 0b1000101),
        "00 00 00 00  00 00 00 00 " + Q + "02 00 00 00 00 00 00 00  68 69 "
        "03 00 00 00  04 00 00 00 00 00 00 00 "
        "03 00 00 00 00 00 00 00  00 00 00 00  02 00 00 00  06 00 00 00",
    ),
    (
        Post("", b"", 0xFFFF_FFFF, 2**64 - 1, 0),
        (
            "00 00 00 00  00 00 00 00  00 00 00 00 00 00 00 00  00 00 00 00 00 00 00 00 "
            "ff ff ff ff  ff ff ff ff ff ff ff ff  00 00 00 00 00 00 00 00"
        ),
    ),
    (
        Fetch("q", 1.5, 30.0, WAIT_WRITTEN, 7),
        "00 00 00 00  01 00 00 00 " + Q + "01 00 00 c0 3f  00 00 f0 41 "
        "01 00 00 00  07 00 00 00 00 00 00 00",
    ),
    (
        Fetch("q", None, 1.0, WAIT_SYNCED, 0),
        "00 00 00 00  01 00 00 00 " + Q + "00  00 00 80 3f 02 00 00 00  00 00 00 00 00 00 00 00",
    ),
    (
        Finish("q", 0x0102, 3, 9, READY),
        "00 00 00 00  02 00 00 00 " + Q + "02 01 00 00 00 00 00 00  03 00 00 00 "
        "01 09 00 00 00 00 00 00 00  01 00 00 00 00",
    ),
    (
        Finish("q", 1, 0),
        "00 00 00 00  02 00 00 00 " + Q + "01 00 00 00 00 00 00 00  00 00 00 00  00  00",
    ),
    (
        Pop("q", WAIT_SYNCED, 0.5, 5),
        "00 00 00 00  03 00 00 00 " + Q + "02 00 00 00  01 00 00 00 3f 05 00 00 00 00 00 00 00",
    ),
    (
        Pop("q", READY, None, 5),
        "00 00 00 00  03 00 00 00 " + Q + "00 00 00 00  00  05 00 00 00 00 00 00 00",
    ),
    (
        Create("q", 6, 20, 1000, 2**40),
        "00 00 00 00  04 00 00 00 " + Q + "06 00 00 00 00 00 00 00  01 14 00 00 00 "
        "01 e8 03 00 00 00 00 00 00  01 00 00 00 00 00 01 00 00",
    ),
    (
        Create("q", 6),
        "00 00 00 00  04 00 00 00 " + Q + "06 00 00 00 00 00 00 00  00  00  00",
    ),
]

RESPONSES: list[tuple[GloveboxResponse, str]] = [
    (
        FetchedMessage(1, 2, 3, b"hi", True),
        (
            "00 00 00 00  00 00 00 00  01 00 00 00 00 00 00 00  02 00 00 00 "
            "03 00 00 00 00 00 00 00  02 00 00 00 00 00 00 00  68 69  01"
        ),
    ),
    (
        FetchedMessage(2**64 - 1, 0, 1, b"", False),
        (
            "00 00 00 00  00 00 00 00  ff ff ff ff ff ff ff ff  00 00 00 00 "
            "01 00 00 00 00 00 00 00  00 00 00 00 00 00 00 00  00"
        ),
    ),
    *(
        (
            Notice(8, stage),
            f"00 00 00 00  01 00 00 00  08 00 00 00 00 00 00 00  0{stage} 00 00 00",
        )
        for stage in range(7)
    ),
    (
        Hello(0x4000_0000_0000_0001),
        "00 00 00 00  02 00 00 00  01 00 00 00 00 00 00 40",
    ),
    (NoMessage(5), "00 00 00 00  03 00 00 00  05 00 00 00 00 00 00 00"),
    (
        Error(5, NO_OBJECT, "q"),
        "00 00 00 00  04 00 00 00  05 00 00 00 00 00 00 00  00 00 00 00 " + Q,
    ),
    (
        Error(5, OBJECT_ALREADY_EXISTS, "q"),
        "00 00 00 00  04 00 00 00  05 00 00 00 00 00 00 00  01 00 00 00 " + Q,
    ),
    (
        Error(5, PERMISSION_DENIED, "\u00e4"),
        (
            "00 00 00 00  04 00 00 00  05 00 00 00 00 00 00 00  02 00 00 00 "
            "02 00 00 00 00 00 00 00 c3 a4"
        ),
    ),
]


@pytest.mark.parametrize(("request_", "golden"), REQUESTS)
def test_a_request_is_these_bytes(request_: GloveboxRequest, golden: str) -> None:
    assert encode_request(request_) == hexed(golden)
    assert fields(decode_request(hexed(golden))) == fields(request_)


@pytest.mark.parametrize(("response", "golden"), RESPONSES)
def test_a_response_is_these_bytes(response: GloveboxResponse, golden: str) -> None:
    assert encode_response(response) == hexed(golden)
    assert fields(decode_response(hexed(golden))) == fields(response)


@pytest.mark.parametrize(
    ("code", "key"), [(BAD_REQUEST, "BadRequest:why"), (UNAVAILABLE, "Unavailable:why")]
)
def test_codes_of_our_own_are_spelt_out_in_the_key(code: int, key: str) -> None:
    decoded = decode_response(encode_response(Error(1, code, "why")))
    assert fields(decoded) == fields(Error(1, PERMISSION_DENIED, key))


def test_a_stage_may_be_named_twice() -> None:
    twice = hexed(
        "00 00 00 00  00 00 00 00 " + Q + "00 00 00 00 00 00 00 00  00 00 00 00 "
        "00 00 00 00 00 00 00 00  02 00 00 00 00 00 00 00  03 00 00 00  03 00 00 00"
    )
    assert fields(decode_request(twice)) == fields(Post("q", b"", 0, 0, 0b1000))


# Round trips

u32 = st.integers(0, 2**32 - 1)
u64 = st.integers(0, 2**64 - 1)
f32 = st.floats(width=32, allow_nan=False)
level = st.sampled_from([READY, WAIT_WRITTEN, WAIT_SYNCED])
name = st.text(st.characters(codec="utf-8"), max_size=20)

requests = st.one_of(
    st.builds(Post, name, st.binary(max_size=300), u32, u64, st.integers(0, 127)),
    st.builds(Fetch, name, st.none() | f32, f32, level, u64),
    st.builds(Finish, name, u64, u32, st.none() | u64, level | st.just(UNSPECIFIED)),
    st.builds(Pop, name, level, st.none() | f32, u64),
    st.builds(Create, name, u64, st.none() | u32, st.none() | u64, st.none() | u64),
)
responses = st.one_of(
    st.builds(FetchedMessage, u64, u32, u64, st.binary(max_size=300), st.booleans()),
    st.builds(Notice, u64, st.integers(0, 6)),
    st.builds(Hello, u64),
    st.builds(NoMessage, u64),
    st.builds(Error, u64, st.integers(0, 2), name),
)


@given(requests)
def test_a_request_comes_back_as_it_was(request_: GloveboxRequest) -> None:
    assert fields(decode_request(encode_request(request_))) == fields(request_)


@given(responses)
def test_a_response_comes_back_as_it_was(response: GloveboxResponse) -> None:
    assert fields(decode_response(encode_response(response))) == fields(response)


# Bad bytes


@given(requests, st.data())
def test_a_request_that_is_cut_off_is_none(request_: GloveboxRequest, data: st.DataObject) -> None:
    whole = encode_request(request_)
    cut = data.draw(st.integers(0, len(whole) - 1))
    with pytest.raises(MalformedMessage, match="ends too early"):
        decode_request(whole[:cut])


@given(requests, st.binary(min_size=1, max_size=9))
def test_nothing_may_follow_a_request(request_: GloveboxRequest, more: bytes) -> None:
    with pytest.raises(MalformedMessage):
        decode_request(encode_request(request_) + more)


@given(responses, st.binary(min_size=1, max_size=9))
def test_nothing_may_follow_a_response(response: GloveboxResponse, more: bytes) -> None:
    with pytest.raises(MalformedMessage):
        decode_response(encode_response(response) + more)


@given(st.binary(max_size=200))
def test_any_bytes_are_a_request_or_malformed(data: bytes) -> None:
    for start in (b"", *(struct.pack("<II", 0, kind) for kind in range(5))):
        try:
            request_ = decode_request(start + data)
        except MalformedMessage:
            continue
        # What is accepted has one spelling only, but for the order of stages and what a NaN holds.
        assert len(encode_request(request_)) <= len(start + data)


@given(requests, st.data())
def test_a_request_with_one_other_byte_is_another_one_or_malformed(
    request_: GloveboxRequest, data: st.DataObject
) -> None:
    changed = bytearray(encode_request(request_))
    at = data.draw(st.integers(0, len(changed) - 1))
    changed[at] = data.draw(st.integers(0, 255))
    with contextlib.suppress(MalformedMessage):
        decode_request(bytes(changed))


@pytest.mark.parametrize("index", [5, 2**32 - 1])
def test_an_unknown_request_is_malformed(index: int) -> None:
    with pytest.raises(MalformedMessage, match="unknown request"):
        decode_request(struct.pack("<II", 0, index) + hexed(Q))


def test_another_version_is_malformed() -> None:
    golden = hexed(REQUESTS[0][1])
    with pytest.raises(MalformedMessage, match="unknown version"):
        decode_request(b"\1" + golden[1:])


@pytest.mark.parametrize("size", [2, 2**31, 2**63, 2**64 - 1])
def test_a_length_beyond_the_data_is_malformed_and_costs_nothing(size: int) -> None:
    with pytest.raises(MalformedMessage, match="ends too early"):
        decode_request(struct.pack("<IIQ", 0, 0, size) + b"q")


@pytest.mark.parametrize("count", [1, 2**30, 2**62, 2**64 - 1])
def test_a_list_longer_than_the_data_is_malformed_and_costs_nothing(count: int) -> None:
    head = struct.pack("<II", 0, 0) + hexed(Q) + struct.pack("<QIQQ", 0, 0, 0, count)
    with pytest.raises(MalformedMessage, match="ends too early"):
        decode_request(head)


def test_an_unknown_stage_or_durability_is_malformed() -> None:
    post = struct.pack("<II", 0, 0) + hexed(Q) + struct.pack("<QIQQ", 0, 0, 0, 1)
    with pytest.raises(MalformedMessage, match="unknown stage"):
        decode_request(post + struct.pack("<I", 7))
    pop = struct.pack("<II", 0, 3) + hexed(Q)
    with pytest.raises(MalformedMessage, match="unknown durability"):
        decode_request(pop + struct.pack("<IBQ", 3, 0, 0))


def test_an_option_is_there_or_not() -> None:
    pop = struct.pack("<II", 0, 3) + hexed(Q)
    with pytest.raises(MalformedMessage, match="neither"):
        decode_request(pop + struct.pack("<IBfQ", 0, 2, 1.0, 0))


def test_a_name_must_be_utf8() -> None:
    with pytest.raises(MalformedMessage, match="not UTF-8"):
        decode_request(struct.pack("<IIQ", 0, 4, 2) + b"\xc3\x28")


def test_what_is_no_response_is_malformed() -> None:
    for bad in (b"", struct.pack("<II", 0, 5), struct.pack("<IIQI", 0, 1, 0, 7)):
        with pytest.raises(MalformedMessage):
            decode_response(bad)
    error = struct.pack("<IIQI", 0, 4, 0, 3) + hexed(Q)
    with pytest.raises(MalformedMessage, match="unknown code"):
        decode_response(error)
