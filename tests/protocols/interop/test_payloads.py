"""Payloads and names: what can be said in both protocols is the same, and the rest has its rule."""

import pytest
from protocols.interop.adapters.base import Adapter, BadName, Can, NotFound
from protocols.interop.cases import cases
from protocols.interop.world import TimedWorld, World, able

Dialect = type[Adapter]

JSON_TEXTS = [
    b'{"z":1.0,"a":[true,null,1e400]}',
    b'"text"',
    '"grüße \\u00fc \\" \\\\"'.encode(),
    b"12345678901234567890.00",
    b"null",
    b"[]",
    b'" two  spaces "',
    b'{"a":1,"a":2}',
]
# What was pushed, and how it is shown where payloads are JSON.
ANY_BYTES = [
    (b'{ "a" : [ 1, 2 ] }\n', b'{"a":[1,2]}'),
    (b" 7 ", b"7"),
    (b"hello", b'"hello"'),
    (b'say "hi"\r\n', b'"say \\"hi\\"\\r\\n"'),
    ("grüße".encode(), '"grüße"'.encode()),
    (b"{broken", b'"{broken"'),
    (b"1 2", b'"1 2"'),
    (b"NaN", b'"NaN"'),
    (b"", b'""'),
    (b"   ", b'"   "'),
    (b"\xff\x00", b'{"base64":"/wA="}'),
    (b'"\xff"', b'{"base64":"Iv8i"}'),
    (b"\r\n", b'"\\r\\n"'),
    (b'"a\nb"', b'"\\"a\\nb\\""'),  # a line feed in a string is not JSON
    (b"01", b'"01"'),
    (b"[1,]", b'"[1,]"'),
    (b"[" * 100_000, b'"' + b"[" * 100_000 + b'"'),
]
HALF_A_SEGMENT = 500_000  # a payload may be no larger


@cases("json", payload=JSON_TEXTS)
def test_json_arrives_letter_for_letter(
    any_world: World, pusher: Dialect, taker: Dialect, payload: bytes
) -> None:
    world = any_world
    here, there = world.open(pusher), world.open(taker)
    job = world.push(here, payload=payload)
    world.between()
    assert world.take(there).payload == payload == job.payload


@cases("json")
def test_white_space_between_tokens_is_kept_only_from_bytes_to_bytes(
    world: TimedWorld, pusher: Dialect, taker: Dialect
) -> None:
    here, there = world.open(pusher), world.open(taker)
    spaced = b'{ "a" : [ 1, "b c" ] }'
    world.push(here, payload=spaced)
    world.between()
    seen = world.take(there).payload
    is_json = pusher.shows_json or taker.shows_json
    assert seen == (b'{"a":[1,"b c"]}' if is_json else spaced)


@cases("any bytes", sent=ANY_BYTES)
def test_bytes_arrive_as_they_are_or_as_json(
    any_world: World, pusher: Dialect, taker: Dialect, sent: tuple[bytes, bytes]
) -> None:
    world = any_world
    payload, shown = sent
    here, there = world.open(pusher), world.open(taker)
    job = world.push(here, payload=payload)
    world.between()
    taken = world.take(there)
    assert taken.payload == (shown if taker.shows_json else payload)
    world.job_is(job, "leased", attempts=1, fails=0)  # and looking shows the bytes themselves


@cases("json")
def test_a_job_without_a_payload_is_one_of_no_bytes(
    any_world: World, pusher: Dialect, taker: Dialect
) -> None:
    world = any_world
    here, there = world.open(pusher), world.open(taker)
    world.push(here, payload=b"")
    world.between()
    expected = b'""' if taker.shows_json and not pusher.shows_json else b""
    assert world.take(there).payload == expected


@cases("large")
def test_a_large_payload_arrives_whole(any_world: World, pusher: Dialect, taker: Dialect) -> None:
    world = any_world
    here, there = world.open(pusher), world.open(taker)
    job = world.push(here, payload=b'"' + b"0123456789" * (HALF_A_SEGMENT // 10) + b'"')
    world.between()
    there.finish(world.take_this(there, job))


@cases("plain name", name=["a", "A-b_c.d", "0", "-", "x" * 255])
def test_names_that_all_can_spell_are_known_to_all(
    world: TimedWorld, pusher: Dialect, taker: Dialect, name: str
) -> None:
    here, there = world.open(pusher), world.open(taker)
    job = world.push(here, queue=name)
    world.between()
    world.sees(ready=1, queue=name)
    for observer in able(Can.LIST_QUEUES):
        with world.visit(observer) as visitor:
            assert visitor.queues() == [name]
    assert world.take_this(there, job).queue == name


@cases("name that some cannot spell", name=["grüße", "a/b", "a:b", "{x}", "a,b"])
def test_a_name_that_a_dialect_cannot_spell_does_not_exist_in_it(
    world: TimedWorld, pusher: Dialect, taker: Dialect, name: str
) -> None:
    here, there = world.open(pusher), world.open(taker)
    plain = [f"{world.queue}.{letter}" for letter in "bac"]
    world.push(here, queue=plain[0])
    job = world.push(here, queue=name)
    for other in plain[1:]:
        world.push(here, queue=other)
    world.between()
    for observer in able(Can.LIST_QUEUES):
        with world.visit(observer) as visitor:
            listed = visitor.queues()
            spelt = [name] if Can.ANY_NAME in observer.can else []
            assert sorted(listed) == sorted([*plain, *spelt])
            if not spelt:
                with pytest.raises(BadName):
                    visitor.counts(name)
                visitor.ask(name, 0)
                with pytest.raises(BadName):
                    visitor.arrived()
    assert world.take_this(there, job).queue == name


def test_reading_makes_no_queue(any_world: World) -> None:
    world = any_world
    for adapter in able(Can.COUNT_READY):
        client = world.open(adapter)
        if adapter.can & {Can.TAKE, Can.POP}:
            world.nothing_for(client)
        if Can.LIST_QUEUES not in adapter.can:  # to Redis, what is empty and what is not are one
            assert client.counts(world.queue) == {"ready": 0}
            continue
        with pytest.raises(NotFound):
            client.counts(world.queue)
    world.between()
    for adapter in able(Can.LIST_QUEUES):
        with world.visit(adapter) as visitor:
            assert world.queue not in visitor.queues()


def test_an_empty_queue_stays_listed_for_all(any_world: World) -> None:
    world = any_world
    there = world.open(able(Can.TAKE)[0])
    for pusher in able(Can.PUSH):
        there.finish(world.take_this(there, world.push(world.open(pusher))))
    world.between()
    world.sees()
    for observer in able(Can.LIST_QUEUES):
        with world.visit(observer) as visitor:
            assert world.queue in visitor.queues()


def test_a_new_queue_is_listed_whoever_made_it(any_world: World) -> None:
    world = any_world
    observers = [world.open(adapter) for adapter in able(Can.LIST_QUEUES)]
    for number, pusher in enumerate(able(Can.PUSH) * 2):
        name = f"{world.queue}.{number}"
        for observer in observers:
            assert name not in observer.queues()
        world.push(world.open(pusher), queue=name)
        for observer in observers:
            assert name in observer.queues()
        world.between()
