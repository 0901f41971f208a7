"""The backlog against a twin that keeps a sorted list of single messages."""

from __future__ import annotations

from bisect import insort
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from raybroker.core.blocks import message_mask as pk
from raybroker.core.delivery.backlog import ANY, UNSORTED, Backlog
from raybroker.core.delivery.run import Run

Single = tuple[int, int, int, int]
"""Minus the priority, place, index, attempts: in the order of delivery."""


def run(place: int, mask: int, attempts: int = 0, priority: int = 4, failures: int = 0) -> Run:
    return Run(place, place, mask, attempts, failures, priority)


def singles(one: Run) -> list[Single]:
    return [(-one.priority, one.arrival, index, one.attempts) for index in pk.indexes(one.mask)]


def contents(backlog: Backlog) -> list[Single]:
    return [row for one in backlog.runs() for row in singles(one)]


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["append", "append", "take", "take", "back", "back_some", "clear", "remove", "oldest"]),
            st.integers(1, 9),
        ),
        max_size=80,
    ),
    st.integers(0, 1 << 30),
    st.booleans(),
)
def test_the_backlog_is_what_its_twin_is(steps: list[tuple[str, int]], seed: int, priorities: bool) -> None:
    rng = Random(seed)
    backlog = Backlog()
    twin: list[Single] = []
    out: list[Run] = []
    place = 0
    for verb, size in steps:
        if verb == "append":
            place += 1
            new = run(place, rng.randrange(1, 1 << size), priority=rng.randrange(3) if priorities else 4)
            backlog.append(new)
            for row in singles(new):
                insort(twin, row)
        elif verb == "take":
            taken = backlog.take_run(size)
            assert (taken is None) == (not twin)
            if taken is not None:
                assert twin[: taken.count] == singles(taken)
                assert taken.count <= size
                del twin[: taken.count]
                out.append(taken._replace(attempts=taken.attempts + 1))
        elif verb == "oldest":
            lowest = rng.random() < 0.5
            taken = backlog.take_to_remove(size, lowest_priority=lowest)
            if taken is not None:
                level = max(row[0] for row in twin)
                pool = [row for row in twin if row[0] == level] if lowest else twin
                assert singles(taken)[0] == min(pool, key=lambda row: row[1:])
                twin = [row for row in twin if row not in singles(taken)]
        elif verb in ("back", "back_some") and out:
            count = len(out) if verb == "back" else min(size, len(out))
            rng.shuffle(out)
            for one in out[:count]:
                backlog.give_back(one)
                for row in singles(one):
                    insort(twin, row)
            del out[:count]
        elif verb == "clear" and size == 1:
            assert [row for one in backlog.clear() for row in singles(one)] == twin
            twin.clear()
        elif verb == "remove" and twin:
            chosen = {rng.randrange(1, place + 1): rng.randrange(1, 512) for _ in range(size)}
            removed = sorted(row for one in backlog.remove(chosen) for row in singles(one))
            assert removed == [row for row in twin if chosen.get(row[1], 0) >> row[2] & 1]
            twin = [row for row in twin if row not in removed]
        assert contents(backlog) == twin
        assert backlog.count == len(twin)
        assert bool(backlog) == bool(twin)


def test_runs_given_back_from_last_to_first_are_joined() -> None:
    backlog = Backlog()
    for mask in (0b111000000, 0b000110000, 0b000001111):
        backlog.give_back(run(7, mask, attempts=1))
    assert backlog.take_run(100) == run(7, 0b111111111, attempts=1)


def test_runs_with_different_attempts_or_failures_are_not_joined() -> None:
    backlog = Backlog()
    backlog.give_back(run(7, 0b1100, attempts=2))
    backlog.give_back(run(7, 0b0010, attempts=2, failures=1))
    backlog.give_back(run(7, 0b0001, attempts=1))
    assert [backlog.take_run(100) for _ in range(3)] == [
        run(7, 0b0001, attempts=1),
        run(7, 0b0010, attempts=2, failures=1),
        run(7, 0b1100, attempts=2),
    ]


def test_what_came_back_leaves_before_what_is_fresh() -> None:
    backlog = Backlog()
    backlog.append(run(1, 0b111))
    backlog.append(run(2, 0b111))
    taken = backlog.take_run(2)
    assert taken == run(1, 0b011)
    backlog.give_back(taken._replace(attempts=1))
    assert [backlog.take_run(9) for _ in range(4)] == [run(1, 0b011, attempts=1), run(1, 0b100), run(2, 0b111), None]


def test_the_highest_priority_leaves_first_and_order_holds_within_it() -> None:  # B-21
    backlog = Backlog()
    for place, priority in enumerate((4, 9, 0, 9, 4), start=1):
        backlog.append(run(place, 1, priority=priority))
    assert [one.arrival for one in iter(lambda: backlog.take_run(1), None) if one] == [2, 4, 1, 5, 3]


def test_clearing_gives_everything_in_order() -> None:
    backlog = Backlog()
    backlog.append(run(3, 0b1111))
    backlog.give_back(run(1, 0b100, attempts=1))
    backlog.append(run(4, 1, priority=5))
    assert [one.arrival for one in backlog.clear()] == [4, 1, 3]
    assert not backlog
    assert not backlog.buckets


