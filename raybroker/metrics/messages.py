"""Bodies of metrics messages: the tables M-A to M-D by their exact names.

All numbers are integers.  Averages and peaks are since the last start of the host.  ``diskReserved`` and ``diskUsed``
describe the journal of the destination's host, which destinations of a shared host have in common;
``diskUtilizationRatio`` is in percent.
"""

from __future__ import annotations

from typing import Any, Final

from raybroker.metrics.snapshot import Snapshot
from raybroker.model.errors import InvalidDestinationError
from raybroker.model.naming.names import is_metrics_topic

BROKER: Final = "mq.metrics.broker"
RUNTIME: Final = "mq.metrics.jvm"
LIST: Final = "mq.metrics.destination_list"
QUEUE: Final = "mq.metrics.destination.queue."
TOPIC: Final = "mq.metrics.destination.topic."
DEMAND: Final = "mq.metrics.demand.queue."
"""What a queue asks of those who work on it, each second: for whoever starts and stops them."""

_MESSAGES: Final = {
    "numMsgsIn": "messages_in_total",
    "numMsgsOut": "messages_out_total",
    "numMsgs": "messages",
    "msgBytesIn": "message_in_bytes_total",
    "msgBytesOut": "message_out_bytes_total",
    "totalMsgBytes": "message_bytes",
}
"""Counts of a broker and of a destination alike → keys of the catalogue."""
_CONNECTIONS: Final = {
    "numConnections": "connections",
    "numPktsIn": "packets_in_total",
    "numPktsOut": "packets_out_total",
    "pktBytesIn": "packet_in_bytes_total",
    "pktBytesOut": "packet_out_bytes_total",
}

Row = dict[str, Any]


def check_topic(name: str, *, enabled: bool) -> None:
    """Raises InvalidDestinationError for a name that is no metrics topic, and for any unless ``enabled``."""
    if not enabled:
        raise InvalidDestinationError(f"topic {name!r}: imq.metrics.topic.enabled is false, so nothing comes under it")
    known = name in (BROKER, RUNTIME, LIST) or any(
        name.startswith(prefix) and len(name) > len(prefix) for prefix in (QUEUE, TOPIC, DEMAND)
    )
    if not known:
        raise InvalidDestinationError(
            f"no metrics come under {name!r}; there are {BROKER}, {RUNTIME}, {LIST}, {QUEUE}<name>, {TOPIC}<name> and"
            f" {DEMAND}<name>"
        )


def wanted_destination(name: str) -> tuple[str, str] | None:
    """Type and name of the destination that a metrics topic describes; None for a topic that describes none."""
    for kind, prefix in (("queue", QUEUE), ("topic", TOPIC), ("queue", DEMAND)):
        if name.startswith(prefix):
            return kind, name.removeprefix(prefix)
    return None


def body(name: str, snapshot: Snapshot) -> Row | None:
    """The body of a message to a metrics topic; None when the destination that it describes does not exist."""
    destination = wanted_destination(name)
    if destination is not None:
        row = next((r for r in snapshot.destinations if (r["type"], r["name"]) == destination), None)
        if row is None:
            return None
        return demand_body(row) if name.startswith(DEMAND) else destination_body(row)
    return {BROKER: broker_body, RUNTIME: runtime_body, LIST: list_body}[name](snapshot)


def broker_body(snapshot: Snapshot) -> Row:
    """Table M-A; numMsgs and totalMsgBytes are left out while a host that holds messages does not answer."""
    own = snapshot.own
    whole = all("messages" in row for row in snapshot.types.values())
    unknown = () if whole or not own.get("unreachable_hosts") else ("numMsgs", "totalMsgBytes")
    row = {
        **{name: int(sum(row.get(key, 0) for row in snapshot.types.values())) for name, key in _MESSAGES.items()},
        **{name: own.get(key, 0) for name, key in _CONNECTIONS.items()},
        "numDestinations": sum(own["destinations"].values()),
    }
    return {name: value for name, value in row.items() if name not in unknown}


def runtime_body(snapshot: Snapshot) -> Row:
    """Table M-B: the memory that counts against the limit, as the memory levels and query_broker have it."""
    most = int(snapshot.own.get("memory_limit_bytes", 0))
    used = int(max(snapshot.own.get("memory_used_bytes", {}).values(), default=0))
    return {"totalMemory": used, "freeMemory": max(most - used, 0), "maxMemory": most}


def list_body(snapshot: Snapshot) -> Row:
    """Table M-C, without the metrics topics."""
    return {
        (QUEUE if row["type"] == "queue" else TOPIC) + row["name"]: {
            "name": row["name"],
            "type": row["type"],
            "isTemporary": bool(row["temporary"]),
        }
        for row in snapshot.destinations
        if not is_metrics_topic(row["name"])
    }


def demand_body(row: Row) -> Row:
    """What waits in a queue, for how long, and what has come and gone."""
    return {
        "waiting": row.get("waiting_messages", 0),
        "unacknowledged": row.get("unacknowledged_messages", 0),
        "delayed": row.get("delayed_messages", 0),
        "oldestAgeMs": int(row.get("oldest_message_age_seconds", 0) * 1000),
        "numMsgsIn": row.get("messages_in_total", 0),
        "numMsgsOut": row.get("messages_out_total", 0),
        "numActiveConsumers": row.get("consumers", {}).get("active", 0),
    }


def destination_body(row: Row) -> Row:
    """Table M-D; the active consumers of a topic are its non-durable consumers and all its durable subscriptions."""
    averages, consumers = row.get("averages", {}), row["consumers"]
    if row["type"] == "topic":
        consumers = {"active": max(consumers["active"], row.get("active_subscriptions", 0))}
    found: Row = {}
    for kind, number in consumers.items():
        average, peak = averages.get(kind, (number, number))
        name = f"{kind.capitalize()}Consumers"
        found |= {f"num{name}": number, f"avgNum{name}": average, f"peakNum{name}": max(peak, number)}
    found |= {
        **{name: row[key] for name, key in _MESSAGES.items()},
        "avgNumMsgs": averages.get("messages", (row["messages"], 0))[0],
        "peakNumMsgs": row["peak_messages"],
        "avgTotalMsgBytes": averages.get("bytes", (row["message_bytes"], 0))[0],
        "peakTotalMsgBytes": row["peak_message_bytes"],
        "peakMsgBytes": row["largest_message_bytes"],
    }
    reserved, used = int(row.get("disk_reserved", 0)), int(row.get("disk_used", 0))
    if reserved:
        found |= {
            "diskReserved": reserved,
            "diskUsed": used,
            "diskUtilizationRatio": round(100 * used / reserved),
        }
    return found
