"""Surroundings: what the parts of simulated copies may ask of their world; ``world`` composes the parts."""

from __future__ import annotations

from random import Random
from typing import Any, Protocol

from tests.simulation.events import Loop
from tests.simulation_replication.disk import SimDisk
from tests.simulation_replication.plan import Plan


class Surroundings(Protocol):
    """One log's copies: their randomness, time, disks and processes.  ``calm``: nothing goes wrong any more."""

    rng: Random
    plan: Plan
    loop: Loop
    calm: bool
    network: Any
    watch: Any
    disks: dict[int, SimDisk]
    running: dict[int, Any]

    def count(self, what: str) -> None: ...

    def processes(self) -> list[Any]: ...

    def new_disk(self, node: int) -> None: ...

    def clone_disk(self, disk: SimDisk, node: int) -> None: ...

    def begin(self, node: int) -> None: ...

    def propose(self, process: Any) -> None: ...

    def end(self, process: Any) -> None: ...
