"""Workq lines and payloads: endings, splits, pipelining, sizes, and how the stream keeps step."""

import pytest
from support.simulated import SimulatedPeer, SimulatedServer
from support.wire import SimulatedWire, Wire, exchange
from support.workq import (
    INVALID_ARGS,
    LINE_ENDING,
    NOT_FOUND,
    OK,
    PAYLOAD_SIZE,
    TIMEOUT,
    UNKNOWN,
    add,
    client_error,
    complete,
    delete,
    expect_in_step,
    fail,
    is_there,
    job,
    lease,
    leased,
    new_id,
    new_name,
    read_reply,
    result,
    rfc3339,
    run,
    schedule,
    server,
    succeeded,
)

TOO_LONG = client_error("Line too long")


def test_the_server_sends_no_greeting(shared_wire: Wire) -> None:
    peer = shared_wire.connect("workq")
    peer.expect_nothing()
    expect_in_step(peer)


def test_the_commands_of_the_protocol_text_are_answered_as_it_shows(wire: Wire) -> None:
    peer = wire.connect("workq")
    exchange(
        peer,
        b"add 6ba7b810-9dad-11d1-80b4-00c04fd430c4 ping 1000 60000 4 "
        b"-priority=10 -max-attempts=3 -max-fails=1\r\npong\r\n",
        b"+OK\r\n",
    )
    exchange(
        peer,
        b"lease ping1 ping2 ping 60000\r\n",
        b"+OK 1\r\n6ba7b810-9dad-11d1-80b4-00c04fd430c4 ping 4\r\npong\r\n",
    )
    exchange(peer, b"complete 6ba7b810-9dad-11d1-80b4-00c04fd430c4 4\r\npong\r\n", b"+OK\r\n")
    exchange(
        peer,
        b"result 6ba7b810-9dad-11d1-80b4-00c04fd430c4 60000\r\n",
        b"+OK 1\r\n6ba7b810-9dad-11d1-80b4-00c04fd430c4 1 4\r\npong\r\n",
    )
    exchange(
        peer, b"inspect queue ping\r\n", b"+OK 1\r\nping 2\r\nready-len 0\r\nscheduled-len 0\r\n"
    )
    exchange(peer, b"delete 6ba7b810-9dad-11d1-80b4-00c04fd430c4\r\n", b"+OK\r\n")
    exchange(peer, b"result 6ba7b810-9dad-11d1-80b4-00c04fd430c4 60000\r\n", b"-NOT-FOUND\r\n")
    exchange(peer, b"lease ping 0\r\n", b"-TIMEOUT\r\n")


@pytest.mark.parametrize(
    "line",
    [b"", b" ", b"bogus", b"ADD", b"Add x", b"LEASE ping 0", b"Inspect server", b"adds", b"leas"],
)
def test_an_unknown_word_an_empty_line_or_another_case_is_an_unknown_command(
    shared_wire: Wire, line: bytes
) -> None:
    peer = shared_wire.connect("workq")
    exchange(peer, line + b"\r\n", UNKNOWN)
    expect_in_step(peer)


@pytest.mark.parametrize("line", [b"inspect\tserver", b"inspect\rserver", b"inspect\x00server"])
def test_only_spaces_part_words(shared_wire: Wire, line: bytes) -> None:
    peer = shared_wire.connect("workq")
    exchange(peer, line + b"\r\n", UNKNOWN)


def test_runs_of_spaces_count_as_one(shared_wire: Wire) -> None:
    peer, id, name = shared_wire.connect("workq"), new_id(), new_name()
    peer.send(
        b"add   %b  %b     1000 60000   4    -priority=10  -max-fails=2\r\nping\r\n" % (id, name)
    )
    peer.expect(OK)
    assert job(peer, id)["priority"] == b"10"
    exchange(peer, b"lease    none     %b  0\r\n" % name, leased(id, name))


