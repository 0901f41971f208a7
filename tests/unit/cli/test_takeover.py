"""``raybroker takeover bkr`` and what ``list bkr`` and ``check cls`` say of a store that brokers share (A-22, K-21)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from raybroker.admin import checks
from raybroker.cli import connecting
from raybroker.cli.objects import takeovers
from raybroker.errors import ConnectionLostError, IllegalStateError
from tests.unit.cli.conftest import Program

STORED = {
    "store_state": "OPERATING",
    "tenure": 3,
    "takeovers": 2,
    "taken_by": "b1",
    "store_node": "n1",
    "silent_ms": 100,
}


class Admin:
    """Answers as a broker that takes over; ``states``: those that list_brokers shows one after the other."""

    def __init__(self, *states: str, refused: Exception | None = None) -> None:
        self._states = iter(states)
        self._refused = refused
        self.asked: list[str] = []

    def _call(self, verb: str, args: dict[str, Any]) -> Any:
        return getattr(self, verb)(**args)

    def takeover_broker(self, broker: str) -> dict[str, Any]:
        if self._refused is not None:
            raise self._refused
        self.asked.append(broker)
        return {"broker": broker, "taker": "b1", "tenure": 3, "node": "n1"}

    def drain_broker(self, broker: str, to: str | None = None, off: bool = False) -> dict[str, Any]:
        self.asked.append(f"{broker} to {to}")
        return {"broker": broker, "taker": to or "b1", "tenure": 3, "node": "n1"}

    def list_brokers(self) -> list[dict[str, Any]]:
        state = next(self._states)
        if state == "gone":
            raise ConnectionLostError("the broker that was asked is the one that goes")
        why = {"store_reason": "start it: no process"} if state == "TAKEOVER_FAILED" else {}
        return [{"broker": "b1"}, {"broker": "b2", **STORED, "store_state": state, **why}]


@pytest.fixture
def asking(monkeypatch: pytest.MonkeyPatch) -> Callable[[Admin], Admin]:
    def ask(admin: Admin) -> Admin:
        class Connected:
            def admin(self) -> Admin:
                return admin

            def close(self) -> None:
                pass

        monkeypatch.setattr(connecting, "connect", lambda cluster, broker=None: Connected())
        monkeypatch.setattr(takeovers, "LOOK_S", 0.0)
        return admin

    return ask


def test_it_waits_until_the_broker_takes_clients(raybroker: Program, asking: Callable[[Admin], Admin]) -> None:
    admin = asking(Admin("TAKEOVER_STARTED", "TAKEOVER_COMPLETE", "OPERATING"))
    said = raybroker.output("takeover", "bkr", "-n", "b2", "-f")
    assert said.splitlines() == [
        "broker b1 takes broker b2 over, tenure 3",
        "broker b2 takes clients on node n1",
    ]
    assert admin.asked == ["b2"]


def test_a_drain_waits_for_the_broker_too_also_where_that_was_the_one_asked(
    raybroker: Program, asking: Callable[[Admin], Admin]
) -> None:
    admin = asking(Admin("SHUTDOWN_STARTED", "gone", "BROKER_DOWN", "TAKEOVER_STARTED", "OPERATING"))
    said = raybroker.output("drain", "bkr", "-n", "b2", "--to", "b3", "-f")
    assert said.splitlines() == ["broker b2 is drained to broker b3", "broker b2 takes clients on node n1"]
    assert admin.asked == ["b2 to b3"]
    result = raybroker("drain", "bkr", "-n", "b2")
    assert result.exit_code == 2
    assert "--force" in result.output


def test_of_queues_with_copies_it_says_which_another_one_is_to_lead(
    raybroker: Program, asking: Callable[[Admin], Admin], monkeypatch: pytest.MonkeyPatch
) -> None:
    admin = asking(Admin())
    for found, said in ((["queue orders"], "queue orders"), ([], "nothing: all that has copies is led by another one")):
        answer = {"broker": "b2", "taker": "b1", "destinations": found}
        monkeypatch.setattr(admin, "takeover_broker", lambda broker, answer=answer: answer)
        told = raybroker.output("takeover", "bkr", "-n", "b2", "-f")
        assert told.strip() == f"of what broker b2 has copies of, other copies are to lead: {said}"


class Copied:
    """Answers as brokers that share no store; ``rows``: what list_brokers shows of b2, one after the other."""

    def __init__(self, *rows: dict[str, Any], staying: int = 0) -> None:
        self._rows = iter(rows)
        self._staying = [{"type": "queue", "name": f"q{number}", "messages": 5} for number in range(staying)]
        self.asked: list[tuple[str, str | None, bool]] = []

    def _call(self, verb: str, args: dict[str, Any]) -> Any:
        return getattr(self, verb)(**args)

    def drain_broker(self, broker: str, to: str | None = None, off: bool = False) -> dict[str, Any]:
        self.asked.append((broker, to, off))
        if off:
            return {"broker": broker, "was_drained": True}
        return {"broker": broker, "drain": "DRAINING", "stays": len(self._staying), "staying": self._staying[:1]}

    def list_brokers(self) -> list[dict[str, Any]]:
        return [{"broker": "b1"}, {"broker": "b2", **next(self._rows)}]


def drained(leads: int, unled: int = 0, *stuck: str) -> dict[str, Any]:
    state = "DRAINING" if leads > len(stuck) or unled else "DRAINED"
    return {"drain": state, "drained_since_ms": 1, "leads": leads, "unled": unled, "stuck": list(stuck)}


def test_a_drain_waits_until_others_lead_and_names_what_stays(raybroker: Program, asking: Callable[[Any], Any]) -> None:
    admin = asking(Copied(drained(2), drained(2), drained(1), drained(0, 1), drained(0), staying=3))
    assert raybroker.output("drain", "bkr", "-n", "b2", "-f").splitlines() == [
        "queue q0 has one copy: 5 messages stay at broker b2",
        "so do those of 2 other destinations",
        "broker b2 leads 2 queues with copies",
        "broker b2 leads 1 queues with copies",
        "broker b2 is drained: it leads no queue",
    ]
    assert raybroker.output("drain", "bkr", "-n", "b2", "--off").strip() == "broker b2 may lead queues again"
    assert admin.asked == [("b2", None, False), ("b2", None, True)]


def test_what_nobody_else_can_lead_fails_the_command(raybroker: Program, asking: Callable[[Any], Any]) -> None:
    asking(Copied(drained(1, 0, "orders")))
    result = raybroker("drain", "bkr", "-n", "b2", "-f")
    assert result.exit_code == 1
    assert "broker b2 leads still: orders" in " ".join(result.output.split())


def test_the_drain_is_a_column_of_list_bkr_and_a_check(raybroker: Program, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [
        {"broker": "b1", "cluster": "c", "state": "UP", "address": "a"},
        {"broker": "b2", "cluster": "c", "state": "UP", "address": "a", **drained(2)},
    ]
    monkeypatch.setattr(connecting, "brokers", lambda cluster: rows)
    said = raybroker.output("list", "bkr")
    assert "DRAINING, leads 2" in said
    del rows[1]["drain"]
    assert "drain" not in raybroker.output("list", "bkr").lower()
    cluster = {
        "broker": "b1",
        "state": "OPERATING",
        "master": "b1",
        "operating": True,
        "brokers": [{"broker": "b2", "state": "UP", **drained(1, 0, "orders")}],
    }
    (found,) = [row for row in checks.of_cluster(cluster) if row["check"] == "drain"]
    assert (found["grade"], found["of"]) == ("warning", "b2")
    assert "it leads 1 queues with copies, of which nobody else can lead orders now" in found["text"]


def test_what_has_failed_and_what_is_refused_is_said(raybroker: Program, asking: Callable[[Admin], Admin]) -> None:
    asking(Admin("TAKEOVER_STARTED", "TAKEOVER_FAILED"))
    result = raybroker("takeover", "bkr", "-n", "b2", "-f")
    assert result.exit_code != 0
    assert "the takeover of broker b2 has failed: start it: no process" in " ".join(result.output.split())
    asking(Admin(refused=IllegalStateError("broker b2 is up, and nobody takes over what lives")))
    result = raybroker("takeover", "bkr", "-n", "b2", "-f")
    assert result.exit_code != 0
    assert "nobody takes over what lives" in result.output
    result = raybroker("takeover", "bkr", "-n", "b2")
    assert result.exit_code == 2
    assert "--force" in result.output


def test_the_store_is_a_column_of_list_bkr_where_there_is_one(
    raybroker: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [{"broker": "b1", "cluster": "c", "state": "UP", "address": "x", **STORED}]
    monkeypatch.setattr(connecting, "brokers", lambda cluster: rows)
    assert "TENURE" in raybroker.output("list", "bkr")
    failed = {**rows[0], "broker": "b2", "state": "DOWN", "reason": "it is down"}
    rows.append({**failed, "store_state": "TAKEOVER_FAILED", "store_reason": "no process"})
    result = raybroker("list", "bkr")
    assert "broker b2 is DOWN: no process" in result.output
    rows[:] = [{"broker": "b1", "cluster": "c", "state": "UP", "address": "x"}]
    assert "TENURE" not in raybroker.output("list", "bkr")


@pytest.mark.parametrize(
    ("more", "grade", "text"),
    [
        ({}, "ok", "broker b2 is OPERATING in the shared store, tenure 3, taken over 2 times, last by b1"),
        ({"store_state": "BROKER_DOWN"}, "warning", "b2 is BROKER_DOWN"),
        ({"store_state": "TAKEOVER_COMPLETE"}, "warning", "b2 is TAKEOVER_COMPLETE"),
        ({"store_state": "TAKEOVER_FAILED", "store_reason": "no process"}, "critical", "by b1: no process"),
        ({"store_reason": "the database is down"}, "warning", "the database is down"),
    ],
)
def test_a_check_grades_the_states(more: dict[str, object], grade: str, text: str) -> None:
    cluster = {"broker": "b1", "state": "OPERATING", "master": "", "operating": True, "contradiction": "", "faults": []}
    members = [{"broker": "b1", "state": "UP"}, {"broker": "b2", "state": "UP", **STORED, **more}]
    (found,) = [row for row in checks.of_cluster({**cluster, "brokers": members}) if row["check"] == "store"]
    assert (found["of"], found["grade"]) == ("b2", grade)
    assert text in found["text"]
