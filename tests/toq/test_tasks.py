"""Tasks on either back end: enqueued, run, retried, their results, and other programs' tasks."""

from __future__ import annotations

import asyncio
import json
import threading
import time
import uuid
from typing import Any

import pytest
from support.sockets import HANG_GUARD
from support.waiting import wait_for
from toq.brokers import Running
from toq.consumers import Consumers

from taskyard.toq import (
    FAILED,
    RESULT_FAILED,
    RESULT_SUCCEEDED,
    RETRYING,
    RUNNING,
    SUCCEEDED,
    Countdown,
    Producer,
    Refused,
    Result,
    ResultTimeout,
    Task,
)

# As the producer in Go writes it.
GO_TASK = (
    b'{"id":"%s","retry":true,"max_retries":2,"tried":0,"road":null,"state":0,'
    b'"key":"add","args":"{\\"x\\": 1, \\"y\\": 2}"}'
)


def add(task: Task) -> int:
    return sum(task.arguments())


class Failing:
    """A worker that fails so many times, then succeeds; keeps what it saw."""

    def __init__(self, times: int) -> None:
        self.times = times
        self.seen: list[tuple[int, int, list[str]]] = []

    def __call__(self, task: Task) -> str:
        self.seen.append((task.state, task.tried, list(task.road)))
        if len(self.seen) <= self.times:
            raise ValueError(f"failure {len(self.seen)}")
        return "at last"


def test_a_task_is_run_and_its_result_stored(
    running: Running, queue: str, producer: Producer, consumers: Consumers
) -> None:
    consumers.start(running.url, queue, {"add": add})
    task = Task.of("add", 1, 2)
    assert producer.enqueue(queue, task) == task.id
    assert producer.result(task.id) == Result(task_id=task.id, result="3")


def test_the_result_is_where_other_programs_look_for_it(
    running: Running, queue: str, producer: Producer, consumers: Consumers
) -> None:
    began = time.monotonic()
    consumers.start(running.url, queue, {"add": add})
    task = Task.of("add", 1, 2)
    producer.result(producer.enqueue(queue, task))
    expected = {
        "task_id": task.id,
        "wanna_retry": False,
        "state": 1,
        "message": "",
        "result": "3",
    }
    reply = running.ask("GET", f"toq:rst:{task.id}")
    assert isinstance(reply, bytes)
    assert list(json.loads(reply).items()) == list(expected.items())
    ttl = running.ask("TTL", f"toq:rst:{task.id}")
    assert isinstance(ttl, int)
    assert 499 - (time.monotonic() - began) < ttl <= 500


def test_how_long_results_are_stored_can_be_chosen(
    running: Running, queue: str, producer: Producer, consumers: Consumers
) -> None:
    consumers.start(running.url, queue, {"add": add}, result_ttl=5000)
    task_id = producer.enqueue(queue, Task.of("add", 1))
    producer.result(task_id)
    ttl = running.ask("TTL", f"toq:rst:{task_id}")
    assert isinstance(ttl, int)
    assert 4900 < ttl <= 5000


@pytest.mark.parametrize(
    ("given", "result"),
    [
        (Result(result='{"a":1}', message="fine"), '{"a":1}'),
        ({"a": [1, None, "ä"]}, '{"a":[1,null,"ä"]}'),
        (None, "null"),
    ],
)
def test_a_worker_gives_a_result_or_a_value(
    running: Running,
    queue: str,
    producer: Producer,
    consumers: Consumers,
    given: object,
    result: str,
) -> None:
    consumers.start(running.url, queue, {"give": lambda task: given})
    task_id = producer.enqueue(queue, Task(key="give"))
    stored = producer.result(task_id)
    assert (stored.task_id, stored.state, stored.result) == (task_id, RESULT_SUCCEEDED, result)
    assert stored.message == getattr(given, "message", "")


def test_a_task_whose_key_nobody_knows_fails_without_retries(
    running: Running, queue: str, producer: Producer, consumers: Consumers
) -> None:
    consumers.start(running.url, queue, {"add": add})
    task_id = producer.enqueue(queue, Task.of("subtract", 1, max_retries=5))
    expected = Result(task_id=task_id, state=RESULT_FAILED, message="worker not found")
    assert producer.result(task_id) == expected


