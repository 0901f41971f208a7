"""A producer over scripted hosts: what becomes of those who wait when it ends."""

from __future__ import annotations

import asyncio

import pytest

from raybroker.errors import BrokerError, IllegalStateError, ResourceAllocationError
from tests.unit.client.fakes import PERSISTENT, Scripted, run, send, turns


@pytest.mark.parametrize("fault", ["refused", "cut", "cancelled"])
def test_nobody_waits_for_a_producer_whose_close_has_failed(fault: str) -> None:
    async def work() -> None:
        scripted = Scripted(**{"raybroker.producer.buffer_bytes": 65536, "imqAckTimeout": 200})
        host = scripted.host
        session = scripted.session()
        producer = await scripted.producer(session)
        host.confirms = False
        futures = send(producer, b"x" * 70_000)
        await turns()
        settled, room = producer.settled_future(), producer.room_future()
        assert not any(future.done() for future in (*futures, settled, room))
        if fault == "refused":
            host.answers["close_producer"] = ResourceAllocationError("not now")
        elif fault == "cut":
            host.cut_at.add("close_producer")
        else:
            host.silent.add("close_producer")
        closing = asyncio.ensure_future(producer.close())
        await turns()
        if fault == "cancelled":
            closing.cancel()
        with pytest.raises(asyncio.CancelledError if fault == "cancelled" else BrokerError):
            await closing
        assert all(future.done() for future in (*futures, settled, room))
        assert isinstance(futures[0].exception(), BrokerError)
        assert producer.closed
        assert producer not in scripted.core.producers
        with pytest.raises(IllegalStateError, match="closed"):
            producer.put("y", b"", PERSISTENT, None, urgent=True, block=False)

    run(work)
