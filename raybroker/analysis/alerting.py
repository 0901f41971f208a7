"""Alerts of one broker, evaluated in a Spark worker: what ``follow`` hands to ``applyInPandasWithState``.

The state of a broker is that of ``alerts.Watch``, so that Spark keeps it with its offsets in the checkpoint.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

import pandas as pd

from raybroker.analysis.alerts import CHANGES_MAX, AlertSample, Labels, Watch
from raybroker.analysis.lake.lake import LakeFault

STATE: Final = "watch string"
RESULT: Final = "kind string, body string"
"""Kinds: ``alert``, ``fault`` and ``seen``; the body is JSON of an Alert, a Fault, or samples and newest scrape."""
COLUMNS: Final = (
    "broker",
    "type",
    "metric",
    "unix_millis(ts) ts_ms",
    "value",
    "if(type = 'fault', labels['where'], to_json(labels)) labels",
)
"""What is evaluated of a row of the source, as SQL."""


def evaluate(key: tuple[str, ...], frames: Iterable[pd.DataFrame], state: Any) -> Iterator[pd.DataFrame]:
    """The rows of one broker in one batch to the alerts that changed."""
    watch = Watch.of_json(state.get[0] if state.exists else "")
    kinds: list[str] = []
    bodies: list[str] = []
    for kind, body in results(watch, rows_of(key[0], frames)):
        kinds.append(kind)
        bodies.append(json.dumps(body))
    kept = watch.to_json()
    if kept:
        state.update((kept,))
    elif state.exists:
        state.remove()
    yield pd.DataFrame({"kind": kinds, "body": bodies})


def rows_of(broker: str, frames: Iterable[pd.DataFrame]) -> Iterator[AlertSample | LakeFault | int]:
    """Samples, faults, and the time of other brokers' newest scrape."""
    labels: dict[str, Labels] = {}
    for frame in frames:
        columns = (frame[name].tolist() for name in ("type", "metric", "ts_ms", "value", "labels"))
        for type_name, metric, ts_ms, value, text in zip(*columns, strict=True):
            if type_name == "fault":
                yield LakeFault(metric, text, round(value))
            elif type_name == "clock":
                yield ts_ms
            else:
                if text not in labels:
                    labels[text] = tuple(sorted(json.loads(text).items()))
                yield AlertSample(ts_ms, broker, metric, labels[text], value)


def results(watch: Watch, rows: Iterable[AlertSample | LakeFault | int]) -> Iterator[tuple[str, Any]]:
    """What a batch gives: kind and body of each row of RESULT."""
    samples: list[AlertSample] = []
    faults: list[LakeFault] = []
    now_ms = 0
    for row in rows:
        if isinstance(row, AlertSample):
            samples.append(row)
        elif isinstance(row, LakeFault):
            faults.append(row)
        else:
            now_ms = max(now_ms, row)
    changed = watch.step(samples, now_ms)
    for alert in changed[-CHANGES_MAX:]:
        yield "alert", alert
    faults += watch.faults
    if len(changed) > CHANGES_MAX:
        faults.append(LakeFault("changes not shown", changed[0].subject, len(changed) - CHANGES_MAX))
    for fault in summed(faults):
        yield "fault", fault
    if samples:
        yield "seen", [len(samples), max(one.ts_ms for one in samples)]


def summed(faults: Iterable[LakeFault]) -> list[LakeFault]:
    """Equal faults as one, with how often; CHANGES_MAX of them at most."""
    sums: dict[tuple[str, str], int] = {}
    for one in faults:
        sums[one.what, one.where] = sums.get((one.what, one.where), 0) + one.times
    return [LakeFault(what, where, times) for (what, where), times in _largest(sums)]


def _largest(sums: Mapping[tuple[str, str], int]) -> list[tuple[tuple[str, str], int]]:
    return sorted(sorted(sums.items(), key=lambda pair: -pair[1])[:CHANGES_MAX])