@pytest.mark.parametrize("error", [ValueError("a reason"), SystemExit("a reason")])
def test_what_a_worker_raises_is_a_failure_with_its_traceback(
    running: Running,
    queue: str,
    producer: Producer,
    consumers: Consumers,
    error: BaseException,
) -> None:
    def break_down(task: Task) -> None:
        raise error

    consumers.start(running.url, queue, {"break": break_down, "add": add})
    result = producer.result(producer.enqueue(queue, Task(key="break")))
    assert (result.state, result.wanna_retry) == (RESULT_FAILED, True)
    assert "in break_down" in result.message
    assert result.message.endswith(f"{type(error).__name__}: a reason\n")
    assert producer.result(producer.enqueue(queue, Task.of("add", 4))).value() == 4


@pytest.mark.parametrize("given", [object(), Result(result=3), Result(state="good")])  # type: ignore[arg-type]
def test_what_is_no_result_is_a_failure(
    running: Running, queue: str, producer: Producer, consumers: Consumers, given: object
) -> None:
    consumers.start(running.url, queue, {"give": lambda task: given})
    result = producer.result(producer.enqueue(queue, Task(key="give")))
    assert result.state == RESULT_FAILED
    assert "Error: " in result.message


def test_a_failure_is_tried_again_and_the_task_tells_how_often(
    running: Running, queue: str, producer: Producer, consumers: Consumers
) -> None:
    worker = Failing(2)
    consumers.start(running.url, queue, {"fail": worker})
    result = producer.result(producer.enqueue(queue, Task.of("fail", max_retries=3)))
    assert result.value() == "at last"
    assert worker.seen == [
        (RUNNING, 0, [queue]),
        (RUNNING, 1, [queue, "retry_time_1"]),
        (RUNNING, 2, [queue, "retry_time_1", "retry_time_2"]),
    ]


def test_when_the_retries_are_used_up_the_failure_is_stored(
    running: Running, queue: str, producer: Producer, consumers: Consumers
) -> None:
    worker = Failing(10)
    consumers.start(running.url, queue, {"fail": worker})
    result = producer.result(producer.enqueue(queue, Task.of("fail", max_retries=2)))
    assert result.state == RESULT_FAILED
    assert "failure 3" in result.message
    assert [tried for _, tried, _ in worker.seen] == [0, 1, 2]


@pytest.mark.parametrize("task", [Task(key="fail"), Task(key="fail", retry=False, max_retries=3)])
def test_a_task_that_does_not_ask_for_retries_gets_none(
    running: Running, queue: str, producer: Producer, consumers: Consumers, task: Task
) -> None:
    worker = Failing(1)
    consumers.start(running.url, queue, {"fail": worker})
    task = Task(key=task.key, retry=task.retry, max_retries=task.max_retries)
    assert "failure 1" in producer.result(producer.enqueue(queue, task)).message
    assert len(worker.seen) == 1


def test_a_failure_that_does_not_want_a_retry_gets_none(
    running: Running, queue: str, producer: Producer, consumers: Consumers
) -> None:
    refusal = Result(state=RESULT_FAILED, message="never")
    consumers.start(running.url, queue, {"refuse": lambda task: refusal})
    result = producer.result(producer.enqueue(queue, Task.of("refuse", max_retries=3)))
    assert (result.state, result.message) == (RESULT_FAILED, "never")


def test_a_success_that_wants_a_retry_gets_one(
    running: Running, queue: str, producer: Producer, consumers: Consumers
) -> None:
    consumers.start(running.url, queue, {"poll": lambda task: Result(wanna_retry=task.tried < 2)})
    result = producer.result(producer.enqueue(queue, Task.of("poll", max_retries=9)))
    assert (result.state, result.wanna_retry) == (RESULT_SUCCEEDED, False)


def test_a_retry_waits_for_its_countdown(
    running: Running, queue: str, producer: Producer, consumers: Consumers
) -> None:
    worker = Failing(1)
    endless = Countdown(first=3600, most=3600)
    results: list[int] = []
    consumers.start(
        running.url,
        queue,
        {"fail": worker, "add": add},
        countdown=endless,
        on_result=lambda task, result: results.append(task.state),
    )
    task_id = producer.enqueue(queue, Task.of("fail", max_retries=3))
    wait_for(lambda: results)
    assert producer.result(producer.enqueue(queue, Task.of("add", 1))).value() == 1
    assert len(worker.seen) == 1
    with pytest.raises(ResultTimeout):
        producer.result(task_id, timeout=0)
    assert running.ask("LLEN", queue) == 0


