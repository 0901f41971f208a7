"""Producer flow: how many messages a producer may have under way to a destination under FLOW_CONTROL.

A full destination takes no more credit's worth of messages than that from each of its producers: what had left them
before they heard that it is full.  The credit is the limit divided by the producers that may attach, from 1 to
``CREDIT_MAX``, so that all of them together overshoot by the limit at most, or by one message each.
"""

from __future__ import annotations

from typing import Final

from raybroker.model.settings.settings import DestinationAttributes

CREDIT_MAX: Final = 1000
PRODUCERS: Final = 100
"""The number of producers to assume where maxNumProducers is unlimited."""
MESSAGE_BYTES: Final = 1024
"""The message size to assume where only maxTotalMsgBytes limits the destination."""


def producer_credit(attributes: DestinationAttributes) -> int:
    """Messages under way that each producer may have; 0: no limit."""
    if attributes.limitBehavior != "FLOW_CONTROL":
        return 0
    limits = []
    if attributes.maxNumMsgs >= 0:
        limits.append(attributes.maxNumMsgs)
    if attributes.maxTotalMsgBytes >= 0:
        limits.append(attributes.maxTotalMsgBytes // MESSAGE_BYTES)
    if not limits:
        return 0
    producers = attributes.maxNumProducers if attributes.maxNumProducers > 0 else PRODUCERS
    return min(max(min(limits) // producers, 1), CREDIT_MAX)
