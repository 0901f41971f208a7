"""``rb.ref`` where there is no object store: a body as any other."""

from __future__ import annotations

import asyncio

import numpy
import pytest

import raybroker as rb
from raybroker import aio
from raybroker.errors import MessageFormatError


def test_a_reference_is_a_plain_body_without_ray() -> None:
    array = numpy.arange(200_000)
    with rb.loopback() as connection:
        connection.admin().create_destination("queue", "q")
        session = connection.session()
        producer = session.producer("q")
        producer.send(rb.ref({"x": array, "label": "cat"}), {"a": 1})
        producer.send_async(rb.ref("text")).result(10)
        first, second = session.receive("q", timeout=10), session.receive("q", timeout=10)
        assert first is not None
        assert second is not None
        assert (first.body["x"] == array).all()
        assert (first.properties, second.body) == ({"a": 1}, "text")
        with pytest.raises(MessageFormatError, match="BodyReference"):
            producer.send_many([rb.ref(1)])


def test_a_reference_is_sent_by_coroutines() -> None:
    async def main() -> None:
        connection = await aio.loopback()
        async with connection:
            session = await connection.session()
            await (await session.producer("q")).send(rb.ref([1]))
            message = await session.receive("q", timeout=10)
            assert message is not None
            assert message.body == [1]

    asyncio.run(main())
