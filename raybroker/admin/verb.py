"""A verb: the declaration of one administrative call, and the method that a face of administration makes of it."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Iterable, Mapping
from enum import Enum, auto
from functools import cached_property, wraps
from types import NoneType
from typing import (
    Annotated,
    Any,
    Concatenate,
    Generic,
    ParamSpec,
    TypeVar,
    get_args,
    get_origin,
    get_type_hints,
    overload,
)

from raybroker.model.argument import Argument

P = ParamSpec("P")
R = TypeVar("R")


class By(Enum):
    """Who carries a verb out in a cluster, and what becomes of the answers. A broker without a cluster asks itself."""

    BROKER = auto()
    """The broker that is asked, with what it has itself."""
    CLUSTER = auto()
    """A part of the broker that is asked, for the whole cluster: it changes the record, or asks the others itself."""
    EACH = auto()
    """All brokers; there is no answer."""
    TOTAL = auto()
    """All brokers; answers are counts of different things, such as messages, and are added up."""
    LARGEST = auto()
    """All brokers; answers are counts of the same things, such as destinations."""
    ROWS = auto()
    """All brokers; answers are lists, put one behind the other."""
    FIRST = auto()
    """One broker after the other, until one knows what is asked for."""
    PAGES = auto()
    """One broker after the other, page by page."""


class Blocking:
    """A face whose methods return what a verb answers; ``_call(verb, arguments)`` carries one out."""

    _call: Callable[[str, dict[str, Any]], Any]


class Asynchronous:
    """A face whose methods return an awaitable of that."""

    _call: Callable[[str, dict[str, Any]], Awaitable[Any]]


class Verb(Generic[P, R]):
    """``declared``: a method without a body; see ``verb`` for the rest."""

    def __init__(self, declared: Callable[Concatenate[Any, P], R], by: By, host: str, always: bool) -> None:
        self.declared = declared
        self.by = by
        self.host = host
        self.always = always
        self.name = declared.__name__
        signature = inspect.signature(declared)
        self.signature = signature.replace(parameters=list(signature.parameters.values())[1:])

    @overload
    def __get__(self, face: None, owner: type) -> Callable[Concatenate[Any, P], R]: ...
    @overload
    def __get__(self, face: Blocking, owner: type) -> Callable[P, R]: ...
    @overload
    def __get__(self, face: Asynchronous, owner: type) -> Callable[P, Awaitable[R]]: ...
    def __get__(self, face: Any, owner: type) -> Callable[..., Any]:
        if face is None:
            return self.declared

        @wraps(self.declared)
        def method(*args: Any, **kwargs: Any) -> Any:
            return face._call(self.name, self.bound(args, kwargs))

        method.__signature__ = self.signature  # type: ignore[attr-defined]  # inspect reads it
        return method

    def bound(self, args: Iterable[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """The arguments of a call by name; raises TypeError as Python does, and the error of one that is wrong."""
        try:
            found = self.signature.bind(*args, **kwargs)
        except TypeError as error:
            raise TypeError(f"{self.name}(): {error}") from None
        found.apply_defaults()
        given = {name: _listed(value) for name, value in found.arguments.items()}
        self.check(given)
        return given

    def filled(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Arguments by name, in their order, with the defaults of those that are not given; raises TypeError."""
        found = self.signature.bind(**given)
        found.apply_defaults()
        return found.arguments

    @cached_property
    def arguments(self) -> dict[str, Argument | None]:
        """Name → what it may be; None for those that are checked where they are used."""
        hints = get_type_hints(self.declared, include_extras=True)
        return {name: _argument(hints[name]) for name in self.signature.parameters}

    def check(self, given: Mapping[str, Any]) -> None:
        """Raises the error of the first argument that is not what it may be."""
        for name, value in given.items():
            argument = self.arguments.get(name)
            if argument is not None:
                argument.check(name, value)


def verb(by: By, *, host: str = "", always: bool = False) -> Callable[[Callable[Concatenate[Any, P], R]], Verb[P, R]]:
    """Declare a verb: ``host``: role and method of the host of the destination that the arguments ``type`` and ``name``
    name, which a broker has carry it out; "": it does so itself; ``always``: also while the cluster does not take
    clients."""
    return lambda declared: Verb(declared, by, host, always)


def declared_in(*classes: type) -> dict[str, Verb[..., Any]]:
    """Name → verb, in the order of their declaration; a class has the verbs of its bases as well."""
    return {
        name: found
        for kind in classes
        for part in kind.__mro__
        for name, found in vars(part).items()
        if isinstance(found, Verb)
    }


def _listed(value: Any) -> Any:
    """An iterable such as a set or a generator as a list, which can be sent; anything else as it is."""
    plain = isinstance(value, str | bytes | Mapping | list) or not isinstance(value, Iterable)
    return value if plain else list(value)


def _argument(hint: Any) -> Argument | None:
    if get_origin(hint) is Annotated:
        return next((note for note in hint.__metadata__ if isinstance(note, Argument)), None)
    inner = [kind for kind in get_args(hint) if kind is not NoneType]
    found = _argument(inner[0]) if len(inner) == 1 and NoneType in get_args(hint) else None
    return found.or_none() if found is not None else None
