"""Short texts of settings, flags and requests: read as what they are, or refused as said.

The first byte says which of them it is.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import datetime

from fuzz.inputs import text_of

from taskyard.cli.content import content_from_bytes, format_in_one_line, format_lines
from taskyard.cli.failure import CommandFailed
from taskyard.cli.units import bytes_of, moment_of, seconds_of
from taskyard.client.url import Address
from taskyard.protocols.http.api.problems import (
    ApiProblem,
    CursorType,
    FinishedCursor,
    JobCursor,
    NameCursor,
    RecordCursor,
    read_cursor,
    write_cursor,
)
from taskyard.protocols.resp.wire import split_quoted
from taskyard.protocols.text import (
    as_json,
    compact,
    format_moment,
    format_time,
    parse_time,
    parse_uid,
    show_uid,
)
from taskyard.shared.text import (
    MAX_NAME,
    format_duration,
    format_size,
    parse_duration,
    parse_nanoseconds,
    parse_size,
    valid_name,
)


def durations(data: bytes) -> None:
    try:
        nanoseconds = parse_nanoseconds(text_of(data))
    except ValueError:
        return
    assert -(2**63) <= nanoseconds < 2**63
    found = parse_duration(text_of(data))
    assert abs(found) == abs(nanoseconds) // 1000
    assert parse_duration(format_duration(found)) == found


def sizes(data: bytes) -> None:
    try:
        size = parse_size(text_of(data))
    except ValueError:
        return
    assert 0 <= size < 2**63
    assert parse_size(format_size(size)) == size


def times(data: bytes) -> None:
    try:
        moment = parse_time(text_of(data))
    except ValueError:
        return
    assert 0 <= moment < 2**63
    format_time(moment)
    shown = format_moment(moment)
    assert shown is None or parse_time(shown) == moment


def uids(data: bytes) -> None:
    uid = parse_uid(data)
    if uid is not None:
        assert len(uid) == 16
        assert show_uid(uid) == data.lower()


def names(data: bytes) -> None:
    text = text_of(data)
    if valid_name(text):
        assert 1 <= len(text.encode()) <= MAX_NAME
        assert not any(character.isspace() for character in text)


def units(data: bytes) -> None:
    text = text_of(data)
    for read in (seconds_of, moment_of, bytes_of):
        try:
            found = read(text, "--flag")
        except CommandFailed:
            continue
        assert isinstance(found, datetime) or found >= 0


def addresses(data: bytes) -> None:
    try:
        address = Address.parse(text_of(data))
    except ValueError:
        return
    assert 0 <= address.port <= 65535
    assert 0 <= address.database < 16
    str(address)
    try:
        again = Address.parse(address.url)
    except UnicodeEncodeError:
        return  # lone surrogates have no place in a URL
    assert again == address


def cursors(data: bytes) -> None:
    _cursor(text_of(data), NameCursor)
    _cursor(text_of(data), JobCursor)
    _cursor(text_of(data), FinishedCursor)
    _cursor(text_of(data), RecordCursor)


def _cursor(text: str, kind: type[CursorType]) -> None:
    try:
        place = read_cursor(text, kind)
    except ApiProblem:
        return
    assert read_cursor(write_cursor(place), kind) == place


def payloads(data: bytes) -> None:
    """Any payload is shown as JSON, and JSON stays what it is."""
    found = as_json(data)
    json.loads(found)
    assert compact(found) == found
    content = content_from_bytes(data)
    format_in_one_line(content)
    format_lines(content)
    json.dumps(content)


def words(data: bytes) -> None:
    found = split_quoted(data)
    if found is not None:
        quoted = b" ".join(b'"' + _escaped(word) + b'"' for word in found)
        assert split_quoted(quoted) == found


def _escaped(word: bytes) -> bytes:
    return b"".join(b"\\x%02x" % byte for byte in word)


READERS: list[Callable[[bytes], None]] = [
    durations,
    sizes,
    times,
    uids,
    names,
    units,
    addresses,
    cursors,
    payloads,
    words,
]
EXAMPLES = [
    (durations, [b"1h2m3.5s", b"-1.5us", b"2562047h47m16.854775807s", "1µs".encode(), b"0"]),
    (sizes, [b"64MiB", b"1 GiB", b"9223372036854775807", b"8388608TiB"]),
    (times, [b"2030-01-31T08:00:00.123456789+23:59", b"0001-01-01T00:00:00Z"]),
    (uids, [b"6ba7b810-9dad-11d1-80b4-00C04FD430C4"]),
    (names, ["é.a".encode(), b"a b", b"x" * 255]),
    (units, [b"1.5d", b"2030-01-31T12:00", b"1700000000", b"1m30s", b"64KiB"]),
    (addresses, [b"taskyards://u%20:p@[::1]:80/3?timeout=1.5&ca=f&cert=c&key=k", b"taskyard://a"]),
    (cursors, [b"WyJuIiwibWFpbCJd", b"WyJqIiwicSIsInJlYWR5IiwwLDEsMV0", b"WyJlIiwxLDIsdHJ1ZV0"]),
    (payloads, [b'{"a": [1.5, "x y"]}', b"\xff\0", b"text", b"[NaN, 1e999]"]),
    (words, [b"a \"b\\x41\\n\" 'c\\'d'", b'""']),
]
SEEDS = [bytes([READERS.index(reader)]) + example for reader, some in EXAMPLES for example in some]
LONGEST = 400


def fuzz(data: bytes) -> None:
    if data:
        READERS[data[0] % len(READERS)](data[1:])
