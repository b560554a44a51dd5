"""A reply is a promise: what it shows is on disk when it is written to the client.

At the moment of each write, the state is recovered that a power cut would leave behind, and what
the reply says is looked up in that.
"""

import json
from collections.abc import Callable

import pytest
from support.crash_state import on_disk
from support.simulated import SimulatedServer
from support.wire import exchange

from taskyard.engine.model.job import DELAYED, LEASED, MASENKO, READY, NewJob, Origin, Policy
from taskyard.engine.model.state import State

Promise = Callable[[State, dict[str, object]], bool]

PUSH = b'PUSH {"name":"a"}\n'
TASK_1 = b'OK {"id":1,"queue":"default","name":"a"}\n'


@pytest.fixture(params=["inline", "thread"])
def yard(request: pytest.FixtureRequest) -> SimulatedServer:
    return SimulatedServer(inline_sync=request.param == "inline")


@pytest.fixture
def slow() -> SimulatedServer:
    """One that syncs in a thread, which is done when the test says so."""
    yard = SimulatedServer(inline_sync=False)
    yard.scheduler.slow = True
    return yard


def sync_done(yard: SimulatedServer) -> None:
    yard.scheduler.finish_blocking()
    yard.run_pending()


def push_before(yard: SimulatedServer, count: int = 1) -> None:
    """Push tasks of which a client has been told, before the disk gets slow."""
    slow, yard.scheduler.slow = yard.scheduler.slow, False
    peer = yard.connect()
    for _ in range(count):
        peer.send(PUSH)
        assert peer.read_line().startswith(b"OK ")
    yard.scheduler.slow = slow


def is_ready(state: State, reply: dict[str, object]) -> bool:
    job = state.live_job(int(str(reply["id"])))
    return job is not None and job.state == READY


def first_is_gone(state: State, _: dict[str, object]) -> bool:
    return state.next_id > 1 and state.live_job(1) is None


def first_has_failed_once(state: State, _: dict[str, object]) -> bool:
    job = state.live_job(1)
    return job is not None and job.state == DELAYED and job.fails == 1


def transaction_is_whole(state: State, reply: dict[str, object]) -> bool:
    ids = reply["ids"]
    assert isinstance(ids, list)
    return state.live_job(1) is None and all(state.live_job(id) is not None for id in ids)


def counts_are_right(state: State, reply: dict[str, object]) -> bool:
    queues = reply["queues"]
    assert isinstance(queues, list)
    return [(queue["name"], queue["ready"], queue["to_ack"]) for queue in queues] == [
        (queue.name, queue.ready.size, queue.leased.size) for queue in state.queues.values()
    ]


@pytest.mark.parametrize(
    ("command", "promise"),
    [
        pytest.param(b'PUSH {"name":"b","payload":[1]}\n', is_ready, id="push"),
        pytest.param(b'ACK {"id":1}\n', first_is_gone, id="ack"),
        pytest.param(b'NACK {"id":1}\n', first_has_failed_once, id="nack"),
        pytest.param(
            b'ATOMIC\nPUSH {"name":"b"}\nACK {"id":1}\nPUSH {"name":"c","queue":"q"}\nDONE\n',
            transaction_is_whole,
            id="atomic",
        ),
        pytest.param(b"INFO\n", counts_are_right, id="info"),
        pytest.param(b"QUIT\n", first_has_failed_once, id="quit"),
    ],
)
def test_a_reply_is_written_when_what_it_says_is_on_disk(
    yard: SimulatedServer, command: bytes, promise: Promise
) -> None:
    replies = []

    def witness(data: bytes) -> None:
        verb, _, body = data.partition(b" ")
        assert verb == b"OK", data
        assert promise(on_disk(yard.disk), json.loads(body)), data
        replies.append(data)

    push_before(yard)
    peer = yard.connect()
    exchange(peer, b"FETCH\n", TASK_1)
    peer.witness = witness
    peer.send(command)
    assert len(replies) == 1


@pytest.mark.parametrize(
    ("command", "reply"),
    [
        (b'PUSH {"name":"b"}\n', b'OK {"id":2}\n'),
        (b'ACK {"id":1}\n', b"OK {}\n"),
        (b'NACK {"id":1}\n', b"OK {}\n"),
        (b'ATOMIC\nPUSH {"name":"b"}\nACK {"id":1}\nDONE\n', b'OK {"ids":[2]}\n'),
        (b"QUIT\n", b"OK {}\n"),
    ],
)
def test_a_reply_waits_as_long_as_the_sync_takes(
    slow: SimulatedServer, command: bytes, reply: bytes
) -> None:
    push_before(slow)
    peer = slow.connect()
    exchange(peer, b"FETCH\n", TASK_1)
    peer.send(command)
    slow.advance(30)
    peer.expect_nothing()
    sync_done(slow)
    while slow.scheduler.blocking:  # the lease, which nobody waits for, had its sync before
        sync_done(slow)
    peer.expect(reply)


