"""The RESP listener beside a real Redis: the same requests, the same bytes in reply.

Where the two differ on purpose stands in `DIFFERENCES`, with the reason. Everything else is the
same byte for byte, errors too.
"""

import contextlib
import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.effort import effort
from support.naming import BAD_QUEUE
from support.redis_server import RedisServer
from support.resp import (
    RespClient,
    RespSide,
    SimulatedSide,
    SocketClient,
    SocketSide,
    ask,
    value,
)
from support.resp_draws import (
    BLOCKING,
    FORMS,
    KEYS,
    STRAY_KEYS,
    Request,
    Soon,
    requests_of,
    sequences,
)
from support.simulated import SimulatedServer
from support.sockets import SocketWire

WRONG_TYPE = b"-WRONGTYPE Operation against a key holding the wrong kind of value\r\n"
NO_EXPIRY = b"-ERR a list does not expire\r\n"
SETTING = [b"SET", b"SETEX", b"PSETEX", b"SETNX"]
MAKING_LISTS = [b"RPUSH", b"LPUSH", b"LMOVE", b"BLMOVE", b"RPOPLPUSH", b"BRPOPLPUSH"]
EXPIRING = [b"EXPIRE", b"PEXPIRE", b"EXPIREAT", b"PEXPIREAT"]


@dataclass
class Step:
    """One request and what both servers made of it."""

    words: tuple[bytes, ...]
    redis: bytes
    yard: bytes
    elapsed: float  # seconds that the clocks may be apart by now
    list_before: bytes | None  # the list under its key as Redis dumps it
    changed: bool = False  # by Redis
    was_list: bool = False  # the key may have been one before, and is nothing now


@dataclass(frozen=True)
class Difference:
    reason: str
    names: list[bytes]
    applies: Callable[[Step], bool]
    holds: Callable[[Step], bool]


def is_no_error(step: Step) -> bool:
    return not step.redis.startswith(b"-")


def would_destroy_a_list(step: Step) -> bool:
    return step.list_before is not None and step.changed


def would_take_the_name_of_a_queue(step: Step) -> bool:
    return step.was_list and step.yard in (WRONG_TYPE, b":0\r\n", b"$-1\r\n", b"_\r\n")


def would_expire_a_list(step: Step) -> bool:
    return step.list_before is not None and step.redis.startswith(b":")


def is_about(unit: float) -> Callable[[Step], bool]:
    """Both are a time that is left, and the passing of time explains by how much they differ."""

    def holds(step: Step) -> bool:
        redis, yard = int(value(step.redis)), int(value(step.yard))
        return redis > 0 and yard > 0 and abs(redis - yard) <= step.elapsed * unit + 1

    return holds


def is_time_left(step: Step) -> bool:
    return is_no_error(step) and int(value(step.redis)) >= 0


def same_greeting(step: Step) -> bool:
    """All that clients look at, but not who it is."""
    own = (b"version", b"id")
    told = [dict(zip(pairs[::2], pairs[1::2], strict=True)) for pairs in both(step)]
    return (
        step.redis[:1] == step.yard[:1]
        and list(told[0]) == list(told[1])
        and all(told[0][name] == told[1][name] for name in told[0] if name not in own)
        and all(type(told[0][name]) is type(told[1][name]) for name in own)
    )


def both(step: Step) -> tuple[Any, Any]:
    return value(step.redis), value(step.yard)


def asks_for(*names: bytes) -> Callable[[Step], bool]:
    def applies(step: Step) -> bool:
        return is_no_error(step) and step.words[1].upper() in names

    return applies


def same_client(step: Step) -> bool:
    redis, yard = (dict(part.partition("=")[::2] for part in text) for text in described(step))
    return all(redis[field] == yard[field] for field in ("name", "db"))


def described(step: Step) -> list[list[str]]:
    return [told.decode().rstrip("\n").split(" ") for told in both(step)]


def waits_for_ages(step: Step) -> bool:
    """Redis 7.0 loses the sign of a time that does not fit into 64 bits."""
    return step.redis == b"-ERR timeout is negative\r\n" and float(step.words[-1]) > 0


