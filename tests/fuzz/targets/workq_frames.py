"""Workq's commands out of a stream, cut anywhere: the same commands as in one piece."""

from __future__ import annotations

from fuzz.inputs import Choices, cut, with_cuts

from taskyard.protocols.workq import messages as w

UID = b"6ba7b810-9dad-11d1-80b4-00c04fd430c4"
SEEDS = [
    b"\0" + with_cuts(b"add " + UID + b" ping 1000 60000 4\r\nping\r\n", 10, 40),
    b"\1" + with_cuts(b"schedule %s q 1 2 2016-01-02T15:04:05Z 2 -priority=1\r\nab\r\n" % UID, 70),
    b"\0" + with_cuts(b"complete %s 3\r\nabcd\r\nlease ping 0\r\n" % UID, 45, 1, 1, 1),
    b"\1" + with_cuts(b"fail %s 16385\r\nab" % UID + b"x" * 400, 41, 200),
    b"\0" + with_cuts(b"run %s q 1 1 1048577\r\n\r\n" % UID),
    b"\0" + with_cuts(b"add a b c d 99999999999\r\n"),
    b"\0" + with_cuts(b"inspect queues 0 5\n\r\n  inspect  server \r\n", 3),
]
WORDS = [b"add ", b"schedule ", b"run ", b"complete ", b"fail ", b"lease ", b"\r\n", b" 0\r\n"]
KINDS = (w.INCOMPLETE, w.COMMAND, w.BAD_ENDING, w.TOO_LONG, w.TOO_LARGE)


def fuzz(data: bytes) -> None:
    unknown = Choices(data).byte() % 2 == 1
    sent, pieces = cut(data[1:])
    assert _read([sent], unknown) == _read(pieces, unknown)


def _read(pieces: list[bytes], unknown: bool) -> list[object]:
    reader = w.WorkqFrameParser()
    reader.limit_unauthenticated_input(unknown)
    found: list[object] = []
    fed = 0
    for piece in pieces:
        reader.feed(piece)
        fed += len(piece)
        while (kind := reader.parse_next()) != w.INCOMPLETE:
            assert kind in KINDS
            if kind in (w.TOO_LONG, w.TOO_LARGE):
                return [*found, kind, list(reader.fields) if kind == w.TOO_LARGE else None]
            if kind == w.COMMAND:
                found.append((list(reader.fields), reader.block, reader.block_skipped))
            else:
                found.append(kind)
        assert 0 <= reader.buffered_bytes() <= fed
        assert not reader.pending_bytes()
    found.append(reader.partial_command_bytes() > 0)
    return found
