"""Runs as columns."""

from __future__ import annotations

from array import array

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raybroker.core.delivery import backlog
from raybroker.core.delivery.backlog import UNSORTED, Backlog
from raybroker.core.delivery.run import PackedRuns, Run


def run(arrival: int, ordinal: int | None = None, mask: int = 1, attempts: int = 0, priority: int = 4) -> Run:
    return Run(arrival, arrival if ordinal is None else ordinal, mask, attempts, 0, priority)


@given(st.lists(st.integers(1, 1 << 40), min_size=1, max_size=9, unique=True).map(sorted), st.booleans())
def test_packed_runs_come_back_as_they_were(numbers: list[int], one_by_one: bool) -> None:
    runs = [run(at, 7 + i if one_by_one else at * 3) for i, at in enumerate(numbers)]
    packed = PackedRuns.pack(runs)
    assert packed is not None
    assert list(packed) == runs
    assert len(packed) == len(runs)
    assert packed.any_of({runs[-1].ordinal: 1, 0: 1})
    assert not packed.any_of({1 << 60: 1})


def test_runs_that_are_more_than_a_fresh_message_are_not_packed() -> None:
    for other in (run(2, mask=2), run(2, mask=3), run(2, attempts=1), run(2, priority=5)):
        assert PackedRuns.pack([run(1), other]) is None


STEPS = st.lists(
    st.tuples(
        st.sampled_from(("append", "append", "append", "take", "give back", "remove", "discard", "unsort", "clear")),
        st.integers(1, 9),
        st.integers(0, 2),
    ),
    max_size=60,
)


def _history(steps: list[tuple[str, int, int]]) -> list[object]:
    """What a backlog answers, step by step."""
    log, found, taken, arrival = Backlog(), list[object](), list[Run](), 0
    for what, number, level in steps:
        if what == "append":
            for _ in range(number):
                arrival += 1
                mask = 1 if number % 4 else (1 << number) - 1
                log.append(Run(arrival, arrival * 2, mask, 0, 0, 4 + level), UNSORTED if level == 2 else 1)
        elif what == "take" and log:
            for _ in range(number):
                run = log.take_run(level + 1) if log else None
                found.append(run)
                taken += [run] if run is not None else []
        elif what == "give back" and taken:
            item = taken.pop(number % len(taken))
            log.give_back(item._replace(attempts=level), 1)
        elif what == "remove":
            found.append(log.remove({(arrival - number * 2) * 2: 1, (arrival - number) * 2: 3, number * 2: 1}))
        elif what == "discard":
            found.append(log.take_to_remove(number, lowest_priority=level == 1))
        elif what == "unsort" and level == 0:
            log.unsort()
            found.append(log.sort_some(number, lambda run: [(1, run.mask)]))
        elif what == "clear" and number == 9:
            found.append(log.clear())
        found.append((log.count, log.first(), log.first(0), list(log.runs()), sorted(log.tried())))
    return found


@given(STEPS)
def test_a_packed_backlog_and_a_plain_one_are_indistinguishable(steps: list[tuple[str, int, int]]) -> None:
    """Pages of two runs against none at all."""
    plain = _history(steps)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(backlog, "PAGE_RUNS", 2)
        patch.setattr(backlog, "TAIL_RUNS", 4)
        assert _history(steps) == plain


def test_a_long_bucket_is_packed_and_a_recovered_one_too() -> None:
    log = Backlog()
    for number in range(1, 3_001):
        log.append(run(number))
    log.append_alone(range(3_001, 5_001), range(3_001, 5_001), 4)
    log.append(run(5_001))
    (bucket,) = log.buckets.values()
    assert sum(isinstance(page, PackedRuns) for page in bucket.pages) > 12
    assert log.count == 5_001
    assert [log.take_run(1) for _ in range(5_001)] == [run(number) for number in range(1, 5_002)]
    assert not log.buckets
    log.append_alone(range(6_000, 6_001), range(6_000, 6_001), 4)
    assert log.take_run(5) == run(6_000)


def test_short_pieces_of_a_recovered_bucket_are_packed_together() -> None:
    log = Backlog()
    for first in range(1, 6_000, 3):
        log.append_alone(range(first, first + 2), array("Q", (first, first + 1)), 4)
    log.append_alone(range(6_001, 7_001), range(6_001, 7_001), 4)
    (bucket,) = log.buckets.values()
    assert len(bucket.pages) < 24
    assert all(isinstance(page, PackedRuns) for page in bucket.pages)
    expected = [number for number in range(1, 6_000) if number % 3] + list(range(6_001, 7_001))
    assert [taken.ordinal for taken in log.runs()] == expected
    assert [log.take_run(1) for _ in range(log.count)] == [run(number) for number in expected]