@pytest.mark.parametrize(
    "line",
    [
        b"add",
        b"add %b ping 1000 60000",
        b"run",
        b"run %b ping 1000 60000",
        b"schedule",
        b"schedule %b ping 1000 60000 2030-01-01T00:00:00Z",
        b"complete",
        b"complete %b",
        b"fail",
        b"fail %b",
    ],
)
def test_a_command_without_its_size_is_refused_and_nothing_is_taken_for_its_payload(
    shared_wire: Wire, line: bytes
) -> None:
    peer = shared_wire.connect("workq")
    exchange(peer, line.replace(b"%b", new_id()) + b"\r\n", INVALID_ARGS)
    expect_in_step(peer)


@pytest.mark.parametrize(
    "line",
    [
        b"result",
        b"result %b",
        b"result %b 0 0",
        b"result %b 0 -priority=1",
        b"lease",
        b"lease 0",
        b"lease ping 0 -priority=1",
        b"delete",
        b"delete %b %b",
        b"delete %b -priority=1",
        b"inspect job",
        b"inspect job %b %b",
        b"inspect job %b -a=b",
        b"inspect jobs ping",
        b"inspect jobs ping 0",
        b"inspect jobs ping 0 10 10",
        b"inspect scheduled-jobs ping 0",
        b"inspect scheduled-jobs ping 0 10 10",
        b"inspect queue",
        b"inspect queue ping ping",
        b"inspect queues",
        b"inspect queues 0",
        b"inspect queues 0 10 10",
        b"inspect server server",
        b"inspect server -a=b",
    ],
)
def test_a_wrong_number_of_arguments_is_refused(shared_wire: Wire, line: bytes) -> None:
    peer = shared_wire.connect("workq")
    exchange(peer, line.replace(b"%b", new_id()) + b"\r\n", INVALID_ARGS)
    expect_in_step(peer)


@pytest.mark.parametrize("command", [complete(new_id()), fail(new_id())])
def test_complete_and_fail_take_no_flags(shared_wire: Wire, command: bytes) -> None:
    peer = shared_wire.connect("workq")
    exchange(peer, command.replace(b"\r\n", b" -priority=1\r\n", 1), INVALID_ARGS)
    expect_in_step(peer)


@pytest.mark.parametrize("at", range(1, 7))
def test_flags_may_stand_anywhere_behind_the_command(shared_wire: Wire, at: int) -> None:
    peer, id, name = shared_wire.connect("workq"), new_id(), new_name()
    words = [b"add", id, name, b"1000", b"60000", b"4"]
    words[at:at] = [b"-priority=7", b"-max-fails=2"]
    exchange(peer, b" ".join(words) + b"\r\nping\r\n", OK)
    told = job(peer, id)
    assert (told["priority"], told["max-fails"], told["payload-size"]) == (b"7", b"2", b"4")
    expect_in_step(peer)


@pytest.mark.parametrize(
    "line", [b"run -priority=7 %b %b 1000 0 4", b"run %b -priority=7 %b 1000 0 4"]
)
def test_a_run_takes_its_flag_first_as_well(shared_wire: Wire, line: bytes) -> None:
    peer = shared_wire.connect("workq")
    exchange(peer, line % (new_id(), new_name()) + b"\r\nping\r\n", TIMEOUT)
    expect_in_step(peer)


def test_a_schedule_takes_its_flags_first_as_well(shared_wire: Wire) -> None:
    peer, id = shared_wire.connect("workq"), new_id()
    line = b"schedule -max-attempts=3 %b %b 1000 60000 2100-01-01T00:00:00Z 4 -priority=7"
    exchange(peer, line % (id, new_name()) + b"\r\nping\r\n", OK)
    assert job(peer, id)["max-attempts"] == b"3"
    assert job(peer, id)["priority"] == b"7"


