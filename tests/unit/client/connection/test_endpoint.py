"""An endpoint: attached under a handle when the host has answered, and under none when it has not."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from raybroker.client.cluster.directory import DestinationPlace
from raybroker.client.connection.channel import Channel
from raybroker.client.connection.endpoint import Endpoint
from raybroker.client.destinations import Queue
from raybroker.errors import BrokerError, QuotaExceededError
from raybroker.wire.native import frames as wire
from tests.unit.client.fakes import TOKEN, ScriptedHost, run, turns


class Watcher(Endpoint):
    """The least that an endpoint is."""

    def __init__(self) -> None:
        super().__init__(Queue("orders"), "b1")
        self.seen: list[object] = []

    async def attach(self, channel: Channel, then: Callable[[Any], None] | None = None) -> None:
        self.seen.append(await self._open(channel, "watch", {"extra": 1}, then, undo="unwatch"))

    def fail(self, error: BrokerError) -> None:
        self.seen.append(error)

    async def close(self) -> None:
        self.closed = True

    def on_frame(self, frame: wire.Frame) -> None:
        self.seen.append(frame)


async def channel_to(host: ScriptedHost) -> Channel:
    host.answers["hello"] = None
    return await Channel.open(DestinationPlace("h1", TOKEN, host.dial), {}, 5)


def test_it_is_attached_under_a_handle_and_gets_the_frames_of_that() -> None:
    async def work() -> None:
        host, endpoint = ScriptedHost(), Watcher()
        host.answers["watch"] = "yes"
        channel = await channel_to(host)
        await endpoint.attach(channel, endpoint.seen.append)
        assert endpoint.seen == ["yes", "yes"], "the callback has the answer before whoever waits"
        assert endpoint.place == (channel, 1)
        assert host.calls("watch") == [("watch", {"handle": 1, "name": "orders", "type": "queue", "extra": 1})]
        host.link.write(wire.promoted(1), wire.promoted(2))
        await turns()
        assert endpoint.seen[2:] == [wire.PromotedFrame(1)], "another handle is another endpoint's"

    run(work)


def test_a_host_that_refuses_leaves_no_handle() -> None:
    async def work() -> None:
        host, endpoint = ScriptedHost(), Watcher()
        host.answers["watch"] = QuotaExceededError("no more")
        channel = await channel_to(host)
        with pytest.raises(QuotaExceededError, match="no more"):
            await endpoint.attach(channel)
        assert (endpoint.attached, endpoint.place, channel.endpoints) == (False, None, {})

    run(work)


def test_whoever_gives_up_while_it_is_opened_has_it_ended_at_the_host() -> None:
    async def work() -> None:
        host, endpoint = ScriptedHost(), Watcher()
        host.silent.add("watch")
        channel = await channel_to(host)
        opening = asyncio.create_task(endpoint.attach(channel))
        await turns()
        opening.cancel()
        await asyncio.wait([opening])
        await turns()
        assert (endpoint.attached, endpoint.place, channel.endpoints) == (False, None, {})
        assert host.calls("watch", "unwatch")[1:] == [("unwatch", {"handle": 1, "seen": 0})]

    run(work)


def test_a_lost_channel_detaches_it_and_it_can_be_attached_again() -> None:
    async def work() -> None:
        host, endpoint = ScriptedHost(), Watcher()
        host.answers["watch"] = None
        await endpoint.attach(await channel_to(host))
        assert endpoint.attached
        host.link.abort()
        await turns()
        assert (endpoint.attached, endpoint.place) == (False, None)
        await endpoint.attach(await channel_to(host))
        assert endpoint.attached

    run(work)
