"""Masenko and Workq, byte for byte, where only these two meet."""

import re
from collections.abc import Iterator

import pytest
from protocols.interop.adapters.masenko import MasenkoAdapter
from protocols.interop.adapters.workq import WorkqAdapter
from protocols.interop.world import socket_world
from support.simulated import SimulatedServer
from support.sockets import SocketWire
from support.wire import Peer, SimulatedWire, Wire, error_of, exchange, queue_counts

GIVEN = b"6ba7b810-9dad-11d1-80b4-00c04fd430c4"
SECOND = b"6ba7b810-9dad-11d1-80b4-00c04fd430c5"
NOT_ACQUIRED = b'ERR {"msg":"task not acquired"}\n'
NOT_FOUND = b"-NOT-FOUND\r\n"
OK = b"+OK\r\n"
UUID_4 = rb"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}"


@pytest.fixture
def yard() -> SimulatedWire:
    return SimulatedServer()


@pytest.fixture(params=["simulated", "socket"])
def wire(request: pytest.FixtureRequest) -> Wire:
    """A fresh server of either kind; its first id is 1."""
    if request.param == "simulated":
        return SimulatedServer()
    server: Wire = request.getfixturevalue("fresh_socket_server")
    return server


@pytest.fixture
def fresh_socket_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SocketWire]:
    with SocketWire(tmp_path_factory.mktemp("server")) as server:
        yield server


def add(peer: Peer, uid: bytes, queue: bytes, payload: bytes, flags: bytes = b"") -> None:
    head = b"add %b %b 60000 600000 %d%b\r\n" % (uid, queue, len(payload), flags)
    exchange(peer, head + payload + b"\r\n", OK)


def lease(peer: Peer, queue: bytes, payload: bytes) -> bytes:
    """Lease the next job, which must have this payload; gives its uid."""
    peer.send(b"lease %b 0\r\n" % queue)
    peer.expect(b"+OK 1\r\n")
    found = re.fullmatch(rb"(\S+) %b %d\r\n" % (queue, len(payload)), peer.read_line())
    assert found is not None
    peer.expect(payload + b"\r\n")
    return found[1]


def inspect(peer: Peer, uid: bytes) -> dict[bytes, bytes]:
    """What `inspect job` tells; payloads are without line feeds here."""
    peer.send(b"inspect job %b\r\n" % uid)
    peer.expect(b"+OK 1\r\n")
    head = re.fullmatch(rb"%b (\d+)\r\n" % uid, peer.read_line())
    assert head is not None
    lines = [peer.read_line().removesuffix(b"\r\n") for _ in range(int(head[1]))]
    return dict(line.split(b" ", 1) for line in lines)


def listed(peer: Peer, command: bytes) -> list[bytes]:
    """The payloads of the jobs that are listed, which have no line feeds here."""
    peer.send(command)
    payloads = []
    for _ in range(int(peer.read_line().removeprefix(b"+OK "))):
        keys = int(peer.read_line().split()[1])
        told = dict(peer.read_line().rstrip().split(b" ", 1) for _ in range(keys))
        payloads.append(told[b"payload"])
    peer.expect_nothing()
    return payloads


def test_a_task_is_a_job_with_a_uid_of_its_own(wire: Wire) -> None:
    masenko, workq = wire.connect(), wire.connect("workq")
    exchange(
        masenko,
        b'PUSH {"name":"resize","queue":"images","payload":{"file": "a.png", "size": 1.0}}\n',
        b'OK {"id":1}\n',
    )
    uid = lease(workq, b"images", b'{"file":"a.png","size":1.0}')
    assert re.fullmatch(UUID_4, uid)
    assert queue_counts(masenko) == {"images": (0, 0, 1)}
    exchange(workq, b"complete %b 4\r\ndone\r\n" % uid, OK)
    assert queue_counts(masenko) == {"images": (0, 0, 0)}
    exchange(workq, b"result %b 0\r\n" % uid, NOT_FOUND)


