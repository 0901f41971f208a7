"""Quotas from the command line (W-04)."""

from __future__ import annotations

from typing import Any


def test_a_quota_is_created_listed_shown_changed_and_destroyed(raybroker: Any, broker: Any) -> None:
    assert raybroker("list", "quota").stderr == "no quotas\n"
    told = raybroker.output("create", "quota", "-n", "small", "-o", "MessagesMaximum=2", "-o", "BytesMaximum=1k")
    assert told == "created quota small\n"
    raybroker.output("create", "dst", "-n", "a", "-o", "quota=small")
    broker.session().producer("a").send("x")
    line = raybroker.output("list", "quota").splitlines()[1].split()
    assert line == ["small", "BytesMaximum=1024", "MessagesMaximum=2", "Policy=FIFO", "Shared=true"]
    row = raybroker.json("query", "quota", "-n", "small")
    assert (row["users"], row["messages"], row["waiting"], row["refused"]) == (["queue a"], 1, 0, 0)
    shown = raybroker.output("query", "quota", "-n", "small")
    assert "queue a" in shown
    assert shown.splitlines()[-1].split()[:3] == ["loopback", "1", "1"]
    result = raybroker("destroy", "quota", "-n", "small", "-f")
    assert result.exit_code == 1
    assert "quota 'small' is in use by queue a" in result.stderr
    assert raybroker.output("update", "quota", "-n", "small", "-o", "Policy=Preemptive") == "updated quota small\n"
    assert raybroker("update", "quota", "-n", "small").exit_code == 2
    assert raybroker.json("list", "quota")[0]["attributes"]["Policy"] == "Preemptive"
    raybroker.output("update", "dst", "-n", "a", "-o", "quota=")
    assert raybroker.output("destroy", "quota", "-n", "small", "-f") == "destroyed quota small\n"
    assert raybroker.json("list", "quota") == []
    assert raybroker("create", "quota", "-n", "x", "-o", "Shared").exit_code == 2
    assert "MessagesMaximum" in raybroker("create", "quota", "-n", "x", "-o", "Messages=2").stderr
