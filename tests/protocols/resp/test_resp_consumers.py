"""Numbered batches at the wire: BATCH.CLAIM, BATCH.LEASE, BATCH.READ, BATCH.ACK, BATCH.DROP."""

from typing import Any

import pytest
from support.batches import drop_all, lease_all
from support.fixed_gate import FixedAuthenticator
from support.replies_resp import Failure, ask, command, replies
from support.simulated import SimulatedPeer, SimulatedServer

from taskyard.access.principal import ADMIN, PUSH, TAKE, Principal, Rule
from taskyard.engine.model.job import SYSTEM_ORIGIN
from taskyard.protocols.resp.batches import MAX_CLAIMS
from taskyard.protocols.resp.connection import RespConnection

MIB = 1 << 20


@pytest.fixture
def yard() -> SimulatedServer:
    return SimulatedServer()


@pytest.fixture
def peer(yard: SimulatedServer) -> SimulatedPeer:
    return yard.connect("resp")


def push(peer: SimulatedPeer, count: int, queue: str = "q") -> None:
    for number in range(count):
        peer.send(command("JOB.PUSH", queue, b"%d" % number))
    peer.take()


def lease(peer: SimulatedPeer, number: int, limit: int = 9, *more: str | int) -> Any:
    return ask(peer, "BATCH.LEASE", "spark", number, limit, *(more or ("QUEUES", "q")))


def read(peer: SimulatedPeer, number: int, start: int = 0, count: int = 9) -> Any:
    return ask(peer, "BATCH.READ", "spark", number, start, count)


def payloads(jobs: Any) -> list[bytes | None]:
    return [job[8] if job is not None else None for job in jobs]


def test_a_batch_from_its_lease_to_its_end(peer: SimulatedPeer) -> None:
    push(peer, 3)
    assert lease(peer, 1, 2) == [1, 2]
    assert lease(peer, 1, 9) == [1, 2]
    [first, second] = read(peer, 1)
    assert first[0] == b"1-1-1"
    assert [first[1], *first[3:-1]] == [1, b"q", b"q", 1, 0, 0, b"0", 0]
    assert second[8] == b"1"
    assert ask(peer, "BATCH.ACK", "spark", 1) == "OK"
    assert ask(peer, "BATCH.ACK", "spark", 1) == "OK"
    assert ask(peer, "LLEN", "q") == 1
    assert lease(peer, 2) == [2, 1]
    assert lease(peer, 3) == [2, 0]
    assert ask(peer, "BATCH.ACK", "spark", 2) == "OK"
    assert lease(peer, 3) == [2, 0]


def test_a_batch_says_how_urgent_a_job_is_and_since_when_it_is_there(
    yard: SimulatedServer, peer: SimulatedPeer
) -> None:
    pushed_at = yard.clock.now()
    peer.send(command("JOB.PUSH", "q", b"", "PRIORITY", -7))
    peer.take()
    yard.advance(90)
    lease(peer, 1)
    assert read(peer, 1)[0][9:] == [-7, pushed_at]


def test_parts_of_a_batch_are_read_by_several(yard: SimulatedServer, peer: SimulatedPeer) -> None:
    push(peer, 5)
    lease(peer, 1)
    other = yard.connect("resp")
    assert payloads(read(peer, 1, 0, 3)) == [b"0", b"1", b"2"]
    assert payloads(read(other, 1, 3, 3)) == [b"3", b"4"]
    assert read(other, 1, 5, 3) == []


def test_places_of_jobs_that_were_ended_one_by_one_are_empty(peer: SimulatedPeer) -> None:
    push(peer, 4)
    lease(peer, 1)
    refs = [job[0] for job in read(peer, 1)]
    assert ask(peer, "JOB.DONE", refs[0], "result") == "OK"
    assert ask(peer, "JOB.RETURN", refs[1]) == "OK"
    assert ask(peer, "JOB.FAIL", refs[2], "oops", "FINAL") == "failed"
    assert payloads(read(peer, 1)) == [None, None, None, b"3"]
    assert lease(peer, 1) == [1, 4]
    assert ask(peer, "BATCH.ACK", "spark", 1) == "OK"
    assert ask(peer, "LRANGE", "q", 0, -1) == [b"1"]
    assert ask(peer, "JOB.DONE", refs[3]) == Failure("STALE the lease is over, or the job is gone")


