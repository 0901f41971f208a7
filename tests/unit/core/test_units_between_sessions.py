"""Owner batches in a queue: what waits for the session that has its units is dealt out block by block, and is for
it only as long as that is certain (W-81, W-83, W-89)."""

from __future__ import annotations

import pytest

from raybroker.core import command as cmd
from raybroker.core.outcome import Deliver, Outcome
from raybroker.core.unit_of_order import dispatch
from raybroker.core.unit_of_order.unit_pending import UnitPending
from tests.unit.core.test_unit_order import TXN, Queue


def pieces(out: Outcome, number: int) -> int:
    """How many deliveries a consumer gets."""
    effects = (*out.immediate, *out.after_durable)
    return sum(isinstance(effect, Deliver) and effect.attachment == number for effect in effects)


def ack(destination: Queue, number: int, text: str) -> Outcome:
    return destination.do(cmd.Acknowledge(number, destination.ranges(number, text), 1))


def packed(destination: Queue) -> list[int]:
    """Messages of each batch."""
    pending = destination.queue.pending
    if not isinstance(pending, UnitPending):
        return []
    return [run.count for owner in pending.state.owners.values() for run in owner.owner_batches]


def busy(limit: int = 4, **attributes: int) -> tuple[Queue, int, int]:
    """A session that has a1 b1 a2 b2 and no room for a3 b3 a4, and one that was given c1, with room for one more."""
    destination = Queue(**attributes)
    destination.put("a1 b1 a2 b2")
    one, got = destination.take(limit, flow="prefetch", owner="one")
    assert got == "a1 b1 a2 b2"
    two, _ = destination.take(2, flow="prefetch", owner="two")
    assert destination.got(destination.put("a3 c1 b3 a4")) == "c1"
    assert packed(destination) == [3]
    return destination, one, two


def test_free_units_are_dealt_out_in_equal_parts_to_those_with_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dispatch, "PART_MIN", 1)
    destination = Queue()
    numbers = [
        destination.take(limit, flow="prefetch", owner=owner)[0] for owner, limit in (("x", 9), ("y", 1), ("z", 9))
    ]
    out = destination.put("a1 b1 c1 d1 e1 f1 a2 f2 g1")
    assert [destination.got(out, number) for number in numbers] == ["a1 b1 c1 a2", "d1", "e1 f1 f2 g1"]


def test_small_blocks_are_dealt_out_in_turn() -> None:
    destination = Queue()
    numbers = [destination.take(9, flow="prefetch", owner=owner)[0] for owner in "xy"]
    for block, expected in (("a1 b1", ["a1 b1", ""]), ("c1 d1 a2", ["a2", "c1 d1"]), ("e1", ["e1", ""])):
        out = destination.put(block)
        assert [destination.got(out, number) for number in numbers] == expected


def test_the_last_one_with_room_gets_what_others_have_no_room_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dispatch, "PART_MIN", 1)
    destination = Queue()
    numbers = [destination.take(limit, flow="prefetch", owner=owner)[0] for owner, limit in (("x", 1), ("y", 9))]
    out = destination.put("a1 b1 c1 d1")
    assert [destination.got(out, number) for number in numbers] == ["a1", "b1 c1 d1"]


def test_what_waits_for_one_session_leaves_in_one_piece() -> None:
    destination, one, _ = busy()
    out = ack(destination, one, "a1 b1")
    assert destination.got(out) == "a3 b3"
    assert pieces(out, one) == 1
    assert packed(destination) == [1]
    assert destination.got(ack(destination, one, "a2 b2")) == "a4"
    assert packed(destination) == []


def test_every_block_is_a_batch_of_its_own_and_they_leave_in_order() -> None:
    destination, one, _ = busy()
    assert destination.got(destination.put("b4 c2 b5")) == "c2"
    assert packed(destination) == [3, 2]
    assert destination.got(ack(destination, one, "a1 b1")) == "a3 b3"
    out = ack(destination, one, "a2 b2")
    assert destination.got(out) == "a4 b4"
    assert pieces(out, one) == 2
    assert destination.got(ack(destination, one, "a3 b3")) == "b5"


def test_a_unit_whose_session_has_settled_all_of_it_is_free_for_others() -> None:
    destination, one, two = busy()
    out = ack(destination, one, "b2 b1")
    assert packed(destination) == []
    assert (destination.got(out, one), destination.got(out, two)) == ("a3 a4", "b3")


