"""From a method and a path to the handler that answers."""

from __future__ import annotations

import re
import types
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, Final, get_args
from urllib.parse import unquote

import msgspec

from taskyard import __version__
from taskyard.access.principal import INSPECT, Allow, check_rules
from taskyard.access.sessions import BrowserSessions
from taskyard.broker.commit import Broker
from taskyard.broker.interfaces import Scheduler
from taskyard.protocols.http.api.dead_letters import DeadLetterOperations
from taskyard.protocols.http.api.jobs import JobEventOperations, JobOperations
from taskyard.protocols.http.api.journal import (
    ConsumerOperations,
    JournalOperations,
    ReaderOperations,
)
from taskyard.protocols.http.api.problems import (
    BAD_REQUEST,
    DENIED,
    INVALID_VALUE,
    KINDS,
    MEDIA_TYPE,
    NO_SPACE,
    READ_ONLY,
    TOO_LARGE,
    UNAUTHENTICATED,
    ProblemDetails,
)
from taskyard.protocols.http.api.push import PushOperations
from taskyard.protocols.http.api.queues import QueueOperations, SortedQueueNames
from taskyard.protocols.http.api.schedules import ScheduleOperations
from taskyard.protocols.http.api.search import SearchOperations
from taskyard.protocols.http.api.server import (
    Connections,
    Durability,
    HistoryOperations,
    LakeBackend,
    LakeOperations,
    LakeStatus,
    Listeners,
    ServerOperations,
    SessionOperations,
    SlowOperations,
    no_lake_status,
)
from taskyard.protocols.http.call import NDJSON, ApiCall, Operation, QueryParameter
from taskyard.protocols.http.monitoring.history import History
from taskyard.protocols.http.monitoring.watch import StatsSampler
from taskyard.protocols.http.wire import CONTENT_TYPE, Exchange, Handler, Response, Route


class NoRoute(Exception):
    """No route has this path; or, if `allowed` is not empty, this method."""

    def __init__(self, allowed: list[str]) -> None:
        super().__init__()
        self.allowed = allowed


class _Node:
    """One segment of the paths of the routes."""

    def __init__(self) -> None:
        self.children: dict[str, _Node] = {}
        self.wildcard: _Node | None = None  # for a {name}
        self.handlers: dict[str, tuple[Handler, list[str]]] = {}  # by method, with its {names}


class Router:
    """A tree of segments; a literal one wins over a {name}."""

    def __init__(self, routes: Iterable[Route] = ()) -> None:
        self._root = _Node()
        for route in routes:
            self.add(route)

    def add(self, route: Route) -> None:
        node = self._root
        names: list[str] = []
        for segment in _segments(route.pattern):
            if segment.startswith("{"):
                names.append(segment[1:-1])
                if node.wildcard is None:
                    node.wildcard = _Node()
                node = node.wildcard
            else:
                node = node.children.setdefault(segment, _Node())
        if route.method in node.handlers:
            raise ValueError(f"two routes for {route.method} {route.pattern}")
        node.handlers[route.method] = (route.handler, names)

    def find(self, method: str, path: str) -> tuple[Handler, dict[str, str]]:
        """The handler, and what the {names} of its pattern stand for; `path` is still encoded."""
        segments = _segments(path)
        allowed: set[str] = set()
        for node, values in _matching_nodes(self._root, segments, 0, []):
            found = node.handlers.get(method) or (
                node.handlers.get("GET") if method == "HEAD" else None
            )
            if found is not None:
                handler, names = found
                return handler, dict(zip(names, values, strict=True))
            allowed.update(node.handlers)
        if "GET" in allowed:
            allowed.add("HEAD")
        raise NoRoute(sorted(allowed))


def _segments(path: str) -> list[str]:
    return path.strip("/").split("/")


def _matching_nodes(
    node: _Node, segments: list[str], at: int, values: list[str]
) -> Iterable[tuple[_Node, list[str]]]:
    if at == len(segments):
        if node.handlers:
            yield node, values
        return
    segment = segments[at]
    child = node.children.get(segment)
    if child is not None:
        yield from _matching_nodes(child, segments, at + 1, values)
    if node.wildcard is not None and segment:
        yield from _matching_nodes(node.wildcard, segments, at + 1, [*values, unquote(segment)])


# The OpenAPI document of the API, made from its operations and the types of their messages

_REF: Final = "#/components/schemas/{name}"
_PARAMETER: Final = re.compile(r"\{(\w+)\}")

