"""Sockets for hosts that are other processes: handed over real Unix sockets, to hosts that come and go."""

from __future__ import annotations

import asyncio
import os
import socket
from pathlib import Path
from typing import Any

from raybroker.broker.services.outside import SocketHands
from raybroker.services.listening.socket_handing import SocketReceiver


class Host:
    """Takes sockets, until it is closed."""

    def __init__(self, key: str) -> None:
        self.key = key
        self.guests = self
        self.taken: asyncio.Queue[socket.socket] = asyncio.Queue()
        address = f"raybroker-test-{os.getpid()}-{key}"
        self.receiver = SocketReceiver(address, lambda given, _: self.taken.put_nowait(given))
        self.receiver.start()

    async def address(self, security: str) -> str:
        return self.receiver.address


def test_hosts_that_are_gone_leave_no_socket_behind(tmp_path: Path) -> None:
    async def story() -> None:
        hosts: list[Any] = [Host("stays")]
        hands = SocketHands(tmp_path, lambda: hosts)

        async def hand(host: Any) -> None:
            ours, theirs = socket.socketpair()
            await hands(host, ours, "jms")
            (await asyncio.wait_for(host.taken.get(), 20)).close()
            theirs.close()

        for number in range(20):
            await hand(hosts[0])
            comes = Host(f"h{number}")
            hosts.append(comes)
            await hand(comes)
            comes.receiver.close()
            hosts.remove(comes)
            assert set(hands._senders) == {"stays", comes.key}
        for host in hosts:
            host.receiver.close()
        for sender in hands._senders.values():
            sender.close()
        await asyncio.sleep(0)

    asyncio.run(story())
