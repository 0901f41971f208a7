"""Operations over HTTP: a table, of which routes are made, and their OpenAPI description."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

from pydantic import TypeAdapter

from raybroker.services.web.json_text import Health, NoQuery, Problem
from raybroker.services.web.problems import CONTENT_TYPE, TITLES

OPENAPI: Final = "3.1.0"
_REF: Final = "#/components/schemas/{model}"
_SEGMENT: Final = re.compile(r"\{(\w+)\}")


NO_QUERY: Final[TypeAdapter[Any]] = TypeAdapter(NoQuery)


class Operation(NamedTuple):
    """``name``: of its handler. ``answer``: None: there is no body; ``segments``: schemas of the named ones of the
    path; ``public``: nobody is asked who he is; ``tag``: what it is about; ``body_needed``: there has to be a body;
    ``graded``: the answer comes with status 503, too."""

    method: str
    path: str
    name: str
    summary: str
    answer: TypeAdapter[Any] | None
    status: int = 200
    body: TypeAdapter[Any] | None = None
    query: TypeAdapter[Any] = NO_QUERY
    public: bool = False
    segments: Mapping[str, Mapping[str, Any]] = {}
    text: str = ""
    tag: str = ""
    body_needed: bool = True
    graded: bool = False


HEALTH: Final = Operation(
    "GET", "/health", "health", "200 while the service takes requests.", TypeAdapter(Health), public=True
)
DESCRIPTION: Final = Operation(
    "GET", "/openapi.json", "openapi", "This description.", TypeAdapter(dict[str, Any]), public=True
)

PUBLIC_PROBLEMS: Final = (400, 405, 408, 431, 500, 503)
PROBLEMS: Final = (400, 401, 403, 404, 405, 408, 409, 413, 415, 429, 431, 500, 501, 503, 504, 507)


class About(NamedTuple):
    """What the description says of the service as a whole. ``schemes``: of HTTP, by which users say who they are."""

    title: str
    version: str
    text: str
    schemes: tuple[str, ...] = ("basic",)


def description(about: About, operations: Iterable[Operation]) -> dict[str, Any]:
    """The OpenAPI document."""
    schemas: dict[str, Any] = {}
    problem = _schema(TypeAdapter(Problem), "serialization", schemas)
    security: list[dict[str, list[str]]] = [{scheme: []} for scheme in about.schemes]
    paths: dict[str, dict[str, Any]] = {}
    for operation in operations:
        found = _operation(operation, problem, schemas)
        found["security"] = [] if operation.public else security
        paths.setdefault(operation.path, {})[operation.method.lower()] = found
    return {
        "openapi": OPENAPI,
        "info": {"title": about.title, "version": about.version, "description": about.text},
        "paths": paths,
        "components": {
            "schemas": schemas,
            "securitySchemes": {scheme: {"type": "http", "scheme": scheme} for scheme in about.schemes},
        },
    }


def _operation(operation: Operation, problem: Mapping[str, Any], schemas: dict[str, Any]) -> dict[str, Any]:
    answers: dict[str, Any] = {str(operation.status): {"description": "Done."}}
    if operation.answer is not None:
        schema = _schema(operation.answer, "serialization", schemas)
        answers[str(operation.status)]["content"] = {"application/json": {"schema": schema}}
    for status in PUBLIC_PROBLEMS if operation.public else PROBLEMS:
        answers[str(status)] = {"description": TITLES[status], "content": {CONTENT_TYPE: {"schema": problem}}}
        if status == 401:
            answers["401"]["headers"] = {"WWW-Authenticate": {"schema": {"type": "string"}}}
    if operation.graded:
        answers["503"]["content"]["application/json"] = answers[str(operation.status)]["content"]["application/json"]
    found: dict[str, Any] = {
        "operationId": f"{operation.name}_{operation.method.lower()}",
        "summary": operation.summary,
        "parameters": _parameters(operation),
        "responses": answers,
    }
    if operation.text:
        found["description"] = operation.text
    if operation.tag:
        found["tags"] = [operation.tag]
    if operation.body is not None:
        schema = _schema(operation.body, "validation", schemas)
        found["requestBody"] = {"required": operation.body_needed, "content": {"application/json": {"schema": schema}}}
    return found


def _parameters(operation: Operation) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for name in _SEGMENT.findall(operation.path):
        schema = dict(operation.segments[name])
        found.append({"name": name, "in": "path", "required": True, "schema": schema})
    model = operation.query.json_schema()
    for name, schema in model.get("properties", {}).items():
        found.append({"name": name, "in": "query", "required": name in model.get("required", ()), "schema": schema})
    return found


def _schema(adapter: TypeAdapter[Any], mode: Any, schemas: dict[str, Any]) -> dict[str, Any]:
    """The schema; models that it uses go into ``schemas``."""
    found = adapter.json_schema(mode=mode, ref_template=_REF)
    schemas.update(found.pop("$defs", {}))
    if "properties" in found and "title" in found:
        schemas[found["title"]] = found
        return {"$ref": _REF.format(model=found["title"])}
    return found