def test_whoever_looks_on_sees_the_states_of_a_task(
    running: Running, queue: str, producer: Producer, consumers: Consumers
) -> None:
    seen: list[tuple[str, int, int]] = []
    consumers.start(
        running.url,
        queue,
        {"fail": Failing(1), "break": Failing(9)},
        concurrency=1,
        on_result=lambda task, result: seen.append((task.key, task.state, task.tried)),
    )
    producer.result(producer.enqueue(queue, Task.of("fail", max_retries=2)))
    producer.result(producer.enqueue(queue, Task(key="break")))
    assert seen == [("fail", RETRYING, 1), ("fail", SUCCEEDED, 1), ("break", FAILED, 0)]


def test_an_observer_that_fails_harms_no_task(
    running: Running, queue: str, producer: Producer, consumers: Consumers
) -> None:
    def fail(task: Task, result: Result) -> None:
        raise ValueError

    consumers.start(running.url, queue, {"add": add}, on_result=fail)
    assert producer.result(producer.enqueue(queue, Task.of("add", 1))).value() == 1


def test_several_queues_are_served(
    running: Running, queue: str, producer: Producer, consumers: Consumers
) -> None:
    roads: list[list[str]] = []
    names = [f"{queue}-{number}" for number in range(3)]
    consumers.start(running.url, names, {"see": lambda task: roads.append(task.road)})
    for name in names:
        producer.result(producer.enqueue(name, Task(key="see")))
    assert roads == [[name] for name in names]


def test_many_tasks_are_run_once_each_by_several_consumers(
    running: Running, queue: str, producer: Producer, consumers: Consumers
) -> None:
    counted: list[str] = []
    for prefetch in (0, 5):
        workers = {"count": lambda task: counted.append(task.id)}
        consumers.start(running.url, queue, workers, concurrency=3, prefetch=prefetch)
    tasks = [Task(key="count") for _ in range(300)]
    producer.enqueue_many(queue, tasks)
    for task in tasks:
        producer.result(task.id)
    assert sorted(counted) == sorted(task.id for task in tasks)


def test_coroutines_run_side_by_side(
    running: Running, queue: str, producer: Producer, consumers: Consumers
) -> None:
    everybody = 3
    met: list[asyncio.Event] = []

    async def meet(task: Task) -> str:
        met.append(asyncio.Event())
        if len(met) == everybody:
            for event in met:
                event.set()
        await met[task.arguments()[0]].wait()
        return "met"

    workers: dict[str, Any] = {"meet": meet, "plain": lambda task: "plain"}
    consumers.start(running.url, queue, workers, pool="async", concurrency=everybody)
    tasks = [Task.of("meet", number) for number in range(everybody)]
    producer.enqueue_many(queue, tasks)
    assert [producer.result(task.id).value() for task in tasks] == ["met"] * everybody
    assert producer.result(producer.enqueue(queue, Task(key="plain"))).value() == "plain"


def test_a_coroutine_that_fails_is_tried_again(
    running: Running, queue: str, producer: Producer, consumers: Consumers
) -> None:
    worker = Failing(1)

    async def fail(task: Task) -> str:
        await asyncio.sleep(0)
        return worker(task)

    consumers.start(running.url, queue, {"fail": fail}, pool="async")
    result = producer.result(producer.enqueue(queue, Task.of("fail", max_retries=1)))
    assert result.value() == "at last"


# Stopping


