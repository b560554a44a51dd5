"""Who one is: logging in, certificates, and what happens when the rules change meanwhile."""

from __future__ import annotations

import pytest
from protocols.test_permissions import (
    ORIGIN,
    OTHER_UID,
    STRANGER,
    UID,
    USERS,
    answer_to_login,
    connection_of,
    enter,
    is_denied,
    lease_of,
    log_in,
    make_yard,
)
from support.fixed_gate import FixedAuthenticator
from support.simulated import SimulatedServer

from taskyard.access.principal import INSPECT, PUSH, TAKE, Principal, Rule
from taskyard.engine.model.job import NewJob, Policy


@pytest.mark.parametrize(
    ("dialect", "wrong", "text"),
    [
        ("masenko", b'AUTH {"user":"root","password":"x"}\n', b'"msg":"authentication failed"'),
        ("masenko", b'AUTH {"token":"x"}\n', b'"msg":"authentication failed"'),
        ("masenko", b"AUTH {}\n", b"AUTH needs user and password, or token"),
        ("masenko", b"AUTH nonsense\n", b"cannot unmarshal payload"),
        ("workq", b"auth root x\r\n", b"-CLIENT-ERROR Authentication failed\r\n"),
        ("workq", b"auth x\r\n", b"-CLIENT-ERROR Authentication failed\r\n"),
        ("workq", b"auth\r\n", b"-CLIENT-ERROR Invalid command args\r\n"),
        ("resp", b"AUTH root x\r\n", b"-WRONGPASS invalid username-password pair"),
        ("resp", b"AUTH x\r\n", b"-WRONGPASS "),
        ("resp", b"HELLO 3 AUTH root x\r\n", b"-WRONGPASS "),
        ("resp", b'AUTH root "\\xff"\r\n', b"-WRONGPASS "),
    ],
)
def test_a_wrong_secret_changes_nothing(dialect: str, wrong: bytes, text: bytes) -> None:
    yard, gate = make_yard()
    peer = enter(yard, gate, dialect, "worker")
    peer.send(wrong)
    gate.answer()
    yard.run_pending()
    assert text in peer.take()
    assert connection_of(peer).principal is USERS["worker"]


@pytest.mark.parametrize(
    ("dialect", "words"),
    [
        ("masenko", b'AUTH {"token":"root-secret"}\nFETCH {"queues":["mail"]}\n'),
        ("workq", b"auth root-secret\r\nlease mail 0\r\n"),
        ("resp", b"AUTH root-secret\r\nLPOP mail\r\n"),
        ("resp", b"HELLO 2 AUTH root root-secret\r\nLPOP mail\r\n"),
    ],
)
def test_what_follows_waits_until_it_is_known_who_it_is(dialect: str, words: bytes) -> None:
    yard, gate = make_yard()
    peer = yard.connect(dialect)
    peer.send(words)
    assert peer.take() == b""
    gate.answer()
    yard.run_pending()
    assert b"x" in peer.take()
    assert [name for _, name in gate.asked] == ["root" if b"HELLO" in words else ""]


def test_a_client_that_goes_before_it_is_recognised_is_forgotten() -> None:
    yard, gate = make_yard()
    peer = yard.connect("resp")
    peer.send(b"AUTH root root-secret\r\n")
    peer.close()
    gate.answer()
    yard.run_pending()
    assert yard.resp.stats.open_connections == 0


def test_reset_is_to_be_nobody_again() -> None:
    yard, gate = make_yard()
    peer = enter(yard, gate, "resp", "root")
    peer.send(b"RESET\r\nLPOP mail\r\n")
    assert peer.take() == b"+RESET\r\n-NOAUTH Authentication required.\r\n"


@pytest.mark.parametrize("dialect", ["masenko", "workq", "resp"])
def test_without_users_there_is_nothing_to_log_in_to(dialect: str) -> None:
    peer = SimulatedServer().connect(dialect)
    words = {"masenko": b'AUTH {"token":"x"}\n', "workq": b"auth x\r\n", "resp": b"AUTH x\r\n"}
    texts = {
        "masenko": b'ERR {"msg":"unknown verb AUTH"}\n',
        "workq": b"-CLIENT-ERROR Unknown command\r\n",
        "resp": b"-ERR AUTH <password> called without any password configured",
    }
    peer.send(words[dialect])
    assert peer.take().startswith(texts[dialect])


@pytest.mark.parametrize("dialect", ["masenko", "workq", "resp"])
def test_a_certificate_says_who_it_is(dialect: str) -> None:
    yard, _ = make_yard()
    peer = yard.connect(dialect, certificate="worker")
    assert connection_of(peer).principal is USERS["worker"]
    assert connection_of(peer).origin.user == "worker"
    nobody = yard.connect(dialect, certificate="unheard of")
    assert connection_of(nobody).principal is STRANGER


