"""The report of a run and its verdict, for people and for programs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any, Final

from raybroker.verify.ledger import MEANING, Breach, Findings
from raybroker.verify.plan import VerifyPlan

MEDIAN: Final = 0.5
TAIL: Final = 0.99


class RunVerdict(StrEnum):
    """The outcome of a run."""

    PASSED = "passed"
    FAILED = "failed"
    """A promise was broken."""
    UNFINISHED = "unfinished"
    """No promise was seen broken, but not everything could be looked at."""
    INTERRUPTED = "interrupted"


@dataclass(slots=True)
class FaultRecord:
    """One fault that was done. ``back_s``: until all brokers and hosts answered again; None: they did not.
    ``confirmed_s``: until the next confirmed send of each producer; ``silent``: producers that had none."""

    kind: str
    target: str
    at_s: float
    back_s: float | None = None
    confirmed_s: list[float] = field(default_factory=list)
    silent: int = 0


@dataclass(frozen=True, slots=True)
class VerifyReport:
    """The report. ``troubles``: what kept the run from looking at everything, in words."""

    plan: VerifyPlan
    seconds: float
    findings: Findings
    faults: Sequence[FaultRecord]
    troubles: Sequence[str]
    interrupted: bool = False

    @property
    def verdict(self) -> RunVerdict:
        if not self.findings.good:
            return RunVerdict.FAILED
        if self.interrupted:
            return RunVerdict.INTERRUPTED
        return RunVerdict.UNFINISHED if self.troubles else RunVerdict.PASSED

    def outage(self) -> dict[str, float] | None:
        """Seconds until a producer's next confirmed send, over all faults and producers; None without any."""
        times = sorted(seconds for fault in self.faults for seconds in fault.confirmed_s)
        if not times:
            return None
        return {"p50": _at(times, MEDIAN), "p99": _at(times, TAIL), "longest": times[-1]}

    def lines(self) -> list[str]:
        """The report for people."""
        lines = [self._counted()]
        for fault in self.faults:
            back = "did not come back" if fault.back_s is None else f"whole again after {fault.back_s:.1f} s"
            sends = f", next confirmed send after {max(fault.confirmed_s):.1f} s" if fault.confirmed_s else ""
            lines.append(f"{fault.at_s:7.1f} s  {fault.kind} {fault.target}: {back}{sends}")
        if (outage := self.outage()) is not None:
            lines.append("next confirmed send after a fault: " + ", ".join(f"{k} {v:.2f} s" for k, v in outage.items()))
        for breach in Breach:
            count = self.findings.broken[breach]
            lines.append(f"{'ok  ' if not count else 'FAIL'}  {count:,} messages {MEANING[breach]}")
            lines += [f"        {text}" for text in self.findings.examples[breach]]
        lines += [f"unfinished: {text}" for text in self.troubles]
        lines += [f"told to clients {count} times: {text}" for text, count in list(self.findings.told.items())[:10]]
        return [*lines, f"verdict: {self.verdict}"]

    def _counted(self) -> str:
        total = self.findings.total
        return (
            f"sent {total.begun:,}, confirmed {total.confirmed:,}, delivered {total.delivered:,} in"
            f" {total.deliveries:,} deliveries, of which {total.flagged:,} flagged as redelivered; acknowledged"
            f" {total.acknowledged:,}; stored though their producer was not told {total.recovered:,}"
        )

    def to_json(self) -> dict[str, Any]:
        """The report for programs."""
        return {
            "verdict": str(self.verdict),
            "seconds": round(self.seconds, 3),
            "seed": self.plan.seed,
            "plan": self.plan.to_json(),
            "destinations": {str(lane): asdict(counts) for lane, counts in self.findings.counts.items()},
            "total": asdict(self.findings.total),
            "broken": {str(breach): count for breach, count in self.findings.broken.items()},
            "examples": {str(breach): texts for breach, texts in self.findings.examples.items() if texts},
            "faults": [asdict(fault) for fault in self.faults],
            "next_confirmed_send_s": self.outage(),
            "troubles": list(self.troubles),
            "told": self.findings.told,
        }


def _at(ascending: Sequence[float], share: float) -> float:
    return ascending[min(int(len(ascending) * share), len(ascending) - 1)]
