"""What a consumer of batches has asked for, and what of that it wants no more."""

from __future__ import annotations

from raybroker.client.consumer.prefetch.flow_control import BatchFlow


def test_it_asks_once_until_the_batch_is_taken() -> None:
    flow = BatchFlow()
    assert [flow.wanted(), flow.wanted()] == [1, 0]
    flow.arrived(2)
    flow.ended()
    assert flow.wanted() == 0, "it is here"
    assert flow.hand_over()
    flow.consumed(2)
    assert (flow.hand_over(), flow.wanted()) == (False, 1)


def test_what_is_revoked_is_asked_for_anew_once_the_broker_has_said_so() -> None:
    flow = BatchFlow()
    assert not flow.revoke(), "nothing was asked for"
    flow.wanted()
    assert [flow.revoke(), flow.revoke()] == [True, False]
    assert flow.wanted() == 0, "the batch may have left"
    flow.voided()
    assert (flow.hand_over(), flow.wanted()) == (False, 1)


def test_a_batch_that_had_left_when_it_was_revoked_is_the_next_one() -> None:
    flow = BatchFlow()
    flow.wanted()
    flow.revoke()
    flow.arrived(1)
    flow.ended()
    assert flow.hand_over()
    flow.consumed(1)
    assert flow.wanted() == 1
    assert flow.revoke(), "the next one can be revoked as well"
