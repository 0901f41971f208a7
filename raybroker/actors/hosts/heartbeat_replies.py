"""A host's answers to the pings of its broker, in datagrams on the actor's own loop."""

from __future__ import annotations

import logging
from typing import Final

from raybroker.actors import runtime
from raybroker.model.errors import BrokerError
from raybroker.model.settings.setting import PortRange
from raybroker.system.clock import SystemClock
from raybroker.transport.datagrams import Address, Datagrams, Number

PING: Final = b"?"
"""The payload of a ping."""
PONG: Final = b"!"
"""First byte of a pong; the number of its ping and the process id follow."""

log = logging.getLogger("raybroker.host")


class HeartbeatReplies:
    """The replies of the host ``key``; ``token``: the key of its datagrams and of its broker's."""

    def __init__(self, key: str, token: bytes, pid: int) -> None:
        self._pid = pid
        self._datagrams = Datagrams(key, token, SystemClock().now_ms(), self._receive_ping)
        self._tried = False

    async def address(self, ports: PortRange) -> Address | None:
        """Return where it listens; None when it cannot."""
        if not self._tried:
            self._tried = True
            try:
                await self._datagrams.open(runtime.node_ip(), ports)
            except (BrokerError, OSError) as error:
                log.warning("host %s answers pings in actor calls: %s", self._datagrams.name, error)
        return self._datagrams.address

    def _receive_ping(self, sender: str, number: Number, source: Address, payload: bytes) -> None:
        if payload == PING:
            self._datagrams.send(source, self._datagrams.key, PONG + b"%d %d" % (number.number, self._pid))
