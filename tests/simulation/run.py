"""The simulation of hosts, clients and their faults, for whoever runs many seeds of it."""

from __future__ import annotations

from collections import Counter

from tests.seeds import Simulation
from tests.simulation.world import World


def faults(world: World) -> Counter[str]:
    return Counter(world.counts)


SIMULATION = Simulation("tests.simulation", World, faults, "faults", batch_seeds=100, seeds=2000)
