"""Client ids of a cluster: brokers that ask each other, with connections that come at the same time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from functools import wraps
from typing import Any

import pytest

from raybroker.errors import InvalidClientIDError
from raybroker.services.clients import client_ids
from raybroker.services.clients.client_ids import ClientIds


def on_a_loop(test: Callable[..., Awaitable[None]]) -> Callable[..., None]:
    @wraps(test)
    def run(**parameters: Any) -> None:
        asyncio.run(test(**parameters))  # type: ignore[arg-type]

    return run


class Brokers:
    """What each has, and who asks whom; every answer takes some turns of the loop."""

    def __init__(self, *names: str) -> None:
        self.held: dict[str, set[str]] = {name: set() for name in names}
        self.ids = {name: self._of(name) for name in names}

    def _of(self, name: str) -> ClientIds:
        return ClientIds(
            name, lambda _: self._held(name), lambda client_id, instance: self._others(name, client_id, instance)
        )

    async def _held(self, name: str) -> set[str]:
        found = set(self.held[name])
        for _ in range(3):
            await asyncio.sleep(0)
        return found

    async def _others(self, name: str, client_id: str, instance: str) -> Iterable[bool]:
        work = (ids.is_taken(client_id, instance, name) for other, ids in self.ids.items() if other != name)
        return await asyncio.gather(*work)

    async def comes(self, name: str, instance: str, *, inside: bool = False) -> bool:
        """A connection; one inside is there before it asks."""
        if inside:
            self.held[name].add(instance)
        try:
            async with self.ids[name].claiming("me", instance):
                self.held[name].add(instance)
        except InvalidClientIDError:
            self.held[name].discard(instance)
            return False
        return True


@on_a_loop
async def test_an_id_is_of_one_connection_of_all_brokers() -> None:
    brokers = Brokers("b1", "b2", "b3")
    assert await brokers.comes("b2", "one")
    for name in brokers.held:
        assert not await brokers.comes(name, "two")
    for name in brokers.held:
        assert await brokers.comes(name, "one"), "it comes again, also while it is still there"
    brokers.held = {name: set() for name in brokers.held}
    assert await brokers.comes("b1", "two")


@pytest.mark.parametrize("inside", [False, True])
@pytest.mark.parametrize("late", range(8))
@on_a_loop
async def test_of_two_that_come_at_the_same_time_one_has_it(
    late: int, inside: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_ids, "WAIT_S", 0.01)

    async def later(turns: int, name: str, instance: str) -> bool:
        for _ in range(turns):
            await asyncio.sleep(0)
        return await brokers.comes(name, instance, inside=inside)

    for first, second in (("b1", "b2"), ("b2", "b1"), ("b1", "b1")):
        brokers = Brokers("b1", "b2", "b3")
        came = await asyncio.gather(later(0, first, "one"), later(late, second, "two"))
        assert sum(came) == 1, (first, second)


@on_a_loop
async def test_who_comes_again_at_once_waits_for_the_end_of_the_one_before() -> None:
    brokers = Brokers("b1", "b2")
    assert await brokers.comes("b1", "one")
    again = asyncio.ensure_future(brokers.comes("b2", "two"))
    await asyncio.sleep(0.1)
    brokers.held["b1"].clear()
    assert await again


@on_a_loop
async def test_nothing_is_left_of_a_claim_that_fails() -> None:
    brokers = Brokers("b1", "b2")

    async def fails() -> None:
        async with brokers.ids["b1"].claiming("me", "one"):
            raise OSError

    with pytest.raises(OSError):
        await fails()
    assert await brokers.comes("b2", "two")
    assert all(not ids._claims for ids in brokers.ids.values())
