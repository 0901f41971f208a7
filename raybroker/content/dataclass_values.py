"""Instances of dataclasses as the name of their class and their fields, and back without running code of the class.

What is received names a class; it never has one imported, called or looked for outside of the module it is defined in.
An instance comes back as its class where that module is imported already and has a dataclass of this name with exactly
these fields.  It is made without ``__new__``, ``__init__`` and ``__post_init__``, and its fields are set without
``__setattr__``, properties and descriptors of the class, so it has what the sender's instance had, unchecked.
Everywhere else, and for a class that cannot be filled like that, it comes back as a dict of its fields.
"""

from __future__ import annotations

import dataclasses
import inspect
import sys
from functools import lru_cache
from types import MemberDescriptorType, ModuleType, SimpleNamespace
from typing import Any, Final

Described = tuple[str, str, dict[str, Any]]
"""Module and qualified name of a class, and its fields with their values."""

_CLASSES_MAX: Final = 256


def is_dataclass_value(value: object) -> bool:
    return dataclasses.is_dataclass(value) and not isinstance(value, type)


def described(value: Any) -> Described:
    """Raises TypeError for an instance with a field that has no value."""
    kind = type(value)
    try:
        values = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    except AttributeError as error:
        raise TypeError(f"a field of {kind.__qualname__} has no value: {error}") from None
    return kind.__module__, kind.__qualname__, values


def rebuilt(module: str, name: str, values: dict[str, Any]) -> Any:
    """The instance, or ``values`` where it cannot be one."""
    found = _class(module, name)
    if found is None or _fields(found) != values.keys():
        return values
    made: object = object.__new__(found)
    for field, value in values.items():
        object.__setattr__(made, field, value)
    return made


def _class(module: str, name: str) -> type | None:
    """The class of this name, found without importing anything and without a ``__getattr__`` of module or class."""
    found: Any = sys.modules.get(module)
    if not issubclass(type(found), ModuleType):
        return None
    for part in name.split("."):
        found = vars(found).get(part)
        if not issubclass(type(found), type):
            return None
    return found  # type: ignore[no-any-return]  # a class that was looked up


@lru_cache(_CLASSES_MAX)
def _fields(kind: type) -> frozenset[str] | None:
    """The names of a dataclass's fields; None for any other class, and for one that has a finalizer, is made by
    another ``__new__`` than that of object, or has a field that is set by code of its own."""
    listed = inspect.getattr_static(kind, "__dataclass_fields__", None)
    if type(listed) is not dict or inspect.getattr_static(kind, "__del__", None) is not None:
        return None
    holder: Any = SimpleNamespace(__dataclass_fields__=listed)
    names = frozenset(field.name for field in dataclasses.fields(holder))
    setters = [inspect.getattr_static(kind, name, None) for name in names]
    if any(inspect.isdatadescriptor(one) and type(one) is not MemberDescriptorType for one in setters):
        return None
    try:
        empty: object = object.__new__(kind)
        for name in names:
            object.__setattr__(empty, name, None)
    except (TypeError, AttributeError):
        return None
    return names
