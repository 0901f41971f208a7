"""The report of a load run: counts, rates, latencies; as JSON, as text, and as .hgrm files."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from raybroker.bench.latency import LatencyCounts
from raybroker.bench.plan import LoadPlan
from raybroker.bench.timeline import Timeline
from raybroker.bench.work import Consumed, Produced

TITLES: Final = {
    "send_delay": "send delay (send after its due time)",
    "confirm": "confirmed, from the send",
    "confirm_intended": "confirmed, from the due time",
    "end_to_end": "received, from the send",
    "end_to_end_intended": "received, from the due time",
}


@dataclass(slots=True)
class LoadReport:
    """Sums over all workers. ``latencies`` has the keys of ``TITLES``; those without a value are empty."""

    plan: LoadPlan
    sent: int = 0
    confirmed: int = 0
    received: int = 0
    foreign: int = 0
    redelivered: int = 0
    confirmed_measured: int = 0
    received_measured: int = 0
    latencies: dict[str, LatencyCounts] = field(default_factory=lambda: {key: LatencyCounts() for key in TITLES})
    timeline: Timeline = field(default_factory=Timeline)

    @classmethod
    def from_results(cls, plan: LoadPlan, produced: Iterable[Produced], consumed: Iterable[Consumed]) -> LoadReport:
        """The sum of the workers' results."""
        report = cls(plan)
        for one in produced:
            report.sent += one.sent
            report.confirmed += one.confirmed
            report.confirmed_measured += one.measured
            report.timeline.merge(one.timeline)
            for key in ("send_delay", "confirm", "confirm_intended"):
                report.latencies[key].merge(getattr(one, key))
        for got in consumed:
            report.received += got.received
            report.received_measured += got.measured
            report.foreign += got.foreign
            report.redelivered += got.redelivered
            for key in ("end_to_end", "end_to_end_intended"):
                report.latencies[key].merge(getattr(got, key))
        return report

    @property
    def confirmed_per_second(self) -> float:
        """Messages confirmed within the measured time, a second."""
        return self.confirmed_measured / self.plan.duration_seconds

    @property
    def received_per_second(self) -> float:
        """Messages received within the measured time, a second."""
        return self.received_measured / self.plan.duration_seconds

    @property
    def kept_up(self) -> bool:
        """True when no rate was asked for, or 99 % of it was confirmed in the measured time."""
        return self.confirmed_per_second >= 0.99 * self.plan.rate_per_second

    def to_json(self) -> dict[str, Any]:
        """Everything as plain values."""
        return {
            "plan": self.plan.to_json(),
            "sent": self.sent,
            "confirmed": self.confirmed,
            "received": self.received,
            "foreign": self.foreign,
            "redelivered": self.redelivered,
            "confirmed_per_second": round(self.confirmed_per_second, 1),
            "received_per_second": round(self.received_per_second, 1),
            "kept_up": self.kept_up,
            "latencies": {key: counts.to_json() for key, counts in self.latencies.items() if counts.total},
            **({"trace": self.timeline.to_json()} if self.plan.trace else {}),
        }

    def text(self) -> str:
        """A few lines for a terminal; milliseconds."""
        plan = self.plan
        rate = f"{plan.rate_per_second:,.0f} msg/s asked for" if plan.rate_per_second else "as fast as it goes"
        kind = "persistent" if plan.persistent else "non-persistent"
        workers = f"{plan.producers} producers, {plan.consumers} consumers"
        shape = f"batch {plan.batch}, window {plan.window}, {rate}, {plan.duration_seconds:g} s"
        others = f"{self.redelivered:,} redelivered, {self.foreign:,} not of this run"
        lines = [
            f"{workers}, {plan.size_bytes} B {kind}, {shape}",
            f"confirmed {self.confirmed_per_second:>12,.0f} msg/s   ({self.confirmed:,} of {self.sent:,} sent)",
            f"received  {self.received_per_second:>12,.0f} msg/s   ({self.received:,} in all, {others})",
        ]
        if not self.kept_up:
            lines.append("the rate was NOT kept: read the latencies from the due time, not those from the send")
        lines += ["", f"{'ms':38s}" + "".join(f"{name:>10s}" for name in ("p50", "p90", "p99", "p99.9", "max"))]
        for key, title in TITLES.items():
            counts = self.latencies[key]
            if counts.total and (plan.rate_per_second or key in {"confirm", "end_to_end"}):
                values = (counts.percentile_us(percent) / 1000 for percent in (50.0, 90.0, 99.0, 99.9, 100.0))
                lines.append(f"{title:38s}" + "".join(f"{value:>10.3f}" for value in values))
        if plan.trace:
            lines += ["", *self.timeline.lines()]
        return "\n".join(lines)

    def write_json(self, path: Path) -> None:
        """Write ``to_json`` into a file."""
        path.write_text(json.dumps(self.to_json(), indent=1) + "\n")

    def write_hgrm(self, path: Path) -> list[Path]:
        """The latencies from the due time into ``path`` and those from the send beside it; the files written.

        End to end when there are consumers, else until the confirmation.  Needs the package ``hdrhistogram``.
        """
        name = "end_to_end" if self.latencies["end_to_end"].total else "confirm"
        beside = path.with_name(f"{path.stem}.from-send{path.suffix}")
        self.latencies[f"{name}_intended"].write_hgrm(path)
        self.latencies[name].write_hgrm(beside)
        return [path, beside]
