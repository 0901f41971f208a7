"""What users may ask of sessions, producers and consumers, checked in one place for both faces.

What the design has and this version has not is refused by name: a time to live that is ignored would be a trap.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from raybroker.client.bodies import check_serializer
from raybroker.client.producing import Shared
from raybroker.client.session import MODES
from raybroker.model.errors import ConfigError, InvalidDestinationError, MessageFormatError, NotSupportedError
from raybroker.model.names import check_destination_name
from raybroker.model.setting import INT_MAX
from raybroker.model.settings import ConfigView
from raybroker.wire.content import encode_header


@dataclass(frozen=True, slots=True)
class Queue:
    """Names a queue; making one creates nothing on a broker (O-02)."""

    name: str

    @classmethod
    def checked(cls, destination: Queue | str) -> Queue:
        if isinstance(destination, cls):
            return destination
        if not isinstance(destination, str):
            raise InvalidDestinationError(f"{destination!r} is no destination; use session.queue(name)")
        return cls(check_destination_name(destination))

    def __str__(self) -> str:
        return self.name


def check_session_options(ack: str, transacted: bool) -> None:
    if ack not in MODES:
        raise ConfigError(f"ack={ack!r} is unknown; choose one of {', '.join(MODES)}")
    if transacted:
        raise NotSupportedError("transacted sessions are not built yet")


def _refuse_later(
    ttl_ms: int | None, delivery_delay_ms: int | None, unit_of_order: str | None
) -> None:  # fmt: skip
    for name, value in (
        ("ttl_ms", ttl_ms), ("delivery_delay_ms", delivery_delay_ms), ("unit_of_order", unit_of_order)
    ):  # fmt: skip
        if value:
            raise NotSupportedError(f"{name}={value!r}: this is not built yet; leave it out")


def _check_priority(priority: int) -> int:
    if not isinstance(priority, int) or not 0 <= priority <= 9:
        raise MessageFormatError(f"priority={priority!r}; it is a whole number from 0 to 9")
    return priority


def producer_shared(
    persistent: bool,
    priority: int,
    ttl_ms: int,
    delivery_delay_ms: int,
    unit_of_order: str | None,
    serializer: str | None,
) -> tuple[Shared, bool]:
    """What a producer's messages share, and whether it may pickle."""
    _refuse_later(ttl_ms, delivery_delay_ms, unit_of_order)
    return Shared(bool(persistent), _check_priority(priority)), check_serializer(serializer)


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
) -> tuple[bytes, Shared]:
    """(encoded headers, shared attributes) of one message; what it does not say is the producer's (R-16)."""
    if ttl_ms or delivery_delay_ms or unit_of_order:
        _refuse_later(ttl_ms, delivery_delay_ms, unit_of_order)
    header = b""
    if properties or correlation_id is not None or reply_to is not None or type_ is not None:
        back = reply_to.name if isinstance(reply_to, Queue) else reply_to
        header = encode_header(properties, correlation_id, back, type_)
    if priority is None and persistent is None:
        return header, shared
    return header, Shared(
        shared.persistent if persistent is None else bool(persistent),
        shared.priority if priority is None else _check_priority(priority),
    )


def consumer_options(
    attributes: ConfigView,
    selector: str | None,
    prefetch: int | None,
    threshold: int | None,
    no_local: bool,
    serializer: str | None,
) -> dict[str, Any]:
    """Arguments of ``open_consumer``: which rule of flow control, with which limit (F-05 … F-20)."""
    if selector is not None:
        raise NotSupportedError("message selectors are not built yet; leave selector out")
    if no_local:
        raise NotSupportedError("no_local is for topics, which are not built yet; leave it out")
    if prefetch is not None and (not isinstance(prefetch, int) or not -1 <= prefetch <= INT_MAX):
        raise ConfigError(f"prefetch={prefetch!r}; it is -1 (no limit) to {INT_MAX}")
    if threshold is not None and (not isinstance(threshold, int) or not 0 <= threshold <= 100):
        raise ConfigError(f"threshold={threshold!r}; it is a percentage from 0 to 100")
    unpickles = check_serializer(serializer)
    percent = attributes["imqConsumerFlowThreshold"] if threshold is None else threshold
    if prefetch is not None and threshold is None:
        return {"style": "prefetch", "limit": prefetch, "percent": percent, "unpickles": unpickles}
    if prefetch is None and not attributes["imqConsumerFlowLimitPrefetch"]:
        return {"style": "prefetch", "limit": 0, "percent": percent, "unpickles": unpickles}
    limit = attributes["imqConsumerFlowLimit"] if prefetch is None else prefetch
    return {"style": "credit", "limit": limit, "percent": percent, "unpickles": unpickles}
