"""The page reads as Prometheus reads it: by its own parser, whatever names and values are in it."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import generate_latest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as openmetrics_families
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.utils import floatToGoString

from raybroker.metrics.catalogue import METRICS, TIERS, Metric
from raybroker.metrics.exposition import Families, families, page
from raybroker.metrics.snapshot import Snapshot

TEXT = st.text('ab1 "\\\n,{}=#é', max_size=6)
"""What names are not made of in practice, and what has a meaning in the format."""
COUNTS = st.integers(0, 1 << 60)
VALUES = st.one_of(COUNTS, st.floats(0, 1e18, allow_nan=False))


def values_of(metric: Metric) -> st.SearchStrategy[Any]:
    extra = [label for label in metric.labels if label not in ("cluster", "broker", "type", "destination")]
    if metric.kind == "histogram":
        counts = st.lists(st.integers(0, 1 << 40), min_size=len(metric.buckets) + 1, max_size=len(metric.buckets) + 1)
        return st.tuples(counts, st.floats(0, 1e9, allow_nan=False))
    if len(extra) > 1:
        return st.dictionaries(st.tuples(*[TEXT] * len(extra)), VALUES, max_size=2)
    return st.dictionaries(TEXT, VALUES, max_size=3) if extra else VALUES


def row_of(tier: str, *, typed: bool) -> st.SearchStrategy[dict[str, Any]]:
    chosen = [m for m in METRICS.values() if m.tier == tier and ("type" in m.labels[2:4]) == typed]
    metrics = [m for m in chosen if m.key != "destinations"]

    def some(picked: list[Metric]) -> st.SearchStrategy[dict[str, Any]]:
        return st.fixed_dictionaries({m.key: values_of(m) for m in picked})

    return st.lists(st.sampled_from(metrics), max_size=4, unique_by=lambda m: m.key).flatmap(some)


DESTINATION = st.builds(
    lambda name, kind, row: {**row, "name": name, "type": kind},
    TEXT,
    st.sampled_from(["queue", "topic"]),
    row_of("destination", typed=True),
)
SNAPSHOTS = st.builds(
    Snapshot,
    TEXT,
    TEXT,
    row_of("aggregate", typed=False),
    st.fixed_dictionaries({kind: row_of("aggregate", typed=True) for kind in ("queue", "topic")}),
    st.lists(DESTINATION, max_size=3, unique_by=lambda row: (row["name"], row["type"])),
)


def expected(snapshot: Snapshot) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    """What has to be on the page, found the slow way."""
    found = {}

    def put(name: str, value: float, **labels: str) -> None:
        everything = {"cluster": snapshot.cluster, "broker": snapshot.broker, **labels}
        found[name, tuple(sorted(everything.items()))] = float(value)

    for metric in METRICS.values():
        if metric.tier == "destination":
            rows = [({"destination": r["name"], "type": r["type"]}, r) for r in snapshot.destinations]
        elif "type" in metric.labels and metric.key != "destinations":
            rows = [({"type": kind}, row) for kind, row in snapshot.types.items()]
        else:
            rows = [({}, snapshot.own)]
        extra = [label for label in metric.labels if label not in ("cluster", "broker", "type", "destination")]
        for labels, row in rows:
            if metric.key not in row:
                continue
            value = row[metric.key]
            if metric.kind == "histogram":
                counts, total = value
                for index, edge in enumerate([*metric.buckets, float("inf")]):
                    put(f"{metric.name}_bucket", sum(counts[: index + 1]), **labels, le=floatToGoString(edge))
                put(f"{metric.name}_sum", total, **labels)
                put(f"{metric.name}_count", sum(counts), **labels)
            elif extra:
                for names, one in value.items():
                    given = (names,) if isinstance(names, str) else names
                    put(metric.name, one, **labels, **dict(zip(extra, given, strict=True)))
            else:
                put(metric.name, value, **labels)
    return found


def read(text: bytes) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    found = {}
    for family in text_string_to_metric_families(text.decode()):
        for sample in family.samples:
            key = (sample.name, tuple(sorted(sample.labels.items())))
            assert key not in found, f"{key} stands twice"
            found[key] = float(sample.value)
    return found


@given(SNAPSHOTS)
def test_the_page_says_what_the_snapshot_has(snapshot: Snapshot) -> None:
    assert read(page(snapshot, TIERS)) == expected(snapshot)


@given(SNAPSHOTS)
def test_every_family_has_its_type_once_and_before_its_samples(snapshot: Snapshot) -> None:
    lines = page(snapshot, TIERS).decode().splitlines()
    types = [line.split(" ")[2] for line in lines if line.startswith("# TYPE ")]
    assert len(types) == len(set(types))
    assert all(types.count(name) == 1 for name in types)


@given(SNAPSHOTS)
def test_samples_of_destinations_are_those_of_the_library(snapshot: Snapshot) -> None:
    library = generate_latest(Families(families(snapshot, "destination")))
    assert read(page(snapshot, ("destination",))) == read(library)


def test_integers_of_destinations_keep_all_their_digits() -> None:
    row = {"name": "orders", "type": "queue", "messages": 1 << 60, "quota_used_ratio": 0.1}
    lines = page(Snapshot("c", "b1", {}, {}, [row]), ("destination",)).decode().splitlines()
    assert [line.rpartition(" ")[2] for line in lines if not line.startswith("#")] == [str(1 << 60), "0.1"]


def test_tiers_are_apart() -> None:
    row = {"name": "orders", "type": "queue", "messages": 3}
    snapshot = Snapshot("c", "b1", {}, {"queue": {"messages": 3}}, [row])
    assert b"raybroker_destination_" not in page(snapshot)
    assert page(snapshot, ("destination",)).decode().splitlines()[-1] == (
        'raybroker_destination_messages{cluster="c",broker="b1",destination="orders",type="queue"} 3'
    )


@given(SNAPSHOTS)
def test_the_openmetrics_page_says_the_same(snapshot: Snapshot) -> None:
    families = list(openmetrics_families(page(snapshot, TIERS, "application/openmetrics-text").decode()))
    found = {
        (sample.name, tuple(sorted(sample.labels.items()))): float(sample.value)
        for family in families
        for sample in family.samples
    }
    assert found == expected(snapshot)
    for family in families:
        metric = METRICS.get(family.name) or METRICS[f"{family.name}_total"]
        assert (family.type, family.documentation) == (metric.kind, metric.help)


def test_no_counter_has_the_family_name_of_another_metric() -> None:
    families = [
        metric.name.removesuffix("_total") if metric.kind == "counter" else metric.name for metric in METRICS.values()
    ]
    assert len(set(families)) == len(families)
    assert all(metric.name.endswith("_total") for metric in METRICS.values() if metric.kind == "counter")
