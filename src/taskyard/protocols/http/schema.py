"""The OpenAPI document of the API, made from its operations and the types of their messages."""

from __future__ import annotations

import re
import types
from typing import Any, Final, get_args

import msgspec

from taskyard import __version__
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
from taskyard.protocols.http.call import NDJSON, Operation, QueryParameter
from taskyard.protocols.http.problems import CONTENT_TYPE

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
