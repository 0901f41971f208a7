"""Shapes of verbs over HTTP: models of their arguments and answers, made from their declarations.

An argument has the type that the declaration says. What JSON or a query does not have comes as text: bytes as base64,
in a query a mapping as "name=value,name=value", and the ``start`` of a page as the text that ``next`` of the page
before is. An answer that is neither a list nor a mapping is {"result": …}, a list {"rows": […], "missing": {…}}.
"""

from __future__ import annotations

import base64
import binascii
import inspect
from collections.abc import Iterable, Mapping
from types import NoneType, UnionType
from typing import Annotated, Any, Final, NotRequired, Required, Union, get_args, get_origin, get_type_hints

import orjson
from pydantic import Field, TypeAdapter, with_config
from typing_extensions import TypedDict, is_typeddict

from raybroker.admin.verb import Verb
from raybroker.model.argument import Argument
from raybroker.model.errors import MessageFormatError
from raybroker.model.listing import Listing, Row
from raybroker.services.web.json_text import DIGITS

TEXT_CHARS_MAX: Final = 65_536
QUERY_CHARS_MAX: Final = 1024
QUERY_LONG_MAX: Final = 4096
"""Of a selector, and of the start of a page: in a query, all of which has to fit into the headers."""
_LONG: Final = ("selector", "start")
LIST_MAX: Final = 10_000
"""Names or ids of one request."""
START: Final = "start"
_Scalar = bool | int | float | str | None
_Fields = dict[str, _Scalar]


class Rows(TypedDict):
    """``missing``: hosts and brokers whose rows are not there, because they cannot be asked now → why."""

    rows: list[dict[str, Any]]
    missing: dict[str, str]


class Result(TypedDict):
    """What was answered, where it is one value."""

    result: Any


class Graded(TypedDict):
    """``grade``: the worst of the checks: ok, warning, critical or unknown."""

    grade: str
    checks: list[dict[str, Any]]


_ROWS: Final[TypeAdapter[Any]] = TypeAdapter(Rows)
_RESULT: Final[TypeAdapter[Any]] = TypeAdapter(Result)
_ROW: Final[TypeAdapter[Any]] = TypeAdapter(dict[str, Any])
GRADED: Final[TypeAdapter[Any]] = TypeAdapter(Graded)


class Shape:
    """The shape of one verb whose arguments ``in_path`` stand in the path. ``name``: of the model; ``query``: the
    others come in one, not in a body.

    others  the model of what does not stand in the path
    needed  whether something of it has to be there
    answer  the model of the answer; None: there is none
    """

    def __init__(self, verb: Verb[..., Any], name: str, in_path: Iterable[str], *, query: bool) -> None:
        self.verb = verb
        self.query = query
        hints = get_type_hints(verb.declared, include_extras=True)
        self._hints = {name: hints[name] for name in verb.signature.parameters}
        self.segments = {segment: _segment(verb.arguments[segment]) for segment in in_path}
        fields: dict[str, Any] = {}
        self.needed = False
        for argument, parameter in verb.signature.parameters.items():
            if argument in self.segments:
                continue
            optional = parameter.default is not parameter.empty or parameter.kind is parameter.VAR_KEYWORD
            self.needed = self.needed or not optional
            kind = _field(argument, self._hints[argument], verb.arguments[argument], parameter, query=query)
            fields[argument] = NotRequired[kind] if optional else Required[kind]
        model: Any = TypedDict(name, fields)  # type: ignore[misc]  # the name is made here, too
        model.__doc__ = f"Arguments of {verb.name}."
        self.others: TypeAdapter[Any] = TypeAdapter(with_config(extra="forbid", strict=not query)(model))
        self.answer = _answer(hints["return"])

    def arguments(self, path: Mapping[str, str], given: Mapping[str, Any]) -> Row:
        """The verb's arguments by name, all of them, checked; ``given``: what ``others`` has checked. Raises the error
        of an argument that is wrong."""
        found = {name: _of_path(text, self._hints[name]) for name, text in path.items()}
        found |= {name: self._taken(name, value) for name, value in given.items()}
        made = {
            name: found.get(name, {} if parameter.kind is parameter.VAR_KEYWORD else parameter.default)
            for name, parameter in self.verb.signature.parameters.items()
        }
        self.verb.check(made)
        return made

    def _taken(self, name: str, value: Any) -> Any:
        kind = _bare(self._hints[name])
        if value is None:
            return None
        if name == START:
            return _start(value)
        if kind == Iterable[bytes]:
            return [_bytes(name, text) for text in value]
        if self.query and _is_mapping(kind, None):
            return _pairs(name, value)
        return value

    def told(self, answer: Any) -> Any:
        """What is written of an answer."""
        if isinstance(answer, Listing):
            return {"rows": list(answer), "missing": answer.missing}
        if self.answer is _ROWS:
            return {"rows": answer, "missing": {}}
        if self.answer is _RESULT:
            return {"result": answer}
        if isinstance(answer, dict) and answer.get("next") is not None and START in self._hints:
            text = base64.urlsafe_b64encode(orjson.dumps(answer["next"])).decode()
            return {**answer, "next": text}
        return answer


