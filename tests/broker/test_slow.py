"""Commands that take too long are noted, with where the time went. Who waits on purpose is not."""

from collections.abc import Callable

import pytest
from support.simulated import SimulatedServer

from taskyard.broker.metrics import MAX_KEPT, SlowCommand

MILLISECOND = 1000
LIMIT = 100 * MILLISECOND
PUSH = b'PUSH {"name":"a"}\n'
WORKQ_ADD = b"add 6ba7b810-9dad-11d1-80b4-00c04fd430c8 q 1000 60000 1\r\nx\r\n"


@pytest.fixture
def yard() -> SimulatedServer:
    yard = SimulatedServer(inline_sync=False)
    yard.broker.slow_commands.threshold_us = LIMIT
    return yard


def only(yard: SimulatedServer) -> SlowCommand:
    (found,) = yard.broker.slow_commands.newest_first()
    return found


def stall_disk(yard: SimulatedServer, microseconds: int, meanwhile: Callable[[], None]) -> None:
    """The sync of what is done meanwhile takes that long."""
    yard.scheduler.slow = True
    meanwhile()
    yard.run_pending()
    yard.clock.time += microseconds
    yard.scheduler.slow = False
    while yard.scheduler.blocking:
        yard.scheduler.finish_blocking()
        yard.run_pending()


def tick(yard: SimulatedServer, microseconds: int) -> None:
    """From now on each look at the clock finds that so much time has passed."""

    def now() -> int:
        yard.clock.time += microseconds
        return yard.clock.time

    yard.clock.now = now  # type: ignore[method-assign]


def parts(slow: SlowCommand) -> tuple[int, int, int, int]:
    return slow.duration_us, slow.queued_us, slow.processing_us, slow.disk_us


def test_a_disk_that_stalls(yard: SimulatedServer) -> None:
    peer = yard.connect()
    stall_disk(yard, 250 * MILLISECOND, lambda: peer.arrive(b"PING\n" + PUSH * 3))
    slow = only(yard)
    assert (slow.protocol_name, slow.command, slow.command_count, slow.request_id) == (
        "masenko",
        "PUSH",
        3,
        "0-2",
    )
    assert parts(slow) == (250 * MILLISECOND, 0, 0, 250 * MILLISECOND)
    assert slow.peer.startswith("peer:")
    assert slow.time == yard.clock.time


def test_as_long_as_is_allowed_is_not_slow(yard: SimulatedServer) -> None:
    peer = yard.connect()
    stall_disk(yard, LIMIT, lambda: peer.arrive(PUSH))
    assert yard.broker.slow_commands.count == 0
    stall_disk(yard, LIMIT + 1, lambda: peer.arrive(PUSH))
    assert only(yard).request_id == "0-2"


def test_what_comes_during_a_flush_has_waited_for_the_disk_too(yard: SimulatedServer) -> None:
    first, second = yard.connect(), yard.connect()
    yard.scheduler.slow = True
    first.arrive(PUSH)
    yard.run_pending()
    yard.clock.time += 50 * MILLISECOND
    second.arrive(PUSH)
    yard.run_pending()
    yard.clock.time += 60 * MILLISECOND
    yard.scheduler.finish_blocking()
    yard.run_pending()
    yard.clock.time += 60 * MILLISECOND
    yard.scheduler.finish_blocking()
    yard.run_pending()
    late, early = yard.broker.slow_commands.newest_first()
    assert parts(early) == (110 * MILLISECOND, 0, 0, 110 * MILLISECOND)
    assert parts(late) == (120 * MILLISECOND, 0, 0, 120 * MILLISECOND)


def test_a_quick_command_after_a_long_silence_is_quick(yard: SimulatedServer) -> None:
    peer = yard.connect()
    for _ in range(3):
        peer.arrive(PUSH + b"PING\n")
        yard.run_pending()
        yard.clock.time += 3600 * 1000 * MILLISECOND
    assert yard.broker.slow_commands.count == 0