_PATH: Final[dict[str, dict[str, Any]]] = {
    "queue": {
        "description": "The queue's name: 1 to 255 bytes of UTF-8 without spaces and control "
        "characters.",
        "schema": {"$ref": "#/components/schemas/QueueName"},
    },
    "schedule": {
        "description": "The schedule's name: 1 to 255 bytes of UTF-8 without spaces and control "
        "characters.",
        "schema": {"$ref": "#/components/schemas/QueueName"},
    },
    "reader": {
        "description": "The reader's name: 1 to 255 bytes of UTF-8 without spaces and control "
        "characters.",
        "schema": {"$ref": "#/components/schemas/QueueName"},
    },
    "consumer": {
        "description": "The consumer's name: 1 to 255 bytes of UTF-8 without spaces and control "
        "characters.",
        "schema": {"$ref": "#/components/schemas/QueueName"},
    },
    "base": {
        "description": "The segment's base, as the journal's page gives it.",
        "schema": {"type": "integer", "minimum": 0, "maximum": 2**63 - 1},
    },
    "job": {
        "description": "The job's id, or its uid.",
        "schema": {
            "type": "string",
            "pattern": "^([0-9]{1,19}|[0-9A-Fa-f]{8}(-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12})$",
        },
    },
}

# What the types cannot express: fields that exclude each other, or that must be set together.
_RULES: Final[dict[str, dict[str, Any]]] = {
    "Push": {
        "not": {
            "anyOf": [
                {"required": ["payload", "text"]},
                {"required": ["payload", "base64"]},
                {"required": ["text", "base64"]},
                {"required": ["run_at", "delay"]},
            ]
        }
    },
    "PurgeDead": {"not": {"required": ["ids", "reason"]}},
    "Replay": {
        "oneOf": [
            {"required": ["ids"], "properties": {"all": {"const": False}, "reason": False}},
            {"required": ["all"], "properties": {"all": {"const": True}, "ids": False}},
        ]
    },
}
_RULES["Login"] = {
    "oneOf": [
        {"required": ["user", "password"], "properties": {"token": {"type": "null"}}},
        {
            "required": ["token"],
            "properties": {"user": {"type": "null"}, "password": {"type": "null"}},
        },
    ]
}
_RULES["BatchPush"] = _RULES["Push"]
_RULES["Schedule"] = {
    "oneOf": [{"required": ["cron"]}, {"required": ["every"]}],
    "not": {
        "anyOf": [
            {"required": ["payload", "text"]},
            {"required": ["payload", "base64"]},
            {"required": ["text", "base64"]},
        ]
    },
}


def openapi_document(operations: list[Operation]) -> bytes:
    kinds = [ProblemDetails]
    for operation in operations:
        for _, answer in operation.answers.values():
            kinds += _union_members(answer)
        kinds += operation.bodies.values()
    structs = [kind for kind in dict.fromkeys(kinds) if isinstance(kind, type(msgspec.Struct))]
    _, schemas = msgspec.json.schema_components(structs, ref_template=_REF)
    for name, rule in _RULES.items():
        schemas[name] |= rule
    schemas["QueueName"] = schemas["QueueView"]["properties"]["name"]
    paths: dict[str, dict[str, Any]] = {}
    for operation in operations:
        paths.setdefault(operation.pattern, {})[operation.method.lower()] = _operation(operation)
    return msgspec.json.encode(
        {
            "openapi": "3.1.0",
            "info": {
                "title": "Taskyard",
                "version": __version__,
                "description": "Queues and jobs of a Taskyard server, over HTTP.",
            },
            "paths": paths,
            "components": {"schemas": schemas},
        }
    )


def _union_members(kind: Any) -> list[Any]:
    """The types of a union, or the one type."""
    return list(get_args(kind)) if isinstance(kind, types.UnionType) else [kind]


def _operation(operation: Operation) -> dict[str, Any]:
    path = [
        {"name": name, "in": "path", "required": True, **_PATH[name]}
        for name in _PARAMETER.findall(operation.pattern)
    ]
    query = [_parameter(parameter) for parameter in operation.query]
    found: dict[str, Any] = {
        "operationId": operation.name,
        "summary": operation.summary + ".",
        "parameters": [*path, *query],
        "responses": {
            **{str(status): _answer(*answer) for status, answer in operation.answers.items()},
            **_problems(operation),
        },
    }
    if operation.bodies:
        content = {
            media: {"schema": _body(media, kind)} for media, kind in operation.bodies.items()
        }
        found["requestBody"] = {"required": True, "content": content}
    return found


def _body(media: str, kind: type) -> dict[str, Any]:
    if media == NDJSON:
        return {
            "type": "string",
            "description": "Lines of JSON, one job on each.",
            "contentMediaType": NDJSON,
            "contentSchema": _schema(kind),
        }
    return _schema(kind)


