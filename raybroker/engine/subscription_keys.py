"""A text that names a subscription of a topic on the dead messages that died in it (D-25)."""

from __future__ import annotations

import json

from raybroker.core.destination import Destination
from raybroker.core.lane import Lane
from raybroker.core.work import PARTS


def subscription_key(home: Destination, lane: Lane, identity: int) -> str:
    """The key of a lane of ``home`` on the host ``identity``; "" for a queue's, and for parts of units of work.

    A subscription with a name keeps its key when it is made again. That of a plain subscriber is never used again.
    """
    own = lane.subscription
    if own is None or own == PARTS:
        return ""
    if own.name:
        return json.dumps({"client_id": own.client_id, "name": own.name, "durable": own.durable})
    return json.dumps({"subscriber": f"{identity:x}-{home.number}-{lane.number}"})


def lane_with(home: Destination, key: str, identity: int) -> Lane | None:
    """The lane with that key; None when the subscription is gone."""
    return next((lane for lane in home.lanes.values() if subscription_key(home, lane, identity) == key), None)