def test_a_job_is_a_task_with_an_id_of_its_own(wire: Wire) -> None:
    masenko, workq = wire.connect(), wire.connect("workq")
    add(workq, GIVEN, b"ping", b"pong")
    exchange(
        masenko,
        b'FETCH {"queues":["ping"]}\n',
        b'OK {"id":1,"queue":"ping","name":"ping","payload":"pong"}\n',
    )
    assert inspect(workq, GIVEN)[b"state"] == b"4"
    exchange(masenko, b'ACK {"id":1}\n', b"OK {}\n")
    assert inspect(workq, GIVEN)[b"state"] == b"1"
    exchange(workq, b"result %b 0\r\n" % GIVEN, b"+OK 1\r\n%b 1 0\r\n\r\n" % GIVEN)


def test_inspect_shows_a_task_as_a_job(yard: SimulatedWire) -> None:
    masenko, workq = yard.connect(), yard.connect("workq")
    exchange(masenko, b'PUSH {"name":"a","queue":"q","payload":[1],"retry":4}\n', b'OK {"id":1}\n')
    told = inspect(workq, lease(workq, b"q", b"[1]"))
    assert told[b"name"] == b"q"
    assert told[b"ttl"] == b"0"
    assert told[b"payload"] == b"[1]"
    assert told[b"max-attempts"] == b"0"
    assert told[b"attempts"] == b"1"
    assert told[b"max-fails"] == b"5"
    assert told[b"fails"] == b"0"
    assert told[b"priority"] == b"0"
    assert told[b"created"] == b"2023-11-14T22:13:20Z"
    assert len(told) == 12


def test_inspect_shows_when_a_task_is_to_be_executed(yard: SimulatedWire) -> None:
    masenko, workq = yard.connect(), yard.connect("workq")
    exchange(
        masenko,
        b'PUSH {"name":"a","queue":"q","execute_at":"2030-01-01T02:00:00+02:00"}\n',
        b'OK {"id":1}\n',
    )
    workq.send(b"inspect scheduled-jobs q 0 10\r\n")
    workq.expect(b"+OK 1\r\n")
    assert re.fullmatch(UUID_4 + rb" 13\r\n", workq.read_line())
    lines = [workq.read_line() for _ in range(13)]
    assert lines[0] == b"name q\r\n"
    assert lines[-1] == b"time 2030-01-01T00:00:00Z\r\n"
    workq.expect_nothing()


def test_inspect_lists_tasks_that_wait_for_their_time_then_those_that_wait_for_others(
    yard: SimulatedWire,
) -> None:
    masenko, workq = yard.connect(), yard.connect("workq")
    exchange(masenko, b'PUSH {"name":"a","queue":"q","payload":"first"}\n', b'OK {"id":1}\n')
    exchange(
        masenko,
        b'PUSH {"name":"a","queue":"q","payload":"blocked","blocked_by":[1]}\n',
        b'OK {"id":2}\n',
    )
    exchange(
        masenko,
        b'PUSH {"name":"a","queue":"q","payload":"2031","execute_at":"2031-01-01T00:00:00Z"}\n',
        b'OK {"id":3}\n',
    )
    head = b"schedule %b q 1000 1000 2030-01-01T00:00:00Z 6\r\n" % GIVEN
    exchange(workq, head + b'"2030"\r\n', OK)
    in_order = [b'"2030"', b'"2031"', b'"blocked"']
    assert listed(workq, b"inspect scheduled-jobs q 0 10\r\n") == in_order
    assert listed(workq, b"inspect scheduled-jobs q 1 2\r\n") == in_order[1:]
    assert listed(workq, b"inspect scheduled-jobs q 2 2\r\n") == in_order[2:]
    assert listed(workq, b"inspect scheduled-jobs q 3 2\r\n") == []
    assert listed(workq, b"inspect jobs q 0 10\r\n") == [b'"first"']


def test_complete_takes_a_task_from_the_connection_that_holds_it(wire: Wire) -> None:
    masenko, workq = wire.connect(), wire.connect("workq")
    add(workq, GIVEN, b"q", b"1")
    exchange(
        masenko,
        b'FETCH {"queues":["q"]}\n',
        b'OK {"id":1,"queue":"q","name":"q","payload":1}\n',
    )
    exchange(workq, b"complete %b 2\r\nok\r\n" % GIVEN, OK)
    exchange(masenko, b'ACK {"id":1}\n', NOT_ACQUIRED)
    exchange(masenko, b'NACK {"id":1}\n', NOT_ACQUIRED)
    masenko.send(b'ATOMIC\nPUSH {"name":"a"}\nACK {"id":1}\nDONE\n')
    assert error_of(masenko.read_line()) == "task 1 not acquired"
    exchange(workq, b"result %b 0\r\n" % GIVEN, b"+OK 1\r\n%b 1 2\r\nok\r\n" % GIVEN)