def test_a_stop_finishes_what_runs_and_takes_nothing_new(
    running: Running, queue: str, producer: Producer, consumers: Consumers
) -> None:
    begun, go_on = threading.Semaphore(0), threading.Event()

    def hold(task: Task) -> None:
        begun.release()
        assert go_on.wait(HANG_GUARD)

    consumer = consumers.start(running.url, queue, {"hold": hold}, concurrency=1, prefetch=2)
    tasks = [Task(key="hold") for _ in range(4)]
    producer.enqueue_many(queue, tasks)
    assert begun.acquire(timeout=HANG_GUARD)
    wait_for(lambda: running.ask("LLEN", queue) == 1)  # two are held ready
    consumer.stop()
    wait_for(lambda: running.ask("LLEN", queue) == 3)
    go_on.set()
    consumers.wait()
    assert consumers.returned == [True]
    assert producer.result(tasks[0].id).succeeded
    first = running.ask("LINDEX", queue, 0)
    assert isinstance(first, bytes)
    assert Task.from_json(first).id == tasks[1].id


def test_a_consumer_that_was_stopped_before_it_runs_returns(
    running: Running, queue: str, consumers: Consumers
) -> None:
    with consumers.start(running.url, queue, {"add": add}):
        pass
    consumers.wait()
    assert consumers.returned == [True]


# Other programs


def test_a_task_of_another_program_is_run(
    running: Running, queue: str, producer: Producer, consumers: Consumers
) -> None:
    def add_both(task: Task) -> int:
        arguments = task.arguments()
        return int(arguments["x"] + arguments["y"])

    consumers.start(running.url, queue, {"add": add_both})
    task_id = str(uuid.uuid4())
    running.ask("RPUSH", queue, GO_TASK % task_id.encode())
    assert producer.result(task_id).value() == 3


def test_a_task_of_another_program_is_tried_again(
    running: Running, queue: str, producer: Producer, consumers: Consumers
) -> None:
    worker = Failing(5)
    consumers.start(running.url, queue, {"add": worker})
    running.ask("RPUSH", queue, GO_TASK % b"not-a-uuid")
    assert "failure 3" in producer.result("not-a-uuid").message
    assert worker.seen[-1] == (RUNNING, 2, [queue, "retry_time_1", "retry_time_2"])
    running.ask("DEL", "toq:rst:not-a-uuid")


def test_another_program_gets_our_tasks(running: Running, queue: str, producer: Producer) -> None:
    task = Task(id="t-1", key="add", args="[1]", retry=True, max_retries=2)
    producer.enqueue(queue, task)
    message = (
        b'{"id":"t-1","retry":true,"max_retries":2,"tried":0,"road":[],"state":0,'
        b'"key":"add","args":"[1]"}'
    )
    assert running.ask("BLPOP", queue, 5) == [queue.encode(), message]


def test_a_message_that_is_no_task_harms_nobody(
    running: Running, queue: str, producer: Producer, consumers: Consumers
) -> None:
    consumers.start(running.url, queue, {"add": add}, concurrency=1)
    name = f"bad-{queue}"
    bad = [b"not JSON", b'{"id":"%s","key":3}' % name.encode(), b"\xff\xfe", b"[]"]
    running.ask("RPUSH", queue, *bad)
    assert producer.result(producer.enqueue(queue, Task.of("add", 1))).value() == 1
    refusal = producer.result(name)
    assert refusal.state == RESULT_FAILED
    assert "Expected `str`, got `int` - at `$.key`" in refusal.message


def test_a_task_without_an_id_is_run(running: Running, queue: str, consumers: Consumers) -> None:
    seen: list[str] = []
    consumers.start(running.url, queue, {"see": lambda task: seen.append(task.args)})
    running.ask("RPUSH", queue, b'{"key":"see","args":"[7]"}')
    wait_for(lambda: seen == ["[7]"])


# What cannot be done


def test_a_result_that_does_not_come_is_waited_for_in_vain(producer: Producer) -> None:
    with pytest.raises(ResultTimeout, match=r"task nobody has no result after 0\.01 seconds"):
        producer.result("nobody", timeout=0.01)


def test_a_name_that_is_no_queue_is_refused(
    running: Running, queue: str, producer: Producer, consumers: Consumers
) -> None:
    name = {"taskyard": f"not a {queue}", "redis": f"text-{queue}"}[running.name]
    running.ask("SET", f"text-{queue}", "1")
    with pytest.raises(Refused, match=r"ERR invalid queue name|WRONGTYPE"):
        producer.enqueue(name, Task(key="a"))
    consumers.start(running.url, name, {})
    consumers.wait()
    assert isinstance(consumers.returned[0], Refused)
