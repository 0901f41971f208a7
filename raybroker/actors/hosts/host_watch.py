"""The host watch of a broker: a host process that runs and does not answer is ended, so that Ray restarts it. The log
of the broker tells of it, and restarts are counted.

A process that has ended is noticed by Ray at once.  One that is stopped or hangs is not: its sockets stay open, and
clients would wait for it until Ray gives the whole node up.  What it has stored comes back with its successor; what it
might still do afterwards is refused, because its store is locked and its connections are gone.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from raybroker.actors import runtime
from raybroker.actors.hosts.heartbeat_replies import PING
from raybroker.actors.hosts.remote import RemoteHost
from raybroker.model.errors import BrokerError
from raybroker.system.clock import SystemClock
from raybroker.transport.datagrams import Address, Datagrams

ASK_EVERY_S: Final = 0.5
ASK_AFTER_S: Final = 0.75
"""A host that has not answered a ping for so long is called: a ping or its answer may have been lost."""
ASK_TIMEOUT_S: Final = 1.0
PINGS_MAX: Final = 64
"""Pings of a host whose answers may still come. On a busy machine an answer may take longer than it is to the next
ping: it shows that the host lived when its own ping was sent."""
LATE_S: Final = 0.5
"""A broker that looks later than this stood still itself: for so long no host could answer it."""

log = logging.getLogger("raybroker.broker")


@dataclass
class HostHeard:
    """What is known of a host: its process, when it was last seen to live, where pings go, and the numbers of the last
    ones with the times when they were sent.

    ``lost``: the log knows that it does not answer; ``ended``: the broker has ended the process.
    """

    pid: int
    at_ns: int
    address: Address | None
    pinged: dict[int, int] = field(default_factory=dict)
    lost: bool = False
    ended: bool = False


class HostWatch:
    """``hosts``: those there are now; ``hung_ms``: silence after which a host is ended, 0 for never; ``log_of``: the
    file that a host writes its log to.

    A host is called to learn its process and where it takes pings, and whenever those stay without an answer.
    """

    def __init__(
        self, hosts: Callable[[], list[Any]], hung_ms: int, datagrams: Datagrams, log_of: Callable[[str], Path]
    ) -> None:
        self._hosts = hosts
        self._log_of = log_of
        self.restarts = 0
        """Processes of hosts that were followed by another one, since the broker started."""
        self._datagrams = datagrams
        self._hung_ms = hung_ms
        self._clock = SystemClock()
        self._heard: dict[str, HostHeard] = {}
        """By host."""

    async def run(self) -> None:
        while True:
            before_ns = self._clock.monotonic_ns()
            await asyncio.sleep(ASK_EVERY_S)
            self._stood_still(self._clock.monotonic_ns() - before_ns - int(ASK_EVERY_S * 1e9))
            hosts = [host for host in self._hosts() if isinstance(host, RemoteHost)]
            await asyncio.gather(*(self._check_host(host) for host in hosts))
            names = {host.key for host in self._hosts()}
            self._heard = {key: found for key, found in self._heard.items() if key in names}

    def _stood_still(self, late_ns: int) -> None:
        """This loop is so late: what no host could do meanwhile is not held against it."""
        if late_ns > LATE_S * 1e9:
            for known in self._heard.values():
                known.at_ns += late_ns

    def made(self, host: RemoteHost, pid: int) -> None:
        """A new host runs as that process: one that is killed before it is looked at has restarted all the same."""
        if host.key not in self._heard:
            now_ns = self._clock.monotonic_ns()
            self._heard[host.key] = HostHeard(pid, now_ns, None)
            self._answered(host, None, pid, now_ns)

    async def _check_host(self, host: RemoteHost) -> None:
        known = self._heard.get(host.key)
        if known is not None and known.address is not None:
            number = self._datagrams.send(known.address, host.spec.token, PING).number
            known.pinged[number] = self._clock.monotonic_ns()
            if len(known.pinged) > PINGS_MAX:
                del known.pinged[min(known.pinged)]
            if self._clock.monotonic_ns() - known.at_ns < ASK_AFTER_S * 1_000_000_000:
                self._told_again(host, known)
                return
        try:
            pid, address = await runtime.call(host.actor.alive, timeout_s=ASK_TIMEOUT_S)
        except BrokerError:
            self._silent(host)
        else:
            where = None if address is None else (str(address[0]), int(address[1]))
            now_ns = self._clock.monotonic_ns()
            pinged = known.pinged if known is not None and (known.pid, known.address) == (pid, where) else {}
            self._heard[host.key] = HostHeard(pid, now_ns, where, pinged)
            self._answered(host, known, pid, now_ns)

    def process_of(self, key: str) -> int | None:
        """The process id that a host had when it answered last."""
        known = self._heard.get(key)
        return None if known is None else known.pid

    def pong(self, key: str, payload: bytes) -> None:
        """A host has answered a ping: it lived when that was sent."""
        known, (number, _, pid) = self._heard.get(key), payload.partition(b" ")
        if known is None or pid != b"%d" % known.pid or not number.isdigit():
            return
        sent_ns = known.pinged.pop(int(number), None)
        if sent_ns is not None:
            known.at_ns = max(known.at_ns, sent_ns)

    def _answered(self, host: RemoteHost, before: HostHeard | None, pid: int, now_ns: int) -> None:
        """A host has answered a call: tell what is new about it."""
        where = self._log_of(host.spec.host)
        if before is None:
            log.info("[B1170] host %s (%s) runs as process %d; its log is %s", host.key, host.hosting, pid, where)
        elif before.pid != pid:
            self.restarts += 1
            silent_s = (now_ns - before.at_ns) / 1e9
            log.warning(
                "[B2171] host %s has restarted: process %d has ended and process %d serves now; it had not answered for"
                " %.1f s; its log is %s",
                host.key,
                before.pid,
                pid,
                silent_s,
                where,
            )
        else:
            self._told_again(host, before)

    @staticmethod
    def _told_again(host: RemoteHost, known: HostHeard) -> None:
        if known.lost:
            known.lost = False
            log.info("[B1172] host %s (process %d) answers again", host.key, known.pid)

    def _silent(self, host: RemoteHost) -> None:
        """No answer: the process is gone and Ray starts another, or it hangs."""
        known = self._heard.get(host.key)
        if known is None:
            return
        pid = known.pid
        if not known.lost:
            known.lost = True
            what = "does not answer" if _is_host(pid) else "has ended; Ray starts it again"
            log.warning(
                "[B2172] host %s (process %d) %s; its log is %s", host.key, pid, what, self._log_of(host.spec.host)
            )
        silent_ms = (self._clock.monotonic_ns() - known.at_ns) // 1_000_000
        if known.ended or not 0 < self._hung_ms <= silent_ms:
            return
        known.ended = True
        if _is_host(pid):
            log.error("[B3173] host %s (process %d) has not answered for %d ms and is ended", host.key, pid, silent_ms)
            os.kill(pid, signal.SIGKILL)


def _is_host(pid: int) -> bool:
    """Whether the process is one of this machine, and a destination host still."""
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            return b"DestinationHost" in file.read()
    except OSError:
        return False
