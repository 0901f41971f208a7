"""The process of a host: its state, and what its broker has it change while it runs."""

from __future__ import annotations

from collections.abc import Callable

from raybroker.engine.memory.memory_protection import MemoryProtection
from raybroker.engine.sessions.drained_nodes import NodeDrains
from raybroker.hosting.host_memory import HostMemory
from raybroker.model.listing import Row


class ProcessPort:
    """``state`` says how it is; ``reconfigure`` takes the properties that differ from the configuration."""

    def __init__(
        self,
        state: Callable[[], Row],
        reconfigure: Callable[[Row], None],
        used: HostMemory,
        protection: MemoryProtection,
        drained: NodeDrains,
    ) -> None:
        self._state = state
        self._reconfigure = reconfigure
        self._used = used
        self._protection = protection
        self._drained = drained

    async def state(self) -> Row:
        return self._state()

    async def stop_intake(self) -> None:
        """Have all producers wait from now on: the broker is about to end the host."""
        self._protection.hold_everyone()

    async def drain_nodes(self, until_ms: dict[str, int]) -> None:
        """Have consumers on these nodes get nothing more, and give back what they have not begun; others get messages
        again. Node → until when, milliseconds since 1970, 0 without a deadline."""
        self._drained.define(until_ms)

    async def configure(self, changed: Row) -> None:
        """Have exactly these properties differ from the configuration."""
        self._reconfigure(changed)

    async def memory_elsewhere(self, nbytes: int) -> None:
        """What the other processes of the broker use counts against the limit of its memory, too."""
        self._used.elsewhere_bytes = nbytes
        self._protection.check_memory()