def test_info_waits_for_what_it_counts(slow: SimulatedServer) -> None:
    pusher, observer = slow.connect(), slow.connect()
    pusher.send(PUSH)
    observer.send(b"INFO\n")
    observer.expect_nothing()
    sync_done(slow)
    assert b'"ready":1' in observer.read_line()


def test_an_error_that_tells_of_a_change_waits_for_it(slow: SimulatedServer) -> None:
    push_before(slow)
    peer = slow.connect()
    exchange(peer, b"FETCH\n", TASK_1)
    peer.send(b'ACK {"id":1}\nACK {"id":1}\n')
    peer.expect_nothing()
    while slow.scheduler.blocking:
        sync_done(slow)
    peer.expect(b'OK {}\nERR {"msg":"task not acquired"}\n')


def test_a_reply_that_need_not_wait_does_not_overtake_one_that_must(slow: SimulatedServer) -> None:
    peer, other = slow.connect(), slow.connect()
    peer.send(PUSH + b'PING\nFETCH {"queues":["none"],"timeout":"1s"}\nPING\n')
    exchange(other, b"PING\n", b"PONG {}\n")
    slow.advance(2)
    peer.expect_nothing()
    sync_done(slow)
    peer.expect(b'OK {"id":1}\nPONG {}\nEMPTY {}\nPONG {}\n')


def test_replies_of_two_syncs_come_in_order(slow: SimulatedServer) -> None:
    peer = slow.connect()
    peer.send(PUSH)
    peer.send(PUSH + b"PING\n")  # while the sync for the first one is on its way
    sync_done(slow)
    peer.expect(b'OK {"id":1}\n')
    peer.expect_nothing()
    sync_done(slow)
    peer.expect(b'OK {"id":2}\nPONG {}\n')


def test_a_task_is_handed_out_when_its_push_is_on_disk(slow: SimulatedServer) -> None:
    pusher, worker = slow.connect(), slow.connect()
    pusher.send(PUSH)
    worker.send(b"FETCH\n")
    worker.expect_nothing()
    sync_done(slow)
    pusher.expect(b'OK {"id":1}\n')
    sync_done(slow)
    worker.expect(TASK_1)


def test_a_task_for_a_waiting_client_is_handed_out_when_its_push_is_on_disk(
    slow: SimulatedServer,
) -> None:
    pusher, worker = slow.connect(), slow.connect()
    worker.send(b"FETCH\n")
    pusher.send(PUSH)
    worker.expect_nothing()
    sync_done(slow)
    pusher.expect(b'OK {"id":1}\n')
    worker.expect(TASK_1)


@pytest.mark.parametrize("payload", [b"", b',"payload":"x"'])
def test_handing_out_a_task_does_not_wait_for_its_own_lease(
    slow: SimulatedServer, payload: bytes
) -> None:
    pusher, worker = slow.connect(), slow.connect()
    pusher.send(b'PUSH {"name":"a"%b}\n' % payload)
    sync_done(slow)
    pusher.expect(b'OK {"id":1}\n')
    syncs = slow.disk.calls("sync")
    worker.send(b"FETCH\n")
    worker.expect(b'OK {"id":1,"queue":"default","name":"a"%b}\n' % payload)
    assert slow.disk.calls("sync") == syncs


def test_the_only_attempt_of_a_task_is_on_disk_before_it_is_handed_out(
    slow: SimulatedServer,
) -> None:
    once = NewJob("default", "a", b"", Policy(max_attempts=1, max_fails=1))
    slow.broker.begin_turn()
    slow.engine.push(once, Origin(MASENKO, "", "test"), slow.clock.now())
    slow.broker.end_turn()
    slow.broker.flush_journal()
    worker = slow.connect()
    worker.send(b"FETCH\n")
    worker.expect_nothing()
    job = on_disk(slow.disk).live_job(1)
    assert job is not None
    assert job.state == READY
    worker.witness = lambda _: assert_leased(slow)
    sync_done(slow)
    worker.expect(b'OK {"id":1,"queue":"default","name":"a","payload":""}\n')


def test_a_task_is_handed_out_when_the_end_of_its_blocker_is_on_disk(slow: SimulatedServer) -> None:
    push_before(slow)
    holder, worker = slow.connect(), slow.connect()
    slow.scheduler.slow = False
    exchange(holder, b'PUSH {"name":"b","blocked_by":[1]}\n', b'OK {"id":2}\n')
    exchange(holder, b"FETCH\n", TASK_1)
    slow.advance(1)
    slow.scheduler.slow = True
    worker.send(b"FETCH\n")
    holder.send(b'ACK {"id":1}\n')
    worker.expect_nothing()
    sync_done(slow)
    holder.expect(b"OK {}\n")
    worker.expect(b'OK {"id":2,"queue":"default","name":"b"}\n')