def _schema(kind: Any) -> dict[str, Any]:
    members = _union_members(kind)
    if len(members) > 1:
        return {"oneOf": [_schema(member) for member in members]}
    if kind is dict:
        return {"type": "object"}
    return {"$ref": _REF.format(name=kind.__name__)}


def _answer(meaning: str, kind: Any) -> dict[str, Any]:
    if kind is None:
        return {"description": meaning}
    if kind is bytes:
        return {"description": meaning, "content": {"application/octet-stream": {}}}
    return {"description": meaning, "content": {"application/json": {"schema": _schema(kind)}}}


def _parameter(parameter: QueryParameter) -> dict[str, Any]:
    schema: dict[str, Any]
    if parameter.most:
        schema = {"type": "integer", "minimum": parameter.least, "maximum": parameter.most}
    elif parameter.of_queue:
        schema = {"$ref": "#/components/schemas/QueueName"}
    else:
        schema = {"type": "string"}
    if parameter.values:
        schema["enum"] = list(parameter.values)
    if parameter.default is not None:
        schema["default"] = parameter.default
    return {
        "name": parameter.name,
        "in": "query",
        "required": False,
        "description": parameter.doc + ".",
        "schema": schema,
    }


def problems_of(operation: Operation) -> list[str]:
    """All that it may answer with: its own, and those of all operations like it."""
    kinds = [UNAUTHENTICATED, DENIED, INVALID_VALUE, *operation.problems]
    if operation.bodies:
        kinds += [BAD_REQUEST, MEDIA_TYPE, TOO_LARGE]
    if operation.reads_state:
        kinds.append(READ_ONLY)
    if operation.method != "GET":
        kinds.append(NO_SPACE)
    return list(dict.fromkeys(kinds))


def _problems(operation: Operation) -> dict[str, Any]:
    titles: dict[str, list[str]] = {}
    for kind in problems_of(operation):
        titles.setdefault(str(KINDS[kind].status), []).append(f"{KINDS[kind].title} ({kind}).")
    schema = {"schema": _schema(ProblemDetails)}
    return {
        status: {"description": " ".join(said), "content": {CONTENT_TYPE: schema}}
        for status, said in sorted(titles.items())
    }


# The JSON API: all its routes, and the document that describes them


class ApiRoutes:
    def __init__(
        self,
        broker: Broker,
        scheduler: Scheduler,
        *,
        durability: Durability,
        max_losses: int,
        connections: Connections = dict,
        listeners: Listeners = dict,
        users: Callable[[], int] = int,
        lake_status: LakeStatus = no_lake_status,
        backend: LakeBackend | None = None,
        sessions: BrowserSessions | None = None,
        secure: bool = False,
        history: History | None = None,
        allow: Allow = check_rules,
    ) -> None:
        self._broker = broker
        self._allow = allow
        names = SortedQueueNames(broker)
        pushing = PushOperations(max_losses, scheduler)
        if history is None:  # one that nothing is put into
            history = History(StatsSampler(broker, scheduler), scheduler)
        self.operations: list[Operation] = [
            *QueueOperations(names, scheduler).operations(),
            *pushing.operations(),
            *JobOperations(names).operations(),
            *SearchOperations(names, scheduler).operations(),
            *JobEventOperations(scheduler).operations(),
            *HistoryOperations(history).operations(),
            *DeadLetterOperations(scheduler).operations(),
            *ScheduleOperations(pushing).operations(),
            *ServerOperations(
                broker, durability, connections, listeners, users, lake_status
            ).operations(),
            *SlowOperations(broker).operations(),
            *LakeOperations(lake_status, backend).operations(),
            *JournalOperations(scheduler).operations(),
            *ReaderOperations().operations(),
            *ConsumerOperations(scheduler).operations(),
            *SessionOperations(sessions, secure=secure).operations(),
            Operation(
                method="GET",
                pattern="/api/v1/openapi.json",
                name="getDocument",
                summary="This document",
                action=INSPECT,
                run=self._show_document,
                checks_queues_itself=True,
                answers={200: ("OpenAPI 3.1.", dict)},
                reads_state=False,
            ),
        ]
        self._document = b""

    def routes(self) -> list[Route]:
        return [self._route(operation) for operation in self.operations]

    def routes_without_cookies(self) -> list[Route]:
        """Those that make sense without cookies."""
        return [self._route(each) for each in self.operations if not each.for_everybody]

    def _route(self, operation: Operation) -> Route:
        return Route(operation.method, operation.pattern, partial(self._handle, operation))

    def _handle(self, operation: Operation, exchange: Exchange) -> None:
        ApiCall(self._broker, self._allow, operation, exchange).start()

    def _show_document(self, call: ApiCall) -> None:
        if not self._document:
            self._document = openapi_document(self.operations)
        call.reply(Response(200, self._document))
