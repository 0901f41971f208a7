"""Policies: named sets of destination attributes that hold for all destinations whose name matches a pattern.

Of the user policies that match a destination the one with the highest priority holds, as a whole, and so of the
operator policies; of equal priorities the one whose name comes first in the alphabet.  For each attribute, the later
of these lines says what holds:

1. the default: the broker's, or of an auto-created destination that of ``imq.autocreate``
2. the user policy
3. the destination: a value of its own, which is one that differs from its default
4. the operator policy: of LIMITS it is an upper bound, of other attributes it replaces the value

A threshold (``messagesHigh``, ``bytesHigh``) that would then be above its limit is lowered to it.  Of two values that
exclude each other (EXCLUSIVE) the one of the earlier line becomes the default again.  A policy has attributes that can
change while clients use a destination.  Policies do not hold for the broker's own ``mq.…``.

Clients act on some attributes themselves (unitOfOrder, unitOfOrderRouting, loadBalancingPolicy, duplicateWindowMs), and
learn of a change when they open or reconnect a handle, whether a policy makes it or the destination.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import combinations
from typing import Any, Final, NamedTuple

from raybroker.model.errors import ConfigError, InvalidDestinationError
from raybroker.model.naming.names import RESERVED_PREFIX, DestinationType, check_policy_name
from raybroker.model.naming.wildcard import check_pattern, common_name, matches
from raybroker.model.settings.setting import INT_MAX, Value
from raybroker.model.settings.settings import check_attribute_names, destination_attributes, lookup

POLICIES_MAX: Final = 200
"""Policies of one cluster: each destination is held against each of them."""
APPLY_TO: Final = ("queue", "topic", "all")
LIMITS: Final = frozenset(
    {
        "maxNumMsgs",
        "maxTotalMsgBytes",
        "maxBytesPerMsg",
        "maxNumProducers",
        "maxNumActiveConsumers",
        "maxNumBackupConsumers",
        "consumerFlowLimit",
        "sharedConsumerFlowLimit",
        "redeliveryLimit",
        "redeliveryDelayMax",
        "duplicateIdsMax",
        "maxNumSchedules",
        "forwardDelay",
        "duplicateWindowMs",
    }
)
"""Attributes of which the lower value holds when an operator policy has one; -1, no limit, is above all others."""
_ZERO_IS_NO_LIMIT: Final = frozenset({"consumerFlowLimit", "sharedConsumerFlowLimit"})
_PAIRS: Final = (("messagesHigh", "messagesLow", "maxNumMsgs"), ("bytesHigh", "bytesLow", "maxTotalMsgBytes"))

SWITCHED_ON: Final = "duplicateWindowMs"
"""In a cluster of several brokers nothing switches it on while clients use a destination: those that are open would go
on sending one id to different brokers."""
EXCLUSIVE: Final = (
    ("unitOfOrder", True, "unitOfWorkHandlingPolicy", "SingleMessageDelivery"),
    ("duplicateWindowMs", None, "unitOfOrderRouting", "PathService"),
)
"""Values that no destination has both; None: any but the default. The checks of a destination's own values have the
reasons."""
DEFAULT: Final = "default"
DESTINATION: Final = "destination"


class Policy(NamedTuple):
    """``apply_to``: "queue", "topic" or "all"; ``attributes``: parsed values."""

    name: str
    pattern: str
    apply_to: str
    priority: int
    operator: bool
    attributes: Mapping[str, Value]

    @property
    def origin(self) -> str:
        """What is shown as the origin of a value."""
        return f"operator policy {self.name}" if self.operator else f"policy {self.name}"

    def fields(self) -> dict[str, Any]:
        """Everything but the name, as plain values; :func:`policy_of` takes it back."""
        return {
            "pattern": self.pattern,
            "applyTo": self.apply_to,
            "priority": self.priority,
            "operator": self.operator,
            "attributes": dict(self.attributes),
        }

    def governs(self, type: DestinationType, name: str) -> bool:
        """Whether the destination matches."""
        return self.apply_to in ("all", type) and matches(self.pattern, name)

    def of_type(self, type: DestinationType) -> dict[str, Value]:
        """What destinations of that type have of the attributes."""
        return {
            name: value for name, value in self.attributes.items() if lookup(name, "destination").only in ("", type)
        }


class Effective(NamedTuple):
    """A value that holds, and its origin: "default", "destination", "policy NAME" or "operator policy NAME"."""

    value: Value
    origin: str


class Conflict(NamedTuple):
    """Two policies of one priority that both match a destination of the name ``example``."""

    first: Policy
    second: Policy
    example: str


# ---- definitions


def policy_of(name: str, fields: Mapping[str, Any]) -> Policy:
    """The checked policy; ``pattern`` and ``attributes`` are needed. Raises ConfigError for what is wrong with it."""
    check_policy_name(name)
    for field in fields:
        if field not in ("pattern", "applyTo", "priority", "operator", "attributes"):
            raise ConfigError(
                f"policy {name!r}: {field!r} is none of its fields; they are pattern, applyTo, priority, operator and"
                " attributes"
            )
    apply_to = fields.get("applyTo", "all")
    if apply_to not in APPLY_TO:
        raise ConfigError(f"policy {name!r}: applyTo = {apply_to!r}; it is one of {', '.join(APPLY_TO)}")
    priority, operator = fields.get("priority", 0), fields.get("operator", False)
    if not isinstance(priority, int) or isinstance(priority, bool) or not 0 <= priority <= INT_MAX:
        raise ConfigError(f"policy {name!r}: priority = {priority!r}; it is a whole number from 0 to {INT_MAX}")
    if not isinstance(operator, bool):
        raise ConfigError(f"policy {name!r}: operator = {operator!r}; it is true or false")
    attributes = _attributes(name, fields.get("attributes", {}), apply_to)
    return Policy(name, _pattern(name, fields.get("pattern")), apply_to, priority, operator, attributes)


def _pattern(name: str, pattern: object) -> str:
    if not isinstance(pattern, str) or not pattern:
        raise ConfigError(f"policy {name!r} needs a pattern, such as orders> (orders, orders.eu) or *.dead (eu.dead)")
    if pattern.startswith(RESERVED_PREFIX):
        raise ConfigError(
            f"policy {name!r}: pattern {pattern!r} is of the broker's own destinations ({RESERVED_PREFIX}…), for which"
            " no policy holds"
        )
    try:
        return check_pattern(pattern)
    except InvalidDestinationError as error:
        raise ConfigError(f"policy {name!r}: {error}") from None


def _attributes(name: str, given: object, apply_to: str) -> dict[str, Value]:
    if not isinstance(given, Mapping):
        raise ConfigError(f"policy {name!r}: attributes = {given!r}; they are a table of attributes and values")
    if not given:
        raise ConfigError(f"policy {name!r} has no attributes, and would do nothing; give at least one")
    found: dict[str, Value] = {}
    try:
        for attribute, value in given.items():
            found[attribute] = _attribute(str(attribute), value)
        for type in _types(apply_to):  # noqa: A001 - as everywhere
            if apply_to != "all":
                check_attribute_names(found, type)
            destination_attributes({key: value for key, value in found.items() if _has(type, key)}, type=type)
    except ConfigError as error:
        raise ConfigError(f"policy {name!r}: {error}") from None
    return found


def _attribute(attribute: str, value: object) -> Value:
    setting = lookup(attribute, "destination")
    if setting.reload != "live":
        raise ConfigError(
            f"{attribute} cannot change while a destination is used, and a policy has only what can: set it when a"
            " destination is created, or in a template"
        )
    return setting.parse(value)


def _types(apply_to: str) -> tuple[DestinationType, ...]:
    return ("queue", "topic") if apply_to == "all" else ("queue",) if apply_to == "queue" else ("topic",)


def _has(type: DestinationType, attribute: str) -> bool:
    return lookup(attribute, "destination").only in ("", type)


# ---- resolution


class PolicyBook:
    """All policies, in the order in which they are asked."""

    def __init__(self, policies: Iterable[Policy] = ()) -> None:
        ordered = sorted(policies, key=lambda policy: (-policy.priority, policy.name))
        self.user = tuple(policy for policy in ordered if not policy.operator)
        self.operator = tuple(policy for policy in ordered if policy.operator)

    def __bool__(self) -> bool:
        return bool(self.user or self.operator)

    def all(self) -> tuple[Policy, ...]:
        return (*self.operator, *self.user)

    def policies_of(self, type: DestinationType, name: str) -> tuple[Policy | None, Policy | None]:
        """The user policy and the operator policy that hold for a destination."""
        return _first(self.user, type, name), _first(self.operator, type, name)


def _first(policies: Iterable[Policy], type: DestinationType, name: str) -> Policy | None:
    return next((policy for policy in policies if policy.governs(type, name)), None)


def effective(
    type: DestinationType,
    own: Mapping[str, Value],
    defaults: Mapping[str, Value],
    user: Policy | None,
    operator: Policy | None,
) -> dict[str, Effective]:
    """Attribute → what holds of it. ``own``: the values of the destination, all or some of them; ``defaults``: those it
    had without any of its own."""
    said = user.of_type(type) if user is not None else {}
    bounds = operator.of_type(type) if operator is not None else {}
    found: dict[str, Effective] = {}
    for name, value in own.items():
        held = Effective(value, DESTINATION)
        if value == defaults.get(name):
            held = Effective(said[name], user.origin) if user and name in said else Effective(value, DEFAULT)
        if operator is not None and name in bounds:
            replaced = name not in LIMITS or _room(name, bounds[name]) < _room(name, held.value)
            held = Effective(bounds[name], operator.origin) if replaced else held
        found[name] = held
    for exclusive in EXCLUSIVE:
        _yield(found, defaults, *exclusive)
    for high, low, limit in _PAIRS:
        if limit in found:
            _lower(found, high, low, limit)
    return found


def _yield(
    found: dict[str, Effective], defaults: Mapping[str, Value], one: str, at: Value | None, other: str, at_other: Value
) -> None:
    """Give the one with the weaker origin its default again, where both values hold."""
    if one not in found or other not in found or found[other].value != at_other:
        return
    if found[one].value == defaults[one] if at is None else found[one].value != at:
        return
    weaker = min((one, other), key=lambda name: _weight(found[name].origin))
    stronger = other if weaker == one else one
    found[weaker] = Effective(defaults[weaker], found[stronger].origin)


def _weight(origin: str) -> int:
    if origin.startswith("operator policy "):
        return 3
    return 2 if origin == DESTINATION else 0 if origin == DEFAULT else 1


def _room(name: str, value: Value) -> float:
    number = int(str(value))
    return float("inf") if number < 0 or (number == 0 and name in _ZERO_IS_NO_LIMIT) else number


def _lower(found: dict[str, Effective], high: str, low: str, limit: str) -> None:
    """A threshold above the limit would never be reached."""
    most, origin = int(str(found[limit].value)), found[limit].origin
    if not 0 <= most < int(str(found[high].value)):
        return
    found[high] = Effective(most or -1, origin)
    if int(str(found[low].value)) >= most:
        found[low] = Effective(most - 1, origin)


def conflicts(policies: Iterable[Policy]) -> list[Conflict]:
    """Pairs of one kind and one priority that both match some name: which of them holds there is only a matter of their
    names."""
    found = []
    for first, second in combinations(sorted(policies), 2):
        same = (first.operator, first.priority) == (second.operator, second.priority)
        types = {first.apply_to, second.apply_to} != {"queue", "topic"}
        example = common_name(first.pattern, second.pattern) if same and types else None
        if example is not None:
            found.append(Conflict(first, second, example))
    return found
