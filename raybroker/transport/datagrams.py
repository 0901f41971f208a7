"""Small messages between processes of one cluster that may get lost: a sign of life costs a datagram, no actor call.

Each carries the name of its sender, a number, and a code made with the receiver's key.  What has no valid code, came
before, or is older than what came already is dropped before anything of it is read.
"""

from __future__ import annotations

import asyncio
import hmac
import struct
from collections.abc import Callable
from hashlib import blake2b
from typing import Any, Final, NamedTuple

from raybroker.model.errors import ConfigError
from raybroker.model.setting import PortRange

CODE_BYTES: Final = 16
PAYLOAD_BYTES_MAX: Final = 1024
"""With its head a datagram stays below what every network carries in one piece."""
SENDERS_MAX: Final = 1024
"""Senders whose last number is known; what others say is dropped."""
_HEAD: Final = struct.Struct(">QQB")

Address = tuple[str, int]


class Number(NamedTuple):
    """Of a datagram: the life of its sender, and a number within it, from 1."""

    life: int = 0
    number: int = 0


Take = Callable[[str, Number, Address, bytes], None]
"""(sender, number, where it came from, payload)."""


class Datagrams(asyncio.DatagramProtocol):
    """``name``: who we are to others; ``key``: what they must know; ``life``: greater than in every life before."""

    def __init__(self, name: str, key: bytes, life: int, take: Take) -> None:
        self.name = name
        self.key = key
        self.life = life
        self.address: Address | None = None
        self.dropped = 0
        """Datagrams that were not taken."""
        self._take = take
        self._label = name.encode()[:255]
        self._number = 0
        self._last: dict[str, Number] = {}
        self._transport: Any = None

    async def open(self, ip: str, ports: PortRange) -> Address:
        """Bind the first free port of the range on the running loop; raises ConfigError when there is none."""
        loop, last = asyncio.get_running_loop(), None
        for port in range(ports.low, ports.high + 1):
            try:
                self._transport, _ = await loop.create_datagram_endpoint(lambda: self, local_addr=(ip, port))
            except OSError as error:
                last = error
                continue
            found = self._transport.get_extra_info("sockname")
            self.address = str(found[0]), int(found[1])
            return self.address
        raise ConfigError(f"no free port for datagrams in {ports} on {ip}: {last}")

    def send(self, to: Address, key: bytes, payload: bytes) -> Number:
        """Send to whoever has that key there; the number under which it goes. It may be lost without a word."""
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
        if (this <= last) if last is not None else len(self._last) >= SENDERS_MAX:
            self.dropped += 1
            return
        self._last[sender] = this
        self._take(sender, this, (str(addr[0]), int(addr[1])), body[_HEAD.size + length :])

    def error_received(self, exc: Exception) -> None:
        """Nobody listens there, say: then no answer comes either."""


def _code(key: bytes, body: bytes) -> bytes:
    return blake2b(body, digest_size=CODE_BYTES, key=key[:64]).digest()
