"""Room for the large answers of a gateway: who waits, who goes on, and who is told that there is none."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from functools import wraps
from typing import Any

import pytest

from raybroker.model.errors import ResourceAllocationError
from raybroker.services.gateways.answers import COPIES, SMALL_BYTES, Answers

PART = 1 << 20
"""One of ten that there is room for."""
MOST = 10 * PART * COPIES


def on_a_loop(test: Callable[[], Coroutine[Any, Any, None]]) -> Callable[[], None]:
    return wraps(test)(lambda: asyncio.run(test()))


async def waits(answers: Answers, user: str, size: int) -> asyncio.Task[int]:
    task = asyncio.get_running_loop().create_task(answers.take_room(user, size))
    await asyncio.sleep(0)
    return task


@on_a_loop
async def test_small_answers_need_no_room() -> None:
    answers = Answers(most=MOST)
    await answers.take_room("ann", 100 * PART)
    assert await answers.take_room("bob", SMALL_BYTES) == 0
    async with answers.room("bob", SMALL_BYTES):
        assert answers.held == MOST


@on_a_loop
async def test_one_that_is_larger_than_all_room_is_alone() -> None:
    answers = Answers(most=MOST)
    taken = await answers.take_room("ann", 100 * PART)
    other = await waits(answers, "bob", PART)
    assert not other.done()
    answers.give_back("ann", taken)
    assert await other == PART * COPIES
    answers.give_back("bob", PART * COPIES)
    assert answers.held == 0


@on_a_loop
async def test_they_go_on_in_the_order_in_which_they_came() -> None:
    answers = Answers(most=MOST)
    taken = [await answers.take_room(user, 4 * PART) for user in ("ann", "bob")]
    large, small = await waits(answers, "cy", 9 * PART), await waits(answers, "di", PART)
    answers.give_back("ann", taken[0])
    await asyncio.sleep(0)
    assert (large.done(), small.done()) == (False, False)
    answers.give_back("bob", taken[1])
    assert await large == 9 * PART * COPIES
    assert await small == PART * COPIES


@on_a_loop
async def test_one_user_keeps_no_other_waiting() -> None:
    answers = Answers(most=MOST)
    first, second = await answers.take_room("ann", 3 * PART), await answers.take_room("ann", 2 * PART)
    third = await waits(answers, "ann", PART)
    assert await answers.take_room("bob", 3 * PART) == 3 * PART * COPIES
    assert not third.done()
    answers.give_back("ann", second)
    assert await third == PART * COPIES
    answers.give_back("ann", first)


@on_a_loop
async def test_who_has_no_room_in_time_is_told_and_leaves_nothing_behind() -> None:
    answers = Answers(most=MOST, timeout_s=0.01)
    taken = await answers.take_room("ann", 100 * PART)
    with pytest.raises(ResourceAllocationError, match=r"raybroker\.service\.answers_bytes_max"):
        await answers.take_room("bob", PART)
    answers.give_back("ann", taken)
    assert answers.held == 0


@on_a_loop
async def test_who_does_not_wait_any_more_gives_his_room_to_the_next() -> None:
    answers = Answers(most=MOST, timeout_s=None)
    taken = await answers.take_room("ann", 100 * PART)
    gone, other = await waits(answers, "bob", 100 * PART), await waits(answers, "cy", 100 * PART)
    gone.cancel()
    answers.give_back("ann", taken)
    assert await other == MOST
    with pytest.raises(asyncio.CancelledError):
        await gone
    assert answers.held == MOST
