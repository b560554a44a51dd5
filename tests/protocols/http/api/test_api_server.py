"""The JSON API: the server's page, the document, and what a failing disk means."""

import re
from pathlib import Path
from typing import Any

import pytest
from support.api import ApiClient
from support.json_schema import matches, resolve
from support.lake_view import lake_view
from support.simulated import SimulatedServer

import taskyard
from taskyard.broker import metrics
from taskyard.protocols.http.api.problems import KINDS
from taskyard.protocols.http.routing import problems_of


@pytest.fixture
def yard() -> SimulatedServer:
    return SimulatedServer()


@pytest.fixture
def api(yard: SimulatedServer) -> ApiClient:
    return ApiClient(yard)


# The server's page


def test_the_server_tells_about_itself(yard: SimulatedServer, api: ApiClient) -> None:
    api.push(text="x" * 1000)
    yard.advance(90)
    server = api.get("/api/v1/server").ok()
    assert (server["version"], server["form"]) == (taskyard.__version__, metrics.form())
    assert (server["uptime"], server["durability"]) == (90, "sync")
    assert (server["jobs"], server["queues"], server["epoch"]) == (1, 1, 1)
    assert (server["accepting"], server["refusing"]) == (True, None)
    assert server["connections"] == {"workq": 1}
    journal = server["journal"]
    assert journal["bytes"] > journal["live_bytes"] > 1000
    assert (journal["segments"], journal["records"]) == (1, 2)
    assert server["memory"]["resident"] >= 0
    yard.restart()
    api.push()
    server = api.get("/api/v1/server").ok()
    assert (server["uptime"], server["epoch"], server["journal"]["segments"]) == (0, 2, 2)


def test_the_lake_beside_it_is_shown(api: ApiClient) -> None:
    assert api.get("/api/v1/server").ok()["lake"] is None
    assert "--lake" in api.get("/api/v1/lake").problem(404, "no-lake")["detail"]
    api.lake = lake_view(running=True)
    shown = api.get("/api/v1/lake").ok()
    assert (shown["running"], shown["pid"], shown["error"]) == (True, 4711, None)
    assert (shown["lag_records"], shown["lag_seconds"]) == (7, 2.5)
    assert api.get("/api/v1/server").ok()["lake"] == shown


# The document


def all_objects(value: Any) -> list[dict[str, Any]]:
    if isinstance(value, list):
        return [found for item in value for found in all_objects(item)]
    if isinstance(value, dict):
        return [value, *(found for item in value.values() for found in all_objects(item))]
    return []


def test_the_document_has_every_route_and_no_other(api: ApiClient) -> None:
    document = api.get("/api/v1/openapi.json").ok()
    described = {
        (method.upper(), path) for path, methods in document["paths"].items() for method in methods
    }
    routes = {(route.method, route.pattern) for route in api.api().routes()}
    assert described == routes
    assert len(routes) == len(api.api().routes())


def test_the_document_has_every_parameter_and_problem(api: ApiClient) -> None:
    document = api.get("/api/v1/openapi.json").ok()
    for operation in api.api().operations:
        described = document["paths"][operation.pattern][operation.method.lower()]
        names = {(found["in"], found["name"]) for found in described["parameters"]}
        in_path = {("path", name) for name in re.findall(r"\{(\w+)\}", operation.pattern)}
        assert names == in_path | {("query", parameter.name) for parameter in operation.query}
        statuses = {str(KINDS[kind].status) for kind in problems_of(operation)}
        assert set(described["responses"]) == statuses | {str(key) for key in operation.answers}
        assert ("requestBody" in described) == bool(operation.bodies)


def test_the_document_holds_together(api: ApiClient) -> None:
    document = api.get("/api/v1/openapi.json").ok()
    assert document["openapi"] == "3.1.0"
    assert document["info"]["version"] == taskyard.__version__
    for found in all_objects(document):
        if isinstance(found.get("$ref"), str):
            resolve(found["$ref"], document)
    names = [
        operation["operationId"]
        for methods in document["paths"].values()
        for operation in methods.values()
    ]
    assert len(set(names)) == len(names)


def test_all_objects_in_the_document_are_closed(api: ApiClient) -> None:
    schemas = api.get("/api/v1/openapi.json").ok()["components"]["schemas"]
    for name, schema in schemas.items():
        if schema["type"] == "object":
            assert schema["additionalProperties"] is False, name


@pytest.mark.parametrize(
    "expiry", [None, 0, 1e-42, 0.001, 1 - 1e-9, 1, 1.5, 1_000_000_000, 1_000_000_001]
)
def test_the_document_knows_when_idle_queues_may_go(api: ApiClient, expiry: float | None) -> None:
    document = api.get("/api/v1/openapi.json").ok()
    body = {"idle_expiry": expiry}
    reply = api.call("PUT", "/api/v1/queues/mail", body)
    assert matches(body, document["components"]["schemas"]["Settings"], document) == (
        reply.status == 201
    )


def test_the_page_for_people_has_every_route_and_problem(api: ApiClient) -> None:
    page = (Path(__file__).parents[4] / "docs" / "api.md").read_text(encoding="utf-8")
    for kind, (status, _) in KINDS.items():
        assert f"| `urn:taskyard:problem:{kind}` | {status} |" in page
    shown = page.replace("`, `/resume`", "`\n`POST /api/v1/queues/{queue}/resume`")
    for route in api.api().routes():
        assert f"`{route.method} {route.pattern}`" in shown, route


# A disk that fails or is full


def test_nothing_is_promised_once_the_disk_has_failed(
    yard: SimulatedServer, api: ApiClient
) -> None:
    id = api.push()
    yard.disk.fail_always("sync")
    exchange = api.begin("POST", "/api/v1/queues/mail/jobs", {})
    yard.run_pending()
    assert exchange.aborted
    assert not exchange.sent
    api.post("/api/v1/queues/mail/jobs", {}).problem(503, "read-only")
    api.get(f"/api/v1/jobs/{id}").problem(503, "read-only")
    api.get("/api/v1/queues").problem(503, "read-only")
    server = api.get("/api/v1/server").ok()
    assert not server["accepting"]
    assert "journal cannot be written" in server["refusing"]
    api.get("/api/v1/openapi.json").ok()


def test_pushes_are_refused_while_the_disk_is_full(yard: SimulatedServer, api: ApiClient) -> None:
    id = api.push()
    yard.engine.journal_space.push_refusal = "the disk is full"
    body = api.post("/api/v1/queues/mail/jobs", {}).problem(507, "no-space")
    assert "the disk is full" in body["detail"]
    api.batch("mail", [{}, {}]).problem(507, "no-space")
    api.call("PUT", "/api/v1/queues/new", {}).problem(507, "no-space")
    assert api.get("/api/v1/server").ok()["refusing"] == "the disk is full"
    assert api.call("DELETE", f"/api/v1/jobs/{id}").status == 204
    yard.engine.journal_space.push_refusal = ""
    api.push()


def test_a_failure_in_the_middle_of_a_purge_says_how_far_it_came(
    yard: SimulatedServer, api: ApiClient
) -> None:
    api.batch("mail", [{}] * 2000).ok()
    exchange = api.begin("POST", "/api/v1/queues/mail/purge", {"states": ["ready"]})
    yard.engine.read_only_reason = "the disk is gone"
    yard.run_pending()
    body = api.finish(exchange).problem(503, "read-only")
    assert body["done"] == 500
