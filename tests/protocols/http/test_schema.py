"""The OpenAPI document is true: requests made up from it, against a real server."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, settings
from schemathesis.specs.openapi.checks import negative_data_rejection, positive_data_acceptance
from support.api import ApiClient
from support.effort import effort
from support.process import WarmServer
from support.simulated import SimulatedServer
from support.sockets import HANG_GUARD


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WarmServer]:
    with WarmServer(tmp_path_factory.mktemp("server")) as running:
        yield running
        assert "Traceback" not in running.log_text()


@schemathesis.serializer("application/x-ndjson")
def as_lines(_: Any, value: Any) -> bytes:
    return value.encode() if isinstance(value, str) else json.dumps(value).encode()


schema = schemathesis.openapi.from_dict(
    ApiClient(SimulatedServer()).get("/api/v1/openapi.json").ok()
)
schema.config.request_timeout = HANG_GUARD  # its own ten seconds are few for a disk that stalls


@schema.parametrize()
@settings(
    max_examples=effort(15, 6),
    deadline=None,
    derandomize=True,
    suppress_health_check=list(HealthCheck),
)
def test_answers_are_as_the_document_says(case: Any, server: WarmServer) -> None:
    excluded = []
    if "cursor" in (case.query or {}):  # opaque: any that no page gave is refused
        excluded.append(positive_data_acceptance)
    if case.operation.label == "PUT /api/v1/schedules/{schedule}":
        excluded.append(positive_data_acceptance)  # few texts are an expression or a time zone
    if (
        case.media_type == "application/x-ndjson"
    ):  # the document cannot say more of it than that it is text
        excluded += [negative_data_rejection, positive_data_acceptance]
    host, port = server.address("http")
    case.call_and_validate(base_url=f"http://{host}:{port}", excluded_checks=excluded)
