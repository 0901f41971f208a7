"""When a transacted listener's calls are committed (W-42)."""

from __future__ import annotations

from raybroker.client.listener.batching import Batching


def test_a_batch_is_full_after_so_many_calls() -> None:
    batching = Batching(3)
    assert [batching.called() for _ in range(3)] == [False, False, True]
    batching.committed()
    assert [batching.called() for _ in range(2)] == [False, False]
    assert batching.calls == 2


def test_one_call_in_a_transaction_is_always_full() -> None:
    assert Batching(1).called()


def test_after_a_failure_everything_the_batch_held_is_tried_alone_and_then_batches_go_on() -> None:
    batching = Batching(3)
    batching.called(), batching.called()
    batching.failed(in_call=True)
    full = []
    for _ in range(6):
        full.append(batching.called())
        if full[-1]:
            batching.committed()
    assert full == [True, True, True, False, False, True]


def test_a_message_that_fails_alone_stays_alone() -> None:
    batching = Batching(5)
    batching.failed(in_call=True)
    for _ in range(3):
        batching.failed(in_call=True)
        assert batching.alone == 1
    assert batching.called()


def test_a_commit_that_fails_is_tried_again_message_by_message() -> None:
    batching = Batching(2)
    batching.called(), batching.called()
    batching.failed(in_call=False)
    assert (batching.alone, batching.calls) == (2, 0)
