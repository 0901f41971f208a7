"""Between brokers: messages are lost, repeated, delayed and overtaken; links are cut, also in one direction only.

Where a name leads is asked when a message arrives: to the present instance, so that what was meant for an older one
reaches the newer.  The answer of a call goes to the instance that called.
"""

from __future__ import annotations

import pickle
from typing import TYPE_CHECKING

from raybroker.cluster import events as ev
from raybroker.cluster.member_messages import Envelope

if TYPE_CHECKING:
    from tests.simulation_control.node import Process
    from tests.simulation_control.surroundings import Surroundings


class Network:
    """``cut``: (from, to) pairs that carry nothing; "*" stands for the old instance of a broker."""

    def __init__(self, world: Surroundings) -> None:
        self.world = world
        self.cut: set[tuple[str, str]] = set()

    def send(self, sender: Process, to: str, envelope: Envelope) -> None:
        world, rng, plan = self.world, self.world.rng, self.world.plan
        data = pickle.dumps(envelope)
        lost = 0.0 if world.calm else plan.lost
        copies = 1 + (rng.random() < (0.0 if world.calm else plan.repeated))
        for _ in range(copies):
            if rng.random() < lost:
                continue
            delay = rng.randrange(100, plan.delay_us)
            if not world.calm and rng.random() < plan.late_share:
                delay += rng.randrange(plan.late_us)
            world.loop.after(delay, self._arrive, sender, to, data)

    def _arrive(self, sender: Process, to: str, data: bytes) -> None:
        world = self.world
        if (sender.name, to) in self.cut or sender.cut_off:
            return
        envelope = pickle.loads(data)
        old = world.nodes[to].old
        if old is not None and not old.gone and not old.cut_off and envelope.to == old.member.incarnation:
            old.feed(ev.EnvelopeReceived(envelope))
            return
        target = world.nodes[to].process
        if target is not None and not target.gone and not target.cut_off:
            target.feed(ev.EnvelopeReceived(envelope))
