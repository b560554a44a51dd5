"""The end of a connection, from either side: what has arrived is answered."""

import pytest
from support.crash_state import on_disk
from support.simulated import SimulatedPeer, SimulatedServer
from support.wire import exchange, queue_counts

PUSH = b'PUSH {"name":"a"}\n'
TASK_1 = b'OK {"id":1,"queue":"default","name":"a"}\n'


@pytest.fixture(params=["inline", "thread"])
def yard(request: pytest.FixtureRequest) -> SimulatedServer:
    return SimulatedServer(inline_sync=request.param == "inline")


def end(yard: SimulatedServer, peer: SimulatedPeer) -> None:
    """The client closes its half of the connection, and goes on reading."""
    assert peer.receiver is not None
    peer.receiver.on_eof()
    yard.run_pending()


def test_a_stop_answers_what_has_arrived(yard: SimulatedServer) -> None:
    peers = [yard.connect() for _ in range(3)]
    for peer in peers:
        peer.arrive(PUSH + b"PING\n")
    yard.stop()
    for number, peer in enumerate(peers, 1):
        peer.expect(b'OK {"id":%d}\nPONG {}\n' % number)
        peer.expect_closed()
    assert on_disk(yard.disk).next_id == 4


def test_a_stop_ends_waiting_fetches_and_answers_what_is_behind_them(yard: SimulatedServer) -> None:
    peer = yard.connect()
    peer.send(b"FETCH\n" + PUSH + b'FETCH {"queues":["none"]}\nPING\n')
    peer.expect_nothing()
    yard.stop()
    peer.expect(b'EMPTY {}\nOK {"id":1}\nEMPTY {}\nPONG {}\n')
    peer.expect_closed()


def test_a_stop_answers_what_had_to_wait_for_room() -> None:
    yard = SimulatedServer(inline_sync=False, output_limit=100)
    yard.scheduler.slow = True
    peer = yard.connect()
    peer.send(PUSH * 100)
    yard.scheduler.slow = False
    yard.scheduler.finish_blocking()
    yard.stop()
    peer.expect(b"".join(b'OK {"id":%d}\n' % id for id in range(1, 101)))
    peer.expect_closed()


def test_a_stop_waits_for_a_payload_that_is_being_read() -> None:
    yard = SimulatedServer(payload_memory=0)
    peer = yard.connect()
    for number in range(1, 8):
        push = b'PUSH {"name":"a","payload":"%b"}\n' % (b"x" * 500_000)
        exchange(peer, push, b'OK {"id":%d}\n' % number)
    yard.scheduler.slow = True
    peer.send(b"FETCH\nPING\n")
    peer.expect_nothing()
    for receiver in yard.broker.connections():
        receiver.shut_down()
    yard.scheduler.finish_blocking()
    yard.run_pending()
    assert peer.read_line().startswith(b'OK {"id":1,')
    peer.expect(b"PONG {}\n")
    peer.expect_closed()


def test_a_stop_takes_nothing_new(yard: SimulatedServer) -> None:
    peer = yard.connect()
    peer.arrive(b"FETCH\n")
    for receiver in yard.broker.connections():
        receiver.shut_down()
    peer.arrive(PUSH)
    yard.run_pending()
    peer.expect(b"EMPTY {}\n")
    peer.expect_closed()
    assert yard.engine.state.next_id == 1


def test_a_stop_counts_no_failure_for_what_is_held(yard: SimulatedServer) -> None:
    peer = yard.connect()
    exchange(peer, PUSH, b'OK {"id":1}\n')
    exchange(peer, b"FETCH\n", TASK_1)
    yard.restart()
    exchange(yard.connect(), b"FETCH\n", TASK_1)


def test_a_client_that_sends_no_more_gets_its_replies(yard: SimulatedServer) -> None:
    peer = yard.connect()
    peer.arrive(PUSH + b'PUSH {"name":"half"')
    end(yard, peer)
    peer.expect(b'OK {"id":1}\n')
    peer.expect_closed()
    assert queue_counts(yard.connect()) == {"default": (1, 0, 0)}


def test_a_client_that_sends_no_more_gets_its_replies_when_they_are_durable() -> None:
    yard = SimulatedServer(inline_sync=False)
    yard.scheduler.slow = True
    peer = yard.connect()
    peer.send(PUSH)
    end(yard, peer)
    peer.expect_nothing()
    assert not peer.closed
    yard.scheduler.finish_blocking()
    yard.run_pending()
    peer.expect(b'OK {"id":1}\n')
    peer.expect_closed()


def test_a_client_that_sends_no_more_fails_what_it_holds(yard: SimulatedServer) -> None:
    peer, other = yard.connect(), yard.connect()
    exchange(peer, PUSH, b'OK {"id":1}\n')
    exchange(peer, b"FETCH\n", TASK_1)
    end(yard, peer)
    peer.expect_closed()
    assert queue_counts(other) == {"default": (0, 1, 0)}


def test_a_client_that_sends_no_more_waits_for_no_task(yard: SimulatedServer) -> None:
    """It may be gone altogether; a task it would get now would only be failed by that."""
    peer, other = yard.connect(), yard.connect()
    peer.send(b"FETCH\nPING\n")
    end(yard, peer)
    peer.expect(b"EMPTY {}\nPONG {}\n")
    peer.expect_closed()
    exchange(other, PUSH, b'OK {"id":1}\n')
    assert queue_counts(other) == {"default": (1, 0, 0)}


def test_a_client_that_is_closed_but_does_not_go_is_cut_off(yard: SimulatedServer) -> None:
    """One that does not read its last replies would be there for ever."""
    aborted: list[bool] = []
    yard.masenko.connect(Stubborn(aborted), "stubborn").feed(b"QUIT\n")
    yard.run_pending()
    assert not aborted
    yard.advance(46)
    assert aborted


@pytest.mark.parametrize("silence", [46, 92])
def test_a_silent_client_that_does_not_go_is_cut_off(silence: int) -> None:
    yard = SimulatedServer()
    aborted: list[bool] = []
    yard.masenko.connect(Stubborn(aborted), "stubborn")
    yard.advance(silence)
    assert bool(aborted) == (silence > 90)


class Stubborn:
    """A transport that cannot get rid of its last bytes."""

    def __init__(self, aborted: list[bool]) -> None:
        self._aborted = aborted

    def write(self, data: bytes) -> None:
        pass

    def pause_reading(self) -> None:
        pass

    def resume_reading(self) -> None:
        pass

    def close(self) -> None:
        pass

    def certificate_name(self) -> str:
        return ""

    def close_after_draining(self) -> None:
        pass

    def abort(self) -> None:
        self._aborted.append(True)
