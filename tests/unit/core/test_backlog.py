"""The backlog against a twin that keeps a sorted list of single messages."""

from __future__ import annotations

from bisect import insort

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raybroker.core.backlog import Backlog, Run
from raybroker.core.notes import Part

Single = tuple[int, int, int]


def singles(run: Run, attempts: int | None = None) -> list[Single]:
    count = run.attempts if attempts is None else attempts
    return [(run.ordinal, index, count) for index in range(run.start, run.end)]


def contents(backlog: Backlog) -> list[Single]:
    return [row for run in (*reversed(backlog.returned), *backlog.fresh) for row in singles(run)]


@given(
    st.lists(
        st.tuples(st.sampled_from(["append", "take", "take", "back", "back_some", "clear"]), st.integers(1, 9)),
        max_size=80,
    ),
    st.randoms(use_true_random=False),
)
def test_the_backlog_is_what_its_twin_is(steps: list[tuple[str, int]], rng: object) -> None:
    backlog = Backlog()
    twin: list[Single] = []
    out: list[Run] = []
    ordinal = 0
    for verb, size in steps:
        if verb == "append":
            ordinal += 1
            backlog.append(Run(ordinal, 0, size, 0))
            twin += singles(Run(ordinal, 0, size, 0))
        elif verb == "take" and twin:
            run = backlog.take(size)
            assert singles(run) == twin[: run.end - run.start]
            assert run.end - run.start <= size
            del twin[: run.end - run.start]
            out.append(run._replace(attempts=run.attempts + 1))
        elif verb in ("back", "back_some") and out:
            count = len(out) if verb == "back" else min(size, len(out))
            rng.shuffle(out)  # type: ignore[attr-defined]
            for run in out[:count]:
                backlog.give_back(run)
                for row in singles(run):
                    insort(twin, row)
            del out[:count]
        elif verb == "clear" and size == 1:
            cleared = [(part.ordinal, index) for part in backlog.clear() for index in range(part.start, part.end)]
            assert cleared == [row[:2] for row in twin]
            twin.clear()
        assert contents(backlog) == twin
        assert backlog.count == len(twin)
        assert bool(backlog) == bool(twin)


def test_runs_given_back_from_last_to_first_are_joined() -> None:
    backlog = Backlog()
    for start in (6, 4, 0):
        backlog.give_back(Run(7, start, {6: 9, 4: 6, 0: 4}[start], 1))
    assert backlog.returned == [Run(7, 0, 9, 1)]


def test_runs_with_different_attempts_are_not_joined() -> None:
    backlog = Backlog()
    backlog.give_back(Run(7, 4, 6, 1))
    backlog.give_back(Run(7, 0, 4, 2))
    assert backlog.take(100) == Run(7, 0, 4, 2)
    assert backlog.take(100) == Run(7, 4, 6, 1)


def test_what_came_back_leaves_before_what_is_fresh() -> None:
    backlog = Backlog()
    backlog.append(Run(1, 0, 3, 0))
    backlog.append(Run(2, 0, 3, 0))
    taken = backlog.take(2)
    backlog.give_back(taken._replace(attempts=1))
    assert [backlog.take(9) for _ in range(3)] == [Run(1, 0, 2, 1), Run(1, 2, 3, 0), Run(2, 0, 3, 0)]


def test_clearing_gives_everything_in_order() -> None:
    backlog = Backlog()
    backlog.append(Run(3, 0, 4, 0))
    backlog.give_back(Run(1, 2, 3, 1))
    assert backlog.clear() == [Part(1, 2, 3), Part(3, 0, 4)]
    assert not backlog


def test_taking_nothing_is_a_bug() -> None:
    backlog = Backlog()
    backlog.append(Run(1, 0, 1, 0))
    with pytest.raises(AssertionError):
        backlog.take(0)
