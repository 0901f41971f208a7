"""A broker that is lost for long: another one gets its copy once, not too early, and not without a node for it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from raybroker.broker.copies.own_copy import OwnCopy
from raybroker.broker.copies.placing import LOST_LOOK_S
from tests.simulation_control.replaced_copies import KEEPING, SPARE, ReplacingWorld

AFTER_S = 120
SOON_S = 2 * LOST_LOOK_S + 5
"""Within which a broker that is lost for long enough is replaced: it is looked for now and then."""
Story = Callable[[ReplacingWorld, Callable[[], int]], Coroutine[Any, Any, None]]


async def replaced_once(world: ReplacingWorld, said: Callable[[], int]) -> None:
    lost = await world.follower()
    left = [name for name in KEEPING if name != lost]
    world.lose(lost)
    await asyncio.sleep(AFTER_S - 5)
    assert world.keeping() == list(KEEPING), "not before the time"
    assert said() == 0
    await asyncio.sleep(5 + SOON_S)
    assert world.keeping() == world.voting() == [*left, SPARE]
    assert said() == 1
    world.begin(lost)
    await asyncio.sleep(2 * AFTER_S)
    assert world.keeping() == world.voting() == [*left, SPARE], "what comes back later is not wanted any more"
    assert lost not in world.processes, "and its copy is removed"
    assert said() == 1


async def back_in_time(world: ReplacingWorld, said: Callable[[], int]) -> None:
    lost = await world.follower()
    for _ in range(3):
        world.lose(lost)
        await asyncio.sleep(AFTER_S - 10)
        world.begin(lost)
        await asyncio.sleep(10)
    assert world.keeping() == world.voting() == list(KEEPING), "each silence counts from its own beginning"
    assert said() == 0


async def nowhere(world: ReplacingWorld, said: Callable[[], int]) -> None:
    lost = await world.follower()
    world.lose(lost)
    await asyncio.sleep(AFTER_S + 3 * SOON_S)
    assert world.keeping() == world.voting() == list(KEEPING), "a copy goes for another one alone"
    assert said() == 0
    world.begin(SPARE)
    await asyncio.sleep(SOON_S)
    assert SPARE in world.voting()
    assert lost not in world.voting()
    assert said() == 1


async def never(world: ReplacingWorld, said: Callable[[], int]) -> None:
    world.after_s = 0
    world.lose(await world.follower())
    await asyncio.sleep(AFTER_S + SOON_S)
    assert world.keeping() == list(KEEPING)
    assert said() == 0


def look(story: Story, caplog: pytest.LogCaptureFixture, seed: int = 3) -> None:
    """Run a story; what it is given says how often the log has told of a replacement."""
    caplog.set_level(logging.INFO, "raybroker.cluster")
    caplog.clear()

    def said() -> int:
        return sum("[B2211]" in record.getMessage() for record in caplog.records)

    world = ReplacingWorld(seed, AFTER_S, spare=story is not nowhere)
    world.run_to_end(story(world, said))


@pytest.mark.parametrize("seed", [1, 2])
def test_it_is_replaced_once_when_it_was_silent_for_long_enough(caplog: pytest.LogCaptureFixture, seed: int) -> None:
    look(replaced_once, caplog, seed)
    (line,) = (record.getMessage() for record in caplog.records if "[B2211]" in record.getMessage())
    assert f"which has not answered for {AFTER_S} s, is replaced by one at broker {SPARE}" in line


def test_it_is_not_replaced_when_it_is_back_in_time(caplog: pytest.LogCaptureFixture) -> None:
    look(back_in_time, caplog)


def test_it_is_not_replaced_without_another_node_until_there_is_one(caplog: pytest.LogCaptureFixture) -> None:
    look(nowhere, caplog)
    assert any("is not replaced: 3 copies need 3 nodes" in record.getMessage() for record in caplog.records)


def test_nothing_is_replaced_where_that_is_switched_off(caplog: pytest.LogCaptureFixture) -> None:
    look(never, caplog)


def _forgets_what_is_back(patch: pytest.MonkeyPatch) -> None:
    """Silences of one broker are added up."""
    old = OwnCopy.said

    def said(copy: OwnCopy, broker: str, row: dict[str, Any], now_ms: int) -> None:
        before = copy._silent_ms.get(broker, 0)
        old(copy, broker, row, now_ms)
        copy._silent_ms[broker] = max(before, copy._silent_ms[broker])

    patch.setattr(OwnCopy, "said", said)


def _at_the_first_silence(patch: pytest.MonkeyPatch) -> None:
    old = OwnCopy.lost
    patch.setattr(OwnCopy, "lost", lambda copy, silent_ms: old(copy, silent_ms // 2))


@pytest.mark.parametrize(
    ("change", "story"), [(_forgets_what_is_back, back_in_time), (_at_the_first_silence, replaced_once)]
)
def test_what_replaces_too_early_is_noticed(
    change: Callable[[pytest.MonkeyPatch], None],
    story: Story,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    change(monkeypatch)
    with pytest.raises(AssertionError):
        look(story, caplog)