@pytest.mark.parametrize(
    ("dialect", "take", "push"),
    [
        (
            "masenko",
            b'FETCH {"queues":["q"],"timeout":"40s"}\n',
            b'PUSH {"name":"a","queue":"q"}\n',
        ),
        ("workq", b"lease q 3600000\r\n", WORKQ_ADD),
        ("resp", b"BLPOP q 3600\r\n", b"RPUSH q x\r\n"),
        ("resp", b"JOB.TAKE 1 q WAIT 3600000\r\n", b"JOB.PUSH q x\r\n"),
    ],
)
def test_to_be_asked_to_wait_is_not_to_be_slow(
    yard: SimulatedServer, dialect: str, take: bytes, push: bytes
) -> None:
    worker = yard.connect(dialect)
    worker.arrive(take)
    yard.run_pending()
    yard.advance(20)
    assert worker.take() == b""
    pusher = yard.connect(dialect)
    pusher.arrive(push)
    yard.run_pending()
    assert worker.take() != b""
    worker.arrive(take)
    yard.advance(3601)  # for nothing, this time
    assert worker.take() != b""
    assert yard.broker.slow_commands.count == 0


def test_the_disk_counts_for_who_has_waited_for_a_job(yard: SimulatedServer) -> None:
    worker, pusher = yard.connect(), yard.connect()
    worker.arrive(b'FETCH {"queues":["q"],"timeout":"40s"}\n')
    yard.advance(5)
    stall_disk(yard, 200 * MILLISECOND, lambda: pusher.arrive(b'PUSH {"name":"a","queue":"q"}\n'))
    commands = {slow.command: slow for slow in yard.broker.slow_commands.newest_first()}
    assert set(commands) == {"FETCH", "PUSH"}
    assert parts(commands["FETCH"]) == (200 * MILLISECOND, 0, 0, 200 * MILLISECOND)


def test_a_loop_that_is_kept_busy(yard: SimulatedServer) -> None:
    peer = yard.connect("resp")
    tick(yard, 150 * MILLISECOND)
    peer.arrive(b"PING\r\nECHO a\r\n")
    yard.run_pending()
    slow = only(yard)
    assert (slow.protocol_name, slow.command, slow.command_count, slow.request_id) == (
        "resp",
        "echo",
        2,
        "0-1",
    )
    assert parts(slow) == (150 * MILLISECOND, 0, 150 * MILLISECOND, 0)


def test_work_and_disk_are_told_apart(yard: SimulatedServer) -> None:
    peer = yard.connect("workq")

    def push() -> None:
        before = yard.clock.now
        tick(yard, 150 * MILLISECOND)
        peer.arrive(WORKQ_ADD)
        yard.run_pending()
        yard.clock.now = before  # type: ignore[method-assign]

    stall_disk(yard, 1000 * MILLISECOND, push)
    slow = only(yard)
    assert slow.command == "add"
    assert slow.disk_us == 1000 * MILLISECOND
    assert slow.processing_us == slow.duration_us - slow.disk_us >= 150 * MILLISECOND


def test_the_line_counts(yard: SimulatedServer) -> None:
    """A round lasts 4 milliseconds, and who comes then has to wait until others had their turns."""
    peers = [yard.connect() for _ in range(60)]
    tick(yard, 5 * MILLISECOND)
    for peer in peers:
        peer.arrive(b"PING\n")
    yard.run_pending()
    found = yard.broker.slow_commands.newest_first()
    assert found
    for slow in found:
        assert slow.queued_us > LIMIT - 10 * MILLISECOND
        assert slow.duration_us == slow.queued_us + slow.processing_us


