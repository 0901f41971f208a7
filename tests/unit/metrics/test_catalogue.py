"""The catalogue keeps Prometheus' conventions, and what hosts and brokers tell is in it."""

from __future__ import annotations

import raybroker as rb
from raybroker.engine.measuring import metrics as engine_metrics
from raybroker.metrics.catalogue import BROKERS, DESTINATIONS, METRICS, QUANTITIES, Metric

LABELS = {"cluster", "broker", "type", "destination"}
EXTRA = {
    "place",
    "state",
    "what",
    "unit",
    "version",
    "python",
    "ray",
    "hosting",
    "consumer_broker",
    "process",
    "member",
    "level",
    "of",
    "quota",
    "cause",
    "direction",
    "condition",
    "copy",
}
"""Labels beside those of the tiers; each takes a bounded number of values."""


def faults(metric: Metric) -> list[str]:
    """What of Prometheus' conventions a metric breaks."""
    found = []
    if (metric.kind == "counter") != metric.name.endswith("_total"):
        found.append("counters, and only they, end in _total")
    base = metric.name.removesuffix("_total")
    if metric.unit in ("bytes", "seconds", "ratio") and not base.endswith(f"_{metric.unit}"):
        found.append(f"does not end in its unit {metric.unit}")
    if not metric.help.endswith("."):
        found.append("help is no sentence")
    if (metric.kind == "histogram") != bool(metric.buckets) or list(metric.buckets) != sorted(set(metric.buckets)):
        found.append("buckets")
    if len(set(metric.labels)) != len(metric.labels) or not set(metric.labels) <= LABELS | EXTRA:
        found.append(f"labels {metric.labels}")
    return found


def test_every_quantity_stands_once() -> None:
    assert len(QUANTITIES) == len(DESTINATIONS) + len(BROKERS)
    assert len({metric.name for metric in METRICS.values()}) == len(METRICS)


def test_names_units_and_labels_keep_the_conventions() -> None:
    assert {name: faults(metric) for name, metric in METRICS.items() if faults(metric)} == {}


def test_a_bad_metric_is_found() -> None:
    labels = ("cluster", "message_id")
    bad = Metric("raybroker_time_total", "gauge", "seconds", labels, "aggregate", "Time", (1.0,), "t")
    assert len(faults(bad)) == 5


def test_the_destination_tier_names_the_destination_and_the_other_does_not() -> None:
    for metric in METRICS.values():
        assert metric.labels[:2] == ("cluster", "broker")
        assert ("destination" in metric.labels) == (metric.tier == "destination") == ("_destination_" in metric.name)


def test_the_engine_merges_as_the_catalogue_says() -> None:
    maxima = {q.key for q in DESTINATIONS if q.merge == "max"}
    assert maxima == engine_metrics.MAXIMA
    both = {q.key for q in DESTINATIONS if q.scope == "destination"}
    rows = engine_metrics.Sum().done()
    assert set(rows["queue"]) == set(rows["topic"]) == both
    gauges = {q.key for q in DESTINATIONS if q.scope == "destination" and q.kind == "gauge"}
    assert set(engine_metrics.GAUGES) == gauges


def test_everything_that_a_broker_tells_is_in_the_catalogue() -> None:
    with rb.loopback() as connection:
        connection.session().producer("orders").send("x")
        (row,) = connection.admin().metrics("*")
    assert set(row["own"]) <= {q.key for q in BROKERS}
    for sums in row["types"].values():
        assert set(sums) == {q.key for q in DESTINATIONS if q.scope == "destination"}
    beside = {"name", "type", "temporary", "averages", "active_subscriptions", "disk_reserved", "disk_used"}
    for destination in row["destinations"]:
        assert set(destination) - beside <= {q.key for q in DESTINATIONS}