def _bare(hint: Any) -> Any:
    """A type without notes and without None."""
    if get_origin(hint) is Annotated:
        return _bare(get_args(hint)[0])
    if get_origin(hint) in (Union, UnionType):
        kinds = [kind for kind in get_args(hint) if kind is not NoneType]
        return _bare(kinds[0]) if len(kinds) == 1 else hint
    return hint


def _allows_none(hint: Any) -> bool:
    if get_origin(hint) is Annotated:
        return _allows_none(get_args(hint)[0])
    return get_origin(hint) in (Union, UnionType) and NoneType in get_args(hint)


def _is_mapping(kind: Any, parameter: inspect.Parameter | None) -> bool:
    named = parameter is not None and parameter.kind is parameter.VAR_KEYWORD
    return named or get_origin(kind) is Mapping


def _field(name: str, hint: Any, argument: Argument | None, parameter: inspect.Parameter, *, query: bool) -> Any:
    """The type of a field of the model, with what describes it."""
    kind = _bare(hint)
    words = argument.allowed if argument is not None else "the next of the page before"
    extra = dict(argument.schema) if argument is not None else {}
    most = extra.pop("maxLength", TEXT_CHARS_MAX)
    if query:
        most = min(most, QUERY_LONG_MAX if name in _LONG else QUERY_CHARS_MAX)
    if name == START:
        made: Any = Annotated[str, Field(max_length=most, description=words)]
    elif _is_mapping(kind, parameter):
        text = f"{words}, as name=value,name=value"
        held: Any = dict[str, Any] if get_args(kind)[1:] == (Any,) else _Fields
        made = (
            Annotated[str, Field(max_length=most, description=text)]
            if query
            else Annotated[held, Field(description=words)]
        )
    elif get_origin(kind) is not None and issubclass(get_origin(kind), Iterable):
        made = Annotated[list[str], Field(max_length=LIST_MAX, description=words)]
    elif kind is int:
        bounds = {"ge": extra.pop("minimum", None), "le": extra.pop("maximum", None)}
        made = Annotated[int, Field(description=words, **bounds), *([DIGITS] if query else [])]
    elif kind is bool:
        made = Annotated[bool, Field(description=words)]
    else:
        made = Annotated[str, Field(max_length=most, description=words, json_schema_extra=extra)]
    return made | None if _allows_none(hint) and not query else made


def _segment(argument: Argument | None) -> dict[str, Any]:
    """The schema of an argument that stands in the path."""
    if argument is None:
        return {"type": "string"}
    return {"type": "string", "minLength": 1, "description": argument.allowed, **dict(argument.schema)}


def _answer(kind: Any) -> TypeAdapter[Any] | None:
    if kind is NoneType:
        return None
    if kind is Listing or kind == list[Row]:
        return _ROWS
    if is_typeddict(kind) or kind == Row:
        return _ROW
    return _RESULT


def _of_path(text: str, hint: Any) -> Any:
    """A number where an id may be one, and it is."""
    whole = int in get_args(_bare(hint)) and text.isascii() and text.isdecimal() and len(text) < 20
    return int(text) if whole else text


def _start(text: str) -> Any:
    """What ``next`` was; raises MessageFormatError."""
    try:
        found = orjson.loads(base64.urlsafe_b64decode(text.encode("ascii")))
    except (ValueError, binascii.Error):
        found = ""
    inner = found[1] if isinstance(found, list) and len(found) == 2 and isinstance(found[0], str) else found
    if inner is not None and (not isinstance(inner, int) or isinstance(inner, bool) or inner < 0):
        raise MessageFormatError(f"start={text!r:.80}: it is the next of the page before")
    return found


def _bytes(name: str, text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise MessageFormatError(f"{name}: it is no base64: {error}") from None


def _pairs(name: str, text: str) -> dict[str, str]:
    """Read "name=value,name=value"; raises MessageFormatError."""
    found: dict[str, str] = {}
    for part in text.split(","):
        key, equals, value = part.partition("=")
        if not equals or not key.strip() or key.strip() in found:
            raise MessageFormatError(f"{name}={text!r:.80}: write name=value, each name once, with commas between")
        found[key.strip()] = value.strip()
    return found
