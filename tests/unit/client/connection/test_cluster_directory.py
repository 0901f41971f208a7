"""Which broker a client asks, and what becomes of its questions when that one does not answer (K-19)."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from raybroker.client.cluster.cluster_directory import MOVE_TIMEOUT_S, ClusterDirectory
from raybroker.client.cluster.directory import DestinationPlace
from raybroker.model.errors import BrokerGoneError

SOON_S = 0.01


class Scripted:
    """Brokers that answer, hang or are gone."""

    def __init__(self, *names: str) -> None:
        self.there = list(names)
        self.hanging: set[str] = set()
        self.asked: list[tuple[str, str]] = []

    async def call(self, broker: str, method: str, *args: Any) -> Any:
        self.asked.append((broker, method))
        if broker not in self.there:
            raise BrokerGoneError(f"broker {broker} is not running")
        if broker in self.hanging or method == "brokers_changed":
            await asyncio.Event().wait()
        return (1, broker, [(name, "UP", name == self.there[0], "") for name in self.there])

    async def names(self) -> list[str]:
        return list(self.there)

    def led_by(self, found: Sequence[Any]) -> str:
        return ""

    def place(self, found: Sequence[Any]) -> DestinationPlace:
        raise AssertionError("nobody looks for a place")

    def close(self) -> None:
        raise AssertionError("nobody closes it")


def pending(directory: ClusterDirectory) -> asyncio.Task[int]:
    return asyncio.ensure_future(directory.brokers_changed(1, 60.0))


async def turns() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


def test_a_home_that_is_gone_is_replaced_by_the_next_call() -> None:
    async def scene() -> None:
        calls = Scripted("b2", "b3")
        directory = ClusterDirectory(calls, "b1", pinned=False)
        with pytest.raises(BrokerGoneError):
            await directory.brokers()
        assert directory.home == "b2"
        assert (await directory.brokers()).home == "b2"

    asyncio.run(scene())


def test_what_waits_for_a_home_that_hangs_fails_when_it_is_left() -> None:
    async def scene() -> None:
        calls = Scripted("b1", "b2")
        directory = ClusterDirectory(calls, "b1", pinned=False)
        waiting = pending(directory)
        await turns()
        calls.hanging.add("b1")
        await directory.doubt("b1", SOON_S)
        assert directory.home == "b2"
        with pytest.raises(BrokerGoneError, match="b2 is asked from now on"):
            await waiting

    asyncio.run(scene())


def test_what_waits_for_the_new_home_goes_on_waiting() -> None:
    async def scene() -> None:
        calls = Scripted("b1", "b2")
        directory = ClusterDirectory(calls, "b1", pinned=False)
        old = pending(directory)
        await turns()
        calls.hanging.add("b1")
        await directory.doubt("b1", SOON_S)
        new = pending(directory)
        await turns()
        await directory.doubt("b1", SOON_S)
        await turns()
        assert (old.done(), new.done()) == (True, False)
        new.cancel()
        with pytest.raises(asyncio.CancelledError):
            await new
        assert isinstance(old.exception(), BrokerGoneError)

    asyncio.run(scene())


def test_brokers_that_hang_as_well_do_not_hold_up_the_move() -> None:
    async def scene() -> None:
        calls = Scripted("b1", "b2", "b3", "b4")
        calls.hanging |= {"b1", "b2"}
        directory = ClusterDirectory(calls, "b1", pinned=False)
        async with asyncio.timeout(MOVE_TIMEOUT_S / 2):
            await directory.doubt("b1", SOON_S)
        assert directory.home == "b3"
        calls.hanging |= {"b3", "b4"}
        await directory.doubt("b3", SOON_S)
        assert directory.home == "b3", "there is no other"

    asyncio.run(scene())


def test_a_home_that_answers_is_not_left() -> None:
    async def scene() -> None:
        directory = ClusterDirectory(Scripted("b1", "b2"), "b1", pinned=False)
        waiting = pending(directory)
        await turns()
        await directory.doubt("b1", 10.0)
        assert (directory.home, waiting.done()) == ("b1", False)
        waiting.cancel()

    asyncio.run(scene())


def test_who_takes_its_place_is_found_out_while_the_home_is_waited_for() -> None:
    async def scene() -> None:
        calls = Scripted("b1", "b2")
        calls.hanging.add("b1")
        directory = ClusterDirectory(calls, "b1", pinned=False)
        doubting = asyncio.ensure_future(directory.doubt("b1", 10.0))
        await turns()
        assert {("b1", "brokers"), ("b2", "brokers")} <= set(calls.asked)
        assert directory.home == "b1"
        doubting.cancel()

    asyncio.run(scene())


def test_a_home_that_is_gone_for_sure_is_left_at_once() -> None:
    async def scene() -> None:
        directory = ClusterDirectory(Scripted("b2"), "b1", pinned=False)
        async with asyncio.timeout(5.0):
            await directory.doubt("b1", 60.0)
        assert directory.home == "b2"

    asyncio.run(scene())


def test_a_home_that_was_named_is_not_left() -> None:
    async def scene() -> None:
        calls = Scripted("b1", "b2")
        directory = ClusterDirectory(calls, "b1", pinned=True)
        waiting = pending(directory)
        await turns()
        await directory.doubt("b1", SOON_S)
        await turns()
        assert (directory.home, waiting.done()) == ("b1", False)
        waiting.cancel()

    asyncio.run(scene())


def test_another_broker_can_be_asked_without_becoming_the_home() -> None:
    async def scene() -> None:
        calls = Scripted("b1", "b2")
        directory = ClusterDirectory(calls, "b1", pinned=False)
        assert (await directory.brokers("b2")).home == "b2"
        calls.there.remove("b2")
        with pytest.raises(BrokerGoneError):
            await directory.brokers("b2")
        assert directory.home == "b1"

    asyncio.run(scene())