WAITING = {
    "masenko": b'FETCH {"queues":["quiet"],"timeout":"20s"}\n',
    "workq": b"lease quiet 20000\r\n",
    "resp": b"BLPOP quiet 20\r\n",
    "resp move": b"BLMOVE quiet elsewhere LEFT LEFT 20\r\n",
    "resp job": b"JOB.TAKE 1 quiet WAIT 20000\r\n",
}


@pytest.mark.parametrize("wait", WAITING)
def test_who_waits_and_may_no_longer_is_told_so(wait: str) -> None:
    dialect = wait.partition(" ")[0]
    user = Principal("late", [Rule(["quiet"], [TAKE]), Rule(["elsewhere"], [PUSH])])
    gate = FixedAuthenticator({"late": user})
    yard = SimulatedServer(gate=gate)
    peer = yard.connect(dialect, certificate="late")
    peer.send(WAITING[wait])
    connection_of(peer).on_permissions_changed()
    assert peer.take() == b""
    user.set_rules([Rule(["elsewhere"], [PUSH])], is_superuser=False)
    connection_of(peer).on_permissions_changed()
    yard.run_pending()
    assert is_denied(dialect, "late", peer.take())
    yard.connect("resp", certificate="late").send(b"RPUSH elsewhere x\r\n")
    yard.engine.push(NewJob("quiet", "quiet", b"x", Policy()), ORIGIN, yard.clock.now())
    assert peer.take() == b""
    queue = yard.engine.queue(b"quiet")
    assert queue is not None
    assert queue.ready.size == 1


@pytest.mark.parametrize("may", [True, False])
def test_who_waits_for_a_result_must_be_allowed_to_see_it_when_it_comes(may: bool) -> None:
    user = Principal("late", [Rule(["mail"], [INSPECT])])
    yard = SimulatedServer(gate=FixedAuthenticator({"late": user, "root": USERS["root"]}))
    root = yard.connect("resp", certificate="root")
    root.send(b"JOB.PUSH mail x FAILS 1 DEAD morgue\r\n")
    peer = yard.connect("resp", certificate="late")
    peer.send(b"JOB.RESULT 1 WAIT 20000\r\n")
    if not may:
        user.set_rules([Rule(["other"], [INSPECT])], is_superuser=False)
    root.send(b"JOB.TAKE 1 mail\r\nJOB.FAIL 1-1-1 oops\r\n")
    reply = peer.take()
    assert reply.startswith(b"*5\r\n:1\r\n$6\r\nfailed\r\n" if may else b"-NOJOB ")


@pytest.mark.parametrize("dialect", ["masenko", "workq", "resp"])
def test_a_user_has_so_many_connections(dialect: str) -> None:
    users = {"few": Principal("few", [Rule(["mail"], [TAKE])])}
    gate = FixedAuthenticator(users, most=2)
    yard = SimulatedServer(gate=gate)
    first, second = yard.connect(dialect, certificate="few"), yard.connect(dialect)
    log_in(yard, gate, dialect, second, "few")
    log_in(yard, gate, dialect, second, "few")  # it is one all the same
    third = yard.connect(dialect)
    assert is_denied(dialect, "few", answer_to_login(yard, gate, dialect, third, "few"))
    assert connection_of(third).principal is gate.anonymous
    assert connection_of(yard.connect(dialect, certificate="few")).principal is gate.anonymous
    first.close()
    log_in(yard, gate, dialect, third, "few")
    for peer in (second, third):
        peer.close()
    assert users["few"].connections == 0


# What one command must not lead to


def test_a_string_in_front_of_a_queue_does_not_open_the_queue_to_be_deleted() -> None:
    """A string may be deleted with less than jobs; behind it there may be a queue of its name."""
    yard, gate = make_yard()
    pusher = enter(yard, gate, "resp", "pusher")
    pusher.send(b"SET mail2 x\r\n")
    assert pusher.take() == b"+OK\r\n"
    yard.engine.push(NewJob("mail2", "mail2", b"x", Policy()), ORIGIN, yard.clock.now())
    pusher.send(b"DEL mail2 mail2\r\n")
    yard.run_pending()
    assert pusher.take() == b":1\r\n"
    queue = yard.engine.queue(b"mail2")
    assert queue is not None
    assert queue.ready.size == 1
    pusher.send(b"DEL mail2\r\n")
    assert is_denied("resp", "pusher", pusher.take())


@pytest.mark.parametrize("command", ["JOB.DONE", "JOB.RETURN"])
def test_a_ref_does_not_tell_in_which_queue_its_job_is(command: str) -> None:
    yard, gate = make_yard()
    ref = lease_of(yard).decode()
    peer = enter(yard, gate, "resp", "elsewhere")
    peer.send(f"{command} {ref}\r\n".encode())
    reply = peer.take()
    assert reply.startswith(b"-NOPERM ")
    assert b"mail" not in reply


