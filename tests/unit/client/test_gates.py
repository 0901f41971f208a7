"""A destination slows its producers or stops them (D-10, D-26)."""

from __future__ import annotations

import pytest

from raybroker.client.producer.producer import ProducerCore
from raybroker.errors import DestinationPausedError, IllegalStateError
from raybroker.wire.native import frames as wire
from tests.unit.client.fakes import PERSISTENT, Scripted, run, send, turns


async def gated(scripted: Scripted, state: str) -> ProducerCore:
    producer = await scripted.producer(scripted.session())
    await told(scripted, state)
    return producer


async def told(scripted: Scripted, state: str) -> None:
    scripted.host.link.write(wire.event("gate", {"handle": 1, "state": state, "until_ms": 0}))
    await turns()


def test_a_slow_destination_fills_the_buffer_until_it_opens() -> None:
    async def work() -> None:
        scripted = Scripted(**{"raybroker.producer.buffer_bytes": "64k"})
        producer = await gated(scripted, "slow")
        waits = [*send(producer, bytes(40_000)), *send(producer, bytes(40_000))]
        assert producer.put(b"x", b"", PERSISTENT, None, urgent=False, block=False) is None, "there is no room"
        await turns()
        assert scripted.host.of(wire.SendFrame) == []
        await told(scripted, "open")
        assert sum(frame.block.count for frame in scripted.host.of(wire.SendFrame)) == 2
        await turns()
        assert [future.done() for future in waits] == [True, True]

    run(work)


def test_a_paused_destination_refuses_sends_until_it_opens() -> None:
    async def work() -> None:
        scripted = Scripted()
        producer = await gated(scripted, "paused")
        with pytest.raises(DestinationPausedError, match="paused"):
            send(producer, b"x")
        await told(scripted, "open")
        send(producer, b"y")
        await turns()
        assert [bytes(f.block.body(0)) for f in scripted.host.of(wire.SendFrame)] == [b"y"]

    run(work)


def test_the_gate_stands_where_the_answer_says_and_a_new_connection_asks_anew() -> None:
    async def work() -> None:
        scripted = Scripted()
        scripted.host.answers["open_producer"] = {"epoch": 2, "gate": "paused"}
        producer = await scripted.producer(scripted.session())
        with pytest.raises(DestinationPausedError):
            send(producer, b"x")
        del scripted.host.answers["open_producer"]["gate"]
        scripted.host.link.abort()
        await turns()
        while not producer.attached:
            await turns()
        send(producer, b"y")

    run(work)


def test_closing_is_final_whatever_the_gate_does() -> None:
    async def work() -> None:
        scripted = Scripted()
        producer = await gated(scripted, "paused")
        await producer.close()
        producer.refuse_sends(None)
        with pytest.raises(IllegalStateError, match="closed"):
            send(producer, b"x")

    run(work)
