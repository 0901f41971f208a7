"""Requests of HTTP/1.1 over one connection, one after the other; h11 does the protocol, which is without IO."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import h11

from raybroker.client.ways.target import Target
from raybroker.model.errors import ProtocolError

ANSWER_BYTES_MAX: Final = 8 << 20
READ_BYTES: Final = 256 << 10


class HttpAnswer(NamedTuple):
    """``body`` is whole."""

    status: int
    body: bytes


class HttpRequests:
    """The requests to one server. ``tls``: options of ``open_connection`` for TLS, none without."""

    def __init__(self, target: Target, tls: Mapping[str, Any]) -> None:
        self._target = target
        self._tls = tls
        self._shown = f"[{target.host}]:{target.port}" if ":" in target.host else f"{target.host}:{target.port}"
        self._protocol = h11.Connection(h11.CLIENT)
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    def extra(self, name: str) -> Any:
        """What the transport says of the connection; None while there is none."""
        return None if self._streams is None else self._streams[1].get_extra_info(name)

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Make the connection, which :meth:`post` does by itself otherwise; raises OSError."""
        sock = await self._target.socket()
        try:
            made = await asyncio.open_connection(sock=sock, limit=READ_BYTES, **self._tls)
        except BaseException:
            sock.close()
            raise
        self._streams, self._protocol = made, h11.Connection(h11.CLIENT)
        return made

    async def post(self, path: str, headers: Mapping[str, str], body: bytes, timeout_s: float) -> HttpAnswer:
        """Raises OSError, TimeoutError, and ProtocolError for what is no HTTP; the next request connects again then."""
        try:
            async with asyncio.timeout(timeout_s):
                return await self._post(path, headers, body)
        except h11.RemoteProtocolError as error:
            self.close()
            raise ProtocolError(f"{self._shown} does not speak HTTP: {error}") from None
        except BaseException:
            self.close()
            raise

    async def _post(self, path: str, headers: Mapping[str, str], body: bytes) -> HttpAnswer:
        reader, writer = self._streams or await self.connect()
        protocol = self._protocol
        told = [("Host", self._shown), ("Content-Length", str(len(body))), *headers.items()]
        writer.write(protocol.send(h11.Request(method="POST", target=path, headers=told)) or b"")
        if body:
            writer.write(protocol.send(h11.Data(data=body)) or b"")
        writer.write(protocol.send(h11.EndOfMessage()) or b"")
        await writer.drain()
        status, parts, size = 0, list[bytes](), 0
        while True:
            event = protocol.next_event()
            if event is h11.NEED_DATA:
                protocol.receive_data(await reader.read(READ_BYTES))
            elif isinstance(event, h11.Response):
                status = event.status_code
            elif isinstance(event, h11.Data):
                size += len(event.data)
                if size > ANSWER_BYTES_MAX:
                    raise ProtocolError(f"an answer of {self._shown} has more than {ANSWER_BYTES_MAX} bytes")
                parts.append(bytes(event.data))
            elif isinstance(event, h11.EndOfMessage):
                break
            elif isinstance(event, h11.ConnectionClosed):
                raise ConnectionError(f"{self._shown} ended the connection")
        if protocol.our_state is h11.DONE and protocol.their_state is h11.DONE:
            protocol.start_next_cycle()
        else:
            self.close()
        return HttpAnswer(status, b"".join(parts))

    def close(self) -> None:
        """End the connection; the next request makes another one."""
        if self._streams is not None:
            self._streams[1].close()
            self._streams = None
