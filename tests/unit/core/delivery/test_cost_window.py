"""The cost window against a plain list of what is in the buffer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raybroker.core.blocks.block_entry import BlockEntry
from raybroker.core.delivery.byte_window import COST_MAX, ONE_GOES_PART, PIECES, CostWindow, cost_of

MOST = 100


class Headers:
    """Messages with these costs."""

    def __init__(self, costs: list[int]) -> None:
        self._costs = costs

    def properties(self, index: int) -> Mapping[str, Any]:
        return {"cost": self._costs[index]}

    def column(self, name: str, rows: Sequence[int]) -> list[Any]:
        return [self._costs[row] for row in rows]

    def header(self, index: int, name: str) -> Any:
        return None

    def may_have(self, trace: bytes) -> bool:
        return True

    def dedup_ids(self) -> None:
        return None


@pytest.mark.parametrize(
    ("said", "cost"),
    [(None, 1), (7, 7), (0, 0), (0.2, 1), (-1, 1), ("9", 1), (True, 1), (float("nan"), 1), (float("inf"), COST_MAX)],
)
def test_a_cost_is_a_number_of_zero_or_more(said: object, cost: int) -> None:
    assert cost_of(said) == cost


@given(
    costs=st.lists(st.integers(0, 150), min_size=1, max_size=30),
    takes=st.lists(st.integers(0, 5), min_size=60, max_size=60),
)
def test_what_is_out_never_costs_more_and_everything_goes(costs: list[int], takes: list[int]) -> None:
    headers = Headers(costs)
    window, block = CostWindow(MOST, lambda ordinal: headers), BlockEntry(len(costs), 10, persistent=True)
    left, tag, out = (1 << len(costs)) - 1, 1, list[tuple[int, int]]()
    for take in [*takes, *[1] * 60]:
        while left and not window.full:
            mask = window.fitting(block, left, 5)
            if not mask:
                break
            going = [index for index in range(len(costs)) if mask >> index & 1]
            assert going[0] == (left & -left).bit_length() - 1, "the first go first"
            piece = sum(costs[index] for index in going)
            assert piece <= MOST // PIECES or len(going) == 1 or not costs[going[-1]]
            before = sum(cost for _, cost in out)
            assert before + piece <= MOST or (len(going) == 1 and before * ONE_GOES_PART <= MOST)
            window.sent(tag, block, mask, 5)
            out += [(tag + at, costs[index]) for at, index in enumerate(going)]
            tag += len(going)
            left &= ~mask
        assert window.nbytes == sum(cost for _, cost in out)
        if take and out:
            window.taken(out[min(take, len(out)) - 1][0])
            out = out[take:]
    assert not left, "some wait for ever"


def test_headers_that_cannot_be_read_cost_one_each() -> None:
    window, block = CostWindow(MOST, lambda ordinal: None), BlockEntry(20, 10, persistent=True)
    assert window.fitting(block, (1 << 20) - 1, 5).bit_count() == MOST // PIECES
