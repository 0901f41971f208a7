"""One administered object: a connection factory or a destination, with the attributes that its administrator gave it.

Attributes that are not given have their defaults when the object is used, so that an object which an older version has
written works on.  Stores keep the text of :meth:`AdministeredObject.text`; what is no such text, or of another program,
is foreign.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final, Literal

from raybroker.model.errors import BrokerError, ConfigError, ForeignObjectError
from raybroker.model.naming.names import DEAD_MESSAGE_QUEUE, DestinationType, check_destination_name
from raybroker.model.naming.nearest import nearest
from raybroker.model.settings.settings import SETTINGS, lookup, settings_of

Kind = Literal["q", "t", "cf", "qf", "tf", "xcf", "xqf", "xtf"]
KINDS: Final[Mapping[str, str]] = {
    "q": "Queue",
    "t": "Topic",
    "cf": "ConnectionFactory",
    "qf": "QueueConnectionFactory",
    "tf": "TopicConnectionFactory",
    "xcf": "XAConnectionFactory",
    "xqf": "XAQueueConnectionFactory",
    "xtf": "XATopicConnectionFactory",
}
"""Type, as -t has it → what JMS calls it. Connections of all factories have queues and topics, as since JMS 1.1."""
DESTINATIONS: Final[Mapping[str, DestinationType]] = {"q": "queue", "t": "topic"}
NAME: Final = "imqDestinationName"
DESCRIPTION: Final = "imqDestinationDescription"
DESTINATION_DEFAULTS: Final[Mapping[str, str]] = {
    NAME: "Untitled_Destination_Object",
    DESCRIPTION: "A description for the destination object",
}
NAME_CHARS_MAX: Final = 255
DESCRIPTION_CHARS_MAX: Final = 1024
TEXT_BYTES_MAX: Final = 64 * 1024
"""A text of a store that is longer is none of ours."""
SECRET: Final = "*****"
"""What is shown in place of a password."""
_MARK: Final = "raybroker.object"
_VERSION: Final = 1


@dataclass(frozen=True, slots=True)
class AdministeredObject:
    """``attributes``: those that were given, as text. Its ``repr`` shows none of them."""

    name: str
    kind: str
    attributes: Mapping[str, str] = field(default_factory=dict, repr=False)
    read_only: bool = False

    @classmethod
    def checked(
        cls, name: str, kind: str, attributes: Mapping[str, object] | None = None, *, read_only: bool = False
    ) -> AdministeredObject:
        """Raises ConfigError for a name, type, attribute or value that cannot be."""
        check_kind(kind)
        return cls(check_lookup_name(name), kind, _checked(kind, attributes or {}), read_only)

    @classmethod
    def of_text(cls, name: str, text: str) -> AdministeredObject:
        """The object that a store has under a name; raises ForeignObjectError for anything else."""
        try:
            found = json.loads(text) if len(text) <= TEXT_BYTES_MAX else None
        except (ValueError, RecursionError):
            found = None
        if not isinstance(found, dict) or found.get(_MARK) is None:
            raise ForeignObjectError(f"{name!r} is an object of another program; choose another lookup name")
        if found[_MARK] != _VERSION:
            raise ConfigError(f"object {name!r} was written by a newer version (format {found[_MARK]!r:.20})")
        kind, attributes, read_only = found.get("type"), found.get("attributes"), found.get("readOnly", False)
        if (
            found.get("name") != name
            or not isinstance(kind, str)
            or kind not in KINDS
            or not isinstance(attributes, dict)
            or not all(isinstance(value, str) for value in attributes.values())
            or not isinstance(read_only, bool)
        ):
            raise ForeignObjectError(f"{name!r} is no object of this broker's: it was changed by hand, or moved")
        return cls(name, kind, attributes, read_only)

    def text(self) -> str:
        """What stores keep; :meth:`of_text` takes it back."""
        return json.dumps(
            {
                _MARK: _VERSION,
                "name": self.name,
                "type": self.kind,
                "readOnly": self.read_only,
                "attributes": dict(sorted(self.attributes.items())),
            },
            ensure_ascii=False,
        )

    @property
    def is_destination(self) -> bool:
        return self.kind in DESTINATIONS

    @property
    def is_xa(self) -> bool:
        """A factory of connections for distributed transactions."""
        return self.kind.startswith("x")

    @property
    def description(self) -> str:
        """The text that an administrator has written for a destination; "" of a factory."""
        return self.attributes.get(DESCRIPTION, DESTINATION_DEFAULTS[DESCRIPTION]) if self.is_destination else ""

    @property
    def destination_name(self) -> str:
        """The physical name that a destination object stands for."""
        return self.attributes.get(NAME, DESTINATION_DEFAULTS[NAME])

    def in_full(self) -> dict[str, str]:
        """All attributes with the defaults of those that are not given, for people: without passwords."""
        if self.is_destination:
            return {**DESTINATION_DEFAULTS, **self.attributes}
        found = {setting.name: setting.format(setting.default) for setting in settings_of("factory")}
        found |= self.attributes
        return {name: SECRET if value and is_secret(name) else value for name, value in found.items()}

    def changed(self, attributes: Mapping[str, object], read_only: bool | None = None) -> AdministeredObject:
        """This object with other attributes; raises ConfigError. An empty value gives an attribute its default."""
        given = {name: value for name, value in attributes.items() if value != ""}
        _check_names(self.kind, attributes)
        kept = {name: value for name, value in self.attributes.items() if name not in attributes}
        return replace(
            self,
            attributes=_checked(self.kind, {**kept, **given}),
            read_only=self.read_only if read_only is None else read_only,
        )


def name_in(text: str) -> str | None:
    """The lookup name that a text says its object has; None for what is foreign."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return None
    name = found.get("name") if isinstance(found, dict) else None
    return name if isinstance(name, str) else None


