"""The queries that the boards put together: sums, rates, quantiles and what is worked out from several metrics."""

from __future__ import annotations

from typing import Final

B: Final = 'cluster="$cluster",broker=~"$broker"'
D: Final = f'{B},destination=~"$destination"'
R: Final = "[$__rate_interval]"


def rate(metric: str, by: str = "broker", labels: str = B) -> str:
    return f"sum by ({by}) (rate(raybroker_{metric}{{{labels}}}{R}))"


def total(metric: str, by: str = "broker", labels: str = B) -> str:
    return f"sum by ({by}) (raybroker_{metric}{{{labels}}})"


def quantile(q: float, metric: str, by: str = "", labels: str = B) -> str:
    group = f"le, {by}" if by else "le"
    return f"histogram_quantile({q}, sum by ({group}) (rate(raybroker_{metric}_bucket{{{labels}}}{R})))"


def quantiles(metric: str, labels: str = B) -> tuple[tuple[str, str], ...]:
    return tuple((quantile(q, metric, labels=labels), f"p{q * 100:g}") for q in (0.5, 0.9, 0.99))


def mean(metric: str, by: str = "broker", labels: str = B) -> str:
    return f"({rate(f'{metric}_sum', by, labels)} / {rate(f'{metric}_count', by, labels)})"


def top(query: str) -> str:
    return f"topk(10, {query})"


def most(metric: str, by: str = "destination", labels: str = D) -> str:
    return f"max by ({by}) (raybroker_{metric}{{{labels}}})"


DRAIN_S: Final = (
    f"sum by (destination) (raybroker_destination_messages{{{D}}}) / "
    f"(sum by (destination) (rate(raybroker_destination_messages_out_total{{{D}}}{R})) > 0)"
)
FULL_S: Final = top(
    f"({most('destination_limit_messages', labels=B)} - "
    f"sum by (destination) (raybroker_destination_messages{{{B}}})) / "
    f"sum by (destination) (clamp_min(deriv(raybroker_destination_messages{{{B}}}[5m]), 0.001))"
)
DRY: Final = (
    f'sum(rate(raybroker_prefetch_occupancy_ratio_bucket{{{B},le=~"0|0.0"}}{R})) / '
    f"sum(rate(raybroker_prefetch_occupancy_ratio_count{{{B}}}{R}))"
)
AGAIN: Final = f"{rate('redelivered_messages_total', 'type')} / ({rate('delivered_messages_total', 'type')} > 0)"
IN_FLIGHT: Final = f"{mean('round_trip_seconds', 'cluster')} / on (cluster) {mean('service_seconds', 'cluster')}"
WIRE: Final = f"{rate('packet_in_bytes_total', 'cluster')} / ({rate('message_in_bytes_total', 'cluster')} > 0)"
OF_LIMIT: Final = f"{most('memory_used_bytes', 'broker', B)} / on (broker) {most('memory_limit_bytes', 'broker', B)}"
ARRIVALS: Final = (
    f"{rate('messages_in_total')} / ignoring (broker) group_left sum(rate(raybroker_messages_in_total{{{B}}}{R}))"
)
BACKLOG: Final = f"{total('messages')} / ignoring (broker) group_left () (sum(raybroker_messages{{{B}}}) > 0)"
ROUTED: Final = "sum by (broker, consumer_broker)"
EPISODES: Final = f"sum by (destination) (increase(raybroker_destination_flow_control_episodes_total{{{B}}}{R}))"
CLOCKS: Final = f"max by (broker) (raybroker_clock_seconds{{{B}}} - timestamp(raybroker_clock_seconds{{{B}}}))"
UNITS: Final = f"sum by (destination, unit) (rate(raybroker_destination_unit_messages_total{{{B}}}{R}))"
