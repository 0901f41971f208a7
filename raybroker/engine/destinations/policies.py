"""Policies of a host: which attributes hold for each of its destinations, and why.

A definition keeps the values of the destination itself; what its policies make of them is worked out here, whenever a
destination is made or changed or the policies change, and is stored nowhere.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final

from raybroker.engine.checkpoint import Definition
from raybroker.engine.destinations.destination_registry import DMQ
from raybroker.model.definitions.policy import DEFAULT, PolicyBook, effective, policy_of
from raybroker.model.naming.names import check_destination_type
from raybroker.model.settings.setting import Value
from raybroker.model.settings.settings import (
    ConfigView,
    DestinationAttributes,
    auto_created,
    dead_message_queue,
    destination_attributes,
)

Row = dict[str, Any]
Hold = Callable[[Definition], DestinationAttributes]
"""The attributes that hold for a destination."""
NO_POLICY: Final = ""


def own_attributes(definition: Definition) -> DestinationAttributes:
    """Return the attributes of the definition itself, without policies."""
    return definition.attributes


class HostPolicies:
    """``config``: what destinations have that say nothing themselves."""

    def __init__(self, config: ConfigView) -> None:
        self._config = config
        self._book = PolicyBook()

    def define(self, policies: Mapping[str, Mapping[str, Any]]) -> None:
        """Replace the policies there are by these: name → fields."""
        self._book = PolicyBook(policy_of(name, fields) for name, fields in policies.items())

    def hold(self, definition: Definition) -> DestinationAttributes:
        """The attributes that hold for a destination; its own where no policy matches."""
        kind = check_destination_type(definition.kind)
        user, operator = self._book.policies_of(kind, definition.name)
        if user is None and operator is None:
            return definition.attributes
        own = definition.attributes.as_dict(kind)
        found = effective(kind, own, self._defaults(definition), user, operator)
        changed: dict[str, Any] = {name: held.value for name, held in found.items() if held.value != own[name]}
        return replace(definition.attributes, **changed)

    def policy_row(self, definition: Definition) -> Row:
        """Return what administrators see: ``policy`` and ``operator_policy``, "" for none; ``effective``, attribute →
        value, and ``origins``, attribute → where the value comes from if it is not the default."""
        kind = check_destination_type(definition.kind)
        user, operator = self._book.policies_of(kind, definition.name)
        own = definition.attributes.as_dict(kind)
        found = effective(kind, own, self._defaults(definition), user, operator)
        return {
            "policy": user.name if user is not None else NO_POLICY,
            "operator_policy": operator.name if operator is not None else NO_POLICY,
            "effective": {name: held.value for name, held in found.items()},
            "origins": {name: held.origin for name, held in found.items() if held.origin != DEFAULT},
        }

    def _defaults(self, definition: Definition) -> dict[str, Value]:
        kind = check_destination_type(definition.kind)
        if definition.name == DMQ:
            return dead_message_queue().as_dict(kind)
        if definition.auto_created or definition.owner is not None:
            return auto_created(self._config, kind).as_dict(kind)
        return destination_attributes({}, self._config, kind).as_dict(kind)