DIFFERENCES = [
    Difference(
        "a wait that is too long is not called negative, as in Redis 7.2 and later",
        sorted(BLOCKING),
        waits_for_ages,
        lambda step: step.yard == b"-ERR timeout is out of range\r\n",
    ),
    Difference(
        "to set a value never destroys jobs",
        [b"SET", b"SETEX", b"PSETEX"],
        would_destroy_a_list,
        lambda step: step.yard == WRONG_TYPE,
    ),
    Difference(
        "a queue that is empty still is one, and keeps its name",
        SETTING,
        would_take_the_name_of_a_queue,
        lambda step: (
            step.yard == (b":0\r\n" if step.words[0].upper() == b"SETNX" else WRONG_TYPE)
            or b"NX" in [word.upper() for word in step.words]
            or step.yard == step.redis
        ),
    ),
    Difference(
        "jobs have times to live of their own, their queue has none",
        EXPIRING,
        would_expire_a_list,
        lambda step: step.yard == NO_EXPIRY,
    ),
    Difference("the two clocks are not one", [b"TTL"], is_time_left, is_about(1)),
    Difference("the two clocks are not one", [b"PTTL"], is_time_left, is_about(1000)),
    Difference("each has its version and its numbers", [b"HELLO"], is_no_error, same_greeting),
    Difference(
        "each has its numbers",
        [b"CLIENT"],
        asks_for(b"ID"),
        lambda step: all(reply[:1] == b":" for reply in (step.redis, step.yard)),
    ),
    Difference("each knows other things of a client", [b"CLIENT"], asks_for(b"INFO"), same_client),
]


