"""What a delivery queue has decided is written down, settled and told."""

from __future__ import annotations

from raybroker.core.counters import Counters
from raybroker.core.delivery.dead_letters import Dead
from raybroker.core.delivery.delivery_queue import DeliveryQueue
from raybroker.core.delivery.run import Run
from raybroker.core.durable import records
from raybroker.core.outcome import DeadLetter, Retire
from raybroker.core.settlement import Settlement
from tests.unit.core.parts import Parts


def settlement(parts: Parts, counters: Counters | None = None) -> Settlement:
    def clear(queue: DeliveryQueue, ordinal: int, mask: int) -> tuple[int, bool]:
        return mask, parts.index.held[ordinal].left == mask.bit_count()

    return Settlement(parts.step, parts.index, counters or Counters(), clear)


def written(parts: Parts) -> list[tuple[int, list[tuple[int, int]], list[tuple[int, int]]]]:
    found = [records.decode(entry.meta) for entry in parts.out.records]
    return [(one.kind, [span[:2] for span in one.spans], [row[:2] for row in one.rows]) for one in found]


def test_whole_blocks_are_written_as_spans_and_retire_and_parts_as_rows() -> None:
    parts = Parts()
    one, two, three = parts.block(2), parts.block(1), parts.block(2)
    for block in parts.index.held.values():
        block.stored = True
    assert settlement(parts).settle_parts(parts.queue, [(one, 0b11), (two, 0b1), (three, 0b1)]) == 4
    assert written(parts) == [(records.ACKED, [(one, two)], [(three, 0b1)])]
    assert parts.out.after_durable == [Retire((one, two), True)]
    assert list(parts.index.held) == [three]


def test_what_was_handed_out_is_written_and_what_no_one_acknowledges_is_settled_and_counted() -> None:
    parts, counters = Parts(), Counters()
    parts.consumer(no_ack=True)
    ordinal = parts.arrive(2)
    settlement(parts, counters).dispatched(parts.queue, parts.queue.dispatch())
    assert [kind for kind, _, _ in written(parts)] == [records.DISPATCHED, records.ACKED]
    assert (counters.messages_out, counters.bytes_out, ordinal in parts.index.held) == (2, 8, False)


def test_a_dead_letter_is_held_until_it_is_settled_what_became_of_it() -> None:
    parts = Parts()
    ordinal = parts.block(2)
    place = settlement(parts)
    place.dead_letter(parts.queue, Dead(Run(1, ordinal, 0b1, 2, 0, 4), "EXPIRED", "late"))
    assert parts.out.immediate == [DeadLetter(1, ordinal, 0b1, 2, "EXPIRED", "late", "")]
    assert parts.index.held[ordinal].left == 2
    place.dead_letters_settled(parts.queue, ordinal, 0b11)
    assert (parts.index.held[ordinal].left, parts.index.dead) == (1, 0)
