"""Definitions: everything that administrators have made, as one value that can be written to a file and read back.

As plain values it is a table with these entries; those that are empty are left out::

    raybroker      {"definitions": 1}: the version of the format; ``missing``: brokers that could not be asked
    properties     broker properties that ``update bkr`` has changed on all brokers → value
    brokers        name of a broker → properties that it has alone, or with another value than the others
    quotas         name → attributes
    templates      name → attributes
    policies       name → pattern, applyTo, priority, operator, attributes
    queues         name → attributes; mq.sys.dmq among them when an administrator has changed it
    topics         name → attributes
    subscriptions  a list: name, topic, client_id, shared, selector, no_local of durable ones
    agents         forwarding agents: name → queue, to and attributes
    pauses         a list: type, name and which (producers, consumers or insertion) of destinations that are paused
                   until an administrator resumes them
    users          of the file of users, where they are asked for: name → verifier, group, active; no passwords

Attributes are those that differ from their defaults; what is not said has its default.  What administrators make and
what stays until they change it is a definition.  Messages are none, and neither are recurring schedules, which clients
send as messages and which have bodies; nor pauses that end by themselves or, as those of services, with the broker; nor
what was created automatically, and pauses of that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Final

from raybroker.model.definitions.forwarding import Forwarding, forwarding
from raybroker.model.definitions.pauses import WORK, at_startup
from raybroker.model.definitions.policy import POLICIES_MAX, policy_of
from raybroker.model.definitions.quota import ATTRIBUTES, quota_of
from raybroker.model.definitions.user import ANONYMOUS, user_of
from raybroker.model.definitions.user import DEFAULTS as _USER
from raybroker.model.errors import BrokerError, ConfigError
from raybroker.model.naming.names import (
    DEAD_MESSAGE_QUEUE,
    DestinationType,
    check_destination_name,
    check_quota_name,
    check_template_name,
    is_metrics_topic,
)
from raybroker.model.naming.nearest import nearest
from raybroker.model.settings.setting import Value
from raybroker.model.settings.settings import (
    ConfigView,
    check_attribute_names,
    dead_message_queue,
    destination_attributes,
    lookup,
)

VERSION: Final = 1
"""Of the format; a release reads files up to its own."""
ENTRIES_MAX: Final = 20_000
"""Entries of one file."""
HEADER: Final = "raybroker"
NAME_CHARS_MAX: Final = 255

Attributes = dict[str, Any]
Table = dict[str, Attributes]
_LISTS: Final = ("subscriptions", "pauses")
Pause = tuple[DestinationType, str, str]
"""Type and name of a destination, and what of it is paused."""
Identity = tuple[str, str]
"""Client id, "" for none, and name of a durable subscription."""

_AGENT: Final = {one.name: one.default for one in fields(Forwarding)}
_POLICY: Final = {"applyTo": "all", "priority": 0, "operator": False}
_SUBSCRIPTION: Final = {"client_id": "", "shared": False, "selector": "", "no_local": False}


@dataclass(frozen=True)
class Defaults:
    """What attributes are that nobody has set: of queues, of topics, of mq.sys.dmq."""

    queue: Mapping[str, Value]
    topic: Mapping[str, Value]

    @staticmethod
    def of(config: ConfigView | None = None) -> Defaults:
        """With what a broker's configuration says of it."""
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
    """See the module; attributes differ from their defaults. Policies have all their fields."""

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
    """The attributes are empty."""
    users: Table = field(default_factory=dict)
    missing: tuple[str, ...] = ()
    """Brokers of which it is not known what they have alone."""

    def copy(self) -> Definitions:
        """Independent of this one, but for the attributes of an entry, which are never changed in place."""
        return Definitions(**{name: dict(getattr(self, name)) for name in SECTIONS}, missing=self.missing)

    def is_made(self, pause: Pause) -> bool:
        """Whether it is of a destination that is a definition, and not of its attributes."""
        attributes = self.of_type(pause[0]).get(pause[1])
        return attributes is not None and not attributes.get(at_startup(WORK[pause[2]]))

    def of_type(self, type: DestinationType) -> Table:
        return self.queues if type == "queue" else self.topics

    def plain(self) -> dict[str, Any]:
        """As plain values, in order of names, so that equal definitions are written as equal files."""
        found: dict[str, Any] = {HEADER: {"definitions": VERSION}}
        if self.missing:
            found[HEADER]["missing"] = sorted(self.missing)
        for section in SECTIONS:
            table = getattr(self, section)
            if table and section not in _LISTS:
                found[section] = {name: _shown(section, table[name]) for name in sorted(table)}
        if self.pauses:
            found["pauses"] = [dict(zip(("type", "name", "which"), key, strict=True)) for key in sorted(self.pauses)]
        if self.subscriptions:
            found["subscriptions"] = [
                {"name": name, **differing({"client_id": client_id, **row}, _SUBSCRIPTION)}
                for (client_id, name), row in sorted(self.subscriptions.items())
            ]
        return found


