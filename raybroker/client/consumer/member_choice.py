"""Choice of a member: a consumer of a distributed destination goes to one member, chosen when it is opened.

It stays there while the member's broker is there.  Members that come later, or that have no consumers, do not draw it
away: whoever wants to serve all of them opens a consumer on a connection to each broker.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from raybroker.client.connection.connection import ConnectionCore
from raybroker.client.consumer.consumer_options import ConsumerOptions
from raybroker.client.destinations import Destination
from raybroker.model.balancing import Candidate, place_consumer
from raybroker.model.errors import ConnectionLostError


def is_pinned(destination: Destination, traits: Mapping[str, Any], options: ConsumerOptions) -> bool:
    """Whether a consumer has one member only.

    Not on a topic whose messages are for the subscribers of all members, and not a durable subscription that
    one consumer may have at a time: what others published elsewhere is in it too.
    """
    if not traits.get("distributed"):
        return False
    if destination.kind == "queue":
        return True
    wanted = options.subscription
    exclusive = wanted is not None and wanted["durable"] and not wanted["shared"]
    return traits.get("forwardingPolicy") == "Partitioned" and not exclusive


async def place(connection: ConnectionCore, destination: Destination, policy: str) -> str:
    """The broker whose member a new consumer gets; raises ConnectionLostError when no broker can be asked."""
    directory = connection.directory
    counts = await connection.tasks.with_retry(
        destination.name, lambda: directory.members(destination.kind, destination.name)
    )
    if not counts:
        raise ConnectionLostError(f"no broker has a member of {destination.name} now")
    candidates = [
        Candidate(broker, local=broker == directory.home, consumers=counts[broker]) for broker in sorted(counts)
    ]
    affinity = connection.attributes["ServerAffinityEnabled"]
    return place_consumer(
        candidates, connection.kept.choosers.chooser_for(destination, policy, "consumers"), affinity=affinity
    )
