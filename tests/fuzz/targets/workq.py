"""Workq's commands: each gets its reply, cut anywhere; behind whole ones the connection goes on."""

from __future__ import annotations

from fuzz.inputs import cut, with_cuts
from fuzz.talking import check_served, check_server_state, let_pass, new_server, say

from taskyard.protocols.workq import messages as w

ONE = b"6ba7b810-9dad-11d1-80b4-00c04fd430c4"
TWO = b"6ba7b814-9dad-11d1-80b4-00c04fd430c4"
TIME = b"2023-11-14T22:13:30Z"
SEEDS = [
    with_cuts(
        b"add %b ping 1000 60000 4 -priority=5\r\nping\r\nlease ping pong 10\r\n"
        b"complete %b 4\r\npong\r\nresult %b 0\r\ndelete %b\r\n" % (ONE, ONE, ONE, ONE),
        50,
        40,
    ),
    with_cuts(
        b"schedule %b q.1 1000 60000 %b 2 -max-attempts=3 -max-fails=1\r\nab\r\n"
        b"inspect scheduled-jobs q.1 0 10\r\nlease q.1 20000\r\nfail %b 1\r\nx\r\n"
        b"inspect job %b\r\n" % (TWO, TIME, TWO, TWO),
        80,
    ),
    with_cuts(b"run %b ping 1000 5 0\r\n\r\ninspect queues 0 10\r\ninspect queue ping\r\n" % ONE),
    with_cuts(
        b"add %b a 1 1 3\r\nxyz\r\ninspect jobs a 0 10\r\ninspect server\r\nauth t\r\n" % ONE, 9
    ),
    with_cuts(b"add %b a 1 1 2\r\nxyz\r\n\r\nresult %b 5\r\nfoo\r\nlease a\n" % (ONE, ONE), 40),
]
WORDS = [
    b"add ",
    b"schedule ",
    b"run ",
    b"lease ",
    b"complete ",
    b"fail ",
    b"result ",
    b"delete ",
    b"inspect ",
    b"queues ",
    b"jobs ",
    b"scheduled-jobs ",
    b"server\r\n",
    b" -priority=",
    b" -max-attempts=",
    b" -max-fails=",
    ONE,
    TWO,
    b"\r\n",
]
AFTER = b"inspect server\r\n"
DAY = 86_400.0


def fuzz(data: bytes) -> None:
    sent, pieces = cut(data)
    # Behind half a command nothing can be asked.
    after = AFTER if _is_whole(sent) else b""
    whole = _talk([sent], after)
    assert _talk(pieces, after) == whole


def _talk(pieces: list[bytes], after: bytes) -> bytes:
    yard = new_server()
    peer = say(yard, "workq", pieces)
    before = let_pass(yard, peer, b"", DAY)
    peer.send(after)
    heard = let_pass(yard, peer, b"\r\n", DAY)
    if after and not peer.closed:
        assert b"+OK" in heard or heard.startswith(b"-"), heard
        assert heard.endswith(b"\r\n")
    _check_form(before + heard)
    check_served(yard)
    check_server_state(yard)
    return before + heard


def _check_form(heard: bytes) -> None:
    """All replies begin with + or -, and what follows a line is as long as it says."""
    at = 0
    while at < len(heard) and not heard.startswith(b"HTTP/"):
        end = heard.index(b"\r\n", at)
        assert heard[at : at + 1] in (b"+", b"-"), heard[at:end]
        at = end + 2
        while at < len(heard) and heard[at : at + 1] not in (b"+", b"-"):
            at = _behind(heard, at)


def _behind(heard: bytes, at: int) -> int:
    """Where a line ends, with the block that its last field announces, if there is one there."""
    end = heard.index(b"\r\n", at)
    size = heard[at:end].rpartition(b" ")[2]
    after = end + 2
    if size.isdigit() and len(size) < 8:
        block = after + int(size)
        if heard[block : block + 2] == b"\r\n":
            return block + 2
    return after


def _is_whole(sent: bytes) -> bool:
    reader = w.WorkqFrameParser()
    reader.feed(sent)
    while (kind := reader.parse_next()) != w.INCOMPLETE:
        if kind in (w.TOO_LONG, w.TOO_LARGE):
            return False
    return not reader.partial_command_bytes() and not reader.buffered_bytes()