def test_reading_a_payload_back_counts(yard: SimulatedServer) -> None:
    yard = SimulatedServer(payload_memory=0)
    yard.broker.slow_commands.threshold_us = LIMIT
    pusher = yard.connect("resp")
    for _ in range(64):  # the little that is kept in memory all the same is less than that
        pusher.arrive(b"*3\r\n$5\r\nRPUSH\r\n$1\r\nq\r\n$65536\r\n%b\r\n" % (b"x" * 65536))
        yard.run_pending()
    worker = yard.connect("resp")
    stall_disk(yard, 300 * MILLISECOND, lambda: worker.arrive(b"LPOP q\r\n"))
    slow = only(yard)
    assert (slow.command, slow.request_id) == ("lpop", "0-1")
    assert slow.processing_us >= 300 * MILLISECOND


def test_a_command_in_portions_is_one(yard: SimulatedServer) -> None:
    """A chunk has 256 items, a turn 16 chunks, and none of the turns is slow."""
    peer = yard.connect("resp")
    for _ in range(6):
        peer.arrive(b"RPUSH q" + b" x" * 1000 + b"\r\n")
        yard.run_pending()
    tick(yard, 45 * MILLISECOND)
    peer.arrive(b"LPOP q 6000\r\nPING\r\n")
    yard.run_pending()
    found = [slow for slow in yard.broker.slow_commands.newest_first() if slow.command == "lpop"]
    assert [(slow.request_id, slow.duration_us > LIMIT) for slow in found] == [("0-7", True)]


def test_a_request_over_http(yard: SimulatedServer) -> None:
    peer = yard.connect("api")
    body = b'{"payload":"secret"}'
    head = (
        b"POST /api/v1/queues/mail/jobs HTTP/1.1\r\nhost: a\r\ncontent-type: application/json\r\n"
    )
    request = head + b"x-request-id: mine\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body)
    stall_disk(yard, 250 * MILLISECOND, lambda: peer.arrive(request))
    slow = only(yard)
    assert (slow.protocol_name, slow.command) == ("http", "POST /api/v1/queues/mail/jobs")
    assert (slow.queue, slow.request_id) == ("mail", "mine")
    assert parts(slow) == (250 * MILLISECOND, 0, 0, 250 * MILLISECOND)


def test_a_client_that_has_gone_is_not_told_of(yard: SimulatedServer) -> None:
    peer = yard.connect()

    def push() -> None:
        peer.arrive(PUSH)
        yard.run_pending()
        peer.close()

    stall_disk(yard, 250 * MILLISECOND, push)
    assert yard.broker.slow_commands.count == 0


def test_only_the_last_ones_are_kept(yard: SimulatedServer) -> None:
    peer = yard.connect()
    for _ in range(MAX_KEPT + 5):
        stall_disk(yard, 200 * MILLISECOND, lambda: peer.arrive(PUSH))
    slow = yard.broker.slow_commands
    assert (slow.count, slow.kept_count(), slow.count_by_protocol) == (
        MAX_KEPT + 5,
        MAX_KEPT,
        {"masenko": MAX_KEPT + 5},
    )
    assert [slow.newest_first()[0].id, slow.newest_first()[-1].id] == [MAX_KEPT + 4, 5]
    slow.clear()
    assert (slow.count, slow.newest_first()) == (MAX_KEPT + 5, [])


def test_nobody_looks_unless_told_to() -> None:
    yard = SimulatedServer(inline_sync=False)
    peer = yard.connect()
    stall_disk(yard, 3600 * 1000 * MILLISECOND, lambda: peer.arrive(PUSH))
    tick(yard, 1000 * MILLISECOND)
    peer.arrive(b"PING\n")
    yard.run_pending()
    assert yard.broker.slow_commands.count == 0


# Every command that can wait, and every way in which its wait may end

UID = b"6ba7b810-9dad-11d1-80b4-00c04fd430c8"
FETCH_LONG = b'FETCH {"queues":["q"],"timeout":"44s"}\n'
PUSH_LATER = b'PUSH {"name":"a","queue":"q","execute_at":"2023-11-14T22:14:00Z"}\n'