# ---- selectors -----------------------------------------------------------------------------------------------------


def test_a_consumer_with_a_selector_gets_what_is_on_its_buckets() -> None:  # B-22
    backlog = Backlog()
    for place, signature in enumerate((0b00, 0b01, 0b10, 0b11), start=1):
        backlog.append(run(place, 1), signature)
    taken = backlog.take_run(9, 1)
    assert taken is not None
    assert taken.arrival == 3
    assert [one.arrival for one in iter(lambda: backlog.take_run(9, 0), None) if one] == [2, 4]
    assert backlog.take_run(9, 0) is None
    assert backlog.count == 1, "what matches nobody stays"
    assert backlog.take_run(9, ANY) == run(1, 1)


def test_an_empty_bucket_is_taken_away() -> None:
    backlog = Backlog()
    for place in range(1, 50):
        backlog.append(run(place, 1, priority=place % 10), place % 7)
        backlog.take_run(1)
        assert not backlog.buckets


@given(st.lists(st.tuples(st.integers(1, 255), st.integers(0, 3), st.booleans()), max_size=25), st.integers(1, 60))
def test_sorting_compares_everything_and_keeps_blocks_in_order(rows: list[tuple[int, int, bool]], most: int) -> None:
    backlog = Backlog()
    for place, (mask, level, returned) in enumerate(rows, start=1):
        if returned:
            backlog.give_back(run(place, mask, attempts=1, priority=level), level % 2)
        else:
            backlog.append(run(place, mask, priority=level), level % 2)
    before, seen = contents(backlog), []

    def classify(one: Run) -> list[tuple[int, int]]:
        """Even messages match selector 0."""
        seen.append(one)
        even = one.mask & 0b01010101
        return [(signature, mask) for signature, mask in ((1, even), (0, one.mask & ~even)) if mask]

    backlog.unsort()
    assert contents(backlog) == before
    assert all(signature == UNSORTED for _, signature in backlog.buckets)
    assert backlog.take_run(1, 0) is None, "nothing that was not compared is for a selector"
    rounds = 0
    while backlog.sort_some(most, classify):
        assert sorted(contents(backlog)) == before
        rounds += 1
    assert rounds <= len(before) // most
    assert sorted(contents(backlog)) == before
    assert [row[:2] for row in contents(backlog)] == [row[:2] for row in before], "blocks stay in order"
    assert sum(one.count for one in seen) == len(before), "everything is compared once"
    assert backlog.count == len(before)
    mine = [row for one in iter(lambda: backlog.take_run(3, 0), None) if one for row in singles(one)]
    assert mine == [row for row in before if row[2] % 2 == 0]


def test_what_comes_while_a_backlog_is_sorted_stays_behind_it() -> None:
    backlog = Backlog()
    backlog.append(run(1, 0b11))
    backlog.unsort()
    assert backlog.has_unsorted(4)
    assert not backlog.has_unsorted(5)
    backlog.append(run(2, 1), UNSORTED)
    assert backlog.sort_some(1, lambda one: [(1, one.mask)])
    assert backlog.take_run(9, 0) == run(1, 0b11), "a run is compared as a whole, however little one step may do"
    assert backlog.take_run(9, 0) is None
    assert not backlog.sort_some(9, lambda one: [(1, one.mask)])
    assert backlog.take_run(9, 0) == run(2, 1)


# ---- back to the old place -----------------------------------------------------------------------------------------


def test_a_message_that_comes_back_late_goes_between_its_neighbours() -> None:  # B-21
    backlog = Backlog()
    backlog.append(run(1, 0b111))
    first, second, third = (one._replace(attempts=1) for _ in range(3) if (one := backlog.take_run(1)))
    for one in (third, first, second):
        backlog.give_back(one)
    assert backlog.take_run(9) == run(1, 0b111, attempts=1)


def test_runs_that_overlap_are_cut() -> None:
    backlog = Backlog()
    backlog.give_back(run(1, 0b100101, attempts=1))
    backlog.give_back(run(1, 0b001010, attempts=2))
    assert [one.mask for one in iter(lambda: backlog.take_run(9), None) if one] == [0b1, 0b10, 0b100, 0b1000, 0b100000]


def test_a_part_of_a_block_that_is_taken_leaves_the_rest_in_order() -> None:
    backlog = Backlog()
    backlog.append(run(1, 0b100001), 1)
    backlog.append(run(1, 0b000100), 0)
    backlog.unsort()
    assert [one.mask for one in iter(lambda: backlog.take_run(1), None) if one] == [0b1, 0b100, 0b100000]


@given(st.permutations(range(8)), st.lists(st.integers(1, 3), min_size=8, max_size=8))
def test_messages_of_a_block_come_back_in_any_order(order: list[int], attempts: list[int]) -> None:
    backlog = Backlog()
    backlog.append(run(9, 1))
    for index in order:
        backlog.give_back(run(5, 1 << index, attempts=attempts[index]))
    found = [row for one in iter(lambda: backlog.take_run(3), None) if one for row in singles(one)]
    assert found == [(-4, 5, index, attempts[index]) for index in range(8)] + [(-4, 9, 0, 0)]
