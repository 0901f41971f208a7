"""Ending a message otherwise than by acknowledging it, and what acknowledge() covers (B5, B8, B9, W-40)."""

from __future__ import annotations

from typing import Any

import pytest

from raybroker.client.consumer.message import Message
from raybroker.errors import ConfigError, IllegalStateError
from raybroker.wire.native import frames as wire
from tests.unit.client.fakes import Scripted, run, turns


async def received(scripted: Scripted, mode: str, count: int = 3, **options: Any) -> list[Message]:
    session = scripted.session(mode, **options)
    consumer = await scripted.consumer(session)
    scripted.host.deliver([b"%d" % n for n in range(count)])
    await turns()
    return consumer.take_messages(count)


def test_each_outcome_is_told_with_its_delay_and_reason_and_confirmed() -> None:
    async def work() -> None:
        scripted = Scripted()
        messages = await received(scripted, "client", 5)
        waits = [
            messages[0].reject("no such account"),
            messages[1].release(),
            messages[2].fail(250),
            messages[3].fail(),
        ]
        await turns()
        assert [future.done() for waiting in waits for future in waiting] == [True] * 4
        frames = [(f.outcome, f.delay_ms, f.reason, f.ranges) for f in scripted.host.of(wire.SettleFrame)]
        assert frames == [
            ("reject", -1, "no such account", [(1, 1)]),
            ("release", -1, "", [(2, 2)]),
            ("fail", 250, "", [(3, 3)]),
            ("fail", -1, "", [(4, 4)]),
        ]
        messages[4].acknowledge()
        await turns()
        assert [f.ranges for f in scripted.host.of(wire.AckFrame)] == [[(5, 5)]], "the others are out of the books"
        with pytest.raises(IllegalStateError, match="settled already"):
            messages[0].reject("again")

    run(work)


def test_the_sessions_redelivery_delay_holds_for_a_failure_that_names_none() -> None:
    async def work() -> None:
        scripted = Scripted()
        messages = await received(scripted, "client", redelivery_delay_ms=40)
        messages[0].fail()
        messages[1].fail(0)
        await turns()
        assert [f.delay_ms for f in scripted.host.of(wire.SettleFrame)] == [40, 0]
        with pytest.raises(ConfigError, match="redelivery_delay_ms"):
            scripted.session(redelivery_delay_ms=-1)

    run(work)


@pytest.mark.parametrize("mode", ["auto", "dups_ok", "none", "transacted"])
def test_outcomes_are_for_client_sessions_and_running_listeners_of_auto_ones(mode: str) -> None:
    async def work() -> None:
        scripted = Scripted()
        messages = await received(scripted, mode)
        for end in (messages[0].reject, messages[0].release, messages[0].fail):
            with pytest.raises(IllegalStateError, match=mode):
                end()
        messages[0]._delivery.consumer.session.handed.in_hand = messages[0]
        if mode == "auto":
            messages[0].reject()
            await turns()
            assert [f.outcome for f in scripted.host.of(wire.SettleFrame)] == ["reject"]
        else:
            with pytest.raises(IllegalStateError, match=mode):
                messages[0].reject()

    run(work)


@pytest.mark.parametrize(("policy", "expected"), [("All", [(1, 3)]), ("Previous", [(1, 2)])])
def test_acknowledge_covers_what_the_policy_says(policy: str, expected: list[tuple[int, int]]) -> None:
    async def work() -> None:
        scripted = Scripted(acknowledgePolicy=policy)
        messages = await received(scripted, "client")
        messages[1].acknowledge()
        await turns()
        assert [f.ranges for f in scripted.host.of(wire.AckFrame)] == [expected]

    run(work)


def test_the_client_id_is_fixed_once_the_connection_was_used() -> None:
    async def work() -> None:
        scripted = Scripted()
        scripted.core.started = False
        scripted.core.set_client_id("billing")
        assert scripted.core.client_id == "billing"
        scripted.core._client.used = True
        with pytest.raises(IllegalStateError, match="client id is set before"):
            scripted.core.set_client_id("other")
        await scripted.consumer(scripted.session())
        hello = scripted.host.calls("hello")[0][1]
        assert (hello["client_id"], hello["connection"]) == ("billing", scripted.core.identity)

    run(work)
