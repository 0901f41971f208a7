"""The simulation of copies, for whoever runs many seeds of it."""

from __future__ import annotations

from collections import Counter

from tests.seeds import Simulation
from tests.simulation_replication.world import World


def happened(world: World) -> Counter[str]:
    return Counter(world.counts)


SIMULATION = Simulation("tests.simulation_replication", World, happened, "happened", batch_seeds=25, seeds=2000)
