"""What comes over a WebSocket goes to the listener's socket and back; there is room for so many."""

from __future__ import annotations

import asyncio
import socket
from typing import Any

from raybroker.services.http.http_bounds import CERTIFICATE
from raybroker.services.listening.arrivals import Origin
from raybroker.services.rest.relay import TRY_AGAIN, Relay, origin_of


class Client:
    """A WebSocket, as the relay sees it."""

    client = ("192.0.2.1", 7)

    def __init__(self, scheme: str = "ws", **state: Any) -> None:
        self.scope = {"type": "websocket", "scheme": scheme, "state": state}
        self.coming: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self.sent = b""
        self.came = asyncio.Event()
        self.closed: tuple[int, str] | None = None

    async def accept(self, subprotocol: str | None = None) -> None:
        """It is open."""

    async def receive(self) -> dict[str, Any]:
        return await self.coming.get()

    async def send_bytes(self, data: bytes) -> None:
        self.sent += data
        self.came.set()

    async def close(self, code: int = 1000, reason: str = "") -> None:
        self.closed = code, reason


def test_bytes_go_both_ways_until_one_end_goes() -> None:
    async def work() -> None:
        arrived: asyncio.Queue[tuple[socket.socket, str]] = asyncio.Queue()
        relay, client = Relay(lambda taken, peer, origin: arrived.put_nowait((taken, peer))), Client()
        served: Any = client
        serving = asyncio.create_task(relay.serve(served))
        client.coming.put_nowait({"type": "websocket.receive", "bytes": b"up"})
        taken, peer = await arrived.get()
        reader, writer = await asyncio.open_unix_connection(sock=taken)
        assert (await reader.readexactly(2), peer, relay.open) == (b"up", "192.0.2.1:7", 1)
        writer.write(b"down")
        await client.came.wait()
        assert client.sent == b"down"
        writer.close()
        await serving
        assert (client.closed, relay.open) == ((1000, ""), 0)

    asyncio.run(work())


def test_a_client_that_goes_ends_the_listeners_socket_and_text_is_not_understood() -> None:
    async def work(last: dict[str, Any]) -> None:
        arrived: list[socket.socket] = []
        relay, client = Relay(lambda taken, peer, origin: arrived.append(taken)), Client()
        served: Any = client
        client.coming.put_nowait(last)
        await relay.serve(served)
        with arrived[0] as taken:
            taken.setblocking(False)
            assert await asyncio.get_running_loop().sock_recv(taken, 1) == b""

    asyncio.run(work({"type": "websocket.disconnect"}))
    asyncio.run(work({"type": "websocket.receive", "text": "hello"}))


def test_with_no_room_a_client_is_told_to_try_again() -> None:
    async def work() -> None:
        relay, client = Relay(lambda taken, peer, origin: None, most=0), Client()
        served: Any = client
        await relay.serve(served)
        assert client.closed == (TRY_AGAIN, "0 connections are open")

    asyncio.run(work())


def test_the_listener_learns_whether_the_client_has_tls_and_which_certificate_it_has_shown() -> None:
    clear: Any = Client()
    secure: Any = Client("wss", **{CERTIFICATE: b"der"})
    assert origin_of(clear) == Origin(encrypted=False, certificate=None)
    assert origin_of(secure) == Origin(encrypted=True, certificate=b"der")
