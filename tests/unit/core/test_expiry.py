"""The scan finds what has expired, block by block, and never looks too early."""

from __future__ import annotations

from array import array

from raybroker.core.blocks.block_entry import Columns
from raybroker.core.expiry import ExpiryScan
from tests.unit.core.parts import NOW, Parts


def test_a_block_is_looked_at_when_its_first_message_is_due_and_again_for_the_next() -> None:
    parts = Parts()
    scan = ExpiryScan(parts.step, parts.index)
    scan.scan_ms = 100
    ordinal = parts.block(2, Columns(expires=array("Q", [NOW + 50, NOW + 150])))
    scan.expect(NOW + 50, ordinal)
    assert (parts.out.wake_at, scan.due()) == (NOW + 100, {})
    parts.step.begin(NOW + 100)
    assert scan.due() == {ordinal: 0b01}
    scan.plan()
    parts.step.begin(NOW + 200)
    assert scan.due() == {ordinal: 0b11}


def test_nothing_is_looked_for_without_an_interval() -> None:
    parts = Parts()
    scan = ExpiryScan(parts.step, parts.index)
    scan.expect(NOW, parts.block(1, Columns(expires=array("Q", [NOW]))))
    assert (parts.out.wake_at, scan.due()) == (None, {})


def test_what_was_in_nobodys_reach_is_looked_at_again() -> None:
    parts = Parts()
    scan = ExpiryScan(parts.step, parts.index)
    scan.scan_ms = 100
    ordinal = parts.block(1, Columns(expires=array("Q", [NOW])))
    scan.look_again(ordinal)
    scan.plan()
    parts.step.begin(NOW + 100)
    assert scan.due() == {ordinal: 0b1}
