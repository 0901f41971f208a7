"""A text that names a subscription of a topic on the dead messages that died in it."""

from __future__ import annotations

import json

from raybroker.core.delivery.delivery_queue import DeliveryQueue
from raybroker.core.destination import Destination
from raybroker.core.unit_of_work import PARTS


def subscription_key(destination: Destination, queue: DeliveryQueue, identity: int) -> str:
    """The key of a delivery queue of ``destination`` on the host ``identity``; "" for a queue's, and for parts of
    units of work.

    A subscription with a name keeps its key when it is made again. That of a plain subscriber is never used again.
    """
    own = queue.subscription
    if own is None or own == PARTS:
        return ""
    if own.name:
        return json.dumps({"client_id": own.client_id, "name": own.name, "durable": own.durable})
    return json.dumps({"subscriber": f"{identity:x}-{destination.number}-{queue.number}"})


def queue_with(destination: Destination, key: str, identity: int) -> DeliveryQueue | None:
    """The delivery queue with that key; None when the subscription is gone."""
    return next(
        (queue for queue in destination.queues.values() if subscription_key(destination, queue, identity) == key), None
    )
