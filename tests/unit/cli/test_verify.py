"""``verify``: what the command hands on, and its verdict as an exit code."""

from __future__ import annotations

import json
from typing import Any

import pytest

from raybroker.cli import connecting
from raybroker.verify.display import VerifyDisplay
from raybroker.verify.plan import FAULTS, VerifyPlan
from raybroker.verify.report import RunVerdict, VerifyReport
from tests.unit.verify.test_report import report_of

CODES = {RunVerdict.PASSED: 0, RunVerdict.FAILED: 1, RunVerdict.UNFINISHED: 3, RunVerdict.INTERRUPTED: 130}


@pytest.mark.parametrize("verdict", list(RunVerdict))
def test_the_verdict_is_the_exit_code(raybroker: Any, monkeypatch: Any, verdict: RunVerdict) -> None:
    plans: list[VerifyPlan] = []

    def run_verify(plan: VerifyPlan, display: VerifyDisplay) -> VerifyReport:
        plans.append(plan)
        return report_of(verdict)

    monkeypatch.setattr("raybroker.cli.tools.verify.course", lambda cluster: run_verify)
    monkeypatch.setattr(connecting, "require_ray", lambda cluster: None)
    words = (
        "--faults kill-host,kill-client --duration 3 --replicas 3 -o consumerFlowLimit=20 --seed 4 --json --cluster c"
    )
    result = raybroker("verify", *words.split())
    assert result.exit_code == CODES[verdict]
    assert json.loads(result.stdout)["verdict"] == str(verdict)
    (plan,) = plans
    assert (plan.faults, plan.duration_seconds, plan.seed) == (("kill-host", "kill-client"), 3.0, 4)
    assert (plan.cluster, plan.attributes) == ("c", {"replicas": 3, "useDMQ": False, "consumerFlowLimit": "20"})


def test_the_help_names_every_fault(raybroker: Any) -> None:
    text = raybroker.output("verify", "--help")
    assert all(f"{name}  " in text for name in FAULTS)