@pytest.mark.parametrize(
    ("line", "why"),
    [
        (b"add -priority=1 -priority=2 %b ping 1000 60000 4", "Invalid command flags"),
        (b"add -other=1 %b ping 1000 60000 4", "Invalid command flags"),
        (b"add -priority= %b ping 1000 60000 4", "Invalid command flags"),
        (b"run -max-fails=1 %b ping 1000 60000 4", "Invalid command flags"),
        (b"add -priority=1 -a=1 -b=1 -c=1 %b ping 1000 60000 4", "Invalid command args"),
        (b"complete -priority=1 %b 4", "Invalid command args"),
        (b"fail -priority=1 %b 4", "Invalid command args"),
        (b"add %b ping 1000 -1 4", "Invalid TTL"),
    ],
)
def test_what_is_wrong_with_flags_that_come_first_keeps_the_stream_in_step(
    shared_wire: Wire, line: bytes, why: str
) -> None:
    peer = shared_wire.connect("workq")
    exchange(peer, line % new_id() + b"\r\nping\r\n", client_error(why))
    expect_in_step(peer)


@pytest.mark.parametrize(
    "line",
    [
        *(b"lease -priority=1 ping 0", b"result -priority=1 %b 0", b"delete -priority=1 %b"),
        *(b"inspect -a=b server", b"add -priority=1 %b ping 1000 60000", b"add -priority=1"),
    ],
)
def test_flags_that_come_first_leave_nothing_to_be_waited_for(
    shared_wire: Wire, line: bytes
) -> None:
    peer = shared_wire.connect("workq")
    peer.send(line.replace(b"%b", new_id()) + b"\r\n")
    assert read_reply(peer).startswith(b"-CLIENT-ERROR ")
    expect_in_step(peer)


# Line endings


@pytest.mark.parametrize("line", [b"\n", b"inspect server\n", b"bogus\n", b" \n", b"a\rb\n"])
def test_a_line_that_ends_with_a_bare_line_feed_is_refused(shared_wire: Wire, line: bytes) -> None:
    peer = shared_wire.connect("workq")
    exchange(peer, line, LINE_ENDING)
    expect_in_step(peer)


def test_a_line_that_ends_with_a_bare_line_feed_is_not_carried_out(shared_wire: Wire) -> None:
    peer, id, name = shared_wire.connect("workq"), new_id(), new_name()
    peer.send(b"add %b %b 1000 60000 4\n" % (id, name))
    peer.expect(LINE_ENDING)
    exchange(peer, b"ping\r\n", UNKNOWN)
    exchange(peer, b"inspect job %b\r\n" % id, NOT_FOUND)


def test_a_carriage_return_waits_for_its_line_feed(shared_wire: Wire) -> None:
    peer = shared_wire.connect("workq")
    peer.send(b"inspect server\r")
    peer.expect_nothing()
    peer.send(b"\n")
    assert read_reply(peer) == b"+OK 1"


@pytest.mark.parametrize("size", [65_600, 70_000, 2 << 20])
@pytest.mark.parametrize("ending", [b"", b"\r\n", b"\n", b"\r\nbogus\r\n"])
def test_a_line_that_is_too_long_is_refused_and_the_connection_closed(
    yard: SimulatedWire, size: int, ending: bytes
) -> None:
    peer = yard.connect("workq")
    peer.send(b"bogus\r\n" + b"lease " + b"x" * size + ending)
    peer.expect(UNKNOWN + TOO_LONG)
    peer.expect_closed()
    expect_in_step(yard.connect("workq"))


def test_a_line_that_never_ends_is_refused_while_it_comes(yard: SimulatedWire) -> None:
    peer = yard.connect("workq")
    peer.send(b"x" * 60_000)
    peer.expect_nothing()
    peer.send(b"x" * 6_000)
    peer.expect(TOO_LONG)
    peer.expect_closed()


def test_a_line_may_be_of_64_kib(yard: SimulatedWire) -> None:
    peer, id = yard.connect("workq"), new_id()
    names = [b"%0255d" % number for number in range(255)]
    exchange(peer, add(id, names[-1]), OK)
    line = b"lease " + b" ".join(names)
    exchange(peer, line + b" " * (65_536 - 3 - len(line)) + b"0\r\n", leased(id, names[-1]))
    exchange(peer, b"lease" + b" " * (65_536 - 6 - 2) + b"a" + b"\r\n", INVALID_ARGS)


# Splits, pipelines and writes


