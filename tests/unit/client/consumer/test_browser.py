"""A browser asks for chunks, takes nothing, and ends (R-12)."""

from __future__ import annotations

from typing import Any

import pytest

from raybroker.client.consumer.browser import BrowserCore
from raybroker.client.session.opening import browser
from raybroker.errors import (
    ConnectionLostError,
    IllegalStateError,
    InvalidDestinationError,
    InvalidSelectorError,
    RequestTimeoutError,
)
from raybroker.wire.native import frames as wire
from tests.unit.client.fakes import Scripted, run, turns


async def opened(scripted: Scripted, selector: str | None = None) -> BrowserCore:
    core = browser(scripted.session(), "q", selector, None)
    await core.open()
    return core


def chunks(scripted: Scripted, *sizes: int) -> None:
    """The host answers each request for messages with so many."""
    host, left = scripted.host, list(sizes)
    usual = host._answer

    def answer(call: wire.CallFrame) -> None:
        if call.op != "browse":
            usual(call)
            return
        size = left.pop(0)
        if size:
            host.deliver([b"%d" % n for n in range(size)], handle=call.args["handle"], epoch=0)
        host.link.write(wire.reply(call.request, {"more": bool(left)}))

    patched: Any = host
    patched._answer = answer


def test_messages_come_in_chunks_and_an_empty_one_is_not_the_end() -> None:
    async def work() -> None:
        scripted = Scripted(imqQueueBrowserMaxMessagesPerRetrieve=2)
        chunks(scripted, 2, 0, 1)
        core = await opened(scripted, "a = 1")
        found = [await core.fetch(), await core.fetch(), await core.fetch()]
        assert [[m.body for m in chunk] for chunk in found] == [[b"0", b"1"], [b"0"], []]
        assert [args["max"] for _, args in scripted.host.calls("browse")] == [2, 2, 2]
        assert scripted.host.calls("open_browser")[0][1] | {"handle": 0} == {
            "handle": 0,
            "name": "q",
            "type": "queue",
            "selector": "a = 1",
        }
        await core.close()
        assert [op for op, _ in scripted.host.calls("close_browser")] == ["close_browser"]
        assert await core.fetch() == []

    run(work)


def test_a_message_that_was_only_looked_at_cannot_be_settled() -> None:
    async def work() -> None:
        scripted = Scripted()
        chunks(scripted, 1)
        message = (await (await opened(scripted)).fetch())[0]
        assert message.acknowledge() == []
        with pytest.raises(IllegalStateError, match="reject"):
            message.reject()
        assert message.extend() == []
        await turns()
        assert scripted.host.of(wire.AckFrame) + scripted.host.of(wire.SettleFrame) == []
        assert scripted.host.calls("extend") == []

    run(work)


def test_a_topic_cannot_be_browsed_and_a_bad_selector_is_told() -> None:
    async def work() -> None:
        scripted = Scripted()
        with pytest.raises(InvalidDestinationError, match="topic:t"):
            browser(scripted.session(), "topic:t", None, None)
        scripted.host.answers["open_browser"] = InvalidSelectorError("at 3")
        with pytest.raises(InvalidSelectorError, match="at 3"):
            await opened(scripted, "a b")

    run(work)


def test_a_silent_host_and_a_lost_connection_are_errors() -> None:
    async def work() -> None:
        scripted = Scripted(imqQueueBrowserRetrieveTimeout=30)
        scripted.host.silent.add("browse")
        core = await opened(scripted)
        with pytest.raises(RequestTimeoutError, match="imqQueueBrowserRetrieveTimeout"):
            await core.fetch()
        scripted.host.link.abort()
        await turns()
        with pytest.raises(ConnectionLostError):
            await core.fetch()

    run(work)


def test_a_destroyed_queue_ends_the_look() -> None:
    async def work() -> None:
        scripted = Scripted()
        core = await opened(scripted)
        scripted.host.link.write(wire.event("destroyed", {"handle": core._handle}))
        await turns()
        with pytest.raises(InvalidDestinationError, match="destroyed"):
            await core.fetch()

    run(work)
