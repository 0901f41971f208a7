"""Durable subscriptions as definitions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar, Final

from raybroker.model.definitions.kinds.destination import TOPIC
from raybroker.model.definitions.kinds.kind import ListedKind, Planning, Reading, Recorded
from raybroker.model.definitions.values import NAME_CHARS_MAX, Attributes, Identity, changed, differing
from raybroker.model.errors import ConfigError
from raybroker.model.naming.names import check_destination_name, is_metrics_topic, is_temporary_name

NO_PRUNE: Final = "it would be destroyed with its messages and made anew, which only --prune does"
_TYPES: Final = {"name": str, "topic": str, "client_id": str, "shared": bool, "selector": str, "no_local": bool}


class SubscriptionKind(ListedKind):
    """Their keys are identities."""

    name = "subscription"
    section = "subscriptions"
    verbs: ClassVar = {"create": "create_subscription", "destroy": "destroy_subscription"}
    said: ClassVar = {"client_id": "", "shared": False, "selector": "", "no_local": False}
    recorded = Recorded(
        "subscriptions",
        "durable subscription",
        "create_subscription",
        "destroy_subscription",
        in_topic=True,
        stays=True,
    )
    lists = "list_subscriptions"

    def entry(self, name: str, given: Any, reading: Reading) -> Attributes:
        """topic, shared, selector ("" for none) and no_local."""
        return {
            "topic": given["topic"],
            "shared": bool(given["shared"]),
            "selector": reading.selector(given["selector"]) if given["selector"] else "",
            "no_local": bool(given["no_local"]),
        }

    def read_entry(self, given: Mapping[str, Any], reading: Reading) -> tuple[Identity, Attributes]:
        row = {**self.said, **given}
        for key in row:
            if key not in _TYPES:
                raise ConfigError(f"{key!r} is no field of subscriptions: name, topic, {', '.join(self.said)}")
        for key, kind in _TYPES.items():
            if not isinstance(row.get(key), kind):
                raise ConfigError(f"{key} = {row.get(key)!r}; it is {'a text' if kind is str else 'true or false'}")
        if not 0 < len(row["name"]) <= NAME_CHARS_MAX or not row["name"].isprintable():
            raise ConfigError(f"name = {row['name'][:80]!r}; it is 1 to {NAME_CHARS_MAX} printable characters")
        check_destination_name(row["topic"], allow_reserved=is_metrics_topic(row["topic"]))
        return (row["client_id"], row["name"]), self.entry(row["name"], row, reading)

    def twice(self, key: Any) -> str:
        return "it is there twice: one client id and name is one subscription"

    def plain(self, table: Mapping[Any, Any]) -> Any:
        return [
            {"name": name, **differing({"client_id": client_id, **row}, self.said)}
            for (client_id, name), row in sorted(table.items())
        ]

    def of_record(self, key: tuple[str, ...], row: Mapping[str, Any], reading: Reading) -> Iterator[tuple[Any, Any]]:
        if not is_temporary_name(str(row["topic"])):
            yield (key[0], key[1]), self.entry(key[1], row, reading)

    def listed(self, row: Attributes, reading: Reading) -> Iterator[tuple[Any, Any]]:
        if row["durable"]:
            yield from self.of_record((row["client_id"] or "", row["name"]), row, reading)

    def shown(self, key: Any) -> str:
        client_id, name = key
        return f"{name} of client {client_id}" if client_id else str(name)

    def args(self, key: Any) -> Attributes:
        return {"name": key[1], "client_id": key[0] or None}

    def plan(self, planning: Planning) -> None:
        table = planning.now.subscriptions
        for key, wanted in planning.wanted.subscriptions.items():
            there, topic = table.get(key), wanted["topic"]
            if planning.prune and topic in planning.now.topics and topic not in planning.wanted.topics:
                raise ConfigError(
                    f"subscription {self.shown(key)}: its topic {topic!r} is not among these definitions, and would be"
                    " destroyed"
                )
            if there == wanted:
                continue
            if there is not None and not planning.prune:
                planning.block("update", self.name, self.shown(key), changed(there, wanted), NO_PRUNE)
                continue
            if there is not None:
                super().plan_end(planning, key)
            args = {**wanted, "selector": wanted["selector"] or None}
            planning.step("create", self, key, changed({}, wanted), **args)
            table[key] = wanted

    def plan_end(self, planning: Planning, key: Any) -> None:
        """It goes with its topic, where that goes."""
        if planning.now.subscriptions[key]["topic"] in TOPIC.unwanted(planning):
            del planning.now.subscriptions[key]
        else:
            super().plan_end(planning, key)


SUBSCRIPTION: Final = SubscriptionKind()
