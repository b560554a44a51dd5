"""What is particular to Redis: processing lists, heartbeats, recovery."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest
from support.waiting import wait_for
from toq.brokers import RedisBroker, Running
from toq.consumers import Consumers, PatientProducer

from taskyard.client.errors import Unavailable
from taskyard.client.source import Failed, Job, Released, RetryLater, Success
from taskyard.toq import Countdown, Producer, Task
from taskyard.toq.backends.redis import MAX_LOSSES, REGISTRY, RedisSource


@pytest.fixture(scope="module")
def redis(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with Running(RedisBroker(tmp_path_factory.mktemp("redis"))) as server:
        yield server


@pytest.fixture
def source(redis: Running, queue: str) -> Iterator[RedisSource]:
    found = RedisSource(redis.url, [queue], 30.0, 500)
    yield found
    found.close()


def die(redis: Running) -> None:
    """Let the heartbeat of every consumer be over."""
    keys = redis.ask("KEYS", "toq:alive:*")
    assert isinstance(keys, list)
    for key in keys:
        assert isinstance(key, bytes)
        redis.ask("DEL", key)


def processing(redis: Running, queue: str) -> list[object]:
    keys = redis.ask("KEYS", f"toq:processing:*:{queue}")
    assert isinstance(keys, list)
    return [redis.ask("LRANGE", key, 0, -1) for key in keys]  # type: ignore[arg-type]


def queued(redis: Running, queue: str) -> object:
    return redis.ask("LRANGE", queue, 0, -1)


def take(source: RedisSource, count: int = 1) -> list[Job]:
    return source.fetch_jobs(count, 0.01)


def test_a_task_is_on_the_processing_list_while_it_runs(
    redis: Running, queue: str, source: RedisSource
) -> None:
    redis.ask("RPUSH", queue, "one", "two", "three")
    jobs = take(source, 2)
    assert [job.payload for job in jobs] == [b"one", b"two"]
    assert processing(redis, queue) == [[b"one", b"two"]]
    assert source.finish_jobs([(jobs[0], Success())]) == []
    assert processing(redis, queue) == [[b"two"]]


def test_a_task_that_comes_while_one_waits_is_on_it_too(
    redis: Running, queue: str, source: RedisSource
) -> None:
    assert take(source) == []
    with Producer(redis.url) as producer:
        producer.enqueue(queue, Task(key="a"))
    assert len(take(source)) == 1
    assert len(processing(redis, queue)) == 1


def test_tasks_of_the_dead_go_back_to_the_front_in_their_order(
    redis: Running, queue: str, source: RedisSource
) -> None:
    redis.ask("RPUSH", queue, "one", "two", "three")
    take(source, 2)
    other = RedisSource(redis.url, ["another"], 30.0, 500)
    other.extend_leases([])
    assert queued(redis, queue) == [b"three"]
    die(redis)
    other.extend_leases([])
    assert queued(redis, queue) == [b"one", b"two", b"three"]
    assert processing(redis, queue) == []
    members = redis.ask("SMEMBERS", REGISTRY)
    assert not [one for one in members if one.endswith(f":{queue}".encode())]  # type: ignore[union-attr]
    other.close()


def test_one_that_was_taken_for_dead_notices_and_goes_on(
    redis: Running, queue: str, source: RedisSource
) -> None:
    redis.ask("RPUSH", queue, "one", "two")
    jobs = take(source, 2)
    other = RedisSource(redis.url, ["another"], 30.0, 500)
    die(redis)
    other.extend_leases([])
    key = f"result-{queue}"
    assert source.finish_jobs([(jobs[0], Failed(b"", b"no", key)), (jobs[1], Released())]) == jobs
    assert redis.ask("EXISTS", key) == 0
    assert source.finish_jobs([(jobs[0], Success(b"yes", key))]) == jobs[:1]
    assert redis.ask("GET", key) == b"yes"
    assert [job.payload for job in take(source, 2)] == [b"one", b"two"]
    die(redis)
    other.extend_leases([])
    assert queued(redis, queue) == [b"one", b"two"]
    other.close()


def test_a_task_that_kills_its_consumers_is_put_aside(
    redis: Running, queue: str, source: RedisSource
) -> None:
    message = Task(id=f"deadly-{queue}", key="a").to_json()
    redis.ask("RPUSH", queue, message)
    other = RedisSource(redis.url, ["another"], 30.0, 500)
    for _ in range(MAX_LOSSES + 1):
        assert len(take(source)) == 1
        die(redis)
        other.extend_leases([])
    assert queued(redis, queue) == []
    assert redis.ask("LRANGE", f"toq:dead:{queue}", 0, -1) == [message]
    with PatientProducer(redis.url) as producer:
        assert "its consumers died" in producer.result(f"deadly-{queue}").message
    other.close()


def test_a_task_that_ends_is_not_blamed_for_earlier_losses(
    redis: Running, queue: str, source: RedisSource
) -> None:
    other = RedisSource(redis.url, ["another"], 30.0, 500)
    for _ in range(2):
        redis.ask("RPUSH", queue, "same")
        for _ in range(MAX_LOSSES):
            take(source)
            die(redis)
            other.extend_leases([])
        assert source.finish_jobs([(take(source)[0], Success())]) == []
    assert redis.ask("EXISTS", f"toq:losses:{queue}") == 0
    other.close()


def test_equal_messages_are_tasks_of_their_own(
    redis: Running, queue: str, source: RedisSource
) -> None:
    redis.ask("RPUSH", queue, "same", "same")
    jobs = take(source, 2)
    again = RetryLater(b"", 0.0, b"same")
    assert source.finish_jobs([(job, again) for job in jobs]) == []
    assert redis.ask("ZCARD", f"toq:retry:{queue}") == 2
    assert [job.payload for job in take(source, 2)] == [b"same", b"same"]


def test_what_is_held_goes_back_when_a_consumer_leaves(redis: Running, queue: str) -> None:
    source = RedisSource(redis.url, [queue], 30.0, 500)
    redis.ask("RPUSH", queue, "one", "two", "three")
    take(source, 2)
    source.close()
    assert queued(redis, queue) == [b"one", b"two", b"three"]


def test_a_message_that_is_no_task_is_kept_aside(
    redis: Running, queue: str, consumers: Consumers
) -> None:
    consumers.start(redis.url, queue, {})
    redis.ask("RPUSH", queue, "nonsense")
    wait_for(lambda: redis.ask("LRANGE", f"toq:dead:{queue}", 0, -1) == [b"nonsense"])
    assert processing(redis, queue) == []


def test_nothing_is_left_of_a_consumer_that_left(
    redis: Running, queue: str, consumers: Consumers
) -> None:
    redis.ask("FLUSHALL")
    workers = {"a": lambda task: 1}
    with (
        PatientProducer(redis.url) as producer,
        # Its heartbeats last: none is gone since its time was over.
        consumers.start(redis.url, queue, workers, lease=3600),
    ):
        task_id = producer.enqueue(queue, Task(key="a"))
        producer.result(task_id)
    consumers.wait()
    # It does not wait for long to have its goodbye answered.
    wait_for(lambda: redis.ask("KEYS", "*") == [f"toq:rst:{task_id}".encode()])


def test_fields_of_other_programs_survive_a_retry(
    redis: Running, queue: str, consumers: Consumers
) -> None:
    def fail(task: Task) -> None:
        raise ValueError

    consumers.start(redis.url, queue, {"a": fail}, countdown=Countdown(first=3600, most=3600))
    redis.ask("RPUSH", queue, '{"id":"1","key":"a","retry":true,"max_retries":9,"trace":"xyz"}')
    retries = f"toq:retry:{queue}"
    wait_for(lambda: redis.ask("ZCARD", retries) == 1)
    entries = redis.ask("ZRANGE", retries, 0, -1)
    assert isinstance(entries, list)
    assert isinstance(entries[0], bytes)
    assert entries[0][33:] == (
        b'{"id":"1","key":"a","retry":true,"max_retries":9,"trace":"xyz",'
        b'"tried":1,"road":["%b","retry_time_1"],"state":4}' % queue.encode()
    )


def cut_off(redis: Running, source: RedisSource) -> None:
    """A take whose connection is lost while it waits."""
    raised: list[Exception] = []

    def wait() -> None:
        try:
            source.fetch_jobs(1, 5.0)
        except Unavailable as error:
            raised.append(error)

    def blocked() -> bool:
        info = redis.ask("INFO", "clients")
        assert isinstance(info, bytes)
        return b"blocked_clients:0" not in info

    while not raised:  # again if the wait was over before its connection was lost
        thread = threading.Thread(target=wait)
        thread.start()
        wait_for(lambda thread=thread: blocked() or not thread.is_alive())  # type: ignore[misc]
        redis.ask("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
        thread.join()


def own_list(redis: Running, queue: str) -> str:
    members = redis.ask("SMEMBERS", REGISTRY)
    assert isinstance(members, list)
    [entry] = [one.decode() for one in members if one.endswith(f":{queue}".encode())]  # type: ignore[union-attr]
    return f"toq:processing:{entry}"


def test_what_was_taken_without_an_answer_is_not_forgotten(
    redis: Running, queue: str, source: RedisSource
) -> None:
    redis.ask("RPUSH", queue, "same")
    [held] = take(source)
    cut_off(redis, source)
    redis.ask("RPUSH", queue, "same", "one", "two")
    for _ in range(3):  # as Redis does when it has read the command, and cannot answer
        redis.ask("LMOVE", queue, own_list(redis, queue), "LEFT", "RIGHT")
    found = [job.payload for _ in range(3) for job in take(source, 2)]
    assert found == [b"same", b"one", b"two"]
    assert source.finish_jobs([(held, Success())]) == []
    assert processing(redis, queue) == [[b"same", b"one", b"two"]]


def test_what_has_ended_meanwhile_is_not_taken_for_forgotten(
    redis: Running, queue: str, source: RedisSource
) -> None:
    redis.ask("RPUSH", queue, "one", "two")
    jobs = take(source, 2)
    assert source.finish_jobs([(jobs[0], Success())]) == []
    cut_off(redis, source)
    assert take(source) == []
    assert source.finish_jobs([(jobs[1], Success())]) == []
    assert take(source) == []


def test_a_wait_is_shorter_than_the_time_an_answer_may_take(redis: Running, queue: str) -> None:
    source = RedisSource(redis.url, [queue], 3600.0, 500)
    assert source.fetch_jobs(1, 60.0) == []  # else Unavailable
    source.close()


def test_a_replica_is_waited_for_and_each_verdict_told_once(
    redis: Running, queue: str, source: RedisSource
) -> None:
    """As after a fail-over, when the old master is still the one that is talked to."""
    redis.ask("RPUSH", queue, "one", "two")
    jobs = take(source, 2)
    assert source.finish_jobs([(jobs[0], Success())]) == []
    redis.ask("REPLICAOF", "127.0.0.1", "1")
    try:
        with pytest.raises(Unavailable):
            source.finish_jobs([(jobs[1], Success())])
        with pytest.raises(Unavailable):
            source._wait_for_message(0.01)
    finally:
        redis.ask("REPLICAOF", "NO", "ONE")
    assert source.finish_jobs([(jobs[1], Success())]) == []
    assert processing(redis, queue) == []
