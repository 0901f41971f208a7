"""Send options: attributes that the messages of a producer share, and those of one send, from the arguments of users.

What the design has and this version has not is refused by name: an option that is ignored would be a trap.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from raybroker.client.arguments import ARGUMENTS, check_arguments
from raybroker.client.destinations import reply_text
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
    attributes: ConfigView,
    persistent: bool | None,
    priority: int | None,
    ttl_ms: int | None,
    delivery_delay_ms: int | None,
    unit_of_order: str | None,
    serializer: str | None,
    session: str | None = None,
) -> tuple[Shared, bool]:
    """What a producer's messages share, and whether it may pickle; None is the connection factory's default.

    ``session``: the name of its session, for a unit of order of the session's own.
    """
    check_arguments(
        persistent=persistent,
        priority=priority,
        ttl_ms=ttl_ms,
        delivery_delay_ms=delivery_delay_ms,
        unit_of_order=unit_of_order,
    )
    if persistent is None:
        persistent = attributes["defaultDeliveryMode"] == "Persistent"
    return Shared(
        persistent,
        attributes["defaultPriority"] if priority is None else priority,
        attributes["defaultTimeToLive"] if ttl_ms is None else ttl_ms,
        attributes["defaultTimeToDeliver"] if delivery_delay_ms is None else delivery_delay_ms,
        unit=unit_of_producer(session, unit_of_order, attributes["DefaultUnitOfOrder"]),
    ), check_serializer(serializer)


def send_options(
    shared: Shared,
    properties: Mapping[str, Any] | None,
    correlation_id: str | None,
    reply_to: Any,
    type_: str | None,
    priority: int | None,
    ttl_ms: int | None,
    delivery_delay_ms: int | None,
    unit_of_order: str | None,
    persistent: bool | None,
    dedup_id: str | None = None,
) -> tuple[bytes, Shared]:
    """(encoded headers, shared attributes) of one message; what it does not say is the producer's."""
    unit = shared.unit if unit_of_order is None else check_unit(unit_of_order)
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
    if priority is None and persistent is None and ttl_ms is None and delivery_delay_ms is None:
        return header, shared
    check_arguments(persistent=persistent, priority=priority, ttl_ms=ttl_ms, delivery_delay_ms=delivery_delay_ms)
    return header, shared._replace(
        persistent=shared.persistent if persistent is None else persistent,
        priority=shared.priority if priority is None else priority,
        ttl_ms=shared.ttl_ms if ttl_ms is None else ttl_ms,
        delay_ms=shared.delay_ms if delivery_delay_ms is None else delivery_delay_ms,
    )


Options = tuple[bytes, Shared]
"""Encoded headers and shared attributes of a message."""
Found = tuple[Shared, Options, dict[tuple[Any, ...], Options]]
"""The producer's attributes, options of a send that says nothing, and those of sends that do."""


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
        correlation_id: str | None,
        reply_to: Any,
        type_: str | None,
        priority: int | None,
        ttl_ms: int | None,
        delivery_delay_ms: int | None,
        unit_of_order: str | None,
        persistent: bool | None,
        dedup_id: str | None,
    ) -> Options:
        """As :func:`send_options`; in any thread."""
        if (
            properties is not None
            or correlation_id is not None
            or reply_to is not None
            or type_ is not None
            or dedup_id is not None
        ):
            return send_options(
                shared,
                properties,
                correlation_id,
                reply_to,
                type_,
                priority,
                ttl_ms,
                delivery_delay_ms,
                unit_of_order,
                persistent,
                dedup_id,
            )
        found = self._found
        if found is None or found[0] is not shared:
            found = self._found = shared, _parsed(shared, None, None, None, None, None), {}
        if (
            priority is None
            and ttl_ms is None
            and delivery_delay_ms is None
            and unit_of_order is None
            and persistent is None
        ):
            return found[1]
        given = (priority, ttl_ms, delivery_delay_ms, unit_of_order, persistent)
        key = (*given, *map(type, given))  # True is equal to 1.
        known = found[2]
        try:
            options = known.get(key)
        except TypeError:  # What cannot be hashed is refused below.
            options = None
        if options is None:
            options = _parsed(shared, *given)
            if len(known) >= SETS_KNOWN_MAX:
                known.clear()
            known[key] = options
        return options


def _parsed(
    shared: Shared,
    priority: int | None,
    ttl_ms: int | None,
    delivery_delay_ms: int | None,
    unit: str | None,
    persistent: bool | None,
) -> Options:
    return send_options(shared, None, None, None, None, priority, ttl_ms, delivery_delay_ms, unit, persistent)