def test_who_waits_for_a_result_hears_of_an_ack_and_of_a_final_nack(wire: Wire) -> None:
    masenko, workq, waiter = wire.connect(), wire.connect("workq"), wire.connect("workq")
    for number, (uid, verb, success) in enumerate([(GIVEN, b"ACK", 1), (SECOND, b"NACK", 0)], 1):
        add(workq, uid, b"q", b"1")
        waiter.send(b"result %b 60000\r\n" % uid)
        masenko.send(b'FETCH {"queues":["q"]}\n')
        masenko.expect(b'OK {"id":%d,"queue":"q","name":"q","payload":1}\n' % number)
        waiter.expect_nothing()
        exchange(masenko, b'%b {"id":%d}\n' % (verb, number), b"OK {}\n")
        waiter.expect(b"+OK 1\r\n%b %d 0\r\n\r\n" % (uid, success))


def test_who_waits_for_the_result_of_a_task_hears_it_once(wire: Wire) -> None:
    masenko, workq, waiter = wire.connect(), wire.connect("workq"), wire.connect("workq")
    exchange(masenko, b'PUSH {"name":"a","queue":"q","payload":1}\n', b'OK {"id":1}\n')
    uid = lease(workq, b"q", b"1")
    waiter.send(b"result %b 60000\r\n" % uid)
    waiter.expect_nothing()
    exchange(workq, b"complete %b 3\r\nyes\r\n" % uid, OK)
    waiter.expect(b"+OK 1\r\n%b 1 3\r\nyes\r\n" % uid)
    exchange(waiter, b"result %b 60000\r\n" % uid, NOT_FOUND)
    exchange(waiter, b"complete %b 0\r\n\r\n" % uid, NOT_FOUND)
    exchange(waiter, b"inspect job %b\r\n" % uid, NOT_FOUND)


def test_run_is_served_by_a_task_worker(wire: Wire) -> None:
    masenko, workq = wire.connect(), wire.connect("workq")
    masenko.send(b'FETCH {"queues":["q"],"timeout":"20s"}\n')
    masenko.expect_nothing()
    workq.send(b"run %b q 60000 60000 4\r\nping\r\n" % GIVEN)
    masenko.expect(b'OK {"id":1,"queue":"q","name":"q","payload":"ping"}\n')
    workq.expect_nothing()
    exchange(masenko, b'ACK {"id":1}\n', b"OK {}\n")
    workq.expect(b"+OK 1\r\n%b 1 0\r\n\r\n" % GIVEN)
    exchange(workq, b"inspect job %b\r\n" % GIVEN, NOT_FOUND)


def test_run_hears_that_a_task_worker_failed(wire: Wire) -> None:
    masenko, workq = wire.connect(), wire.connect("workq")
    workq.send(b"run %b q 60000 60000 4\r\nping\r\n" % GIVEN)
    exchange(
        masenko,
        b'FETCH {"queues":["q"]}\n',
        b'OK {"id":1,"queue":"q","name":"q","payload":"ping"}\n',
    )
    exchange(masenko, b'NACK {"id":1}\n', b"OK {}\n")
    workq.expect(b"+OK 1\r\n%b 0 0\r\n\r\n" % GIVEN)
    exchange(workq, b"inspect job %b\r\n" % GIVEN, NOT_FOUND)


def test_run_that_is_over_takes_the_task_from_its_worker(yard: SimulatedWire) -> None:
    masenko, workq = yard.connect(), yard.connect("workq")
    workq.send(b"run %b q 5000 60000 4\r\nping\r\n" % GIVEN)
    exchange(
        masenko,
        b'FETCH {"queues":["q"]}\n',
        b'OK {"id":1,"queue":"q","name":"q","payload":"ping"}\n',
    )
    yard.advance(4.9)
    workq.expect_nothing()
    yard.advance(0.2)
    workq.expect(b"-TIMEOUT\r\n")
    exchange(masenko, b'ACK {"id":1}\n', NOT_ACQUIRED)
    assert queue_counts(masenko) == {"q": (0, 0, 0)}


