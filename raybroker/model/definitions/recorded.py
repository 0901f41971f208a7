"""How each kind of definition stands in the configuration change record: its table, its changes, and their words.

The order is that in which kinds are made, each after those that it needs; they are ended in the opposite order.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

Row = Mapping[str, object]


def _nothing(row: Row) -> Row:
    return {}


def _itself(row: Row) -> Row:
    return row


def _attributes(row: Row) -> Row:
    found = row.get("attributes")
    return found if isinstance(found, Mapping) else {}


@dataclass(frozen=True)
class Recorded:
    """One kind.

    table     of the state of a record
    word      in messages
    make      the change that makes one
    end       the change that ends one
    change    the one that changes one; ``make`` where that replaces what there is, "" where one that differs is ended
              and made again
    parts     whether the attributes of ``make`` are put to those that there are, and those that ``end`` names go
    naming    the attributes of a row that may name a quota
    referred  whether others name it, so that it ends after these were changed
    in_topic  whether it goes with its topic
    stays     whether one that was ended may still be on a broker whose copy of the record is behind
    later     whether records of earlier releases do not have the table
    """

    table: str
    word: str
    make: str
    end: str
    change: str = ""
    parts: bool = False
    naming: Callable[[Row], Row] = _nothing
    referred: bool = False
    in_topic: bool = False
    stays: bool = False
    later: bool = False


QUOTA: Final = Recorded("quotas", "quota", "create_quota", "destroy_quota", "update_quota", referred=True, later=True)
POLICY: Final = Recorded(
    "policies", "policy", "create_policy", "destroy_policy", "update_policy", naming=_attributes, later=True
)
TEMPLATE: Final = Recorded("templates", "template", "set_template", "drop_template", "set_template", naming=_itself)
DESTINATION: Final = Recorded(
    "destinations",
    "destination",
    "create_destination",
    "destroy_destination",
    "update_destination",
    naming=_itself,
    stays=True,
)
SUBSCRIPTION: Final = Recorded(
    "subscriptions",
    "durable subscription",
    "create_subscription",
    "destroy_subscription",
    in_topic=True,
    stays=True,
)
BROKER: Final = Recorded("added", "broker", "add_broker", "remove_broker")
SERVICE: Final = Recorded("services", "service", "place_service", "drop_service")
AGENT: Final = Recorded("forwardings", "forwarding agent", "create_forwarding", "destroy_forwarding")
PAUSE: Final = Recorded("pauses", "pause", "pause_destination", "resume_destination", parts=True, later=True)

RECORDED: Final = (QUOTA, POLICY, TEMPLATE, DESTINATION, SUBSCRIPTION, BROKER, SERVICE, AGENT, PAUSE)