def conversation() -> tuple[bytes, bytes]:
    """Commands of every form, and what they are answered with."""
    one, two, three = new_id(), new_id(), new_id()
    exchanges = [
        (add(one, payload=b"a\r\nb", flags=b"-priority=5"), OK),
        (b"bogus\r\n", UNKNOWN),
        (b"bare\n", LINE_ENDING),
        (add(two, b"bad/name", payload=b"x\r\ny"), client_error("Invalid Name")),
        (b"add %b ping 1000 60000 2\r\nlonger\r\n" % two, PAYLOAD_SIZE),
        (b"complete %b none\r\n" % one, PAYLOAD_SIZE),
        (lease(b"ping"), leased(one, payload=b"a\r\nb")),
        (schedule(three, time=b"2100-01-01T00:00:00Z", payload=b""), OK),
        (run(two, b"none", wait=0), TIMEOUT),
        (complete(one, b"\r\n"), OK),
        (result(one), succeeded(one, b"\r\n")),
        (fail(three, b""), OK),
        (delete(three), OK),
        (b"inspect queue ping\r\n", b"+OK 1\r\nping 2\r\nready-len 0\r\nscheduled-len 0\r\n"),
        (b"\r\n", UNKNOWN),
    ]
    return b"".join(sent for sent, _ in exchanges), b"".join(got for _, got in exchanges)


def test_bytes_may_be_split_at_any_place() -> None:
    sent, received = conversation()
    for cut in range(1, len(sent)):
        peer = SimulatedServer().connect("workq")
        peer.send(sent[:cut])
        peer.send(sent[cut:])
        peer.expect(received)
        peer.expect_nothing()


def test_bytes_may_come_one_by_one(wire: Wire) -> None:
    sent, received = conversation()
    peer = wire.connect("workq")
    for at in range(len(sent)):
        peer.send(sent[at : at + 1])
    peer.expect(received)
    peer.expect_nothing()


def test_pipelined_commands_are_answered_in_order(wire: Wire) -> None:
    sent, received = conversation()
    peer = wire.connect("workq")
    exchange(peer, sent, received)
    peer.expect_nothing()


def test_a_hundred_whole_cycles_in_one_write_are_answered_in_order(shared_wire: Wire) -> None:
    peer, name = shared_wire.connect("workq"), new_name()
    ids = [new_id() for _ in range(100)]
    peer.send(b"".join(add(id, name) + lease(name) + complete(id) + result(id) for id in ids))
    peer.expect(b"".join(OK + leased(id, name) + OK + succeeded(id) for id in ids))


def test_a_command_that_waits_delays_what_is_behind_it(yard: SimulatedWire) -> None:
    peer, id = yard.connect("workq"), new_id()
    peer.send(lease(b"ping", wait=1000) + b"bogus\r\n" + add(id) + lease(b"ping", wait=1000))
    yard.advance(0.999)
    peer.expect_nothing()
    yard.advance(0.001)
    peer.expect(TIMEOUT + UNKNOWN + OK + leased(id))


def test_much_behind_a_command_that_waits_is_answered_after_it(yard: SimulatedWire) -> None:
    peer = yard.connect("workq")
    peer.send(lease(b"ping", wait=1000))
    for _ in range(100):
        peer.send(add(b"none", payload=b"x" * 100) * 10)
    peer.expect_nothing()
    yard.advance(1)
    peer.expect(TIMEOUT + client_error("Invalid ID") * 1000)
    peer.expect_nothing()


def test_what_a_client_sent_before_its_last_word_is_answered_before_the_close() -> None:
    yard = SimulatedServer()
    peer, id = yard.connect("workq"), new_id()
    peer.arrive(add(id) + complete(id) + b"bogus\r\n" + b"half")
    assert peer.receiver is not None
    peer.receiver.on_eof()
    yard.run_pending()
    peer.expect(OK + OK + UNKNOWN)
    peer.expect_closed()


