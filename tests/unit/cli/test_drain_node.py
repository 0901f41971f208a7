"""``raybroker drain node``: which node is meant, and what is in hand there still."""

from __future__ import annotations

from typing import Any

import pytest

from raybroker.actors import runtime
from raybroker.cli import connecting
from raybroker.cli.objects import drains, takeovers
from tests.unit.cli.conftest import Program

NODES = [runtime.Node("a1" + "0" * 54, "10.0.0.1", "one", 0), runtime.Node("a2" + "0" * 54, "10.0.0.2", "two", 0)]
FIRST, SECOND = (node.id for node in NODES)


class Admin:
    """``in_hand``: what list_consumers shows of the first node, one after the other."""

    def __init__(self, *in_hand: int, trouble: dict[str, str] | None = None) -> None:
        self._in_hand = iter(in_hand)
        self._trouble = trouble or {}
        self.asked: list[tuple[str, int, bool]] = []

    def _call(self, verb: str, args: dict[str, Any]) -> Any:
        return getattr(self, verb)(**args)

    def drain_node(self, node: str, deadline_s: int = 0, off: bool = False) -> dict[str, Any]:
        self.asked.append((node, deadline_s, off))
        brokers = [] if off else ["b1", *self._trouble]
        return {"node": node, "was_drained": off, "brokers": brokers, "trouble": self._trouble}

    def list_consumers(self, destination: str | None = None, type: str | None = None) -> list[dict[str, Any]]:
        return [
            {"labels": [FIRST, "warm"], "unacknowledged": next(self._in_hand)},
            {"labels": [SECOND], "unacknowledged": 50},
        ]


@pytest.fixture
def asking(monkeypatch: pytest.MonkeyPatch) -> Any:
    def ask(admin: Admin) -> Admin:
        class Connected:
            def admin(self) -> Admin:
                return admin

            def close(self) -> None:
                pass

        monkeypatch.setattr(connecting, "connect", lambda cluster, broker=None: Connected())
        monkeypatch.setattr(runtime, "nodes", lambda: NODES)
        monkeypatch.setattr(takeovers, "LOOK_S", 0.0)
        return admin

    return ask


def test_it_waits_until_nothing_is_in_hand(raybroker: Program, asking: Any) -> None:
    admin = asking(Admin(7, 7, 2, 0))
    assert raybroker.output("drain", "node", "10.0.0.1", "--deadline", "120").splitlines() == [
        "broker b1 is drained with its node; look: raybroker list bkr",
        "7 messages are with consumers on the node",
        "2 messages are with consumers on the node",
        f"node {FIRST} is drained: consumers there have nothing in hand",
    ]
    assert raybroker.output("drain", "node", FIRST[:8], "--off").strip() == f"node {FIRST} stays"
    assert admin.asked == [(FIRST, 120, False), (FIRST, 0, True)]


def test_what_is_left_and_who_is_not_drained_is_said(
    raybroker: Program, asking: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(drains, "IN_HAND_S", 0.0)
    asking(Admin(3, 3, 3, trouble={"b2": "no broker is up on another node"}))
    result = raybroker("drain", "node", "one")
    assert result.exit_code == 1
    said = " ".join(result.output.split())
    assert "broker b2 is not drained: no broker is up on another node" in said
    assert "3 messages are with consumers on the node still" in said


def test_a_node_is_meant_by_what_fits_one_alone(raybroker: Program, asking: Any) -> None:
    admin = asking(Admin(0))
    for word in ("a", "10.0.0.9"):
        result = raybroker("drain", "node", word)
        assert result.exit_code != 0
        assert f"{SECOND} (10.0.0.2)" in " ".join(result.output.split())
    gone = "f" * 56
    raybroker.output("drain", "node", gone, "--off")
    assert admin.asked == [(gone, 0, True)]
