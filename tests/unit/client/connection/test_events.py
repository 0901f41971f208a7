"""What a connection tells of its links and of consumers, and when it gives a silent host up (R-14, R-15)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from raybroker.client.connection.events import ConnectionEvent, ConsumerEvent, Events, Outage
from raybroker.client.destinations import Queue, Topic
from raybroker.errors import ConnectionLostError, IllegalStateError, InvalidDestinationError
from raybroker.wire.native import frames as wire
from tests.unit.client.fakes import Scripted, ScriptedHost, run, turns

H1 = "h1@127.0.0.1:1"


def kinds(told: list[ConnectionEvent]) -> list[str]:
    return [event.kind for event in told]


async def until(condition: Callable[[], Any]) -> None:
    while not condition():  # noqa: ASYNC110 - whatever a scripted host makes true; bounded by run()
        await asyncio.sleep(0.001)


class Heard:
    """An outage whose events are kept."""

    def __init__(self) -> None:
        self.told: list[ConnectionEvent] = []
        io: Any = self
        events = Events(io)
        events.on_event(self.told.append)
        self.outage = Outage(events, H1)

    def post(self, call: Callable[[Any], None], event: object) -> None:
        call(event)


def test_one_of_the_handles_tells_of_an_outage_and_the_next_one_when_it_gives_up() -> None:
    heard, lost = Heard(), ConnectionLostError("away")
    outage = heard.outage
    outage.failed("a", lost)
    outage.failed("b", lost)
    outage.failed("a", lost)
    outage.left("b")
    outage.left("a")
    outage.failed("b", lost)
    outage.over("a", "h2")
    outage.over("b", "h2")
    outage.over("a", "h2")
    outage.failed("b", lost)
    assert heard.told == [
        *(ConnectionEvent("reconnect_failed", H1, "connection_lost", "away", n) for n in (1, 2, 3)),
        ConnectionEvent("reconnected", "h2"),
    ]


def test_a_lost_link_is_told_once_and_so_is_its_return_however_many_handles_were_on_it() -> None:
    async def work() -> None:
        scripted = Scripted()
        told: list[ConnectionEvent] = []
        scripted.core.events.on_event(told.append)
        session = scripted.session()
        handles = [await scripted.consumer(session) for _ in range(3)]
        scripted.host.link.abort()
        await until(lambda: all(handle.attached for handle in handles))
        await turns()
        assert kinds(told) == ["closed", "reconnected"]
        assert {event.address for event in told} == {H1}
        assert told[0].code == "connection_lost"

    run(work)


def test_what_a_host_says_before_it_closes_is_told_first_and_is_the_reason() -> None:
    async def work() -> None:
        scripted = Scripted(imqReconnectEnabled=False)
        told: list[ConnectionEvent] = []
        failed: list[Exception] = []
        scripted.core.events.on_event(told.append)
        scripted.core.events.on_exception(failed.append)
        await scripted.consumer(scripted.session())
        scripted.host.link.write(wire.event("closing", {"code": "store", "text": "the disk is gone"}))
        scripted.host.link.close()
        await until(lambda: failed)
        assert [(event.kind, event.code, event.text) for event in told] == [
            ("closing", "store", "the disk is gone"),
            ("closed", "store", "the disk is gone"),
        ]

    run(work)


def test_every_failed_attempt_is_told_and_the_exception_handler_only_after_the_last() -> None:
    async def work() -> None:
        scripted = Scripted(imqReconnectAttempts=2)
        told: list[str] = []
        scripted.core.events.on_event(lambda event: told.append(f"{event.kind} {event.attempt}"))
        scripted.core.events.on_exception(lambda error: told.append("exception"))
        await scripted.consumer(scripted.session())

        async def refuse(factory: object) -> None:
            raise OSError("nobody listens")

        scripted.host.dial = refuse  # type: ignore[assignment, method-assign]
        scripted.host.link.abort()
        await until(lambda: "exception" in told)
        await turns()
        assert sorted(told) == sorted(
            ["closed 0", "reconnect_failed 1", "reconnect_failed 2", "reconnect_failed 3", "exception"]
        )

    run(work)


def test_closing_the_connection_is_no_event_and_a_handler_that_raises_harms_nobody() -> None:
    async def work() -> None:
        scripted = Scripted()
        told: list[ConnectionEvent] = []
        faults: list[dict[str, Any]] = []
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: faults.append(context))

        def handler(event: ConnectionEvent) -> None:
            told.append(event)
            raise ValueError("a bad handler")

        scripted.core.events.on_event(handler)
        consumer = await scripted.consumer(scripted.session())
        scripted.host.link.abort()
        await until(lambda: kinds(told) == ["closed", "reconnected"])
        assert consumer.attached
        assert [type(fault["exception"]) for fault in faults] == [ValueError, ValueError]
        scripted.core.directory.close = turns  # type: ignore[method-assign, assignment]
        await scripted.core.close()
        await turns()
        assert len(told) == 2

    run(work)


# ---- pings -----------------------------------------------------------------------------------------------------------


async def silent(**attributes: object) -> tuple[Scripted, list[ConnectionEvent]]:
    """A connection whose host takes what comes and says nothing any more."""
    scripted = Scripted(**attributes)
    told: list[ConnectionEvent] = []
    scripted.core.events.on_event(told.append)
    await scripted.consumer(scripted.session())
    scripted.host.link.pause_reading()
    return scripted, told


def test_a_host_that_does_not_answer_in_time_is_told_and_given_up_only_when_that_is_wanted() -> None:
    async def work() -> None:
        scripted, told = await silent(imqPingInterval=1, imqPingAckTimeout=5)
        await until(lambda: told)
        assert [(event.kind, event.address, event.code) for event in told] == [("unanswered", H1, "timeout")]
        (channel,) = scripted.core.channels.all()
        assert not channel.lost

    run(work)


def test_a_host_that_does_not_answer_in_time_is_given_up_and_the_handles_come_back() -> None:
    async def work() -> None:
        _, told = await silent(imqPingInterval=1, imqPingAckTimeout=5, imqAbortOnPingAckTimeout=True)
        await until(lambda: len(told) == 2)
        assert kinds(told) == ["closed", "reconnected"]
        assert told[0].code == "timeout"
        assert "imqPingAckTimeout=0.005 s" in told[0].text

    run(work)


def test_a_channel_says_whether_its_host_answers() -> None:
    """K-19"""

    async def work() -> None:
        scripted = Scripted()
        await scripted.consumer(scripted.session())
        (channel,) = scripted.core.channels.all()
        asked = asyncio.ensure_future(channel.answers(20))
        await turns()
        scripted.host.link.write(wire.pong(0))
        assert await asked
        assert not await channel.answers(0.001)
        lost = asyncio.ensure_future(channel.answers(20))
        await turns()
        scripted.host.link.abort()
        assert not await lost
        assert not await channel.answers(20)

    run(work)


# ---- consumers -------------------------------------------------------------------------------------------------------


async def watching(host: ScriptedHost, *, ready: bool = False) -> tuple[Scripted, list[bool]]:
    host.answers["watch_consumers"] = {"ready": ready}
    scripted = Scripted(host, imqReconnectInterval=1)
    told: list[bool] = []
    await scripted.core.watch_consumers(Queue("q"), lambda event: told.append(event.ready))
    await turns()
    return scripted, told


def test_a_watch_tells_the_state_and_then_only_changes_also_over_a_lost_link() -> None:
    async def work() -> None:
        host = ScriptedHost()
        scripted, told = await watching(host)
        assert told == [False]
        host.link.write(wire.event("consumers", {"handle": 1, "ready": True}))
        host.link.write(wire.event("consumers", {"handle": 1, "ready": True}))
        await turns()
        assert told == [False, True]
        host.answers["watch_consumers"] = {"ready": True}
        host.link.abort()
        await until(lambda: len(host.links) == 2 and scripted.core.handles.watches._watches[Queue("q")].attached)
        await turns()
        assert told == [False, True]

    run(work)


def test_a_destination_that_is_not_there_has_no_consumers_and_is_looked_for_again() -> None:
    async def work() -> None:
        host = ScriptedHost()
        missing = InvalidDestinationError("no such queue")
        scripted, told = await watching(host, ready=True)
        host.answers["watch_consumers"] = missing
        host.link.write(wire.event("destroyed", {"handle": 1, "name": "q"}))
        await until(lambda: told == [True, False])
        await until(lambda: len(host.calls("watch_consumers")) > 3)
        host.answers["watch_consumers"] = {"ready": True}
        await until(lambda: told == [True, False, True])
        assert scripted.core.handles.watches._watches[Queue("q")].attached
        assert host.calls("unwatch_consumers") == [("unwatch_consumers", {"handle": 1})]

    run(work)


def test_a_new_watch_of_a_destination_replaces_the_one_before_and_none_ends_it() -> None:
    async def work() -> None:
        host = ScriptedHost()
        scripted, told = await watching(host)
        events: list[ConsumerEvent] = []
        await scripted.core.watch_consumers(Queue("q"), events.append)
        await turns()
        assert [(event.kind, event.destination) for event in events] == [("not_ready", Queue("q"))]
        host.link.write(wire.event("consumers", {"handle": 1, "ready": True}))
        host.link.write(wire.event("consumers", {"handle": 2, "ready": True}))
        await turns()
        assert (told, [event.kind for event in events]) == ([False], ["not_ready", "ready"])
        await scripted.core.watch_consumers(Queue("q"), None)
        assert scripted.core.handles.watches._watches == {}
        host.link.write(wire.event("consumers", {"handle": 2, "ready": False}))
        await turns()
        assert len(events) == 2
        with pytest.raises(InvalidDestinationError, match="pattern"):
            await scripted.core.watch_consumers(Topic.checked("a.*"), events.append)

    run(work)


def test_what_fails_for_good_is_raised_by_the_watch_that_was_asked_for() -> None:
    async def work() -> None:
        host = ScriptedHost()
        host.answers["watch_consumers"] = IllegalStateError("not here")
        scripted = Scripted(host)
        with pytest.raises(IllegalStateError, match="not here"):
            await scripted.core.watch_consumers(Queue("q"), print)

    run(work)
