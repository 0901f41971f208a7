"""Messages of a sorted destination that wait: consumers in turn get them by their keys."""

from __future__ import annotations

from raybroker.core.command import AttachConsumer
from raybroker.core.delivery.consumers import Consumer, Consumers
from raybroker.core.delivery.run import Run
from raybroker.core.delivery.selector_index import SelectorIndex
from raybroker.core.delivery.sort_order import SortOrder
from raybroker.core.delivery.sorted_pending import SortedPending
from raybroker.core.step import Step
from raybroker.model.sort_keys import parse_sort_keys
from tests.unit.core.delivery.test_plain import Handed
from tests.unit.core.selector.samples import Messages


class Sorted:
    """Pending messages of blocks of one, whose property ``a`` is what :meth:`append` says."""

    def __init__(self, text: str) -> None:
        self.step, self.consumers = Step(1), Consumers()
        self.contents: dict[int, Messages] = {}
        self.step.read_headers = self.contents.get  # type: ignore[assignment]
        self.pending = SortedPending(
            self.consumers, SelectorIndex(self.step.peek), SortOrder(parse_sort_keys(text)), self.step
        )

    def append(self, *values: int) -> None:
        for value in values:
            ordinal = len(self.contents) + 1
            self.contents[ordinal] = Messages([{"a": value}])
            self.pending.append(Run(ordinal, ordinal, 1, 0, 0, 4))

    def consumer(self, number: int, credit: int, selector: str | None = None) -> Consumer:
        one = Consumer(AttachConsumer(number, "credit", limit=credit, no_ack=False, held=False))
        one.selector, new = self.pending.selector_index.join(selector)
        if new:
            self.pending.selectors_changed()
        self.consumers.attach(one, active_max=-1, backup_max=0, name="d")
        self.consumers.rank(local_first=False)
        return one

    def handed(self) -> list[tuple[int, int]]:
        out = Handed()
        self.pending.dispatch(out.hand_out, out.dies)
        return [(consumer, self.contents[ordinal].properties(0)["a"]) for consumer, ordinal, _ in out.found]


def test_each_consumer_gets_the_next_ones_by_key() -> None:
    one = Sorted("a descending")
    one.append(3, 9, 1, 7)
    one.consumer(1, 1)
    one.consumer(2, 2)
    assert one.handed() == [(1, 9), (2, 7), (2, 3)]
    assert one.pending.count == 1


def test_what_is_without_a_key_is_work_for_the_next_step() -> None:
    one = Sorted("a")
    one.append(2)
    assert one.pending.unfinished
    assert not one.pending.sort_some()


def test_a_selector_picks_in_the_same_order() -> None:
    one = Sorted("a")
    one.append(6, 1, 4, 3)
    one.consumer(1, 9, "a > 2")
    assert one.pending.unfinished
    one.pending.unfinished = one.pending.sort_some()
    assert one.handed() == [(1, 3), (1, 4), (1, 6)]
    one.append(5)
    one.consumer(2, 9)
    one.pending.unfinished = one.pending.sort_some()
    assert one.handed() == [(1, 5), (2, 1)]