def is_secret(name: str) -> bool:
    """Whether an attribute of a factory is shown to nobody."""
    found = SETTINGS.get(("factory", name))
    return found is not None and found.secret


def check_kind(kind: object) -> str:
    """Raises ConfigError for what is no type."""
    if not isinstance(kind, str) or kind not in KINDS:
        raise ConfigError(f"type {kind!r:.40}: it is one of {', '.join(KINDS)}")
    return kind


def check_lookup_name(name: object) -> str:
    """Raises ConfigError for what no object can be looked up by."""
    if not isinstance(name, str) or not name.strip() or name != name.strip():
        raise ConfigError(f"lookup name {name!r:.40}: it is a text that neither begins nor ends with a space")
    if len(name) > NAME_CHARS_MAX:
        raise ConfigError(
            f"lookup name {name[:40]!r}…: it has {len(name)} characters; at most {NAME_CHARS_MAX} will do"
        )
    if not name.isprintable():
        raise ConfigError(f"lookup name {name!r:.80} has a character that cannot be printed")
    return name


def _check_names(kind: str, names: Mapping[str, object]) -> None:
    for name in names:
        if kind not in DESTINATIONS:
            lookup(name, "factory")
        elif name not in DESTINATION_DEFAULTS:
            near = nearest(name, DESTINATION_DEFAULTS, least=0.0)
            raise ConfigError(
                f"{name!r:.80} is no attribute of a destination object; did you mean {near}? Those of the physical"
                " destination are set with raybroker create dst and update dst"
            )


def _checked(kind: str, attributes: Mapping[str, object]) -> dict[str, str]:
    _check_names(kind, attributes)
    if kind not in DESTINATIONS:
        settings = {name: lookup(name, "factory") for name in attributes}
        return {name: settings[name].format(settings[name].parse(value)) for name, value in attributes.items()}
    found = {name: str(value) for name, value in attributes.items()}
    if NAME in found:
        _check_destination(found[NAME], DESTINATIONS[kind])
    if len(found.get(DESCRIPTION, "")) > DESCRIPTION_CHARS_MAX:
        raise ConfigError(f"{DESCRIPTION} has more than {DESCRIPTION_CHARS_MAX} characters")
    return found


def _check_destination(name: str, kind: DestinationType) -> None:
    try:
        check_destination_name(
            name, allow_reserved=kind == "queue" and name == DEAD_MESSAGE_QUEUE, allow_wildcards=kind == "topic"
        )
    except BrokerError as error:
        raise ConfigError(f"{NAME}: {error}") from None
