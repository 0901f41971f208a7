"""The benchmark of AMQP's engine runs, and measures every step."""

from __future__ import annotations

from benchmarks.amqp_wire_cost import STEPS, costs


def test_a_round_has_all_steps() -> None:
    found = costs(rounds=1)
    assert list(found) == list(STEPS)
    assert all(us > 0 for us in found.values())
