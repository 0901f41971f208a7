"""The verdict and its two forms, and the progress."""

from __future__ import annotations

import json
from io import StringIO

import pytest
from rich.console import Console

from raybroker.verify.display import VerifyDisplay
from raybroker.verify.ledger import Breach, HistoryLedger
from raybroker.verify.notes import (
    BodyContent,
    Delivered,
    NotedDelivery,
    SendsBegun,
    SendsConfirmed,
    VerifyLane,
    content_of,
    packed,
)
from raybroker.verify.plan import VerifyPlan
from raybroker.verify.report import FaultRecord, RunVerdict, VerifyReport


def report_of(verdict: RunVerdict) -> VerifyReport:
    ledger = HistoryLedger()
    ledger.add_note(SendsBegun(VerifyLane.QUEUE, 1, 0, 2))
    ledger.add_note(SendsConfirmed(VerifyLane.QUEUE, 1, 0, 2))
    ledger.add_note(Delivered(VerifyLane.QUEUE, 2, [NotedDelivery(1, number, 1, False) for number in range(2)]))
    if verdict is RunVerdict.FAILED:
        ledger.add_note(SendsBegun(VerifyLane.QUEUE, 1, 2, 1))
        ledger.add_note(SendsConfirmed(VerifyLane.QUEUE, 1, 2, 1))
    troubles = ["broker b2 did not come back"] if verdict is RunVerdict.UNFINISHED else []
    faults = [FaultRecord("kill-host", "host h1 of broker b1", 2.0, 1.5, [0.25, 0.75])]
    findings = ledger.findings(drained=True)
    return VerifyReport(VerifyPlan(seed=5), 9.0, findings, faults, troubles, verdict is RunVerdict.INTERRUPTED)


@pytest.mark.parametrize("verdict", list(RunVerdict))
def test_a_report_has_its_verdict_in_both_forms(verdict: RunVerdict) -> None:
    report = report_of(verdict)
    assert report.verdict is verdict
    found = json.loads(json.dumps(report.to_json()))
    assert (found["verdict"], found["seed"]) == (str(verdict), 5)
    assert found["broken"]["lost"] == (verdict is RunVerdict.FAILED)
    assert found["next_confirmed_send_s"] == {"p50": 0.75, "p99": 0.75, "longest": 0.75}
    text = "\n".join(report.lines())
    assert text.endswith(f"verdict: {verdict}")
    assert ("FAIL" in text) == (verdict is RunVerdict.FAILED)
    assert "kill-host host h1 of broker b1: whole again after 1.5 s" in text
    assert ("messages 2 of producer 1" in text) == (verdict is RunVerdict.FAILED)


def test_a_broken_promise_is_the_verdict_of_an_interrupted_run_too() -> None:
    failed = report_of(RunVerdict.FAILED)
    interrupted = VerifyReport(failed.plan, 1.0, failed.findings, (), ("not drained",), interrupted=True)
    assert interrupted.verdict is RunVerdict.FAILED


def test_a_body_says_whose_it_is() -> None:
    content = BodyContent(run=7, producer=2, number=3, transaction=9)
    assert len(packed(content, 100)) == 100
    assert content_of(packed(content, 100), 7) == content
    assert content_of(packed(content, 100), 8) is None
    assert content_of(b"something else that is long enough for a body", 7) is None
    assert content_of("text", 7) is None


def test_progress_is_a_line_now_and_then_where_nobody_looks() -> None:
    said = StringIO()
    display = VerifyDisplay(Console(file=said))
    counts = {**dict.fromkeys(("sent", "confirmed", "delivered", "acknowledged", "flagged"), 1200), "broken": 0}
    for tenth in range(45):
        display.update(tenth / 10, counts)
    display.note("kill-host host h1 of broker b1")
    display.end_progress()
    lines = said.getvalue().splitlines()
    assert len(lines) == 4
    assert "sent 1,200" in lines[0]
    assert lines[-1] == "    4.4 s  kill-host host h1 of broker b1"


def test_progress_is_a_picture_at_a_terminal() -> None:
    said = StringIO()
    display = VerifyDisplay(Console(file=said, force_terminal=True, width=80))
    display.update(1.0, {"sent": 10, "broken": 3})
    display.note("kill-host")
    display.end_progress()
    assert "findings" in said.getvalue()
    assert "kill-host" in said.getvalue()


def test_every_breach_has_its_words() -> None:
    text = "\n".join(report_of(RunVerdict.PASSED).lines())
    assert text.count("ok    0 messages") == len(Breach)