SECTIONS: Final = tuple(one.name for one in fields(Definitions) if one.name != "missing")
_SAID: Final[Mapping[str, Mapping[str, Any]]] = {"policies": _POLICY, "users": _USER}
"""Section → fields of its entries that need not be said, with what they are then."""


def _shown(section: str, entry: Any) -> Any:
    if section == "properties":
        return entry
    return {
        key: dict(value) if isinstance(value, Mapping) else value
        for key, value in differing(entry, _SAID.get(section, {})).items()
    }


def differing(values: Mapping[str, Any], defaults: Mapping[str, Any]) -> Attributes:
    """The values that are not those of ``defaults``."""
    return {name: value for name, value in values.items() if name not in defaults or value != defaults[name]}


# ---- entries: each checked and without its defaults


def destination_of(
    type: DestinationType,
    name: str,
    attributes: Mapping[str, Any],
    defaults: Defaults,
) -> Attributes:
    check_destination_name(name, allow_reserved=(type, name) == ("queue", DEAD_MESSAGE_QUEUE))
    check_attribute_names(attributes, type)
    base = defaults.destination(type, name)
    made = destination_attributes({**base, **attributes}, type=type, name=name).as_dict(type)
    return differing(made, base)


def template_of(name: str, attributes: Mapping[str, Any], defaults: Defaults) -> Attributes:
    check_template_name(name)
    if "template" in attributes:
        raise ConfigError("a template has no template of its own")
    made = {key: lookup(key, "destination").parse(value) for key, value in attributes.items()}
    return differing(made, defaults.template)


def limits_of(name: str, attributes: Mapping[str, Any]) -> Attributes:
    """Of a quota."""
    check_quota_name(name)
    return differing(quota_of(attributes), {key: setting.default for key, setting in ATTRIBUTES.items()})


def agent_of(name: str, attributes: Mapping[str, Any]) -> Attributes:
    check_template_name(name)
    return differing(forwarding(attributes).as_dict(), _AGENT)


def subscription_of(row: Mapping[str, Any]) -> Attributes:
    """topic, shared, selector ("" for none) and no_local."""
    return {
        "topic": row["topic"],
        "shared": bool(row["shared"]),
        "selector": row["selector"] or "",
        "no_local": bool(row["no_local"]),
    }


def property_of(name: str, value: object) -> Value:
    setting = lookup(name, "broker")
    if setting.reload != "live":
        raise ConfigError(f"{name} is read when a broker starts: set it in the configuration")
    return setting.parse(value)


def properties_of(name: str, entry: Mapping[str, Any]) -> Attributes:
    """That one broker has."""
    if not isinstance(name, str) or not 0 < len(name) <= NAME_CHARS_MAX or not name.isprintable():
        raise ConfigError(f"the name of a broker is 1 to {NAME_CHARS_MAX} printable characters")
    return {key: property_of(key, value) for key, value in entry.items()}


