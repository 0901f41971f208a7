"""Queues and topics as definitions: a kind for each type."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any, ClassVar, Final

from raybroker.model.definitions.kinds.kind import Kind, Planning, Reading, Recorded, checked_table, itself
from raybroker.model.definitions.template import applied, of_type
from raybroker.model.definitions.values import Attributes, Changes, Definitions, changed, differing, new_values
from raybroker.model.naming.names import DEAD_MESSAGE_QUEUE, DestinationType, check_destination_name
from raybroker.model.settings.settings import check_attribute_names, destination_attributes, go_on, lookup

DESTINATION: Final = Recorded(
    "destinations",
    "destination",
    "create_destination",
    "destroy_destination",
    "update_destination",
    naming=itself,
    stays=True,
)


class DestinationKind(Kind):
    """The destinations of one type."""

    name: DestinationType
    verbs: ClassVar = {"create": "create_destination", "update": "update_destination", "destroy": "destroy_destination"}
    recorded = DESTINATION

    def __init__(self, type: DestinationType) -> None:
        self.name = type
        self.section = f"{type}s"

    def entry(self, name: str, given: Any, reading: Reading) -> Attributes:
        check_destination_name(name, allow_reserved=(self.name, name) == ("queue", DEAD_MESSAGE_QUEUE))
        check_attribute_names(checked_table(given), self.name)
        base = reading.defaults.destination(self.name, name)
        made = destination_attributes({**base, **given}, type=self.name, name=name).as_dict(self.name)
        return differing(made, base)

    def of_record(self, key: tuple[str, ...], row: Mapping[str, Any], reading: Reading) -> Iterator[tuple[Any, Any]]:
        """What mq.sys.dmq has without an administrator is no definition."""
        if key[0] == self.name:
            own = self.entry(key[1], row, reading)
            if own or key != ("queue", DEAD_MESSAGE_QUEUE):
                yield key[1], own

    def args(self, key: Any) -> Attributes:
        return {"type": self.name, "name": key}

    def plan(self, planning: Planning) -> None:
        pending = dict(self.table(planning.wanted))
        while pending:
            name, wanted = next(iter(pending.items()))
            if self is QUEUE and _leads_back(planning.now, name, wanted):
                _loosen(planning, pending)
            del pending[name]
            self.plan_one(planning, name, wanted)

    def plan_one(self, planning: Planning, name: str, wanted: Attributes) -> None:
        base, table = planning.place.defaults.destination(self.name, name), self.table(planning.now)
        planning.require_quota(wanted, f"{self.name} {name!r}")
        template = wanted.get("template")
        if name not in table and name != DEAD_MESSAGE_QUEUE:
            why = ""
            if (self.name, name) in planning.place.automatic:
                why = "it was created automatically and is in use: destroy it, or import when it is gone"
            elif template and template not in planning.now.templates:
                why = f"there is no template {template!r}, here or among these definitions"
            if why:
                planning.block("create", self.name, name, changed({}, wanted), why)
                return
            taken = of_type(planning.now.templates.get(template or "", {}), self.name)
            given = {**wanted, **{key: base[key] for key in taken if key not in wanted}}
            planning.step("create", self, name, changed({}, wanted), attributes=given)
            table[name] = differing({**base, **applied(taken, given, self.name)}, base)
        if found := changed(table.get(name, {}), wanted, base):
            if fixed := [key for key in found if lookup(key, "destination").reload == "fixed"]:
                why = f"fixed when a destination is created: {', '.join(fixed)}; destroy it and import again"
                planning.block("update", self.name, name, found, why)
                return
            planning.step("update", self, name, found, changes=new_values(found))
            table[name] = wanted

    def plan_end(self, planning: Planning, key: Any) -> None:
        """What an administrator has changed of mq.sys.dmq becomes the default again."""
        if (self.name, key) == ("queue", DEAD_MESSAGE_QUEUE):
            self.plan_one(planning, key, {})
            planning.now.queues.pop(key, None)
        else:
            super().plan_end(planning, key)


QUEUE: Final = DestinationKind("queue")
TOPIC: Final = DestinationKind("topic")


def _leads_back(now: Definitions, name: str, wanted: Attributes) -> bool:
    """Whether the error destination leads back while others are not as wanted yet."""
    way, after = [name], wanted.get("errorDestination")
    while after:
        if after in way:
            return True
        way.append(after)
        after = now.queues.get(after, {}).get("errorDestination")
    return False


def _loosen(planning: Planning, pending: Collection[str]) -> None:
    """Queues that get another error destination later, or go, have none meanwhile."""
    queues, wanted = planning.now.queues, planning.wanted.queues
    going = [name for name in queues if planning.prune and name not in wanted]
    for name in (*pending, *going):
        own, after = queues.get(name, {}), wanted.get(name, {}).get("errorDestination")
        if own.get("errorDestination") and own["errorDestination"] != after:
            found: Changes = {"errorDestination": (own["errorDestination"], "")}
            planning.step("update", QUEUE, name, found, changes=new_values(found))
            queues[name] = {key: value for key, value in own.items() if key != "errorDestination"}


def refuse_circles(now: Definitions, wanted: Definitions, *, prune: bool) -> None:
    """Raises ConfigError for error destinations that would lead back when all is as wanted."""
    queues = {**({} if prune else now.queues), **wanted.queues}
    for name, own in queues.items():
        way, after = [name], own.get("errorDestination")
        while after:
            go_on(way, after)
            after = queues.get(after, {}).get("errorDestination")
