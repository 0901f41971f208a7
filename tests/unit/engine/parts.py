"""Fakes of what single parts of a host work with: real destinations of the core, and no host around them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from raybroker.core import command as cmd
from raybroker.core.destination import Destination
from raybroker.core.durable.recovery import KINDS
from raybroker.core.outcome import Effect, Outcome
from raybroker.engine.checkpoint import Definition
from raybroker.engine.destinations.destination_registry import DestinationRegistry
from raybroker.engine.measured_time import MeasuredTime
from raybroker.engine.path.executor import DestinationStep
from raybroker.engine.path.own_sends import OwnSends
from raybroker.hosting.block_codec import WireCodec
from raybroker.model.blocks.block import Block
from raybroker.model.blocks.record import NOTE, LogEntry
from raybroker.model.settings.settings import destination_attributes
from tests.unit.engine.rig import Clock, made, text_of


class Commands:
    """An executor that steps destinations at once; ``batches``: what was performed or written together."""

    def __init__(self, time: MeasuredTime) -> None:
        self.time = time
        self.room = True
        self.blocks: dict[tuple[int, int], Block] = {}
        self.effects: list[Effect] = []
        self.batches: list[list[Any]] = []

    def require_running(self) -> None: ...

    def has_room(self, nbytes: int) -> bool:
        return self.room

    def later(self, action: Callable[[], object]) -> None:
        action()

    def perform(self, destination: Destination, command: cmd.Command, block: Block | None = None) -> Outcome:
        return self.perform_all([DestinationStep(destination, command, block)], (), lambda: None)[0]

    def perform_all(
        self, steps: Sequence[DestinationStep], extra: Sequence[LogEntry], done: Callable[[], None]
    ) -> list[Outcome]:
        found = []
        for destination, command, block in steps:
            outcome = destination.step(command, now_ms=self.time.read(), ahead_ms=self.time.ahead_ms)
            if outcome.accepted is not None and block is not None:
                self.blocks[destination.number, outcome.accepted] = block
            self.effects += [*outcome.immediate, *outcome.after_durable]
            found.append(outcome)
        self.batches.append([*(step.command for step in steps), *extra])
        done()
        return found

    def append(self, entries: Sequence[LogEntry], done: Callable[[], None]) -> None:
        self.batches.append(list(entries))
        done()

    def note(self, number: int, meta: bytes, done: Callable[[], None]) -> None:
        self.append([LogEntry(NOTE, number, 0, meta)], done)

    def read(self, destination: Destination, ordinal: int) -> Block | None:
        """As a block reader."""
        return self.blocks.get((destination.number, ordinal))

    whole = read

    def headers(self, destination: Destination, ordinal: int) -> Any:
        return WireCodec().content(self.blocks[destination.number, ordinal])


class Desk:
    """A registry of real destinations with the fakes that their parts need; typed Any, since fakes stand in."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.time = MeasuredTime(self.clock)
        self.executor: Any = Commands(self.time)
        self.registry = DestinationRegistry()
        self.codec = WireCodec()
        self.own = OwnSends(self.registry, self.codec, 99)
        self.lines: list[str] = []

    def add(
        self,
        name: str = "q",
        kind: str = "queue",
        *,
        owner: str | None = None,
        auto_created: bool = False,
        **attributes: Any,
    ) -> Destination:
        checked = destination_attributes(attributes, type="topic" if kind == "topic" else "queue")
        destination = KINDS[kind](self.registry.next_number, name, checked)
        destination.current.read_headers = lambda ordinal: self.executor.headers(destination, ordinal)
        self.registry.next_number += 1
        self.registry.destinations[kind, name] = destination
        self.registry.definitions[destination.number] = Definition(name, auto_created, checked, kind, owner)
        return destination

    def put(self, destination: Destination, *bodies: str, **more: Any) -> int:
        """Messages as one block; returns its ordinal."""
        seq = self.own.take_seqs(len(bodies))
        block = made(*bodies, producer=99, first_seq=seq, now_ms=self.clock.ms, **more)
        self.executor.perform_all([self.own.step(destination, block)], (), lambda: None)
        ordinal = max(destination.block_index.held)
        assert self.executor.blocks[destination.number, ordinal] is block
        return ordinal

    def kill(self, destination: Destination, ordinal: int, mask: int) -> None:
        """Take waiting messages out, for whoever settles them as dead."""
        self.executor.perform(destination, cmd.Remove({ordinal: mask}, aside=True))

    def bodies(self, destination: Destination) -> list[str]:
        """What is held, in order of arrival."""
        found = []
        for ordinal, entry in destination.block_index.held.items():
            block = self.executor.blocks[destination.number, ordinal]
            found += [text_of(block, index) for index in range(block.count) if not entry.done >> index & 1]
        return found
