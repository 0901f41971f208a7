"""``raybroker audit`` over a loopback: findings, their exit codes, and what is left out."""

from __future__ import annotations

from typing import Any


def test_what_is_found_is_said_with_what_to_do(raybroker: Any, broker: Any) -> None:
    broker.admin().create_destination("queue", "endless", redeliveryLimit=-1)
    done = raybroker("audit", "--seconds", "0")
    assert done.exit_code == 1
    assert "  3 WARNING  queue endless: redeliveryLimit=-1" in done.stdout
    assert "raybroker update dst -t q -n endless -o redeliveryLimit=20" in done.stdout
    assert "warning" in done.stdout.splitlines()[-1]


def test_a_check_is_left_out(raybroker: Any, broker: Any) -> None:
    broker.admin().create_destination("queue", "endless", redeliveryLimit=-1)
    done = raybroker("audit", "--seconds", "0.05", "--skip", "3", "--no-notes")
    assert done.exit_code in (0, 1)
    assert "  3 WARNING" not in done.stdout
    assert " NOTE " not in done.stdout


def test_as_json_each_finding_has_its_number(raybroker: Any, broker: Any) -> None:
    broker.admin().create_destination("queue", "endless", redeliveryLimit=-1)
    done = raybroker("audit", "--seconds", "0", "--json")
    assert done.exit_code == 1
    assert '"number": 3' in done.stdout


def test_the_checks_are_listed_and_an_unknown_number_is_refused(raybroker: Any) -> None:
    assert len(raybroker.json("audit", "--list")) == 23
    done = raybroker("audit", "--skip", "99")
    assert (done.exit_code, "--skip 99" in done.stderr) == (2, True)