def test_refs_are_good_after_a_restart(yard: SimulatedServer, peer: SimulatedPeer) -> None:
    push(peer, 2)
    lease(peer, 1)
    [ref, _] = [job[0] for job in read(peer, 1)]
    yard.restart()
    peer = yard.connect("resp")
    assert lease(peer, 1) == [1, 2]
    assert read(peer, 1)[0][0] == ref
    assert ask(peer, "JOB.PROGRESS", ref, 500) == "OK"
    assert ask(peer, "JOB.DONE", ref) == "OK"
    assert payloads(read(peer, 1)) == [None, b"1"]


def test_a_batch_may_have_an_end(yard: SimulatedServer, peer: SimulatedPeer) -> None:
    push(peer, 2)
    assert lease(peer, 1, 9, "TTR", 5000, "QUEUES", "q") == [1, 2]
    assert read(peer, 1)[0][7] == (yard.clock.now() + 5_000_000) // 1000
    yard.advance(5)
    late = Failure("STALEBATCH spark had batch 1 for too long; drop the consumer")
    assert lease(peer, 1) == lease(peer, 2) == read(peer, 1) == late
    assert ask(peer, "BATCH.ACK", "spark", 1) == late
    assert ask(peer, "LLEN", "q") == 2
    assert ask(peer, "BATCH.DROP", "spark") == "OK"
    assert lease(peer, 1) == [1, 2]


def test_a_dropped_consumer_gives_its_jobs_back(peer: SimulatedPeer) -> None:
    push(peer, 3)
    lease(peer, 1)
    assert ask(peer, "BATCH.DROP", "spark") == "OK"
    assert ask(peer, "LRANGE", "q", 0, -1) == [b"0", b"1", b"2"]
    gone = Failure("STALEBATCH there is no consumer spark")
    assert ask(peer, "BATCH.DROP", "spark") == read(peer, 1) == gone


def test_jobs_of_another_database_have_their_own_names(peer: SimulatedPeer) -> None:
    assert ask(peer, "SELECT", 3) == "OK"
    push(peer, 1)
    assert lease(peer, 1) == [1, 1]
    assert read(peer, 1)[0][3] == b"q"
    ask(peer, "SELECT", 0)
    assert read(peer, 1)[0][3] != b"q"


BAD = {
    "BATCH.LEASE spark 1 9": "ERR wrong number of arguments for 'batch.lease' command",
    "BATCH.LEASE spark 1 9 QUEUE q": (
        "ERR BATCH.LEASE has no word 'QUEUE': did you mean QUEUES? It has TTR, QUEUES"
    ),
    "BATCH.LEASE spark 1 9 TTR 5": "ERR syntax error",
    "BATCH.LEASE spark 1 9 TTR 5 QUEUES": "ERR syntax error",
    "BATCH.LEASE spark 1 9 TTR 0 QUEUES q": "ERR TTR must be between 1 and",
    "BATCH.LEASE spark 0 9 QUEUES q": "ERR the batch must be between 1 and",
    "BATCH.LEASE spark x 9 QUEUES q": "ERR value is not an integer or out of range",
    "BATCH.LEASE spark 1 0 QUEUES q": "ERR the limit must be between 1 and 1000000",
    "BATCH.LEASE spark 1 1000001 QUEUES q": "ERR the limit must be between 1 and 1000000",
    "BATCH.LEASE spark 7 9 QUEUES q": "STALEBATCH spark is at batch 1; 7 is not the next",
    "BATCH.READ spark 1 -1 5": "ERR the place must be between 0 and",
    "BATCH.READ spark 1 0 0": "ERR the count must be between 1 and 10000",
    "BATCH.READ spark 1 0 10001": "ERR the count must be between 1 and 10000",
    "BATCH.READ spark 2 0 5": "STALEBATCH spark does not hold batch 2",
    "BATCH.READ unknown 1 0 5": "STALEBATCH there is no consumer unknown",
    "BATCH.ACK spark -1": "ERR the batch must be between 0 and",
    "BATCH.ACK spark 2": "STALEBATCH spark has no batch 2",
    "BATCH.ACK unknown 1": "STALEBATCH unknown has no batch 1",
    "BATCH.DROP unknown": "STALEBATCH there is no consumer unknown",
    "BATCH.CLAIM spark": "ERR wrong number of arguments for 'batch.claim' command",
}


