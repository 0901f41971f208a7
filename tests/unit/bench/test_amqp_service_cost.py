"""The benchmark of the service amqp runs, and measures every way."""

from __future__ import annotations

from benchmarks.amqp_service_cost import WAYS, costs


def test_a_round_has_all_ways() -> None:
    found = costs(rounds=1, messages=20, alone=5)
    assert list(found) == list(WAYS)
    assert all(us > 0 for us in found.values())