class Clock:
    """The one of the simulated server, which agreed with that of Redis at the start."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._start = now()

    def apart(self) -> float:
        """Seconds that the two may be apart by now; each has gone on for as long as it says."""
        return (time.time() - self._start) + (self._now() - self._start)


class Pair:
    """A connection to Redis and one to Taskyard, which are asked the same."""

    def __init__(self, redis: RespClient, yard: RespClient, clock: Clock) -> None:
        self._redis = redis
        self._yard = yard
        self._clock = clock
        self._lists: set[bytes] = set()  # keys that may have been lists
        self.is_open = True

    def ask(self, request: Request, place: int) -> None:
        words = request.spelt(place)
        data = request.encoded(place)
        guarded = self._guarded(words)
        was_list = self._was_list(words)
        self._redis.send(data)
        self._yard.send(data)
        step = Step(words, self._redis.reply(), self._yard.reply(), self._clock.apart(), guarded)
        if guarded is not None:
            step.changed = self._restore(words[1], guarded)
        elif was_list and step.yard != step.redis:
            step.was_list = True
            ask(self._redis, "DEL", words[1])
        self._compare(step)
        self.is_open = step.redis != b"" and words[0].upper() != b"QUIT"

    def expect_end(self) -> None:
        assert self._redis.reply() == self._yard.reply() == b""

    def _guarded(self, words: tuple[bytes, ...]) -> bytes | None:
        """The list that a request could destroy, which Taskyard would not let it."""
        name, *arguments = words
        if name.upper() not in [b"SET", b"SETEX", b"PSETEX", *EXPIRING] or not arguments:
            return None
        if ask(self._redis, "TYPE", arguments[0]) != b"+list\r\n":
            return None
        dump: bytes = value(ask(self._redis, "DUMP", arguments[0]))
        return dump

    def _was_list(self, words: tuple[bytes, ...]) -> bool:
        """Whether a request could give a value the name of a queue, which Taskyard refuses."""
        name, *arguments = words
        if name.upper() in MAKING_LISTS:
            self._lists.update(arguments)
        if name.upper() not in SETTING or not arguments or arguments[0] not in self._lists:
            return False
        return ask(self._redis, "TYPE", arguments[0]) == b"+none\r\n"

    def _restore(self, key: bytes, dump: bytes) -> bool:
        """Make the list what it was; tells whether it was anything else."""
        same = ask(self._redis, "PTTL", key) == b":-1\r\n"
        if same and value(ask(self._redis, "DUMP", key)) == dump:
            return False
        assert ask(self._redis, "RESTORE", key, 0, dump, "REPLACE") == b"+OK\r\n"
        return True

    def _compare(self, step: Step) -> None:
        for difference in DIFFERENCES:
            if step.words[0].upper() in difference.names and difference.applies(step):
                assert difference.holds(step), (difference.reason, step)
                return
        assert step.yard == step.redis, step.words


@dataclass
class Subject:
    """The server that is held against Redis."""

    side: RespSide
    clock: Clock


def simulated() -> Subject:
    """A fresh one, whose clock is right at the start."""
    yard = SimulatedServer()
    yard.advance(time.time() - yard.now())
    return Subject(SimulatedSide(yard), Clock(yard.now))


def compared(redis: RedisServer, subject: Subject, requests: list[Request], protocol: int) -> None:
    """Ask both, then look at everything that is there."""
    redis.empty()
    with contextlib.ExitStack() as stack:

        def meet() -> Pair:
            asked, other = redis.connect(), subject.side.connect()
            stack.callback(asked.close)
            stack.callback(other.close)
            return Pair(asked, other, subject.clock)

        pair = meet()
        play(pair, requests, protocol)
        look = meet()
        for database in (b"0", b"1", b"2"):
            look_at_everything(look, database)


def play(pair: Pair, requests: list[Request], protocol: int) -> None:
    if protocol == 3:
        pair.ask(Request((b"HELLO", b"3")), 0)
    for place, request in enumerate(requests):
        pair.ask(request, place)
        if not pair.is_open:
            pair.expect_end()
            return


def look_at_everything(pair: Pair, database: bytes) -> None:
    pair.ask(Request((b"SELECT", database)), 0)
    for key in KEYS:
        for words in [(b"TYPE", key), (b"LRANGE", key, b"0", b"-1"), (b"GET", key), (b"PTTL", key)]:
            pair.ask(Request(words), 0)


protocols = pytest.mark.parametrize("protocol", [2, 3])


@protocols
@settings(max_examples=effort(60, 15))
@given(requests=sequences())
def test_any_requests_are_answered_as_by_redis(
    redis_server: RedisServer, protocol: int, requests: list[Request]
) -> None:
    compared(redis_server, simulated(), requests, protocol)


@pytest.mark.parametrize("name", FORMS, ids=lambda name: name[:8].decode())
@settings(max_examples=effort(12, 4))
@given(data=st.data())
def test_a_command_is_answered_as_by_redis(
    redis_server: RedisServer, name: bytes, data: st.DataObject
) -> None:
    """On a list, on a value, and where there is nothing."""
    requests = data.draw(st.lists(requests_of(name), min_size=1, max_size=8))
    compared(redis_server, simulated(), [*SOMETHING, *requests], data.draw(st.sampled_from([2, 3])))


SOMETHING = [
    Request((b"RPUSH", KEYS[0], b"x", b"y", b"x", b"", b"x", b"10")),
    Request((b"SET", KEYS[1], b"x")),
    Request((b"SETEX", KEYS[2], Soon(5, 1), b"y")),
]


@settings(max_examples=effort(25, 8))
@given(requests=sequences(), protocol=st.sampled_from([2, 3]))
def test_so_they_are_by_a_server_process(
    redis_server: RedisServer,
    module_socket_server: SocketWire,
    protocol: int,
    requests: list[Request],
) -> None:
    address = module_socket_server.address("resp")
    with contextlib.closing(SocketClient(address)) as client:
        for database in range(16):
            assert ask(client, "SELECT", database) == b"+OK\r\n"
            ask(client, "DEL", *KEYS, *STRAY_KEYS)
        forget_queues(client)
    compared(redis_server, Subject(SocketSide(address), Clock(time.time)), requests, protocol)


def forget_queues(client: RespClient) -> None:
    """Their names are free again."""
    _, page = value(ask(client, "API", "GET", "/api/v1/queues?limit=1000"))
    for queue in json.loads(page)["queues"]:
        path = f"/api/v1/queues/{quote(queue['name'], safe='')}"
        assert value(ask(client, "API", "DELETE", path))[0] == 200


# Names that no queue can have


@pytest.mark.parametrize("key", [b"", b"a b", b"a\n", b"\x00", b"\xff", b"a\xc2\xa0b", b"x" * 256])
def test_a_key_that_no_queue_can_have_is_never_made_a_list(key: bytes) -> None:
    client = SimulatedSide(SimulatedServer()).connect()
    for words in (
        (b"RPUSH", key, b"x"),
        (b"LPUSH", key, b"x", b"y"),
        (b"BLPOP", key, b"0"),
        (b"BRPOP", b"good", key, b"0"),
        (b"BLMOVE", key, b"good", b"LEFT", b"LEFT", b"0"),
        (b"BLMOVE", b"good", key, b"LEFT", b"LEFT", b"0"),
        (b"BRPOPLPUSH", b"good", key, b"0"),
    ):
        assert ask(client, *words) == b"-%s\r\n" % BAD_QUEUE.encode(), words
    assert ask(client, "RPUSH", "good", "x") == b":1\r\n"
    assert ask(client, "LMOVE", "good", key, "LEFT", "LEFT") == b"-%s\r\n" % BAD_QUEUE.encode()
    assert ask(client, "LRANGE", "good", 0, -1) == b"*1\r\n$1\r\nx\r\n"
    assert ask(client, "EXISTS", key) == b":0\r\n"


@pytest.mark.parametrize("key", [b"a b", b"a\n", b"\x00", b"\xff", b"x" * 65_535])
def test_a_value_may_have_almost_any_key(redis_server: RedisServer, key: bytes) -> None:
    requests = [
        Request(words)
        for words in (
            (b"SETEX", key, b"1000", b"x"),
            (b"GET", key),
            (b"TYPE", key),
            (b"LLEN", key),
            (b"TTL", key),
            (b"DEL", key),
            (b"EXISTS", key),
            (b"LLEN", key),
            (b"LPOP", key),
            (b"LRANGE", key, b"0", b"-1"),
        )
    ]
    compared(redis_server, simulated(), requests, 2)


@pytest.mark.parametrize("key", [b"", b"x" * 65_536])
def test_but_not_an_empty_one_or_one_of_more_than_64_kib(key: bytes) -> None:
    client = SimulatedSide(SimulatedServer()).connect()
    for words in ((b"SET", key, b"x"), (b"SETEX", key, b"9", b"x"), (b"SETNX", key, b"x")):
        assert ask(client, *words) == b"-ERR key: must be 1 to 65535 bytes\r\n"
    assert ask(client, "EXISTS", key) == b":0\r\n"
    assert ask(client, "GET", key) == b"$-1\r\n"


@pytest.mark.parametrize("milliseconds", [2**63 - 1, 2**63 // 1000 + 1])
def test_a_time_after_the_end_of_all_times_is_refused(milliseconds: int) -> None:
    """Redis keeps milliseconds and takes it; microseconds of 64 bits end in the year 294,247."""
    client = SimulatedSide(SimulatedServer()).connect()
    assert ask(client, "SET", "a", "x") == b"+OK\r\n"
    refusal = b"-ERR invalid expire time in '%b' command\r\n"
    assert ask(client, "PEXPIREAT", "a", milliseconds) == refusal % b"pexpireat"
    assert ask(client, "SET", "a", "y", "PXAT", milliseconds) == refusal % b"set"
    assert ask(client, "GET", "a") == b"$1\r\nx\r\n"
    assert ask(client, "TTL", "a") == b":-1\r\n"


# Names of queues


@pytest.mark.parametrize("state", ["ready", "leased", "empty", "created", "deleted"])
def test_the_name_of_a_queue_is_not_for_strings(state: str) -> None:
    yard = SimulatedServer()
    client = SimulatedSide(yard).connect()
    if state == "created":
        ask(client, "API", "PUT", "/api/v1/queues/mail", "{}")
    else:
        assert ask(client, "RPUSH", "mail", "x") == b":1\r\n"
    if state == "leased":
        ask(client, "JOB.TAKE", 1, "mail")
    elif state in ("empty", "deleted"):
        assert ask(client, "LPOP", "mail") == b"$1\r\nx\r\n"
    if state == "deleted":
        assert value(ask(client, "API", "DELETE", "/api/v1/queues/mail"))[0] == 200
        assert ask(client, "SET", "mail", "v") == b"+OK\r\n"
        return
    for words in (
        ("SET", "mail", "v"),
        ("SET", "mail", "v", "GET"),
        ("SET", "mail", "v", "NX", "GET"),
        ("SET", "mail", "v", "EX", 9),
        ("SETEX", "mail", 9, "v"),
        ("PSETEX", "mail", 9, "v"),
    ):
        assert ask(client, *words) == WRONG_TYPE, words
    assert ask(client, "SET", "mail", "v", "NX") == b"$-1\r\n"
    assert ask(client, "SETNX", "mail", "v") == b":0\r\n"
    assert ask(client, "RPUSH", "mail", "y").startswith(b":")
    assert ask(client, "SELECT", 2) == b"+OK\r\n"
    assert ask(client, "SET", "mail", "v") == b"+OK\r\n"


def test_a_string_that_was_there_before_a_queue_of_its_name_can_be_set_anew() -> None:
    yard = SimulatedServer()
    client = SimulatedSide(yard).connect()
    assert ask(client, "SET", "mail", "v") == b"+OK\r\n"
    yard.connect().send(b'PUSH {"name":"n","queue":"mail"}\n')
    assert ask(client, "SETEX", "mail", 9, "w") == b"+OK\r\n"
    assert ask(client, "DEL", "mail") == b":1\r\n"
    assert ask(client, "SETEX", "mail", 9, "w") == WRONG_TYPE