def test_run_is_over_when_the_task_worker_is_lost(yard: SimulatedWire) -> None:
    masenko, workq = yard.connect(), yard.connect("workq")
    workq.send(b"run %b q 60000 60000 4\r\nping\r\n" % GIVEN)
    exchange(
        masenko,
        b'FETCH {"queues":["q"]}\n',
        b'OK {"id":1,"queue":"q","name":"q","payload":"ping"}\n',
    )
    workq.expect_nothing()
    masenko.close()
    workq.expect(b"-TIMEOUT\r\n")
    exchange(workq, b"inspect job %b\r\n" % GIVEN, NOT_FOUND)
    assert queue_counts(yard.connect()) == {"q": (0, 0, 0)}


def test_run_that_no_task_worker_takes_is_withdrawn(yard: SimulatedWire) -> None:
    masenko, workq = yard.connect(), yard.connect("workq")
    workq.send(b"run %b q 60000 5000 4\r\nping\r\n" % GIVEN)
    assert queue_counts(masenko) == {"q": (1, 0, 0)}
    yard.advance(5.1)
    workq.expect(b"-TIMEOUT\r\n")
    assert queue_counts(masenko) == {"q": (0, 0, 0)}


def test_run_whose_client_is_gone_is_withdrawn_unless_a_task_worker_has_it(
    yard: SimulatedWire,
) -> None:
    masenko, workq, other = yard.connect(), yard.connect("workq"), yard.connect("workq")
    other.send(b"run %b q 60000 60000 4\r\nheld\r\n" % GIVEN)
    masenko.send(b'FETCH {"queues":["q"]}\n')
    masenko.expect(b'OK {"id":1,"queue":"q","name":"q","payload":"held"}\n')
    workq.send(b"run %b q 60000 60000 4\r\nping\r\n" % SECOND)
    assert queue_counts(masenko) == {"q": (1, 0, 1)}
    workq.close()
    other.close()
    assert queue_counts(masenko) == {"q": (0, 0, 1)}
    exchange(masenko, b'ACK {"id":1}\n', b"OK {}\n")


def test_a_transaction_acknowledges_jobs_and_pushes_tasks(wire: Wire) -> None:
    masenko, workq = wire.connect(), wire.connect("workq")
    add(workq, GIVEN, b"q", b"1")
    exchange(
        masenko,
        b'FETCH {"queues":["q"]}\n',
        b'OK {"id":1,"queue":"q","name":"q","payload":1}\n',
    )
    workq.send(b"lease then 60000\r\n")
    masenko.send(b"ATOMIC\n")
    masenko.send(b'ACK {"id":1}\n')
    masenko.send(b'PUSH {"name":"next","queue":"then","payload":"go"}\n')
    masenko.expect_nothing()
    workq.expect_nothing()
    exchange(masenko, b"DONE\n", b'OK {"ids":[2]}\n')
    workq.expect(b"+OK 1\r\n")
    assert re.fullmatch(UUID_4 + rb" then 4\r\n", workq.read_line())
    workq.expect(b'"go"\r\n')
    exchange(workq, b"result %b 0\r\n" % GIVEN, b"+OK 1\r\n%b 1 0\r\n\r\n" % GIVEN)


def test_a_task_that_fails_through_workq_waits_as_long_as_after_a_nack(
    yard: SimulatedWire,
) -> None:
    masenko, workq = yard.connect(), yard.connect("workq")
    exchange(
        masenko,
        b'PUSH {"name":"a","queue":"q","payload":1,"retry":1,"deadqueue":"dead/letters"}\n',
        b'OK {"id":1}\n',
    )
    uid = lease(workq, b"q", b"1")
    exchange(workq, b"fail %b 3\r\nwhy\r\n" % uid, OK)
    exchange(workq, b"lease q 0\r\n", b"-TIMEOUT\r\n")
    assert queue_counts(masenko) == {"q": (0, 1, 0)}
    yard.advance(0.7)
    assert queue_counts(masenko) == {"q": (0, 1, 0)}
    yard.advance(0.1)
    assert lease(workq, b"q", b"1") == uid
    exchange(workq, b"fail %b 3\r\nwhy\r\n" % uid, OK)
    assert queue_counts(masenko) == {"q": (0, 0, 0), "dead/letters": (1, 0, 0)}
    exchange(
        masenko,
        b'FETCH {"queues":["dead/letters"]}\n',
        b'OK {"id":1,"queue":"dead/letters","name":"a","payload":1}\n',
    )
    exchange(
        workq,
        b"inspect queues 0 10\r\n",
        b"+OK 1\r\nq 2\r\nready-len 0\r\nscheduled-len 0\r\n",
    )
    exchange(workq, b"complete %b 0\r\n\r\n" % uid, OK)
    exchange(masenko, b'ACK {"id":1}\n', NOT_ACQUIRED)


