"""Definitions as values: one table of entries for each kind, and the attributes that nobody has set."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Final

from raybroker.model.naming.names import DEAD_MESSAGE_QUEUE, DestinationType
from raybroker.model.settings.setting import Value
from raybroker.model.settings.settings import ConfigView, dead_message_queue, destination_attributes

Attributes = dict[str, Any]
Table = dict[str, Attributes]
Identity = tuple[str, str]
"""Client id, "" for none, and name of a durable subscription."""
Pause = tuple[DestinationType, str, str]
"""Type and name of a destination, and what of it is paused."""
TYPES: Final[tuple[DestinationType, ...]] = ("queue", "topic")
NAME_CHARS_MAX: Final = 255
Changes = Mapping[str, tuple[Any, Any]]
"""Attribute → old value and new value, None where there is none."""


@dataclass(frozen=True)
class Defaults:
    """What attributes are that nobody has set: of queues, of topics, of mq.sys.dmq."""

    queue: Mapping[str, Value]
    topic: Mapping[str, Value]

    @staticmethod
    def from_config(config: ConfigView | None = None) -> Defaults:
        """Return the defaults with what a broker's configuration says of them."""
        queue = destination_attributes({}, config, "queue").as_dict("queue")
        return Defaults(queue, destination_attributes({}, config, "topic").as_dict("topic"))

    def destination(self, type: DestinationType, name: str) -> Mapping[str, Value]:
        if (type, name) == ("queue", DEAD_MESSAGE_QUEUE):
            return dead_message_queue().as_dict("queue")
        return self.queue if type == "queue" else self.topic

    @property
    def template(self) -> Mapping[str, Value]:
        return {**self.queue, **self.topic}


@dataclass(frozen=True)
class Definitions:
    """A table for each kind, whose attributes differ from their defaults. Policies have all their fields, pauses have
    no attributes."""

    properties: dict[str, Value] = field(default_factory=dict)
    brokers: Table = field(default_factory=dict)
    quotas: Table = field(default_factory=dict)
    templates: Table = field(default_factory=dict)
    policies: Table = field(default_factory=dict)
    queues: Table = field(default_factory=dict)
    topics: Table = field(default_factory=dict)
    subscriptions: dict[Identity, Attributes] = field(default_factory=dict)
    agents: Table = field(default_factory=dict)
    pauses: dict[Pause, Attributes] = field(default_factory=dict)
    users: Table = field(default_factory=dict)
    missing: tuple[str, ...] = ()
    """Brokers of which it is not known what they have alone."""

    def copy(self) -> Definitions:
        """Independent of this one, but for the attributes of an entry, which are never changed in place."""
        tables = {one.name: dict(self.table(one.name)) for one in fields(self) if one.name != "missing"}
        return Definitions(**tables, missing=self.missing)

    def table(self, section: str) -> dict[Any, Any]:
        found: dict[Any, Any] = getattr(self, section)
        return found

    def of_type(self, type: DestinationType) -> Table:
        return self.queues if type == "queue" else self.topics


def differing(values: Mapping[str, Any], defaults: Mapping[str, Any]) -> Attributes:
    """The values that are not those of ``defaults``."""
    return {name: value for name, value in values.items() if name not in defaults or value != defaults[name]}


def changed(
    before: Mapping[str, Any], after: Mapping[str, Any], defaults: Mapping[str, Any] | None = None
) -> dict[str, tuple[Any, Any]]:
    """Return the values that differ; what is not said has its default."""
    base = defaults or {}
    keys = [*before, *(key for key in after if key not in before)]
    pairs = {key: (before.get(key, base.get(key)), after.get(key, base.get(key))) for key in keys}
    return {key: pair for key, pair in pairs.items() if pair[0] != pair[1]}


def new_values(changes: Changes) -> Attributes:
    return {key: new for key, (_, new) in changes.items()}
