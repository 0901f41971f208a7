"""Times from a fault to the next confirmed send."""

from __future__ import annotations

import pytest

from raybroker.verify.notes import SendsBegun, SendsConfirmed, VerifyLane
from raybroker.verify.recovery import Recoveries

S = 1_000_000_000


def begun(producer: int, first: int) -> SendsBegun:
    return SendsBegun(VerifyLane.QUEUE, producer, first, 10)


def confirmed(producer: int, first: int) -> SendsConfirmed:
    return SendsConfirmed(VerifyLane.QUEUE, producer, first, 10)


def test_a_send_counts_that_began_after_the_fault() -> None:
    found = Recoveries()
    for producer in (1, 2):
        found.add_note(begun(producer, 0), S)
    found.mark("kill-host", 2 * S)
    found.add_note(confirmed(1, 0), 3 * S)  # It was under way when the fault happened.
    found.add_note(begun(1, 10), 4 * S)
    found.add_note(confirmed(1, 10), 5 * S)
    found.add_note(begun(1, 20), 6 * S)
    found.add_note(confirmed(1, 20), 7 * S)
    (outage,) = found.outages
    assert outage.seconds == [pytest.approx(3.0)]
    assert outage.waiting == {(VerifyLane.QUEUE, 2)}
    found.forget_producer(2)
    assert not outage.waiting


def test_each_fault_has_times_of_its_own() -> None:
    found = Recoveries()
    found.add_note(begun(1, 0), 0)
    found.mark("one", S)
    found.mark("two", 2 * S)
    found.add_note(begun(1, 10), 3 * S)
    found.add_note(confirmed(1, 10), 4 * S)
    assert [outage.seconds for outage in found.outages] == [[pytest.approx(3.0)], [pytest.approx(2.0)]]