def test_lease_of_several_names_finds_tasks_in_any_of_them(wire: Wire) -> None:
    masenko, workq = wire.connect(), wire.connect("workq")
    exchange(masenko, b'PUSH {"name":"a","queue":"b","payload":1}\n', b'OK {"id":1}\n')
    workq.send(b"lease a b c 0\r\n")
    workq.expect(b"+OK 1\r\n")
    assert re.fullmatch(UUID_4 + rb" b 1\r\n", workq.read_line())
    workq.expect(b"1\r\n")


def test_fetch_of_several_queues_prefers_the_first_whatever_the_priority(wire: Wire) -> None:
    masenko, workq = wire.connect(), wire.connect("workq")
    add(workq, GIVEN, b"b", b"1", b" -priority=99")
    exchange(masenko, b'PUSH {"name":"x","queue":"a"}\n', b'OK {"id":2}\n')
    masenko.send(b'FETCH {"queues":["a","b"]}\nFETCH {"queues":["a","b"]}\n')
    masenko.expect(b'OK {"id":2,"queue":"a","name":"x"}\n')
    masenko.expect(b'OK {"id":1,"queue":"b","name":"b","payload":1}\n')


def test_with_the_ttr_in_leases_that_of_a_task_is_the_default() -> None:
    yard = SimulatedServer(lease_ttr=True)
    masenko, workq = yard.connect(), yard.connect("workq")
    exchange(masenko, b'PUSH {"name":"a","queue":"q","payload":1}\n', b'OK {"id":1}\n')
    workq.send(b"lease q 0\r\n")
    workq.expect(b"+OK 1\r\n")
    assert re.fullmatch(UUID_4 + rb" q 60000 1\r\n", workq.read_line())
    workq.expect(b"1\r\n")


def test_a_silent_worker_of_masenko_gives_a_job_back_and_one_of_workq_does_not(
    yard: SimulatedWire,
) -> None:
    workq = yard.connect("workq")
    add(workq, GIVEN, b"q", b"1")
    masenko = yard.connect()
    exchange(
        masenko,
        b'FETCH {"queues":["q"]}\n',
        b'OK {"id":1,"queue":"q","name":"q","payload":1}\n',
    )
    yard.advance(45.1)
    masenko.expect(b'ERR {"msg":"no heartbeat"}\n')
    masenko.expect_closed()
    assert inspect(workq, GIVEN)[b"state"] == b"3"
    assert lease(workq, b"q", b"1") == GIVEN
    yard.advance(50)
    assert inspect(workq, GIVEN)[b"state"] == b"4"
    yard.advance(10.1)
    told = inspect(workq, GIVEN)
    assert (told[b"state"], told[b"attempts"], told[b"fails"]) == (b"3", b"2", b"0")


def test_clients_of_both_dialects_work_through_a_restart_of_a_real_server(
    socket_server: SocketWire,
) -> None:
    world = socket_world(socket_server, "restart")
    masenko, workq = world.open(MasenkoAdapter), world.open(WorkqAdapter)
    jobs = [world.push(client) for client in (masenko, workq, masenko, workq)]
    done = world.take_this(workq, jobs[0])
    workq.finish(done)
    masenko.finish(world.take_this(masenko, jobs[1]))
    world.take_this(masenko, jobs[2])
    world.between()
    world.sees(ready=2)
    world.job_is(jobs[2], "waiting", attempts=1, fails=0)
    world.succeeded(jobs[0])
    world.succeeded(jobs[1])
    workq.finish(world.take_this(workq, jobs[2]))
    masenko.finish(world.take_this(masenko, jobs[3]))
    world.between()
    world.sees()
