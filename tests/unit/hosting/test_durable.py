"""Methods that are declared durable return when what they have changed is on disk, and fail when the store does."""

from __future__ import annotations

import asyncio
import inspect

import pytest

from raybroker.errors import IllegalStateError, StoreError
from raybroker.hosting.durable import Changes, Done, durable


class Role:
    def __init__(self) -> None:
        self.changes = Changes()
        self.written: list[Done] = []

    @durable
    async def change(self, done: Done, name: str, times: int = 1) -> str:
        if not name:
            raise IllegalStateError("no name")
        self.written.append(done)
        return name * times


async def begun(role: Role) -> asyncio.Task[str]:
    task = asyncio.create_task(role.change("a", times=2))
    await asyncio.sleep(0)
    return task


def test_a_durable_method_answers_when_its_change_is_on_disk() -> None:
    async def story() -> None:
        role = Role()
        first, second = await begun(role), await begun(role)
        role.written[1]()
        assert await second == "aa"
        assert not first.done()
        role.written[0]()
        role.written[0]()
        assert await first == "aa"

    asyncio.run(story())


def test_what_waits_when_the_store_dies_fails_and_what_raises_waits_for_nothing() -> None:
    async def story() -> None:
        role = Role()
        with pytest.raises(IllegalStateError):
            await role.change("")
        waiting = await begun(role)
        role.changes.fail(StoreError("the disk is gone"))
        with pytest.raises(StoreError):
            await waiting
        assert not role.changes._awaited

    asyncio.run(story())


def test_callers_do_not_see_what_the_engine_calls() -> None:
    assert list(inspect.signature(Role.change).parameters) == ["self", "name", "times"]
