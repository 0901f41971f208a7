"""A broker looks after its hosts: one that runs and does not answer is ended, so that Ray starts it again.

A process that has ended is noticed by Ray at once.  One that is stopped or hangs is not: its sockets stay open, and
clients would wait for it until Ray gives the whole node up.  What it has stored comes back with its successor; what it
might still do afterwards is refused, because its store is locked and its connections are gone (K-19).
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from collections.abc import Callable
from typing import Any, Final

from raybroker.actors import runtime
from raybroker.actors.remote import RemoteHost
from raybroker.model.errors import BrokerError
from raybroker.system.clock import SystemClock

ASK_EVERY_S: Final = 0.5
ASK_TIMEOUT_S: Final = 1.0

log = logging.getLogger("raybroker.broker")


class HostWatch:
    """``hosts``: those there are now; ``hung_ms``: silence after which a host is ended, 0 for never."""

    def __init__(self, hosts: Callable[[], list[Any]], hung_ms: int) -> None:
        self._hosts = hosts
        self._hung_ms = hung_ms
        self._clock = SystemClock()
        self._heard: dict[str, tuple[int, int]] = {}
        """Host → (process id, when it answered last)."""

    async def run(self) -> None:
        while self._hung_ms > 0:
            await asyncio.sleep(ASK_EVERY_S)
            hosts = [host for host in self._hosts() if isinstance(host, RemoteHost)]
            await asyncio.gather(*(self._look(host) for host in hosts))
            names = {host.key for host in hosts}
            self._heard = {key: found for key, found in self._heard.items() if key in names}

    async def _look(self, host: RemoteHost) -> None:
        try:
            pid = await runtime.call(host.actor.alive, timeout_s=ASK_TIMEOUT_S)
        except BrokerError:
            self._silent(host)
        else:
            self._heard[host.key] = (pid, self._clock.monotonic_ns())

    def _silent(self, host: RemoteHost) -> None:
        """No answer: the process is gone and Ray starts another, or it hangs."""
        known = self._heard.get(host.key)
        if known is None:
            return
        pid, heard_ns = known
        if self._clock.monotonic_ns() - heard_ns < self._hung_ms * 1_000_000:
            return
        del self._heard[host.key]
        if _is_host(pid):
            log.error("host %s (process %d) has not answered for %d ms and is ended", host.key, pid, self._hung_ms)
            os.kill(pid, signal.SIGKILL)


def _is_host(pid: int) -> bool:
    """Whether the process is one of this machine, and a destination host still."""
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            return b"DestinationHost" in file.read()
    except OSError:
        return False
