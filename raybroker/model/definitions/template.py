"""Templates: the attributes that destinations take from them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from raybroker.model.naming.names import DestinationType
from raybroker.model.settings.setting import Value
from raybroker.model.settings.settings import lookup

FOLLOWS: Final = ("expirationPolicy", "Default")
"""A value that says: as the template has it."""


def applied(
    template: Mapping[str, Value],
    given: Mapping[str, object],
    type: DestinationType,
) -> dict[str, object]:
    """The attributes of a new destination: those given, and those of its template that are not."""
    said = dict(given)
    if said.get(FOLLOWS[0]) == FOLLOWS[1] and FOLLOWS[0] in template:
        del said[FOLLOWS[0]]
    return {**of_type(template, type), **said}


def of_type(attributes: Mapping[str, Value], type: DestinationType) -> dict[str, Any]:
    """What destinations of that type have of them."""
    return {name: value for name, value in attributes.items() if lookup(name, "destination").only in ("", type)}


def follows(now: Mapping[str, Any], old: Mapping[str, Value], key: str, value: Value) -> bool:
    """Whether a destination that is ``now`` so takes the new value of its template, which was ``old``."""
    setting = lookup(key, "destination")
    before = old.get(key, setting.default)
    return setting.reload != "fixed" and now.get(key) == before and now.get(key) != value