@pytest.mark.parametrize("line", BAD)
def test_what_cannot_be_is_refused(peer: SimulatedPeer, line: str) -> None:
    push(peer, 2)
    lease(peer, 1, 1)
    reply = ask(peer, *line.split())
    assert isinstance(reply, Failure)
    assert str(reply).startswith(BAD[line])
    assert payloads(read(peer, 1)) == [b"0"]


@pytest.mark.parametrize("name", [b"two words", b"\xff", b"", b"x" * 256])
def test_a_consumer_has_a_name_like_a_queue(peer: SimulatedPeer, name: bytes) -> None:
    for words in (
        ("BATCH.LEASE", name, 1, 1, "QUEUES", "q"),
        ("BATCH.DROP", name),
        ("BATCH.CLAIM", name, "holder"),
    ):
        reply = ask(peer, *words)
        assert isinstance(reply, Failure)
        assert str(reply).startswith("ERR consumer: ")
    reply = ask(peer, "BATCH.CLAIM", "spark", name)
    assert isinstance(reply, Failure)
    assert str(reply).startswith("ERR holder: ")


def test_others_are_answered_between_the_portions(
    yard: SimulatedServer, peer: SimulatedPeer
) -> None:
    yard.engine.batch_chunk_jobs = 2
    push(peer, 9)
    other = yard.connect("resp")
    connection = peer.receiver
    assert isinstance(connection, RespConnection)
    commands = (
        (("BATCH.LEASE", "spark", 1, 9, "QUEUES", "q"), [1, 9]),
        (("BATCH.ACK", "spark", 1), "OK"),
    )
    for words, answer in commands:
        between = 0

        def witness(data: bytes) -> None:
            nonlocal between
            between += data.count(b"+PONG") if connection.chunked_command is not None else 0

        other.witness = witness
        peer.arrive(command(*words))
        other.arrive(command("PING") * 100)
        yard.run_pending()
        assert replies(peer.take()) == [answer]
        assert other.take() == b"+PONG\r\n" * 100
        assert between


def test_payloads_come_back_from_disk_while_others_are_served() -> None:
    cold = SimulatedServer(payload_memory=0, segment_size=1 << 18)
    peer = cold.connect("resp")
    values = [b"%08d" % number * 400 for number in range(600)]
    for value in values:
        peer.send(command("JOB.PUSH", "q", value))
    cold.restart()
    peer, other = cold.connect("resp"), cold.connect("resp")
    assert lease(peer, 1, 600) == [1, 600]
    cold.scheduler.slow = True
    peer.send(command("BATCH.READ", "spark", 1, 0, 600))
    peer.expect_nothing()
    assert ask(other, "PING") == "PONG"
    while cold.scheduler.blocking:
        cold.scheduler.finish_blocking()
        cold.run_pending()
    [jobs] = replies(peer.take())
    assert payloads(jobs) == values


