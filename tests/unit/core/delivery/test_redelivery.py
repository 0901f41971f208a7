"""When failed messages come again, and when they are dead."""

from __future__ import annotations

import pytest

from raybroker.core.delivery.redelivery import FAILURES_MAX, dead_of, delay_ms, is_over, with_failure
from raybroker.core.delivery.run import Run
from raybroker.core.durable.records import REJECTED
from raybroker.model.settings.settings import DestinationAttributes


def run(failures: int) -> Run:
    return Run(1, 1, 0b1, 1, failures, 4)


@pytest.mark.parametrize(("failures", "expected"), [(1, 100), (2, 200), (3, 400), (4, 500), (9, 500)])
def test_the_delay_grows_with_every_failure_up_to_its_cap(failures: int, expected: int) -> None:
    attributes = DestinationAttributes(redeliveryBackoffPercent=200, redeliveryDelayMax=500)
    assert delay_ms(attributes, 100, failures) == expected


def test_a_wanted_delay_beyond_the_cap_holds() -> None:
    attributes = DestinationAttributes(redeliveryBackoffPercent=200, redeliveryDelayMax=50)
    assert delay_ms(attributes, 100, 3) == 100


@pytest.mark.parametrize(("failures", "limit", "over"), [(1, 1, False), (2, 1, True), (9, -1, False), (1, 0, True)])
def test_messages_are_over_with_more_failures_than_the_limit(failures: int, limit: int, over: bool) -> None:
    assert is_over(run(failures), limit) == over


def test_the_reason_of_a_death_says_how_often_it_failed_or_that_it_was_rejected() -> None:
    dead = dead_of(run(3), 2, "broken")
    assert dead[1:] == ("UNDELIVERABLE", "failed 3 times, 2 are allowed", "broken", "")
    assert is_over(run(REJECTED), -1)
    assert dead_of(run(REJECTED), -1)[1:] == ("ERROR", "rejected before a restart", "", "")


def test_failures_are_counted_up_to_their_maximum() -> None:
    assert with_failure(run(0)).failures == 1
    assert with_failure(run(FAILURES_MAX)).failures == FAILURES_MAX
