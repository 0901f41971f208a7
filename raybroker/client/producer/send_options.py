"""Send options: attributes that the messages of a producer share, and those of one send, from the arguments of users.

What the design has and this version has not is refused by name: an option that is ignored would be a trap.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from raybroker.client.arguments import ARGUMENTS, check_arguments, check_names
from raybroker.client.destinations import Destination, reply_text
from raybroker.client.options import MESSAGE, MessageOptions, ProducerOptions
from raybroker.client.producer.bodies.body_encoding import check_serializer
from raybroker.client.producer.producer_state import Shared
from raybroker.client.producer.unit_of_order import check_unit, unit_header, unit_of_producer
from raybroker.content.headers import encode_header
from raybroker.model.errors import MessageFormatError
from raybroker.model.settings.settings import ConfigView

NAMELESS: Final = encode_header(None, None, None, None, no_id=True)
"""The headers of a message that has none but that it shows no id."""

SETS_KNOWN_MAX: Final = 256
"""Different sets of options that are known to be right; with more of them all are checked again."""
_OF_PRODUCERS: Final = ("persistent", "priority", "ttl_ms", "delivery_delay_ms", "unit_of_order")
_COMMON: Final = frozenset(_OF_PRODUCERS)
_KNOWN: Final = frozenset(MESSAGE)

Options = tuple[bytes, Shared]
"""Encoded headers and shared attributes of a message."""
Found = tuple[Shared, Options, dict[tuple[Any, ...], Options]]
"""The producer's attributes, options of a send that says nothing, and those of sends that do."""


def check_priority(priority: object) -> int:
    """A priority that is given; raises MessageFormatError."""
    if priority is None:
        raise MessageFormatError("priority=None; it is a whole number from 0 to 9")
    return int(ARGUMENTS["priority"].check("priority", priority))


def check_ms(name: str, value: object) -> int:
    """Milliseconds that are given; raises MessageFormatError."""
    if value is None:
        raise MessageFormatError(f"{name}=None; it is a whole number of milliseconds")
    return int(ARGUMENTS[name].check(name, value))


def producer_shared(
    attributes: ConfigView, options: ProducerOptions, session: str | None = None
) -> tuple[Shared, bool]:
    """What a producer's messages share, and whether it may pickle; None is the connection factory's default.

    ``session``: the name of its session, for a unit of order of the session's own.
    """
    given: dict[str, Any] = {name: options.get(name) for name in _OF_PRODUCERS}
    check_arguments(**given)
    persistent, priority, ttl_ms, delay_ms, unit = given.values()
    if persistent is None:
        persistent = attributes["defaultDeliveryMode"] == "Persistent"
    return Shared(
        persistent,
        attributes["defaultPriority"] if priority is None else priority,
        attributes["defaultTimeToLive"] if ttl_ms is None else ttl_ms,
        attributes["defaultTimeToDeliver"] if delay_ms is None else delay_ms,
        unit=unit_of_producer(session, unit, attributes["DefaultUnitOfOrder"]),
    ), check_serializer(options.get("serializer"))


def send_options(shared: Shared, properties: Mapping[str, Any] | None, options: MessageOptions) -> Options:
    """(encoded headers, shared attributes) of one message; what it does not say is the producer's.

    Raises TypeError for an option that there is not.
    """
    if not _KNOWN.issuperset(options):
        check_names(options, MESSAGE, "send")
    unit = options.get("unit_of_order")
    unit = shared.unit if unit is None else check_unit(unit)
    correlation_id, reply_to = options.get("correlation_id"), options.get("reply_to")
    type_, dedup_id = options.get("type"), options.get("dedup_id")
    header = b""
    if properties is not None and type(properties) is not dict:
        check_arguments(properties=properties)
    if properties or correlation_id is not None or reply_to is not None or type_ is not None or dedup_id is not None:
        if dedup_id is not None:
            check_arguments(dedup_id=dedup_id)
        header = encode_header(
            properties, correlation_id, reply_text(reply_to), type_, dedup_id, no_id=not shared.named, unit=unit
        )
    elif unit is not None:
        header = unit_header(unit, named=shared.named)
    elif not shared.named:
        header = NAMELESS
    if unit is not shared.unit:
        shared = shared._replace(unit=unit)
    priority, persistent = options.get("priority"), options.get("persistent")
    ttl_ms, delay_ms = options.get("ttl_ms"), options.get("delivery_delay_ms")
    if priority is None and persistent is None and ttl_ms is None and delay_ms is None:
        return header, shared
    check_arguments(persistent=persistent, priority=priority, ttl_ms=ttl_ms, delivery_delay_ms=delay_ms)
    return header, shared._replace(
        persistent=shared.persistent if persistent is None else persistent,
        priority=shared.priority if priority is None else priority,
        ttl_ms=shared.ttl_ms if ttl_ms is None else ttl_ms,
        delay_ms=shared.delay_ms if delay_ms is None else delay_ms,
    )


class CommonOptions:
    """The options that many sends of one producer have alike, checked once for each set of them.

    Those that only one message has, such as properties, are not among them: they go through :func:`send_options`.
    """

    __slots__ = ("_found",)

    def __init__(self) -> None:
        self._found: Found | None = None
        """Replaced as a whole, since several threads may send."""

    def find(
        self,
        shared: Shared,
        properties: Mapping[str, Any] | None,
        options: MessageOptions,
        destination: Destination | str | None = None,
    ) -> Options:
        """Do what :func:`send_options` does; in any thread. ``destination``: that which a send names."""
        if properties is not None:
            return send_options(shared, properties, options)
        found = self._found
        if found is None or found[0] is not shared:
            found = self._found = shared, send_options(shared, None, {}), {}
        if not options:
            return found[1]
        key: tuple[Any, ...]  # With the types, since True is equal to 1.
        # Nearly all sends have one option or two, and unpacking these takes a quarter of what building takes.
        if len(options) == 1:
            ((name, value),) = options.items()
            key = name, value, type(value)
        elif len(options) == 2:
            (name, value), (other, its) = options.items()
            key = name, value, type(value), other, its, type(its)
        else:
            key = (*options.items(), *map(type, options.values()))
        known = found[2]
        try:
            checked = known.get(key)
        except TypeError:  # What cannot be hashed is refused below.
            checked = None
        if checked is None:
            checked = send_options(shared, None, options)
            if not _COMMON.issuperset(options):
                return checked
            if len(known) >= SETS_KNOWN_MAX:
                known.clear()
            known[key] = checked
        return checked
