"""Whose turn it is to log in: known ones first, few of an address, and nobody waits behind a busy address."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from raybroker.errors import LoginLimitError
from raybroker.services.listening.login_turns import MOST, OF_ADDRESS, SPARE, WAITING_OF_ADDRESS, LoginTurns


class Logins:
    """Logins that are under way until they are told to end; ``begun``: in their order."""

    def __init__(self) -> None:
        self.turns = LoginTurns()
        self.begun: list[str] = []
        self._ends: dict[str, asyncio.Future[bool]] = {}

    def come(self, user: str, address: str) -> asyncio.Task[None]:
        self._ends[user] = asyncio.get_running_loop().create_future()
        return asyncio.create_task(self._login(user, address))

    async def _login(self, user: str, address: str) -> None:
        async with self.turns.turn_of(user, address):
            self.begun.append(user)
            if not await self._ends[user]:
                raise PermissionError(user)

    async def end(self, user: str, *, right: bool = False) -> None:
        self._ends[user].set_result(right)
        await settled()


async def settled() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


def run(work: Callable[[Logins], Coroutine[Any, Any, None]]) -> None:
    async def whole() -> None:
        await work(Logins())

    asyncio.run(whole())


def test_wrong_logins_of_one_address_keep_no_other_waiting() -> None:
    async def work(logins: Logins) -> None:
        tasks = [logins.come(f"eve{n}", "bad") for n in range(40)]
        await settled()
        assert logins.begun == [f"eve{n}" for n in range(OF_ADDRESS)]
        tasks.append(logins.come("ann", "good"))
        await settled()
        assert logins.begun[-1] == "ann", "at once, though 36 have waited longer"
        await logins.end("eve0")
        assert logins.begun[-1] == f"eve{OF_ADDRESS}", "in their turn"
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    run(work)


def test_who_has_logged_in_from_there_before_has_a_place_though_all_others_are_taken() -> None:
    async def work(logins: Logins) -> None:
        first = logins.come("ann", "bad")
        await settled()
        await logins.end("ann", right=True)
        await first
        tasks = [logins.come(f"eve{n}", f"bad{n // OF_ADDRESS}" if n else "bad") for n in range(60)]
        await settled()
        assert len(logins.begun) == 1 + MOST - SPARE
        again = [logins.come("ann", "bad")]
        await settled()
        assert logins.begun[-1] == "ann"
        await logins.end("ann", right=True)
        tasks += [logins.come("ann", "elsewhere")]
        await settled()
        assert logins.begun[-1] == "ann"
        assert len(logins.begun) == 2 + MOST - SPARE, "from elsewhere she is not known"
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, *again, return_exceptions=True)

    run(work)


def test_a_bound_of_those_that_wait_and_nothing_is_kept_of_those_that_went() -> None:
    async def work(logins: Logins) -> None:
        tasks = [logins.come(f"eve{n}", "bad") for n in range(OF_ADDRESS + WAITING_OF_ADDRESS)]
        await settled()
        with pytest.raises(LoginLimitError, match=f"{WAITING_OF_ADDRESS} logins from bad wait for their turn"):
            async with logins.turns.turn_of("one more", "bad"):
                pass
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        assert (logins.turns._running, logins.turns._others) == ({}, [])
        assert len(logins.begun) <= len(tasks)

    run(work)
