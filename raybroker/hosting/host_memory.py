"""The memory of a host's process and of the others of its broker, as the engine is told of it."""

from __future__ import annotations

from raybroker.model.settings.settings import ConfigView
from raybroker.system.memory import give_back_memory
from raybroker.system.process_memory import memory_limit_bytes, resident_bytes


def memory_limit(config: ConfigView) -> int:
    """Memory that a broker may use, bytes."""
    configured: int = config["raybroker.memory.limit_bytes"]
    return configured if configured >= 0 else memory_limit_bytes()


class HostMemory:
    """``elsewhere_bytes``: what the broker's other processes use, which the broker tells."""

    def __init__(self, config: ConfigView) -> None:
        self._config = config
        self.elsewhere_bytes = 0

    def usage(self) -> tuple[int, int]:
        """See engine.ports.Memory; a system that does not tell what a process uses has no limit."""
        own = resident_bytes()
        return (own + self.elsewhere_bytes, memory_limit(self._config)) if own else (0, 0)

    def give_back(self, *, thorough: bool) -> None:
        give_back_memory(thorough=thorough)
