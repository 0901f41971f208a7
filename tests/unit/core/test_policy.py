"""What an administrator has paused; the limits of failures are in test_outcomes.py."""

from __future__ import annotations

from raybroker.core.policy import DestinationPolicy
from raybroker.model.settings.settings import DestinationAttributes


def test_insertion_is_paused_while_it_is_named() -> None:
    policy = DestinationPolicy(DestinationAttributes())
    assert not policy.insertion_paused
    policy.paused["insertion"] = 0
    assert policy.insertion_paused


def test_without_a_limit_of_the_host_the_attribute_holds() -> None:
    policy = DestinationPolicy(DestinationAttributes(redeliveryLimit=4))
    assert policy.failures_max == 4
    policy.set_host_limits(message_bytes_max=-1, rollbacks_max=3)
    assert policy.failures_max == 2
