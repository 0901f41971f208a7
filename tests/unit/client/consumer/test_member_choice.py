"""Which consumers have one member only, and which one."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from raybroker.client.connection.belongings import Choosers
from raybroker.client.consumer.consumer_options import ConsumerOptions
from raybroker.client.consumer.multi_broker import is_pinned, place
from raybroker.client.destinations import Queue, Topic
from raybroker.model.errors import ConnectionLostError

DURABLE = {"name": "s", "durable": True, "shared": False}


@pytest.mark.parametrize(
    ("destination", "traits", "subscription", "pinned"),
    [
        (Queue("q"), {}, None, False),
        (Queue("q"), {"distributed": True}, None, True),
        (Topic("t"), {"distributed": True, "forwardingPolicy": "Partitioned"}, None, True),
        (Topic("t"), {"distributed": True, "forwardingPolicy": "Replicated"}, None, False),
        (Topic("t"), {"distributed": True, "forwardingPolicy": "Partitioned"}, DURABLE, False),
        (Topic("t"), {"distributed": True, "forwardingPolicy": "Partitioned"}, {**DURABLE, "shared": True}, True),
    ],
)
def test_a_consumer_is_pinned_where_no_other_member_has_anything_for_it(
    destination: Any, traits: dict[str, Any], subscription: dict[str, Any] | None, pinned: bool
) -> None:
    assert is_pinned(destination, traits, ConsumerOptions(subscription=subscription)) is pinned


def connection(counts: dict[str, int], *, affinity: bool = False) -> Any:
    async def members(kind: str, name: str) -> dict[str, int]:
        return counts

    async def with_retry(what: str, work: Any) -> Any:
        return await work()

    return SimpleNamespace(
        attributes={"ServerAffinityEnabled": affinity},
        kept=SimpleNamespace(choosers=Choosers()),
        directory=SimpleNamespace(home="b2", members=members),
        tasks=SimpleNamespace(with_retry=with_retry),
    )


def test_the_member_without_consumers_is_preferred() -> None:
    assert asyncio.run(place(connection({"b1": 2, "b2": 1, "b3": 0}), Queue("q"), "Round-Robin")) == "b3"


def test_consumers_of_one_connection_go_round() -> None:
    one = connection({"b1": 0, "b2": 0, "b3": 0})
    found = [asyncio.run(place(one, Queue("q"), "Round-Robin")) for _ in range(6)]
    assert sorted(found[:3]) == ["b1", "b2", "b3"]
    assert found[3:] == found[:3]


def test_with_affinity_the_home_broker_is_preferred() -> None:
    assert asyncio.run(place(connection({"b1": 0, "b2": 0}, affinity=True), Queue("q"), "Round-Robin")) == "b2"


def test_without_members_there_is_nothing_to_choose() -> None:
    with pytest.raises(ConnectionLostError, match="no broker has a member of q now"):
        asyncio.run(place(connection({}), Queue("q"), "Round-Robin"))