def test_a_job_that_ends_while_it_is_read_back_is_an_empty_place() -> None:
    cold = SimulatedServer(payload_memory=0, segment_size=1 << 18)
    peer = cold.connect("resp")
    peer.send(command("JOB.PUSH", "q", b"x" * 9000) + command("JOB.PUSH", "q", b"y" * 9000))
    cold.restart()
    peer, other = cold.connect("resp"), cold.connect("resp")
    lease(peer, 1)
    cold.scheduler.slow = True
    peer.send(command("BATCH.READ", "spark", 1, 0, 2))
    peer.expect_nothing()
    assert ask(other, "JOB.DONE", "1-2-1") == "OK"
    while cold.scheduler.blocking:
        cold.scheduler.finish_blocking()
        cold.run_pending()
    [jobs] = replies(peer.take())
    assert payloads(jobs) == [None, b"y" * 9000]


def test_a_batch_that_is_another_one_after_a_look_at_the_disk_is_not_read_on() -> None:
    cold = SimulatedServer(payload_memory=0, segment_size=1 << 18)
    peer = cold.connect("resp")
    peer.send(command("JOB.PUSH", "q", b"x") + command("JOB.PUSH", "q", b"y" * 9000))
    cold.restart()
    peer, other = cold.connect("resp"), cold.connect("resp")
    lease(peer, 1)
    cold.scheduler.slow = True
    peer.send(command("BATCH.READ", "spark", 1, 1, 1))
    peer.expect_nothing()
    assert ask(other, "BATCH.DROP", "spark") == "OK"
    assert lease(other, 1, 1) == [1, 1]
    while cold.scheduler.blocking:
        cold.scheduler.finish_blocking()
        cold.run_pending()
    assert replies(peer.take()) == [Failure("STALEBATCH spark was dropped meanwhile")]
    assert ask(peer, "PING") == "PONG"


def test_a_reply_has_no_more_than_it_can_hold() -> None:
    yard = SimulatedServer(output_limit=1 << 30, segment_size=1 << 24, payload_memory=1 << 28)
    peer = yard.connect("resp")
    for _ in range(10):
        peer.send(command("JOB.PUSH", "q", b"x" * MIB))
    peer.take()
    lease(peer, 1)
    first = read(peer, 1, 0, 10)
    assert len(first) == 8
    assert len(read(peer, 1, len(first), 10)) == 1


@pytest.mark.parametrize("durability", ["write", "memory"])
def test_a_lease_is_synced_before_it_is_told(durability: str) -> None:
    yard = SimulatedServer(durability=durability)
    peer = yard.connect("resp")
    peer.send(command("JOB.PUSH", "q", "x"))
    peer.take()
    peer.send(command("BATCH.LEASE", "spark", 1, 9, "QUEUES", "q") + command("PING"))
    peer.expect_nothing()
    yard.advance(2)
    assert replies(peer.take()) == [[1, 1], "PONG"]
    assert yard.journal.durable_seq == yard.journal.written_seq
    yard.crash()
    assert lease(yard.connect("resp"), 1) == [1, 1]


def test_a_lease_that_nobody_waits_for_any_more_stays(yard: SimulatedServer) -> None:
    yard.engine.batch_chunk_jobs = 2
    peer = yard.connect("resp")
    push(peer, 9)
    peer.arrive(command("BATCH.LEASE", "spark", 1, 9, "QUEUES", "q"))
    peer.close()
    yard.run_pending()
    peer = yard.connect("resp")
    number, count = lease(peer, 1)
    assert number == 1
    assert [*payloads(read(peer, 1))] == [b"%d" % place for place in range(count)]
    assert lease(peer, 2) == [2, 9 - count] or count == 9


def test_a_batch_is_for_those_who_may_take_from_all_its_queues() -> None:
    users = {"half": Principal("half", [Rule(["a"], [TAKE])])}
    gate = FixedAuthenticator(users, Principal(is_superuser=True))
    yard = SimulatedServer(gate=gate)
    peer = yard.connect("resp")
    push(peer, 1, "a")
    push(peer, 1, "b")
    assert lease(peer, 1, 9, "QUEUES", "a", "b") == [1, 2]
    peer.send(command("AUTH", "half", "half-secret"))
    gate.answer()
    yard.run_pending()
    peer.take()
    mark = yard.journal.records.end_position()
    denied = "NOPERM user half has no permission to take on the queue of this job"
    for words in (
        ("BATCH.READ", "spark", 1, 0, 9),
        ("BATCH.ACK", "spark", 1),
        ("BATCH.DROP", "spark"),
        ("BATCH.LEASE", "spark", 2, 9, "QUEUES", "a"),
    ):
        assert ask(peer, *words) == Failure(denied)
    assert yard.journal.records.end_position() == mark