def test_a_session_without_room_does_not_keep_a_unit_that_it_has_settled() -> None:
    destination, one, two = busy(limit=4)
    ack(destination, two, "c1")
    out = ack(destination, one, "b1")  # It is full until half of its four are settled.
    assert destination.got(out) == ""
    assert packed(destination) == [3]
    destination.do(cmd.Hold(one))
    out = ack(destination, one, "b2")
    assert destination.got(out, one) == ""
    assert destination.got(out, two) == "b3"


def test_another_consumer_of_the_session_gets_its_owner_batches() -> None:
    destination, one, _ = busy()
    _, got = destination.take(2, flow="prefetch", owner="one")
    assert got == "a3 b3"
    assert packed(destination) == [1]
    assert destination.got(ack(destination, one, "a1 b1")) == "a4"


def test_what_comes_back_goes_before_the_owner_batches_of_its_unit() -> None:
    destination, one, _ = busy()
    ack(destination, one, "b1")
    out = destination.settled(one, "release", "a2")
    assert destination.got(out, one) == "a2! a3"
    assert packed(destination) == []


def test_a_message_that_rests_keeps_its_units_owner_batches_back() -> None:
    destination, one, _ = busy()
    ack(destination, one, "a1")
    out = destination.settled(one, "fail", "a2", delay_ms=50)
    assert destination.got(out, one) == "b3"
    assert destination.got(ack(destination, one, "b1 b2 b3")) == ""
    assert destination.got(destination.tick(60), None).split()[0] == "a2!"


def test_what_a_transaction_has_consumed_keeps_owner_batches_back_until_it_ends() -> None:
    destination, one, _ = busy()
    destination.do(cmd.StageAcks(TXN, one, destination.ranges(one, "a1 a2")))
    assert packed(destination) == []
    out = ack(destination, one, "b1")
    assert "a" not in destination.got(out)
    assert "a3" in destination.got(destination.do(cmd.Decide(TXN, True)))


def test_a_session_that_leaves_leaves_its_owner_batches_to_the_others() -> None:
    destination, one, two = busy()
    ack(destination, two, "c1")
    out = destination.do(cmd.DetachConsumer(one))
    assert packed(destination) == []
    assert destination.got(out, two) == "a1! b1!"


def test_a_higher_priority_goes_first_and_owner_batches_are_unpacked_for_it() -> None:
    destination, one, two = busy()
    assert destination.got(destination.put("d1 a5", priority=[9, 4]), two) == "d1"
    assert packed(destination) == []
    assert destination.got(ack(destination, one, "a1 b1")) == "a3 a4"
    assert destination.got(ack(destination, one, "a2 b2")) == "b3 a5"


def test_the_first_selector_unpacks_them() -> None:
    destination, one, _ = busy()
    _, got = destination.take(5, owner="three", selector="name = 'b4'")
    assert packed(destination) == []
    assert got == ""
    assert destination.got(ack(destination, one, "a1 b1")) == "a3 a4"


def test_a_purge_takes_owner_batches_too() -> None:
    destination, one, _ = busy()
    destination.do(cmd.Purge())
    assert packed(destination) == []
    assert destination.got(ack(destination, one, "a1 b1 a2 b2")) == ""
    assert isinstance(destination.queue.pending, UnitPending)
    assert destination.queue.pending.state.behind == 0


def test_one_message_is_taken_out_of_a_batch() -> None:
    destination, one, _ = busy()
    ordinal = next(ordinal for (ordinal, _), name in destination.names.items() if name == "b3")
    destination.do(cmd.Remove({ordinal: 1 << 2}))
    assert destination.got(ack(destination, one, "a1 b1")) == "a3 a4"


def test_what_expires_in_a_batch_dies_and_the_next_goes_on() -> None:
    destination = Queue()
    destination.put("a1 b1 a2 b2")
    one, _ = destination.take(4, flow="prefetch", owner="one")
    destination.take(2, flow="prefetch", owner="two")
    destination.put("a3 c1 b3 a4", ttl=[50, 0, 0, 0])
    assert packed(destination) == [3]
    destination.now_ms += 100
    assert destination.got(ack(destination, one, "a1 b1"), one) == "b3 a4"


def test_after_a_restart_owner_batches_are_where_they_were() -> None:
    for checkpoint in (False, True):
        destination, _, _ = busy()
        again = destination.again(checkpoint=checkpoint)
        assert again.take(50, owner="three")[1] == "a1! b1! a2! b2! a3 c1! b3 a4"
