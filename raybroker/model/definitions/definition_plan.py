"""The plan of an import: the administrative verbs that lead from the definitions that there are to those wanted.

Each step is one verb.  What a step needs comes before it: quotas, templates and policies before destinations, those
before subscriptions and forwarding agents; what is destroyed goes in the opposite order, at the end.  The planner
carries each step out on a copy of what there is, so that it sees what a step brings with it: the destinations that
follow a template, and the subscriptions that go with their topic.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from raybroker.model.definitions.definitions import (
    Attributes,
    Defaults,
    Definitions,
    Identity,
    Pause,
    differing,
    shared_properties,
)
from raybroker.model.definitions.error_destinations import go_on
from raybroker.model.definitions.policy import policy_of
from raybroker.model.definitions.quota import ATTRIBUTES
from raybroker.model.definitions.template import applied, follows, of_type
from raybroker.model.definitions.user import ANONYMOUS
from raybroker.model.errors import ConfigError
from raybroker.model.naming.names import DEAD_MESSAGE_QUEUE, DestinationType
from raybroker.model.settings.settings import lookup

TYPES: Final[tuple[DestinationType, ...]] = ("queue", "topic")
NO_PRUNE: Final = "it would be destroyed with its messages and made anew, which only --prune does"
DOWN: Final = "the broker is down: import again when it is up"
HIDDEN: Final = "(hidden)"
HIDDEN_TOO: Final = "(another, hidden)"
_QUOTA: Final = {name: setting.default for name, setting in ATTRIBUTES.items()}
_FIELDS: Final = {"pattern": "pattern", "applyTo": "apply_to", "priority": "priority", "operator": "operator"}
"""Field of a policy → argument of its verbs."""


@dataclass(frozen=True)
class Step:
    """``changes``: attribute → (old value, new value), None where there is none; ``blocked``: why the verb is not
    tried, "" for most."""

    action: str
    kind: str
    name: str
    changes: Mapping[str, tuple[Any, Any]] = field(default_factory=dict)
    verb: str = ""
    args: Mapping[str, Any] = field(default_factory=dict)
    blocked: str = ""


@dataclass(frozen=True)
class Plan:
    """``same``: how many entries are as wanted; ``left``: those that are not wanted and stay, without pruning;
    ``after``: the definitions that there are when every step was carried out."""

    steps: tuple[Step, ...]
    same: int
    left: tuple[str, ...]
    after: Definitions


@dataclass(frozen=True)
class Place:
    """Where a plan is for. ``configured``: broker → what its configuration says of properties that can change;
    ``automatic``: destinations that were created automatically; ``agents``: whether forwarding agents are possible;
    ``down``: brokers that cannot be asked what they have; ``together``: properties that all brokers have equally;
    ``users``: whether users are looked at."""

    defaults: Defaults = field(default_factory=Defaults.of)
    configured: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    automatic: Collection[tuple[str, str]] = ()
    agents: bool = True
    down: Collection[str] = ()
    together: Collection[str] = ()
    users: bool = False


def plan(now: Definitions, wanted: Definitions, place: Place, *, prune: bool = False) -> Plan:
    """Raises ConfigError for wanted definitions that contradict each other. ``prune``: what is not wanted goes."""
    return _Planner(now, wanted, place, prune).plan()


class _Planner:
    def __init__(self, now: Definitions, wanted: Definitions, place: Place, prune: bool) -> None:
        self._before = now
        self._now = now.copy()
        self._wanted = wanted
        self._place = place
        self._prune = prune
        self._steps: list[Step] = []

    def plan(self) -> Plan:
        _refuse_circles(self._now, self._wanted, prune=self._prune)
        self._quotas(raised=True)
        self._templates()
        self._policies()
        self._destinations()
        self._quotas(raised=False)
        self._subscriptions()
        self._agents()
        self._pauses()
        self._users()
        left = [*self._properties(), *self._destroy()]
        touched = {(step.kind, step.name) for step in self._steps}
        same = sum((kind, shown) not in touched for kind, shown, _ in _entries(self._wanted))
        return Plan(tuple(self._steps), same, tuple(left), self._now)

    def _step(
        self, action: str, kind: str, shown: str, found: Mapping[str, tuple[Any, Any]], verb: str, /, **args: Any
    ) -> None:
        self._steps.append(Step(action, kind, shown, found, verb, args))

    def _block(self, action: str, kind: str, name: str, changes: Mapping[str, tuple[Any, Any]], why: str) -> None:
        self._steps.append(Step(action, kind, name, changes, blocked=why))

    # ---- quotas, templates, policies

    def _quotas(self, *, raised: bool) -> None:
        """What grants more comes before the destinations, what grants less after them: thresholds of destinations are
        within the limits all the time."""
        table = self._now.quotas
        for name, wanted in self._wanted.quotas.items():
            if name not in table:
                self._step("create", "quota", name, changed({}, wanted), "create_quota", name=name, attributes=wanted)
                table[name] = wanted
                continue
            found = changed(table[name], wanted, _QUOTA)
            if "Shared" in found:
                if raised:
                    self._block("update", "quota", name, found, "Shared is fixed when a quota is created: destroy it")
                continue
            part = {key: pair for key, pair in found.items() if raised is _grants_more(*pair)}
            if part:
                changes = {key: new for key, (_, new) in part.items()}
                self._step("update", "quota", name, part, "update_quota", name=name, changes=changes)
                table[name] = differing({**table[name], **changes}, _QUOTA)

    def _templates(self) -> None:
        defaults, table = self._place.defaults.template, self._now.templates
        for name, wanted in self._wanted.templates.items():
            self._require_quota(wanted, f"template {name!r}")
            if name not in table:
                args = {"name": name, "attributes": wanted}
                self._step("create", "template", name, changed({}, wanted), "create_template", **args)
            elif found := changed(table[name], wanted, defaults):
                changes = {key: new for key, (_, new) in found.items()}
                self._step("update", "template", name, found, "update_template", name=name, changes=changes)
                for type in TYPES:  # noqa: A001 - as everywhere
                    self._follow(type, name, table[name], changes)
            table[name] = wanted

    def _follow(self, type: DestinationType, name: str, old: Attributes, changes: Attributes) -> None:
        table = self._now.of_type(type)
        for destination, own in table.items():
            base = self._place.defaults.destination(type, destination)
            now = {**base, **own}
            if now.get("template") == name:
                taken = {k: value for k, value in of_type(changes, type).items() if follows(now, old, k, value)}
                table[destination] = differing({**now, **taken}, base)

    def _policies(self) -> None:
        table = self._now.policies
        for name, wanted in self._wanted.policies.items():
            policy = policy_of(name, wanted)
            self._require_quota(dict(policy.attributes), f"policy {name!r}")
            fields_of = {argument: wanted[key] for key, argument in _FIELDS.items()}
            if name not in table:
                args = {"name": name, **fields_of, "attributes": wanted["attributes"]}
                self._step("create", "policy", name, changed({}, _flat(wanted)), "create_policy", **args)
            elif table[name] != wanted:
                before = table[name]["attributes"]
                self._step(
                    "update",
                    "policy",
                    name,
                    changed(_flat(table[name]), _flat(wanted)),
                    "update_policy",
                    name=name,
                    **{
                        argument: value
                        for key, (argument, value) in zip(_FIELDS, fields_of.items(), strict=True)
                        if table[name][key] != value
                    },
                    unset=[key for key in before if key not in policy.attributes],
                    changes={key: new for key, new in policy.attributes.items() if before.get(key) != new},
                )
            table[name] = wanted

    # ---- destinations

    def _destinations(self) -> None:
        for type in TYPES:  # noqa: A001 - as everywhere
            pending = dict(self._wanted.of_type(type))
            while pending:
                name, wanted = next(iter(pending.items()))
                if type == "queue" and self._leads_back(name, wanted):
                    self._loosen(pending)
                del pending[name]
                self._destination(type, name, wanted)

    def _leads_back(self, name: str, wanted: Attributes) -> bool:
        """Whether the error destination leads back while others are not as wanted yet."""
        way, after = [name], wanted.get("errorDestination")
        while after:
            if after in way:
                return True
            way.append(after)
            after = self._now.queues.get(after, {}).get("errorDestination")
        return False

    def _loosen(self, pending: Collection[str]) -> None:
        """Queues that get another error destination later, or go, have none meanwhile."""
        going = [name for name in self._now.queues if self._prune and name not in self._wanted.queues]
        for name in (*pending, *going):
            own, wanted = self._now.queues.get(name, {}), self._wanted.queues.get(name, {})
            if own.get("errorDestination") and own["errorDestination"] != wanted.get("errorDestination"):
                found = {"errorDestination": (own["errorDestination"], "")}
                self._step(
                    "update",
                    "queue",
                    name,
                    found,
                    "update_destination",
                    type="queue",
                    name=name,
                    changes={"errorDestination": ""},
                )
                self._now.queues[name] = {key: value for key, value in own.items() if key != "errorDestination"}

    def _destination(self, type: DestinationType, name: str, wanted: Attributes) -> None:
        base, table = self._place.defaults.destination(type, name), self._now.of_type(type)
        self._require_quota(wanted, f"{type} {name!r}")
        template = wanted.get("template")
        if name not in table and name != DEAD_MESSAGE_QUEUE:
            if (type, name) in self._place.automatic:
                why = "it was created automatically and is in use: destroy it, or import when it is gone"
                self._block("create", type, name, changed({}, wanted), why)
                return
            if template and template not in self._now.templates:
                why = f"there is no template {template!r}, here or among these definitions"
                self._block("create", type, name, changed({}, wanted), why)
                return
            taken = of_type(self._now.templates.get(template or "", {}), type)
            given = {**wanted, **{key: base[key] for key in taken if key not in wanted}}
            self._step(
                "create", type, name, changed({}, wanted), "create_destination", type=type, name=name, attributes=given
            )
            table[name] = differing({**base, **applied(taken, given, type)}, base)
        if found := changed(table.get(name, {}), wanted, base):
            fixed = [key for key in found if lookup(key, "destination").reload == "fixed"]
            if fixed:
                why = f"fixed when a destination is created: {', '.join(fixed)}; destroy it and import again"
                self._block("update", type, name, found, why)
                return
            self._step(
                "update",
                type,
                name,
                found,
                "update_destination",
                type=type,
                name=name,
                changes={key: new for key, (_, new) in found.items()},
            )
            table[name] = wanted

    def _require_quota(self, attributes: Attributes, label: str) -> None:
        quota = attributes.get("quota")
        if quota and quota not in self._now.quotas:
            raise ConfigError(f"{label}: there is no quota {quota!r}, here or among these definitions")
        if quota and self._prune and quota not in self._wanted.quotas:
            raise ConfigError(f"{label}: its quota {quota!r} is not among these definitions, and would be destroyed")

    # ---- subscriptions, agents, properties

    def _subscriptions(self) -> None:
        table = self._now.subscriptions
        for identity, wanted in self._wanted.subscriptions.items():
            shown, there = subscription(identity), table.get(identity)
            topic = wanted["topic"]
            if self._prune and topic in self._now.topics and topic not in self._wanted.topics:
                raise ConfigError(
                    f"subscription {shown}: its topic {topic!r} is not among these definitions, and would be destroyed"
                )
            if there is not None and there != wanted:
                if not self._prune:
                    self._block("update", "subscription", shown, changed(there, wanted), NO_PRUNE)
                    continue
                self._destroy_subscription(identity)
            if there != wanted:
                self._step(
                    "create",
                    "subscription",
                    shown,
                    changed({}, wanted),
                    "create_subscription",
                    name=identity[1],
                    client_id=identity[0] or None,
                    **{**wanted, "selector": wanted["selector"] or None},
                )
                table[identity] = wanted

    def _destroy_subscription(self, identity: Identity) -> None:
        gone = changed(self._now.subscriptions.pop(identity), {})
        self._step(
            "destroy",
            "subscription",
            subscription(identity),
            gone,
            "destroy_subscription",
            name=identity[1],
            client_id=identity[0] or None,
        )

    def _agents(self) -> None:
        table = self._now.agents
        for name, wanted in self._wanted.agents.items():
            found = changed(table.get(name, {}), wanted)
            if name in table and table[name] != wanted:
                self._step("destroy", "agent", name, found, "destroy_forwarding", name=name)
            elif not self._place.agents:
                self._block("create", "agent", name, found, "agents are of clusters, and this broker is alone")
                continue
            if table.get(name) != wanted:
                rest = {key: value for key, value in wanted.items() if key not in ("queue", "to")}
                self._step(
                    "create",
                    "agent",
                    name,
                    found,
                    "create_forwarding",
                    name=name,
                    queue=wanted["queue"],
                    to=wanted["to"],
                    attributes=rest,
                )
                table[name] = wanted

    # ---- pauses, users

    def _pauses(self) -> None:
        table = self._now.pauses
        for key in self._wanted.pauses:
            type, name, which = key  # noqa: A001 - as everywhere
            there = name in self._now.of_type(type)
            if self._prune and there and name not in self._wanted.of_type(type):
                raise ConfigError(
                    f"pause of {type} {name!r}: the {type} is not among these definitions, and would be destroyed"
                )
            if not there and (type, name) not in self._place.automatic:
                self._block("create", "pause", pause(key), {}, f"there is no {type} {name!r}, here or in what is made")
            elif key not in table:
                self._step("create", "pause", pause(key), {}, "pause_destination", type=type, name=name, which=which)
                table[key] = {}

    def _users(self) -> None:
        """A user that brokers have differently has no fields in what there is."""
        if not self._place.users:
            return
        table = self._now.users
        for name, wanted in self._wanted.users.items():
            there = table.get(name)
            if there == wanted:
                continue
            action, found = "create" if there is None else "update", _masked(there or {}, wanted)
            if there and there["group"] != wanted["group"]:
                why = f"the group of a user, {there['group']}, stays as it was made: delete the user and import again"
                self._block(action, "user", name, found, why)
                continue
            if wanted["group"] == ANONYMOUS and not self._make_way(name, found):
                continue
            self._step(action, "user", name, found, "set_user", name=name, **wanted)
            table[name] = wanted
        if self._wanted.users or self._prune:
            for broker in self._place.down:
                self._block("update", "users", broker, {}, f"{DOWN}, and its users cannot be compared")

    def _make_way(self, name: str, found: Mapping[str, tuple[Any, Any]]) -> bool:
        """Whether the group of the anonymous user is free."""
        table = self._now.users
        other = next((one for one, row in table.items() if row.get("group") == ANONYMOUS and one != name), None)
        if other is not None and (not self._prune or other in self._wanted.users):
            self._block("create", "user", name, found, f"group {ANONYMOUS} holds one user, and has {other!r}")
            return False
        if other is not None:
            self._destroy_one("user", other, table[other])
        return True

    # ---- properties

    def _properties(self) -> list[str]:
        """Those that all brokers are to have in one step, since properties may only go together; then those of one
        broker. What stays without being wanted."""
        wanted, configured = self._wanted, self._place.configured
        self._refuse_brokers()
        changed_at = {broker: {**self._now.properties, **self._now.brokers.get(broker, {})} for broker in configured}
        held = {broker: {**configured[broker], **own} for broker, own in changed_at.items()}
        target = {
            broker: {
                **({name: configured[broker].get(name) for name in own} if self._prune else {}),
                **wanted.properties,
                **wanted.brokers.get(broker, {}),
            }
            for broker, own in changed_at.items()
        }
        found = {broker: changed(_part(held[broker], new), new) for broker, new in target.items()}
        common: dict[str, tuple[Any, Any]] = {}
        for pairs in found.values():
            for name, pair in pairs.items():
                if all(name in new and new[name] == pair[1] for new in target.values()):
                    common.setdefault(name, pair)
        if common:
            changes = {name: new for name, (_, new) in common.items()}
            self._step("update", "properties", "broker", common, "update_broker", properties=changes)
        for broker, pairs in found.items():
            if rest := {name: pair for name, pair in pairs.items() if name not in common}:
                changes = {name: new for name, (_, new) in rest.items()}
                self._step("update", "properties", broker, rest, "update_broker", properties=changes, broker=broker)
        self._block_down()
        self._take_properties({broker: {**held[broker], **target[broker]} for broker in held})
        return [] if self._prune else self._properties_left(changed_at)

    def _refuse_brokers(self) -> None:
        for broker, own in self._wanted.brokers.items():
            if alone := [name for name in own if name in self._place.together]:
                raise ConfigError(
                    f"brokers, {broker}: {alone[0]} has to be the same on all brokers: put it into properties"
                )
            if broker not in self._place.configured and broker not in self._place.down:
                why = f"there is no broker {broker!r} here; there are {', '.join(sorted(self._place.configured))}"
                self._block("update", "properties", broker, changed({}, own), why)

    def _block_down(self) -> None:
        for broker in self._place.down:
            own = {**self._wanted.properties, **self._wanted.brokers.get(broker, {})}
            if own or (self._prune and broker not in self._wanted.missing):
                why = f"{DOWN}, and its properties cannot be compared"
                self._block("update", "properties", broker, changed({}, own), why)

    def _take_properties(self, held: Mapping[str, Mapping[str, Any]]) -> None:
        own = {broker: differing(values, self._place.configured[broker]) for broker, values in held.items()}
        common, rest = shared_properties(own)
        self._now.properties.clear()
        self._now.properties.update(common)
        self._now.brokers.clear()
        self._now.brokers.update(rest)

    def _properties_left(self, changed_at: Mapping[str, Mapping[str, Any]]) -> list[str]:
        wanted = self._wanted
        left = {
            broker: [name for name in own if name not in {**wanted.properties, **wanted.brokers.get(broker, {})}]
            for broker, own in changed_at.items()
        }
        if left and all(left.values()) and len({tuple(names) for names in left.values()}) == 1:
            return ["properties broker"]
        return [f"properties {broker}" for broker, names in left.items() if names]

    # ---- what is not wanted

    def _destroy(self) -> list[str]:
        """Destroy it, or say that it stays."""
        unwanted = [
            entry
            for entry in _entries(self._now)
            if entry[0] != "properties" and entry[2] not in _table(self._wanted, entry[0]) and self._is_defined(entry)
        ]
        if not self._prune:
            return [f"{kind} {shown}" for kind, shown, _ in unwanted]
        order = ("pause", "agent", "subscription", "queue", "topic", "policy", "template", "quota", "user")
        topics = {name for kind, name, _ in unwanted if kind == "topic"}
        for kind, shown, key in sorted(unwanted, key=lambda entry: order.index(entry[0])):
            row = _table(self._now, kind).get(key, {})
            if kind == "subscription":
                if row["topic"] not in topics:
                    self._destroy_subscription(key)
            elif kind == "pause":
                self._resume(key)
            elif (kind, key) == ("queue", DEAD_MESSAGE_QUEUE):
                self._destination("queue", DEAD_MESSAGE_QUEUE, {})
                self._now.queues.pop(key, None)
            else:
                self._destroy_one(kind, key, row)
            if kind == "topic":
                table = self._now.subscriptions
                for identity in [one for one, fields_of in table.items() if fields_of["topic"] == shown]:
                    del table[identity]
        return []

    def _is_defined(self, entry: tuple[str, str, Any]) -> bool:
        """What was created automatically goes by itself, and its pauses with it; users go when they are asked for."""
        kind, _, key = entry
        return self._now.is_made(key) if kind == "pause" else kind != "user" or self._place.users

    def _resume(self, key: Pause) -> None:
        """The pauses of a destination that goes end with it."""
        type, name, which = key  # noqa: A001 - as everywhere
        if name in self._wanted.of_type(type):
            self._step("destroy", "pause", pause(key), {}, "resume_destination", type=type, name=name, which=which)
        del self._now.pauses[key]

    def _destroy_one(self, kind: str, name: str, row: Attributes) -> None:
        verbs = {"agent": "destroy_forwarding", "queue": "destroy_destination", "topic": "destroy_destination"}
        args = {"type": kind, "name": name} if kind in TYPES else {"name": name}
        before = _flat(row) if kind == "policy" else row
        gone = _masked(row, {}) if kind == "user" else changed(before, {})
        self._step("destroy", kind, name, gone, verbs.get(kind, f"destroy_{kind}"), **args)
        del _table(self._now, kind)[name]


_SECTIONS: Final = {
    "quota": "quotas",
    "template": "templates",
    "policy": "policies",
    "queue": "queues",
    "topic": "topics",
    "subscription": "subscriptions",
    "agent": "agents",
    "pause": "pauses",
    "user": "users",
}


def _table(definitions: Definitions, kind: str) -> dict[Any, Any]:
    found: dict[Any, Any] = getattr(definitions, _SECTIONS[kind])
    return found


def _entries(definitions: Definitions) -> list[tuple[str, str, Any]]:
    """(kind, name as it is shown, key) of each; the properties of all brokers are one entry, those of one another."""
    found: list[tuple[str, str, Any]] = [("properties", "broker", "")] if definitions.properties else []
    found += [("properties", broker, broker) for broker in definitions.brokers]
    shown: dict[str, Callable[[Any], str]] = {"subscription": subscription, "pause": pause}
    for kind in _SECTIONS:
        found += [(kind, shown.get(kind, str)(key), key) for key in _table(definitions, kind)]
    return found


def pause(key: Pause) -> str:
    """How a pause is shown."""
    return f"{key[0]} {key[1]} {key[2]}"


def _part(values: Mapping[str, Any], names: Collection[str]) -> dict[str, Any]:
    return {name: values[name] for name in names if name in values}


def _masked(before: Attributes, after: Attributes) -> dict[str, tuple[Any, Any]]:
    """As :meth:`changed` of a user; verifiers are not shown, and only that there is another one."""
    found = changed(before, after)
    if "verifier" in found:
        old, new = found["verifier"]
        found["verifier"] = (old and HIDDEN, new and (HIDDEN_TOO if old else HIDDEN))
    return found


def subscription(identity: Identity) -> str:
    """How a durable subscription is shown."""
    return f"{identity[1]} of client {identity[0]}" if identity[0] else identity[1]


def changed(
    before: Mapping[str, Any], after: Mapping[str, Any], defaults: Mapping[str, Any] | None = None
) -> dict[str, tuple[Any, Any]]:
    """Attribute → (old, new) of those that differ; what is not said has its default."""
    base = defaults or {}
    keys = [*before, *(key for key in after if key not in before)]
    pairs = {key: (before.get(key, base.get(key)), after.get(key, base.get(key))) for key in keys}
    return {key: pair for key, pair in pairs.items() if pair[0] != pair[1]}


def _flat(policy: Mapping[str, Any]) -> dict[str, Any]:
    return {**{key: value for key, value in policy.items() if key != "attributes"}, **policy["attributes"]}


def _grants_more(old: Any, new: Any) -> bool:
    """Of an attribute of a quota; a text grants nothing, and may change first."""
    if isinstance(new, str):
        return True
    return bool(old >= 0 and (new < 0 or new > old))


def _refuse_circles(now: Definitions, wanted: Definitions, *, prune: bool) -> None:
    queues = {**({} if prune else now.queues), **wanted.queues}
    for name, own in queues.items():
        way, after = [name], own.get("errorDestination")
        while after:
            go_on(way, after)
            after = queues.get(after, {}).get("errorDestination")
