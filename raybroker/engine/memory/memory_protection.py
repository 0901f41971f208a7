"""Memory protection of a host: it looks at the memory now and then, and carries out what the level demands.

The memory is looked at once a second, and after so many messages, or bytes, have come in, never for each message.  At
orange, producers that have used up the level's count are told to wait, and the memory is looked at again every
``THROTTLE_MS``; what had left them by then is taken.  At red what arrives is refused with MemoryLowError, and all
producers are told to wait.  Leaving a level undoes what it did.

Connections of clients are never closed for memory, as MQ does in the extreme: that would give their consumers' messages
back to the queues, and hinder those who make room.  No checkpoint is written either: it would free no memory, and takes
some while it is made.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from raybroker.core.memory_level import Level, actions_at, level_of, levels_of
from raybroker.engine.memory.block_cache import BlockCache
from raybroker.engine.path.executor import Executor
from raybroker.engine.path.producer_signals import ProducerSignals
from raybroker.engine.path.wakeups import Wakeups
from raybroker.engine.ports import Memory, Notice
from raybroker.model.errors import MemoryLowError
from raybroker.model.settings.settings import ConfigView
from raybroker.model.sizes import MIB

LOOK_MS: Final = 1_000
"""Longest time between two looks at the memory."""
THROTTLE_MS: Final = 100
"""At orange and red, time between two looks; producers that have used up their count wait for the next one."""
LOOK_PARTS: Final = 100
"""The memory is looked at, too, when this part of the limit has come in as messages: few may be large."""
UNBOUNDED: Final = 1 << 62
LOW_MEMORY: Final = "low_memory"
"""What a producer is told that is to wait."""
ENDING: Final = "ending"
"""The same, while the host is about to end."""


class MemoryProtection:
    """The protection of one host; without ``memory`` the level is always green, and nothing is looked at.

    level       as of the last look, of ``used_bytes`` of ``limit_bytes``
    left        messages that may come in until the next look; below 0 :meth:`used_up` is to be called
    left_bytes  the same, of bytes
    barred      why messages are refused now; "" while they are not
    """

    def __init__(
        self,
        memory: Memory | None,
        config: ConfigView,
        now_ms: Callable[[], int],
        cache: BlockCache,
        signals: ProducerSignals,
        executor: Executor,
        wakeups: Wakeups,
        report: Callable[[str], None],
    ) -> None:
        self.level = Level.GREEN
        self.used_bytes = self.limit_bytes = 0
        self.left = self.left_bytes = UNBOUNDED
        self.barred = ""
        self._memory = memory
        self._config = config
        self._levels = levels_of(config)
        self._actions = actions_at(Level.GREEN, self._levels)
        self._now_ms = now_ms
        self._cache = cache
        self._signals = signals
        self._executor = executor
        self._wakeups = wakeups
        self._report = report
        self._ending = False
        self._held: set[int] = set()
        """Producers that were told to wait, by attachment."""
        self._look_at_ms = self._free_at_ms = 0

    # ---- looking ---------------------------------------------------------------------------------------------------

    def configure(self) -> None:
        """The configuration has changed."""
        self._levels = levels_of(self._config)
        self.check_memory()

    def check_memory(self) -> None:
        """Look at the memory, act, and let the level's count of messages in."""
        self._measure()
        self._grant()

    def check_if_due(self, now_ms: int) -> None:
        """Look when it is time; what was freed goes back to the system while memory is low."""
        if self._memory is None or now_ms < self._look_at_ms:
            return
        if self.level and now_ms >= self._free_at_ms:
            self._free_at_ms = now_ms + LOOK_MS
            self._memory.give_back(thorough=False)
        self.check_memory()
        self._look_again(now_ms)

    def _look_again(self, now_ms: int) -> None:
        throttles = self._actions.throttles
        self._look_at_ms = now_ms + (THROTTLE_MS if throttles else LOOK_MS)
        if throttles:
            self._wakeups.wake(0, self._look_at_ms)

    def used_up(self, number: int) -> None:
        """React to as many messages as the level allows, the last of them from the producer ``number``."""
        if self._ending:
            return
        throttled = self._actions.throttles
        if not self._held:
            self._measure()
        if throttled and self._actions.throttles:
            self._hold(number)
        else:
            self._grant()
            if self._actions.throttles:
                self._look_again(self._now_ms())

    def _measure(self) -> None:
        if self._memory is None:
            return
        self.used_bytes, self.limit_bytes = self._memory.usage()
        level = level_of(self.used_bytes, self.limit_bytes, self._levels, self.level)
        before, self.level = self.level, level
        self._actions = actions_at(level, self._levels)
        if level is not before:
            self._turn(before)

    def _grant(self) -> None:
        """A new batch may come in."""
        if self._memory is None or self._ending:
            return
        if self._actions.bars:
            begins, self.barred = not self.barred, self._refusal()
            self.left = self.left_bytes = UNBOUNDED
            for number in self._signals.everyone() if begins else ():
                self._hold(number)
            return
        self.barred = ""
        self.left = max(self._levels.counts[self.level], 1)
        self.left_bytes = max(self.limit_bytes // LOOK_PARTS, MIB) if self.limit_bytes > 0 else UNBOUNDED
        held, self._held = self._held, set()
        for number in sorted(held):
            self._signals.let_go_on(number)

    # ---- acting ----------------------------------------------------------------------------------------------------

    def _turn(self, before: Level) -> None:
        """The level is another one."""
        level, memory = self.level, self._memory
        assert memory is not None
        percent = self.used_bytes * 100 // self.limit_bytes if self.limit_bytes > 0 else 0
        line = (
            f"[B1089] memory level is {level.name}, it was {before.name}: {self.used_bytes // MIB} of"
            f" {self.limit_bytes // MIB} MiB ({percent} %) are used{_CONSEQUENCES[level]}"
        )
        self._report(line if level > before else Notice(line))
        self._cache.keep_copies(not self._actions.drops)
        if before is Level.GREEN:
            copies = self._cache.copies()  # When what was appended is durable, the store has all of them.
            self._executor.append([], lambda: self._drop(copies))
        if level > before and self._actions.throttles:
            memory.give_back(thorough=True)

    def _drop(self, copies: list[tuple[int, int]]) -> None:
        if self.level and self._memory is not None:
            self._cache.drop(copies)
            self._memory.give_back(thorough=False)

    def _hold(self, number: int) -> None:
        """The producer is to wait."""
        if number not in self._held and self._signals.have_wait(number, self._word):
            self._held.add(number)

    @property
    def _word(self) -> str:
        return ENDING if self._ending else LOW_MEMORY

    def hold_everyone(self) -> None:
        """All producers wait from now on, also those that come: the host is about to end."""
        if self._ending:
            return
        self._ending, self._held = True, set()
        for number in self._signals.everyone():
            self._hold(number)

    # ---- what others ask -------------------------------------------------------------------------------------------

    def holds(self, number: int) -> str:
        """What the producer was told that waits for memory, or for the end: then its destination does not tell it to
        go on. "" for one that was not."""
        return self._word if number in self._held else ""

    def attached(self, number: int) -> None:
        """A producer is there."""
        if self.barred or self._ending:
            self._hold(number)

    def require(self, what: str) -> None:
        """Raises MemoryLowError at red, where ``what`` would take more memory."""
        if self._actions.refuses:
            raise MemoryLowError(f"{what}: {self._refusal()}")

    def memory_row(self) -> dict[str, Any]:
        """Return the row for administrators."""
        return {
            "memory_level": self.level.name,
            "memory_used_bytes": self.used_bytes,
            "memory_limit_bytes": self.limit_bytes,
        }

    def figures(self) -> dict[str, Any]:
        """Return the figures for metrics."""
        return {"memory_level": {"host": int(self.level)}, "memory_used_bytes": {"host": self.used_bytes}}

    def _refusal(self) -> str:
        return (
            f"memory is out: {self.used_bytes // MIB} of {self.limit_bytes // MIB} MiB are used (level"
            f" {self.level.name}, imq.{self.level.name.lower()}.threshold={self._levels.thresholds[self.level]});"
            " consume messages, or give the broker more memory (raybroker.memory.limit_bytes)"
        )


_CONSEQUENCES: Final = {
    Level.GREEN: "",
    Level.YELLOW: "; no copies of stored messages are kept in memory",
    Level.ORANGE: "; producers get a few messages at a time through",
    Level.RED: "; no messages, producers and destinations come in until consumers have made room",
}
