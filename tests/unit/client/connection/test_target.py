"""A service's target: where nothing listens any more the port mapper is asked again, once."""

from __future__ import annotations

import asyncio
import socket

import pytest

from raybroker.client.ways.service_address import ServiceAddress
from raybroker.client.ways.target import Target
from raybroker.wire.port_map import ServicePort, port_map


class Machine:
    """Ports at which something listens; the map at port 1 names that of jms."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.listening = {1, port}
        self.asked: list[int] = []

    async def connect(self, host: str, port: int) -> socket.socket:
        self.asked.append(port)
        if port not in self.listening:
            raise ConnectionRefusedError(f"nothing at {port}")
        own, other = socket.socketpair()
        own.setblocking(False)
        with other:
            if port == 1:
                other.sendall(port_map("b1", "1", [ServicePort("jms", "tcp", "NORMAL", self.port)]))
        return own


def test_a_service_that_has_moved_is_found_again() -> None:
    async def story() -> None:
        machine = Machine(7)
        target = await Target.resolve(ServiceAddress("h", 1, "jms", True), machine.connect)
        (await target.socket()).close()
        machine.port, machine.listening = 8, {1, 8}
        (await target.socket()).close()
        assert (str(target), machine.asked) == ("h:8", [1, 7, 7, 1, 8])

    asyncio.run(story())


@pytest.mark.parametrize("mapped", [True, False])
def test_one_that_has_not_moved_does_not_answer(mapped: bool) -> None:
    async def story() -> None:
        machine = Machine(7)
        target = await Target.resolve(ServiceAddress("h", 1 if mapped else 7, "jms", mapped), machine.connect)
        machine.listening = {1}
        with pytest.raises(ConnectionRefusedError, match="nothing at 7"):
            await target.socket()
        assert machine.asked == ([1, 7, 1] if mapped else [7])

    asyncio.run(story())
