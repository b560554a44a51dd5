"""Two users push to one queue: a uid of one is not the other's, in any protocol's words."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from support.api import ApiClient
from support.fixed_gate import FixedAuthenticator
from support.simulated import SimulatedPeer, SimulatedServer

from taskyard.access.principal import INSPECT, PUSH, TAKE, Principal, Rule

UID = "6ba7b810-9dad-11d1-80b4-00c04fd430c8"
QUEUE = "s.pay"
ADA, EVE = (
    Principal(name, [Rule([QUEUE], [PUSH, TAKE, INSPECT])], is_superuser=False)
    for name in ("ada", "eve")
)
GATE = FixedAuthenticator({"ada": ADA, "eve": EVE})
TAKEN = b"another push has this uid, and this one does not repeat it"

Say = Callable[[SimulatedServer, Principal], bytes]


def connect(yard: SimulatedServer, dialect: str, user: Principal) -> SimulatedPeer:
    peer = yard.connect(dialect)
    peer.send(f"auth {user.name} {user.name}-secret\r\n".encode())
    GATE.answer()
    yard.run_pending()
    assert peer.take() == b"+OK\r\n"
    return peer


def said(yard: SimulatedServer, dialect: str, user: Principal, words: str) -> bytes:
    peer = connect(yard, dialect, user)
    peer.send(words.encode())
    yard.run_pending()
    return peer.take()


def over_http(yard: SimulatedServer, user: Principal) -> bytes:
    reply = ApiClient(yard, principal=user).post(f"/api/v1/queues/{QUEUE}/jobs", {"uid": UID})
    return str(reply.status).encode() + b" " + str(reply.body.get("type", "")).encode()


WAYS: dict[str, Say] = {
    "workq": lambda yard, user: said(
        yard, "workq", user, f"add {UID} {QUEUE} 1000 600000 1\r\nx\r\n"
    ),
    "JOB.PUSH": lambda yard, user: said(yard, "resp", user, f"JOB.PUSH {QUEUE} x UID {UID}\r\n"),
    "JOB.PUSHALL": lambda yard, user: said(
        yard, "resp", user, f"JOB.PUSHALL 1 4 {QUEUE} x UID {UID}\r\n"
    ),
    "api": over_http,
}
PUSHED = {
    "workq": b"+OK\r\n",
    "JOB.PUSH": b":1\r\n",
    "JOB.PUSHALL": b"*1\r\n:1\r\n",
    "api": b"201 ",
}
REPEATED = {
    "workq": b"-CLIENT-ERROR Duplicate job\r\n",
    "JOB.PUSH": b"-DUPLICATE 1 is a job with this uid\r\n",
    "JOB.PUSHALL": b"*1\r\n:1\r\n",
    "api": b"200 ",
}
REFUSED = {
    "workq": b"-CLIENT-ERROR ID taken\r\n",
    "JOB.PUSH": b"-UIDTAKEN %b\r\n" % TAKEN,
    "JOB.PUSHALL": b"-UIDTAKEN %b (job 1 of the command)\r\n" % TAKEN,
    "api": b"409 urn:taskyard:problem:uid-taken",
}


@pytest.mark.parametrize("then", WAYS)
@pytest.mark.parametrize("first", WAYS)
def test_a_uid_is_of_the_user_who_pushed_it(first: str, then: str) -> None:
    yard = SimulatedServer(gate=GATE)
    assert WAYS[first](yard, ADA) == PUSHED[first]
    for _ in range(2):
        assert WAYS[then](yard, ADA) == REPEATED[then]
        assert WAYS[then](yard, EVE) == REFUSED[then]
        yard.crash()
    assert yard.engine.state.next_id == 2
