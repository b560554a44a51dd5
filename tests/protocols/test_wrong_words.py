"""A word of ours that is wrong is named in the refusal, with the words that there are."""

import json
from typing import Any

import pytest
from support.api import ApiClient
from support.replies_resp import ask, refused
from support.simulated import SimulatedServer

from taskyard.protocols.http.monitoring.events import InvalidEventQuery, parse_event_query
from taskyard.protocols.http.wire import Request
from taskyard.shared.misspelt import closest_name

QUEUE = "/api/v1/queues/q"


@pytest.fixture
def yard() -> SimulatedServer:
    return SimulatedServer()


@pytest.fixture
def api(yard: SimulatedServer) -> ApiClient:
    return ApiClient(yard)


@pytest.mark.parametrize(
    ("word", "known", "found"),
    [
        ("RETRIES", ["NAME", "FAILS"], "FAILS"),
        ("retries", ["name", "max_fails"], "max_fails"),
        ("max_fails", ["RETRIES", "NAME"], "RETRIES"),
        ("priorty", ["PRIORITY", "NAME"], "PRIORITY"),
        ("colour", ["PRIORITY", "NAME"], ""),
        ("", ["NAME"], ""),
        ("x" * 100_000, ["NAME"], ""),
        ("anything", [], ""),
    ],
)
def test_the_word_that_was_meant_is_guessed(word: str, known: list[str], found: str) -> None:
    assert closest_name(word, known) == found


# RESP


def test_a_word_of_a_push_on_the_wire(yard: SimulatedServer) -> None:
    peer = yard.connect("resp")
    peer.send(b"JOB.PUSH q x RETRIES 3\r\nPING\r\n")
    peer.expect(
        b"-ERR JOB.PUSH has no word 'RETRIES': did you mean FAILS? It has NAME, UID, PRIORITY, AT,"
        b" IN, TTR, TTL, ATTEMPTS, FAILS, BACKOFF, DEAD, KEY, AFTER, LIMIT\r\n+PONG\r\n"
    )


def test_a_word_with_line_ends_is_no_other_reply(yard: SimulatedServer) -> None:
    text = refused(yard.connect("resp"), "JOB.PUSH", "q", "x", b"A\r\n+OK", 1)
    assert "A  +OK" in text


def test_a_long_word_is_cut(yard: SimulatedServer) -> None:
    text = refused(yard.connect("resp"), "JOB.PUSH", "q", "x", "W" * 100_000)
    assert len(text) < 500


@pytest.mark.parametrize(
    ("command", "known", "rather"),
    [
        ("JOB.PSH", "JOB.PUSH, JOB.DONE", "JOB.PUSH"),
        ("job.donne", "JOB.PUSH, JOB.DONE", "JOB.DONE"),
        ("BATCH.READS", "BATCH.CLAIM, BATCH.LEASE", "BATCH.READ"),
        ("JOB.", "JOB.PUSH, JOB.DONE", ""),
    ],
)
def test_a_command_of_ours_that_is_not_there(
    yard: SimulatedServer, command: str, known: str, rather: str
) -> None:
    text = refused(yard.connect("resp"), command, "q")
    assert text.startswith(f"ERR unknown command '{command}'")
    assert f"There are {known}" in text
    assert rather in text


def test_other_commands_that_are_not_there_are_refused_as_redis_does(yard: SimulatedServer) -> None:
    text = refused(yard.connect("resp"), "FT.SEARCH", "q")
    assert text == "ERR unknown command 'FT.SEARCH', with args beginning with: 'q' "


@pytest.mark.parametrize("command", ["CLIENT", "COMMAND", "CONFIG", "SLOWLOG"])
def test_a_help_that_is_advertised_is_there(yard: SimulatedServer, command: str) -> None:
    peer = yard.connect("resp")
    assert refused(peer, command, "NONSENSE").endswith(f"Try {command} HELP.")
    first, *lines = ask(peer, command, "HELP")
    assert first.startswith(f"{command} ")
    for line in lines:
        if line.startswith(" ") or line == "HELP":
            continue
        word = line.split(" ")[0]
        arguments = ["ON"] if "(ON|OFF)" in line else ["a"] * line.count("<")
        ask(peer, command, word, *arguments)


# HTTP


@pytest.mark.parametrize(
    ("method", "path", "body", "field", "detail"),
    [
        (
            "POST",
            f"{QUEUE}/jobs",
            {"retries": 3},
            "retries",
            "There is no field `retries`: did you mean max_fails? There are payload, text, ",
        ),
        (
            "PUT",
            QUEUE,
            {"max_fails": 3},
            "max_fails",
            "There is no field `max_fails`: did you mean retries? There are retries, ",
        ),
        (
            "PUT",
            QUEUE,
            {"rate": {"cuont": 3}},
            "rate",
            "There is no field `cuont` in rate: did you mean count? There are count, per.",
        ),
        (
            "PUT",
            QUEUE,
            {"backoff": "expnential"},
            "backoff",
            "Invalid enum value 'expnential' in backoff: did you mean exponential? There are ",
        ),
        (
            "POST",
            f"{QUEUE}/purge",
            {"states": ["ready", "done"]},
            "states",
            "Invalid enum value 'done' in states[1]. There are blocked, delayed, ready, leased, ",
        ),
        (
            "PUT",
            "/api/v1/schedules/s",
            {"queue": "q", "crn": "* * * * *"},
            "crn",
            "There is no field `crn`: did you mean cron? There are queue, cron, every, ",
        ),
    ],
)
def test_a_wrong_field_names_those_that_there_are(
    yard: SimulatedServer,
    api: ApiClient,
    method: str,
    path: str,
    body: Any,
    field: str,
    detail: str,
) -> None:
    api.push("q")
    told = api.call(
        method, path, body=json.dumps(body).encode(), content_type="application/json"
    ).problem(400, "invalid-value", field)
    assert told["detail"].startswith(detail)


def test_a_wrong_field_of_a_line_names_those_that_there_are(api: ApiClient) -> None:
    told = api.batch("q", [{}, {"retries": 3}]).problem(400, "invalid-value", "retries")
    assert told["line"] == 2
    assert told["detail"].startswith("Line 2: There is no field `retries`: did you mean max_fails?")


def test_a_wrong_parameter_names_those_that_there_are(api: ApiClient) -> None:
    told = api.get("/api/v1/queues", lmit="3").problem(400, "invalid-value", "lmit")
    assert told["detail"] == (
        "There is no parameter lmit here: did you mean limit? There are limit, cursor."
    )
    told = api.get("/api/v1/server", verbose="1").problem(400, "invalid-value", "verbose")
    assert told["detail"] == "There is no parameter verbose here. There are none."


def test_a_wrong_parameter_of_the_events_names_those_that_there_are() -> None:
    request = Request("GET", "/api/v1/events", {"queues": "mail"}, {}, b"", "here")
    with pytest.raises(InvalidEventQuery) as refused:
        parse_event_query(request, "t", 1)
    assert str(refused.value) == (
        "there is no parameter queues here: did you mean queue? "
        "There are after, event, queue, until"
    )
