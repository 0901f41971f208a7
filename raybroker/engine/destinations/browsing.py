"""Looking at messages without touching them, and choosing some of them for administrators."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from raybroker.core.blocks import message_mask as pk
from raybroker.core.destination import Destination
from raybroker.core.selector import Selector, compile_selector, normalised
from raybroker.engine.destinations.destination_registry import DestinationRegistry
from raybroker.engine.memory.block_reader import BlockReader
from raybroker.engine.ports import Codec
from raybroker.model.blocks.block import Block
from raybroker.model.errors import InvalidDestinationError


class SeenMessage(NamedTuple):
    """Messages of a block as a browser sees them. ``state``: waiting, delayed, hidden or delivered."""

    ordinal: int
    mask: int
    attempts: int
    state: str


def look(destination: Destination, states: Sequence[str]) -> list[SeenMessage]:
    """Everything that is in one of these states now, in the order of delivery; of a topic, each message once."""
    found: list[SeenMessage] = []
    known: dict[int, int] = {}
    for queue in destination.queues.values():
        for state, run in queue.contents():
            mask = run.mask & ~known.get(run.ordinal, 0)
            if state in states and mask:
                if destination.kind == "topic":
                    known[run.ordinal] = known.get(run.ordinal, 0) | mask
                found.append(SeenMessage(run.ordinal, mask, run.attempts, state))
    return found


class Browsing:
    """A snapshot of what waited when it was made; what was consumed since is left out."""

    def __init__(
        self,
        destination: Destination,
        selector: str | None,
        states: Sequence[str],
        registry: DestinationRegistry,
        blocks: BlockReader,
        codec: Codec,
        now_ms: Callable[[], int],
    ) -> None:
        self.destination = destination
        self._registry = registry
        self._blocks = blocks
        self._codec = codec
        self._now_ms = now_ms
        text = normalised(selector)
        self._selector: Selector | None = compile_selector(text) if text is not None else None
        self._todo = list(reversed(look(destination, states)))
        self.messages = sum(seen.mask.bit_count() for seen in self._todo)

    @property
    def more(self) -> bool:
        return bool(self._todo)

    def next(self, most: int) -> Iterator[tuple[SeenMessage, Block]]:
        """Up to ``most`` messages that match, by block. Raises InvalidDestinationError when the queue is gone."""
        if not self._registry.has(self.destination):
            raise InvalidDestinationError(f"{self.destination.kind} {self.destination.name} was destroyed")
        held = self.destination.block_index.held
        while self._todo and most > 0:
            seen = self._todo.pop()
            block_held = held.get(seen.ordinal)
            if block_held is None:
                continue
            mask = seen.mask & ~block_held.done
            mask &= ~block_held.expired(mask, self._now_ms())
            if not mask:
                continue
            block = self._blocks.read(self.destination, seen.ordinal)  # A damaged one is left out.
            if block is None:
                continue
            if self._selector is not None:
                mask = self._selector.pick(self._codec.content(block), mask, seen.attempts)
            some = pk.lowest(mask, most) if mask else 0
            if mask & ~some:
                self._todo.append(seen._replace(mask=mask & ~some))
            if some:
                most -= some.bit_count()
                yield seen._replace(mask=some), block
