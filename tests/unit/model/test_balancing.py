"""Choosing a member of a distributed destination (W-110 … W-114)."""

from __future__ import annotations

import itertools
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raybroker.model.balancing import (
    Candidate,
    Chooser,
    ProducerBalancer,
    consumer_level,
    place_consumer,
    send_level,
)


def chooser(policy: str = "Round-Robin", numbers: tuple[int, ...] = (0,), position: int = 0) -> Chooser:
    source = itertools.cycle(numbers)
    return Chooser(policy, lambda: next(source), position)


def members(*rows: str) -> list[Candidate]:
    """Names with + for consumers, ! for no store; the first is local."""
    return [
        Candidate(row.rstrip("+!"), local=index == 0, store="!" not in row, consumers="+" in row)
        for index, row in enumerate(rows)
    ]


def balancer(*rows: str, **options: bool) -> ProducerBalancer:
    found = ProducerBalancer(chooser(), **options)
    found.update(members(*rows))
    return found


EIGHT = [
    Candidate("m", local=local, store=store, consumers=consumers)
    for store in (True, False)
    for consumers in (1, 0)
    for local in (True, False)
]


def test_persistent_messages_have_eight_levels_of_preference() -> None:  # W-114
    assert [send_level(member, persistent=True, affinity=True) for member in EIGHT] == [0, 1, 2, 3, 4, 5, 6, 7]


def test_the_store_does_not_matter_to_messages_that_are_not_kept() -> None:  # W-114
    assert [send_level(member, persistent=False, affinity=True) for member in EIGHT] == [0, 1, 2, 3, 0, 1, 2, 3]


def test_without_affinity_the_place_does_not_matter() -> None:  # W-112
    assert [send_level(member, persistent=True, affinity=False) for member in EIGHT] == [0, 0, 2, 2, 4, 4, 6, 6]


def test_consumers_go_where_there_is_none_and_with_affinity_stay_local_before_that() -> None:  # W-113
    four = [Candidate("m", local=local, consumers=count) for local in (True, False) for count in (0, 2)]
    assert [consumer_level(member, affinity=True) for member in four] == [0, 1, 2, 3]
    assert [consumer_level(member, affinity=False) for member in four] == [0, 1, 0, 1]


def test_round_robin_gives_each_of_the_best_its_turn() -> None:  # W-111
    found = balancer("b1+", "b2+", "b3", "b4+", affinity=False)
    assert [found.choose(persistent=True) for _ in range(6)] == ["b1", "b2", "b4"] * 2


def test_positions_are_independent() -> None:  # W-111
    one, other = balancer("b1", "b2", affinity=False), balancer("b1", "b2", affinity=False)
    assert [one.choose(persistent=True), one.choose(persistent=True), other.choose(persistent=True)] == [
        "b1",
        "b2",
        "b1",
    ]


def test_producers_with_one_chooser_share_its_position() -> None:  # W-111
    shared = chooser()
    pair = [ProducerBalancer(shared, affinity=False) for _ in range(2)]
    for one in pair:
        one.update(members("b1", "b2", "b3"))
    assert [pair[n % 2].choose(persistent=True) for n in range(6)] == ["b1", "b2", "b3"] * 2


def test_random_takes_the_numbers_it_is_given() -> None:  # W-111
    found = ProducerBalancer(chooser("Random", (5, 3, 1)), affinity=False)
    found.update(members("b1+", "b2", "b3+"))
    assert [found.choose(persistent=True) for _ in range(3)] == ["b3", "b3", "b3"]
    found.update(members("b1+", "b2+", "b3+"))
    assert [found.choose(persistent=True) for _ in range(3)] == ["b3", "b1", "b2"]


def test_an_unknown_policy_is_refused() -> None:
    with pytest.raises(ValueError, match="Round-Robin"):
        chooser("Least-Loaded")


def test_without_load_balancing_the_first_choice_is_kept_while_its_member_is_there() -> None:  # W-110
    found = balancer("b1", "b2", "b3", load_balancing=False, affinity=False)
    assert {found.choose(persistent=True) for _ in range(5)} == {"b1"}
    found.update(members("b0", "b1", "b2+"))
    assert found.choose(persistent=True) == "b1", "another one that is better now changes nothing"
    found.update(members("b2", "b3"))
    after = found.choose(persistent=True)
    found.update(members("b1", "b2", "b3"))
    assert after in ("b2", "b3")
    assert found.choose(persistent=False) == after


def test_no_member_means_no_choice() -> None:
    assert balancer().choose(persistent=True) is None


def test_a_consumer_is_placed_by_level_and_then_by_turn() -> None:  # W-113
    turn = chooser()
    assert place_consumer(members("b1+", "b2", "b3"), turn, affinity=True) == "b1"
    assert [place_consumer(members("b1+", "b2", "b3"), turn, affinity=False) for _ in range(3)] == ["b2", "b3", "b2"]


@given(
    st.lists(st.tuples(st.booleans(), st.booleans(), st.integers(0, 2)), min_size=1, max_size=6),
    st.booleans(),
    st.booleans(),
    st.integers(1, 40),
    st.integers(0, 99),
)
def test_round_robin_is_fair_among_the_best_and_takes_no_other(
    rows: list[tuple[bool, bool, int]], persistent: bool, affinity: bool, sends: int, start: int
) -> None:
    there = [Candidate(f"b{n}", local, store, consumers) for n, (local, store, consumers) in enumerate(rows)]
    found = ProducerBalancer(chooser(position=start), affinity=affinity)
    found.update(there)
    counts = Counter(found.choose(persistent=persistent) for _ in range(sends))
    levels = {m.broker: send_level(m, persistent=persistent, affinity=affinity) for m in there}
    best = [broker for broker, level in levels.items() if level == min(levels.values())]
    assert set(counts) <= set(best)
    assert max(counts.values()) - min(counts.get(broker, 0) for broker in best) <= 1