def test_a_task_comes_from_its_dead_queue_when_that_it_failed_is_on_disk(
    slow: SimulatedServer,
) -> None:
    holder, worker = slow.connect(), slow.connect()
    slow.scheduler.slow = False
    exchange(holder, b'PUSH {"name":"a","retry":0,"deadqueue":"dead"}\n', b'OK {"id":1}\n')
    exchange(holder, b"FETCH\n", TASK_1)
    slow.advance(1)
    slow.scheduler.slow = True
    holder.close()
    worker.send(b'FETCH {"queues":["dead"]}\n')
    worker.expect_nothing()
    sync_done(slow)
    worker.expect(b'OK {"id":1,"queue":"dead","name":"a"}\n')


def test_a_task_is_tried_again_when_that_it_failed_is_on_disk(slow: SimulatedServer) -> None:
    push_before(slow)
    holder, worker = slow.connect(), slow.connect()
    exchange(holder, b"FETCH\n", TASK_1)
    holder.send(b'NACK {"id":1}\n')
    slow.advance(2)
    worker.send(b"FETCH\n")
    worker.expect_nothing()
    while slow.scheduler.blocking:
        sync_done(slow)
    worker.expect(TASK_1[:-2] + b',"failures":1}\n')


def assert_leased(yard: SimulatedServer) -> None:
    job = on_disk(yard.disk).live_job(1)
    assert job is not None
    assert job.state == LEASED


def test_a_lease_is_written_soon_though_nobody_waits_for_it(yard: SimulatedServer) -> None:
    push_before(yard)
    worker = yard.connect()
    exchange(worker, b"FETCH\n", TASK_1)
    before = yard.broker.commits
    yard.advance(0.006)
    assert yard.broker.commits == before + 1
    assert_leased(yard)


def test_a_lease_goes_with_the_next_commit_if_that_comes_sooner(yard: SimulatedServer) -> None:
    push_before(yard)
    worker = yard.connect()
    exchange(worker, b"FETCH\n", TASK_1)
    exchange(worker, b'ACK {"id":1}\n', b"OK {}\n")
    before = yard.broker.commits
    yard.advance(0.1)
    assert yard.broker.commits == before


def test_in_write_mode_a_reply_waits_for_the_write_alone() -> None:
    yard = SimulatedServer(durability="write")
    yard.scheduler.slow = True
    peer = yard.connect()
    writes = yard.disk.calls("write")
    peer.witness = lambda _: assert_written(yard, writes + 1)
    exchange(peer, PUSH, b'OK {"id":1}\n')
    assert on_disk(yard.disk).live_job(1) is None


def assert_written(yard: SimulatedServer, writes: int) -> None:
    assert yard.disk.calls("write") == writes


def test_in_write_mode_nobody_waits_for_a_sync_in_the_background() -> None:
    yard = SimulatedServer(durability="write")
    yard.scheduler.slow = True
    peer = yard.connect()
    exchange(peer, PUSH, b'OK {"id":1}\n')
    yard.advance(1.1)
    assert yard.scheduler.blocking
    exchange(peer, PUSH, b'OK {"id":2}\n')
    exchange(peer, b"FETCH\n", TASK_1)
    exchange(peer, b'ACK {"id":1}\n', b"OK {}\n")


def test_in_memory_mode_a_reply_waits_for_nothing() -> None:
    yard = SimulatedServer(durability="memory")
    peer = yard.connect()
    writes = yard.disk.calls("write")
    exchange(peer, PUSH + b"FETCH\n", b'OK {"id":1}\n' + TASK_1)
    assert yard.disk.calls("write") == writes
    yard.advance(0.006)
    assert yard.disk.calls("write") == writes + 1


@pytest.mark.parametrize("durability", ["write", "memory"])
def test_the_disk_is_synced_about_a_second_later_where_replies_do_not_wait(
    durability: str,
) -> None:
    yard = SimulatedServer(durability=durability)
    peer = yard.connect()
    exchange(peer, PUSH, b'OK {"id":1}\n')
    yard.advance(0.9)
    assert on_disk(yard.disk).live_job(1) is None
    yard.advance(0.2)
    assert on_disk(yard.disk).live_job(1) is not None
    syncs = yard.disk.calls("sync")
    yard.advance(10)
    assert yard.disk.calls("sync") == syncs


@pytest.mark.parametrize("durability", ["write", "memory"])
def test_a_clean_stop_leaves_everything_on_disk_in_every_mode(durability: str) -> None:
    yard = SimulatedServer(durability=durability)
    exchange(yard.connect(), PUSH, b'OK {"id":1}\n')
    yard.stop()
    assert on_disk(yard.disk).live_job(1) is not None
