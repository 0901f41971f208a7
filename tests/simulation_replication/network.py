"""Between copies: messages are lost, repeated, delayed, overtaken and damaged; links are cut, also one way only."""

from __future__ import annotations

from dataclasses import replace

from raybroker.replication import events as ev
from raybroker.replication.messages import Append, CopyMessage
from tests.simulation_replication.node import Process
from tests.simulation_replication.surroundings import Surroundings


class Network:
    """``cut``: (from, to) nodes between which nothing arrives; ``held``: such nodes, and what waits on the way."""

    def __init__(self, world: Surroundings) -> None:
        self.world = world
        self.cut: set[tuple[int, int]] = set()
        self.held: tuple[tuple[int, int], list[tuple[str, CopyMessage]]] | None = None

    def hold(self, sender: int, to: int) -> list[tuple[str, CopyMessage]]:
        """What is sent between these nodes waits in the list that is returned, with its sender, until ``release``."""
        waiting: list[tuple[str, CopyMessage]] = []
        self.held = (sender, to), waiting
        return waiting

    def release(self) -> None:
        """What is sent from now on arrives again."""
        self.held = None

    def unlink(self, copy: str, node: int) -> None:
        """The connections of a copy end: those of the others hear of it that the network reaches."""
        for process in self.world.processes():
            if process.node != node and not {(node, process.node), (process.node, node)} & self.cut:
                self.world.loop.after(
                    self.world.rng.randrange(self.world.plan.delay_us), process.feed, ev.LinkLost(copy)
                )

    def send(self, sender: Process, to: str, message: CopyMessage) -> None:
        world, rng, plan = self.world, self.world.rng, self.world.plan
        for _ in range(1 if world.calm else 1 + (rng.random() < plan.repeated)):
            if not world.calm and rng.random() < plan.lost:
                continue
            delay = rng.randrange(100, plan.delay_us)
            if not world.calm and rng.random() < plan.late_share:
                delay += rng.randrange(plan.late_us)
            sent = message
            if not world.calm and isinstance(message, Append) and message.entries and rng.random() < plan.flipped:
                sent = self._flipped(message)
            world.loop.after(delay, self._arrive, sender, to, sent)

    def _flipped(self, message: Append) -> Append:
        at = self.world.rng.randrange(len(message.entries))
        entries = list(message.entries)
        entries[at] = entries[at]._replace(body=(*entries[at].body, b"\x01"))
        return replace(message, entries=tuple(entries))

    def _arrive(self, sender: Process, to: str, message: CopyMessage) -> None:
        for process in self.world.processes():
            way = sender.node, process.node
            if process.replica.me == to and self.held is not None and self.held[0] == way:
                self.held[1].append((sender.replica.me, message))
            elif process.replica.me == to and way not in self.cut:
                process.feed(ev.CopyMessageReceived(sender.replica.me, message))
