"""The simulation of brokers, master and record, for whoever runs many seeds of it."""

from __future__ import annotations

from collections import Counter

from tests.seeds import Simulation
from tests.simulation_control.world import World


def happened(world: World) -> Counter[str]:
    return Counter(world.counts) + Counter(acknowledged=world.clients.acknowledged)


SIMULATION = Simulation("tests.simulation_control", World, happened, "happened", batch_seeds=25, seeds=500)
