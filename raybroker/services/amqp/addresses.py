"""Destinations as AMQP clients name them: an address, and capabilities or annotations that say what it is.

    orders                                      with a capability queue or topic, else a queue
    queue:orders, queue://orders, /queue/orders, /queues/orders
    topic:news, topic://news, /topic/news       for clients without capabilities

JMS clients say by capabilities, or of one message by annotations, whether a name is that of a queue, a topic or a
temporary one; then it is taken as it is.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from raybroker.client.destinations import Destination, Queue, Topic
from raybroker.content.amqp_messages import destination_in
from raybroker.model.errors import InvalidDestinationError
from raybroker.model.naming.names import is_temporary_name

CAPABILITIES: Final = {
    "queue": "queue",
    "topic": "topic",
    "temporary-queue": "queue",
    "temporary-topic": "topic",
}
_KINDS: Final[dict[str, type[Queue] | type[Topic]]] = {"queue": Queue, "topic": Topic}


def kind_in(capabilities: Iterable[str] | None) -> str | None:
    """Queue or topic, as capabilities say; None when they say nothing."""
    return next((CAPABILITIES[one] for one in capabilities or () if one in CAPABILITIES), None)


def destination_at(address: str | None, kind: str | None = None) -> Destination:
    """The destination at an address; ``kind``: what the client says that it is. Raises InvalidDestinationError."""
    if not address:
        raise InvalidDestinationError("an address is empty: it names a queue or a topic")
    found, name = destination_in(address) if kind is None else (kind, address)
    made = _KINDS[found]
    return made(name) if is_temporary_name(name) else made.checked(name)


def kind_of(kind: str) -> type[Queue] | type[Topic]:
    return _KINDS[kind]


def capability_of(destination: Destination) -> str:
    """The capability that says what a destination is."""
    return f"temporary-{destination.kind}" if is_temporary_name(destination.name) else destination.kind
