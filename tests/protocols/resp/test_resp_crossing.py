"""Jobs that RESP clients push and clients of other protocols take, and the other way round."""

import pytest
from support.glovebox import Client as GloveboxClient
from support.replies_resp import ask
from support.resp_jobs import expect_stale, push, take, take_many
from support.simulated import SimulatedPeer, SimulatedServer
from support.wire import exchange

UID = b"6ba7b810-9dad-41d1-80b4-00c04fd430c8"
DAY = 86_400_000


@pytest.fixture
def yard() -> SimulatedServer:
    return SimulatedServer()


@pytest.fixture
def peer(yard: SimulatedServer) -> SimulatedPeer:
    return yard.connect("resp")


def now_ms(yard: SimulatedServer) -> int:
    return yard.clock.now() // 1000


def test_a_job_of_masenko_is_taken_and_the_other_way_round(
    yard: SimulatedServer, peer: SimulatedPeer
) -> None:
    masenko = yard.connect()
    push_line = b'PUSH {"name":"n","queue":"q","payload":{"a":[1.50]},"retry":1}\n'
    exchange(masenko, push_line, b'OK {"id":1}\n')
    job = take(peer)
    assert (job.name, job.payload) == (b"n", b'{"a":[1.50]}')
    assert ask(peer, "JOB.FAIL", job.ref, "no") == "delayed"  # by the back-off of Masenko
    yard.advance(1.1)
    job = take(peer)
    assert job.fails == 1
    assert ask(peer, "JOB.DONE", job.ref) == "OK"

    push(peer, "q", '{"k":"v"}', "NAME", "task")
    masenko.send(b'FETCH {"queues":["q"]}\n')
    masenko.expect(b'OK {"id":2,"queue":"q","name":"task","payload":{"k":"v"}}\n')
    expect_stale(peer, b"2-1-0")
    exchange(masenko, b'ACK {"id":2}\n', b"OK {}\n")
    expect_stale(peer, b"2-1-1")


def test_a_lease_of_masenko_can_be_finished_by_its_ref_and_is_lost_to_its_holder(
    yard: SimulatedServer, peer: SimulatedPeer
) -> None:
    masenko = yard.connect()
    push(peer, "q", "1")
    masenko.send(b'FETCH {"queues":["q"]}\n')
    masenko.read_line()
    assert ask(peer, "JOB.DONE", b"1-1-1") == "OK"
    masenko.send(b'ACK {"id":1}\n')
    assert masenko.read_line().startswith(b"ERR ")


def test_a_job_of_workq_is_taken_and_the_other_way_round(
    yard: SimulatedServer, peer: SimulatedPeer
) -> None:
    workq = yard.connect("workq")
    exchange(workq, b"add %b q 1500 60000 4 -max-fails=2\r\nping\r\n" % UID, b"+OK\r\n")
    job = take(peer, "q", "TTR", DAY)
    assert (job.uid, job.queue, job.deadline) == (UID, b"q", now_ms(yard) + 1500)
    assert ask(peer, "JOB.FAIL", job.ref, "no") == "ready"
    assert ask(peer, "JOB.DONE", take(peer).ref, "pong") == "OK"
    exchange(workq, b"result %b 0\r\n" % UID, b"+OK 1\r\n%b 1 4\r\npong\r\n" % UID)

    uid = UID.replace(b"6", b"7")
    push(peer, "q", "mine", "UID", uid, "TTL", 60_000)
    exchange(workq, b"lease q 0\r\n", b"+OK 1\r\n%b q 4\r\nmine\r\n" % uid)
    exchange(workq, b"complete %b 2\r\nok\r\n" % uid, b"+OK\r\n")
    expect_stale(peer, b"2-1-1")


def test_a_complete_of_workq_makes_a_ref_stale(yard: SimulatedServer, peer: SimulatedPeer) -> None:
    push(peer, "q", "body", "UID", UID, "TTL", 60_000)
    job = take(peer)
    exchange(yard.connect("workq"), b"complete %b 2\r\nok\r\n" % UID, b"+OK\r\n")
    expect_stale(peer, job.ref)


def test_a_job_of_glovebox_is_taken_and_the_other_way_round(
    yard: SimulatedServer, peer: SimulatedPeer
) -> None:
    client = GloveboxClient(yard)
    client.create("q", label=1)
    client.expect_notice(1, "ready")
    client.post("q", b"body", label=2, notify=("assign", "finish"))
    job = take(peer)
    client.expect_notice(2, "assign")
    assert (job.id, job.payload) == (1, b"body")
    assert ask(peer, "JOB.DONE", job.ref) == "OK"
    client.expect_notice(2, "finish")

    push(peer, "q", "mine")
    client.fetch("q", label=3)
    client.expect_message(3, 2, "mine")
    client.finish("q", 2)
    expect_stale(peer, b"2-1-1")


def test_what_lists_and_items_hold_are_jobs_too(peer: SimulatedPeer) -> None:
    ask(peer, "RPUSH", "q", "a", "b")
    ask(peer, "LPUSH", "q", "first")
    jobs = take_many(peer, "q", "COUNT", 3)
    assert [job.payload for job in jobs] == [b"first", b"a", b"b"]
    assert ask(peer, "LLEN", "q") == 0
    assert ask(peer, "JOB.RETURN", jobs[1].ref) == "OK"
    assert ask(peer, "LPOP", "q") == b"a"
    expect_stale(peer, jobs[1].ref)
    ask(peer, "UPDATE", "item", 7)
    item = take(peer, "pqueue")
    assert item.payload == b"item"
    assert ask(peer, "NEXT") is None
    assert ask(peer, "JOB.RETURN", item.ref) == "OK"
    assert ask(peer, "SCORE", "item") == 7


def test_a_pushed_job_is_in_its_list(peer: SimulatedPeer) -> None:
    push(peer, "q", "low", "PRIORITY", -1)
    push(peer, "q", "high", "PRIORITY", 1)
    push(peer, "q", "later", "IN", 1000)
    ask(peer, "RPUSH", "q", "plain")
    assert ask(peer, "LRANGE", "q", 0, -1) == [b"high", b"plain", b"low"]
    assert ask(peer, "LREM", "q", 0, "low") == 1
    assert ask(peer, "RPOP", "q") == b"plain"
    assert ask(peer, "DEL", "q") == 1
    assert ask(peer, "LLEN", "q") == 0
