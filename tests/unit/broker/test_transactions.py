"""Transactions of all hosts: what administrators see and settle, what dead clients left open (A-43 … A-46, T-06)."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from raybroker.broker.destinations.transactions import PATIENCE_SWEEPS
from raybroker.errors import IllegalStateError, InvalidDestinationError
from tests.unit.broker.worlds import FakeHost, World, served


def begun(id: int, key: str, state: str = "PREPARED", **fields: Any) -> dict[str, Any]:
    return {
        "id": id,
        "key": key,
        "kind": "local",
        "state": state,
        "xid": None,
        "coordinator": "b1/h2@10.0.0.1:99",
        **fields,
    }


async def two_hosts(*rows: dict[str, Any]) -> tuple[World, FakeHost, FakeHost]:
    """A participant with these transactions, and their coordinator."""
    world = World()
    participant = FakeHost("b1/h1", served=[served("queue", "a")])
    coordinator = FakeHost("b1/h2", served=[served("queue", "b")])
    participant.begun = list(rows)
    for host in (participant, coordinator):
        await world.broker.placement.adopt(host)
    return world, participant, coordinator


def run(work: Any) -> None:
    asyncio.run(work())


def test_administrators_see_and_settle_prepared_transactions() -> None:
    async def work() -> None:
        world, host, other = await two_hosts(begun(5, "aa", kind="xa"), begun(6, "bb", "STARTED"))
        assert [(row["id"], row["host"]) for row in await world.admin("list_transactions")] == [
            (5, "b1/h1"),
            (6, "b1/h1"),
        ]
        for id_ in (5, "5", "b1/h1:5"):
            assert (await world.admin("query_transaction", id=id_))["key"] == "aa"
        await world.admin("commit_transaction", id=5)
        await world.admin("rollback_transaction", id=5)
        assert host.calls == [("settle", 5, True), ("settle", 5, False)]
        with pytest.raises(IllegalStateError, match="STARTED"):
            await world.admin("commit_transaction", id=6)
        for bad in (7, "b1/h2:5", "x", "", "-5"):
            with pytest.raises(InvalidDestinationError, match="there is no transaction"):
                await world.admin("query_transaction", id=bad)
        other.begun = [begun(5, "cc")]
        with pytest.raises(IllegalStateError, match="b1/h1:5, b1/h2:5"):
            await world.admin("commit_transaction", id=5)
        await world.admin("commit_transaction", id="b1/h2:5")
        assert other.calls == [("settle", 5, True)]

    run(work)


@pytest.mark.parametrize(("outcome", "commit"), [("committed", True), ("rolled_back", False)])
def test_what_a_dead_client_left_follows_the_coordinator(outcome: str, commit: bool) -> None:
    async def work() -> None:
        world, host, coordinator = await two_hosts(begun(1, "aa"))
        coordinator.outcomes["aa"] = outcome
        assert await world.broker.transactions.resolve() == 1
        assert host.calls == [("decide", "aa", commit)]
        assert await world.broker.transactions.resolve() == 0

    run(work)


def test_only_prepared_local_transactions_are_resolved() -> None:
    async def work() -> None:
        world, host, coordinator = await two_hosts(begun(1, "aa", kind="xa"), begun(2, "bb", "STARTED"))
        coordinator.outcomes = {"aa": "committed", "bb": "committed"}
        assert await world.broker.transactions.resolve() == 0
        assert host.calls == []

    run(work)


def test_a_coordinator_that_knows_nothing_is_given_time_and_then_bound() -> None:
    async def work() -> None:
        world, host, coordinator = await two_hosts(begun(1, "aa"))
        for _ in range(PATIENCE_SWEEPS - 1):
            assert await world.broker.transactions.resolve() == 0
        assert host.calls == coordinator.calls == []
        assert await world.broker.transactions.resolve() == 1
        assert coordinator.calls == host.calls == [("decide", "aa", False)]
        assert coordinator.outcomes["aa"] == "rolled_back"

    run(work)


@pytest.mark.parametrize("outcome", ["prepared", "started"])
def test_a_coordinator_that_is_itself_undecided_is_waited_for(outcome: str) -> None:
    async def work() -> None:
        world, host, coordinator = await two_hosts(begun(1, "aa"))
        coordinator.outcomes["aa"] = outcome
        for _ in range(PATIENCE_SWEEPS * 2):
            assert await world.broker.transactions.resolve() == 0
        assert host.calls == coordinator.calls == []

    run(work)


def test_a_coordinator_that_cannot_be_asked_decides_nothing() -> None:
    async def work() -> None:
        world, host, coordinator = await two_hosts(begun(1, "aa"))
        coordinator.mute = True
        for _ in range(PATIENCE_SWEEPS * 2):
            assert await world.broker.transactions.resolve() == 0
        coordinator.mute = False
        coordinator.outcomes["aa"] = "committed"
        host.mute = True
        assert await world.broker.transactions.resolve() == 0
        host.mute = False
        assert await world.broker.transactions.resolve() == 1
        assert host.calls == [("decide", "aa", True)]

    run(work)


def test_a_client_that_commits_in_the_last_moment_is_not_overruled() -> None:
    async def work() -> None:
        world, host, coordinator = await two_hosts(begun(1, "aa"))

        async def too_late(key: str, commit: bool) -> None:
            coordinator.outcomes[key] = "committed"
            raise IllegalStateError("the transaction was committed already")

        coordinator.transactions.decide = too_late  # type: ignore[method-assign]
        for _ in range(PATIENCE_SWEEPS):
            assert await world.broker.transactions.resolve() == 0
        assert await world.broker.transactions.resolve() == 1
        assert host.calls == [("decide", "aa", True)]

    run(work)


def test_a_coordinator_that_is_gone_for_good_means_rolled_back() -> None:
    async def work() -> None:
        world, host, _ = await two_hosts(begun(1, "aa", coordinator="b1/h9@10.0.0.1:5"))
        world.broker.registry.unasked = {"h9": "shared"}
        for _ in range(PATIENCE_SWEEPS * 2):
            assert await world.broker.transactions.resolve() == 0
        world.broker.registry.unasked = {}
        for _ in range(PATIENCE_SWEEPS):
            await world.broker.transactions.resolve()
        assert host.calls == [("decide", "aa", False)]

    run(work)
