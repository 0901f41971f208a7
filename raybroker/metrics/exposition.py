"""The page that Prometheus reads, made from a snapshot by prometheus_client's writers.

``choose_encoder`` of the library picks the format (text 0.0.4, or OpenMetrics for a client that accepts it), and its
writers write headers and samples.  The samples of the destination tier are the exception: ``destination_samples``
writes them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import cache
from itertools import accumulate
from typing import Any, Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

from raybroker.metrics.catalogue import METRICS, Kind, Metric, Tier
from raybroker.metrics.snapshot import Snapshot
from raybroker.model.errors import ConfigError


class Families(Collector):
    """Metric families that are already built, as the library's writers take them."""

    def __init__(self, families: Iterable[Family]) -> None:
        self._families = families

    def collect(self) -> Iterable[Family]:
        return self._families


def content_type(accept: str) -> str:
    """The format that an Accept header asks for; a content type as an Accept header asks for itself.

    Raises ConfigError for a version that is not made of numbers.
    """
    try:
        return choose_encoder(accept)[1]
    except TypeError as error:  # The library compares the parts of a version with numbers.
        raise ConfigError(f"the header Accept has a version that is no number: {accept!r}") from error


def page(snapshot: Snapshot, tiers: Iterable[Tier] = ("aggregate",), accept: str = "") -> bytes:
    """The metrics of some tiers in the order of the catalogue, in the format that an Accept header asks for."""
    write = choose_encoder(accept)[0]
    end = write(Families(()))  # The last line of an OpenMetrics page; nothing in the text format.
    parts = []
    if "aggregate" in tiers:
        parts.append(write(Families(families(snapshot, "aggregate"))).removesuffix(end))
    if "destination" in tiers:
        for metric, samples in destination_samples(snapshot):
            parts += write(Families([_FAMILIES[metric.kind](metric.name, metric.help)])).removesuffix(end), samples
    return b"".join((*parts, end))


def families(snapshot: Snapshot, tier: Tier) -> Iterator[Family]:
    """One tier for the library's writers; a metric without samples has no family."""
    own: tuple[str, ...] = (snapshot.cluster, snapshot.broker)
    for metric in METRICS.values():
        if metric.tier != tier:
            continue
        if tier == "destination":
            rows = [((*own, row["name"], row["type"]), row) for row in snapshot.destinations]
        elif "type" in metric.labels and metric.key not in snapshot.own:
            rows = [((*own, kind), row) for kind, row in snapshot.types.items()]
        else:
            rows = [(own, snapshot.own)]
        family = _FAMILIES[metric.kind](metric.name, metric.help, labels=metric.labels)
        for labels, row in rows:
            if metric.key not in row:
                continue
            if metric.kind == "histogram":
                counts, total = row[metric.key]
                family.add_metric(labels, list(zip(_edges(metric), accumulate(counts), strict=True)), total)
            else:
                for extra, value in _labelled(metric, len(labels), row[metric.key]):
                    family.add_metric((*labels, *extra), value)
        if family.samples:
            yield family


def destination_samples(snapshot: Snapshot) -> Iterator[tuple[Metric, bytes]]:
    """The sample lines of each metric of the destination tier.

    This writer is our own, because a scrape of 1,000 destinations may take 0.1 s: for their 81,000 samples it needs
    0.09 s, and the library's writers need 1.3 s (text) and 2.1 s (OpenMetrics), as ``benchmarks/metrics_cost.py``
    measures.
    """
    own = _labels(("cluster", "broker"), (snapshot.cluster, snapshot.broker))
    rows = [
        (f"{own},{_labels(('destination', 'type'), (row['name'], row['type']))}", row) for row in snapshot.destinations
    ]
    for metric in METRICS.values():
        if metric.tier == "destination":
            found = [(labels, row[metric.key]) for labels, row in rows if metric.key in row]
            samples = "".join(line for labels, value in found for line in _lines(metric, labels, value))
            if samples:
                yield metric, samples.encode()


def _lines(metric: Metric, labels: str, value: Any) -> Iterator[str]:
    name = metric.name
    if metric.kind == "histogram":
        counts, total = value
        for edge, reached in zip(_edges(metric), accumulate(counts), strict=True):
            yield f'{name}_bucket{{{labels},le="{edge}"}} {reached}\n'
        yield f"{name}_sum{{{labels}}} {total}\n{name}_count{{{labels}}} {sum(counts)}\n"
        return
    for extra, one in _labelled(metric, 4, value):
        more = f"{labels},{_labels(metric.labels[4:], extra)}" if extra else labels
        yield f"{name}{{{more}}} {one}\n"


def _labelled(metric: Metric, known: int, value: Any) -> Iterable[tuple[tuple[str, ...], float]]:
    """A row's value by the values of the labels beyond the first ``known`` ones."""
    if len(metric.labels) == known:
        return (((), value),)
    return (((names,) if isinstance(names, str) else names, one) for names, one in value.items())


def _labels(names: Iterable[str], values: Iterable[str]) -> str:
    escaped = (value.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"") for value in values)
    return ",".join(f'{name}="{value}"' for name, value in zip(names, escaped, strict=True))


@cache
def _edges(metric: Metric) -> tuple[str, ...]:
    return (*map(floatToGoString, metric.buckets), "+Inf")


_FAMILIES: Final[dict[Kind, Callable[..., Any]]] = {
    "counter": CounterMetricFamily,
    "gauge": GaugeMetricFamily,
    "histogram": HistogramMetricFamily,
}
