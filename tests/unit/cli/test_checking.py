"""``check``: grades as exit codes, for people and for monitoring."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from raybroker.errors import ConnectionLostError, NoClusterError, SecurityError
from raybroker.model.listing import Listing


def test_a_broker_that_is_well_ends_with_zero(raybroker: Any, broker: Any) -> None:
    first, header, *rows = raybroker.output("check", "bkr").splitlines()
    assert first.startswith("OK: ")
    assert header.split() == ["GRADE", "CHECK", "OF", "WHAT"]
    assert {row.split()[1] for row in rows} >= {"broker", "open", "hosts", "memory"}
    found = json.loads(raybroker.output("check", "bkr", "--json"))
    assert (found["grade"], {row["grade"] for row in found["checks"]}) == ("ok", {"ok"})


@pytest.mark.parametrize(
    ("options", "code", "first"),
    [
        ((), 0, "OK: "),
        (("-w", "messages=3"), 1, "WARNING: 3 messages"),
        (("-w", "messages=1", "-c", "messages=3"), 2, "CRITICAL: 3 messages"),
        (("--critical", "consumers=1"), 2, "CRITICAL: 0 active consumers"),
        (("-w", "oldest_s=0", "-w", "dead=1"), 1, "WARNING: the oldest message is "),
        (("-w", "messages"), 3, ""),
        (("-w", "mesages=1"), 3, ""),
        (("-w", "messages=x"), 3, ""),
        (("--nonsense",), 3, ""),
    ],
)
def test_thresholds_of_a_destination_decide_the_exit_code(
    raybroker: Any, broker: Any, options: tuple[str, ...], code: int, first: str
) -> None:
    broker.session().producer("orders").send_many(["x"] * 3)
    result = raybroker("check", "dst", "-t", "q", "-n", "orders", *options)
    assert (result.exit_code, result.stdout[: len(first)]) == (code, first)
    assert bool(result.stdout) is bool(first)


def test_what_cannot_be_asked_is_unknown_and_no_answer_is_critical(
    raybroker: Any, broker: Any, failing: Callable[[Exception], None]
) -> None:
    result = raybroker("check", "dst", "-n", "nothing")
    assert (result.exit_code, "nothing" in result.stderr) == (3, True)
    assert raybroker("check", "svc", "-n", "jms").exit_code == 3
    assert raybroker("check", "svc").exit_code == 0, "none is asked for"
    for error, code in ((NoClusterError("no Ray"), 2), (ConnectionLostError("gone"), 2), (SecurityError("no"), 3)):
        failing(error)
        result = raybroker("check", "bkr")
        assert (result.exit_code, result.stdout) == (code, "")
        assert str(error) in result.stderr


def test_brokers_that_were_not_asked_are_critical_and_one_can_be_named(
    raybroker: Any, broker: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    ok = {"broker": "b1", "check": "broker", "of": "b1", "grade": "ok", "text": "it runs"}
    rows = Listing([ok], {"b2": "it is down"})
    monkeypatch.setattr("raybroker.client.admin.admin.Admin.check_broker", lambda *_: rows)
    result = raybroker("check", "bkr")
    assert (result.exit_code, result.stdout.splitlines()[0]) == (2, "CRITICAL: it does not answer: it is down")
    assert raybroker("check", "bkr", "-b", "b1").exit_code == 0
    assert raybroker("check", "bkr", "-b", "b2").exit_code == 2


def test_the_cluster_is_checked(raybroker: Any, broker: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [{"check": "members", "of": "b2", "grade": "warning", "text": "broker b2 is SUSPECT"}]
    monkeypatch.setattr("raybroker.client.admin.admin.Admin.check_cluster", lambda *_: rows)
    result = raybroker("check", "cls")
    assert (result.exit_code, result.stdout.splitlines()[0]) == (1, "WARNING: broker b2 is SUSPECT")


def test_the_help_says_what_the_exit_codes_are(raybroker: Any) -> None:
    for name in ("bkr", "cls", "dst", "svc"):
        text = " ".join(raybroker.output("check", name, "--help").split())
        assert "0 ok, 1 warning, 2 critical" in text
    assert "of check those of Nagios" in " ".join(raybroker.output("--help").split())
