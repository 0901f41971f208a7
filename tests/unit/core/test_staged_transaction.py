"""What an open transaction holds here is counted, and made when the first thing of it comes."""

from __future__ import annotations

from raybroker.core.delivery.consumers import Delivery
from raybroker.core.delivery.run import Run
from raybroker.core.staged_transaction import StagedBlock, StagedTransaction, stage


def test_messages_sent_and_acknowledged_are_counted_apart() -> None:
    staged = StagedTransaction()
    assert (staged.messages, staged.acknowledged, staged.prepared) == (0, 0, False)
    for ordinal, mask in ((1, 0b101), (2, 0b1)):
        staged.blocks.append(StagedBlock(ordinal, mask, 70, 1, None, ("", ""), True))
    staged.acks.append((0, Delivery(3, 2, Run(1, 1, 0b11, 1, 0, 4), 0)))
    staged.acks.append((1, Delivery(1, 5, Run(1, 2, 0b11111, 1, 0, 4), 0)))
    assert (staged.messages, staged.acknowledged) == (3, 7)


def test_each_transaction_has_one_and_shares_nothing() -> None:
    staged: dict[int, StagedTransaction] = {}
    one = stage(staged, 5)
    one.claims[1] = {0: 0b1}
    assert stage(staged, 5) is one is staged[5]
    assert stage(staged, 6) == StagedTransaction()
