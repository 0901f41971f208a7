"""The sorted backlog against a sorted list, for many orders, whatever comes in, goes out and comes back."""

from __future__ import annotations

import random
from typing import Any

import pytest

from raybroker.core.blocks import message_mask as pk
from raybroker.core.delivery import sorted_backlog
from raybroker.core.delivery.backlog import ANY
from raybroker.core.delivery.run import Run
from raybroker.core.delivery.sort_order import SortOrder
from raybroker.core.delivery.sorted_backlog import SortedBacklog
from raybroker.core.step import Step
from raybroker.model.sort_keys import parse_sort_keys
from tests.unit.core.driven_destination import Rows

ORDERS = (
    "JMSMessageID",
    "JMSMessageID descending",
    "JMSPriority descending",
    "a",
    "a descending, JMSMessageID descending",
    "JMSPriority, a descending",
    "JMSTimestamp descending, b, a",
    "JMSRedelivered descending, a",
)
VALUES = (None, False, True, -3, 0, 2.5, 7, "", "a", "b", float("nan"))


class Twin:
    """A backlog, and all its messages as a sorted list of (keys, arrival, index) with their runs."""

    def __init__(self, text: str) -> None:
        self.keys = parse_sort_keys(text)
        self.step = Step(1)
        self.contents: dict[int, Rows] = {}
        self.step.read_headers = self.contents.get  # type: ignore[assignment]
        self.backlog = SortedBacklog(SortOrder(self.keys), self.step)
        self.waiting: dict[tuple[int, int], Run] = {}

    def block(self, rng: random.Random, ordinal: int) -> Run:
        count = rng.choice((1, 1, 3, 40))
        rows: list[dict[str, Any]] = [
            {name: value for name in "ab" if (value := rng.choice(VALUES)) is not None} for _ in range(count)
        ]
        self.contents[ordinal] = Rows(rows, {"JMSTimestamp": ordinal // 3})
        return Run(ordinal, ordinal, (1 << count) - 1, 0, 0, rng.randrange(10))

    def add(self, run: Run, *, at_hand: bool) -> None:
        self.step.begin(0)
        if at_hand:
            self.step.out.accepted, self.step.arriving = run.ordinal, self.contents[run.ordinal]
        self.backlog.append(run)
        self.waiting |= {(run.ordinal, i): run._replace(mask=1 << i) for i in pk.indexes(run.mask)}

    def gone(self, run: Run) -> None:
        for index in pk.indexes(run.mask):
            assert self.waiting.pop((run.ordinal, index)) == run._replace(mask=1 << index)

    def place(self, at: tuple[int, int]) -> tuple[Any, ...]:
        """Where a message stands, without the code that is tested: numbers for texts, negative ones to turn round."""
        found: list[float] = []
        for name, descending in self.keys:
            sign = -1 if descending else 1
            if name == "JMSMessageID":
                found += [sign * self.waiting[at].arrival, sign * at[1]]
            else:
                found.append(sign * self.rank(name, at))
        return (*found, self.waiting[at].arrival, at[1])

    def rank(self, name: str, at: tuple[int, int]) -> float:
        if name == "JMSPriority":
            return self.waiting[at].priority
        if name == "JMSRedelivered":
            return float(self.waiting[at].attempts > 0)
        if name == "JMSTimestamp":
            return at[0] // 3
        value = self.contents[at[0]].rows[at[1]].get(name)
        if value is None or value != value:
            return -1000
        if isinstance(value, bool):
            return -900 + value
        return {"": 1000, "a": 1001, "b": 1002}[value] if isinstance(value, str) else value

    def in_order(self) -> list[tuple[int, int]]:
        return sorted(self.waiting, key=self.place)


@pytest.mark.parametrize("text", ORDERS)
def test_it_hands_out_what_a_sorted_list_would(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sorted_backlog, "KEYED_MAX", 1 << 30)
    for seed in range(8):
        rng, twin, out, ordinal = random.Random(f"{text}{seed}"), Twin(text), list[Run](), 0
        for _ in range(120):
            choice = rng.random()
            if choice < 0.35:
                ordinal += 1
                twin.add(twin.block(rng, ordinal), at_hand=rng.random() < 0.7)
            elif choice < 0.75:
                run = twin.backlog.take_run(room := rng.choice((1, 2, 7, 100)))
                expected = twin.in_order()
                if run is None:
                    assert not expected
                    continue
                taken = [(run.ordinal, index) for index in pk.indexes(run.mask)]
                assert taken == expected[: len(taken)]
                assert len(taken) <= room
                twin.gone(run)
                out.append(run._replace(attempts=run.attempts + 1))
            elif choice < 0.9 and out:
                run = out.pop(rng.randrange(len(out)))
                mask = run.mask if rng.random() < 0.5 else pk.lowest(run.mask, rng.randrange(1, 5))
                twin.add(run._replace(mask=mask), at_hand=False)
            elif twin.waiting:
                if rng.random() < 0.5:
                    chosen = rng.choice(sorted(twin.waiting))[0]
                    removed = twin.backlog.remove({chosen: rng.getrandbits(40)})
                else:
                    lowest = rng.random() < 0.5
                    oldest = min(
                        twin.waiting, key=lambda at: (lowest * twin.waiting[at].priority, twin.waiting[at].arrival, at)
                    )
                    found = twin.backlog.take_to_remove(1, lowest_priority=lowest)
                    assert found is not None
                    assert (found.ordinal, pk.first_of(found.mask)) == oldest
                    removed = [found]
                for run in removed:
                    twin.gone(run)
            assert twin.backlog.count == len(twin.waiting)
            twin.backlog.check()
        assert sum(run.count for run in twin.backlog.runs()) == len(twin.waiting)
        assert sum(run.count for run in twin.backlog.clear()) == len(twin.waiting)
        assert not twin.backlog.count
        assert twin.backlog.take_run(1) is None


def test_a_block_with_one_key_is_one_entry_and_leaves_as_one_run() -> None:
    for text in ("JMSPriority", "JMSTimestamp", "JMSMessageID descending"):
        twin = Twin(text)
        rng = random.Random(1)
        run = twin.block(rng, 1)._replace(mask=(1 << 40) - 1)
        twin.contents[1] = Rows([{}] * 40, {"JMSTimestamp": 7})
        twin.add(run, at_hand=True)
        (heap,) = twin.backlog.heaps.values()
        assert len(heap) == 1
        taken = twin.backlog.take_run(100)
        assert taken is not None
        assert taken.mask == (1 << 39 if "descending" in text else run.mask)


def test_neighbours_in_the_order_that_are_neighbours_in_the_block_leave_together() -> None:
    twin = Twin("a")
    twin.contents[1] = Rows([{"a": value} for value in (1, 2, 3, 0, 4)])
    twin.add(Run(1, 1, 0b11111, 0, 0, 4), at_hand=True)
    masks = []
    while (run := twin.backlog.take_run(10)) is not None:
        masks.append(run.mask)
    assert masks == [0b01000, 0b10111] or masks == [0b01000, 0b00111, 0b10000]


def test_nothing_is_handed_out_before_all_have_a_key() -> None:
    twin = Twin("a descending")
    for ordinal in range(1, sorted_backlog.KEYED_MAX * 2 + 2):
        twin.contents[ordinal] = Rows([{"a": ordinal}])
        twin.add(Run(ordinal, ordinal, 1, 0, 0, 4), at_hand=False)
    assert twin.backlog.take_run(1) is None
    assert twin.backlog.take_run(1) is None
    assert not twin.backlog.keyed
    run = twin.backlog.take_run(1)
    assert run is not None
    assert run.ordinal == sorted_backlog.KEYED_MAX * 2 + 1


def test_messages_of_a_restart_get_their_keys_page_by_page() -> None:
    twin = Twin("a")
    twin.contents |= {ordinal: Rows([{"a": -ordinal}]) for ordinal in range(1, 1001)}
    twin.backlog.append_alone(range(1, 1001), range(1, 1001), 4)
    assert twin.backlog.count == 1000
    run = twin.backlog.take_run(1)
    assert run == Run(1000, 1000, 1, 0, 0, 4)


def test_what_matches_a_selector_is_sorted_by_itself() -> None:
    twin = Twin("a")
    twin.contents[1] = Rows([{"a": value} for value in (5, 1, 4, 2)])
    twin.add(Run(1, 1, 0b1111, 0, 0, 4), at_hand=True)
    twin.backlog.unsort()
    assert twin.backlog.unfinished
    assert not twin.backlog.has_for(0)
    assert not twin.backlog.sort_some(100, lambda run: [(1 if run.mask & 0b0101 else 0, run.mask)])
    first = twin.backlog.take_run(9, 0)
    assert first is not None
    assert first.mask == 0b0100
    everything = twin.backlog.take_run(1, ANY)
    assert everything is not None
    assert everything.mask == 0b0010
    assert {signature for signature, _ in twin.backlog.by_signature()} == {0, 1}
