"""Datagrams between processes of one cluster, which may get lost: a heartbeat costs a datagram and no actor call.

Each carries the name of its sender, a number, and a code made with the receiver's key.  A datagram without a valid
code, a repeated one, and one that is older than the last of its sender are dropped before their payload is read.
"""

from __future__ import annotations

import asyncio
import hmac
import struct
from collections.abc import Callable
from hashlib import blake2b
from typing import Any, Final, NamedTuple

from raybroker.model.settings.setting import PortRange
from raybroker.transport.ports import bound_socket

CODE_BYTES: Final = 16
PAYLOAD_BYTES_MAX: Final = 1024
"""Largest payload; with its head a datagram stays below the size that every network carries in one piece."""
SENDERS_MAX: Final = 1024
"""Senders whose last number is kept; the one that has been silent longest is forgotten first."""
_HEAD: Final = struct.Struct(">QQB")

Address = tuple[str, int]


class Number(NamedTuple):
    """Number of a datagram: the life of its sender, and a count within that life, from 1."""

    life: int = 0
    number: int = 0


Take = Callable[[str, Number, Address, bytes], None]
"""Receives (sender, number, address of the sender, payload)."""


class Datagrams(asyncio.DatagramProtocol):
    """An endpoint.  ``name``: the sender in its datagrams; ``key``: of those to it; ``life``: larger than before."""

    def __init__(self, name: str, key: bytes, life: int, take: Take) -> None:
        self.name = name
        self.key = key
        self.life = life
        self.address: Address | None = None
        self.dropped = 0
        """Number of datagrams that were dropped."""
        self._take = take
        self._label = name.encode()[:255]
        self._number = 0
        self._last: dict[str, Number] = {}
        self._transport: Any = None

    async def open(self, ip: str, ports: PortRange) -> Address:
        """Bind the first free port of the range on the running loop; raises ConfigError when there is none."""
        bound = bound_socket(ip, ports, "for datagrams in ")
        ip, port = bound.getsockname()[:2]
        self._transport, _ = await asyncio.get_running_loop().create_datagram_endpoint(lambda: self, sock=bound)
        self.address = ip, port
        return self.address

    def send(self, to: Address, key: bytes, payload: bytes) -> Number:
        """Send to the holder of that key at that address; returns the number of the datagram, which may get lost."""
        assert len(payload) <= PAYLOAD_BYTES_MAX
        self._number += 1
        body = _HEAD.pack(self.life, self._number, len(self._label)) + self._label + payload
        if self._transport is not None and not self._transport.is_closing():
            self._transport.sendto(_code(key, body) + body, to)
        return Number(self.life, self._number)

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()

    # ---- from the loop ---------------------------------------------------------------------------------------------

    def datagram_received(self, data: bytes, addr: Any) -> None:
        body = data[CODE_BYTES:]
        if len(body) < _HEAD.size or not hmac.compare_digest(_code(self.key, body), data[:CODE_BYTES]):
            self.dropped += 1
            return
        life, number, length = _HEAD.unpack_from(body)
        sender = body[_HEAD.size : _HEAD.size + length].decode(errors="replace")
        this, last = Number(life, number), self._last.get(sender)
        if last is not None and this <= last:
            self.dropped += 1
            return
        self._last.pop(sender, None)
        self._last[sender] = this  # The last of them: it has just been heard.
        if len(self._last) > SENDERS_MAX:
            del self._last[next(iter(self._last))]
        self._take(sender, this, (str(addr[0]), int(addr[1])), body[_HEAD.size + length :])

    def error_received(self, exc: Exception) -> None:
        """Ignore an error such as a port without a listener: a missing answer says the same."""


def _code(key: bytes, body: bytes) -> bytes:
    return blake2b(body, digest_size=CODE_BYTES, key=key[:64]).digest()
