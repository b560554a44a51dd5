"""Who may do what: every user, in every protocol, with every command.

The table of commands says which permission each of them needs; all else follows from it. What is
denied is answered in the protocol's own words, and leaves no record behind.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import pytest
from support.fixed_gate import FixedAuthenticator
from support.simulated import GloveboxPeer, SimulatedPeer, SimulatedServer

from taskyard.access.principal import ADMIN, INSPECT, PUSH, TAKE, Principal, Rule
from taskyard.access.principal import JOURNAL as JOURNAL_ACTION
from taskyard.engine.model.job import NewJob, Origin, Policy
from taskyard.engine.model.queue import QueueSettings
from taskyard.engine.records import job_lifecycle as kinds
from taskyard.journal.identity import JOURNAL
from taskyard.journal.reader import JournalReader
from taskyard.protocols.connection import ProtocolConnection

UID = "6ba7b810-9dad-11d1-80b4-00c04fd430c8"
OTHER_UID = "6ba7b811-9dad-11d1-80b4-00c04fd430c8"
ORIGIN = Origin(0, "", "test")
MINUTE = 60_000_000

USERS = {
    "pusher": Principal("pusher", [Rule(["mail*", "pqueue", "dead"], [PUSH])]),
    "taker": Principal("taker", [Rule(["mail*", "pqueue"], [TAKE])]),
    "viewer": Principal("viewer", [Rule(["mail*", "pqueue"], [INSPECT])]),
    "boss": Principal("boss", [Rule(["mail*"], [ADMIN])]),
    "elsewhere": Principal("elsewhere", [Rule(["other"], [PUSH, TAKE, INSPECT, ADMIN])]),
    "worker": Principal("worker", [Rule(["mail"], [PUSH, TAKE, INSPECT])]),
    "root": Principal("root", is_superuser=True),
}
NAMES = ["", *USERS]  # "": has not logged in
STRANGER = Principal()


@dataclass(frozen=True)
class Case:
    dialect: str
    command: str
    needs: tuple[tuple[str, str], ...]  # actions, and the queues they are for


def needs(*pairs: tuple[str, str]) -> tuple[tuple[str, str], ...]:
    return pairs


PUSHING = needs((PUSH, "mail"))
TAKING = needs((TAKE, "mail"))
LOOKING = needs((INSPECT, "mail"))
RULING = needs((ADMIN, "mail"))
SOMEWHERE = "any queue"

MASENKO = {
    'PUSH {"name":"n","queue":"mail"}\n': PUSHING,
    'PUSH {"name":"n","queue":"mail","deadqueue":"dead"}\n': needs((PUSH, "mail"), (PUSH, "dead")),
    'ATOMIC\nPUSH {"name":"n","queue":"mail"}\nDONE\n': PUSHING,
    'FETCH {"queues":["mail"]}\n': TAKING,
    'FETCH {"queues":["mail","other"]}\n': needs((TAKE, "mail"), (TAKE, "other")),
    "PING\n": needs(),
}
WORKQ = {
    f"add {OTHER_UID} mail 1000 1000 1\r\nx\r\n": PUSHING,
    f"schedule {OTHER_UID} mail 1000 1000 2100-01-01T00:00:00Z 1\r\nx\r\n": PUSHING,
    f"run {OTHER_UID} mail 1000 0 1\r\nx\r\n": PUSHING,
    "lease mail 0\r\n": TAKING,
    "lease mail other 0\r\n": needs((TAKE, "mail"), (TAKE, "other")),
    f"complete {UID} 1\r\nx\r\n": TAKING,
    f"fail {UID} 1\r\nx\r\n": TAKING,
    f"delete {UID}\r\n": RULING,
    f"result {UID} 0\r\n": LOOKING,
    f"inspect job {UID}\r\n": LOOKING,
    "inspect jobs mail 0 10\r\n": LOOKING,
    "inspect scheduled-jobs mail 0 10\r\n": LOOKING,
    "inspect queue mail\r\n": LOOKING,
    "inspect queues 0 10\r\n": needs(),
    "inspect server\r\n": needs((INSPECT, "")),
}
RESP = {
    "RPUSH mail a": PUSHING,
    "LPUSH mail a b": PUSHING,
    "LPOP mail": TAKING,
    "RPOP mail 2": TAKING,
    "BLPOP mail 1": TAKING,
    "BRPOP mail other 1": needs((TAKE, "mail"), (TAKE, "other")),
    "LLEN mail": LOOKING,
    "LRANGE mail 0 -1": LOOKING,
    "LINDEX mail 0": LOOKING,
    "LREM mail 0 x": TAKING,
    "LMOVE mail mail2 LEFT RIGHT": needs((TAKE, "mail"), (PUSH, "mail2")),
    "BLMOVE mail mail2 LEFT RIGHT 1": needs((TAKE, "mail"), (PUSH, "mail2")),
    "RPOPLPUSH mail mail2": needs((TAKE, "mail"), (PUSH, "mail2")),
    "BRPOPLPUSH mail mail2 1": needs((TAKE, "mail"), (PUSH, "mail2")),
    "SET mail:1 v": needs((PUSH, "mail:1")),
    "SET mail:0 v GET": needs((PUSH, "mail:0"), (INSPECT, "mail:0")),
    "SETEX mail:1 10 v": needs((PUSH, "mail:1")),
    "PSETEX mail:1 10 v": needs((PUSH, "mail:1")),
    "SETNX mail:1 v": needs((PUSH, "mail:1")),
    "GET mail:0": needs((INSPECT, "mail:0")),
    "TTL mail:0": needs((INSPECT, "mail:0")),
    "PTTL mail:0": needs((INSPECT, "mail:0")),
    "EXPIRE mail:0 9": needs((PUSH, "mail:0")),
    "PEXPIRE mail:0 9000": needs((PUSH, "mail:0")),
    "EXPIREAT mail:0 9999999999": needs((PUSH, "mail:0")),
    "PEXPIREAT mail:0 9999999999999": needs((PUSH, "mail:0")),
    "PERSIST mail:0": needs((PUSH, "mail:0")),
    "DEL mail:0": needs((PUSH, "mail:0")),
    "DEL mail": RULING,
    "UNLINK mail:0 mail": needs((PUSH, "mail:0"), (ADMIN, "mail")),
    "EXISTS mail mail:0": needs((INSPECT, "mail"), (INSPECT, "mail:0")),
    "TYPE mail": LOOKING,
    "UPDATE item 5": needs((PUSH, "pqueue")),
    "NEXT": needs((TAKE, "pqueue")),
    "PEEK": needs((INSPECT, "pqueue")),
    "PEEK item": needs((INSPECT, "pqueue")),
    "SCORE item": needs((INSPECT, "pqueue")),
    "INFO": needs((INSPECT, "pqueue")),
    "INFO server": needs((INSPECT, "")),
    "SLOWLOG GET": needs((INSPECT, "")),
    "SLOWLOG LEN": needs((INSPECT, "")),
    "SLOWLOG RESET": needs((ADMIN, "")),
    "JOB.PUSH mail x": PUSHING,
    "JOB.PUSH mail x DEAD dead": needs((PUSH, "mail"), (PUSH, "dead")),
    "JOB.PUSHALL 1 2 mail x": PUSHING,
    "JOB.PUSHALL 2 2 mail x 2 other x": needs((PUSH, "mail"), (PUSH, "other")),
    "JOB.PUSHALL 1 4 mail x DEAD dead": needs((PUSH, "mail"), (PUSH, "dead")),
    "JOB.TAKE 1 mail": TAKING,
    "JOB.TAKE 2 mail other": needs((TAKE, "mail"), (TAKE, "other")),
    "JOB.DONE {ref}": TAKING,
    "JOB.DONEALL {ref}": TAKING,
    "JOB.FAIL {ref} oops": TAKING,
    "JOB.EXTEND {ref} 1000": TAKING,
    "JOB.RETURN {ref}": TAKING,
    "JOB.PROGRESS {ref} 500 half": TAKING,
    "BATCH.CLAIM {batch} me": TAKING,
    "BATCH.LEASE new 1 5 QUEUES mail": TAKING,
    "BATCH.LEASE new 1 5 QUEUES mail other": needs((TAKE, "mail"), (TAKE, "other")),
    "BATCH.LEASE {batch} 2 5 QUEUES mail": TAKING,
    "BATCH.READ {batch} 1 0 5": TAKING,
    "BATCH.ACK {batch} 1": TAKING,
    "BATCH.DROP {batch}": TAKING,
    "JOB.RESULT 2": LOOKING,
    f"JOB.RESULT {UID} WAIT 0": LOOKING,
    "API GET /api/v1/queues/mail": LOOKING,
    "API GET /api/v1/server": needs((INSPECT, "")),
    "API GET /api/v1/slow": needs((INSPECT, "")),
    "API GET /api/v1/listeners": needs((INSPECT, SOMEWHERE)),
    "API GET /api/v1/jobs/1": LOOKING,
    "API GET /api/v1/consumers": needs((INSPECT, SOMEWHERE)),
    "API GET /api/v1/journal": needs((JOURNAL_ACTION, "")),
    "API GET /api/v1/readers": needs((JOURNAL_ACTION, "")),
    "API POST /api/v1/queues/mail/jobs {}": PUSHING,
    "API POST /api/v1/queues/mail/pause": RULING,
    "API DELETE /api/v1/jobs/1": RULING,
    "PING": needs(),
    "CLIENT ID": needs(),
    "COMMAND COUNT": needs(),
}
GLOVEBOX = {
    "post": PUSHING,
    "pop": TAKING,
    "fetch": TAKING,
    "finish": TAKING,
    "create": needs((ADMIN, "mail2")),
}
CASES = [
    *(Case("masenko", command, needed) for command, needed in MASENKO.items()),
    *(Case("workq", command, needed) for command, needed in WORKQ.items()),
    *(Case("resp", command, needed) for command, needed in RESP.items()),
    *(Case("glovebox", command, needed) for command, needed in GLOVEBOX.items()),
]


def make_yard() -> tuple[SimulatedServer, FixedAuthenticator]:
    gate = FixedAuthenticator(USERS, STRANGER)
    yard = SimulatedServer(gate=gate)
    engine, now = yard.engine, yard.clock.now()
    yard.broker.begin_turn()
    engine.create_queue("mail", QueueSettings(), ORIGIN, now)
    uid = bytes.fromhex(UID.replace("-", ""))
    policy = Policy(ttr=MINUTE, max_fails=5)
    engine.push(NewJob("mail", "mail", b"x", policy, uid=uid, ttl_ms=600_000), ORIGIN, now)
    engine.push(NewJob("mail", "mail", b"x", policy), ORIGIN, now)
    engine.set_value(b"mail:0", b"v", now + MINUTE, ORIGIN, now)
    engine.update_keyed("pqueue", b"item", 1, policy, ORIGIN, now)
    yard.broker.end_turn()
    yard.run_pending()
    return yard, gate


def enter(
    yard: SimulatedServer, gate: FixedAuthenticator, dialect: str, name: str
) -> SimulatedPeer:
    if dialect == "glovebox":
        glovebox = yard.connect_glovebox(principal=USERS[name] if name else STRANGER)
        glovebox.next()
        return glovebox
    peer = yard.connect(dialect)
    if name:
        log_in(yard, gate, dialect, peer, name)
    return peer


def log_in(
    yard: SimulatedServer, gate: FixedAuthenticator, dialect: str, peer: SimulatedPeer, name: str
) -> None:
    reply = answer_to_login(yard, gate, dialect, peer, name)
    assert reply == {"masenko": b"OK {}\n"}.get(dialect, b"+OK\r\n")


def answer_to_login(
    yard: SimulatedServer, gate: FixedAuthenticator, dialect: str, peer: SimulatedPeer, name: str
) -> bytes:
    words = {
        "masenko": f'AUTH {{"user":"{name}","password":"{name}-secret"}}\n',
        "workq": f"auth {name} {name}-secret\r\n",
        "resp": f"AUTH {name} {name}-secret\r\n",
    }
    peer.send(words[dialect].encode())
    gate.answer()
    yard.run_pending()
    return peer.take()


def lease_of(yard: SimulatedServer) -> bytes:
    """The ref of a job that somebody with every permission has taken."""
    peer = yard.connect("resp")
    connection_of(peer).principal = USERS["root"]
    peer.send(b"JOB.TAKE 1 mail\r\n")
    return peer.take().split(b"\r\n")[3]


def batch_of(yard: SimulatedServer) -> str:
    """The name of a consumer that somebody with every permission has leased a batch for."""
    peer = yard.connect("resp")
    connection_of(peer).principal = USERS["root"]
    peer.send(b"BATCH.LEASE spark 1 5 QUEUES mail\r\n")
    assert peer.take() == b"*2\r\n:1\r\n:2\r\n"
    return "spark"


def connection_of(peer: SimulatedPeer) -> ProtocolConnection:
    assert isinstance(peer.receiver, ProtocolConnection)
    return peer.receiver


def say(yard: SimulatedServer, peer: SimulatedPeer, case: Case) -> bytes:
    if isinstance(peer, GloveboxPeer):
        requests: dict[str, Callable[[], None]] = {
            "post": partial(
                peer.send_json, type="post", queue="mail", label=1, message="x", notify=["ready"]
            ),
            "pop": partial(peer.send_json, type="pop", queue="mail", label=1, timeout=0),
            "fetch": partial(
                peer.send_json, type="fetch", queue="mail", label=1, work_timeout=9, block_timeout=0
            ),
            "finish": partial(
                peer.send_json, type="finish", queue="mail", label=1, sequence=1, shard=0
            ),
            "create": partial(peer.send_json, type="create", queue="mail2", label=1),
        }
        requests[case.command]()
        return repr(peer.next()).encode()
    command = case.command
    if "{batch}" in command:
        command = command.replace("{batch}", batch_of(yard))
    if "{ref}" in command:
        command = command.replace("{ref}", lease_of(yard).decode())
    ending = "\r\n" if case.dialect == "resp" else ""
    peer.send((command + ending).encode())
    return peer.take()


def is_denied(dialect: str, name: str, reply: bytes) -> bool:
    if dialect == "masenko":
        return reply.startswith(b'ERR {"msg":"') and b"permission denied: " in reply
    if dialect == "workq":
        return reply == b"-CLIENT-ERROR Permission denied\r\n"
    if dialect == "resp" and reply.startswith(b"*2\r\n:"):  # the answer of API
        return reply.startswith(
            (b"*2\r\n:403\r\n", b"*2\r\n:404\r\n") if name else b"*2\r\n:401\r\n"
        )
    if dialect == "resp":
        # Who may inspect other queues is not told in which one a job is.
        starts = (b"-NOPERM ", b"-NOJOB ") if name else b"-NOAUTH Authentication required."
        return reply.startswith(starts)
    return b"PermissionDenied" in reply


def may(principal: Principal, action: str, queue: str) -> bool:
    if queue == SOMEWHERE:
        return any(principal.may(action, each) for each in ("mail", "other"))
    return principal.may(action, queue)


@pytest.mark.parametrize("name", NAMES, ids=lambda name: name or "stranger")
@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.dialect} {case.command[:24]!r}")
def test_a_command_is_carried_out_for_those_who_may(case: Case, name: str) -> None:
    yard, gate = make_yard()
    peer = enter(yard, gate, case.dialect, name)
    principal = USERS[name] if name else STRANGER
    allowed = all(may(principal, action, queue) for action, queue in case.needs)
    if "{" not in case.command:
        before = yard.journal.records.end_position()
        reply = say(yard, peer, case)
        assert allowed or yard.journal.records.end_position() == before
    else:
        reply = say(yard, peer, case)
    assert is_denied(case.dialect, name, reply) is not allowed, reply


def test_every_command_of_resp_is_in_the_table() -> None:
    yard, _ = make_yard()
    said = {command.split()[0].encode() for command in RESP}
    about_nothing = (
        b"ECHO HELLO AUTH SELECT CLIENT COMMAND CONFIG RESET QUIT MULTI EXEC DISCARD".split()
    )
    assert set(yard.resp.commands) == said | set(about_nothing)


def test_every_command_of_the_line_dialects_is_in_the_table() -> None:
    yard, _ = make_yard()
    said = {line.split()[0].encode() for command in MASENKO for line in command.splitlines()}
    # A client can only finish what it holds, and holds only what it was allowed to take.
    assert set(yard.masenko.commands) == said | {b"ACK", b"NACK", b"INFO", b"QUIT", b"AUTH"}
    said = {command.split()[0].encode() for command in WORKQ}
    assert set(yard.workq.commands) == said | {b"auth"}


@pytest.mark.parametrize("name", NAMES, ids=lambda name: name or "stranger")
def test_lists_of_queues_show_what_may_be_inspected(name: str) -> None:
    yard, gate = make_yard()
    principal = USERS[name] if name else STRANGER
    seen = principal.may(INSPECT, "mail")
    peer = enter(yard, gate, "masenko", name)
    peer.send(b"INFO\n")
    assert (b'"name":"mail"' in peer.take()) is seen
    peer = enter(yard, gate, "workq", name)
    peer.send(b"inspect queues 0 10\r\n")
    assert (b"mail 2\r\n" in peer.take()) is seen


def test_masenkos_info_has_no_figures_before_the_login() -> None:
    yard, gate = make_yard()
    peer = enter(yard, gate, "masenko", "")
    peer.send(b"INFO\n")
    assert peer.take() == b'OK {"queues":[],"metrics":{}}\n'
    log_in(yard, gate, "masenko", peer, "viewer")
    peer.send(b"INFO\n")
    assert b'"metrics":{"clients":1,' in peer.take()


@pytest.mark.parametrize(("queues", "has_figures"), [(["mail"], False), (["*"], True)])
def test_strangers_who_may_inspect_everything_see_the_figures_as_well(
    queues: list[str], has_figures: bool
) -> None:
    stranger = Principal("", [Rule(queues, [INSPECT])])
    yard = SimulatedServer(gate=FixedAuthenticator(USERS, stranger))
    peer = yard.connect("masenko")
    peer.send(b"INFO\n")
    assert (b'"clients":1' in peer.take()) is has_figures


@pytest.mark.parametrize("dialect", ["masenko", "workq", "resp"])
def test_records_name_the_user(dialect: str) -> None:
    yard, gate = make_yard()
    peer = enter(yard, gate, dialect, "worker")
    pushes = {
        "masenko": b'PUSH {"name":"n","queue":"mail"}\nFETCH {"queues":["mail"]}\n',
        "workq": f"add {OTHER_UID} mail 1000 1000 1\r\nx\r\nlease mail 0\r\n".encode(),
        "resp": b"JOB.PUSH mail x\r\nJOB.TAKE 1 mail\r\n",
    }
    peer.send(pushes[dialect])
    enter(yard, gate, "resp", "root").send(b"RPUSH later x\r\n")  # says that those are on disk
    entries = JournalReader(yard.disk.directory(JOURNAL), live=True).read()
    records = [entry.record for entry in entries if entry.record.origin.user == "worker"]
    assert [record.kind() for record in records] == [kinds.PUSH, kinds.LEASE]
