"""Destinations with keys: invariants after any commands, and restarts that go on where they were."""

from __future__ import annotations

from random import Random

from hypothesis import given, settings

from tests.unit.core.driver import Driver, limits, seeds

KEYS = (
    "n descending",
    "s, n",
    "JMSMessageID descending",
    "JMSPriority",
    "JMSRedelivered, n descending, JMSMessageID descending",
)


@settings(max_examples=12)
@given(seeds())
def test_invariants_of_a_sorted_destination_hold_after_any_commands(seed: int) -> None:
    rng = Random(seed)
    driver = Driver(seed, rng.choice(("queue", "topic")), **limits(rng), destinationKeys=rng.choice(KEYS))
    for _ in range(100):
        driver.act()
