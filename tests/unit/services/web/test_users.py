"""One connection a user: opened with his password, kept while it is used, ended when it is not."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest

from raybroker import aio
from raybroker.client.aio.fitting import receive_fitting
from raybroker.errors import ConnectionLostError, IllegalStateError, ResourceAllocationError, SecurityError
from raybroker.services.rest.user_connection import UserConnection
from raybroker.services.web.credentials import RequestCredentials
from raybroker.services.web.problems import RefusedError
from raybroker.services.web.users import LOGINS_OF_ADDRESS_MAX, RECHECK_S, WebUsers
from tests.unit.services.web.rig import Broker, until

ANN, BOB = RequestCredentials("ann", "secret"), RequestCredentials("bob", "secret")
PEER = "192.0.2.1:99"


class Rig:
    def __init__(self, broker: Broker, most: int = 2, idle_s: float = 3600, **options: Any) -> None:
        self.broker = broker
        self.now_s = 0.0
        self.users = WebUsers(
            broker.connect,
            lambda: UserConnection(lambda: self.now_s, receive_fitting),
            most=most,
            now_s=lambda: self.now_s,
            idle_s=idle_s,
            **options,
        )

    async def use(self, given: RequestCredentials) -> Any:
        async with self.users.connection_of(given, PEER) as found:
            return found


@asynccontextmanager
async def rigged(name: str, **options: Any) -> AsyncIterator[Rig]:
    async with await aio.loopback(broker=name):
        rig = Rig(Broker(name), **options)
        try:
            yield rig
        finally:
            await rig.users.close()


def run(work: Callable[[Rig], Awaitable[None]], name: str, **options: Any) -> None:
    async def whole() -> None:
        async with rigged(name, **options) as rig:
            await work(rig)

    asyncio.run(whole())


def test_requests_of_a_user_share_a_connection_which_is_opened_once() -> None:
    async def work(rig: Rig) -> None:
        found = await asyncio.gather(*(rig.use(ANN) for _ in range(20)))
        assert len(set(map(id, found))) == 1
        assert rig.broker.logins == [("ann", PEER)]

    run(work, "users-share")


def test_a_wrong_password_is_told_and_takes_nothing_from_who_is_there() -> None:
    async def work(rig: Rig) -> None:
        there = await rig.use(ANN)
        with pytest.raises(RefusedError) as caught:
            await rig.use(RequestCredentials("ann", "wrong"))
        assert caught.value.status == 401
        assert await rig.use(ANN) is there
        assert rig.users.names() == ["ann"]

    run(work, "users-wrong")


def test_logins_that_hang_keep_only_their_own_address_waiting() -> None:
    async def work(rig: Rig) -> None:
        gate, connect = asyncio.Event(), rig.broker.connect

        async def hanging(user: str, password: str, **named: Any) -> Any:
            if user != "ann":
                await gate.wait()
                raise SecurityError("no")
            return await connect(user, password, **named)

        rig.users._connect = hanging

        async def attack(number: int) -> str:
            try:
                async with rig.users.connection_of(RequestCredentials(f"eve{number}", "x"), "192.0.2.66:1"):
                    return "in"
            except (RefusedError, ResourceAllocationError) as error:
                return str(error)

        attacks = [asyncio.create_task(attack(number)) for number in range(LOGINS_OF_ADDRESS_MAX + 5)]
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        told = [task.result() for task in attacks if task.done()]
        assert told == [f"{LOGINS_OF_ADDRESS_MAX} users of 192.0.2.66 are logging in; try again"] * 5
        waiting = asyncio.create_task(rig.use(ANN))
        await asyncio.sleep(0)
        assert not waiting.done(), "it waits for its turn, and is not refused"
        gate.set()
        assert await waiting
        await asyncio.gather(*attacks)

    run(work, "users-hang")


def test_a_service_that_takes_nobody_is_not_a_wrong_password() -> None:
    async def work(rig: Rig) -> None:
        rig.broker.failure = IllegalStateError("service httpjms is PAUSED")
        with pytest.raises(ResourceAllocationError, match="PAUSED"):
            await rig.use(ANN)

    run(work, "users-paused")


def test_the_password_is_proved_again_now_and_then_and_who_cannot_loses_his_connection() -> None:
    async def work(rig: Rig) -> None:
        await rig.use(ANN)
        rig.now_s += RECHECK_S + 1
        await rig.use(ANN)
        await until(lambda: len(rig.broker.logins) == 2)
        rig.broker.passwords["ann"] = "another"
        while rig.users.names():  # While the proof before is under way no other one is begun.
            rig.now_s += RECHECK_S + 1
            with suppress(RefusedError):
                await rig.use(ANN)
            await asyncio.sleep(0.005)
        with pytest.raises(RefusedError):
            await rig.use(ANN)
        await rig.use(RequestCredentials("ann", "another"))

    run(work, "users-again")


def test_with_no_room_an_idle_user_makes_room_and_a_busy_one_does_not() -> None:
    async def work(rig: Rig) -> None:
        async with rig.users.connection_of(ANN, PEER):
            with pytest.raises(ResourceAllocationError, match="1 users have connections"):
                await rig.use(BOB)
        await rig.use(BOB)
        assert rig.users.names() == ["bob"]

    run(work, "users-room", most=1)


def test_a_user_who_asks_nothing_loses_his_connection() -> None:
    async def work(rig: Rig) -> None:
        await rig.use(ANN)
        rig.now_s += 1
        await until(lambda: not rig.users.names())

    run(work, "users-idle", idle_s=0.01)


def test_a_connection_that_the_broker_ended_is_opened_again_by_the_next_request() -> None:
    async def work(rig: Rig) -> None:
        first = await rig.use(ANN)
        rig.broker.ended["ann"](ConnectionLostError("an administrator"))
        assert await rig.use(ANN) is not first

    run(work, "users-ended")


def test_a_token_is_a_user_of_its_own_and_is_kept_while_it_is_used() -> None:
    async def work(rig: Rig) -> None:
        rig.broker.tokens = {"t1": "ann", "t2": "ann"}
        first = await rig.use(RequestCredentials("", "", "t1"))
        assert await rig.use(RequestCredentials("", "", "t1")) is first
        assert await rig.use(RequestCredentials("", "", "t2")) is not first
        assert await rig.use(ANN) is not first
        with pytest.raises(RefusedError):
            await rig.use(RequestCredentials("", "", "t3"))
        assert rig.broker.logins == [("ann", PEER), ("ann", PEER), ("ann", PEER), ("", PEER)]

    run(work, "users-token", most=3)


def test_where_it_matters_a_user_has_a_connection_for_each_address() -> None:
    async def work(rig: Rig) -> None:
        first = await rig.use(ANN)
        async with (
            rig.users.connection_of(ANN, "192.0.2.1:100") as again,
            rig.users.connection_of(ANN, "192.0.2.2:99") as other,
        ):
            assert again is first
            assert other is not first
        assert [peer for _, peer in rig.broker.logins] == [PEER, "192.0.2.2:99"]

    run(work, "users-address", by_address=True)
