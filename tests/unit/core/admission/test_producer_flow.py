"""The credit of a producer is its part of the limit (D-10)."""

from __future__ import annotations

import pytest

from raybroker.core.admission.producer_flow import producer_credit
from raybroker.model.settings.settings import DestinationAttributes


@pytest.mark.parametrize(
    ("limits", "credit"),
    [
        ({"maxNumMsgs": 5}, 1),
        ({"maxNumMsgs": 0}, 1),
        ({"maxNumMsgs": 1000}, 10),
        ({"maxNumMsgs": 10**6}, 1000),
        ({"maxNumMsgs": 1000, "maxNumProducers": 4}, 250),
        ({"maxNumMsgs": 1000, "maxNumProducers": -1}, 10),
        ({}, 0),
        ({"maxTotalMsgBytes": 10}, 1),
        ({"maxTotalMsgBytes": 1 << 20, "maxNumProducers": 2}, 512),
        ({"maxTotalMsgBytes": 1 << 30, "maxNumMsgs": 700, "maxNumProducers": 2}, 350),
    ],
)
def test_it_is_the_limit_over_the_producers_within_bounds(limits: dict[str, int], credit: int) -> None:
    assert producer_credit(DestinationAttributes(limitBehavior="FLOW_CONTROL", **limits)) == credit  # type: ignore[arg-type]


def test_the_other_behaviours_have_none() -> None:
    for behavior in ("REJECT_NEWEST", "REMOVE_OLDEST", "REMOVE_LOW_PRIORITY"):
        assert producer_credit(DestinationAttributes(limitBehavior=behavior, maxNumMsgs=9)) == 0
