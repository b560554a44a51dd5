"""RESP, both versions and inline: each command gets its replies, cut anywhere."""

from __future__ import annotations

import hiredis
from fuzz.inputs import cut, with_cuts
from fuzz.talking import check_served, check_server_state, let_pass, new_server, say

from taskyard.protocols.resp import wire as r

UID = b"6ba7b810-9dad-11d1-80b4-00c04fd430c4"


def pack(*words: bytes) -> bytes:
    parts = [b"*%d\r\n" % len(words)]
    parts += [b"$%d\r\n%b\r\n" % (len(word), word) for word in words]
    return b"".join(parts)


SEEDS = [
    with_cuts(
        pack(b"RPUSH", b"q", b"a", b"b")
        + pack(b"LRANGE", b"q", b"0", b"-1")
        + b"LPOP q\r\nLMOVE q p LEFT RIGHT\r\nLLEN p\r\nLREM p 0 b\r\nBLPOP q 1\r\n",
        20,
        31,
    ),
    with_cuts(
        b"HELLO 3\r\nJOB.PUSH q x UID %b KEY k TTL 1000 PRIORITY 3\r\n"
        b"JOB.TAKE 1 q COUNT 2 WAIT 5 TTR 9\r\nJOB.GET 1\r\nJOB.RESULT 1 WAIT 1\r\n" % UID,
        9,
    ),
    with_cuts(
        b"JOB.PUSH q x IN 5 FAILS 2 BACKOFF exponential 1 2 LIMIT a AFTER 1 1\r\n"
        b"JOB.PUSHALL 2 2 q a 4 q b NAME n\r\nJOB.TAKE 1 q\r\n"
    ),
    with_cuts(b"SET k v EX 5 NX GET\r\nGET k\r\nEXPIRE k 9\r\nTTL k\r\nMGET k q\r\nDEL k q\r\n"),
    with_cuts(b"UPDATE key 3\r\nSCORE key\r\nPEEK\r\nNEXT\r\nINFO\r\nINFO server\r\nSELECT 2\r\n"),
    with_cuts(b"MULTI\r\nRPUSH q 1\r\nLPOP q\r\nFOO\r\nEXEC\r\nMULTI\r\nPING\r\nEXEC\r\n", 8),
    with_cuts(pack(b"API", b"GET", b"/api/v1/queues?limit=1") + pack(b"CLIENT", b"SETNAME", b"x")),
    with_cuts(
        pack(b"API", b"POST", b"/api/v1/queues/q/jobs", b'{"payload":{"a":1}}', b"application/json")
    ),
    with_cuts(
        b"JOB.BATCH c 1 10 1 q\r\nJOB.BATCHDONE c 1\r\nCOMMAND COUNT\r\nTYPE q\r\nSCAN 0\r\n"
    ),
]
WORDS = [
    *(word + b" " for word in b"RPUSH LPUSH LPOP RPOP LLEN LRANGE LREM LMOVE BLPOP BLMOVE".split()),
    *(word + b" " for word in b"SET GET SETEX EXPIRE TTL MGET DEL EXISTS TYPE SCAN KEYS".split()),
    *(word + b" " for word in b"UPDATE SCORE PEEK NEXT INFO SELECT HELLO CLIENT CONFIG".split()),
    *(word + b" " for word in b"MULTI EXEC DISCARD WATCH COMMAND PING ECHO AUTH API".split()),
    *(word + b" " for word in b"JOB.PUSH JOB.PUSHALL JOB.TAKE JOB.DONE JOB.FAIL".split()),
    *(word + b" " for word in b"JOB.DONEALL BRIEF".split()),
    *(word + b" " for word in b"JOB.EXTEND JOB.RETURN JOB.RESULT JOB.PROGRESS".split()),
    *(b" " + word + b" " for word in b"UID KEY TTL TTR WAIT COUNT IN AT AFTER NAME EX PX".split()),
    b"*3\r\n$3\r\n",
    b"\r\n",
    UID,
]
AFTER = b"\r\nPING\r\n"
HOUR = 3600.0


def fuzz(data: bytes) -> None:
    sent, pieces = cut(data)
    after = AFTER if _is_whole(sent) else b""
    whole = _talk([sent], after)
    assert _talk(pieces, after) == whole


def _talk(pieces: list[bytes], after: bytes) -> bytes:
    yard = new_server()
    peer = say(yard, "resp", [*pieces, after])
    heard = let_pass(yard, peer, b"PONG\r\n", HOUR)
    waits = bool(yard.engine.waiters or yard.engine.watchers)
    if after and not peer.closed and not waits:
        assert heard.endswith((b"PONG\r\n", b"+QUEUED\r\n")), heard
    _check_form(heard, peer.closed)
    check_served(yard)
    check_server_state(yard)
    return heard


def _check_form(heard: bytes, closed: bool) -> None:
    """Replies that any client can read, to the last byte."""
    reader = hiredis.Reader()
    reader.feed(heard)
    while reader.has_data():
        try:
            reply = reader.gets()
        except hiredis.ProtocolError as error:
            assert heard.startswith(b"HTTP/"), f"{error}: {heard!r}"
            return
        if reply is False:
            assert not reader.has_data(), f"half a reply at the end of {heard!r}"
            return


def _is_whole(sent: bytes) -> bool:
    reader = r.RespFrameParser(1 << 16)
    reader.feed(sent)
    while (kind := reader.parse_next()) == r.COMMAND:
        pass
    return kind == r.INCOMPLETE and not reader.partial_command_bytes()
