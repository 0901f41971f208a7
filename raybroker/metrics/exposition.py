"""The page that Prometheus reads, made from a snapshot: text format 0.0.4, or OpenMetrics 1.0 for who accepts it.

Written by hand rather than by prometheus_client's registry: a page of a thousand destinations has a hundred thousand
lines, and a registry would keep an object for each.  Which format is wanted is prometheus_client's to say.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple

from prometheus_client.exposition import choose_encoder
from prometheus_client.utils import floatToGoString

from raybroker.metrics.catalogue import METRICS, TIERS, Metric, Tier

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
OPENMETRICS: Final = "application/openmetrics-text"
OPENMETRICS_CONTENT_TYPE: Final = f"{OPENMETRICS}; version=1.0.0; charset=utf-8"

Row = dict[str, Any]
Edge = Callable[[float], str]
"""How the upper edge of a bucket is written."""


class Snapshot(NamedTuple):
    """What one broker counted up to one moment; ``destinations`` only when they were asked for."""

    cluster: str
    broker: str
    own: Row
    types: Mapping[str, Row]
    destinations: list[Row]


def escaped(text: object) -> str:
    """A label's value."""
    return str(text).replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')


def number(value: float) -> str:
    """Integers as such, others with all their digits."""
    if isinstance(value, int):
        return str(int(value))
    return str(int(value)) if value.is_integer() and abs(value) < 1e15 else repr(value)


def wants_openmetrics(accept: str) -> bool:
    """Whether an Accept header asks for OpenMetrics before the text format."""
    return choose_encoder(accept)[1].startswith(OPENMETRICS)


def page(snapshot: Snapshot, tiers: Iterable[Tier] = ("aggregate",), *, openmetrics: bool = False) -> str:
    """The metrics of some tiers, in the order of the catalogue."""
    wanted = set(tiers)
    families = "".join(
        part for tier in TIERS if tier in wanted for metric in METRICS.values() if metric.tier == tier
        for part in _family(metric, snapshot, openmetrics)
    )  # fmt: skip
    return f"{families}# EOF\n" if openmetrics else families


def _family(metric: Metric, snapshot: Snapshot, openmetrics: bool) -> Iterator[str]:
    lines = list(_samples(metric, snapshot, floatToGoString if openmetrics else number))
    if lines:
        name, text = metric.name, metric.help.replace("\\", "\\\\").replace("\n", "\\n")
        if openmetrics:  # A counter's family is without the ending that its samples have.
            name, text = name.removesuffix("_total") if metric.kind == "counter" else name, text.replace('"', '\\"')
        yield f"# HELP {name} {text}\n# TYPE {name} {metric.kind}\n"
        yield from lines


def _samples(metric: Metric, snapshot: Snapshot, edge: Edge) -> Iterator[str]:
    own = f'cluster="{escaped(snapshot.cluster)}",broker="{escaped(snapshot.broker)}"'
    key = metric.key
    if metric.tier == "destination":
        extra = metric.labels[4:]
        for row in snapshot.destinations:
            if key in row:
                labels = f'{own},destination="{escaped(row["name"])}",type="{row["type"]}"'
                yield from _value(metric, labels, extra, row[key], edge)
    elif len(metric.labels) > 2 and metric.labels[2] == "type" and key not in snapshot.own:
        for kind, row in snapshot.types.items():
            if key in row:
                yield from _value(metric, f'{own},type="{kind}"', metric.labels[3:], row[key], edge)
    elif key in snapshot.own:
        yield from _value(metric, own, metric.labels[2:], snapshot.own[key], edge)


def _value(metric: Metric, labels: str, extra: tuple[str, ...], value: Any, edge: Edge) -> Iterator[str]:
    if metric.kind == "histogram":
        yield from _histogram(metric, labels, value, edge)
    elif not extra:
        yield f"{metric.name}{{{labels}}} {number(value)}\n"
    else:
        for names, one in value.items():
            given = (names,) if isinstance(names, str) else names
            more = ",".join(f'{label}="{escaped(name)}"' for label, name in zip(extra, given, strict=True))
            yield f"{metric.name}{{{labels},{more}}} {number(one)}\n"


def _histogram(metric: Metric, labels: str, value: tuple[list[int], float], edge: Edge) -> Iterator[str]:
    counts, total = value
    reached = 0
    for upper, count in zip((*map(edge, metric.buckets), "+Inf"), counts, strict=True):
        reached += count
        yield f'{metric.name}_bucket{{{labels},le="{upper}"}} {reached}\n'
    yield f"{metric.name}_sum{{{labels}}} {number(total)}\n{metric.name}_count{{{labels}}} {reached}\n"
