"""The same push has the same retries through every door of ours, and what comes in by the protocols
of others has those that their texts say."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from support.api import ApiClient
from support.replies_resp import ask
from support.resp_jobs import take, take_many
from support.simulated import SimulatedServer

from taskyard import App
from taskyard.cli import push as cli_push
from taskyard.cli import schedules as cli_schedules
from taskyard.cli.session import Context
from taskyard.client import commands
from taskyard.client.commands import Command, NewJob, encode, schedule_body
from taskyard.client.feeding import PushStream
from taskyard.tasks.schedules import Schedules

QUEUE = "/api/v1/queues/q"
SCHEDULE = "/api/v1/schedules/s"
SECOND = 1_000_000

Door = Callable[[SimulatedServer], None]


def send(yard: SimulatedServer, words: Command) -> None:
    ask(yard.connect("resp"), *words)


def tick(yard: SimulatedServer, body: dict[str, Any]) -> None:
    """Set a schedule, and let its first tick come."""
    api = ApiClient(yard)
    api.call("PUT", SCHEDULE, {"queue": "q", "every": 60, **body}).ok()
    yard.advance(60)
    api.call("DELETE", SCHEDULE)


def arguments(module: Any, *argv: str) -> Any:
    return module.parser().parse_args(argv)


class Spoken(Context):
    """One of a command line that is only read."""

    def __init__(self, given: Any) -> None:
        self.arguments = given

    def queue_name(self, name: str) -> str:
        return name


def cli_job(yard: SimulatedServer) -> None:
    options = cli_push._options(Spoken(arguments(cli_push, "q", "x")))
    send(yard, commands.push(NewJob("q", b"x", **options)).words)


def cli_schedule(yard: SimulatedServer) -> None:
    given = arguments(cli_schedules, "set", "s", "--every", "60s", "q")
    tick(yard, cli_schedules._settings(Spoken(given)))


def feed(yard: SimulatedServer) -> None:
    peer = yard.connect("resp")
    peer.send(PushStream(NewJob("q"), [b"x"]).next_commands())
    peer.expect(b":1\r\n")


def task() -> Any:
    app = App(queue="q")

    @app.task
    def work() -> None: ...

    return work


def task_schedule(yard: SimulatedServer) -> None:
    app = App(name="app", queue="q")
    declared = Schedules(app)

    @app.task
    def s() -> None: ...

    declared.add(s, every=60)
    tick(yard, json.loads(encode(declared.declared["app.s"])))


OURS: dict[str, Door] = {
    "JOB.PUSH": lambda yard: send(yard, ["JOB.PUSH", "q", "x"]),
    "JOB.PUSH with words": lambda yard: send(yard, ["JOB.PUSH", "q", "x", "TTR", 600_000]),
    "JOB.PUSHALL": lambda yard: send(yard, ["JOB.PUSHALL", 1, 2, "q", "x"]),
    "API over RESP": lambda yard: send(yard, ["API", "POST", f"{QUEUE}/jobs", "{}"]),
    "HTTP": lambda yard: ApiClient(yard).call("POST", f"{QUEUE}/jobs", {}).ok(),
    "HTTP, lines": lambda yard: ApiClient(yard).batch("q", [{}]).ok(),
    "HTTP, schedule": lambda yard: tick(yard, {}),
    "client.push": lambda yard: send(yard, commands.push(NewJob("q")).words),
    "client.push_all": lambda yard: send(yard, commands.push_all([NewJob("q")]).words),
    "client.push_many": feed,
    "client.set_schedule": lambda yard: tick(yard, schedule_body("", "q", {"every": 60})),
    "cli push": cli_job,
    "cli schedules": cli_schedule,
    "task": lambda yard: send(yard, commands.push(task().new_job((), {})).words),
    "task, schedule": task_schedule,
}


def lived(yard: SimulatedServer, restart: bool = False) -> tuple[int, list[float]]:
    """How often the one job of the queue is taken until it has failed, and what it waits for."""
    pauses: list[float] = []
    peer = yard.connect("resp")
    for attempt in range(1, 50):
        job = take(peer)
        assert job.attempt == attempt
        outcome = ask(peer, "JOB.FAIL", job.ref, "no")
        if outcome == "failed":
            return attempt, pauses
        known = yard.engine.job(job.id)
        pauses.append((known.order_key - yard.clock.now()) / SECOND if outcome == "delayed" else 0)
        if restart:
            yard.restart()
            peer = yard.connect("resp")
        yard.advance(pauses[-1])
    raise AssertionError("it never fails for good")


@pytest.mark.parametrize("restart", [False, True])
@pytest.mark.parametrize("door", OURS)
def test_a_push_that_says_nothing_is_the_same_through_every_door(door: str, restart: bool) -> None:
    yard = SimulatedServer()
    OURS[door](yard)
    attempts, pauses = lived(yard, restart)
    assert attempts == 4
    for pause, longest in zip(pauses, (1, 2, 4), strict=True):
        assert longest / 2 <= pause <= longest


def test_the_pauses_of_two_jobs_differ_and_a_seed_gives_the_same_again() -> None:
    seen = []
    for seed in (1, 2, 1):
        yard = SimulatedServer(seed=seed)
        OURS["JOB.PUSH"](yard)
        seen.append(lived(yard))
    assert seen[0] == seen[2] != seen[1]


@pytest.mark.parametrize("door", OURS)
def test_the_settings_of_a_queue_count_more_than_the_default(door: str) -> None:
    yard = SimulatedServer()
    settings = {"retries": 1, "backoff": "exponential", "backoff_base": 100, "backoff_cap": 100}
    ApiClient(yard).call("PUT", QUEUE, settings).ok()
    OURS[door](yard)
    attempts, [pause] = lived(yard)
    assert attempts == 2
    assert 50 <= pause <= 100


@pytest.mark.parametrize("door", OURS)
def test_a_queue_is_given_other_settings_while_its_jobs_wait(door: str) -> None:
    yard = SimulatedServer()
    OURS[door](yard)
    ApiClient(yard).call("PUT", QUEUE, {"retries": 5, "backoff": "none"}).ok()
    assert lived(yard) == (6, [0] * 5)


def test_a_queue_that_says_exponential_alone_has_the_first_pause_of_the_default() -> None:
    yard = SimulatedServer()
    ApiClient(yard).call("PUT", QUEUE, {"backoff": "exponential"}).ok()
    OURS["HTTP"](yard)
    attempts, pauses = lived(yard)
    assert (attempts, [round(pause + 0.5) > 0 for pause in pauses]) == (4, [True] * 3)


SAYING: dict[str, Callable[[SimulatedServer, int, float], None]] = {
    "JOB.PUSH": lambda yard, retries, first: send(
        yard, ["JOB.PUSH", "q", "x", "FAILS", retries + 1, "BACKOFF", round(first * 1000), 5000]
    ),
    "HTTP": lambda yard, retries, first: (
        ApiClient(yard)
        .call(
            "POST",
            f"{QUEUE}/jobs",
            {"max_fails": retries + 1, "backoff_base": first, "backoff_cap": 5},
        )
        .ok()
    ),
    "HTTP, schedule": lambda yard, retries, first: tick(
        yard,
        {
            "max_fails": retries + 1,
            "backoff": "exponential",
            "backoff_base": first,
            "backoff_cap": 5,
        },
    ),
    "client.push": lambda yard, retries, first: send(
        yard, commands.push(NewJob("q", retries=retries, backoff=(first, 5))).words
    ),
    "client.set_schedule": lambda yard, retries, first: tick(
        yard,
        schedule_body("", "q", {"every": 60, "retries": retries, "backoff": (first, 5)}),
    ),
    "cli push": lambda yard, retries, first: send(
        yard,
        commands.push(
            NewJob(
                "q",
                **cli_push._options(
                    Spoken(
                        arguments(
                            cli_push,
                            "q",
                            "x",
                            *("--retries", str(retries), "--backoff", f"{first}s,5s"),
                        )
                    )
                ),
            ),
        ).words,
    ),
    "cli schedules": lambda yard, retries, first: tick(
        yard,
        cli_schedules._settings(
            Spoken(
                arguments(
                    cli_schedules,
                    *("set", "s", "--every", "60s", "q"),
                    *("--retries", str(retries), "--backoff", f"{first}s,5s"),
                )
            )
        ),
    ),
    "task": lambda yard, retries, first: send(
        yard,
        commands.push(task().with_options(retry=retries, backoff=(first, 5)).new_job((), {})).words,
    ),
}


@pytest.mark.parametrize("door", SAYING)
def test_what_a_push_says_counts_most(door: str) -> None:
    yard = SimulatedServer()
    ApiClient(yard).call("PUT", QUEUE, {"retries": 9, "backoff": "none"}).ok()
    SAYING[door](yard, 2, 3)
    attempts, pauses = lived(yard)
    assert attempts == 3
    assert [low <= pause <= 2 * low for low, pause in zip((1.5, 2.5), pauses, strict=True)] == [
        True,
        True,
    ]


@pytest.mark.parametrize("door", SAYING)
def test_a_push_may_say_that_there_is_no_pause(door: str) -> None:
    yard = SimulatedServer()
    settings = {"retries": 9, "backoff": "exponential", "backoff_base": 100}
    ApiClient(yard).call("PUT", QUEUE, settings).ok()
    SAYING[door](yard, 2, 0)
    assert lived(yard) == (3, [0, 0])


@pytest.mark.parametrize("kind", ["none", "quartic"])
def test_the_api_has_other_kinds_of_pauses(kind: str) -> None:
    yard = SimulatedServer()
    ApiClient(yard).call("POST", f"{QUEUE}/jobs", {"backoff": kind}).ok()
    attempts, pauses = lived(yard)
    assert attempts == 4
    assert [round(pause) for pause in pauses] == ([0] * 3 if kind == "none" else [1, 16, 81])


@pytest.mark.parametrize("field", ["backoff_base", "backoff_cap"])
def test_the_length_of_pauses_that_are_not_exponential_is_refused(field: str) -> None:
    for path, method, body in (
        (f"{QUEUE}/jobs", "POST", {}),
        (SCHEDULE, "PUT", {"queue": "q", "every": 60}),
    ):
        body |= {"backoff": "quartic", field: 1}
        ApiClient(SimulatedServer()).call(method, path, body).problem(400, "invalid-value", field)


def test_a_worker_that_says_when_does_not_say_how_often() -> None:
    yard = SimulatedServer()
    OURS["JOB.PUSH"](yard)
    peer = yard.connect("resp")
    for _ in range(3):
        assert ask(peer, "JOB.FAIL", take(peer).ref, "no", "IN", 0) == "ready"
    assert ask(peer, "JOB.FAIL", take(peer).ref, "no", "IN", 0) == "failed"


# What the protocols of others say


def test_an_element_of_a_list_has_one_try() -> None:
    yard = SimulatedServer()
    ask(yard.connect("resp"), "RPUSH", "q", "x")
    assert lived(yard) == (1, [])


def test_an_item_has_one_try() -> None:
    yard = SimulatedServer()
    peer = yard.connect("resp")
    ask(peer, "UPDATE", "x", 1)
    [job] = take_many(peer, "pqueue")
    assert ask(peer, "JOB.FAIL", job.ref, "no") == "failed"


def test_a_job_of_workq_has_one_try() -> None:
    yard = SimulatedServer()
    peer = yard.connect("workq")
    peer.send(b"add 6ba7b810-9dad-41d1-80b4-00c04fd430c8 q 60000 600000 1\r\nx\r\n")
    peer.expect(b"+OK\r\n")
    assert lived(yard) == (1, [])


def test_a_task_of_masenko_has_its_twenty_retries() -> None:
    yard = SimulatedServer()
    peer = yard.connect("masenko")
    peer.send(b'PUSH {"name": "x", "queue": "q"}\n')
    yard.run_pending()
    attempts, pauses = lived(yard)
    assert attempts == 21
    assert [round(pause) for pause in pauses] == [number**4 for number in range(1, 21)]


# What is shown


def test_what_holds_is_shown(yard: SimulatedServer) -> None:
    api = ApiClient(yard)
    OURS["JOB.PUSH"](yard)
    assert api.job(1)["max_fails"] == 4
    api.call("PUT", QUEUE, {"retries": 7}).ok()
    assert api.job(1)["max_fails"] == 8
    workq = yard.connect("workq")
    workq.send(b"inspect job %b\r\n" % api.job(1)["uid"].encode())
    assert b"\r\nmax-fails 8\r\n" in workq.take()


def test_a_schedule_that_says_nothing_shows_that(yard: SimulatedServer) -> None:
    api = ApiClient(yard)
    shown = api.call("PUT", SCHEDULE, {"queue": "q", "every": 60}).ok()
    assert (shown["max_fails"], shown["backoff"]) == (None, None)
    body = {"queue": "q", "every": 60, "backoff": "none", "max_fails": 2}
    shown = api.call("PUT", SCHEDULE, body).ok()
    assert (shown["max_fails"], shown["backoff"]) == (2, "none")