TAKES: list[tuple[str, bytes]] = [
    ("masenko", FETCH_LONG),
    ("workq", b"lease q 40000\r\n"),
    ("resp", b"BLPOP q 40\r\n"),
    ("resp", b"BRPOP p q 40\r\n"),
    ("resp", b"BLMOVE q other LEFT RIGHT 40\r\n"),
    ("resp", b"BRPOPLPUSH q other 40\r\n"),
    ("resp", b"JOB.TAKE 1 q WAIT 40000\r\n"),
    ("resp", b"JOB.TAKE 1 q COUNT 10 WAIT 40000\r\n"),
    ("resp", b"JOB.TAKE 1 q COUNT 10 WAIT 40000 BRIEF\r\n"),
    ("glovebox", b'{"type":"pop","queue":"q","timeout":40,"label":1}'),
    ("glovebox", b'{"type":"fetch","queue":"q","block_timeout":40,"work_timeout":9,"label":1}'),
]


class Speaker:
    """A client of any protocol, to which a message of Glovebox is a command as any other."""

    def __init__(self, yard: SimulatedServer, dialect: str) -> None:
        self._glovebox = yard.connect_glovebox() if dialect == "glovebox" else None
        self._peer = self._glovebox or yard.connect(dialect)
        self.take()

    def arrive(self, data: bytes) -> None:
        glovebox = self._glovebox
        if glovebox is None:
            self._peer.arrive(data)
        else:
            assert glovebox.connection is not None
            glovebox.connection.on_text(data)

    def take(self) -> str:
        """What has come; "" if nothing has."""
        glovebox = self._glovebox
        if glovebox is None:
            return self._peer.take().decode()
        found = [str(response) for response in glovebox.responses]
        glovebox.responses.clear()
        return "".join(found)


def say(yard: SimulatedServer, dialect: str, data: bytes) -> None:
    speaker = Speaker(yard, dialect)
    speaker.arrive(data)
    yard.run_pending()
    assert speaker.take()


def with_queue(yard: SimulatedServer) -> SimulatedServer:
    """Glovebox waits only at a queue that is there."""
    Speaker(yard, "glovebox").arrive(b'{"type":"create","queue":"q","label":1}')
    yard.run_pending()
    return yard


@pytest.mark.parametrize(("dialect", "take"), TAKES)
@pytest.mark.parametrize("how", ["in line", "after a delay", "for nothing", "until the stop"])
def test_no_wait_for_a_job_is_slow(
    yard: SimulatedServer, dialect: str, take: bytes, how: str
) -> None:
    with_queue(yard)
    if how == "after a delay":
        say(yard, "masenko", PUSH_LATER)
    worker = Speaker(yard, dialect)
    worker.arrive(take)
    yard.advance(20)
    assert worker.take() == ""
    if how == "in line":
        say(yard, "resp", b"RPUSH q a b c\r\n")
    elif how == "until the stop":
        for receiver in yard.broker.connections():
            receiver.shut_down()
        yard.run_pending()
    else:
        yard.advance(40)
    assert worker.take() != ""
    yard.advance(60)
    assert yard.broker.slow_commands.newest_first() == []


@pytest.mark.parametrize(("dialect", "take"), TAKES)
@pytest.mark.parametrize("reads", [50 * MILLISECOND, 200 * MILLISECOND])
def test_a_wait_is_not_in_the_time_in_which_a_payload_is_read_back(
    dialect: str, take: bytes, reads: int
) -> None:
    """The job that somebody waits for becomes ready when its payload is on disk only."""
    yard = with_queue(SimulatedServer(payload_memory=0))
    yard.broker.slow_commands.threshold_us = LIMIT
    later = PUSH_LATER[:-2] + b',"payload":"%b"}\n' % (b"x" * 65536)
    say(yard, "masenko", later * 3)
    for _ in range(64):  # the little that is kept in memory all the same is less than that
        say(yard, "resp", b"*3\r\n$5\r\nRPUSH\r\n$1\r\nz\r\n$65536\r\n%b\r\n" % (b"x" * 65536))
    worker = Speaker(yard, dialect)
    worker.arrive(take)
    yard.advance(20)
    assert worker.take() == ""
    yard.scheduler.slow = True
    yard.advance(25)
    assert yard.scheduler.blocking
    yard.clock.time += reads
    yard.scheduler.slow = False
    while yard.scheduler.blocking:
        yard.scheduler.finish_blocking()
        yard.run_pending()
    assert worker.take() != ""
    yard.advance(1)
    for slow in (
        yard.broker.slow_commands.newest_first()
    ):  # a commit of others that it had to wait for included
        assert slow.duration_us <= reads + 6 * 1000 * MILLISECOND


