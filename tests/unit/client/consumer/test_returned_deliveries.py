"""What went back unsettled, and what an acknowledgement of it says."""

from __future__ import annotations

import pytest

from raybroker.client.consumer.acknowledging import returned_deliveries
from raybroker.client.consumer.acknowledging.returned_deliveries import (
    CLOSED,
    LOST,
    RECOVERED,
    ReturnedDeliveries,
    not_settled,
)
from raybroker.model.errors import ConnectionLostError, IllegalStateError


def test_the_last_reason_counts_and_each_attachment_has_its_own_tags() -> None:
    returned = ReturnedDeliveries()
    returned.add(1, [(1, 10)], LOST)
    returned.add(1, [[5, 6, 99]], RECOVERED)
    assert [returned.why(1, tag) for tag in (4, 5, 6, 7, 11)] == [LOST, RECOVERED, RECOVERED, LOST, None]
    assert returned.why(2, 5) is None


def test_with_too_many_ranges_the_oldest_of_an_attachment_become_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(returned_deliveries, "RANGES_MAX", 2)
    returned = ReturnedDeliveries()
    returned.add(1, [(1, 1), (5, 5), (9, 9)], CLOSED)
    assert [returned.why(1, tag) for tag in (1, 3, 5, 9, 10)] == [CLOSED, CLOSED, CLOSED, CLOSED, None]
    returned.add(2, [(1, 1)], LOST)
    returned.add(3, [(1, 1)], LOST)
    assert [returned.why(epoch, 1) for epoch in (1, 2, 3)] == [None, LOST, LOST]


def test_the_error_says_what_did_nothing_and_why() -> None:
    error = not_settled("acknowledge()", LOST)
    assert isinstance(error, ConnectionLostError)
    assert "acknowledge() did nothing: the connection to its broker was lost" in str(error)
    assert isinstance(not_settled("extend()", CLOSED), IllegalStateError)
