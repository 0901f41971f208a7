"""The memory of one broker: its process and its hosts together, which all of them hold against one limit.

A host knows what itself uses at any moment; the broker looks at all processes about once a second, and tells each host
what the others use when that has changed by ``TELL_PART`` of the limit.  The broker itself makes no new destination at
level red; what the configuration change record says is carried out in any case, since all brokers have to agree.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol

from raybroker.core.memory_level import Level, actions_at, level_of, levels_of
from raybroker.hosting.host_memory import memory_limit
from raybroker.hosting.host_port import HostPort
from raybroker.model.errors import BrokerError, MemoryLowError
from raybroker.model.settings.settings import ConfigView
from raybroker.model.sizes import MIB
from raybroker.system.process_memory import own_bytes, private_bytes

LOOK_S: Final = 1.0
TELL_PART: Final = 200
TELL_TIMEOUT_S: Final = 5.0

log = logging.getLogger("raybroker.broker")


class Guarded(Protocol):
    """What a broker asks of whoever guards its memory."""

    def require(self, what: str) -> None:
        """Raises MemoryLowError at level red, where ``what`` would take more memory."""
        ...

    def memory_row(self) -> dict[str, Any]:
        """memory_level, memory_used_bytes, memory_limit_bytes."""
        ...


class Unguarded:
    """A guard of a broker's memory at which nobody looks: it lets everything pass."""

    def require(self, what: str) -> None: ...

    def memory_row(self) -> dict[str, Any]:
        return {}


class BrokerMemory:
    """``processes``: host and its process id, of those that run on this machine as processes of their own.

    inside     hosts in this process
    own_bytes  what this process uses: resident memory, and the part of it that is private
    """

    def __init__(
        self,
        config: ConfigView,
        processes: Callable[[], Mapping[str, tuple[HostPort, int]]],
        *,
        broker: str,
        own_bytes: Callable[[], tuple[int, int]] = own_bytes,
        private_of: Callable[[int], int] = private_bytes,
        inside: Callable[[], Mapping[str, HostPort]] = dict,
    ) -> None:
        self.level = Level.GREEN
        self.used_bytes = self.limit_bytes = 0
        self._config = config
        self._processes = processes
        self._broker = broker
        self._inside = inside
        self._own_bytes = own_bytes
        self._private_of = private_of
        self._told: dict[str, tuple[int, int]] = {}
        """Host → the process that was told, and what."""

    async def run(self) -> None:
        while True:
            await asyncio.sleep(LOOK_S)
            await self.check_memory()

    async def check_memory(self) -> None:
        """Look at all processes, and tell the hosts what they have to know."""
        resident, own = self._own_bytes()
        hosts = self._processes()
        private = {key: self._private_of(pid) for key, (_, pid) in hosts.items()}
        self.used_bytes, self.limit_bytes = resident + sum(private.values()), memory_limit(self._config)
        self._set_level(level_of(self.used_bytes, self.limit_bytes, levels_of(self._config), self.level))
        total = own + sum(private.values())
        inside = self._inside()
        self._told = {key: told for key, told in self._told.items() if key in hosts or key in inside}
        await asyncio.gather(
            *(self._tell(key, host, pid, total - private[key]) for key, (host, pid) in hosts.items()),
            *(self._tell(key, host, 0, total - own) for key, host in inside.items()),
        )

    async def _tell(self, key: str, host: HostPort, pid: int, elsewhere: int) -> None:
        known_pid, known = self._told.get(key, (0, 0))
        if known_pid == pid and abs(elsewhere - known) * TELL_PART < self.limit_bytes:
            return
        try:
            await asyncio.wait_for(host.process.memory_elsewhere(elsewhere), TELL_TIMEOUT_S)
        except (BrokerError, TimeoutError):
            return  # It is told at the next look.
        self._told[key] = pid, elsewhere

    def _set_level(self, level: Level) -> None:
        if level is self.level:
            return
        before, self.level = self.level, level
        log.log(
            logging.WARNING if level > before else logging.INFO,
            "[B1089] memory level of broker %s is %s, it was %s: %d of %d MiB are used by %d processes",
            self._broker,
            level.name,
            before.name,
            self.used_bytes // MIB,
            self.limit_bytes // MIB,
            len(self._processes()) + 1,
        )

    def require(self, what: str) -> None:
        """Raises MemoryLowError at level red, where ``what`` would take more memory."""
        if actions_at(self.level, levels_of(self._config)).refuses:
            raise MemoryLowError(
                f"{what}: memory is out: {self.used_bytes // MIB} of {self.limit_bytes // MIB} MiB are used by broker"
                f" {self._broker} and its hosts (level RED); consume messages, or give it more memory"
                " (raybroker.memory.limit_bytes)"
            )

    def memory_row(self) -> dict[str, Any]:
        return {
            "memory_level": self.level.name,
            "memory_used_bytes": self.used_bytes,
            "memory_limit_bytes": self.limit_bytes,
        }

    def figures(self) -> dict[str, Any]:
        """Return the figures for metrics."""
        return {"memory_level": {"broker": int(self.level)}, "memory_used_bytes": {"broker": self.used_bytes}}
