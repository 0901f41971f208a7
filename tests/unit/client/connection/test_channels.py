"""The channels of one connection: one to each place, however many ask for it at once."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from raybroker.client.connection.channel import Channel
from raybroker.client.connection.channels import Channels
from raybroker.client.destinations import Queue
from raybroker.client.io.tasks import Tasks
from raybroker.config import Config
from raybroker.errors import BrokerError, ConnectionEndedError, ConnectionLostError, IllegalStateError
from raybroker.wire.native import frames as wire
from tests.unit.client.fakes import ScriptedDirectory, ScriptedHost, run, turns


class Observed:
    """The channels to scripted hosts, and what is told of their links."""

    def __init__(self, *hosts: ScriptedHost) -> None:
        for host in hosts:
            host.answers["hello"] = None
        attributes = Config.from_values({})
        self.told: list[tuple[str, str]] = []
        self.tasks = Tasks(attributes)
        directory: Any = ScriptedDirectory(*hosts)
        self.channels = Channels(
            directory,
            attributes,
            self.tasks,
            open_to=lambda place: Channel.open(place, {"client_id": "me"}, 30, self),
            unanswered=self._unanswered,
            post=lambda call, go: call(go),
        )
        self.ended = self.channels.ended

    def _unanswered(self, channel: Channel, error: BrokerError) -> None:
        self.told.append(("unanswered", channel.place.key))

    def channel_closing(self, channel: Channel) -> None:
        self.told.append(("closing", channel.place.key))

    def channel_lost(self, channel: Channel) -> None:
        self.told.append(("lost", channel.place.key))


def test_those_who_ask_at_once_share_one_channel() -> None:
    async def work() -> None:
        first, second = ScriptedHost("h1"), ScriptedHost("h2")
        channels = Observed(first, second).channels
        found = await asyncio.gather(*(channels.channel_to(Queue(name)) for name in ("h1.a", "h1.b", "h2.a")))
        assert found[0] is found[1] is not found[2]
        assert [len(host.links) for host in (first, second)] == [1, 1]
        assert first.calls("hello") == [("hello", {"client_id": "me"})]
        assert set(channels.all()) == set(found)

    run(work)


def test_a_lost_channel_is_told_and_made_anew_when_it_is_needed() -> None:
    async def work() -> None:
        host = ScriptedHost("h1")
        observed = Observed(host)
        before = await observed.channels.channel_to(Queue("h1.a"))
        host.link.abort()
        await turns()
        assert [name for name, _ in observed.told] == ["lost"]
        assert (observed.channels.open(), observed.channels.all()) == ([], [before])
        after = await observed.channels.channel_to(Queue("h1.a"))
        assert after is not before
        assert observed.channels.open() == [after]

    run(work)


def test_requests_and_flow_go_to_all_that_are_not_lost() -> None:
    async def work() -> None:
        first, second = ScriptedHost("h1"), ScriptedHost("h2")
        for host in (first, second):
            host.answers["start"] = None
        channels = Observed(first, second).channels
        await asyncio.gather(channels.channel_to(Queue("h1.a")), channels.channel_to(Queue("h2.a")))
        first.link.abort()
        await turns()
        await channels.call("start")
        channels.write_flow(False)
        await turns()
        assert [len(host.calls("start")) for host in (first, second)] == [0, 1]
        assert [host.of(wire.FlowFrame) for host in (first, second)] == [[], [wire.FlowFrame(False)]]

    run(work)


def test_a_closed_connection_opens_none_and_a_host_that_is_away_cannot_be_reached() -> None:
    async def work() -> None:
        host = ScriptedHost("h1")
        host.cut_at.add("hello")
        observed = Observed(host)
        with pytest.raises(ConnectionLostError):
            await observed.channels.channel_to(Queue("h1.a"))
        assert observed.channels.all() == []
        observed.tasks.cancel_all()
        with pytest.raises(IllegalStateError, match="closed"):
            await observed.channels.channel_to(Queue("h1.a"))

    run(work)


def test_a_connection_that_was_ended_opens_no_channel_any_more() -> None:
    async def work() -> None:
        host = ScriptedHost("h1")
        observed = Observed(host)
        host.answers["hello"] = ConnectionEndedError("call 4711")
        with pytest.raises(ConnectionEndedError, match="call 4711"):
            await observed.channels.channel_to(Queue("h1.a"))
        assert str(observed.ended.error) == "call 4711"
        with pytest.raises(ConnectionEndedError, match="call 4711"):
            await observed.channels.channel_to(Queue("h1.a"))
        assert len(host.calls("hello")) == 1

    run(work)
