"""Properties of brokers as definitions: those of all brokers, and what one has beside them.

They are planned together: properties may only go together, so that all brokers get in one step what they are to have
equally, and each gets the rest.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from raybroker.model.definitions.kinds.kind import DOWN, Kind, Planning, Reading, checked_table
from raybroker.model.definitions.values import NAME_CHARS_MAX, Attributes, Definitions, Table, changed, differing
from raybroker.model.errors import ConfigError
from raybroker.model.settings.setting import Value
from raybroker.model.settings.setting_services import PORT_MAPPER
from raybroker.model.settings.settings import lookup

_VERBS: Final = {"update": "update_broker"}


class PropertyKind(Kind):
    """The properties of all brokers: one entry, however many there are."""

    name = "properties"
    section = "properties"
    verbs = _VERBS
    last = True

    def entry(self, name: str, given: Any, reading: Reading) -> Value:
        setting = lookup(name, "broker")
        if setting.reload != "live":
            raise ConfigError(f"{name} is read when a broker starts: set it in the configuration")
        return setting.parse(given)

    def plain(self, table: Mapping[Any, Any]) -> Any:
        return {name: table[name] for name in sorted(table)}

    def entries(self, definitions: Definitions) -> list[tuple[str, Any]]:
        return [(self.shown(""), "")] if definitions.properties else []

    def shown(self, key: Any) -> str:
        """The key is that of a broker, "" for all."""
        return str(key) or "broker"

    def args(self, key: Any) -> Attributes:
        return {"broker": key} if key else {}

    def plan(self, planning: Planning) -> None:
        """Plan the properties; with pruning, what is not wanted is what the configuration says."""
        wanted, configured = planning.wanted, planning.place.configured
        _refuse_brokers(planning)
        held = {broker: {**configured[broker], **own} for broker, own in _changed_at(planning.now, planning).items()}
        target = {
            broker: {
                **({name: configured[broker].get(name) for name in own} if planning.prune else {}),
                **_wanted_at(wanted, broker),
            }
            for broker, own in _changed_at(planning.now, planning).items()
        }
        found = {broker: changed(_part(held[broker], new), new) for broker, new in target.items()}
        together: dict[str, tuple[Any, Any]] = {}
        for pairs in found.values():
            for name, pair in pairs.items():
                if name != PORT_MAPPER and all(name in new and new[name] == pair[1] for new in target.values()):
                    together.setdefault(name, pair)
        rests = {broker: {n: pair for n, pair in pairs.items() if n not in together} for broker, pairs in found.items()}
        for broker, pairs in {"": together, **rests}.items():
            if pairs:
                planning.step("update", self, broker, pairs, properties={name: new for name, (_, new) in pairs.items()})
        _block_down(planning)
        own_of = {broker: differing({**held[broker], **target[broker]}, configured[broker]) for broker in held}
        common, rest = shared_properties(own_of)
        planning.now.properties.clear()
        planning.now.properties.update(common)
        planning.now.brokers.clear()
        planning.now.brokers.update(rest)

    def unwanted(self, planning: Planning) -> list[Any]:
        """The brokers that have something else than their configuration says, "" when all have the same; with pruning,
        none has."""
        if planning.prune:
            return []
        left = {
            broker: [name for name in own if name not in _wanted_at(planning.wanted, broker)]
            for broker, own in _changed_at(planning.before, planning).items()
        }
        if left and all(left.values()) and len({tuple(names) for names in left.values()}) == 1:
            return [""]
        return [broker for broker, names in left.items() if names]


class OwnPropertyKind(PropertyKind):
    """What one broker has alone, or with another value than the others; planned with those of all."""

    section = "brokers"

    def entry(self, name: str, given: Any, reading: Reading) -> Attributes:  # type: ignore[override]  # a table of them
        if not isinstance(name, str) or not 0 < len(name) <= NAME_CHARS_MAX or not name.isprintable():
            raise ConfigError(f"the name of a broker is 1 to {NAME_CHARS_MAX} printable characters")
        return {key: PROPERTY.entry(key, value, reading) for key, value in checked_table(given).items()}

    def entries(self, definitions: Definitions) -> list[tuple[str, Any]]:
        return [(broker, broker) for broker in definitions.brokers]

    def plan(self, planning: Planning) -> None:
        """See PropertyKind."""

    def unwanted(self, planning: Planning) -> list[Any]:
        return []


PROPERTY: Final = PropertyKind()
OWN_PROPERTY: Final = OwnPropertyKind()


def shared_properties(at: Mapping[str, Mapping[str, Value]]) -> tuple[Attributes, Table]:
    """(what all brokers have, broker → what it has beside that), of broker → properties."""
    held = list(at.values())
    common = (
        {name: value for name, value in held[0].items() if all(other.get(name) == value for other in held)}
        if held
        else {}
    )
    rest = {broker: differing(own, common) for broker, own in at.items()}
    return common, {broker: own for broker, own in rest.items() if own}


def _changed_at(definitions: Definitions, planning: Planning) -> Table:
    """Broker → what it has that its configuration does not say."""
    own = definitions.brokers
    return {broker: {**definitions.properties, **own.get(broker, {})} for broker in planning.place.configured}


def _wanted_at(wanted: Definitions, broker: str) -> Attributes:
    return {**wanted.properties, **wanted.brokers.get(broker, {})}


def _part(values: Mapping[str, Any], names: Mapping[str, Any]) -> Attributes:
    return {name: values[name] for name in names if name in values}


def _refuse_brokers(planning: Planning) -> None:
    place = planning.place
    for broker, own in planning.wanted.brokers.items():
        if alone := [name for name in own if name in place.together]:
            raise ConfigError(
                f"brokers, {broker}: {alone[0]} has to be the same on all brokers: put it into properties"
            )
        if broker not in place.configured and broker not in place.down:
            why = f"there is no broker {broker!r} here; there are {', '.join(sorted(place.configured))}"
            planning.block("update", PROPERTY.name, broker, changed({}, own), why)


def _block_down(planning: Planning) -> None:
    for broker in planning.place.down:
        own = _wanted_at(planning.wanted, broker)
        if own or (planning.prune and broker not in planning.wanted.missing):
            why = f"{DOWN}, and its properties cannot be compared"
            planning.block("update", PROPERTY.name, broker, changed({}, own), why)
