"""Receipts are good once, for their queue, until their time is over."""

from __future__ import annotations

import pytest

from raybroker.services.rest import leases
from raybroker.services.rest.leases import HELD_MAX, Lease, Leases


def held(*receipts: str, until_s: float = 10.0) -> Leases[str]:
    found: Leases[str] = Leases()
    for receipt in receipts:
        found.hold(receipt, Lease(f"message of {receipt}", "q", until_s))
    return found


def test_a_receipt_is_good_once_and_a_second_time_says_what_became_of_it() -> None:
    one = held("a", "b")
    assert one.redeem("a", "q", "acknowledged") == "message of a"
    assert one.redeem("a", "q", "released") == "acknowledged"
    assert len(one) == 1


def test_a_receipt_of_another_queue_or_of_nobody_is_unknown_and_stays_good() -> None:
    one = held("a")
    assert one.redeem("a", "other", "acknowledged") == "unknown"
    assert one.redeem("x", "q", "acknowledged") == "unknown"
    assert one.redeem("a", "q", "acknowledged") == "message of a"


def test_only_those_whose_time_is_over_end_and_a_late_one_is_told_so() -> None:
    one = held("a", until_s=5)
    one.hold("b", Lease("later", "q", 7))
    assert one.over(["a", "b", "gone"], 5) == ["message of a"]
    assert one.redeem("a", "q", "acknowledged") == "lease over"
    assert one.redeem("b", "q", "acknowledged") == "later"


def test_what_is_held_counts_against_the_bound_and_what_ended_is_forgotten_at_its_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    one = held("a", "b", "c")
    assert one.room == HELD_MAX - 3
    monkeypatch.setattr(leases, "ENDED_MAX", 2)
    for receipt in "abc":
        one.redeem(receipt, "q", "released")
    assert [one.redeem(receipt, "q", "released") for receipt in "abc"] == ["unknown", "released", "released"]
    assert one.room == HELD_MAX
