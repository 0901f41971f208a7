"""The timetable against a plain list."""

from __future__ import annotations

from itertools import count, product

from hypothesis import given
from hypothesis import strategies as st

from raybroker.core.delivery.delayed import Delayed
from raybroker.core.delivery.run import Run


def run(ordinal: int, mask: int = 1) -> Run:
    return Run(ordinal, ordinal, mask, 0, 0, 4)


@given(
    st.lists(st.tuples(st.integers(0, 20), st.integers(1, 7)), max_size=20), st.lists(st.integers(0, 25), max_size=6)
)
def test_what_is_due_comes_in_order_of_time_then_of_arrival(adds: list[tuple[int, int]], moments: list[int]) -> None:
    table = Delayed()
    twin: list[tuple[int, Run]] = []
    for ordinal, (due_ms, mask) in enumerate(adds, start=1):
        table.add(due_ms, run(ordinal, mask))
        twin.append((due_ms, run(ordinal, mask)))
    twin.sort(key=lambda row: row[0])
    for now_ms in sorted(moments):
        expected = [one for due_ms, one in twin if due_ms <= now_ms]
        twin = [row for row in twin if row[0] > now_ms]
        assert list(table.due(now_ms)) == expected
        assert list(table.runs()) == twin
        assert table.count == sum(one.mask.bit_count() for _, one in twin)
        assert table.next_ms == (twin[0][0] if twin else None)
        assert bool(table) == bool(twin)


def test_messages_are_taken_out_by_block_and_pick() -> None:
    table = Delayed()
    for ordinal in (3, 1, 2):
        table.add(10 * ordinal, run(ordinal, 0b111))
    assert table.remove({9: 1}) == []
    removed = table.remove({1: 0b111, 3: 0b010, 9: 1})
    assert sorted(removed) == [run(1, 0b111), run(3, 0b010)]
    assert list(table.runs()) == [(20, run(2, 0b111)), (30, run(3, 0b101))]
    assert table.count == 5
    assert table.next_ms == 20


@given(
    st.lists(st.tuples(st.integers(0, 20), st.booleans()), max_size=20),
    st.integers(-30, 30),
)
def test_only_what_is_not_born_is_put_off_when_the_wall_clock_is_set(adds: list[tuple[int, bool]], by_ms: int) -> None:
    table, twin = Delayed(), list[tuple[int, int, Run]]()
    for ordinal, (due_ms, failed) in enumerate(adds, start=1):
        one = run(ordinal)._replace(attempts=int(failed), failures=int(failed))
        table.add(due_ms, one)
        twin.append((due_ms if failed else due_ms + by_ms, ordinal, one))
    table.put_off_births(by_ms)
    assert list(table.runs()) == [(due_ms, one) for due_ms, _, one in sorted(twin)]
    assert table.next_ms == min((due_ms for due_ms, _, _ in twin), default=None)


def test_clearing_gives_everything_in_order() -> None:
    table = Delayed()
    table.add(9, run(1))
    table.add(3, run(2))
    assert table.clear() == [run(2), run(1)]
    assert not table
    assert table.count == 0


class Twin:
    """Messages one by one, as (time, number, run)."""

    def __init__(self) -> None:
        self.table = Delayed()
        self.rows: list[tuple[int, int, Run]] = []
        self.numbers = count(1)

    def add(self, due_ms: int, mask: int, priority: int) -> None:
        number = next(self.numbers)
        added = Run(number, number, mask, 0, 0, priority)
        self.table.add(due_ms, added)
        self.rows += [(due_ms, number, added._replace(mask=1 << bit)) for bit in range(3) if mask >> bit & 1]

    def take(self, room: int, by_priority: bool) -> None:
        found = self.table.oldest(by_priority=by_priority)
        if found is None:
            assert not self.rows
            return
        taken = self.table.take_oldest(room)
        rows = sorted(self.rows, key=lambda row: (row[2].priority if by_priority else 0, row[1], row[2].mask))
        first = [row for row in rows if row[1] == rows[0][1]]
        assert found.mask == sum(row[2].mask for row in first)
        assert taken.mask == sum(row[2].mask for row in first[:room])
        self.rows = [row for row in self.rows if row not in first[:room]]

    def remove(self, number: int, mask: int) -> None:
        gone = [row for row in self.rows if row[1] == number and row[2].mask & mask]
        assert sum(one.mask.bit_count() for one in self.table.remove({number: mask})) == len(gone)
        self.rows = [row for row in self.rows if row not in gone]

    def due(self, now_ms: int) -> None:
        assert sum(one.mask.bit_count() for one in self.table.due(now_ms)) == sum(r[0] <= now_ms for r in self.rows)
        self.rows = [row for row in self.rows if row[0] > now_ms]


@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("add"), st.integers(0, 9), st.integers(1, 7), st.integers(0, 2)),
            st.tuples(st.just("take"), st.integers(1, 3), st.booleans()),
            st.tuples(st.just("remove"), st.integers(1, 9), st.integers(1, 7)),
            st.tuples(st.just("due"), st.integers(0, 9)),
        ),
        max_size=40,
    )
)
def test_what_came_first_is_found_whatever_was_taken_out_before(steps: list[tuple[str, int, int, int]]) -> None:
    twin = Twin()
    for step, *args in steps:
        getattr(twin, step)(*args)
        left = [
            (due_ms, one.ordinal, bit) for due_ms, one in twin.table.runs() for bit in range(3) if one.mask >> bit & 1
        ]
        assert sorted(left) == sorted((row[0], row[1], row[2].mask.bit_length() - 1) for row in twin.rows)
        assert (twin.table.count, bool(twin.table)) == (len(twin.rows), bool(twin.rows))
        assert twin.table.next_ms == min((row[0] for row in twin.rows), default=None)
        here = {(row[1], row[2].mask): (row[0], row[2].mask) for row in twin.rows}
        for place in product(range(1, 1 + len(steps)), (1, 2, 4)):
            found = twin.table.find(*place)
            assert (found and (found[0], found[1].mask & place[1])) == here.get(place)


@given(st.permutations([(due_ms, 1 << bit) for bit, due_ms in enumerate([3, 9, 3, 7, 5])]), st.integers(0, 10))
def test_a_message_is_found_by_its_place_among_several_runs_of_its_block(
    runs: list[tuple[int, int]], now_ms: int
) -> None:
    table = Delayed()
    for due_ms, mask in runs:
        table.add(due_ms, run(1)._replace(mask=mask))
    assert [table.find(1, mask) for _, mask in runs] == [(due, run(1)._replace(mask=mask)) for due, mask in runs]
    assert len(list(table.due(now_ms))) + table.count == len(runs)
    assert [table.find(1, mask) is not None for _, mask in runs] == [due_ms > now_ms for due_ms, _ in runs]
    table.clear()
    assert [table.find(1, mask) for _, mask in runs] == [None] * len(runs)


def test_places_of_what_is_gone_do_not_pile_up_until_their_time() -> None:
    table = Delayed()
    for ordinal in range(1000):
        table.add(1_000_000 + ordinal, run(ordinal + 1))
        if ordinal >= 10:
            assert table.oldest(by_priority=False) == run(ordinal - 9)
            table.take_oldest(1)
    assert table.count == 10
    assert len(table._heap) <= 20
