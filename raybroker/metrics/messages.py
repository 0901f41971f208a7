"""Bodies of metrics messages: the tables M-A to M-D by their exact names.

All numbers are integers.  Averages and peaks are since the last start of the host.  ``diskReserved`` and ``diskUsed``
describe the journal of the destination's host, which destinations of a shared host have in common;
``diskUtilizationRatio`` is in percent.
"""

from __future__ import annotations

from typing import Any, Final

from raybroker.metrics.exposition import Snapshot
from raybroker.model.errors import InvalidDestinationError
from raybroker.model.names import is_metrics_topic

BROKER: Final = "mq.metrics.broker"
RUNTIME: Final = "mq.metrics.jvm"
LIST: Final = "mq.metrics.destination_list"
QUEUE: Final = "mq.metrics.destination.queue."
TOPIC: Final = "mq.metrics.destination.topic."

Row = dict[str, Any]


def check_topic(name: str, *, enabled: bool) -> None:
    """Raises InvalidDestinationError for a name that is no metrics topic, and for any unless ``enabled``."""
    if not enabled:
        raise InvalidDestinationError(f"topic {name!r}: imq.metrics.topic.enabled is false, so nothing comes under it")
    known = name in (BROKER, RUNTIME, LIST) or any(
        name.startswith(prefix) and len(name) > len(prefix) for prefix in (QUEUE, TOPIC)
    )
    if not known:
        raise InvalidDestinationError(
            f"no metrics come under {name!r}; there are {BROKER}, {RUNTIME}, {LIST}, {QUEUE}<name> and {TOPIC}<name>"
        )


def wanted_destination(name: str) -> tuple[str, str] | None:
    """Type and name of the destination that a metrics topic describes; None for a topic that describes none."""
    for kind, prefix in (("queue", QUEUE), ("topic", TOPIC)):
        if name.startswith(prefix):
            return kind, name.removeprefix(prefix)
    return None


def body(name: str, snapshot: Snapshot) -> Row | None:
    """The body of a message to a metrics topic; None when the destination that it describes does not exist."""
    destination = wanted_destination(name)
    if destination is not None:
        row = next((r for r in snapshot.destinations if (r["type"], r["name"]) == destination), None)
        return destination_body(row) if row is not None else None
    return {BROKER: broker_body, RUNTIME: runtime_body, LIST: list_body}[name](snapshot)


def _sum(snapshot: Snapshot, key: str) -> int:
    return int(sum(row.get(key, 0) for row in snapshot.types.values()))


def broker_body(snapshot: Snapshot) -> Row:
    """Table M-A; numMsgs and totalMsgBytes are left out while a host that holds messages does not answer."""
    own = snapshot.own
    whole = all("messages" in row for row in snapshot.types.values())
    unknown = () if whole or not own.get("unreachable_hosts") else ("numMsgs", "totalMsgBytes")
    row = {
        "numConnections": own.get("connections", 0),
        "numMsgsIn": _sum(snapshot, "messages_in_total"),
        "numMsgsOut": _sum(snapshot, "messages_out_total"),
        "numMsgs": _sum(snapshot, "messages"),
        "msgBytesIn": _sum(snapshot, "message_in_bytes_total"),
        "msgBytesOut": _sum(snapshot, "message_out_bytes_total"),
        "totalMsgBytes": _sum(snapshot, "message_bytes"),
        "numPktsIn": own.get("packets_in_total", 0),
        "numPktsOut": own.get("packets_out_total", 0),
        "pktBytesIn": own.get("packet_in_bytes_total", 0),
        "pktBytesOut": own.get("packet_out_bytes_total", 0),
        "numDestinations": sum(own["destinations"].values()),
    }
    return {name: value for name, value in row.items() if name not in unknown}


def runtime_body(snapshot: Snapshot) -> Row:
    """Table M-B: resident memory of the broker and its hosts, and their limit."""
    most = int(snapshot.own.get("memory_limit_bytes", 0))
    used = int(sum(snapshot.own.get("process_resident_bytes", {}).values()))
    return {"totalMemory": used, "freeMemory": max(most - used, 0), "maxMemory": most}


def list_body(snapshot: Snapshot) -> Row:
    """Table M-C, without the metrics topics."""
    return {
        (QUEUE if row["type"] == "queue" else TOPIC) + row["name"]: {
            "name": row["name"], "type": row["type"], "isTemporary": bool(row["temporary"]),
        }
        for row in snapshot.destinations if not is_metrics_topic(row["name"])
    }  # fmt: skip


def destination_body(row: Row) -> Row:
    """Table M-D; the active consumers of a topic are its non-durable consumers and all its durable subscriptions."""
    averages = row.get("averages", {})
    queue = row["type"] == "queue"
    consumers, reserved, used = row["consumers"], int(row.get("disk_reserved", 0)), int(row.get("disk_used", 0))
    active = consumers["active"] if queue else max(consumers["active"], row.get("active_subscriptions", 0))
    average, peak = averages.get("active", (active, active))
    found = {
        "numActiveConsumers": active, "avgNumActiveConsumers": average, "peakNumActiveConsumers": max(peak, active),
    }  # fmt: skip
    if queue:
        backup = consumers["backup"]
        average, peak = averages.get("backup", (backup, backup))
        found |= {
            "numBackupConsumers": backup, "avgNumBackupConsumers": average, "peakNumBackupConsumers": max(peak, backup),
        }  # fmt: skip
    messages, nbytes = row["messages"], row["message_bytes"]
    found |= {
        "numMsgsIn": row["messages_in_total"],
        "numMsgsOut": row["messages_out_total"],
        "numMsgs": messages,
        "avgNumMsgs": averages.get("messages", (messages, 0))[0],
        "peakNumMsgs": row["peak_messages"],
        "msgBytesIn": row["message_in_bytes_total"],
        "msgBytesOut": row["message_out_bytes_total"],
        "totalMsgBytes": nbytes,
        "avgTotalMsgBytes": averages.get("bytes", (nbytes, 0))[0],
        "peakTotalMsgBytes": row["peak_message_bytes"],
        "peakMsgBytes": row["largest_message_bytes"],
    }
    if reserved:
        found |= {
            "diskReserved": reserved, "diskUsed": used, "diskUtilizationRatio": round(100 * used / reserved),
        }  # fmt: skip
    return found
