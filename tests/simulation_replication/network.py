"""Between copies: messages are lost, repeated, delayed, overtaken and damaged; links are cut, also one way only."""

from __future__ import annotations

from dataclasses import replace

from raybroker.replication import events as ev
from raybroker.replication.messages import Append, CopyMessage
from tests.simulation_replication.node import Process
from tests.simulation_replication.surroundings import Surroundings


class Network:
    """``cut``: (from, to) nodes between which nothing arrives."""

    def __init__(self, world: Surroundings) -> None:
        self.world = world
        self.cut: set[tuple[int, int]] = set()

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
            if process.replica.me == to and (sender.node, process.node) not in self.cut:
                process.feed(ev.CopyMessageReceived(sender.replica.me, message))