def shared_properties(changed: Mapping[str, Mapping[str, Value]]) -> tuple[Attributes, Table]:
    """(what all brokers have, broker → what it has beside that), of broker → properties."""
    held = list(changed.values())
    common = (
        {name: value for name, value in held[0].items() if all(other.get(name) == value for other in held)}
        if held
        else {}
    )
    rest = {broker: differing(own, common) for broker, own in changed.items()}
    return common, {broker: own for broker, own in rest.items() if own}


# ---- from plain values


def definitions_of(
    given: Mapping[str, Any], defaults: Defaults, selector: Callable[[str], str] = lambda text: text
) -> Definitions:
    """The checked definitions; raises ConfigError naming the entry that is wrong. ``selector`` checks one, and brings
    it into the form that brokers keep."""
    _check_header(given)
    made: dict[str, Callable[[str, Any], Any]] = {
        "properties": property_of,
        "brokers": lambda name, entry: properties_of(name, _table(entry)),
        "quotas": lambda name, entry: limits_of(name, _table(entry)),
        "templates": lambda name, entry: template_of(name, _table(entry), defaults),
        "policies": lambda name, entry: policy_of(name, _table(entry)).fields(),
        "queues": lambda name, entry: destination_of("queue", name, _table(entry), defaults),
        "topics": lambda name, entry: destination_of("topic", name, _table(entry), defaults),
        "agents": lambda name, entry: agent_of(name, _table(entry)),
        "users": lambda name, entry: user_of(name, _table(entry)),
    }
    found: dict[str, Any] = {}
    for section, make in made.items():
        table = given.get(section, {})
        if not isinstance(table, Mapping):
            raise ConfigError(f"{section} = {str(table)[:80]!r}; it is a table of names")
        found[section] = {}
        for name, entry in table.items():
            with _Naming(f"{section}, {name}"):
                found[section][name] = make(name, entry)
    found["subscriptions"] = dict(_subscriptions(given.get("subscriptions", ()), selector))
    found["pauses"] = {key: {} for key in _pauses(given.get("pauses", ()))}
    _refuse_anonymous(found["users"])
    if (count := sum(map(len, found.values()))) > ENTRIES_MAX:
        raise ConfigError(f"there are {count} entries; at most {ENTRIES_MAX} are read: divide the definitions")
    if len(found["policies"]) > POLICIES_MAX:
        raise ConfigError(f"there are {len(found['policies'])} policies; there can be {POLICIES_MAX}")
    return Definitions(**found, missing=tuple(given[HEADER].get("missing", ())))


def _check_header(given: Mapping[str, Any]) -> None:
    header = given.get(HEADER)
    version = header.get("definitions") if isinstance(header, Mapping) else None
    if not isinstance(version, int) or isinstance(version, bool) or version < 1:
        raise ConfigError(f"these are no definitions: {HEADER} says nothing of their version (definitions = {VERSION})")
    if version > VERSION:
        raise ConfigError(
            f"these are definitions of version {version}; this release reads up to {VERSION}: take a newer raybroker"
        )
    missing = header.get("missing", []) if isinstance(header, Mapping) else []
    if not isinstance(missing, list | tuple) or not all(isinstance(name, str) for name in missing):
        raise ConfigError(f"{HEADER}, missing = {str(missing)[:80]!r}; it is a list of names of brokers")
    known = [HEADER, *SECTIONS]
    for section in given:
        if section not in known:
            near = nearest(str(section), known, least=0.0)
            raise ConfigError(f"{section!r} is no part of definitions; the nearest is {near!r}")