def test_a_batch_that_grows_by_a_queue_is_not_for_those_who_may_not_take_from_that() -> None:
    users = {"half": Principal("half", [Rule(["a"], [TAKE])])}
    gate = FixedAuthenticator(users, Principal(is_superuser=True))
    yard = SimulatedServer(gate=gate)
    yard.engine.batch_chunk_jobs = 300
    peer, half = yard.connect("resp"), yard.connect("resp")
    half.send(command("AUTH", "half", "half-secret"))
    gate.answer()
    yard.run_pending()
    half.take()
    push(peer, 600, "a")
    push(peer, 9, "b")
    peer.arrive(command("BATCH.LEASE", "spark", 1, 609, "QUEUES", "a", "b"))
    half.arrive(command("BATCH.READ", "spark", 1, 0, 1000))  # begins while there is no b in it
    yard.run_pending()
    denied = Failure("NOPERM user half has no permission to take on the queue of this job")
    assert replies(peer.take()) == [[1, 609]]
    assert replies(half.take()) == [denied]


def test_a_long_ack_waits_for_a_disk_that_is_behind() -> None:
    yard = SimulatedServer(inline_sync=False)
    peer = yard.connect("resp")
    yard.engine.batch_chunk_jobs = 2
    push(peer, 9)
    lease(peer, 1)
    yard.broker.pending_reply_limit = -1  # as if others had filled the memory
    yard.scheduler.slow = True
    peer.send(command("BATCH.ACK", "spark", 1))
    assert yard.engine.state.leased_count == 5  # one chunk is being synced, one waits for that
    while yard.scheduler.blocking:
        yard.scheduler.finish_blocking()
        yard.run_pending()
    assert replies(peer.take()) == ["OK"]
    assert yard.engine.state.leased_count == 0


@pytest.mark.parametrize(
    ("words", "answer"),
    [
        (("BATCH.ACK", "spark", 1), Failure("STALEBATCH spark was dropped meanwhile")),
        (
            ("BATCH.LEASE", "spark", 2, 9, "QUEUES", "q"),
            Failure("STALEBATCH spark was dropped meanwhile"),
        ),
        (("BATCH.DROP", "spark"), "OK"),
    ],
)
def test_jobs_of_a_consumer_that_begins_anew_are_left_alone(
    yard: SimulatedServer, peer: SimulatedPeer, words: tuple[str | int, ...], answer: object
) -> None:
    push(peer, 9)
    lease(peer, 1)
    yard.engine.batch_chunk_jobs = 2
    peer.arrive(command(*words))
    now = yard.broker.begin_turn()
    drop_all(yard.engine, "spark", SYSTEM_ORIGIN, now)
    jobs = lease_all(yard.engine, "spark", 1, [b"q"], 7, 0, SYSTEM_ORIGIN, now)
    yard.broker.end_turn()
    yard.run_pending()
    assert replies(peer.take()) == [answer]
    assert [job[1] for job in read(peer, 1)] == [job.id for job in jobs]


# Claims


def claim(peer: SimulatedPeer, holder: str) -> Any:
    return ask(peer, "BATCH.CLAIM", "spark", holder)


def has_it(reply: object, holder: str) -> bool:
    return isinstance(reply, Failure) and str(reply).startswith(f"CLAIMED {holder} at ")


