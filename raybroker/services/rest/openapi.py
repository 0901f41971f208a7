"""The operations over HTTP: one table, of which routes are made, and their OpenAPI description."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from pydantic import TypeAdapter

from raybroker.services.rest import models
from raybroker.services.rest.problems import CONTENT_TYPE, TITLES

OPENAPI: Final = "3.1.0"
_REF: Final = "#/components/schemas/{model}"


class Operation(NamedTuple):
    """``name``: of its handler. ``public``: nobody is asked who he is."""

    method: str
    path: str
    name: str
    summary: str
    answer: TypeAdapter[Any]
    status: int = 200
    body: TypeAdapter[Any] | None = None
    query: TypeAdapter[Any] = TypeAdapter(models.NoQuery)
    public: bool = False


_RECEIVE: Final[TypeAdapter[Any]] = TypeAdapter(models.ReceiveQuery)
_RECEIVED: Final[TypeAdapter[Any]] = TypeAdapter(models.Received)
_SENT: Final[TypeAdapter[Any]] = TypeAdapter(models.Sent)
_SETTLED: Final[TypeAdapter[Any]] = TypeAdapter(models.SettledAll)
_ONE_OR_ALL: Final = "Send a message, or an array of messages of which all are stored or none."
_SETTLING: Final = "200 when all of them are; else 409, and ``results`` says what became of each."

OPERATIONS: Final = (
    Operation("POST", "/queues/{name}/messages", "send_to_queue", _ONE_OR_ALL, _SENT, 201, models.SEND),
    Operation("POST", "/topics/{name}/messages", "send_to_topic", _ONE_OR_ALL, _SENT, 201, models.SEND),
    Operation("GET", "/queues/{name}/messages", "browse", "Look at what waits, and take nothing.",
              TypeAdapter(models.Browsed), query=TypeAdapter(models.BrowseQuery)),
    Operation("GET", "/queues/{name}/receive", "receive", "As POST, for clients that have only GET.",
              _RECEIVED, query=_RECEIVE),
    Operation("POST", "/queues/{name}/receive", "receive",
              "Take messages, each held for lease_ms under a receipt; after that it comes again, as failed.",
              _RECEIVED, query=_RECEIVE),
    Operation("POST", "/queues/{name}/acknowledge", "acknowledge", f"Messages are done. {_SETTLING}",
              _SETTLED, body=models.ACKNOWLEDGE),
    Operation("POST", "/queues/{name}/release", "release", f"Give messages back. {_SETTLING}",
              _SETTLED, body=models.RELEASE),
    Operation("GET", "/health", "health", "200 while the service takes requests.", TypeAdapter(models.Health),
              public=True),
    Operation("GET", "/openapi.json", "openapi", "This description.", TypeAdapter(dict[str, Any]), public=True),
)  # fmt: skip

PUBLIC_PROBLEMS: Final = (400, 405, 408, 431, 500, 503)
PROBLEMS: Final = (400, 401, 403, 404, 405, 408, 409, 413, 415, 429, 431, 500, 501, 503, 504, 507)


def description(version: str) -> dict[str, Any]:
    """The OpenAPI document."""
    schemas: dict[str, Any] = {}
    problem = _schema(TypeAdapter(models.Problem), "serialization", schemas)
    paths: dict[str, dict[str, Any]] = {}
    for operation in OPERATIONS:
        paths.setdefault(operation.path, {})[operation.method.lower()] = _operation(operation, problem, schemas)
    return {
        "openapi": OPENAPI,
        "info": {
            "title": "raybroker", "version": version,
            "description": "Messages over HTTP. Users are those of the broker, by HTTP Basic over TLS; what each may"
            " do is in the broker's access rules.",
        },
        "paths": paths,
        "components": {"schemas": schemas, "securitySchemes": {"basic": {"type": "http", "scheme": "basic"}}},
    }  # fmt: skip


def _operation(operation: Operation, problem: Mapping[str, Any], schemas: dict[str, Any]) -> dict[str, Any]:
    parameters = _parameters(operation)
    answers: dict[str, Any] = {
        str(operation.status): {
            "description": "Done.",
            "content": {"application/json": {"schema": _schema(operation.answer, "serialization", schemas)}},
        }
    }
    for status in PUBLIC_PROBLEMS if operation.public else PROBLEMS:
        answers[str(status)] = {"description": TITLES[status], "content": {CONTENT_TYPE: {"schema": problem}}}
        if status == 401:
            answers["401"]["headers"] = {"WWW-Authenticate": {"schema": {"type": "string"}}}
    found: dict[str, Any] = {
        "operationId": f"{operation.name}_{operation.method.lower()}", "summary": operation.summary,
        "parameters": parameters, "responses": answers, "security": [] if operation.public else [{"basic": []}],
    }  # fmt: skip
    if operation.body is not None:
        schema = _schema(operation.body, "validation", schemas)
        found["requestBody"] = {"required": True, "content": {"application/json": {"schema": schema}}}
    return found


def _parameters(operation: Operation) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    if "{name}" in operation.path:
        schema = {"type": "string", "pattern": models.NAME_PATTERN}
        found.append({"name": "name", "in": "path", "required": True, "schema": schema})
    for name, schema in operation.query.json_schema().get("properties", {}).items():
        found.append({"name": name, "in": "query", "required": False, "schema": schema})
    return found


def _schema(adapter: TypeAdapter[Any], mode: Any, schemas: dict[str, Any]) -> dict[str, Any]:
    """The schema; models that it uses go into ``schemas``."""
    found = adapter.json_schema(mode=mode, ref_template=_REF)
    schemas.update(found.pop("$defs", {}))
    if "properties" in found and "title" in found:
        schemas[found["title"]] = found
        return {"$ref": _REF.format(model=found["title"])}
    return found
