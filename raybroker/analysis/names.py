"""Names of metrics as the jobs use them, each checked against the catalogue when this module is imported.

The catalogue is data; this is the one place where the analysis reads it.
"""

from __future__ import annotations

from typing import Final

from raybroker.metrics.catalogue import DESTINATION_PREFIX, METRICS, PREFIX

KINDS: Final[dict[str, str]] = {name: metric.kind for name, metric in METRICS.items()}
"""Family → counter, gauge or histogram, for every metric that brokers have."""


VALUE_MAX: Final = 1e18
"""No count, size or time of a broker is larger."""


def possible(value: float) -> bool:
    """Whether a metric of the catalogue can have this value: all are counts, bytes, seconds or parts of a whole."""
    return 0.0 <= value <= VALUE_MAX


def _known(name: str) -> str:
    if name not in METRICS:
        raise KeyError(f"the catalogue has no metric {name!r}")
    return name


def broker(key: str) -> str:
    """The name of a quantity in the aggregate tier."""
    return _known(PREFIX + key)


def destination(key: str) -> str:
    """The name of a quantity in the destination tier."""
    return _known(DESTINATION_PREFIX + key)


def family(sample: str) -> tuple[str, str]:
    """Family and suffix (``_bucket``, ``_sum``, ``_count`` or none) of a sample's name; family "" when unknown."""
    if sample in KINDS:
        return sample, ""
    for suffix in ("_bucket", "_count", "_sum"):
        base = sample.removesuffix(suffix)
        if base != sample and KINDS.get(base) == "histogram":
            return base, suffix
    return "", ""


IN: Final = destination("messages_in_total")
OUT: Final = destination("messages_out_total")
BYTES_IN: Final = destination("message_in_bytes_total")
DELIVERED: Final = destination("delivered_messages_total")
REDELIVERED: Final = destination("redelivered_messages_total")
REFUSED: Final = destination("refused_messages_total")
EXPIRED: Final = destination("expired_messages_total")
DEAD: Final = destination("dead_messages_total")
FLOW_SECONDS: Final = destination("flow_control_seconds_total")
HELD: Final = destination("messages")
HELD_BYTES: Final = destination("message_bytes")
WAITING: Final = destination("waiting_messages")
OLDEST_AGE: Final = destination("oldest_message_age_seconds")
PRODUCERS: Final = destination("producers")
CONSUMERS: Final = destination("consumers")
IDLE: Final = destination("idle_consumers")
FULL: Final = destination("full_consumers")
LIMIT: Final = destination("consumer_limit_messages")
QUOTA_USED: Final = destination("quota_used_ratio")
QUOTA_MESSAGES: Final = destination("limit_messages")
QUOTA_BYTES: Final = destination("limit_bytes")
HELD_BACK: Final = destination("flow_controlled")
LARGEST: Final = destination("largest_message_bytes")
UNITS: Final = destination("unit_messages_total")
SERVICE: Final = destination("service_seconds")
WAIT: Final = destination("store_to_delivery_seconds")
OCCUPANCY: Final = destination("prefetch_occupancy_ratio")

BROKER_IN: Final = broker("messages_in_total")
BROKER_CPU: Final = broker("process_cpu_seconds_total")
ROUND_TRIP: Final = broker("round_trip_seconds")
ROUTED: Final = broker("routed_messages_total")
PATH_UNITS: Final = broker("path_units")
RESIDENT: Final = broker("process_resident_bytes")
MEMORY_USED: Final = broker("memory_used_bytes")
MEMORY_LIMIT: Final = broker("memory_limit_bytes")
STORE_LIVE: Final = broker("store_live_bytes")
STORE_OVERLOADED: Final = broker("store_overloaded")
COPIED_LOGS: Final = broker("copied_logs")
COPIED_SHORT: Final = broker("copied_logs_short")
COPY_BEHIND: Final = broker("copy_behind_entries")
COPY_LAG: Final = destination("copy_lag_entries")
LEADER_TERM: Final = destination("leader_term")
UNREACHABLE: Final = broker("unreachable_hosts")
CLOCK: Final = broker("clock_seconds")
CLOCK_OFFSET: Final = PREFIX + "clock_offset_seconds"
"""What CLOCK becomes in tables, where its own time would be lost: seconds by which it was ahead of its scrape."""
HALTED: Final = destination("halted")
SEND_TO_STORE: Final = destination("send_to_store_seconds")
DELIVERY_TO_ACK: Final = destination("delivery_to_ack_seconds")
COMMIT: Final = broker("commit_seconds")

ASKED: Final = frozenset(one for one in list(globals().values()) if isinstance(one, str) and one in METRICS) | {
    CLOCK_OFFSET
}
"""The metrics named here, which are all that jobs and alerts ask about."""