def _subscriptions(given: Any, selector: Callable[[str], str]) -> Iterator[tuple[Identity, Attributes]]:
    if isinstance(given, str | bytes | Mapping) or not hasattr(given, "__iter__"):
        raise ConfigError(f"subscriptions = {str(given)[:80]!r}; it is a list of tables")
    seen: set[Identity] = set()
    for number, entry in enumerate(given, 1):
        row = {**_SUBSCRIPTION, **_table(entry)} if isinstance(entry, Mapping) else {}
        with _Naming(f"subscriptions, {row.get('name', number)}"):
            row = {**_SUBSCRIPTION, **_table(entry)}
            for key in row:
                if key not in ("name", "topic", *_SUBSCRIPTION):
                    raise ConfigError(f"{key!r} is no field of subscriptions: name, topic, {', '.join(_SUBSCRIPTION)}")
            for key, kind in (
                ("name", str),
                ("topic", str),
                ("client_id", str),
                ("shared", bool),
                ("selector", str),
                ("no_local", bool),
            ):
                if not isinstance(row.get(key), kind):
                    raise ConfigError(f"{key} = {row.get(key)!r}; it is {'a text' if kind is str else 'true or false'}")
            if not 0 < len(row["name"]) <= NAME_CHARS_MAX or not row["name"].isprintable():
                raise ConfigError(f"name = {row['name'][:80]!r}; it is 1 to {NAME_CHARS_MAX} printable characters")
            check_destination_name(row["topic"], allow_reserved=is_metrics_topic(row["topic"]))
            identity = (row["client_id"], row["name"])
            if identity in seen:
                raise ConfigError("it is there twice: one client id and name is one subscription")
            seen.add(identity)
            yield identity, subscription_of({**row, "selector": selector(row["selector"]) if row["selector"] else ""})


def _pauses(given: Any) -> Iterator[Pause]:
    if isinstance(given, str | bytes | Mapping) or not hasattr(given, "__iter__"):
        raise ConfigError(f"pauses = {str(given)[:80]!r}; it is a list of tables")
    seen: set[Pause] = set()
    for number, entry in enumerate(given, 1):
        row = entry if isinstance(entry, Mapping) else {}
        with _Naming(f"pauses, {str(row.get('name', number))[:80]}"):
            row = _table(entry)
            if odd := sorted(set(row) ^ {"type", "name", "which"}):
                raise ConfigError(f"{odd[0]!r:.80}: a pause has type, name and which, and nothing else")
            if row["type"] not in ("queue", "topic"):
                raise ConfigError(f"type = {str(row['type'])[:80]!r}; it is queue or topic")
            if row["which"] not in WORK:
                raise ConfigError(f"which = {str(row['which'])[:80]!r}; it is one of {', '.join(WORK)}")
            if not isinstance(row["name"], str):
                raise ConfigError(f"name = {str(row['name'])[:80]!r}; it is a text")
            key: Pause = (row["type"], check_destination_name(row["name"]), row["which"])
            if key in seen:
                raise ConfigError(f"{key[0]} {key[1]!r} is there twice with {key[2]}")
            seen.add(key)
            yield key


def _refuse_anonymous(users: Table) -> None:
    found = sorted(name for name, user in users.items() if user["group"] == ANONYMOUS)
    if len(found) > 1:
        raise ConfigError(f"users, {found[1]}: group {ANONYMOUS} holds one user, and has {found[0]!r}")


def _table(entry: Any) -> Mapping[str, Any]:
    if not isinstance(entry, Mapping):
        raise ConfigError(f"{str(entry)[:80]!r} is no table of attributes and values")
    for name in entry:
        if not isinstance(name, str):
            raise ConfigError(f"{str(name)[:80]!r} is no name of an attribute; that is a text")
    return entry


class _Naming:
    """Puts the entry in front of what is wrong with it."""

    def __init__(self, entry: str) -> None:
        self._entry = entry

    def __enter__(self) -> None:
        """Nothing to do."""

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if isinstance(error, BrokerError):
            raise ConfigError(f"{self._entry}: {error}") from None