@pytest.mark.parametrize("command", [lease(b"ping", wait=60_000), run(new_id(), wait=60_000)])
def test_for_a_client_that_sends_nothing_more_nothing_waits(command: bytes) -> None:
    yard = SimulatedServer()
    peer = yard.connect("workq")
    peer.send(command + b"bogus\r\n")
    peer.expect_nothing()
    assert peer.receiver is not None
    peer.receiver.on_eof()
    yard.run_pending()
    peer.expect(TIMEOUT + UNKNOWN)
    peer.expect_closed()


def test_connections_do_not_share_halves(shared_wire: Wire) -> None:
    first, second = shared_wire.connect("workq"), shared_wire.connect("workq")
    one, name = new_id(), new_name()
    first.send(add(one, name, b"12345678")[:-6])
    second.send(b"bog")
    first.send(b"5678\r\n")
    second.send(b"us\r\n")
    first.expect(OK)
    second.expect(UNKNOWN)
    exchange(second, lease(name), leased(one, name, b"12345678"))


def test_half_a_command_does_nothing_when_its_client_goes_away(shared_wire: Wire) -> None:
    peer, other, id = shared_wire.connect("workq"), shared_wire.connect("workq"), new_id()
    peer.send(add(id)[:-1])
    peer.expect_nothing()
    peer.close()
    assert not is_there(other, id)


def writes_of(peer: SimulatedPeer) -> list[bytes]:
    written: list[bytes] = []
    peer.witness = written.append
    return written


def test_each_reply_is_written_in_one_piece() -> None:
    yard = SimulatedServer()
    peer, id, other = yard.connect("workq"), new_id(), new_id()
    written = writes_of(peer)
    large = b"x" * 300_000
    soon = rfc3339(yard.now() + 1000)
    for sent, received in [
        (add(id, payload=large), OK),
        (schedule(other, time=soon), OK),
        (lease(b"ping"), leased(id, payload=large)),
        (complete(id, large), OK),
        (result(id), succeeded(id, large)),
        (run(new_id(), b"none", wait=0), TIMEOUT),
        (delete(other), OK),
        (delete(other), NOT_FOUND),
        (b"bogus\r\n", UNKNOWN),
    ]:
        written.clear()
        peer.send(sent)
        assert written == [received]


def test_each_reply_that_was_waited_for_is_written_in_one_piece() -> None:
    yard = SimulatedServer()
    worker, caller, reader, client = (yard.connect("workq") for _ in range(4))
    id = new_id()
    worker.send(lease(b"ping", wait=1000))
    at_worker = writes_of(worker)
    caller.send(run(id, payload=b"x" * 300_000))
    assert at_worker == [leased(id, payload=b"x" * 300_000)]
    reader.send(result(id, wait=1000))
    at_caller, at_reader = writes_of(caller), writes_of(reader)
    exchange(client, complete(id, b"y" * 300_000), OK)
    assert at_caller == at_reader == [succeeded(id, b"y" * 300_000)]


@pytest.mark.parametrize(
    "what",
    [
        b"job %b",
        b"jobs ping 0 100",
        b"scheduled-jobs ping 0 100",
        b"queue ping",
        b"queues 0 9",
        b"server",
    ],
)
def test_each_reply_to_an_inspect_is_written_in_one_piece(what: bytes) -> None:
    yard = SimulatedServer()
    peer, id = yard.connect("workq"), new_id()
    exchange(peer, add(id, payload=b"x" * 100_000), OK)
    exchange(peer, add(new_id(), payload=b"\r\n"), OK)
    exchange(peer, schedule(new_id(), time=b"2100-01-01T00:00:00Z"), OK)
    written = writes_of(peer)
    peer.send(b"inspect " + what.replace(b"%b", id) + b"\r\n")
    assert len(written) == 1
    assert read_reply(peer).startswith(b"+OK ")
    peer.expect_nothing()


def test_the_server_goes_on_counting_one_client_after_its_errors(yard: SimulatedWire) -> None:
    peer = yard.connect("workq")
    peer.send(b"bogus\r\nbare\nadd %b ping 1000 60000 1\r\nlong\r\n" % new_id())
    peer.expect(UNKNOWN + LINE_ENDING + PAYLOAD_SIZE)
    assert server(peer)["active-clients"] == b"1"
