"""A link inside of a WebSocket, over the event loop of the broker, with a server of the library."""

from __future__ import annotations

import asyncio

from websockets.asyncio.server import ServerConnection, serve

from raybroker.client.ways.service_address import SERVICE, ServiceAddress
from raybroker.client.ways.sockets import direct
from raybroker.client.ways.target import Target
from raybroker.client.ways.web_socket import dial
from raybroker.model.errors import BrokerError
from raybroker.transport.link import Link
from raybroker.transport.loops import new_event_loop
from raybroker.wire.native import frames as wire
from raybroker.wire.native.connection import Native

WAIT_S = 60.0


def test_a_link_that_was_lost_can_be_closed_and_written_to() -> None:
    """The server's machine ends the connection without a word."""

    async def work() -> None:
        lost: asyncio.Future[BrokerError | None] = asyncio.get_running_loop().create_future()

        async def cut(connection: ServerConnection) -> None:
            connection.transport.abort()

        async with serve(cut, "127.0.0.1", 0) as server:
            port = server.sockets[0].getsockname()[1]
            link = Link(
                Native(token=None), on_frames=lambda frames: None, on_lost=lost.set_result, on_writable=lambda: None
            )
            address = ServiceAddress("127.0.0.1", port, SERVICE, False)
            await dial(Target(address, "127.0.0.1", port, direct), "key", lambda: link, {})
            async with asyncio.timeout(WAIT_S):
                await lost
            await asyncio.sleep(0)  # The loop has let go of the socket.
            link.write(wire.ping(1))
            link.close()

    loop = new_event_loop()
    try:
        loop.run_until_complete(work())
    finally:
        loop.close()