def test_who_claims_a_consumer_has_it_alone(yard: SimulatedServer, peer: SimulatedPeer) -> None:
    push(peer, 4)
    other = yard.connect("resp")
    assert claim(peer, "one") == "OK"
    assert claim(peer, "one") == "OK"
    assert str(claim(other, "two")).endswith(
        " has the consumer spark, and two would get the same jobs: stop that one, or give this one "
        "another name"
    )
    assert lease(peer, 1, 2) == [1, 2]
    mark = yard.journal.records.end_position()
    assert has_it(lease(other, 1, 2), "one")
    assert has_it(lease(other, 2, 2), "one")
    assert has_it(ask(other, "BATCH.ACK", "spark", 1), "one")
    assert has_it(ask(other, "BATCH.ACK", "spark", 1, "two"), "one")
    assert yard.journal.records.end_position() == mark
    assert payloads(read(other, 1)) == [b"0", b"1"]
    assert ask(other, "BATCH.LEASE", "etl", 1, 1, "QUEUES", "q") == [1, 1]
    assert ask(other, "BATCH.ACK", "spark", 1, "one") == "OK"
    assert lease(peer, 2) == [2, 1]
    assert ask(other, "BATCH.DROP", "spark") == "OK"
    assert has_it(lease(other, 1), "one")
    assert lease(peer, 3) == [3, 1]


def test_a_claim_ends_with_the_last_connection_of_its_holder(yard: SimulatedServer) -> None:
    first, second, other = (yard.connect("resp") for _ in range(3))
    assert claim(first, "one") == claim(second, "one") == "OK"
    first.close()
    assert has_it(claim(other, "two"), "one")
    second.close()
    assert claim(other, "two") == "OK"
    assert has_it(lease(yard.connect("resp"), 1), "two")


def test_reset_gives_up_a_claim(yard: SimulatedServer) -> None:
    first, second = yard.connect("resp"), yard.connect("resp")
    assert claim(first, "one") == "OK"
    assert ask(first, "RESET") == "RESET"
    assert claim(second, "two") == "OK"
    assert has_it(lease(first, 1), "two")


@pytest.mark.parametrize("change", ["restart", "crash"])
def test_after_a_restart_the_first_to_come_has_it(change: str) -> None:
    yard = SimulatedServer()
    peer = yard.connect("resp")
    push(peer, 1)
    assert claim(peer, "one") == "OK"
    assert lease(peer, 1) == [1, 1]
    getattr(yard, change)()
    peer, other = yard.connect("resp"), yard.connect("resp")
    assert claim(other, "two") == "OK"
    assert has_it(claim(peer, "one"), "two")
    assert lease(other, 1) == [1, 1]


def test_work_that_is_under_way_ends_when_somebody_claims_the_consumer(
    yard: SimulatedServer, peer: SimulatedPeer
) -> None:
    yard.engine.batch_chunk_jobs = 2
    push(peer, 9)
    other = yard.connect("resp")
    peer.arrive(command("BATCH.LEASE", "spark", 1, 9, "QUEUES", "q"))
    other.arrive(command("BATCH.CLAIM", "spark", "two"))
    yard.run_pending()
    assert replies(other.take()) == ["OK"]
    [reply] = replies(peer.take())
    assert has_it(reply, "two")
    number, count = lease(other, 1)
    assert number == 1
    assert 0 < count < 9
    assert lease(other, 2) == [2, 9 - count]


def test_a_connection_can_claim_so_many(yard: SimulatedServer, peer: SimulatedPeer) -> None:
    for number in range(MAX_CLAIMS):
        assert ask(peer, "BATCH.CLAIM", f"spark-{number}", "one") == "OK"
    reply = claim(peer, "one")
    assert reply == Failure("ERR a connection can claim 256 consumers at most")
    assert claim(yard.connect("resp"), "two") == "OK"
    peer.close()
    assert ask(yard.connect("resp"), "BATCH.CLAIM", "spark-0", "two") == "OK"


# Whose a consumer is


