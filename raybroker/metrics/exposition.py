"""The page that Prometheus reads: text format 0.0.4, made from a snapshot.

Written by hand rather than by prometheus_client's registry: a page of a thousand destinations has a hundred thousand
lines, and a registry would keep an object for each.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple

from raybroker.metrics.catalogue import METRICS, TIERS, Metric, Tier

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"

Row = dict[str, Any]


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


def page(snapshot: Snapshot, tiers: Iterable[Tier] = ("aggregate",)) -> str:
    """The metrics of some tiers, in the order of the catalogue."""
    wanted = set(tiers)
    return "".join(
        part for tier in TIERS if tier in wanted for metric in METRICS.values() if metric.tier == tier
        for part in _family(metric, snapshot)
    )  # fmt: skip


def _family(metric: Metric, snapshot: Snapshot) -> Iterator[str]:
    lines = list(_samples(metric, snapshot))
    if lines:
        text = metric.help.replace("\\", "\\\\").replace("\n", "\\n")
        yield f"# HELP {metric.name} {text}\n# TYPE {metric.name} {metric.kind}\n"
        yield from lines


def _samples(metric: Metric, snapshot: Snapshot) -> Iterator[str]:
    own = f'cluster="{escaped(snapshot.cluster)}",broker="{escaped(snapshot.broker)}"'
    key = metric.key
    if metric.tier == "destination":
        extra = metric.labels[4:]
        for row in snapshot.destinations:
            if key in row:
                labels = f'{own},destination="{escaped(row["name"])}",type="{row["type"]}"'
                yield from _value(metric, labels, extra, row[key])
    elif len(metric.labels) > 2 and metric.labels[2] == "type" and key not in snapshot.own:
        for kind, row in snapshot.types.items():
            if key in row:
                yield from _value(metric, f'{own},type="{kind}"', metric.labels[3:], row[key])
    elif key in snapshot.own:
        yield from _value(metric, own, metric.labels[2:], snapshot.own[key])


def _value(metric: Metric, labels: str, extra: tuple[str, ...], value: Any) -> Iterator[str]:
    if metric.kind == "histogram":
        yield from _histogram(metric, labels, value)
    elif not extra:
        yield f"{metric.name}{{{labels}}} {number(value)}\n"
    else:
        for names, one in value.items():
            given = (names,) if isinstance(names, str) else names
            more = ",".join(f'{label}="{escaped(name)}"' for label, name in zip(extra, given, strict=True))
            yield f"{metric.name}{{{labels},{more}}} {number(one)}\n"


def _histogram(metric: Metric, labels: str, value: tuple[list[int], float]) -> Iterator[str]:
    counts, total = value
    reached = 0
    for edge, count in zip((*map(number, metric.buckets), "+Inf"), counts, strict=True):
        reached += count
        yield f'{metric.name}_bucket{{{labels},le="{edge}"}} {reached}\n'
    yield f"{metric.name}_sum{{{labels}}} {number(total)}\n{metric.name}_count{{{labels}}} {reached}\n"
