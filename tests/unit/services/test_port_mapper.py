"""The port mapper alone: the map, who says something first, and how many are answered."""

from __future__ import annotations

import asyncio
import socket

from raybroker.services.listening.port_mapper import PortMapper
from raybroker.wire.port_map import ServicePort, read_map


def test_the_map_is_told_and_more_than_may_ask_at_once_are_not() -> None:
    async def story() -> None:
        refused: list[str] = []
        mapper = PortMapper(
            "b1",
            "1.0",
            lambda: [ServicePort("jms", "tcp", "NORMAL", 7)],
            lambda peer, why: refused.append(why),
            most=3,
            of_address=2,
        )
        bound = socket.create_server(("127.0.0.1", 0))
        mapper.start(bound)
        ends = [await asyncio.open_connection("127.0.0.1", mapper.port) for _ in range(2)]
        for reader, writer in ends:
            writer.write(b"101\n")
            assert read_map(await reader.read())["jms"].port == 7
        reader, _ = await asyncio.open_connection("127.0.0.1", mapper.port)  # The two have not ended.
        assert await reader.read() == b""
        assert refused == ["the port mapper answers 2 connections already"]
        assert (mapper.accepted, mapper.refused_count) == (3, 1)
        for _, writer in ends:
            writer.close()
        mapper.close()

    asyncio.run(story())
