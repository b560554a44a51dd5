"""MULTI and EXEC: what clients send around a pipeline by default."""

import pytest
from support.simulated import SimulatedPeer, SimulatedServer


@pytest.fixture
def yard() -> SimulatedServer:
    return SimulatedServer()


def ask(peer: SimulatedPeer, *lines: str) -> bytes:
    peer.send("".join(f"{line}\r\n" for line in lines).encode())
    return bytes(peer.take())


def test_commands_are_put_off_and_answered_in_one_array(yard: SimulatedServer) -> None:
    peer = yard.connect("resp")
    assert ask(peer, "MULTI") == b"+OK\r\n"
    assert ask(peer, "RPUSH q a b", "LPOP q", "GET q") == b"+QUEUED\r\n" * 3
    assert ask(yard.connect("resp"), "LLEN q") == b":0\r\n"
    wrong_type = b"-WRONGTYPE Operation against a key holding the wrong kind of value\r\n"
    assert ask(peer, "EXEC") == b"*3\r\n:2\r\n$1\r\na\r\n" + wrong_type
    assert ask(peer, "LLEN q") == b":1\r\n"


def test_nothing_is_done_after_discard(yard: SimulatedServer) -> None:
    peer = yard.connect("resp")
    assert ask(peer, "MULTI", "RPUSH q a", "DISCARD") == b"+OK\r\n+QUEUED\r\n+OK\r\n"
    assert ask(peer, "LLEN q", "EXEC") == b":0\r\n-ERR EXEC without MULTI\r\n"
    assert ask(peer, "DISCARD") == b"-ERR DISCARD without MULTI\r\n"


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        ("LPOP", b"-ERR wrong number of arguments for 'lpop' command\r\n"),
        ("NOPE", b"-ERR unknown command 'NOPE', with args beginning with: \r\n"),
    ],
)
def test_a_command_that_cannot_be_ends_the_transaction(
    yard: SimulatedServer, wrong: str, text: bytes
) -> None:
    peer = yard.connect("resp")
    assert ask(peer, "MULTI", "RPUSH q a", wrong) == b"+OK\r\n+QUEUED\r\n" + text
    aborted = b"-EXECABORT Transaction discarded because of previous errors.\r\n"
    assert ask(peer, "EXEC", "LLEN q") == aborted + b":0\r\n"


def test_transactions_are_not_nested(yard: SimulatedServer) -> None:
    peer = yard.connect("resp")
    nested = b"-ERR MULTI calls can not be nested\r\n"
    assert ask(peer, "MULTI", "MULTI", "EXEC") == b"+OK\r\n" + nested + b"*0\r\n"


def test_nothing_waits_in_a_transaction(yard: SimulatedServer) -> None:
    peer = yard.connect("resp")
    replies = ask(peer, "MULTI", "BLPOP q 0", "RPUSH q a", "BLPOP q 0", "BLMOVE q r LEFT LEFT 0")
    assert replies == b"+OK\r\n" + b"+QUEUED\r\n" * 4
    taken = b"*2\r\n$1\r\nq\r\n$1\r\na\r\n"
    assert ask(peer, "EXEC") == b"*4\r\n*-1\r\n:1\r\n" + taken + b"*-1\r\n"
    assert ask(peer, "BLPOP q 0") == b""  # it waits again


def test_work_in_portions_holds_up_the_rest_of_the_transaction(yard: SimulatedServer) -> None:
    peer = yard.connect("resp")
    for _ in range(3):
        ask(peer, "RPUSH q " + " ".join(["x"] * 500))
    ask(peer, "MULTI", "LREM q 0 x", "LLEN q", "PING")
    assert ask(peer, "EXEC", "LLEN q") == b"*3\r\n:1500\r\n:0\r\n+PONG\r\n:0\r\n"


def test_quit_and_reset_leave_a_transaction(yard: SimulatedServer) -> None:
    peer = yard.connect("resp")
    assert ask(peer, "MULTI", "RPUSH q a", "RESET") == b"+OK\r\n+QUEUED\r\n+RESET\r\n"
    assert ask(peer, "LLEN q", "MULTI", "RPUSH q a", "QUIT").endswith(b"+QUEUED\r\n+OK\r\n")
    assert ask(yard.connect("resp"), "LLEN q") == b":0\r\n"


def test_a_transaction_has_a_size_that_it_may_have(yard: SimulatedServer) -> None:
    peer = yard.connect("resp")
    ask(peer, "MULTI", *["PING"] * 10_000)
    too_much = b"-ERR too much in one transaction: at most 10000 commands\r\n"
    assert ask(peer, "PING") == too_much
    aborted = (
        b"-EXECABORT Transaction discarded because of: "
        b"too much in one transaction: at most 10000 commands\r\n"
    )
    assert ask(peer, "PING", "EXEC", "PING") == too_much + aborted + b"+PONG\r\n"
    assert ask(peer, "MULTI", *["PING"] * 10_000, "EXEC").endswith(
        b"*10000\r\n" + b"+PONG\r\n" * 10_000
    )


def test_what_a_transaction_may_have_can_be_configured() -> None:
    peer = SimulatedServer(batch_limit=2).connect("resp")
    assert ask(peer, "MULTI", "PING", "PING", "EXEC").endswith(b"*2\r\n+PONG\r\n+PONG\r\n")
    assert b": at most 2 commands\r\n-EXECABORT " in ask(peer, "MULTI", *["PING"] * 3, "EXEC")


def test_what_waits_for_exec_is_counted_as_held(yard: SimulatedServer) -> None:
    peer = yard.connect("resp")
    receiver = peer.receiver
    assert receiver is not None
    ask(peer, "MULTI", "RPUSH q " + "x" * 5000)
    assert receiver.buffered_bytes() >= 5000
    ask(peer, "EXEC")
    assert receiver.buffered_bytes() == 0
    ask(peer, "MULTI", "RPUSH q " + "x" * 5000, "DISCARD")
    assert receiver.buffered_bytes() == 0
    ask(peer, "MULTI", "RPUSH q " + "x" * 5000, "RPUSH")
    assert receiver.buffered_bytes() == 0, "what will not be carried out is not kept"
    assert ask(peer, "RPUSH q " + "x" * 5000) == b"+QUEUED\r\n"
    assert receiver.buffered_bytes() == 0
    assert ask(peer, "EXEC").startswith(b"-EXECABORT")