USERS = {
    "ada": Principal("ada", [Rule(["q"], [TAKE, PUSH])]),
    "eve": Principal("eve", [Rule(["q"], [TAKE, PUSH])]),
    "boss": Principal("boss", [Rule(["q"], [TAKE, ADMIN])]),
    "root": Principal("root", is_superuser=True),
}
USES = (
    ("BATCH.CLAIM", "spark", "holder"),
    ("BATCH.LEASE", "spark", 1, 9, "QUEUES", "q"),
    ("BATCH.READ", "spark", 1, 0, 9),
    ("BATCH.LEASE", "spark", 2, 9, "QUEUES", "q"),
    ("BATCH.ACK", "spark", 2),
    ("BATCH.DROP", "spark"),
)


def yard_with_users() -> SimulatedServer:
    return SimulatedServer(gate=FixedAuthenticator(USERS))


def as_user(yard: SimulatedServer, name: str) -> SimulatedPeer:
    return yard.connect("resp", certificate=name)


@pytest.mark.parametrize("change", ["", "restart", "crash"])
def test_a_consumer_is_not_for_another_user(change: str) -> None:
    yard = yard_with_users()
    push(as_user(yard, "ada"), 3)
    assert lease(as_user(yard, "ada"), 1, 2) == [1, 2]
    if change:
        getattr(yard, change)()
    eve = as_user(yard, "eve")
    mark = yard.journal.records.end_position()
    for words in USES:
        assert ask(eve, *words) == Failure("NOPERM consumer spark belongs to another user")
    assert yard.journal.records.end_position() == mark
    assert lease(as_user(yard, "ada"), 2) == [2, 1]


@pytest.mark.parametrize("name", ["boss", "root"])
def test_an_administrator_may_use_it_and_it_stays_whose_it_was(name: str) -> None:
    yard = yard_with_users()
    push(as_user(yard, "ada"), 3)
    assert lease(as_user(yard, "ada"), 1, 1) == [1, 1]
    ruler = as_user(yard, name)
    assert lease(ruler, 2, 1) == [2, 1]
    assert isinstance(lease(as_user(yard, "eve"), 2), Failure)
    assert lease(as_user(yard, "ada"), 2) == [2, 1]
    assert ask(ruler, "BATCH.DROP", "spark") == "OK"
    assert lease(as_user(yard, "eve"), 1, 1) == [1, 1]
    assert isinstance(lease(as_user(yard, "ada"), 1), Failure)


def test_a_claim_is_not_told_to_another_user() -> None:
    yard = yard_with_users()
    ada, eve, root = (as_user(yard, name) for name in ("ada", "eve", "root"))
    assert claim(ada, "one") == "OK"
    for words in (
        ("BATCH.CLAIM", "spark", "one"),
        ("BATCH.CLAIM", "spark", "two"),
        ("BATCH.LEASE", "spark", 1, 9, "QUEUES", "q"),
        ("BATCH.ACK", "spark", 0, "one"),
    ):
        assert ask(eve, *words) == Failure("NOPERM consumer spark belongs to another user")
    assert has_it(claim(root, "two"), "one")


def test_who_may_take_nothing_claims_nothing() -> None:
    yard = SimulatedServer(
        gate=FixedAuthenticator({"none": Principal("none", [Rule(["q"], [PUSH])])})
    )
    assert str(claim(as_user(yard, "none"), "one")).startswith("NOPERM ")
    assert str(claim(yard.connect("resp"), "one")).startswith("NOAUTH ")


def test_one_that_is_nobodys_belongs_to_the_first_user_who_leases_a_batch() -> None:
    yard = SimulatedServer()
    push(yard.connect("resp"), 3)
    assert lease(yard.connect("resp"), 1, 1) == [1, 1]
    consumer = yard.engine.consumer("spark")
    assert consumer is not None
    assert consumer.user == ""
    peer = yard.connect("resp")
    assert isinstance(peer.receiver, RespConnection)
    peer.receiver.switch_principal(USERS["ada"])
    assert lease(peer, 1) == [1, 1]
    assert consumer.user == ""
    assert lease(peer, 2, 1) == [2, 1]
    assert consumer.user == "ada"
    peer.receiver.switch_principal(USERS["eve"])
    assert isinstance(lease(peer, 2), Failure)
