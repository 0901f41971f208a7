"""Pages over all brokers, where some do not have the destination: one whose log has copies is at one broker alone."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from raybroker.admin.verbs import VERBS
from raybroker.broker.cluster.cluster_admin import ClusterAdmin
from raybroker.errors import BrokerGoneError, InvalidDestinationError


class Calls:
    """Three brokers; ``held``: broker → its messages, a page of one each time."""

    def __init__(self, **held: list[int]) -> None:
        self.held = held

    def live(self) -> list[str]:
        return ["b2", "b1", "b3"]

    async def verb_at(self, broker: str, verb: str, args: dict[str, Any], timeout_s: float) -> dict[str, Any]:
        if broker not in self.held:
            raise InvalidDestinationError(f"broker {broker} does not have it")
        at, messages = args["start"] or 0, self.held[broker]
        return {"messages": messages[at : at + 1], "next": at + 1 if at + 1 < len(messages) else None}


async def everything(calls: Any) -> list[int]:
    admin, found, start = ClusterAdmin(calls), list[int](), None
    while True:
        args = {"type": "queue", "name": "q", "start": start}
        page = await admin.carry_out(VERBS["browse_messages"], args)
        found += page["messages"]
        start = page["next"]
        if start is None:
            return found


@pytest.mark.parametrize("broker", ["b1", "b2", "b3"])
def test_a_destination_of_one_broker_is_read_to_its_end(broker: str) -> None:
    assert asyncio.run(everything(Calls(**{broker: [1, 2, 3]}))) == [1, 2, 3]


def test_all_that_have_it_are_read_in_turn() -> None:
    assert asyncio.run(everything(Calls(b3=[4], b1=[1, 2]))) == [1, 2, 4]
    with pytest.raises(InvalidDestinationError, match="b3 does not have it"):
        asyncio.run(everything(Calls()))


@pytest.mark.parametrize(("start", "error"), [(["b1", 1], InvalidDestinationError), (["b9", 1], BrokerGoneError)])
def test_what_goes_in_the_middle_of_a_page_is_told(start: list[Any], error: type[Exception]) -> None:
    calls: Any = Calls(b2=[1])
    with pytest.raises(error):
        asyncio.run(
            ClusterAdmin(calls).carry_out(VERBS["browse_messages"], {"type": "queue", "name": "q", "start": start})
        )
