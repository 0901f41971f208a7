"""What users may ask of sessions, producers and consumers, checked in one place for both faces.

What the design has and this version has not is refused by name: an option that is ignored would be a trap.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from raybroker.client.bodies import check_serializer
from raybroker.client.consumer import ConsumerOptions
from raybroker.client.destinations import Destination, Queue, Topic, destination_of, reply_text
from raybroker.client.producing import Shared
from raybroker.client.session import MODES, TRANSACTED, SessionCore
from raybroker.client.units import check_unit, unit_header, unit_of_producer
from raybroker.model.errors import ConfigError, InvalidSelectorError, MessageFormatError
from raybroker.model.setting import INT_MAX, OVERRIDE_MS_MAX
from raybroker.model.settings import ConfigView
from raybroker.wire.content import encode_header

__all__ = [
    "Destination", "Queue", "Topic", "check_lease", "consumer_options", "destination_of", "producer_shared",
    "send_options", "session_mode",
]  # fmt: skip

NAMELESS: Final = encode_header(None, None, None, None, no_id=True)
"""The headers of a message that has none but that it shows no id (R-16)."""
LEASE_MS_MIN: Final = 10
DEDUP_ID_CHARS_MAX: Final = 255


def session_mode(ack: str, transacted: bool) -> str:
    """The mode of a session; raises ConfigError for an unknown one."""
    if ack not in MODES:
        raise ConfigError(f"ack={ack!r} is unknown; choose one of {', '.join(MODES)}")
    return TRANSACTED if transacted else ack


def check_priority(priority: int) -> int:
    if not isinstance(priority, int) or not 0 <= priority <= 9:
        raise MessageFormatError(f"priority={priority!r}; it is a whole number from 0 to 9")
    return priority


def check_ms(name: str, value: int) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= OVERRIDE_MS_MAX:
        raise MessageFormatError(f"{name}={value!r}; it is a whole number of milliseconds, 0 to {OVERRIDE_MS_MAX}")
    return value


def producer_shared(
    attributes: ConfigView,
    persistent: bool | None,
    priority: int | None,
    ttl_ms: int | None,
    delivery_delay_ms: int | None,
    unit_of_order: str | None,
    serializer: str | None,
    session: SessionCore | None = None,
) -> tuple[Shared, bool]:
    """What a producer's messages share, and whether it may pickle; None is the connection factory's default (W-64)."""
    if persistent is None:
        persistent = attributes["defaultDeliveryMode"] == "Persistent"
    return Shared(
        bool(persistent),
        check_priority(attributes["defaultPriority"] if priority is None else priority),
        check_ms("ttl_ms", attributes["defaultTimeToLive"] if ttl_ms is None else ttl_ms),
        check_ms(
            "delivery_delay_ms", attributes["defaultTimeToDeliver"] if delivery_delay_ms is None else delivery_delay_ms
        ),
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
    """(encoded headers, shared attributes) of one message; what it does not say is the producer's (R-16)."""
    unit = shared.unit if unit_of_order is None else check_unit(unit_of_order)
    header = b""
    if properties or correlation_id is not None or reply_to is not None or type_ is not None or dedup_id is not None:
        if dedup_id is not None:
            _check_dedup_id(dedup_id)
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
    return header, shared._replace(
        persistent=shared.persistent if persistent is None else bool(persistent),
        priority=shared.priority if priority is None else check_priority(priority),
        ttl_ms=shared.ttl_ms if ttl_ms is None else check_ms("ttl_ms", ttl_ms),
        delay_ms=shared.delay_ms if delivery_delay_ms is None else check_ms("delivery_delay_ms", delivery_delay_ms),
    )


def _check_dedup_id(dedup_id: object) -> None:
    if not isinstance(dedup_id, str) or not 1 <= len(dedup_id) <= DEDUP_ID_CHARS_MAX:
        raise MessageFormatError(f"dedup_id={dedup_id!r}; it is a text of 1 to {DEDUP_ID_CHARS_MAX} characters")


def consumer_options(
    attributes: ConfigView,
    selector: str | None,
    prefetch: int | None,
    threshold: int | None,
    no_local: bool,
    serializer: str | None,
    ack_timeout_ms: int | None = None,
    subscription: dict[str, Any] | None = None,
) -> ConsumerOptions:
    """What a consumer asks for: which rule of flow control, with which limit (F-05 … F-20), and what it selects."""
    if selector is not None and not isinstance(selector, str):
        raise InvalidSelectorError(f"selector={selector!r}; it is a text")
    if prefetch is not None and (not isinstance(prefetch, int) or not -1 <= prefetch <= INT_MAX):
        raise ConfigError(f"prefetch={prefetch!r}; it is -1 (no limit) to {INT_MAX}")
    if threshold is not None and (not isinstance(threshold, int) or not 0 <= threshold <= 100):
        raise ConfigError(f"threshold={threshold!r}; it is a percentage from 0 to 100")
    style, limit = "credit", attributes["imqConsumerFlowLimit"] if prefetch is None else prefetch
    if prefetch is not None and threshold is None:
        style = "prefetch"
    elif prefetch is None and not attributes["imqConsumerFlowLimitPrefetch"]:
        style, limit = "prefetch", 0
    return ConsumerOptions(
        style=style,
        limit=limit,
        percent=attributes["imqConsumerFlowThreshold"] if threshold is None else threshold,
        unpickles=check_serializer(serializer),
        selector=selector or None,
        no_local=bool(no_local),
        subscription=subscription,
        lease_ms=check_lease(ack_timeout_ms),
    )


def check_lease(ack_timeout_ms: int | None) -> int:
    """The ack deadline of deliveries in milliseconds, 0 for none (B6)."""
    if ack_timeout_ms is None:
        return 0
    if not isinstance(ack_timeout_ms, int) or not LEASE_MS_MIN <= ack_timeout_ms <= INT_MAX:
        raise ConfigError(
            f"ack_timeout_ms={ack_timeout_ms!r}; it is None for no deadline, or {LEASE_MS_MIN} to {INT_MAX}"
        )
    return ack_timeout_ms