def test_strangers_learn_nothing_of_refs() -> None:
    yard, gate = make_yard()
    ref = lease_of(yard).decode()
    peer = enter(yard, gate, "resp", "")
    peer.send(f"JOB.DONE {ref}\r\nJOB.DONE 999-1-1\r\n".encode())
    assert peer.take() == b"-NOAUTH Authentication required.\r\n" * 2


def test_who_may_not_push_does_not_learn_what_a_key_is() -> None:
    yard, gate = make_yard()
    peer = enter(yard, gate, "resp", "elsewhere")
    peer.send(b"RPUSH mail:0 x\r\n")
    assert is_denied("resp", "elsewhere", peer.take())


def test_reset_leaves_the_user_whose_certificate_was_shown() -> None:
    users = {"few": Principal("few", [Rule(["mail"], [TAKE])])}
    yard = SimulatedServer(gate=FixedAuthenticator(users, most=1))
    peer = yard.connect("resp", certificate="few")
    peer.send(b"RESET\r\nLPOP mail\r\n")
    assert peer.take() == b"+RESET\r\n$-1\r\n"
    assert users["few"].connections == 1
    peer.close()
    assert users["few"].connections == 0


def test_a_transaction_must_be_allowed_when_it_is_done() -> None:
    user = Principal("late", [Rule(["mail"], [PUSH])])
    yard = SimulatedServer(gate=FixedAuthenticator({"late": user}))
    peer = yard.connect("masenko", certificate="late")
    peer.send(b'ATOMIC\nPUSH {"name":"n","queue":"mail"}\n')
    user.set_rules([], is_superuser=False)
    peer.send(b"DONE\n")
    assert is_denied("masenko", "late", peer.take())
    assert yard.engine.queue(b"mail") is None


@pytest.mark.parametrize(
    ("command", "action"),
    [
        (f"result {UID} 20000\r\n", INSPECT),
        (f"run {OTHER_UID} mail 1000 20000 1\r\nx\r\n", PUSH),
    ],
)
def test_who_waits_for_a_result_and_may_no_longer_is_told_so(command: str, action: str) -> None:
    yard, gate = make_yard()
    user = Principal("late", [Rule(["mail"], [action])])
    peer = yard.connect("workq")
    connection_of(peer).set_principal(user)
    peer.send(command.encode())
    connection_of(peer).on_permissions_changed()
    assert peer.take() == b""
    user.set_rules([], is_superuser=False)
    connection_of(peer).on_permissions_changed()
    yard.run_pending()
    assert is_denied("workq", "late", peer.take())
    worker = enter(yard, gate, "workq", "worker")
    worker.send(f"complete {UID} 1\r\nx\r\n".encode())
    assert peer.take() == b""
    peer.send(b"inspect queues 0 1\r\n")
    assert peer.take() == b"+OK 0\r\n"


MOVED = "6ba7b812-9dad-11d1-80b4-00c04fd430c8"


@pytest.mark.parametrize("to", ["mail", "secret"])
@pytest.mark.parametrize("end", ["done", "failed", "late"])
@pytest.mark.parametrize("dialect", ["resp", "workq"])
def test_the_queue_in_which_a_job_ends_is_the_one_that_counts(
    dialect: str, end: str, to: str
) -> None:
    user = Principal("late", [Rule(["mail", "first"], [INSPECT])])
    yard = SimulatedServer(gate=FixedAuthenticator({"late": user, "root": USERS["root"]}))
    root = yard.connect("resp", certificate="root")
    root.send(f"JOB.PUSH first x UID {MOVED} TTL 600000 FAILS 1 DEAD dead\r\n".encode())
    peer = yard.connect(dialect, certificate="late")
    asks = {
        "resp": f"JOB.RESULT {MOVED} WAIT 20000\r\n",
        "workq": f"result {MOVED} 20000\r\n",
    }
    peer.send(asks[dialect].encode())
    yard.engine.move_job(1, to, False, ORIGIN, yard.clock.now())
    ends = {"done": b"JOB.DONE 1-1-1 pong\r\n", "failed": b"JOB.FAIL 1-1-1 oops\r\n"}
    if end == "late":
        yard.advance(21)
    else:
        root.send(f"JOB.TAKE 1 {to}\r\n".encode() + ends[end])
    reply = peer.take()
    if to == "secret":
        refusals = {"resp": b"-NOJOB ", "workq": b"-CLIENT-ERROR Permission denied\r\n"}
        assert reply.startswith(refusals[dialect])
    elif end == "late":
        assert reply == {"resp": b"*-1\r\n", "workq": b"-TIMEOUT\r\n"}[dialect]
    else:
        assert (b"pong" if end == "done" else b"oops" if dialect == "resp" else b" 0 ") in reply