RESULTS: list[tuple[str, bytes]] = [
    ("workq", b"result %b 40000\r\n" % UID),
    ("resp", b"JOB.RESULT %b WAIT 40000\r\n" % UID),
]


@pytest.mark.parametrize(("dialect", "ask"), RESULTS)
@pytest.mark.parametrize("how", ["it ends", "for nothing", "it goes"])
def test_no_wait_for_the_end_of_a_job_is_slow(
    yard: SimulatedServer, dialect: str, ask: bytes, how: str
) -> None:
    say(yard, "workq", b"add %b q 60000 60000 1\r\nx\r\n" % UID)
    worker = Speaker(yard, "workq")
    worker.arrive(b"lease q 0\r\n")
    yard.run_pending()
    asker = Speaker(yard, dialect)
    asker.arrive(ask)
    yard.advance(20)
    assert asker.take() == ""
    if how == "it ends":
        worker.arrive(b"complete %b 1\r\ny\r\n" % UID)
        yard.run_pending()
    elif how == "it goes":
        worker.arrive(b"delete %b\r\n" % UID)
        yard.run_pending()
    else:
        yard.advance(30)
    assert asker.take() != ""
    assert yard.broker.slow_commands.newest_first() == []


@pytest.mark.parametrize("taken", [True, False])
def test_no_run_is_slow_for_the_time_that_its_job_takes(yard: SimulatedServer, taken: bool) -> None:
    caller = Speaker(yard, "workq")
    caller.arrive(b"run %b q 60000 40000 1\r\nx\r\n" % UID)
    yard.advance(20)
    if taken:
        worker = Speaker(yard, "workq")
        worker.arrive(b"lease q 0\r\n")
        yard.advance(20)
        worker.arrive(b"complete %b 1\r\ny\r\n" % UID)
        yard.run_pending()
    else:
        yard.advance(25)
    assert caller.take() != ""
    assert yard.broker.slow_commands.newest_first() == []


def test_what_follows_a_batch_that_waited_for_the_disk_has_its_own_time() -> None:
    yard = SimulatedServer(durability="write", inline_sync=False)
    yard.broker.slow_commands.threshold_us = LIMIT
    say(yard, "resp", b"RPUSH q a b c\r\n")
    peer = yard.connect("resp")
    peer.arrive(b"BATCH.LEASE me 1 10 TTR 60000 QUEUES q\r\n")
    yard.advance(2)  # a sync that nobody waits for comes once a second
    assert peer.take() != b""
    yard.broker.slow_commands.clear()
    yard.advance(60)
    for command in (b"PING\r\n", b"RPUSH q x\r\n", b"LPOP q\r\n"):
        peer.arrive(command)
        yard.run_pending()
        assert peer.take() != b""
        yard.advance(60)
    assert yard.broker.slow_commands.newest_first() == []


@pytest.mark.parametrize("path", ["/api/v1/events", "/api/v1/queues"])
def test_an_http_connection_that_stays_is_not_slow(yard: SimulatedServer, path: str) -> None:
    peer = yard.connect("api")
    for _ in range(2):
        peer.arrive(b"GET %b HTTP/1.1\r\nhost: a\r\n\r\n" % path.encode())
        yard.advance(50)
        assert peer.take() != b""
    assert yard.broker.slow_commands.newest_first() == []
